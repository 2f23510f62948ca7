"""The figures of a report add up, and a replay shows what they are made of."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumon.recording.csv import index
from gpumon.report.figures import BY
from gpumon.report.output import print_report
from gpumon.report.sums import Sum, Sums
from tests.known import known
from tests.recording.csv.reading import change_cells, opened, pack, read_whole, times_of
from tests.report.logs import refused, report

START = 1_767_225_600.0
Row = dict[str, object]


def iso(time: float) -> str:
    return datetime.fromtimestamp(time, timezone.utc).isoformat(timespec="milliseconds")


def write(path: Path, rows: Iterable[Row], lists: Iterable[Row] | None = None) -> Path:
    """A log of rows: ``at`` is their time, ``elapsed`` that of the clock that nobody sets."""
    for file, each in ((path, rows), (path.with_suffix(".processes.csv"), lists)):
        if each is None:
            continue
        found = list(each)
        names = [*dict.fromkeys(name for row in found for name in row if name != "at")]
        heading = ["timestamp", *names, "gpumon_log"]
        lines = [
            ",".join([iso(float(str(row["at"]))), *(_cell(row.get(name)) for name in names), "3"])
            for row in found
        ]
        file.write_text("\n".join([",".join(heading), *lines]) + "\n")
    return path


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def sample(elapsed: float, uuid: str = "G0", *, at: float | None = None, **more: object) -> Row:
    """A row of a GPU so many seconds after ``START``; ``at`` is another time of day."""
    own = {"index": int(uuid[1]), "uuid": uuid, "elapsed [s]": elapsed}
    return {"at": START + elapsed if at is None else at, **own, **more}


def use(elapsed: float, pid: int = 7, uuid: str = "G0", **more: Any) -> Row:
    """A row of a process of ann's, see ``sample``."""
    own = {"pid": pid, "user": "ann", "type": "C", "start_ticks": 1}
    return sample(elapsed, uuid, **{**own, **more})


def seconds_of(found: dict[str, Any], key: str, figure: str = "gpu_hours") -> dict[Any, float]:
    return {line[key]: round(3600 * line[figure], 2) for line in found["lines"]}


def users_in_replay(path: Path) -> list[list[str | None]]:
    """The users of each sample, oldest first."""
    with opened(path) as log:
        return [[one.user for one in known(log.at(time)).processes] for time in times_of(log)]


# A list belongs to the sample that has its times.


