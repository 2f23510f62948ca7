"""The goals of a wait, and the progress towards them."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.model.arithmetic import fitted_line
from gpumon.scheduling.chooser import Chooser
from gpumon.scheduling.outputs import table
from gpumon.scheduling.wait.kinds import KINDS
from gpumon.text.formatting import counted, duration, memory_size, printable

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.scheduling.eligibility import Eligibility
    from gpumon.scheduling.requirements import Requirements
    from gpumon.scheduling.reservation.locks import Locks

_WINDOW_SECONDS = 120.0
_LEAST_SECONDS = 15.0
_LEAST_DROP = 3.0
_LEAST_FIT = 0.9
"""The share of the variance that a straight line must explain (R²)."""


class HopelessError(Exception):
    """Waiting cannot help.

    Attributes:
        sentence: The reason.
        table: The reason for each GPU.
    """

    def __init__(self, sentence: str, gpus: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.table = gpus


class Progress(Struct, frozen=True):
    """The progress of a wait.

    Attributes:
        done: The result, in a sentence; empty while it is not reached.
        count: How much of it is reached, in a few words; empty if nothing can be counted.
        holders: What prevents it, a few words each, safe to print.
        sentences: The same as sentences.
        left: Minimum remaining seconds, if there is evidence for an estimate.
        mark: A value that changes with every relevant change.
        table: One line per GPU on why it is not eligible.
        reason: Why these GPUs were chosen, once it is done.
    """

    done: str = ""
    count: str = ""
    holders: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    left: float | None = None
    mark: Hashable = None
    table: str = ""
    reason: str = ""


class GpuGoal:
    """GPUs that meet the requirements.

    Args:
        kind: One of ``KINDS``.
        asked: The requirements of the command line.
        environment: The environment of this program.
        locks: The locks of reserved GPUs.
        past: A log of the past.
    """

    def __init__(
        self,
        kind: str,
        asked: Requirements,
        environment: Mapping[str, str],
        locks: Locks | None,
        past: str | None = None,
    ) -> None:
        self._kind = kind
        self._to_use = KINDS[kind].to_use
        self._requirements = KINDS[kind].requirements(asked)
        self._chooser = Chooser(
            self._requirements,
            environment if self._to_use else {},
            locks if self._to_use else None,
            past=past,
        )
        limit = self._requirements.temperature
        self._cooling_estimate = None if limit is None else CoolingEstimate(limit)
        stable = self._requirements.stable
        self._stability_estimate = None if stable is None else StabilityEstimate(stable)

    @property
    def words(self) -> str:
        """The goal in words: ``2 idle GPUs``."""
        return self._requirements.counted(self._kind)

    def look(self, snapshot: Snapshot) -> Progress:
        """The current progress.

        Raises:
            HopelessError: Too few suitable GPUs exist.
            NoSuchGpuError: A named GPU does not exist.
            UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be resolved.
            RecordingError: The log of the past cannot be read.
        """
        seen = snapshot if self._to_use else _without_sharing_reasons(snapshot)
        verdicts = self._chooser.judge(seen)
        choice = self._chooser.choose(verdicts)
        if choice is not None:
            labels = ", ".join(one.label for one in choice.candidates)
            verb = "is" if len(choice.candidates) == 1 else "are"
            return Progress(
                done=f"{labels} {verb} {self._kind}",
                table=table(verdicts, choice),
                reason=choice.reason,
            )
        if self._chooser.hopeless(verdicts):
            raise HopelessError(self._chooser.refusal(verdicts), table(verdicts))
        return self._progress(verdicts, snapshot)

    def _progress(self, verdicts: Sequence[Eligibility], snapshot: Snapshot) -> Progress:
        passing = [one for one in verdicts if one.may_come]
        refused = [one for one in passing if one.refusal is not None]
        missing = self._requirements.least - (len(passing) - len(refused))
        return Progress(
            count=f"{len(passing) - len(refused)} of {self._requirements.least}"
            if self._requirements.least > 1
            else "",
            holders=tuple(_blocker(one, snapshot.time) for one in refused),
            sentences=tuple(_reason(one) for one in refused),
            left=self._left(refused, missing, snapshot.time),
            mark=tuple(map(_mark, passing)),
            table=table(verdicts),
        )

    def _left(self, refused: Sequence[Eligibility], missing: int, now: float) -> float | None:
        """Seconds until enough of these are eligible, if nothing changes."""
        each = [self._left_of(verdict, now) for verdict in refused]
        known = sorted(left for left in each if left is not None)
        return known[missing - 1] if 0 < missing <= len(known) else None

    def _left_of(self, verdict: Eligibility, now: float) -> float | None:
        kind = "" if verdict.refusal is None else verdict.refusal.kind
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
    return replace(snapshot, gpus=gpus)


def _blocker(verdict: Eligibility, now: float) -> str:
    """Who holds a GPU and since when, or another reason against it."""
    label, refusal = verdict.candidate.label, verdict.refusal
    kind = "" if refusal is None else refusal.kind
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


def _mark(verdict: Eligibility) -> Hashable:
    """A value that changes with every relevant change."""
    return (
        verdict.candidate.uuid,
        None if verdict.refusal is None else verdict.refusal.kind,
        tuple(one.id for one in verdict.others),
        verdict.holder,
    )


def gpus_in_use(snapshot: Snapshot, pid: int) -> str:
    """A process's use of the GPUs in a few words; empty if there is none."""
    for process in snapshot.processes:
        if process.id.pid == pid and process.visible:
            gpus = ", ".join(map(str, process.gpu_indices))
            size = process.memory_used
            held = "" if size is None else f" {memory_size(size)}"
            return f"{counted(len(process.gpu_indices), 'GPU')} ({gpus}){held}"
    return ""


class CoolingEstimate:
    """Estimates when GPUs will be cool, from their temperatures in the last minutes.

    A GPU cools ever more slowly, so the estimate is a minimum.

    Args:
        limit: The temperature to reach, in degrees Celsius.
    """

    def __init__(self, limit: float) -> None:
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
    """Estimates for how much longer GPUs must stay as they are.

    Args:
        seconds: The whole required time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[str, float] = {}

    def left(self, uuid: str, now: float, *, rests: bool) -> float | None:
        """Add an observation; returns the remaining seconds, ``None`` if it does not qualify."""
        if not rests:
            self._since.pop(uuid, None)
            return None
        return max(0.0, self._seconds - (now - self._since.setdefault(uuid, now)))
