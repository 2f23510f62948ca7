"""Classifies processes that hold a GPU but are not in the driver's list, with the evidence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.host.containers import CgroupInfo, cgroup_info
from gpumon.host.process_tree import ancestors
from gpumon.host.processes import COMMAND_BYTES
from gpumon.host.procfs import (
    ProcessFiles,
    Stat,
    boot_time,
    opened,
    started_after_boot,
    stat_of,
)
from gpumon.model.processes import HoldReason, ProcessId, UnlistedHolder, Workload
from gpumon.system.system import user_name
from gpumon.text.formatting import duration, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from gpumon.model.processes import GpuProcess

_INIT = 1
_TOLD_AFTER = 1.0

_NAMES_INSIDE = re.compile(r"^NSpid:.*\s(\d+)$", re.MULTILINE)
_TIMES_RUN = re.compile(r"ctxt_switches:\s*(\d+)")
_SYSTEMD = "systemd"
_SYSTEMD_CGROUP = re.compile(r"^(?:0:|\d+:name=systemd):(.+)$", re.MULTILINE)
_UNIT = re.compile(r"/[^/]+\.(scope|service)(?=/|$)")

_OBSERVER = re.compile(
    r"nvidia-smi|nvtop|nvitop|nvisel|gpustat|gpumon|all-smi|btop|btm|glances|telegraf|netdata"
    r"|nv-hostengine|dcgm.*|.*[_-]exporter|nvidia_gpu_.*"
    # The kernel cuts names to 15 bytes.
    r"|nvidia-persiste.*|nvidia-powerd|nv-fabricmanag.*|nvidia-fabricm.*|nvidia-topolog.*"
    r"|nvidia-device-p.*|gpu-feature-dis.*"
    r"|X|Xorg|Xwayland"
)
_PYTHON = re.compile(r"python[\d.]*")

_RANKS = {
    **{reason: rank for rank, reason in enumerate(HoldReason)},
    HoldReason.OBSERVER: len(HoldReason),
}

Classification = tuple[HoldReason, str]
"""The reason, and its sentence."""


def rank(holder: UnlistedHolder) -> tuple[int, int]:
    """A sort key: the strongest reason first, observers last."""
    return _RANKS[holder.reason], holder.id.pid


class Known:
    """A holder as remembered between scans. Times are monotonic."""

    __slots__ = ("command", "orphaned_at", "parent", "rest", "rests_since")

    def __init__(self, parent: int) -> None:
        self.parent = parent  # PID of the first that was seen
        self.orphaned_at: float | None = None  # when another parent was first seen
        self.command: tuple[str, ...] = ()  # the last that could be read
        self.rest: tuple[str, ...] = ()  # its state, and its numbers of context switches
        self.rests_since = 0.0  # when ``rest`` was first seen


class _Surroundings(Struct, frozen=True):
    """The namespace and the cgroup of a process."""

    pid_namespace: str | None = None
    cgroup: CgroupInfo = CgroupInfo()
    in_scope: bool = False  # of systemd: others than systemd start its processes


class _Evidence(Struct, frozen=True):
    """The evidence about one holder."""

    files: ProcessFiles
    stat: Stat
    parent: Stat | None
    known: Known
    around: _Surroundings


class HolderClassifier:
    """Classifies the holders of one scan.

    Args:
        proc: Where the process file system is mounted.
        own_pid: PID of this program.
        now: Monotonic seconds.
        listed: The processes that the driver lists.
        ambiguous: UUIDs of GPUs whose listed processes have PIDs of another PID namespace.
        before: What the previous scan remembered.
    """

    def __init__(
        self,
        proc: str,
        own_pid: int,
        now: float,
        listed: Iterable[GpuProcess],
        ambiguous: AbstractSet[str],
        before: Mapping[ProcessId, Known],
    ) -> None:
        self._proc = proc
        self._now = now
        self._listed = {process.id: process for process in listed}
        self._ambiguous = ambiguous
        self._before = before
        self._stats: dict[int, Stat | None] = {}
        self.known: dict[ProcessId, Known] = {}
        try:
            with opened(proc, own_pid) as files:
                self._own = _surroundings(files)
        except OSError:
            self._own = _Surroundings()

    def classify(
        self, files: ProcessFiles, stat: Stat, held: Sequence[str]
    ) -> UnlistedHolder | None:
        """Classify a process that holds GPUs; ``held`` are their UUIDs.

        Returns:
            ``None`` if the driver lists it on all of them.

        Raises:
            OSError: It has ended.
        """
        known = self._remember(stat)
        listed = self._listed.get(stat.id)
        listed_on = set() if listed is None else {use.gpu_uuid for use in listed.uses}
        unlisted = tuple(uuid for uuid in held if uuid not in listed_on)
        if not unlisted:
            return None
        uid = files.owner()
        # Reading the command of a process that hangs takes a while: not in every scan.
        if stat.state != "D" or not known.command:
            known.command = files.command(COMMAND_BYTES) or known.command
        parent = next(ancestors(stat, self._stat), None)
        around = _surroundings(files)
        case = _Evidence(files, stat, parent, known, around)
        reason, sentence = self._reason(case)
        if not self._ambiguous.isdisjoint(unlisted):
            sentence += "; the driver may list it under its number in another PID namespace"
        return UnlistedHolder(
            id=stat.id,
            gpu_uuids=unlisted,
            reason=reason,
            sentence=sentence,
            user=user_name(uid),
            uid=uid,
            name=stat.name,
            command=known.command,
            state=stat.state,
            parent=None if parent is None else parent.id,
            started_at=boot_time() + started_after_boot(stat.id),
            place=Workload(
                container=around.cgroup.container,
                slurm_job=around.cgroup.slurm_job,
                slurm_step=around.cgroup.slurm_step,
            ),
        )

    def _remember(self, stat: Stat) -> Known:
        known = self._before.get(stat.id) or Known(stat.parent)
        self.known[stat.id] = known
        if stat.parent != known.parent and known.orphaned_at is None:
            known.orphaned_at = self._now
        listed = self._listed.get(stat.id)
        if listed is not None and listed.command:
            known.command = listed.command
        return known

    def _stat(self, pid: int) -> Stat | None:
        if pid not in self._stats:
            self._stats[pid] = stat_of(self._proc, pid)
        return self._stats[pid]

    def _reason(self, case: _Evidence) -> Classification:
        observer = _is_observer(case.stat.name, case.known.command)
        orphan = None if observer else self._orphan(case)
        blocked = self._blocked(case)
        if orphan is not None:
            further = "" if blocked is None else f"; {blocked[1]}"
            return HoldReason.ORPHAN, orphan + further
        if observer and (blocked is None or blocked[0] is HoldReason.STOPPED):
            return HoldReason.OBSERVER, "by its name it is a monitor or a service of the machine"
        return blocked or self._stranger(case) or self._child(case) or self._holds(case)

    def _orphan(self, case: _Evidence) -> str | None:
        """How it lost its parent, if that is known."""
        stat, parent, known = case.stat, case.parent, case.known
        if known.orphaned_at is not None:
            ended = f"its parent {known.parent} ended {self._ago(known.orphaned_at)}"
            return f"{ended}; {_called(stat.parent, parent)} took it over"
        if parent is None or not self._takes_orphans(parent):
            return None
        leader = self._dead_leader(stat)
        # A process leaves a session only by creating one. So a process in another session than its
        # parent was started by a process of that session and not by this parent.
        was_adopted = stat.session not in (0, stat.id.pid) and stat.session != parent.session
        # systemd starts services itself; processes in scopes were started by others.
        if was_adopted or (parent.name == _SYSTEMD and case.around.in_scope):
            too = "" if leader is None else f", and so has {leader}, which led its process group"
            return f"its parent has ended{too}; {_called(stat.parent, parent)} took it over"
        if leader is not None:
            ended = f"{leader}, which led its process group, has ended"
            return f"{ended}; its parent is {_called(stat.parent, parent)}"
        return None

    def _takes_orphans(self, stat: Stat) -> bool:
        """Whether it is the first process of the machine, of a container, or of a user's login.

        Other programs can be subreapers too, but the kernel does not show which.
        """
        if stat.id.pid == _INIT or stat.name == _SYSTEMD:
            return True
        try:
            with opened(self._proc, stat.id.pid) as files:
                inside = _NAMES_INSIDE.search(files.text("status"))
        except OSError:
            return False
        return inside is not None and int(inside[1]) == _INIT

    def _dead_leader(self, stat: Stat) -> int | None:
        """The number of its process group, if the leader of the group has ended."""
        if stat.group in (0, stat.id.pid):
            return None
        leader = self._stat(stat.group)
        return stat.group if leader is None or leader.ended else None

    def _blocked(self, case: _Evidence) -> Classification | None:
        """The state that prevents it from ending normally."""
        stat = case.stat
        if stat.leader_exited:
            return HoldReason.LEADER_EXITED, self._without_leader(case)
        if stat.state == "D":
            waits = "it is ending and waits" if stat.exiting else "it waits"
            where = f"{_where(case.files)}{self._resting(case)}"
            return (
                HoldReason.UNINTERRUPTIBLE,
                f"{waits} inside the kernel{where}: no signal reaches it",
            )
        if stat.state == "T":
            stopped = f"it is stopped{self._resting(case)}"
            return HoldReason.STOPPED, f"{stopped}: it ends by SIGKILL only, or once continued"
        if stat.state == "t":
            return HoldReason.STOPPED, f"it is stopped by a debugger{self._resting(case)}"
        return None

    def _without_leader(self, case: _Evidence) -> str:
        """The sentence for a process whose main thread is dead."""
        lives = case.stat.threads - 1
        threads = "another lives" if lives == 1 else f"{lives} others live"
        sentence = f"its main thread has ended, but {threads} on"
        for thread in case.files.threads():
            if _thread_state(case.files, thread) == "D":
                tid, where = thread.split("/")[1], _where(case.files, thread)
                return f"{sentence}; thread {tid} waits inside the kernel{where}"
        return sentence

    def _resting(self, case: _Evidence) -> str:
        """How long it has been in its state without running, as far as was seen."""
        known = case.known
        status = case.files.text("status")
        rest = (case.stat.state, *_TIMES_RUN.findall(status))
        if rest != known.rest:
            known.rest, known.rests_since = rest, self._now
        rested = self._now - known.rests_since
        return f" for at least {duration(rested)}" if rested >= _TOLD_AFTER else ""

    def _stranger(self, case: _Evidence) -> Classification | None:
        """Whether it is in a container that this program is not in."""
        here, there = self._own, case.around
        if there.cgroup.container is not None and there.cgroup.container != here.cgroup.container:
            return (
                HoldReason.OTHER_CONTAINER,
                f"it runs in {printable(there.cgroup.container.label)}",
            )
        namespaces = here.pid_namespace, there.pid_namespace
        if None not in namespaces and here.pid_namespace != there.pid_namespace:
            sentence = "it runs in another PID namespace, as in a container"
            return HoldReason.OTHER_CONTAINER, sentence
        return None

    def _child(self, case: _Evidence) -> Classification | None:
        """Whether it descends from a process that the driver lists."""
        for above in ancestors(case.stat, self._stat):
            if above.id in self._listed:
                kinship = "is a child of" if above.id.pid == case.stat.parent else "descends from"
                called = _called(above.id.pid, above)
                return HoldReason.CHILD, f"it {kinship} {called}, which the driver lists"
        return None

    def _holds(self, case: _Evidence) -> Classification:
        listed = self._listed.get(case.stat.id)
        if listed is None:
            return HoldReason.HOLDS, "it has the GPU open; the driver does not list it"
        indices = ", ".join(map(str, listed.gpu_indices))
        return HoldReason.HOLDS, f"it has the GPU open; the driver lists it on GPU {indices} only"

    def _ago(self, then: float) -> str:
        passed = self._now - then
        return f"{duration(passed)} ago" if passed >= _TOLD_AFTER else "just now"


def _surroundings(files: ProcessFiles) -> _Surroundings:
    """The namespace and the cgroup of a process."""
    try:
        namespace = files.link("ns/pid")
    except OSError:
        namespace = None
    cgroup = files.text("cgroup")
    path = _SYSTEMD_CGROUP.search(cgroup)
    units: list[str] = [] if path is None else _UNIT.findall(path[1])
    return _Surroundings(namespace, cgroup_info(cgroup), units[-1:] == ["scope"])


def _thread_state(files: ProcessFiles, thread: str) -> str:
    try:
        return files.stat(thread).state
    except OSError:
        return "X"


def _where(files: ProcessFiles, thread: str = "") -> str:
    channel = files.wait_channel(thread)
    return "" if channel is None else f" in {channel}"


def _called(pid: int, stat: Stat | None) -> str:
    if pid == _INIT:
        return "init"
    return str(pid) if stat is None else f"{pid} ({printable(stat.name)})"


def _is_observer(name: str, command: tuple[str, ...]) -> bool:
    """Whether its name, or that of its script or module, is that of a monitor or a service."""
    program = command[0].rpartition("/")[2] if command else ""
    names = [name, program]
    if _PYTHON.fullmatch(program):
        arguments = [argument for argument in command[1:] if not argument.startswith("-")]
        names += [argument.rpartition("/")[2] for argument in arguments[:1]]
    return any(_OBSERVER.fullmatch(each) for each in names)