@pytest.mark.parametrize(
    "moved",
    [-3600.0, -86400.0, 3600.0, -2.0, -3.001, 0.5],
    ids=["an hour back", "a day back", "an hour on", "into the run", "onto the run", "a bit on"],
)
@pytest.mark.parametrize("idle_first", [False, True])
def test_lists_are_of_their_samples_when_a_log_is_continued_with_another_clock(
    moved: float, idle_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for chunk in (2**16, 200):
        monkeypatch.setattr(index, "CHUNK", chunk)
        rows, lists = [], []
        for run, began in enumerate((START, START + 3 + moved)):
            listed = not (idle_first and run == 0)
            rows += [sample(at, at=began + at, processes=int(listed)) for at in range(4)]
            lists += [use(0.0, 7 + run, at=began, user=("bo", "ann")[run])] * listed
        path = write(tmp_path / "run.csv", rows, lists)
        # The second run has 3 s; the time until it begins is of the first.
        found = seconds_of(report(path, by="user"), "user")
        expected = {"ann": 3} if idle_first else {"ann": 3, "bo": 3 + min(max(0.0, moved), 2.5)}
        assert found == pytest.approx(expected, abs=0.02)
        first: list[str | None] = [] if idle_first else ["bo"]
        assert users_in_replay(path) == [first] * 4 + [["ann"]] * 4


def test_a_clock_that_goes_wrong_for_a_while_moves_no_list(tmp_path: Path) -> None:
    wrong = {3: 7200.0, 4: 7200.0, 5: 7200.0, 8: -50.0, 9: -50.0}
    times = [START + second + wrong.get(second, 0.0) for second in range(14)]
    users = [("ann", "bo")[second // 2 % 2] for second in range(14)]
    rows = [sample(second, at=at, processes=1) for second, at in enumerate(times)]
    lists = [use(second, at=at, user=users[second]) for second, at in enumerate(times)]
    path = write(tmp_path / "run.csv", rows, lists)
    assert users_in_replay(path) == [[user] for user in users]
    assert seconds_of(report(path, by="user"), "user") == {"ann": 7, "bo": 6}


def test_a_list_stands_when_the_clock_is_set_forward(tmp_path: Path) -> None:
    times = [START, START + 1, START + 3602, START + 3603]
    rows = [sample(second, at=at, processes=1) for second, at in enumerate(times)]
    path = write(tmp_path / "run.csv", rows, [use(0)])
    assert users_in_replay(path) == [["ann"]] * 4
    assert seconds_of(report(path, by="user"), "user") == {"ann": 3}


def test_a_list_whose_sample_is_missing_is_of_the_next_one(tmp_path: Path) -> None:
    rows = [sample(second, processes=1) for second in (0, 1, 2, 4, 5)]
    lists = [use(0, user="ann"), use(3, user="bo")]
    path = write(tmp_path / "run.csv", rows, lists)
    assert users_in_replay(path) == [["ann"]] * 3 + [["bo"]] * 2
    assert seconds_of(report(path, by="user"), "user") == {"ann": 4, "bo": 1}


# Logs of single users.


def user_log(path: Path, user: str, at: float, seconds: int) -> Path:
    rows = [sample(second, at=at + second, processes=2) for second in range(seconds + 1)]
    lists = [
        use(second, ord(user[-1]), at=at + second, user=user) | {"sm [%]": 50}
        for second in range(0, seconds + 1, 4)
    ]
    return write(path, rows, lists)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_overlapping_logs_of_users_count_each_user(order: tuple[int, int], tmp_path: Path) -> None:
    paths = [
        user_log(tmp_path / "a.csv", "user-a", START, 7),
        user_log(tmp_path / "b.csv", "user-b", START + 0.5, 7),
    ]
    there = [paths[place] for place in order]
    assert seconds_of(report(*there, by="user"), "user") == {"user-a": 7, "user-b": 7}
    assert seconds_of(report(*there, by="process"), "pid") == {97: 7, 98: 7}
    assert seconds_of(report(*there, by="gpu"), "index") == {0: 7.5}


def paced_log(path: Path, user: str, at: float, interval: float, last: float) -> Path:
    """A log of one of two users, whose process has left the GPU ``last`` seconds after its start.

    It goes on for five samples; the process of the other user stays.
    """
    rows, lists = [], []
    listed = -60.0
    for number in range(int(last / interval) + 6):
        second = round(interval * number, 1)
        rows.append(sample(second, at=at + second, processes=2 if second <= last else 1))
        if second <= last and second - listed >= 4:
            listed = second
            own = use(second, ord(user[-1]), at=at + second, user=user)
            lists.append(own | {"sm [%]": 50})
    return write(path, rows, lists)


@pytest.mark.slow
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("intervals", "offset"),
    [
        ((10, 10), 3),
        ((10, 10), 9.9),
        ((60, 60), 13),
        ((7, 7), 1),
        ((6, 8), 1),
        ((1, 60), 0.5),
        ((0.5, 10), 0.2),
        ((3, 3), 1.5),
        ((20, 300), 7),
    ],
)
def test_overlapping_logs_of_users_count_each_user_at_any_interval(
    intervals: tuple[float, float], offset: float, order: tuple[int, int], tmp_path: Path
) -> None:
    most = max(intervals)
    last = 10 * most
    ends = [last // interval * interval for interval in intervals]
    paths = [
        paced_log(tmp_path / "a.csv", "user-a", START, intervals[0], ends[0]),
        paced_log(tmp_path / "b.csv", "user-b", START + offset, intervals[1], ends[1]),
    ]
    found = seconds_of(report(*(paths[place] for place in order), by="user"), "user")
    # The list of a user who left ends with that log's next sample that would have one.
    for user, end, interval in zip(("user-a", "user-b"), ends, intervals, strict=True):
        assert end <= found[user] <= end + max(interval, 6.0) + min(intervals), user
    assert_adds_up(paths, [last / 3, last / 2 + 0.3], "user")


def test_a_log_that_ends_leaves_the_user_of_another_one(tmp_path: Path) -> None:
    often = user_log(tmp_path / "a.csv", "user-a", START, 302)
    rows = [sample(at, processes=2) for at in range(0, 1201, 60)]
    lists = [use(at, 98, user="user-b") for at in range(0, 1201, 60)]
    seldom = write(tmp_path / "b.csv", rows, lists)
    found = report(often, seldom, by="user")
    assert seconds_of(found, "user") == {"user-a": 302, "user-b": 1200}
    assert seconds_of(report(often, seldom), "index", "gap_hours") == {0: 0}


def test_a_list_without_a_next_one_ends_in_a_report_as_in_a_replay(tmp_path: Path) -> None:
    rows = [sample(second, processes=1) for second in range(20)]
    path = write(tmp_path / "run.csv", rows, [use(0), use(4)])
    shown = users_in_replay(path)
    assert shown == [["ann"]] * 10 + [[]] * 10
    found = report(path, by="user")
    assert seconds_of(found, "user") == {"ann": 10}
    assert any("no list has, together for 9s" in note for note in found["notes"])


def test_a_log_of_a_single_user_adds_nothing_to_one_of_all(tmp_path: Path) -> None:
    mine = user_log(tmp_path / "mine.csv", "user-a", START + 0.5, 20)
    rows = [sample(second, processes=2) for second in range(31)]
    lists = [
        use(second, pid, user=user)
        for second in range(0, 31, 4)
        for pid, user in ((97, "user-a"), (98, "user-b"))
    ]
    whole = write(tmp_path / "all.csv", rows, lists)
    assert seconds_of(report(mine, whole, by="user"), "user") == {"user-a": 30, "user-b": 30}


# Energy counters.

POWER = "power.draw [W]"


@pytest.mark.parametrize(
    ("counter", "powers", "joules", "known", "said"),
    [
        # A single impossible value, above or below.
        ([1000, 10**12, 1200], None, 100, 1, "for 1s"),
        ([1000, 1100, 10**12, 1300, 1400], None, 300, 3, "for 1s"),
        ([1000, 1100, 3, 1300, 1400], None, 300, 3, "for 1s"),
        ([1000, 1100, 10**12, 1300, 1400], 100, 400, 4, "for 1s"),
        # One that no GPU can have.
        ([1000, 10**15, 1200], None, 100, 1, "for 1s"),
        ([1000, 1100, 10**15, 1300, 1400], None, 300, 3, "for 1s"),
        ([1000, 1100, 10**15, 10**15, 1400, 1500], 100, 500, 5, "for 2s"),
        ([1000, 1100, 10**15, 0, 100], None, 200, 2, "for 2s"),
        # It goes on from where it jumped to, up or down: the driver was loaded, or it wrapped.
        ([1000, 1100, 10**9, 10**9 + 100], None, 200, 2, "for 1s"),
        ([1000, 1100, 0, 100, 200], None, 300, 3, "for 1s"),
        ([1000, 1100, 0, 100, 200], 100, 400, 4, "for 1s"),
        ([4294900.0, 4294967.0, 32.7, 132.7], 100, 67 + 100 + 100, 3, "for 1s"),
        # It stands still.
        ([1000] * 31, 300, 9000, 30, "stood still while power was drawn for 30s"),
        ([1000] * 4, 300, 900, 3, "stood still while power was drawn for 3s"),
        ([1000, 1300, *[1600] * 31], 300, 600 + 9000, 32, "for 30s"),
        ([0, 300, *[600] * 31, 900], 300, 900 + 9000, 33, "for 30s"),
        # It is late.
        ([0, 300, *[600] * 31, 9900], 300, 9900, 33, "for 30s"),
        # It is read every few seconds.
        ([0, 0, 0, 0, 1200, 1200, 1200, 1200, 2400], 300, 2400, 8, None),
        # Nothing is drawn.
        ([1000] * 31, 0, 0, 30, None),
    ],
)
def test_an_impossible_step_of_an_energy_counter_is_left_out_and_reported(
    counter: list[float],
    powers: float | None,
    joules: float,
    known: float,
    said: str | None,
    tmp_path: Path,
) -> None:
    rows = [
        sample(second) | {"energy [J]": value, POWER: powers}
        for second, value in enumerate(counter)
    ]
    found = report(write(tmp_path / "run.csv", rows))
    (line,) = found["lines"]
    assert line["energy_kwh"] * 3.6e6 == pytest.approx(joules, abs=2)
    assert line["energy_known"] == pytest.approx(known / (len(counter) - 1), abs=1e-4)
    notes = [note for note in found["notes"] if note.startswith("The energy counter")]
    assert len(notes) == (said is not None)
    assert said is None or said in notes[0]


@pytest.mark.parametrize(("limit", "joules"), [(None, 12100), (300, 200)])
def test_what_a_gpu_can_use_is_judged_by_its_power_limit(
    limit: float | None, joules: float, tmp_path: Path
) -> None:
    rows = [
        sample(second) | {"energy [J]": value, "power.max_limit [W]": limit}
        for second, value in enumerate((0, 100, 12000, 12100))
    ]
    (line,) = report(write(tmp_path / "run.csv", rows))["lines"]
    assert line["energy_kwh"] == pytest.approx(joules / 3.6e6, abs=1e-6)


# Time ranges.

ADDED = (
    *("covered_hours", "present_hours", "gpu_hours", "busy_hours", "idle_hours", "energy_kwh"),
    *("heat_hours", "power_cap_hours", "lost_hours", "ecc_uncorrected", "gaps", "gap_hours"),
    *("starved_hours", "empty_hours", "idle_kwh", "slowed_kwh", "left_out_hours"),
    *("allocated_hours", "unused_allocated_hours", "unused_allocated_kwh"),
)
_LINE_KEYS = ("index", "gpus", "user", "pid", "job", "host")


def is_of_gap(figure: str) -> bool:
    return figure == "gap_hours" or figure.isdigit()


def sums_of(found: dict[str, Any]) -> dict[tuple[object, ...], float]:
    """What adds up over time, by line."""
    sums: dict[tuple[object, ...], float] = {}
    for line in found["lines"]:
        name = line.get("index", line.get("job", line.get("pid", line.get("user", line["host"]))))
        sums |= {(name, key): line[key] or 0 for key in ADDED if key in line}
        present = line.get("present_hours", line.get("covered_hours"))
        memory = (line["memory_mean_bytes"] or 0) * present * (line["memory_known"] or 0)
        sums[name, "GiB-hours"] = memory / 2**30
        for xid, count in (line["xids"] or {}).items():
            sums[name, xid] = count
    return sums


def assert_adds_up(paths: Sequence[Path], splits: Sequence[float], by: str, **options: Any) -> None:
    def sums(first: str | None, last: str | None) -> dict[tuple[object, ...], float]:
        out = io.StringIO()
        asked = {"by": by, "form": "json", "first": first, "last": last, **options}
        is_empty = print_report([*map(str, paths)], out=out, now=START + 1e6, **asked)
        return {} if is_empty else sums_of(json.loads(out.getvalue()))

    whole = sums(None, None)
    ends = [None, *(iso(START + split) for split in sorted(set(splits))), None]
    parts = [sums(first, last) for first, last in pairwise(ends)]
    total: dict[tuple[object, ...], float] = dict.fromkeys(whole, 0.0)
    for part in parts:
        for key, value in part.items():
            total[key] = total.get(key, 0) + value
    if {} in parts:
        # A time range without any sample, as within a gap, has no report: the length of the gap
        # and an XID in it are in none.
        whole, total = (
            {key: value for key, value in each.items() if not is_of_gap(str(key[1]))}
            for each in (whole, total)
        )
    assert total == pytest.approx(whole, abs=2e-5 * len(ends), rel=2e-3)


BEFORE_ALL = use(0, at=START - 1e5) | {"used_gpu_memory [MiB]": 0, "sm [%]": 0, "cpu [%]": 0}
"""A list before all samples: the file has its columns also if no list follows."""


times = st.lists(
    st.sampled_from((0.1, 1.0, 1.0, 1.0, 1.1, 2.0, 5.0, 40.0, 400.0)), min_size=2, max_size=30
)


_ALLOCATED: tuple[Row, ...] = (
    {"allocations": 0, "allocated.jobs": None, "allocated.users": None},
    {"allocations": None, "allocated.jobs": None, "allocated.users": None},
    {"allocations": None, "allocated.jobs": "slurm 5?", "allocated.users": "ann"},
    {"allocations": 1, "allocated.jobs": "slurm 5", "allocated.users": "ann"},
    {"allocations": 2, "allocated.jobs": "slurm 6;slurm -", "allocated.users": "bo;"},
    {"allocations": 2, "allocated.jobs": "slurm 5;slurm 7", "allocated.users": "ann;ann"},
)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Row], list[Row], list[float]]:
    """The rows of a log of two GPUs with gaps, and times within it."""
    elapsed, energy, ecc = 0.0, 1000.0, 0
    rows, lists = [], []
    xid: tuple[int, float] | None = None
    there: tuple[int, ...] = ()
    allocated = _ALLOCATED[0]
    for step in (0.0, *draw(times)):
        elapsed = round(elapsed + step, 1)
        energy += draw(st.sampled_from((0.0, 50.0, 300.0))) * step
        ecc += draw(st.sampled_from((0, 0, 0, 2)))
        if draw(st.integers(0, 9)) == 0:
            xid = draw(st.sampled_from((31, 79))), START + elapsed - step / 2
        if draw(st.booleans()):
            there = draw(st.sampled_from(((), (1,), (1, 2), (2, 3))))
        if draw(st.booleans()):
            allocated = draw(st.sampled_from(_ALLOCATED))
        for uuid in ("G0", "G1"):
            if uuid == "G1" and draw(st.integers(0, 7)) == 0:
                continue
            own = {
                "processes": len(there),
                "utilization.gpu [%]": draw(st.sampled_from((None, 0, 3, 95))),
                "memory.used [MiB]": draw(st.sampled_from((1000, 5000))),
                POWER: 200.0,
                "energy [J]": energy,
                "status": draw(st.sampled_from(("ok", "ok", "ok", "lost"))),
                "clocks_event_reasons.active": draw(st.sampled_from((0, 4, 0x40))),
                "ecc.errors.uncorrected.volatile.total": ecc,
                "xid": None if xid is None else xid[0],
                "xid.at": None if xid is None else iso(xid[1]),
                **allocated,
            }
            own["clocks_event_reasons.active"] = hex(int(str(own["clocks_event_reasons.active"])))
            rows.append(sample(elapsed, uuid) | own)
            lists += [
                use(elapsed, pid, uuid=uuid)
                | {"user": "ann" if pid == 1 else "bo", "used_gpu_memory [MiB]": 512 * pid}
                | {"sm [%]": draw(st.sampled_from((0, 20))), "cpu [%]": 100}
                for pid in there
            ]
    splits = st.one_of(st.floats(-1, elapsed + 1), st.sampled_from([0.0, elapsed / 2, elapsed]))
    return rows, lists, [round(one, 3) for one in draw(st.lists(splits, min_size=1, max_size=4))]


@pytest.mark.slow
@pytest.mark.parametrize("by", BY)
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(drawn=logs())
def test_time_ranges_add_up_to_the_whole(
    by: str, tmp_path: Path, drawn: tuple[list[Row], list[Row], list[float]]
) -> None:
    rows, lists, splits = drawn
    assert_adds_up([write(tmp_path / "run.csv", rows, [BEFORE_ALL, *lists])], splits, by)


@pytest.mark.parametrize("by", ["gpu", "process"])
def test_an_error_in_a_gap_is_one_of_the_gpu_and_of_nobody(by: str, tmp_path: Path) -> None:
    ecc = "ecc.errors.uncorrected.volatile.total"
    rows = [sample(at, processes=1) | {"xid": None, "xid.at": None, ecc: 0} for at in range(4)]
    rows.append(sample(40, processes=1) | {"xid": 31, "xid.at": iso(START + 20), ecc: 3})
    path = write(tmp_path / "run.csv", rows, [use(0), use(40)])
    (line,) = report(path, by=by)["lines"]
    counted = ({"31": 1}, 3) if by == "gpu" else ({}, 0)
    assert (line["xids"] or {}, line["ecc_uncorrected"]) == counted
    assert_adds_up([path], [1.0, 21.0], by)


def test_a_time_range_between_two_samples_has_its_seconds(tmp_path: Path) -> None:
    path = write(tmp_path / "run.csv", [sample(at) for at in (0, 60, 120)])
    for splits in ([90], [60], [70, 80], [1, 2, 119.5]):
        assert_adds_up([path], splits, "gpu")
    within = report(path, first=iso(START + 70), last=iso(START + 80))
    assert seconds_of(within, "index", "covered_hours") == {0: 10}
    (line,) = within["lines"]
    assert (line["first"], line["last"]) == (iso(START + 70), iso(START + 80))


@pytest.mark.slow
@pytest.mark.parametrize("by", ["gpu", "user", "host"])
def test_time_ranges_of_rotated_and_overlapping_logs_add_up(by: str, tmp_path: Path) -> None:
    def part(name: str, seconds: range, user: str) -> Path:
        rows = [sample(second, processes=1) | {"energy [J]": 100 * second} for second in seconds]
        lists = [use(second, user=user) for second in seconds if not second % 4]
        return write(tmp_path / name, rows, lists)

    part("run.part0001.csv", range(40), "ann")
    part("run.part0002.csv", range(400, 440), "bo")
    run = part("run.csv", range(440, 500), "ann")
    other = part("other.csv", range(20, 460, 7), "ann")
    for splits in ([39.5], [39, 41, 390], [402], [440.0], [441, 499.9], [30, 420.5]):
        assert_adds_up([run], splits, by)
        assert_adds_up([run, other], splits, by)


@pytest.mark.slow
def test_a_gpu_that_was_away_for_long_has_its_gap_in_every_time_range(tmp_path: Path) -> None:
    rows = [
        sample(at, uuid)
        for at in range(3000)
        for uuid in ("G0", "G1")
        if uuid == "G0" or at < 10 or at >= 2900
    ]
    assert_adds_up([write(tmp_path / "run.csv", rows)], [5, 2800, 2950], "gpu")


def test_an_xid_between_the_samples_around_a_split_counts_once(tmp_path: Path) -> None:
    rows = [
        sample(at, status="ok") | ({} if at < 120 else {"xid": 79, "xid.at": iso(START + 100)})
        for at in range(0, 300, 60)
    ]
    path = write(tmp_path / "run.csv", rows)
    assert report(path)["lines"][0]["xids"] == {"79": 1}
    for split in (90, 100, 110, 119.9, 120, 130):
        assert_adds_up([path], [split], "gpu")


# Jobs whose launcher is found late.


def job_log(path: Path, facts: Sequence[dict[str, object]], seconds: int = 4) -> Path:
    """Two GPUs with a process each, both with the same facts at every second sample."""
    gpus = ("G0", "G1")
    rows = [sample(at, uuid, processes=1) for at in range(seconds + 1) for uuid in gpus]
    unknown = {"used_gpu_memory [MiB]": 1024, "launcher": None, "session": None}
    lists = [
        use(at, 10 + number, uuid) | unknown | facts[min(at // 2, len(facts) - 1)]
        for at in range(0, seconds + 1, 2)
        for number, uuid in enumerate(gpus)
    ]
    return write(path, rows, lists)


@pytest.mark.parametrize(
    "facts",
    [
        [{}, {"launcher": "9:9"}],
        [{"launcher": "9:9"}, {}],
        [{"session": 5}, {"session": 5, "launcher": "9:9"}],
        [{}, {"session": 5}, {"session": 5, "launcher": "9:9"}],
        [{}, {"slurm_job": "88"}],
        [{"launcher": "9:9"}, {"slurm_job": "88"}],
        [{}, {"session": 5}],
        [{}, {"container": "docker abc"}],
    ],
)
def test_processes_at_the_same_time_are_one_job_however_late_that_is_known(
    facts: list[dict[str, object]], tmp_path: Path
) -> None:
    path = job_log(tmp_path / "run.csv", facts)
    for options in ({}, {"last": iso(START + 3.5)}):
        (line,) = report(path, by="job", **options)["lines"]
        seconds = 3.5 if options else 4
        assert line["present_hours"] * 3600 == pytest.approx(seconds, abs=0.01)
        assert line["gpu_hours"] * 3600 == pytest.approx(2 * seconds, abs=0.01)
        assert line["memory_mean_bytes"] == line["memory_peak_bytes"] == 2 * 2**30
        assert (line["processes"], line["gpus"]) == (2, "0,1")
    assert_adds_up([path], [1.0], "job")


def test_a_job_that_is_known_after_an_hour_is_one_job_all_the_time(tmp_path: Path) -> None:
    path = job_log(tmp_path / "run.csv", [*[{}] * 1800, {"launcher": "9:9"}], seconds=3700)
    (line,) = report(path, by="job")["lines"]
    assert line["present_hours"] * 3600 == pytest.approx(3700, abs=0.01)
    assert line["memory_mean_bytes"] == 2 * 2**30


@pytest.mark.slow
@pytest.mark.parametrize(
    "facts",
    [
        [*[{}] * 500, {"launcher": "9:9"}],
        [*[{"session": 5}] * 500, {"slurm_job": "88"}],
        [*[{}] * 500, {"container": "docker abc"}],
    ],
)
def test_a_job_that_is_known_long_after_a_time_range_is_one_job_there(
    facts: list[dict[str, object]], tmp_path: Path
) -> None:
    path = job_log(tmp_path / "run.csv", facts, seconds=1200)
    # The first process is known at once, the other one only at the end.
    known_early = [
        (row, name, str(value)) for row in range(0, 1202, 2) for name, value in facts[-1].items()
    ]
    change_cells(path.with_suffix(".processes.csv"), *known_early)
    (line,) = report(path, by="job", last=iso(START + 300))["lines"]
    assert (line["gpus"], line["processes"]) == ("0,1", 2)
    assert line["gpu_hours"] * 3600 == pytest.approx(600, abs=0.01)
    assert_adds_up([path], [300, 650], "job")


def test_a_launcher_that_left_its_gpu_before_its_process_came_is_one_job(tmp_path: Path) -> None:
    pids = [9] * 12 + [20] * 688 + [10] * 101
    rows = [sample(at, processes=1) for at in range(801)]
    lists = [
        use(at, pids[at]) | {"launcher": "9:1" if pids[at] == 10 else None}
        for at in range(0, 801, 4)
    ]
    path = write(tmp_path / "run.csv", rows, lists)
    found = seconds_of(report(path, by="job"), "job")
    assert sorted(found.values()) == [112, 688]
    assert_adds_up([path], [300], "job")


def test_a_launcher_with_a_gpu_of_its_own_is_part_of_its_job(tmp_path: Path) -> None:
    rows = [sample(at, uuid, processes=1) for at in range(5) for uuid in ("G0", "G1")]
    lists = [
        use(at, pid, uuid, session=3 + pid, launcher=launcher)
        for at in (0, 2, 4)
        for pid, uuid, launcher in ((9, "G0", None), (10, "G1", "9:1"))
    ]
    (line,) = report(write(tmp_path / "run.csv", rows, lists), by="job")["lines"]
    assert (line["processes"], line["gpus"]) == (2, "0,1")
    assert line["present_hours"] * 3600 == pytest.approx(4, abs=0.01)


# Files that are cut or corrupt.


# How sums are added up: each field by its type.


def _filled(total: Sum, number: int = 1) -> Any:
    """A sum with another value in each of its fields."""
    for name in total.__struct_fields__:
        value = getattr(total, name)
        number += 1
        if isinstance(value, Sum):
            _filled(value, number)
        elif isinstance(value, Counter):
            value[79] = number
        elif isinstance(value, dict):
            value["heat"] = float(number)
        elif isinstance(value, array):
            value[number] = float(number)
        else:
            setattr(total, name, bool(number) if value is False else number)
    return total


def test_no_field_is_lost_when_sums_are_joined() -> None:
    total = Sums()
    for other in (_filled(Sums()), Sums()):
        total.join(other)
        assert total == _filled(Sums())


def test_a_subject_gets_its_share_of_the_energy_and_all_of_the_time() -> None:
    total, whole = Sums(), _filled(Sums())
    total.join(whole, 0.5)
    for name in total.__struct_fields__:
        part = getattr(total, name)
        if hasattr(part, "joules"):
            assert part.joules == getattr(whole, name).joules / 2
            part.joules *= 2
    assert total == whole


def test_the_first_and_last_time_and_the_peak_are_those_of_both() -> None:
    total, other = Sums(first=5.0, last=6.0, ecc=1), Sums(first=4.0, last=5.0, ecc=2)
    total.memory.add(10.0, 1.0)
    other.memory.add(20.0, 3.0)
    total.join(other)
    assert (total.first, total.last, total.ecc) == (4.0, 6.0, 3)
    assert (total.memory.peak, total.memory.mean) == (20.0, 17.5)


def long_log(path: Path, seconds: int = 3000) -> Path:
    rows = [
        sample(at, processes=1) | {"energy [J]": 100 * at + at * at % 97} for at in range(seconds)
    ]
    lists = [use(at) | {"used_gpu_memory [MiB]": at * 7919 % 4001} for at in range(0, seconds, 4)]
    return write(path, rows, lists)


def packed_log(folder: Path, seconds: int = 60) -> Path:
    path = pack(long_log(folder / "run.csv", seconds))
    pack(folder / "run.processes.csv")
    return path


def replay_note(path: Path) -> str:
    """What a replay says of the files, once it has read them."""
    with opened(path) as log:
        read_whole(log)
        return log.damage


HARMS: dict[str, Callable[[bytes], bytes]] = {
    "ends in the middle of its compressed data": lambda packed: packed[: len(packed) // 2],
    "corrupt": lambda packed: packed[:500] + bytes(16 * [0xFF]) + packed[516:],
    "its checksum is wrong": lambda packed: packed[:-8] + bytes(4) + packed[-4:],
    "something else after its compressed data": lambda packed: packed + b"rubbish",
}


@pytest.mark.slow
@pytest.mark.parametrize("torn", ["run.csv", "run.processes.csv"])
@pytest.mark.parametrize("said", HARMS)
def test_a_damaged_packed_file_is_reported(said: str, torn: str, tmp_path: Path) -> None:
    path = packed_log(tmp_path, 600)
    harmed = tmp_path / f"{torn}.gz"
    harmed.write_bytes(HARMS[said](harmed.read_bytes()))
    for by in ("gpu", "user"):
        notes = " ".join(report(path, by=by)["notes"])
        assert f"{torn}.gz " in notes
        assert said in notes
        assert "; its last sample is of 20" in notes
    note = replay_note(path)
    assert note.startswith(f"{torn}.gz ")
    assert said in note


def test_members_one_after_the_other_are_one_file_and_zeros_after_it_are_none(
    tmp_path: Path,
) -> None:
    path = long_log(tmp_path / "run.csv", 60)
    whole = report(path)
    for file in (path, path.with_suffix(".processes.csv")):
        data, half = file.read_bytes(), file.stat().st_size // 2
        packed = gzip.compress(data[:half]) + gzip.compress(data[half:]) + bytes(512)
        pack(file).write_bytes(packed)
    assert report(tmp_path / "run.csv.gz") == whole
    assert replay_note(tmp_path / "run.csv.gz") == ""


@pytest.mark.parametrize("torn", ["run.csv", "run.processes.csv"])
def test_a_plain_file_that_is_cut_is_reported(torn: str, tmp_path: Path) -> None:
    path = long_log(tmp_path / "run.csv", 60)
    data = (tmp_path / torn).read_bytes()
    (tmp_path / torn).write_bytes(data[: data.rindex(b",3\n", 0, len(data) // 2) - 4])
    said = f"{torn} ends in the middle of a line, which is left out; its last sample is of 20"
    assert said in " ".join(report(path)["notes"])
    assert replay_note(path).startswith(said)


@pytest.mark.parametrize(
    "content",
    [b"", gzip.compress(b"", mtime=0), b"\x1f\x8b", b"no gzip at all"],
    ids=["no byte", "no content", "a start", "no gzip"],
)
def test_a_process_file_without_anything_is_reported_and_the_gpus_are_read(
    content: bytes, tmp_path: Path
) -> None:
    path = packed_log(tmp_path)
    (tmp_path / "run.processes.csv.gz").write_bytes(content)
    found = report(path)
    assert seconds_of(found, "index", "covered_hours") == {0: 59}
    assert "run.processes.csv.gz" in found["notes"][0]
    assert found["notes"][0].endswith("its rows are left out.")
    assert "run.processes.csv.gz" in replay_note(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [("run.part0001.csv", b""), ("run.part0001.csv", b"x\n"), ("run.part0001.csv.gz", b"\x1f")],
    ids=["empty", "no heading", "no gzip"],
)
def test_a_rotated_part_that_is_no_log_is_reported_and_the_others_are_read(
    name: str, content: bytes, tmp_path: Path
) -> None:
    path = long_log(tmp_path / "run.csv", 60)
    (tmp_path / name).write_bytes(content)
    found = report(path)
    assert seconds_of(found, "index", "covered_hours") == {0: 59}
    assert name in found["notes"][0]
    assert found["notes"][0].endswith("; its rows are left out.")
    assert name in replay_note(path)


def test_a_gpu_file_that_is_not_compressed_in_spite_of_its_name_is_refused(tmp_path: Path) -> None:
    packed = long_log(tmp_path / "run.csv", 60).rename(tmp_path / "run.csv.gz")
    assert "cannot be decompressed" in refused(packed)
    packed.write_bytes(zlib.compress(b"x"))
    assert refused(packed)


def test_gpus_with_processes_that_no_list_has_are_reported(tmp_path: Path) -> None:
    path = long_log(tmp_path / "run.csv", 100)
    lists = tmp_path / "run.processes.csv"
    rows = lists.read_bytes().splitlines(keepends=True)
    lists.write_bytes(b"".join(rows[:11]))
    found = report(path, by="user")
    (line,) = found["lines"]
    known = line["gpu_hours"] * 3600
    assert 36 <= known <= 48
    missing = f"{99 - round(known)}s"
    assert any("no list" in note and missing in note for note in found["notes"]), found["notes"]


# Rows that were written twice.


KEYS: dict[str, Callable[[bytes], bytes]] = {
    "rows": lambda row: row,
    "samples": lambda row: row.partition(b",")[0],
}


def twice(path: Path, how: str) -> None:
    for name in (path, path.with_suffix(".processes.csv")):
        heading, *rows = name.read_bytes().splitlines(keepends=True)
        groups = (list(group) for _, group in groupby(rows, KEYS[how]))
        name.write_bytes(heading + b"".join(row for group in groups for row in group * 2))


@pytest.mark.parametrize("how", ["rows", "samples"])
@pytest.mark.parametrize("by", BY)
def test_rows_that_were_written_twice_count_once(how: str, by: str, tmp_path: Path) -> None:
    path = job_log(tmp_path / "run.csv", [{"launcher": "9:9"}])
    whole = report(path, by=by)
    twice(path, how)
    found = report(path, by=by)
    assert found["lines"] == whole["lines"]
    said = " has 10 rows twice in a sample, which count once."
    assert f"{path}{said}" in found["notes"]
    assert any("run.processes.csv has 6 rows twice" in note for note in found["notes"])
    with opened(path) as log:
        for time in times_of(log):
            taken = known(log.at(time))
            assert [one.uuid for one in taken.gpus] == ["G0", "G1"]
            assert [len(one.uses) for one in taken.processes] == [1, 1]
            assert [one.memory_used for one in taken.processes] == [2**30, 2**30]
    assert replay_note(path).startswith(f"run.csv{said}")
