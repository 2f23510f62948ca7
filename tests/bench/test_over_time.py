"""The comparison with earlier runs reports steps, and neither noise nor the speed of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.over_time import Figure, Run, Unit, compare, earlier, keep, to_json

NOTHING = "no figure differs by 10% or more from its earlier median"


def run(calls: float = 200.0, pss: float = 40.0, cpu: float = 7.0, python: str = "3.11.2") -> Run:
    figures = {
        "snapshot": Figure(calls, Unit.CALLS),
        "imports": Figure(pss, Unit.MODULES),
        "snapshot, time": Figure(cpu, Unit.CPU_MS),
    }
    return Run("2026-11-29T04:00:00Z", "1.0", python, 2, figures)


TEN = [run(200.0 + number, 40.0) for number in range(-5, 5)]
GOOD = to_json(TEN[0]).encode()


@pytest.mark.parametrize("calls", [182.0, 199.5, 217.0])
def test_a_small_difference_is_not_reported(calls: float) -> None:
    assert compare(run(calls), TEN) == [NOTHING]


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (run(240.0), "snapshot: 20% more (240 calls now, 199.5 before)"),
        (run(160.0), "snapshot: 20% less (160 calls now, 199.5 before)"),
        (run(pss=44.0), "imports: 10% more (44 modules now, 40 before)"),
    ],
)
def test_a_step_is_reported_with_both_values(now: Run, sentence: str) -> None:
    assert compare(now, TEN) == [sentence]


def test_times_are_not_compared() -> None:
    assert compare(run(cpu=70.0), TEN) == [NOTHING]


def test_only_runs_of_the_same_minor_version_of_python_are_compared() -> None:
    others = [run(400.0, python="3.12.1")] * 10
    assert compare(run(python="3.11.9"), [*TEN, *others]) == [NOTHING]
    assert compare(run(python="3.1.0"), [*TEN, *others]) == [
        "there are no earlier runs of Python 3.1 to compare with; --keep adds this"
    ]


def test_only_the_last_ten_runs_count() -> None:
    assert compare(run(), [run(20.0), *TEN]) == [NOTHING]


def test_few_runs_are_counted() -> None:
    assert compare(run(), TEN[:2]) == [NOTHING, "compared with only 2 earlier runs instead of 10"]
    assert compare(run(300.0), [run()]) == [
        "snapshot: 50% more (300 calls now, 200 before)",
        "compared with only 1 earlier run instead of 10",
    ]


def test_a_figure_that_earlier_runs_lack_or_have_in_another_unit_is_not_compared() -> None:
    now = run()
    new = Run("", "1.0", "3.11.2", 2, {"imports": Figure(40.0, Unit.CALLS)})
    assert compare(new, [now] * 10) == ["imports: no earlier figure to compare with"]


def test_kept_runs_are_read_again_oldest_first(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    assert earlier(file) == ([], [])
    keep(file, TEN[0])
    keep(file, TEN[1])
    assert earlier(file) == (TEN[:2], [])
    file.write_bytes(file.read_bytes()[:-5])
    keep(file, TEN[2])
    runs, (problem,) = earlier(file)
    assert runs == [TEN[0], TEN[2]]
    assert problem.startswith("line 2 ")


@pytest.mark.parametrize(
    "bad", [b"<<<<<<< HEAD", b"\xff", b"", b"{}", GOOD[:-9], GOOD.replace(b'"calls"', b'"ells"')]
)
def test_a_bad_line_is_reported_in_one_sentence_and_the_rest_is_used(
    tmp_path: Path, bad: bytes
) -> None:
    file = tmp_path / "figures.jsonl"
    lines = [to_json(each).encode() for each in TEN]
    file.write_bytes(b"\n".join([*lines[:1], bad, *lines[1:]]) + b"\n")
    runs, (problem,) = earlier(file)
    assert runs == TEN
    assert problem.startswith("line 2 of figures.jsonl is ignored, because it is not a run: ")
    assert "\n" not in problem
