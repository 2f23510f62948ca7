"""Processes put together: by the user they belong to, and by the job they are part of."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.snapshot import GpuProcess, ProcessId  # noqa: TC001 - msgspec resolves them
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History


class UserUse(Struct, frozen=True):
    """What one user has of a machine.

    Attributes:
        user: The name; ``None`` for all processes together whose owner is unknown.
        uid: The number.
        processes: How many processes are on a card.
        gpus: Indices of those cards, ascending.
        memory: Bytes of GPU memory; ``None`` when that of any process is unknown.
        share: ``memory`` as a part of all cards' memory, 0 to 1. Cards that do not tell their size
            are left out, and who is on such a card has a share that is not known.
        gpu_seconds: Seconds of cards that this program saw the user have since it started.
        idle_memory: Bytes held by processes seen idle for ``Thresholds.idle_after`` or longer.
        idle_unknown: Of how many processes it is unknown whether they are idle, or with how much.
        longest: Age in seconds of the oldest process.
    """

    user: str | None
    uid: int | None
    processes: int
    gpus: tuple[int, ...]
    memory: int | None
    share: float | None
    gpu_seconds: float | None
    idle_memory: int
    idle_unknown: int
    longest: float | None


class Job(Struct, frozen=True):
    """Processes that were started together, one at least.

    Attributes:
        key: Names the job from one snapshot to the next.
        kind: ``slurm``, ``container``, ``launcher``, ``session``, or ``process`` for one that
            belongs to nothing.
        label: In a few words, printable: ``slurm 88123``, ``docker llama-ft``, ``torchrun 51022``.
        processes: In the order in which they were given.
        users: Whose they are, each once; ``None`` is an unknown owner.
        gpus: Indices of their cards, ascending.
        memory: Bytes; ``None`` when that of any process is unknown.
        sm: Percent: on each card the sum over its processes, then the mean over the cards that
            tell; ``None`` when none does.
        started_at: When the oldest started; ``None`` when that of none is known.
    """

    key: str
    kind: str
    label: str
    processes: tuple[GpuProcess, ...]
    users: tuple[str | None, ...]
    gpus: tuple[int, ...]
    memory: int | None
    sm: float | None
    started_at: float | None


def users(snapshot: Snapshot, history: History) -> list[UserUse]:
    """What each user has, most memory first, unknown amounts after the known ones."""
    owned: defaultdict[str | None, list[GpuProcess]] = defaultdict(list)
    for process in snapshot.processes:
        owned[process.user].append(process)
    uses = [_use(user, processes, snapshot, history) for user, processes in owned.items()]
    return sorted(uses, key=lambda use: (use.memory is None, -(use.memory or 0), use.user or ""))


def _use(
    user: str | None,
    processes: list[GpuProcess],
    snapshot: Snapshot,
    history: History,
) -> UserUse:
    memory = _memory(processes)
    idle_memory = idle_unknown = 0
    for process in processes:
        spell = history.process_idle(process.id)
        held = process.memory_used
        if spell is None:
            # One whose work no card tells may well be idle; who only draws is never called so.
            idle_unknown += process.sm is None and process.type != "G"
        elif spell.seconds >= history.thresholds.idle_after:
            idle_memory += held or 0
            idle_unknown += held is None
    started_at = _oldest(processes)
    return UserUse(
        user=user,
        uid=next((process.uid for process in processes if process.uid is not None), None),
        processes=len(processes),
        gpus=_cards(processes),
        memory=memory,
        share=_share(memory, processes, snapshot.gpus),
        gpu_seconds=history.gpu_seconds(user),
        idle_memory=idle_memory,
        idle_unknown=idle_unknown,
        longest=None if started_at is None else max(0.0, snapshot.time - started_at),
    )


def _share(
    memory: int | None, processes: Iterable[GpuProcess], gpus: Sequence[Gpu]
) -> float | None:
    sizes = {gpu.uuid: gpu.memory_total for gpu in gpus if gpu.memory_total}
    on_known_cards = all(use.gpu_uuid in sizes for process in processes for use in process.uses)
    if memory is None or not on_known_cards:
        return None
    return memory / sum(sizes.values())


def jobs(processes: Sequence[GpuProcess]) -> list[Job]:
    """The jobs that these processes are part of.

    A process belongs to its Slurm job; without one to its Kubernetes pod or container; without one
    to the outermost launcher above it, or that it is; else to its session, together with the other
    processes of the same user there; else to itself.

    Returns:
        In the order of the first process of each: sorted processes give sorted jobs.
    """
    launchers = {
        process.place.launcher
        for process in processes
        if process.place is not None and process.place.launcher is not None
    }
    members: dict[tuple[str, str], list[GpuProcess]] = {}
    for process in processes:
        members.setdefault(_job_of(process, launchers), []).append(process)
    return [_job(kind, key, together) for (kind, key), together in members.items()]


def _job_of(process: GpuProcess, launchers: set[ProcessId]) -> tuple[str, str]:
    """Kind and key of the job of a process."""
    place = process.place
    if place is not None:
        container = place.container
        if place.slurm_job is not None:
            return "slurm", f"slurm {place.slurm_job}"
        if container is not None and container.pod is not None:
            return "container", f"pod {container.pod}"
        if container is not None and (container.id or container.name):
            return "container", f"container {container.runtime} {container.id or container.name}"
        if place.launcher is not None:
            return "launcher", f"launcher {_identity(place.launcher)}"
    if process.id in launchers:
        return "launcher", f"launcher {_identity(process.id)}"
    # What one terminal started is one job, but not across a change of user: a shell of root's and
    # the services started from it share a session and nothing else.
    # 0 is a session of another PID name space.
    if place is not None and place.session:
        owner = process.user if process.uid is None else process.uid
        return "session", f"session {place.session} of {owner}"
    return "process", f"process {_identity(process.id)}"


def _identity(process: ProcessId) -> str:
    return f"{process.pid}/{process.start_time}"


def _job(kind: str, key: str, processes: list[GpuProcess]) -> Job:
    return Job(
        key=key,
        kind=kind,
        label=printable(_label(kind, processes)),
        processes=tuple(processes),
        users=tuple(dict.fromkeys(process.user for process in processes)),
        gpus=_cards(processes),
        memory=_memory(processes),
        sm=_sm(processes),
        started_at=_oldest(processes),
    )


def _label(kind: str, processes: list[GpuProcess]) -> str:
    first = processes[0]
    place = first.place
    if kind == "launcher":
        # The launcher itself, if it is among them, does not name itself as one.
        for process in processes:
            if process.place is not None and process.place.launcher is not None:
                name = process.place.launcher_name or "launcher"
                return f"{name} {process.place.launcher.pid}"
    if place is not None:
        if kind == "slurm":
            return f"slurm {place.slurm_job}"
        if kind == "container" and place.container is not None:
            return place.container.label
        if kind == "session":
            return f"session {place.session}"
    return f"{first.name or 'process'} {first.id.pid}"


def _cards(processes: Iterable[GpuProcess]) -> tuple[int, ...]:
    return tuple(sorted({use.gpu_index for process in processes for use in process.uses}))


def _memory(processes: Iterable[GpuProcess]) -> int | None:
    total = 0
    for process in processes:
        held = process.memory_used
        if held is None:
            return None
        total += held
    return total


def _sm(processes: Iterable[GpuProcess]) -> float | None:
    on_card: defaultdict[tuple[str, tuple[int, int] | None], int] = defaultdict(int)
    for process in processes:
        for use in process.uses:
            if use.sm is not None:
                on_card[use.gpu_uuid, use.instance] += use.sm
    return sum(on_card.values()) / len(on_card) if on_card else None


def _oldest(processes: Iterable[GpuProcess]) -> float | None:
    return min((one.started_at for one in processes if one.started_at is not None), default=None)
