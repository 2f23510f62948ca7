"""The curves of each GPU over time, reduced to a fixed number of points."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.report.samples import MergedSample
    from gpumon.report.window import TimeWindow

POINTS = 512
"""Maximum number of points of a curve; a full curve is halved."""


class Curve:
    """The mean of a percentage in each of up to ``POINTS`` equal intervals."""

    def __init__(self, began: float) -> None:
        self.began = began  # start of the first interval, in seconds since the epoch
        self.step = 1.0  # length of an interval in seconds
        self._sums: list[float] = []
        self._counts: list[int] = []

    def add(self, time: float, percent: float) -> None:
        """Add a percentage at a time; a time before the start counts for the first interval."""
        place = max(0, int((time - self.began) / self.step))
        while place >= POINTS:
            self._halve()
            place = int((time - self.began) / self.step)
        grown = place + 1 - len(self._sums)
        if grown > 0:
            self._sums += [0.0] * grown
            self._counts += [0] * grown
        self._sums[place] += percent
        self._counts[place] += 1

    def _halve(self) -> None:
        self.step *= 2
        if len(self._sums) % 2:
            self._sums.append(0.0)
            self._counts.append(0)
        self._sums = [a + b for a, b in zip(self._sums[::2], self._sums[1::2], strict=True)]
        self._counts = [a + b for a, b in zip(self._counts[::2], self._counts[1::2], strict=True)]

    @property
    def ends(self) -> tuple[float, ...]:
        """The times of the first and the last point; empty if there are none."""
        known = [place for place, count in enumerate(self._counts) if count]
        return tuple(self._middle(place) for place in known[:: max(1, len(known) - 1)])

    def _middle(self, place: int) -> float:
        return self.began + (place + 0.5) * self.step

    def runs(self, patience: float) -> Iterator[list[tuple[float, float]]]:
        """The stretches without a gap of more than so many seconds, as (middle, mean)."""
        run: list[tuple[float, float]] = []
        for place, (total, count) in enumerate(zip(self._sums, self._counts, strict=True)):
            if not count:
                continue
            time = self._middle(place)
            if run and time - run[-1][0] > max(patience, 1.5 * self.step):
                yield run
                run = []
            run.append((time, total / count))
        if run:
            yield run


class GpuCurves:
    """The curves of one GPU: utilisation, and memory used, in percent."""

    def __init__(self, host: str | None, began: float) -> None:
        self.host = host
        self.index: int | None = None  # as last seen
        self.name: str | None = None
        self.utilization = Curve(began)
        self.memory = Curve(began)
        self.patience = 0.0  # seconds without a sample that do not count as a gap


class Curves:
    """The curves of all GPUs in a time range."""

    def __init__(self, window: TimeWindow) -> None:
        self.gpus: dict[tuple[str | None, str], GpuCurves] = {}
        self._window = window
        self._began: float | None = None

    def add(self, merged: MergedSample) -> None:
        """Add the next sample."""
        if not self._window.holds(merged.time):
            return
        if self._began is None:
            self._began = merged.time
        for key, sample in merged.gpus.items():
            gpu = self.gpus.get((merged.host, key))
            if gpu is None:
                gpu = self.gpus[merged.host, key] = GpuCurves(merged.host, self._began)
            state = sample.state
            gpu.index, gpu.name = state.index, state.name or gpu.name
            gpu.patience = max(gpu.patience, merged.reach)
            if sample.utilization_gpu is not None:
                gpu.utilization.add(sample.time, sample.utilization_gpu)
            if sample.memory_used is not None and state.memory_total:
                gpu.memory.add(sample.time, 100 * sample.memory_used / state.memory_total)
