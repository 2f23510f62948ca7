"""Where the samples of another program's log begin, found from its first rows.

nvidia-smi reads one GPU after the other, so the rows of a sample have times that differ by
milliseconds. Usually the order of the GPUs shows where a sample begins. Where no column
identifies the GPU, or where two programs write one file, the time between the rows does.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gpumon.recording.csv.clocks import spread

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

_APART = 2.5
"""How much longer than within a sample the time between samples is. A report takes an interval that
is so much longer than usual for a gap (``report.reading.PATIENCE``)."""
_CLEARLY_APART, _QUICK_APART = 4.0, 2.0
"""The same where nothing but the time says that rows are of one sample; and if they follow each
other as quickly as nvidia-smi usually reads GPUs."""
_QUICK = 0.1
_LONGEST_STEP = 0.5
"""Seconds from one GPU to the next at most: a query without persistence mode takes that long."""
_SHORTEST_INTERVAL = 0.003
"""Seconds between samples at least: nvidia-smi is not faster."""
_MOST_GPUS = 64
_DAMAGED = 10
"""One of so many samples may differ from the others: some of its rows are damaged."""
_PAUSES = 0.05
"""Share of intervals that are longer if rows come in groups; a program seldom pauses so often."""
_LONGEST_PERIOD = 16
_UNEVEN = 1.2
"""How much longer than the shortest step the longest is, if they differ by more than chance."""
_FEW = 0.2
"""Share of intervals that may be longer than usual, or of samples that may lack a GPU."""


class AmbiguousRowsError(ValueError):
    """Nothing tells the GPUs apart; the message continues a sentence that begins with the file."""


class SampleRule(NamedTuple):
    """Where samples begin.

    Attributes:
        gap: Seconds from the row before from which a row begins a sample; ``None`` if samples begin
            where the order of the GPUs does.
        rows: The rows of a sample, if their order is what identifies the GPUs.
    """

    gap: float | None = None
    rows: int | None = None


def keyed_rule(times: Sequence[float], ranks: Sequence[bytes], precision: float) -> SampleRule:
    """The rule for rows that identify their GPU.

    Args:
        times: The time of each row.
        ranks: What increases from GPU to GPU within a sample.
        precision: Seconds to which the times are known.
    """
    begins = _ranked_begins(ranks)
    if _are_regular(times, ranks, begins, precision):
        return SampleRule()
    for gap in _limits(times, _APART, _APART):
        begins = _begins(times, gap)
        if _are_regular(times, ranks, begins, precision):
            return SampleRule(gap)
    return SampleRule()


def time_before_samples(times: Sequence[float], ranks: Sequence[bytes]) -> float:
    """Seconds between samples together, if they begin where the order of the GPUs does."""
    return sum(times[at] - times[at - 1] for at in _ranked_begins(ranks))


def _ranked_begins(ranks: Sequence[bytes]) -> list[int]:
    return [at for at in range(1, len(ranks)) if ranks[at] <= ranks[at - 1]]


def _are_regular(
    times: Sequence[float], keys: Sequence[Hashable], begins: Sequence[int], precision: float
) -> bool:
    """Whether samples that begin there follow each other regularly, each with the same GPUs."""
    starts = [0, *begins]
    # The last one may be incomplete.
    gpus = [frozenset(keys[first:stop]) for first, stop in pairwise(starts)]
    changes = sum(one != other for one, other in pairwise(gpus))
    if changes > _FEW * len(gpus):
        return False
    # The last time is that of an incomplete sample, and nothing shows how it is spread.
    spread_times = spread([times[at] for at in starts], math.inf, precision)[:-1]
    return not _has_pauses([abs(after - before) for before, after in pairwise(spread_times)])


def _has_pauses(passed: Sequence[float]) -> bool:
    if len(passed) < 2:
        return False
    usual = sorted(passed)[(len(passed) - 1) // 2]
    return sum(seconds > _APART * usual for seconds in passed) > _FEW * len(passed)


def _begins(times: Sequence[float], gap: float) -> list[int]:
    return [at for at in range(1, len(times)) if abs(times[at] - times[at - 1]) > gap]


def _limits(times: Sequence[float], apart: float, quick_apart: float) -> list[float]:
    """Times that clearly lie between short and long steps from row to row, the clearest first."""
    steps = sorted({max(abs(after - before), 1e-4) for before, after in pairwise(times)})
    found = [
        (long / short, math.sqrt(long * short))
        for short, long in pairwise(steps)
        if long >= (quick_apart if short <= _QUICK else apart) * short and short <= _LONGEST_STEP
    ]
    return [limit for _, limit in sorted(found, reverse=True)]


def unkeyed_rule(times: Sequence[float], names: Sequence[str], precision: float) -> SampleRule:
    """The rule for rows that do not identify their GPU.

    Args:
        times: The time of each row.
        names: The name of the GPU in each row, or whatever differs between kinds of GPUs.
        precision: Seconds to which the times are known.

    Raises:
        AmbiguousRowsError: They are, or may be, of several GPUs that nothing tells apart.
    """
    if len(times) < 2:
        return SampleRule()
    steps = [abs(after - before) for before, after in pairwise(times)]
    if max(steps) < _SHORTEST_INTERVAL and (precision < 1 or len(set(names)) > 1):
        # A single sample.
        if len(times) > _MOST_GPUS:
            raise AmbiguousRowsError(_SEVERAL)
        return SampleRule(math.inf, len(times))
    for gap in _limits(times, _CLEARLY_APART, _QUICK_APART):
        rows = _rows_of_each(times, names, gap)
        if rows is None:
            continue
        within = max(step for step in steps if step <= gap)
        between = min(step for step in steps if step > gap)
        # Of times in whole seconds, the rows of one second may be of one GPU.
        if within == 0 and between <= precision and precision >= 1 and len(set(names)) == 1:
            raise AmbiguousRowsError(_PERHAPS_SEVERAL)
        return SampleRule(gap, rows)
    if len(set(names)) > 1 or _repeats_pauses(steps, precision) or _have_period(steps, precision):
        raise AmbiguousRowsError(_SEVERAL)
    return SampleRule()


def _rows_of_each(times: Sequence[float], names: Sequence[str], gap: float) -> int | None:
    """The number of rows of each sample, if nearly all have as many and more than one."""
    starts = [0, *_begins(times, gap)]
    samples = list(pairwise(starts))
    if not samples:
        return None
    orders = Counter(tuple(names[first:stop]) for first, stop in samples)
    [(order, count)] = orders.most_common(1)
    are_alike = len(samples) - count <= len(samples) // _DAMAGED
    return len(order) if 1 < len(order) <= _MOST_GPUS and are_alike else None


def _repeats_pauses(steps: Sequence[float], precision: float) -> bool:
    """Whether rows come in groups, which are of several GPUs, though not of always as many."""
    if precision >= 1:
        counts = Counter(_group_sizes(steps))
        return math.gcd(*counts) > 1 if counts else max(steps) == 0
    usual = sorted(steps)[len(steps) // 2]
    long = sorted(step for step in steps if step > _APART * max(usual, 1e-3))
    are_many = len(long) > max(2, _PAUSES * len(steps))
    return are_many and long[-1] <= _APART * long[0] and usual <= _LONGEST_STEP


def _have_period(steps: Sequence[float], precision: float) -> bool:
    """Whether the same uneven steps come again and again, as those from GPU to GPU."""
    for period in range(2, min(_LONGEST_PERIOD, (len(steps) + 1) // 3) + 1):
        usual = [
            sorted(same)[(len(same) - 1) // 2]
            for at in range(period)
            if (same := steps[at::period])
        ]
        short, long = min(usual), max(usual)
        if long - short <= 2 * precision or long < _UNEVEN * short:
            continue
        like = sum(
            abs(step - usual[at % period]) <= max(0.1 * usual[at % period], 2 * precision)
            for at, step in enumerate(steps)
        )
        if like >= (1 - _FEW) * len(steps):
            return True
    return False


def _group_sizes(steps: Sequence[float]) -> list[int]:
    """The number of rows of each whole second but the first and the last, which may be cut off."""
    ends = [at for at, step in enumerate(steps) if step]
    return [after - before for before, after in pairwise(ends)]


_ADVICE = "add index to the query, as in nvidia-smi --query-gpu=timestamp,index,…"
_SEVERAL = f"has rows of several GPUs and no column that distinguishes them: {_ADVICE}"
_PERHAPS_SEVERAL = (
    "has several rows for each time, of one GPU or of several, and no column that shows which:"
    f" {_ADVICE}"
)
