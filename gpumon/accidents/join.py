"""Joins an accident with what was seen before and after it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpumon.model.accidents import AccidentKind
from gpumon.model.allocations import allocations_of
from gpumon.model.error_codes import ErrorSeverity, error_code, error_details
from gpumon.model.jobs import job_of, launchers_of
from gpumon.model.snapshot import ANSWERING
from gpumon.text.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.accidents import Accident
    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Gpu, Host, Snapshot

LEFT_SECONDS = 30.0
"""Processes that left their GPUs within so many seconds are part of the report."""
_BEFORE_SECONDS = 300.0
"""Who was on a GPU is not known from a list that is older: logs may have a sample every minute."""
_NAME_CHARACTERS = 15
"""The kernel cuts the name of a process to so many characters (``TASK_COMM_LEN``)."""
_NAMES_SHOWN = 3
_KILLS_COUNTED = re.compile(r"oom_kill ([0-9]{1,18})")
"""``Accident.text`` if only the counter of a cgroup is known."""
_MEANINGS = {
    AccidentKind.TIMEOUT: "the GPU did not finish the work of a process in time",
    AccidentKind.RESET: "the driver reset the GPU, which ends all work on it",
    AccidentKind.OUT_OF_MEMORY: "the OOM killer killed a process",
}
_LABELS = {
    AccidentKind.TIMEOUT: "time-out",
    AccidentKind.RESET: "reset",
    AccidentKind.OUT_OF_MEMORY: "out of memory",
}


class AccidentReport(NamedTuple):
    """An accident, and what was seen of the processes that it concerned.

    ``None`` is unknown. All texts may be of other people: not safe to print.

    Attributes:
        accident: Its first line.
        further: The lines that follow from it.
        gpu_index: Index of the GPU; ``None`` also for an accident of no GPU.
        label: What it is, in short: ``XID 31``, ``reset``.
        meaning: What that means, with what the line says beyond an error's number, see
            ``error_details``; ``None`` if neither is known.
        then: What else the lines that follow report, as ``what``.
        process: The process that the kernel names, if it was seen before the accident.
        job: The job of that process, in short; without a named process the one job that had the
            GPU.
        has_foreign_pid: Whether the kernel's PID names none of the processes that were seen, as in
            a container with a PID namespace of its own.
        ran_seconds: How long that process had run.
        present: The processes on the GPU before the accident, and those of the same job on other
            GPUs; ``None`` if their list was not known.
        left: Those of them that no longer used their GPUs ``LEFT_SECONDS`` later.
        lost_gpu_hours: At least so many GPU-hours had been used by the processes that left: by the
            job of the named process, or by all if the GPU itself failed.
    """

    accident: Accident
    further: tuple[Accident, ...] = ()
    gpu_index: int | None = None
    label: str = ""
    meaning: str | None = None
    then: tuple[str, ...] = ()
    process: GpuProcess | None = None
    job: str | None = None
    has_foreign_pid: bool = False
    ran_seconds: float | None = None
    present: tuple[GpuProcess, ...] | None = None
    left: tuple[GpuProcess, ...] | None = None
    lost_gpu_hours: float | None = None

    @property
    def what(self) -> str:
        """What happened: ``XID 31: <meaning>``."""
        return _joined(self.label, self.meaning)

    @property
    def whose(self) -> str:
        """Whose it was, or who was on the GPU; empty if that is not known."""
        accident = self.accident
        if self.process is not None:
            return _owned(_named(self.process), self.job)
        if accident.pid is not None:
            name = "" if accident.process_name is None else f" {accident.process_name}"
            return f"{accident.pid}{name}"
        named = _names(self.present or ())
        return _owned(named, self.job) if named else self.job or ""

    @property
    def left_text(self) -> str:
        """What left its GPUs: ``nothing``, a dash if nobody was there, empty if not known."""
        if self.left is None:
            return ""
        return _names(self.left) or ("nothing" if self.present else "–")

    @property
    def lost_text(self) -> str:
        """``≥ 12.5``; empty if it is not known."""
        return "" if self.lost_gpu_hours is None else f"≥ {self.lost_gpu_hours:.1f}"

    @property
    def sentence(self) -> str:
        """All in one sentence, without what left and what is gone."""
        where = "" if self.gpu_index is None else f"GPU {self.gpu_index}: "
        whose = f": {self.whose}" if self.whose else ""
        what = ", then ".join([each.replace(": ", ", ", 1) for each in (self.what, *self.then)])
        return f"{where}{what}{whose}"


def _joined(label: str, meaning: str | None) -> str:
    return label if meaning is None else f"{label}: {meaning}"


def _label(accident: Accident, gpu: Gpu | None) -> str:
    """What an accident is, in short; ``gpu`` is its GPU, if that is listed."""
    if accident.kind is AccidentKind.ERROR_CODE and accident.number is not None:
        return error_code(accident.number, None if gpu is None else gpu.name).label
    return _LABELS.get(accident.kind, "error")


def report_of(
    accident: Accident,
    before: Snapshot | None,
    after: Snapshot | None,
    further: tuple[Accident, ...] = (),
) -> AccidentReport:
    """An accident with what is known of it.

    Args:
        accident: Its first line, with a time of the same clock as the snapshots.
        before: The newest snapshot whose process lists are older; others count as none.
        after: The newest snapshot of the ``LEFT_SECONDS`` after it.
        further: The lines that follow from it.
    """
    gpu = _gpu_of(accident, before) or _gpu_of(accident, after)
    report = AccidentReport(
        accident,
        further,
        None if gpu is None else gpu.index,
        _label(accident, gpu),
        _meaning(accident, gpu),
        _then(accident, further, gpu),
    )
    if before is None or before.processes_at is None:
        return report
    if not 0 <= accident.time - before.processes_at <= _BEFORE_SECONDS:
        return report
    process = _named_process(accident, before)
    launchers = launchers_of(before.processes)
    present = _present(accident, process, before, launchers)
    left = None if present is None else _left(accident, present, after)
    return report._replace(
        process=process,
        has_foreign_pid=accident.pid is not None and _has_own_pids(before.host),
        job=_job(process, gpu, before, launchers),
        ran_seconds=_ran(process, accident),
        present=present,
        left=left,
        lost_gpu_hours=_lost(accident, process, left or (), launchers, gpu),
    )


def _gpu_of(accident: Accident, snapshot: Snapshot | None) -> Gpu | None:
    if accident.gpu_uuid is None or snapshot is None:
        return None
    return next((gpu for gpu in snapshot.gpus if gpu.uuid == accident.gpu_uuid), None)


def _meaning(accident: Accident, gpu: Gpu | None) -> str | None:
    if accident.kind is AccidentKind.ERROR_CODE and accident.number is not None:
        name = None if gpu is None else gpu.name
        meaning = error_code(accident.number, name).meaning
        details = error_details(accident.number, accident.text, name)
        return ", ".join(filter(None, (meaning, details))) or None
    meaning = _MEANINGS.get(accident.kind)
    if accident.kind is AccidentKind.OUT_OF_MEMORY and accident.cgroup is not None:
        killed = _KILLS_COUNTED.fullmatch(accident.text)
        if killed is not None:
            # The machine's memory may have been used up, and not that of the cgroup.
            processes = counted(int(killed[1]), "process", "es")
            return f"the OOM killer killed {processes} of {accident.cgroup}"
        return f"{meaning} at the memory limit of {accident.cgroup}"
    return meaning


def _then(accident: Accident, further: tuple[Accident, ...], gpu: Gpu | None) -> tuple[str, ...]:
    """What lines report that are of another kind or number, each once."""
    known = {(accident.kind, accident.number)}
    found: list[str] = []
    for line in further:
        if (line.kind, line.number) not in known and len(found) < _NAMES_SHOWN:
            known.add((line.kind, line.number))
            found.append(_joined(_label(line, gpu), _meaning(line, gpu)))
    return tuple(found)


def _has_own_pids(host: Host) -> bool:
    """Whether PIDs are of another namespace than the initial one, whose PIDs the kernel writes."""
    return bool(host.in_container) or not host.pids_are_ours


def _named_process(accident: Accident, before: Snapshot) -> GpuProcess | None:
    """The process with the PID in the line: on the GPU, or with the same name."""
    if accident.pid is None or _has_own_pids(before.host):
        return None
    for process in before.processes:
        if process.id.pid != accident.pid:
            continue
        is_on_gpu = any(use.gpu_uuid == accident.gpu_uuid for use in process.uses)
        # The kernel may name a thread, so the name counts only where the GPU does not.
        if is_on_gpu or _is_same_name(accident.process_name, process.name):
            return process
    return None


def _is_same_name(one: str | None, other: str | None) -> bool:
    if not one or not other:
        return False
    return one[:_NAME_CHARACTERS] == other[:_NAME_CHARACTERS]


def _is_listed(process: GpuProcess, snapshot: Snapshot) -> bool:
    """Whether the process lists of all its GPUs are known."""
    listed = {
        gpu.uuid
        for gpu in snapshot.gpus
        if gpu.status in ANSWERING and "processes" not in gpu.unknown
    }
    return all(use.gpu_uuid in listed for use in process.uses)


def _present(
    accident: Accident, process: GpuProcess | None, before: Snapshot, launchers: set[ProcessId]
) -> tuple[GpuProcess, ...] | None:
    gpu = _gpu_of(accident, before)
    if process is None and (gpu is None or "processes" in gpu.unknown):
        return None
    concerned = [
        each
        for each in before.processes
        if each is process or any(use.gpu_uuid == accident.gpu_uuid for use in each.uses)
    ]
    jobs = {job_of(each, launchers) for each in ([process] if process else concerned)}
    return (
        *concerned,
        *(
            each
            for each in before.processes
            if each not in concerned and job_of(each, launchers) in jobs
        ),
    )


def _left(
    accident: Accident, present: tuple[GpuProcess, ...], after: Snapshot | None
) -> tuple[GpuProcess, ...] | None:
    """Those that are no longer listed; ``None`` if no later list is known."""
    if after is None or after.processes_at is None:
        return None
    if not accident.time < after.processes_at <= accident.time + LEFT_SECONDS:
        return None
    still = {process.id.pid: process.id.start_time for process in after.processes}
    # A GPU that is lost lists nothing, and does not say that its processes have ended.
    if not all(_is_listed(process, after) for process in present):
        return None
    return tuple([process for process in present if not _is_in(process, still)])


def _is_in(process: GpuProcess, still: dict[int, int | None]) -> bool:
    pid, start = process.id.pid, process.id.start_time
    return pid in still and (start is None or still[pid] in (None, start))


def _job(
    process: GpuProcess | None, gpu: Gpu | None, before: Snapshot, launchers: set[ProcessId]
) -> str | None:
    if process is not None:
        kind, key = job_of(process, launchers)
        return key if kind in ("slurm", "container") else None
    owners = [] if gpu is None else allocations_of(before.allocations, gpu)
    return owners[0].label if len(owners) == 1 else None


def _ran(process: GpuProcess | None, accident: Accident) -> float | None:
    if process is None or process.started_at is None:
        return None
    return max(0.0, accident.time - process.started_at)


def _lost(
    accident: Accident,
    process: GpuProcess | None,
    left: tuple[GpuProcess, ...],
    launchers: set[ProcessId],
    gpu: Gpu | None,
) -> float | None:
    """GPU-hours of the processes that left; ``None`` where none can be blamed on the accident."""
    if process is not None:
        job = job_of(process, launchers)
        left = tuple([each for each in left if job_of(each, launchers) == job])
    elif accident.pid is not None or not _is_of_all(accident, gpu):
        return None
    began: dict[str, float] = {}
    for each in left:
        if each.started_at is not None:
            for use in each.uses:
                known = began.get(use.gpu_uuid, accident.time)
                began[use.gpu_uuid] = min(known, each.started_at)
    if not began:
        return None
    return sum(accident.time - start for start in began.values()) / 3600


def _is_of_all(accident: Accident, gpu: Gpu | None) -> bool:
    """Whether it ends the work of all processes on the GPU."""
    if accident.kind is AccidentKind.ERROR_CODE and accident.number is not None:
        name = None if gpu is None else gpu.name
        return error_code(accident.number, name).severity is ErrorSeverity.CRITICAL
    return accident.kind is AccidentKind.RESET


def _named(process: GpuProcess) -> str:
    name = "" if process.name is None else f" {process.name}"
    user = "" if process.user is None else f" of {process.user}"
    return f"{process.id.pid}{name}{user}"


def _names(processes: Iterable[GpuProcess]) -> str:
    names = [_named(process) for process in processes]
    more = len(names) - _NAMES_SHOWN
    text = ", ".join(names[:_NAMES_SHOWN])
    return f"{text} and {more} more" if more > 0 else text


def _owned(names: str, job: str | None) -> str:
    return names if job is None else f"{names} ({job})"
