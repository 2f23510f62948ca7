"""Memory that grows steadily: of a process, and of a GPU, with the time until it is full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, final
from weakref import WeakKeyDictionary

from msgspec import Struct

from gpumon.findings.phrases import spaced
from gpumon.model.arithmetic import fitted_line
from gpumon.model.snapshot import GpuStatus
from gpumon.text.formatting import gib, gibibytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History

_SPANS = (3600.0, 1800.0, 900.0, 300.0)
"""The windows in seconds in which growth is searched, longest first."""
_POINTS = 30
LEAST_BYTES = 64 * 2**20
"""The least growth to report: several of the blocks of 20 MiB and more that allocators request
(PyTorch's ``kLargeBuffer``)."""
_LEAST_FIT = 0.9
"""The least R² of a line through the values: a single jump has 0.75, four equal steps have 0.94."""
GPU_SECONDS = 900.0
"""Seconds over which the used memory of a GPU must grow: a model that is being loaded grows
steadily too."""
_FORESEEN = 10.0
"""A line is extrapolated to this multiple of its observed length, and no further."""
_LATELY = 300.0
"""Seconds in which the memory of a GPU must still have grown."""
_LATELY_POINTS = 10
_JUDGED_EVERY = 30.0
"""Seconds for which the growth of a GPU is kept: it is asked for in every frame, and takes some
hundred microseconds."""


@final
class Growth(Struct, frozen=True):
    """Memory that grows linearly."""

    rate: float
    """Bytes a second."""
    rise: float
    """Bytes from the first to the last of the points."""
    seconds: float
    """Length of the observed time."""
    fit: float
    """R² of the line, 0 to 1."""

    @property
    def evidence(self) -> tuple[str, ...]:
        """The observations, with their numbers."""
        return (
            f"GPU memory rose by {gibibytes(int(self.rise))} {gib()} in {spaced(self.seconds)}",
            f"a linear fit explains {100 * self.fit:.0f} % of the change",
        )

    @property
    def pace(self) -> str:
        """The rate, such as ``1.5 GiB/h``."""
        return f"{gibibytes(int(3600 * self.rate))} {gib()}/h"

    def full_in(self, free: int | None) -> str | None:
        """When so many free bytes are used up, such as ``40 min``; ``None`` if that is too far."""
        if free is None or free / self.rate > _FORESEEN * self.seconds:
            return None
        return _about(free / self.rate)


def growth(
    points: Callable[[float, int], Sequence[float | None]], least_seconds: float = 0.0
) -> Growth | Literal[False] | None:
    """Steady growth up to now, over the longest window that shows it.

    ``False`` without any, ``None`` if values are unknown that may show it.
    ``points`` returns the values of the last seconds, as so many means, oldest first;
    ``least_seconds`` is the shortest window that counts.
    """
    is_known = True
    for seconds in _SPANS:
        if seconds < least_seconds:
            break
        known = [mean for mean in points(seconds, _POINTS) if mean is not None]
        is_known = is_known and len(known) == _POINTS
        if len(known) < _POINTS or known[-1] - known[0] < LEAST_BYTES:
            continue
        slope, fit = fitted_line(list(enumerate(known)))
        if fit >= _LEAST_FIT and _goes_on(known):
            rate = slope / (seconds / _POINTS)
            return Growth(rate, known[-1] - known[0], seconds, fit)
    newest = _newest(points)
    has_ended = len(newest) == _LATELY_POINTS and newest[-1] <= newest[0]
    return False if is_known or has_ended else None


def _newest(points: Callable[[float, int], Sequence[float | None]]) -> list[float]:
    """The newest known values."""
    return [mean for mean in points(_LATELY, _LATELY_POINTS) if mean is not None]


def room(history: History, gpu: Gpu) -> int | None:
    """Free bytes of a GPU; ``None`` if they do not limit the growth on it."""
    present = gpu.status is GpuStatus.OK and history.old(gpu) is None
    if not present or gpu.memory_unified or gpu.mig_mode:
        return None
    return gpu.memory_free


_Judged: TypeAlias = "tuple[int, Growth | Literal[False] | None]"
_JUDGED: WeakKeyDictionary[History, dict[str, _Judged]] = WeakKeyDictionary()


def gpu_growth(history: History, gpu: Gpu) -> Growth | Literal[False] | None:
    """Steady growth of a GPU's used memory up to now; see ``growth``."""
    if history.started is None:
        return None
    judged = _JUDGED.setdefault(history, {})
    turn = int(history.now // _JUDGED_EVERY)
    before = judged.get(gpu.uuid)
    if before is not None and before[0] == turn:
        return before[1]

    def points(seconds: float, count: int) -> list[float | None]:
        return history.gpu_series(gpu.uuid).buckets("memory_used", seconds, count)

    found = growth(points, GPU_SECONDS)
    if found:
        # A line through half an hour still fits some minutes after the growth has ended.
        newest = _newest(points)
        if not newest:
            found = None
        elif newest[-1] - newest[0] < 0.5 * found.rate * _LATELY:
            found = False
    judged[gpu.uuid] = turn, found
    return found


def _goes_on(values: Sequence[float]) -> bool:
    """Whether the newest third rose at least half as much as the third before it.

    A program that loads its data and then stops growing fits a line rather well.
    """
    third = len(values) // 3
    first, second, last = (
        sum(values[part * third : (part + 1) * third]) / third for part in range(3)
    )
    return last - second >= 0.5 * (second - first) > 0


def _about(seconds: float) -> str:
    """A future duration, rounded to its accuracy: ``40 min``, ``3 h``."""
    minutes = seconds / 60
    if minutes < 10:
        return f"{max(1, round(minutes))} min"
    if minutes < 120:
        return f"{5 * round(minutes / 5)} min"
    return f"{round(minutes / 60)} h"
