"""Follows a job from its start until its memory is reclaimed, and reports the result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.host.process_tree import Descendants
from gpumon.host.procfs import stat_of
from gpumon.makers.source import SourceError
from gpumon.model.snapshot import GpuStatus
from gpumon.sampling.gpu_sampler import QUICK_PATIENCE
from gpumon.scheduling.child import Child, ControllingTerminal
from gpumon.scheduling.eligibility import gib, process_name
from gpumon.scheduling.job_usage import (
    SLACK_BYTES,
    JobUsage,
    exit_sentence,
    full_sentence,
    gpu_summary,
    unused_warning,
)
from gpumon.system.system import THIS_SYSTEM
from gpumon.text.formatting import printable
from gpumon.text.status_line import tell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.csv.recorder import Recorder
    from gpumon.sampling.gpu_sampler import GpuSampler
    from gpumon.scheduling.child import CommandExit
    from gpumon.scheduling.eligibility import Candidate
    from gpumon.scheduling.locks import HeldReservation

INTERVAL = 1.0
"""Seconds between two samples, as in ``gpumon log``."""
_BACK_SECONDS = 10.0
"""Seconds to wait for the memory of an exited job; the driver frees it sooner."""
_BACK_PAUSE = 0.1
_TOUCH_SECONDS = 3600.0


class JobRunner:
    """One command on reserved GPUs, whose reservation is kept alive meanwhile.

    ``before`` is their state before the job.
    """

    def __init__(
        self,
        sampler: GpuSampler,
        candidates: Sequence[Candidate],
        before: Snapshot,
        reservation: HeldReservation,
    ) -> None:
        self._sampler = sampler
        self._candidates = candidates
        self._before = before
        self._reservation = reservation
        self._touched_at = time.monotonic()
        self._usage: JobUsage | None = None
        self._recorder: Recorder | None = None
        self._members: Descendants | None = None

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], log: str | None
    ) -> CommandExit:
        """Run the command and report the result on standard error.

        Raises:
            LogError: The log cannot be written; the command is not run then.
            CommandError: The command cannot be started.
        """
        if log is not None:
            from gpumon.recording.csv.recorder import Recorder

            self._recorder = Recorder(log)
            self._recorder.start()
        began = time.monotonic()
        try:
            command_exit, usage = self._stay(command, environment)
            seconds = time.monotonic() - began
            back = self._wait_for_memory(usage)
        finally:
            status = None if self._recorder is None else self._recorder.stop()
        tell(exit_sentence(command[0], command_exit, seconds, usage.gpus))
        for gpu in usage.gpus:
            tell(gpu_summary(gpu))
        if command_exit.exit_status:
            for gpu in usage.gpus:
                tell(full_sentence(gpu) or "")
        tell(unused_warning(usage.gpus))
        tell(back)
        if status is not None:
            from gpumon.recording.csv.log_messages import summary

            for sentence in summary(status):
                tell(sentence)
        return command_exit

    def _stay(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> tuple[CommandExit, JobUsage]:
        with ControllingTerminal() as terminal:
            child = Child(terminal)
            with child.signals_passed_on():
                child.start(command, environment)
                members = self._members = Descendants(child.pid, child.group)
                usage = self._usage = JobUsage(self._candidates, members.among, self._before)
                self._sampler.collector.interval = INTERVAL
                ignore = self._sampler.collector.subscribe(self._see)
                try:
                    command_exit = child.wait()
                finally:
                    ignore()
        return command_exit, usage

    def _see(self, snapshot: Snapshot) -> None:
        """Add a sample. Runs on the sampling thread."""
        if self._usage is None:
            return
        members = self._usage.add(snapshot)
        if self._recorder is not None:
            self._recorder.take(self._narrowed(snapshot, members))
        if time.monotonic() > self._touched_at + _TOUCH_SECONDS:
            self._touched_at = time.monotonic()
            self._reservation.touch()

    def _narrowed(self, snapshot: Snapshot, members: Sequence[GpuProcess]) -> Snapshot:
        """A snapshot with only the job's GPUs, and the job's processes on them."""
        uuids = {candidate.gpu.uuid for candidate in self._candidates}
        kept = []
        for process in members:
            uses = tuple(use for use in process.uses if use.gpu_uuid in uuids)
            if uses:
                kept.append(replace(process, uses=uses))
        gpus = tuple(gpu for gpu in snapshot.gpus if gpu.uuid in uuids)
        return replace(snapshot, gpus=gpus, processes=tuple(kept))

    def _wait_for_memory(self, usage: JobUsage) -> str:
        """Wait until the GPUs' memory is as before, and report whether it is."""
        give_up_at = time.monotonic() + _BACK_SECONDS
        first = True
        try:
            while True:
                left = give_up_at - time.monotonic()
                snapshot = self._sampler.sample(max(left, QUICK_PATIENCE))
                if first:
                    usage.add(snapshot, over=True)
                    first = False
                missing = self._missing(snapshot)
                if not missing:
                    seen = any(gpu.used for gpu in usage.gpus)
                    return "all its memory came back" if seen else "it left no memory in use"
                known = any(
                    self._memory_before(candidate) is not None for candidate in self._candidates
                )
                if not known or time.monotonic() > give_up_at:
                    return self._not_back(snapshot, missing)
                time.sleep(_BACK_PAUSE)
        except (KeyboardInterrupt, SourceError):
            # The driver may have hung since the last process list.
            for gpu in usage.gpus:
                gpu.doubtful = True
            return "whether its memory came back is unknown"

    def _missing(self, snapshot: Snapshot) -> dict[str, int | None]:
        """How much memory is missing on which GPU; ``None`` if unknown."""
        missing: dict[str, int | None] = {}
        for candidate in self._candidates:
            now = candidate.seen_in(snapshot)
            held = self._held_by_job(candidate, snapshot)
            if held:
                missing[candidate.label] = held
                continue
            then = self._memory_before(candidate)
            left = None if now is None else self._unshared(now, snapshot)
            if then is None or left is None:
                missing[candidate.label] = None
            elif left > then + SLACK_BYTES:
                missing[candidate.label] = left - then
        return missing

    def _memory_before(self, candidate: Candidate) -> int | None:
        before = candidate.seen_in(self._before)
        return None if before is None else self._unshared(before, self._before)

    def _held_by_job(self, candidate: Candidate, snapshot: Snapshot) -> int:
        """Bytes that living processes of the job hold in the last process list."""
        total = 0
        for process in self._job_in(snapshot):
            use = candidate.use_of(process)
            if use is not None and _lives(process):
                total += use.memory_used or 1
        return total

    def _job_in(self, snapshot: Snapshot) -> tuple[GpuProcess, ...]:
        return () if self._members is None else self._members.among(snapshot.processes)

    def _unshared(self, candidate: Candidate, snapshot: Snapshot) -> int | None:
        """Used bytes that belong to no living process and to no process in another container."""
        used = candidate.memory_used
        # While a call to the GPU hangs, its last values are repeated.
        if used is None or candidate.gpu.status is not GpuStatus.OK:
            return None
        for process in snapshot.processes:
            use = candidate.use_of(process)
            if use is not None and use.memory_used is not None and not self._is_over(process):
                used -= use.memory_used
        return used

    def _is_over(self, process: GpuProcess) -> bool:
        if process.visible or self._members is None:
            return not _lives(process)
        # A process without an entry in /proc is in another container, or is a listed remnant of the
        # job.
        return self._members.had(process.id.pid)

    def _not_back(self, snapshot: Snapshot, missing: Mapping[str, int | None]) -> str:
        problems = []
        for label, size in missing.items():
            if size is None:
                problems.append(f"whether its memory on {label} came back is unknown")
            else:
                problems.append(f"{gib(size)} on {label} have not come back")
        left = [process for process in self._job_in(snapshot) if _lives(process)]
        if left:
            named = ", ".join(printable(process_name(process)) for process in left[:3])
            problems.append(f"of the job there are still: {named}")
        return "; ".join(problems)


def _lives(process: GpuProcess) -> bool:
    stat = stat_of(THIS_SYSTEM.proc, process.id.pid)
    return not process.visible or (stat is not None and stat.id == process.id and not stat.ended)
