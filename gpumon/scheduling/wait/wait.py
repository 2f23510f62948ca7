"""``gpumon wait``: waits until GPUs are free, idle or cool, or until processes have exited."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING

from gpumon.host.handle import wait_for_any
from gpumon.sampling.gpu_sampler import QUICK_PATIENCE, GpuSampler, UnavailableError
from gpumon.scheduling.allocation import UncertainAllocationError
from gpumon.scheduling.polling import PollInterval
from gpumon.scheduling.wait.goals import GpuGoal, HopelessError, gpus_in_use
from gpumon.scheduling.wait.kinds import KINDS
from gpumon.scheduling.wait.targets import hold
from gpumon.system.standard_output import write_to_terminal
from gpumon.text.formatting import counted, duration, printable
from gpumon.text.notification import BELL, notification
from gpumon.text.status_line import StatusLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.makers.source import Source
    from gpumon.scheduling.requirements import Requirements
    from gpumon.scheduling.wait.goals import Progress
    from gpumon.scheduling.wait.targets import WaitedProcess

EXIT_TIMEOUT = 124
"""The exit status of timeout(1)."""
_TOLD_SECONDS = 1.0
"""Seconds between two updates of the progress line."""
_HELD_SECONDS = 15.0
"""Seconds between two samples of a process's use of the GPUs."""
FASTEST, SLOWEST = 1.0, 5.0
"""Seconds between two samples; ``StabilityWindow`` requires at most ``GAP_SECONDS``."""


def wait(
    source: Source,
    kind: str,
    requirements: Requirements,
    *,
    pids: Sequence[int] = (),
    timeout: float | None = None,
    verbose: bool = False,
    bell: bool = False,
    notify: bool = False,
    command: str | None = None,
    lock_dir: str | None = None,
    past: str | None = None,
) -> int:
    """Wait, with progress on standard error.

    Args:
        source: The source of snapshots.
        kind: One of ``KINDS``.
        requirements: The requirements for the GPUs.
        pids: Processes to wait for instead of GPUs; empty for GPUs.
        timeout: Maximum seconds to wait; ``None`` means no limit.
        verbose: Whether to explain the choice of GPUs.
        bell: Whether to ring the terminal's bell.
        notify: Whether to show a desktop notification.
        command: A shell command to run then, or ``None``.
        lock_dir: The lock folder; ``None`` is the default one.
        past: A log of the past, or ``None``.

    Returns:
        The exit status: 0, 1 if waiting cannot help, 124 on timeout. If a command is to be run,
        this does not return: the command replaces this program.

    Raises:
        SourceError: There are no GPUs.
        RecordingError: The log of the past cannot be read.
        UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be resolved.
    """
    limit = _Timeout(timeout)
    with StatusLine(sys.stderr) as status_line:
        display = _ProgressDisplay(status_line, limit)
        if pids:
            done = _wait_for_processes(source, pids, limit, display)
        else:
            from gpumon.scheduling.reservation.locks import Locks

            locks = Locks(lock_dir, os.environ, make=False)
            if KINDS[kind].to_use and locks.trouble:
                display.say(f"what other users have reserved is not known: {locks.trouble}")
            goal = GpuGoal(kind, requirements, os.environ, locks, past)
            done = _wait_for_gpus(source, goal, limit, display, verbose=verbose)
        if done is None:
            return EXIT_TIMEOUT
        if not done:
            return 1
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


class _Timeout:
    """The elapsed and the remaining time.

    Args:
        seconds: The timeout; ``None`` means no timeout.
    """

    def __init__(self, seconds: float | None) -> None:
        self._began = time.monotonic()
        self._seconds = math.inf if seconds is None else seconds

    @property
    def spent(self) -> float:
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        return self._seconds - self.spent

    @property
    def words(self) -> str:
        limit = "" if self._seconds == math.inf else f" of {duration(self._seconds)}"
        return f"{duration(self.spent)}{limit}"


class _ProgressDisplay:
    """Shows progress: one line rewritten in place on a terminal, otherwise a line per change."""

    def __init__(self, status_line: StatusLine, timeout: _Timeout) -> None:
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


def _wait_for_gpus(
    source: Source, goal: GpuGoal, timeout: _Timeout, display: _ProgressDisplay, *, verbose: bool
) -> str | None:
    """The result; empty if waiting cannot help, ``None`` on timeout."""
    poll_interval = PollInterval(FASTEST, SLOWEST)
    with GpuSampler(source, FASTEST) as sampler:
        trouble, progress = "", None
        while True:
            # In one part: a narrow terminal cuts it instead of dropping it.
            display.show([f"for {goal.words}: {trouble}"] if trouble else _parts(goal, progress))
            left = timeout.left
            if progress is None:
                left = max(left, QUICK_PATIENCE - timeout.spent)
            if left <= 0:
                why = trouble or ("" if progress else sampler.silence)
                display.say(
                    f"gave up after {duration(timeout.spent)} of waiting for {goal.words}."
                    + (f" {why}" if why else ""),
                    "" if progress is None else progress.table,
                )
                return None
            try:
                snapshot = sampler.next(min(_TOLD_SECONDS, left))
                if snapshot is None:
                    continue
                progress = goal.look(snapshot)
            except HopelessError as error:
                display.say(f"{error.sentence} Waiting does not change that.", error.table)
                return ""
            except (UnavailableError, UncertainAllocationError) as error:
                # A hung driver may respond later, and a driver upgrade ends.
                if not error.passing:
                    raise
                if not trouble:
                    display.change(f"waiting for {goal.words}: {error.sentence}")
                trouble = error.sentence
            else:
                trouble = ""
                if progress.done:
                    return _done(progress, timeout, display, verbose=verbose)
                if poll_interval.after(progress.mark):
                    display.change(_in_words(goal, progress))
                sampler.collector.interval = poll_interval.seconds


def _done(
    progress: Progress, timeout: _Timeout, display: _ProgressDisplay, *, verbose: bool
) -> str:
    waited = timeout.spent
    after = f" after {duration(waited)} of waiting" if waited >= 1 else ""
    sentence = f"{progress.done}{after}."
    if verbose:
        display.say(f"{sentence} {progress.reason}.", progress.table)
    else:
        display.say(sentence)
    return sentence


def _parts(goal: GpuGoal, progress: Progress | None) -> list[str]:
    """The parts of the line, most important first."""
    if progress is None:
        return [f"for {goal.words}"]
    head = f"for {goal.words}" + (f", {progress.count} so far" if progress.count else "")
    left = [] if progress.left is None else [f"{duration(progress.left)} more at least"]
    return [head, *left, *progress.holders]


def _in_words(goal: GpuGoal, progress: Progress) -> str:
    words = "; ".join(progress.sentences)
    return f"waiting for {goal.words}: {words}" if words else f"waiting for {goal.words}"


def _wait_for_processes(
    source: Source, pids: Sequence[int], timeout: _Timeout, display: _ProgressDisplay
) -> str | None:
    """As for GPUs; a process that has exited already is not waited for."""
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
        return None
    sentence = f"{_names(processes, pids)} ended after {duration(timeout.spent)} of waiting."
    if processes:
        display.say(sentence)
    return sentence


def _wait_for_all(
    processes: Sequence[WaitedProcess],
    sampler: GpuSampler,
    timeout: _Timeout,
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
        wait_for_any(alive, min(_TOLD_SECONDS, timeout.left))
    return True


def _names(processes: Sequence[WaitedProcess], pids: Sequence[int]) -> str:
    if not processes:
        return printable(", ".join(map(str, pids)))
    return ", ".join(process.words for process in processes)
