"""``gpumon wait``: waits until GPUs are free, idle or cool, or until processes have exited."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections import deque
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.host.handle import Handle, wait_for_any
from gpumon.host.procfs import started_after_boot, thread_group
from gpumon.model.arithmetic import fitted_line
from gpumon.model.processes import ProcessId
from gpumon.sampling.gpu_sampler import GpuSampler
from gpumon.scheduling.choose import Chooser
from gpumon.scheduling.locks import Locks
from gpumon.scheduling.requirements import KINDS
from gpumon.scheduling.select import table
from gpumon.scheduling.waiting import SHOWN_SECONDS, GpuWait, TimeLimit, WaitResult
from gpumon.system.resource_errors import allow_open_files
from gpumon.system.standard_output import write_to_terminal
from gpumon.system.system import THIS_SYSTEM, user_name
from gpumon.text.formatting import counted, duration, memory_size, printable
from gpumon.text.notification import BELL, notification
from gpumon.text.status_line import StatusLine

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from gpumon.allocations import Allocations
    from gpumon.makers.source import Source
    from gpumon.model.snapshot import Snapshot
    from gpumon.scheduling.eligibility import Eligibility
    from gpumon.scheduling.requirements import Requirements
    from gpumon.system.system import System

_HELD_SECONDS = 15.0
"""Seconds between two samples of a process's use of the GPUs."""
FASTEST, SLOWEST = 1.0, 5.0
"""Seconds between two samples; ``StabilityWindow`` requires at most ``GAP_SECONDS``."""
_WINDOW_SECONDS = 120.0
_LEAST_SECONDS = 15.0
_LEAST_DROP = 3.0
_LEAST_FIT = 0.9
"""The share of the variance that a straight line must explain (R²)."""


def wait(
    source: Source,
    kind: str,  # of ``KINDS``
    requirements: Requirements,
    *,
    pids: Sequence[int] = (),  # processes to wait for instead of GPUs
    timeout: float | None = None,  # seconds; ``None`` is no limit
    verbose: bool = False,  # whether to explain the choice of GPUs
    bell: bool = False,
    notify: bool = False,
    command: str | None = None,  # of the shell, to run then
    lock_dir: str | None = None,  # ``None`` is the default folder
    past: str | None = None,  # a log of the past
    allocations: Allocations | None = None,  # what schedulers have given away here
) -> int:
    """Wait, with progress on standard error.

    Returns:
        The exit status, see ``WaitResult``. If a command is to be run, this does not return: the
        command replaces this program.

    Raises:
        SourceError: There are no GPUs.
        RecordingError: The log of the past cannot be read.
        UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be resolved.
    """
    limit = TimeLimit(math.inf if timeout is None else timeout)
    with StatusLine(sys.stderr) as status_line:
        if pids:
            done = _wait_for_processes(source, pids, limit, status_line)
        else:
            locks = Locks(lock_dir, os.environ, make=False)
            if KINDS[kind].to_use and locks.trouble:
                status_line.say(f"what other users have reserved is not known: {locks.trouble}")
            with GpuSampler(source) as sampler:
                waiting = ConditionWait(
                    sampler,
                    kind,
                    requirements,
                    os.environ,
                    locks,
                    past,
                    limit,
                    status_line,
                    allocations,
                )
                done = waiting.reported(waiting.result(), verbose=verbose)
        if isinstance(done, WaitResult):
            return done
    if bell:
        write_to_terminal(BELL)
    if notify:
        write_to_terminal(notification("gpumon", done, os.environ))
    if command is not None:
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
            # Python ignores SIGPIPE for itself; a program started so would not end with its reader.
            signal.signal(ignored, signal.SIG_DFL)
        os.execv("/bin/sh", ["sh", "-c", command])  # noqa: S606 - a shell was asked for
    return 0


