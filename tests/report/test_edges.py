"""Curves, quantiles and the energy of a counter, each at its edges."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import convert
from msgspec.structs import replace

from gpumon.model.snapshot import Host
from gpumon.report.curves import POINTS, Curve, GpuCurves
from gpumon.report.energy import EnergyMeter
from gpumon.report.plot import draw
from gpumon.report.samples import GpuSample, SteadyGpu
from gpumon.report.sums import Distribution, Energy
from gpumon.text.time_parsing import day_and_time
from tests.build import GIB, NOON, gpu, snapshot
from tests.report.logs import printed, report, write_log
from tests.report.test_command import busy


def curve(*points: tuple[float, float]) -> Curve:
    """A curve with percentages at seconds after noon."""
    made = Curve(NOON)
    for second, percent in points:
        made.add(NOON + second, percent)
    return made


def runs(made: Curve, patience: float) -> list[list[tuple[float, float]]]:
    return [[(time - NOON, mean) for time, mean in run] for run in made.runs(patience)]


def test_a_point_of_a_curve_is_the_mean_of_its_second() -> None:
    made = curve((-5, 10), (0, 20), (0.9, 60), (1, 50))
    assert runs(made, 0) == [[(0.5, 30), (1.5, 50)]]
    assert made.ends == (NOON + 0.5, NOON + 1.5)


@pytest.mark.parametrize(
    ("seconds", "ends"), [([], []), ([3], [3.5]), ([3, 4], [3.5, 4.5]), ([3, 4, 9], [3.5, 9.5])]
)
def test_the_ends_of_a_curve_are_its_first_and_last_point(
    seconds: Sequence[float], ends: Sequence[float]
) -> None:
    made = curve(*((second, 50.0) for second in seconds))
    assert [end - NOON for end in made.ends] == ends


@pytest.mark.parametrize(
    ("seconds", "patience", "count"),
    [((0, 1), 0, 1), ((0, 2), 0, 2), ((0, 3), 3, 1), ((0, 4), 3, 2)],
)
def test_a_gap_of_more_than_its_patience_breaks_a_curve(
    seconds: Sequence[float], patience: float, count: int
) -> None:
    assert len(runs(curve(*((second, 50.0) for second in seconds)), patience)) == count


@pytest.mark.parametrize("length", [POINTS, POINTS + 1, 2 * POINTS, 2 * POINTS + 1])
def test_a_full_curve_is_halved_and_keeps_its_means(length: int) -> None:
    made = curve(*((second, 80.0 if second % 2 else 20.0) for second in range(length)))
    (run,) = runs(made, 0)
    expected = 1.0
    while length > POINTS * expected:
        expected *= 2
    assert made.step == expected
    assert len(run) == -(-length // expected)
    whole = run if length % 2 == 0 else run[:-1]
    assert {mean for _, mean in whole} == ({50.0} if expected > 1 else {20.0, 80.0})


@pytest.mark.parametrize(("count", "left_out"), [(1, ""), (64, ""), (65, "1 more GPU not drawn.")])
def test_of_more_gpus_than_can_be_drawn_the_number_is_said(count: int, left_out: str) -> None:
    cards = []
    for index in range(count):
        cards.append(GpuCurves("ada-07", NOON))
        cards[-1].index = index
    drawn = draw(cards, 80, 24, colour=False)
    assert ("not drawn" in drawn) is bool(left_out)
    assert left_out in drawn


@pytest.mark.parametrize(
    ("times", "quantiles"),
    [
        ({}, (None, None, None)),
        ({40: 10.0}, (40.0, 40.0, 40.0)),
        ({0: 1.0, 50: 1.0, 100: 2.0}, (50.0, 100.0, 100.0)),
        ({10: 9.0, 90: 1.0}, (10.0, 10.0, 90.0)),
        ({10: 0.1, 20: 0.2, 30: 0.3}, (20.0, 30.0, 30.0)),
    ],
)
def test_a_quantile_is_the_lowest_percentage_not_exceeded_for_its_share(
    times: dict[int, float], quantiles: tuple[float | None, ...]
) -> None:
    found = Distribution()
    for percent, seconds in times.items():
        found.add(percent, seconds)
    assert tuple(found.quantile(share) for share in (0.5, 0.9, 1.0)) == quantiles


GPU = convert(dict.fromkeys(SteadyGpu.__struct_fields__[:-1]), SteadyGpu)


def joules(*samples: tuple[float | None, float | None]) -> tuple[float, Energy]:
    """The energy of samples ten seconds apart, each with its counter and its watts."""
    meter, energy, total = EnergyMeter(), Energy(), 0.0
    rows = [
        GpuSample(10.0 * place, None, None, None, watts, counter, None, None, GPU)
        for place, (counter, watts) in enumerate(samples)
    ]
    for place, (before, after) in enumerate(pairwise(rows), 1):
        total += meter.used(before, after, 10.0 * place, 10.0, 10.0, None, energy)
    return total, energy


@pytest.mark.parametrize(
    ("samples", "expected", "known"),
    [
        ([(100, 50), (700, 50), (1300, 50)], 1200, 20),
        ([(None, 50), (None, 50)], 500, 10),
        ([(None, None), (None, None)], 0, 0),
        ([(100, 50), (None, None), (700, 50), (1300, 50)], 1100, 20),
        # A value that cannot be is passed over, unless the counter was unknown meanwhile.
        ([(1000, 50), (90, 50), (2000, 50)], 1000, 20),
        ([(1000, 50), (90, 50), (None, 50), (2000, 50), (2500, 50)], 2000, 40),
        # It began anew: what it had before says nothing of a later step.
        ([(1000, 50), (90, 50), (700, 50), (1300, 50)], 1710, 30),
        # It stands still, and catches up; not after it was unknown.
        ([(1000, 60), (1000, 60), (2200, 60)], 1200, 20),
        ([(1000, 60), (1000, 60), (2200, 60), (3400, 60)], 2400, 30),
        ([(1000, 100), (1000, 10), (1900, 10)], 1000, 20),
        ([(1000, 5), (1000, 5), (None, 60), (1000, 60), (2200, 60)], 1900, 40),
    ],
)
def test_the_energy_is_what_the_counter_says_and_power_times_time_where_it_cannot(
    samples: Sequence[tuple[float | None, float | None]], expected: float, known: float
) -> None:
    total, energy = joules(*samples)
    assert total == pytest.approx(expected)
    assert energy.known == known


@pytest.mark.parametrize("by", ["gpu", "host"])
@pytest.mark.parametrize(
    ("first", "last", "mean", "peak"),
    [
        (NOON + 4, NOON + 9, 2, 2),
        (NOON + 4, NOON + 10, 2, 4),
        (NOON + 4, NOON + 14, 2.8, 4),
        (NOON, NOON + 10, 2, 4),
        (NOON - 10, NOON + 10, 2, 4),
    ],
)
def test_the_memory_of_a_time_range_is_that_of_each_moment_in_it(
    tmp_path: Path, by: str, first: float, last: float, mean: float, peak: float
) -> None:
    samples = [
        sample
        for second, size in ((0, 2 * GIB), (10, 4 * GIB), (20, 6 * GIB))
        for sample in busy([second], memory_used=size)
    ]
    log = write_log(tmp_path / "a.csv", samples)
    [line] = report(log, by=by, first=day_and_time(first), last=day_and_time(last))["lines"]
    assert line["memory_mean_bytes"] == pytest.approx(mean * GIB)
    assert line["memory_peak_bytes"] == peak * GIB


def test_without_colours_the_curves_differ_by_their_marks() -> None:
    card = GpuCurves("ada-07", NOON)
    legend = draw([card], 80, 24, colour=False).splitlines()[0]
    marks = [part.split()[0] for part in legend.split("   ")]
    assert len(set(marks)) == len(marks) == 2


def test_gpus_are_in_the_order_of_their_indices(tmp_path: Path) -> None:
    cards = [gpu(index=index) for index in (2, 0, 1)]
    samples = [
        (replace(snapshot(NOON + second, *cards), host=Host(name="ada-07")), float(second))
        for second in (0, 10)
    ]
    told = report(write_log(tmp_path / "a.csv", samples))
    assert [line["index"] for line in told["lines"]] == [0, 1, 2]


def test_a_gap_that_began_before_the_time_range_has_its_length_too(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.csv", busy([*range(0, 100, 10), *range(1000, 1110, 10)]))
    when = {"first": day_and_time(NOON + 200), "last": day_and_time(NOON + 1020)}
    [line] = report(log, **when)["lines"]
    assert (line["gaps"], line["gap_hours"]) == (0, pytest.approx(800 / 3600, abs=0.001))
    heads, row = printed(log, width=200, **when).splitlines()[1:3]
    place = heads.index("GAPS")
    assert row[place - 2 : place + 4].strip() == "13m"
