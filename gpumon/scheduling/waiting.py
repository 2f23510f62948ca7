"""The loop that waits for GPUs: it samples and judges them until there are enough, or gives up.

It samples less often while nothing changes, and also waits for a driver that does not respond or is
temporarily gone. ``gpumon select``, ``run`` and ``wait`` and ``gpumon.select()`` differ in what
they do with the GPUs, and in what they print meanwhile.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING

from gpumon.sampling.gpu_sampler import QUICK_PATIENCE, UnavailableError
from gpumon.scheduling.choose import UncertainAllocationError
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Hashable

    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.sampling.gpu_sampler import GpuSampler
    from gpumon.scheduling.choose import Chooser
    from gpumon.scheduling.eligibility import Eligibility
    from gpumon.scheduling.ranking import GpuChoice

_SLOWER = 1.25
"""Factor from one interval to the next."""
SHOWN_SECONDS = 1.0
"""Seconds between two updates of the progress line."""
_STEP_BYTES = 256 * 2**20


class WaitResult(IntEnum):
    """How a wait ended; the value is the exit status."""

    FOUND = 0
    NOTHING_FITS = 1
    TIMED_OUT = 124  # as timeout(1)


class TimeLimit:
    """The elapsed and the remaining time, from now on, in seconds; ``math.inf`` is no limit."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = time.monotonic()

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds until the limit; negative after it."""
        return self.seconds - self.spent

    @property
    def words(self) -> str:
        """For the progress line: ``12s of 5m``."""
        limit = "" if self.seconds == math.inf else f" of {duration(self.seconds)}"
        return f"{duration(self.spent)}{limit}"


class PollInterval:
    """The interval between two samples: it grows while nothing changes.

    Args:
        shortest: Seconds at first, and after a change.
        longest: The maximum.
    """

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest, self._longest = shortest, longest
        self._last: Hashable = None
        self.seconds = shortest

    def after(self, mark: Hashable) -> bool:
        """Set the interval after a sample; returns whether something has changed.

        Args:
            mark: A value that changes with every relevant change.
        """
        changed = mark != self._last
        self.seconds = self._shortest if changed else min(self._longest, self.seconds * _SLOWER)
        self._last = mark
        return changed


class GpuWait:
    """One wait for GPUs.

    A command overrides ``take`` if it needs more than the choice, and ``show``, ``say`` and
    ``reasons`` for what it prints.

    Args:
        sampler: Samples the GPUs.
        chooser: Judges them.
        limit: The maximum time; ``None`` does not wait, neither for GPUs nor for a driver, but
            still observes GPUs for as long as a judgement needs.
    """

    pace = (0.5, 2.0)
    """Minimum and maximum seconds between two samples; a GPU that becomes free is noticed within
    the maximum."""
    queues = False
    """Whether it joins the queue, so that later waiters leave its GPUs to it."""
    says_changes = False
    """Whether the reasons are printed after every change, and not only at first."""

    def __init__(
        self, sampler: GpuSampler, chooser: Chooser, limit: TimeLimit | None = None
    ) -> None:
        self.sampler = sampler
        self.chooser = chooser
        self.waits = limit is not None
        self.limit = limit or TimeLimit(math.inf)
        self.words = chooser.requirements.counted()  # what it waits for: ``2 GPUs``
        self.snapshot: Snapshot | None = None  # the newest that was judged
        self.verdicts: tuple[Eligibility, ...] = ()
        self.choice: GpuChoice | None = None
        # Why there is no newer snapshot, or why it cannot be judged.
        self.trouble: UnavailableError | UncertainAllocationError | None = None

    def result(self) -> WaitResult:
        """Wait for the result.

        Raises:
            SourceError: There are no GPUs.
            UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be resolved.
            RecordingError: The log of the past cannot be read.
        """
        try:
            return self._wait()
        finally:
            self.chooser.leave_queue()

    def _wait(self) -> WaitResult:
        interval, is_first = PollInterval(*self.pace), True
        if self.waits:
            self.sampler.collector.interval = interval.seconds
        while True:
            self.show()
            left = self.limit.left
            if self.snapshot is None:
                left = max(left, QUICK_PATIENCE - self.limit.spent)
            if left <= 0:
                return WaitResult.TIMED_OUT
            try:
                snapshot = self._next_snapshot(min(SHOWN_SECONDS, left))
                if snapshot is None:
                    continue
                result = self.judge(snapshot)
            except (UnavailableError, UncertainAllocationError) as error:
                # A hung driver may respond later, and a driver upgrade ends.
                if not (self.waits and error.passing):
                    raise
                if self.trouble is None:
                    self._say_why(error.sentence)
                self.trouble = error
                continue
            # Only now: what fails again above was said already.
            self.trouble = None
            if result is not None:
                return result
            if is_first and self.queues and self.waits:
                # Without an entry in the queue there is a race, which is no reason to give up.
                with suppress(OSError):
                    self.chooser.join_queue(snapshot)
            changed = interval.after(self.mark())
            if is_first or (changed and self.says_changes):
                self._say_why("; ".join(self.reasons()))
            is_first = False
            self.sampler.collector.interval = interval.seconds

    def _say_why(self, why: str) -> None:
        self.say(f"waiting for {self.words}" + (f": {why}" if why else ""))

    def _next_snapshot(self, seconds: float) -> Snapshot | None:
        if self.snapshot is None and not self.waits:
            return self.sampler.sample()
        return self.sampler.next(seconds)

    def judge(self, snapshot: Snapshot) -> WaitResult | None:
        """Judge a sample: the result, or ``None`` while waiting may help."""
        self.verdicts = self.chooser.judge(snapshot)
        self.snapshot = snapshot
        if self.take(snapshot):
            return WaitResult.FOUND
        in_vain = not self.waits and not self.chooser.left()
        hopeless = in_vain or self.chooser.hopeless(self.verdicts)
        return WaitResult.NOTHING_FITS if hopeless else None

    def take(self, _: Snapshot) -> bool:
        """Choose the GPUs; returns whether there are enough."""
        self.choice = self.chooser.choose(self.verdicts)
        return self.choice is not None

    def mark(self) -> Hashable:
        """A value that changes with every relevant change of the last sample."""
        return None if self.snapshot is None else _outline(self.snapshot)

    def show(self) -> None:
        """Show the progress in a line that is rewritten in place."""

    def say(self, sentence: str) -> None:
        """Print what it waits for, and why, if no line can be rewritten in place."""

    def reasons(self) -> list[str]:
        """Why each GPU that may be eligible later is not eligible now."""
        return []

    @property
    def refused(self) -> list[Eligibility]:
        """The GPUs that are not eligible, but may be later."""
        return [verdict for verdict in self.verdicts if verdict.may_come and not verdict.fits]

    @property
    def count(self) -> str:
        """How many eligible GPUs there are, ``1 of 2``; empty if only one is needed."""
        least = self.chooser.requirements.least
        if least == 1 or not self.verdicts:
            return ""
        return f"{sum(verdict.fits for verdict in self.verdicts)} of {least}"

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs of the machine, as they were judged."""
        return () if self.snapshot is None else self.snapshot.gpus

    @property
    def refusal(self) -> str:
        """Why too few GPUs are eligible, in a sentence, and that waiting does not help."""
        ending = " Waiting does not change that." if self.waits else ""
        return self.chooser.refusal(self.verdicts) + ending

    @property
    def silence(self) -> str:
        """Why there is no judgement of the GPUs, in a sentence; empty if there is one."""
        if self.trouble is not None:
            return self.trouble.sentence
        return "" if self.verdicts else self.sampler.silence


def _outline(snapshot: Snapshot) -> Hashable:
    """The part of a snapshot that does not change while nothing happens."""
    return (
        tuple(
            (
                gpu.uuid,
                gpu.status,
                None if gpu.memory_used is None else gpu.memory_used // _STEP_BYTES,
            )
            for gpu in snapshot.gpus
        ),
        tuple(process.id for process in snapshot.processes),
    )