class _ProgressDisplay:
    """Shows progress: one line rewritten in place on a terminal, otherwise a line per change."""

    def __init__(self, status_line: StatusLine, timeout: TimeLimit) -> None:
        self._status_line = status_line
        self._timeout = timeout

    def show(self, parts: Sequence[str]) -> None:
        """Show the line in place."""
        head, *others = parts
        self._status_line.show([f"○ waiting {self._timeout.words} {head}", *others])

    def change(self, sentence: str) -> None:
        """Print a change, if there is no line in place."""
        if not self._status_line.rewrites:
            now = datetime.fromtimestamp(time.time()).astimezone()
            self._status_line.say(f"{now:%Y-%m-%d %H:%M:%S} {sentence}")

    def say(self, sentence: str, lines: str = "") -> None:
        """Print a line that stays."""
        self._status_line.say(sentence + ("\n" + lines.rstrip("\n") if lines else ""))


class ConditionWait(GpuWait):
    """A wait for GPUs that are free, idle or cool."""

    pace = (FASTEST, SLOWEST)
    says_changes = True

    def __init__(
        self,
        sampler: GpuSampler,
        kind: str,  # of ``KINDS``
        asked: Requirements,  # of the command line
        environment: Mapping[str, str],
        locks: Locks | None,
        past: str | None,  # a log
        limit: TimeLimit,
        status_line: StatusLine,
        allocations: Allocations | None = None,
    ) -> None:
        self._kind = kind
        self._to_use = to_use = KINDS[kind].to_use
        asked = KINDS[kind].requirements(asked)
        chooser = Chooser(
            asked,
            environment if to_use else {},
            locks if to_use else None,
            past=past,
            allocations=allocations if to_use else None,
        )
        super().__init__(sampler, chooser, limit)
        self._display = _ProgressDisplay(status_line, self.limit)
        celsius, stable = asked.temperature, asked.stable
        self._cooling_estimate = None if celsius is None else CoolingEstimate(celsius)
        self._stability_estimate = None if stable is None else StabilityEstimate(stable)
        self.words = asked.counted(kind)  # ``2 idle GPUs``
        self.holders: tuple[str, ...] = ()  # what prevents it, a few words each, safe to print
        # Minimum remaining seconds, if there is evidence for an estimate.
        self.left: float | None = None

    def judge(self, snapshot: Snapshot) -> WaitResult | None:
        """See ``GpuWait``."""
        result = super().judge(snapshot if self._to_use else _without_sharing_reasons(snapshot))
        if result is None:
            self.holders = tuple(_blocker(verdict, snapshot.time) for verdict in self.refused)
            self.left = self._time_left(snapshot.time)
        return result

    def reasons(self) -> list[str]:
        """See ``GpuWait``."""
        return [_reason(verdict) for verdict in self.refused]

    def mark(self) -> Hashable:
        """See ``GpuWait``."""
        return tuple(
            (
                verdict.candidate.uuid,
                verdict.kind,
                tuple(process.id for process in verdict.others),
                verdict.holder,
            )
            for verdict in self.verdicts
            if verdict.may_come
        )

    def show(self) -> None:
        """See ``GpuWait``."""
        head = f"for {self.words}"
        if self.trouble is not None:
            # In one part: a narrow terminal cuts it instead of dropping it.
            self._display.show([f"{head}: {self.trouble.sentence}"])
            return
        # The most important part first.
        so_far = self.count and f", {self.count} {self._kind}"
        left = [] if self.left is None else [f"{duration(self.left)} more at least"]
        self._display.show([f"{head}{so_far}", *left, *self.holders])

    def say(self, sentence: str) -> None:
        """See ``GpuWait``."""
        self._display.change(sentence)

    def reported(self, result: WaitResult, *, verbose: bool) -> str | WaitResult:
        """Print the result; returns the sentence that the GPUs are there, or why they are not."""
        waited = self.limit.spent
        if self.choice is None:
            sentence = self.refusal
            if result is WaitResult.TIMED_OUT:
                why = self.silence and f" {self.silence}"
                sentence = f"gave up after {duration(waited)} of waiting for {self.words}.{why}"
            self._display.say(sentence, table(self.verdicts))
            return result
        verb = "is" if len(self.choice.candidates) == 1 else "are"
        after = f" after {duration(waited)} of waiting" if waited >= 1 else ""
        sentence = f"{self.choice.labels} {verb} {self._kind}{after}."
        if verbose:
            lines = table(self.verdicts, self.choice)
            self._display.say(f"{sentence} {self.choice.reason}.", lines)
        else:
            self._display.say(sentence)
        return sentence

    def _time_left(self, now: float) -> float | None:
        """Seconds until enough GPUs are eligible, if nothing changes."""
        each = [self._left_of(verdict, now) for verdict in self.refused]
        fitting = sum(verdict.fits for verdict in self.verdicts)
        known = sorted(left for left in each if left is not None)
        missing = self.chooser.requirements.least - fitting
        return known[missing - 1] if 0 < missing <= len(known) else None

    def _left_of(self, verdict: Eligibility, now: float) -> float | None:
        kind = verdict.kind
        candidate, cooling, resting = verdict.candidate, None, None
        if self._cooling_estimate is not None:
            cooling = self._cooling_estimate.left(
                candidate.uuid, now, candidate.gpu.temperature_gpu
            )
        if self._stability_estimate is not None:
            rests = kind in {"stable", "watching"}
            resting = self._stability_estimate.left(candidate.uuid, now, rests=rests)
        return cooling if kind == "temperature" else resting


