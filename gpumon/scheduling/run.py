"""``gpumon run``: runs a command on free GPUs, reserved for it until their memory is back."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpumon.host.process_tree import Descendants
from gpumon.host.procfs import stat_of
from gpumon.makers.source import SourceError
from gpumon.model.snapshot import GpuStatus
from gpumon.model.subset import subset_of
from gpumon.sampling.gpu_sampler import PATIENCE, QUICK_PATIENCE, GpuSampler
from gpumon.scheduling.child import (
    NOT_EXECUTABLE,
    NOT_FOUND,
    Child,
    ControllingTerminal,
    background_writes_allowed,
    end_by,
)
from gpumon.scheduling.choose import Chooser
from gpumon.scheduling.eligibility import gib, process_name
from gpumon.scheduling.job_usage import (
    SLACK_BYTES,
    JobUsage,
    exit_sentence,
    full_sentence,
    gpu_summary,
    unused_warning,
)
from gpumon.scheduling.locks import HeldReservation, Locks, TakenError
from gpumon.scheduling.select import as_variables, table
from gpumon.scheduling.waiting import GpuWait, TimeLimit, WaitResult
from gpumon.system.ending_signals import exit_on_signals
from gpumon.system.folders import is_absent
from gpumon.system.system import THIS_SYSTEM
from gpumon.text.formatting import duration, printable
from gpumon.text.status_line import StatusLine, columns, tell, write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpumon.allocations import Allocations
    from gpumon.makers.source import Source
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Snapshot
    from gpumon.model.topology import Links
    from gpumon.recording.recorder import Recorder
    from gpumon.scheduling.child import CommandExit
    from gpumon.scheduling.eligibility import Candidate, Ineligibility
    from gpumon.scheduling.ranking import GpuChoice
    from gpumon.scheduling.requirements import Requirements

_TRIES = 16
"""How often another GPU is tried, before the next sample, after another job was faster."""
_MOVED_BYTES = 16 * 2**20
_LIST_SECONDS = 3.0
_INTERVAL = 1.0
"""Seconds between two samples, as in ``gpumon log``."""
_BACK_SECONDS = 10.0
"""Seconds to wait for the memory of an exited job; the driver frees it sooner."""
_BACK_PAUSE = 0.1
_TOUCH_SECONDS = 3600.0


class _ReservedGpus(NamedTuple):
    """The reserved GPUs."""

    choice: GpuChoice
    reservation: HeldReservation
    snapshot: Snapshot


def run(
    source: Source,  # of all GPUs
    requirements: Requirements,
    command: Sequence[str],  # program and arguments
    *,
    wait: float | None = None,  # seconds to wait for GPUs, may be infinite; ``None`` does not wait
    log: str | None = None,  # a log to write
    verbose: bool = False,  # whether to explain the choice of GPUs
    lock_dir: str | None = None,  # ``None`` is the default folder
    past: str | None = None,  # a log of the past
    variables: Mapping[str, str] = {},  # for the command, besides those that select GPUs
    links: Callable[[], Links] | None = None,  # called if several GPUs are wanted
    allocations: Allocations | None = None,  # what schedulers have given away here
) -> int:
    """Run a command on eligible GPUs, once there are enough, and wait for it.

    Returns:
        The command's exit status; 128 plus the signal number if a signal ended it; 1 if no GPU is
        eligible, 124 on timeout, 126 or 127 if the command cannot be run or found.

    Raises:
        SourceError: There are no GPUs.
        FolderError: No lock can be created.
        LogError: The log cannot be written.
        RecordingError: The log of the past cannot be read.
        CommandError: The command cannot be started.
        UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be resolved.
    """
    missing = _missing(command[0])
    if missing is not None:
        return missing
    with closing(Locks(lock_dir, os.environ)) as locks, background_writes_allowed():
        with GpuSampler(source) as sampler:
            chooser = Chooser(requirements, os.environ, locks, links, past, allocations)
            with exit_on_signals(signal.SIGTERM, signal.SIGHUP):
                with StatusLine(sys.stderr) as status_line:
                    limit = None if wait is None else TimeLimit(wait)
                    waiting = ReservingWait(
                        sampler, chooser, locks, _short(command), limit, status_line
                    )
                    result = waiting.result()
                taken = waiting.reserved
                if taken is None:
                    waiting.explain(result)
                    return result
            with closing(taken.reservation):
                if locks.trouble:
                    tell(f"the lock guards against your own programs only: {locks.trouble}")
                # On standard error, because standard output belongs to the command.
                tell(f"running on {taken.choice.reason if verbose else taken.choice.labels}")
                job = JobRunner(sampler, taken.choice.candidates, taken.snapshot, taken.reservation)
                devices = as_variables(taken.choice.candidates, taken.snapshot.gpus)
                command_exit = job.run(command, {**os.environ, **devices, **variables}, log)
        if command_exit.by_key and command_exit.signal is not None:
            end_by(command_exit.signal)
        return command_exit.exit_status


class ReservingWait(GpuWait):
    """A wait for GPUs that reserves them for the command."""

    queues = True

    def __init__(
        self,
        sampler: GpuSampler,
        chooser: Chooser,
        locks: Locks,
        job: str,  # the part of the command that all users may read
        limit: TimeLimit | None,
        status_line: StatusLine,
    ) -> None:
        super().__init__(sampler, chooser, limit)
        self._locks, self._job, self._status_line = locks, job, status_line
        self.reserved: _ReservedGpus | None = None

    def take(self, snapshot: Snapshot) -> bool:
        """Reserve the best GPUs and check again; if another job was faster, try the next best."""
        for _ in range(_TRIES):
            choice = self.chooser.choose(self.verdicts)
            if choice is None:
                return False
            uuids = [candidate.uuid for candidate in choice.candidates]
            try:
                reservation = self._locks.take(uuids, self._job)
            except TakenError:
                self.verdicts = self.chooser.judge(snapshot)
                continue
            try:
                snapshot = self._sample_again(snapshot, choice)
                mine = self.chooser.judge(snapshot, uuids)
                if all(verdict.fits for verdict in mine if verdict.candidate.uuid in uuids):
                    self.reserved = _ReservedGpus(choice, reservation, snapshot)
                    return True
            except BaseException:
                reservation.close()
                raise
            reservation.close()
            self.verdicts = self.chooser.judge(snapshot)
        return False

    def _sample_again(self, before: Snapshot, choice: GpuChoice) -> Snapshot:
        """The state of the GPUs now that no other gpumon can take them."""
        reserved_at = time.time()
        snapshot = self._sample()
        moved = any(
            _moved(candidate.seen_in(before), candidate.seen_in(snapshot))
            for candidate in choice.candidates
        )
        give_up_at = time.monotonic() + _LIST_SECONDS
        # The process list may be a second old; for a decision it must be newer.
        while moved and (snapshot.processes_at or 0) < reserved_at:
            if time.monotonic() > give_up_at:
                break
            time.sleep(0.1)
            snapshot = self._sample()
        return snapshot

    def _sample(self) -> Snapshot:
        """Sample once more, within the remaining time."""
        return self.sampler.sample(min(PATIENCE, max(QUICK_PATIENCE, self.limit.left)))

    def reasons(self) -> list[str]:
        """See ``GpuWait``."""
        return [
            f"{verdict.candidate.label}: {_short_reason(verdict.refusal)}"
            for verdict in self.refused
            if verdict.refusal is not None
        ]

    def say(self, sentence: str) -> None:
        """See ``GpuWait``."""
        if not self._status_line.rewrites:
            self._status_line.say(sentence)

    def show(self) -> None:
        """See ``GpuWait``."""
        head = f"○ waiting for {self.words}, {duration(self.limit.spent)}"
        if self.trouble is not None:
            # In one part with the rest: a narrow terminal cuts it instead of dropping it.
            self._status_line.show([f"{head}: {self.trouble.sentence}"])
        elif self.snapshot is not None:
            free = self.count and f", {self.count} free"
            self._status_line.show([f"{head}{free}", *self.reasons()])

    def explain(self, result: WaitResult) -> None:
        """Print why no GPUs were reserved."""
        if result is WaitResult.TIMED_OUT:
            why = self.silence or self.chooser.refusal(self.verdicts)
            tell(f"gave up waiting after {duration(self.limit.seconds)}: {why}")
        else:
            tell(self.refusal)
        write(table(self.verdicts, columns=columns()))


def _short_reason(refusal: Ineligibility) -> str:
    """Why a GPU is not eligible, for a line with little room."""
    # While a GPU is observed, the remaining time matters.
    watched = refusal.kind == "watching"
    return refusal.sentence if watched else refusal.sentence.partition(", ")[0]


def _moved(before: Candidate | None, now: Candidate | None) -> bool:
    if before is None or now is None:
        return True
    if before.memory_used is None or now.memory_used is None:
        return True
    return abs(now.memory_used - before.memory_used) > _MOVED_BYTES


def _missing(program: str) -> int | None:
    """The exit status for a missing command; the reason is printed."""
    if shutil.which(program) is not None:
        return None
    # Path.exists and Path.is_dir raise without permission.
    if "/" in program and not is_absent(program):
        # Path.is_dir raises without permission.
        is_folder = os.path.isdir(program)  # noqa: PTH112 - see above
        what = "is a directory" if is_folder else "may not be run by this user"
        tell(f"{printable(program)} {what}.")
        return NOT_EXECUTABLE
    tell(f"there is no command {printable(program)}.")
    return NOT_FOUND


def _short(command: Sequence[str]) -> str:
    """The part of a command that all users may read: the program, and the script it runs."""
    words = [Path(command[0]).name]
    with suppress(OSError, ValueError):
        if len(command) > 1 and Path(command[1]).is_file():
            words.append(Path(command[1]).name)
    return " ".join(words)[:200]


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
            from gpumon.recording.csv.csv_log import CsvLog
            from gpumon.recording.recorder import Recorder

            self._recorder = Recorder(CsvLog(log))
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
        if status is not None and self._recorder is not None:
            from gpumon.recording.csv.log_messages import summary

            for sentence in summary(status, self._recorder.log.advice):
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
                self._sampler.collector.interval = _INTERVAL
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
        return subset_of(replace(snapshot, processes=tuple(members)), uuids)

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
            problems.append(f"processes of the job are still running: {named}")
        return "; ".join(problems)


def _lives(process: GpuProcess) -> bool:
    stat = stat_of(THIS_SYSTEM.proc, process.id.pid)
    return not process.visible or (stat is not None and stat.id == process.id and not stat.ended)
