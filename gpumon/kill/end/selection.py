"""The processes that the user names, found on the GPUs.

A PID on a command line may be old, and name another process by now. So only a process that holds a
GPU is accepted by its PID alone. A launcher above such processes, or a child below one, holds none
itself, and nothing shows that it is the intended one: it needs its start time, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.host.process_host import Target, target_of, target_of_holder, target_of_relative
from gpumon.kill.descendants import descendants
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.host.process_host import ProcessHost, RelatedProcess
    from gpumon.model.processes import ProcessId, UnlistedHolder
    from gpumon.model.snapshot import Snapshot


class NamedProcess(NamedTuple):
    """A process as the user names it."""

    pid: int
    start_time: int | None = None  # clock ticks after boot; ``None`` if the user does not say


class ProcessSelectionError(Exception):
    """Not all processes were found.

    Attributes:
        sentences: What is wrong, one sentence for each process, safe to print.
    """

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__(" ".join(sentences))
        self.sentences = tuple(sentences)


class SelectedTargets(NamedTuple):
    """The processes to end."""

    targets: tuple[Target, ...]  # those that the user named, in that order
    children: tuple[Target, ...]  # their descendants, if these are to be ended, too
    programs: dict[ProcessId, object]  # what shows whether one has started another program

    @property
    def all(self) -> tuple[Target, ...]:
        """The processes to signal."""
        return self.targets + self.children


def select(
    named: Sequence[NamedProcess], snapshot: Snapshot, host: ProcessHost, *, children: bool
) -> SelectedTargets:
    """Find the processes, and with ``children`` their descendants.

    Raises:
        ProcessSelectionError: One of them is not found, or is another process than the named one.
        Refused: The machine cannot be asked.
    """
    family = host.relatives([process.id for process in snapshot.processes if process.visible])
    holders = snapshot.holders
    if any(_listed(one, snapshot) is None for one in named):
        holders = host.scan(snapshot) or holders
    suspects = () if holders is None else holders.suspects
    targets, faults = [], []
    for one in named:
        found = _find(one, snapshot, suspects, family)
        if isinstance(found, str):
            faults.append(found)
        elif found not in targets:
            targets.append(found)
    if faults:
        raise ProcessSelectionError(faults)
    family = host.relatives([target.id for target in targets])
    below: list[Target] = []
    if children:
        ids = {target.id for target in targets}
        found_below = descendants(targets, family, snapshot.processes)
        below = [target for target in found_below if target.id not in ids]
    return SelectedTargets(tuple(targets), tuple(below), _programs(family))


def changed(selection: SelectedTargets, host: ProcessHost) -> list[str]:
    """The processes that have started another program meanwhile, a sentence each.

    Raises:
        Refused: The machine cannot be asked.
    """
    ids = [target.id for target in selection.all]
    now = _programs(host.relatives(ids))
    return [
        f"{id_.pid} has started another program meanwhile, so nothing was sent: look at it again."
        for id_ in ids
        if id_ in now and id_ in selection.programs and now[id_] != selection.programs[id_]
    ]


def _programs(family: Sequence[RelatedProcess]) -> dict[ProcessId, object]:
    """What changes with every exec of a process; a command line alone may also be rewritten."""
    return {
        relative.id: relative.command if relative.stack_start is None else relative.stack_start
        for relative in family
    }


def _find(
    one: NamedProcess,
    snapshot: Snapshot,
    suspects: Sequence[UnlistedHolder],
    family: Sequence[RelatedProcess],
) -> Target | str:
    """The target, or what is wrong in a sentence."""
    found = _listed(one, snapshot)
    if found is None:
        suspect = next((suspect for suspect in suspects if suspect.id.pid == one.pid), None)
        found = None if suspect is None else target_of_holder(suspect)
    relative = next((relative for relative in family if relative.id.pid == one.pid), None)
    if found is None and relative is not None:
        if one.start_time is None:
            return _needs_start(relative, snapshot, family)
        found = target_of_relative(relative)
    if found is None:
        return f"{one.pid} is on no GPU{_unknown(snapshot)}: to end it all the same, use kill."
    if one.start_time not in (None, found.id.start_time):
        return (
            f"{one.pid} is another process by now; the one that started at {one.start_time} has "
            "ended."
        )
    return found


def _listed(one: NamedProcess, snapshot: Snapshot) -> Target | None:
    listed = [process for process in snapshot.processes if process.id.pid == one.pid]
    # Two may be listed: one of another PID namespace, which the host refuses.
    best = next((process for process in listed if process.visible), None)
    if best is None:
        return target_of(listed[0]) if listed else None
    return target_of(best)


def _needs_start(
    relative: RelatedProcess, snapshot: Snapshot, family: Sequence[RelatedProcess]
) -> str:
    """What to write for a relative of a process on a GPU."""
    pid, name = relative.id.pid, printable(relative.name)
    on_gpus = {process.id for process in snapshot.processes}
    below = [
        target.id.pid
        for target in descendants([target_of_relative(relative)], family, ())
        if target.id in on_gpus
    ]
    what = f"is above {below[0]}, which is on one" if below else "belongs to a process on one"
    return (
        f"{pid} ({name}) is on no GPU, but {what}: "
        f"if you mean it, write {pid}:{relative.id.start_time}."
    )


def _unknown(snapshot: Snapshot) -> str:
    """The GPUs whose processes are not known, if there are any."""
    unknown = [str(gpu.index) for gpu in snapshot.gpus if "processes" in gpu.unknown]
    return f" as far as known (not GPU {','.join(unknown)})" if unknown else ""