def _without_sharing_reasons(snapshot: Snapshot) -> Snapshot:
    """The GPUs without the reasons that concern only reservation, which does not matter here."""
    gpus = tuple(replace(gpu, compute_mode=None, mig_mode=None, mig=()) for gpu in snapshot.gpus)
    return replace(snapshot, gpus=gpus, allocations=None)


def _blocker(verdict: Eligibility, now: float) -> str:
    """Who holds a GPU and since when, or another reason against it."""
    label, kind = verdict.candidate.label, verdict.kind
    if kind in {"processes", "memory"} and verdict.others:
        largest = verdict.others[0]
        who = str(largest.id.pid) if largest.user is None else printable(largest.user)
        size = verdict.candidate.memory_of(largest)
        held = "" if size is None else f" {memory_size(size)}"
        since = "" if largest.started_at is None else f" for {duration(now - largest.started_at)}"
        more = len(verdict.others) - 1
        return f"{label}: {who}{held}{since}{f' +{more}' if more else ''}"
    if kind == "reserved" and verdict.holder is not None:
        holder = verdict.holder
        by = "" if holder.user is None else f" by {printable(holder.user)}"
        since = "" if holder.since is None else f" for {duration(time.time() - holder.since)}"
        return f"{label}: reserved{by}{since}"
    return _reason(verdict)


def _reason(verdict: Eligibility) -> str:
    sentence = "" if verdict.refusal is None else verdict.refusal.sentence
    return f"{verdict.candidate.label}: {sentence}"


class CoolingEstimate:
    """Estimates when GPUs will be cool, from their temperatures in the last minutes.

    A GPU cools ever more slowly, so the estimate is a minimum.
    """

    def __init__(self, limit: float) -> None:  # degrees Celsius to reach
        self._limit = limit
        self._seen: dict[str, deque[tuple[float, float]]] = {}

    def left(self, uuid: str, now: float, celsius: float | None) -> float | None:
        """Add a temperature; returns the remaining seconds, ``None`` if there is no trend."""
        points = self._seen.setdefault(uuid, deque())
        if celsius is None:
            points.clear()
            return None
        points.append((now, celsius))
        while points[0][0] < now - _WINDOW_SECONDS:
            points.popleft()
        slope = _falling(points)
        return None if slope is None else max(0.0, (celsius - self._limit) / -slope)


def _falling(points: deque[tuple[float, float]]) -> float | None:
    """The slope in degrees per second if the points fall along a line; otherwise ``None``."""
    if points[-1][0] - points[0][0] < _LEAST_SECONDS or points[0][1] - points[-1][1] < _LEAST_DROP:
        return None
    slope, fit = fitted_line(points)
    return slope if slope < 0 and fit >= _LEAST_FIT else None


class StabilityEstimate:
    """Estimates for how much longer GPUs must stay as they are."""

    def __init__(self, seconds: float) -> None:  # the whole required time
        self._seconds = seconds
        self._since: dict[str, float] = {}

    def left(self, uuid: str, now: float, *, rests: bool) -> float | None:
        """Add an observation; returns the remaining seconds, ``None`` if it does not qualify."""
        if not rests:
            self._since.pop(uuid, None)
            return None
        return max(0.0, self._seconds - (now - self._since.setdefault(uuid, now)))


def _wait_for_processes(
    source: Source, pids: Sequence[int], timeout: TimeLimit, status_line: StatusLine
) -> str | WaitResult:
    """Wait until all have exited, some of which may have already; returns as ``reported``."""
    display = _ProgressDisplay(status_line, timeout)
    processes: list[WaitedProcess] = []
    for pid in pids:
        process = hold(pid)
        if process is None:
            display.say(f"there is no process {pid}: it has ended, or never was.")
        else:
            processes.append(process)
    with ExitStack() as holding:
        for process in processes:
            holding.callback(process.close)
        sampler = holding.enter_context(GpuSampler(source, _HELD_SECONDS))
        for process in processes:
            display.change(f"waiting for {process.words} to end, which has run for {process.age}")
        ended = _wait_for_all(processes, sampler, timeout, display)
    if not ended:
        display.say(f"gave up after {duration(timeout.spent)}.")
        return WaitResult.TIMED_OUT
    sentence = f"{_names(processes, pids)} ended after {duration(timeout.spent)} of waiting."
    if processes:
        display.say(sentence)
    return sentence


def _wait_for_all(
    processes: Sequence[WaitedProcess],
    sampler: GpuSampler,
    timeout: TimeLimit,
    display: _ProgressDisplay,
) -> bool:
    """Whether all of them have exited before the timeout."""
    alive = list(processes)
    while alive := [process for process in alive if not process.ended()]:
        first = alive[0]
        more = len(alive) - 1
        others = f" and {counted(more, 'process', 'es')} more" if more else ""
        head = f"for {first.words} to end{others}"
        newest = sampler.newest
        held = "" if newest is None else gpus_in_use(newest, first.id.pid)
        display.show([head, f"runs {first.age}", *([held] if held else [])])
        if timeout.left <= 0:
            return False
        wait_for_any(alive, min(SHOWN_SECONDS, timeout.left))
    return True


def _names(processes: Sequence[WaitedProcess], pids: Sequence[int]) -> str:
    if not processes:
        return printable(", ".join(map(str, pids)))
    return ", ".join(process.words for process in processes)


def gpus_in_use(snapshot: Snapshot, pid: int) -> str:
    """A process's use of the GPUs in a few words; empty if there is none."""
    for process in snapshot.processes:
        if process.id.pid == pid and process.visible:
            gpus = ", ".join(map(str, process.gpu_indices))
            size = process.memory_used
            held = "" if size is None else f" {memory_size(size)}"
            return f"{counted(len(process.gpu_indices), 'GPU')} ({gpus}){held}"
    return ""


class WaitedProcess(Handle):
    """The process that has a PID now, to wait for. Its errors are those of ``Handle``."""

    def __init__(self, pid: int, system: System) -> None:
        super().__init__(ProcessId(pid, None), system)
        try:
            seen = self.read()
            if seen is None or seen[0].ended:
                raise ProcessLookupError
        except OSError:
            self.close()
            raise
        stat, uid = seen
        self.id = stat.id
        # For the user, safe to print: ``ann's python (4711)``.
        self.words = f"{printable(user_name(uid))}'s {printable(stat.name)} ({pid})"

    @property
    def age(self) -> str:
        """How long it has run."""
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        return duration(since_boot - started_after_boot(self.id))


def hold(pid: int, system: System = THIS_SYSTEM) -> WaitedProcess | None:
    """Open a handle on a process; ``None`` if it does not exist, is hidden or is a zombie.

    The number of a thread, as ``top -H`` shows it, means the process of that thread.

    Raises:
        OSError: No more files can be opened.
    """
    allow_open_files(1)
    try:
        return WaitedProcess(thread_group(system.proc, pid) or pid, system)
    except ProcessLookupError:
        return None
