"""What the history promises: honest gaps, steady charts, intervals, and a bound on its memory."""

from __future__ import annotations

import gc
import math
import random
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType, ModuleType
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from gpumon.model.processes import GpuProcess, GpuUse, ProcessId
from gpumon.model.serving import ServerLoad
from gpumon.model.snapshot import GpuStatus, Host, Snapshot, Unknown
from gpumon.recording.history import (
    CHARTED,
    GONE_KEPT,
    GONE_SECONDS,
    GPUS_KEPT,
    PATIENCE,
    PROCESS_CHARTED,
    PROCESSES_CHARTED,
    PROCESSES_KEPT,
    USERS_CHARTED,
    USERS_KEPT,
    XIDS_KEPT,
    Condition,
    History,
    Holding,
    Interval,
    ViewedSeries,
)
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known

HOUR = 3600
BUSY = Condition(lambda gpu, _: None if gpu.utilization_gpu is None else gpu.utilization_gpu > 0)


@pytest.fixture
def history() -> History:
    return History({"busy": BUSY})


def feed(history: History, *values: int | None, start: float = 0.0, step: float = 1.0) -> None:
    """One snapshot per utilisation, ``step`` seconds apart, from so many seconds after noon on."""
    for number, value in enumerate(values):
        history.add(snapshot(NOON + start + number * step, gpu(utilization_gpu=value)))


def add_lists(
    history: History, *lists: Sequence[GpuProcess], start: float = 0.0, step: float = 1.0
) -> None:
    """One process list after the other, as in ``feed``."""
    for number, listed in enumerate(lists):
        history.add(snapshot(NOON + start + number * step, gpu(), processes=tuple(listed)))


def gpu_values(history: History) -> ViewedSeries:
    return history.gpu_series("GPU-0")


def utilization(
    history: History, seconds: float, count: int, now: float | None = None, *, peak: bool = False
) -> list[float | None]:
    """The buckets up to so many seconds after noon, or up to the newest sample."""
    end = history.now if now is None else NOON + now
    return gpu_values(history).buckets("utilization_gpu", seconds, count, end, peak=peak)


def memory_peak(history: History, process: ProcessId, seconds: float = HOUR) -> float | None:
    """The most GPU memory of a process; ``None`` if no values of it are kept."""
    return history.process_series(process).peak("memory_used", seconds)


def busy_interval(history: History) -> Interval | None:
    return history.interval("GPU-0", "busy")


def size(history: History) -> int:
    """Bytes of all that only the history holds."""
    seen: dict[int, object] = {}
    waiting: list[object] = [history]
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, (type, ModuleType, FunctionType)):
            continue
        seen[id(found)] = found
        waiting.extend(gc.get_referents(found))
    return sum(sys.getsizeof(found) for found in seen.values())


# Charts


Fed: TypeAlias = "dict[float, Sequence[int | None]]"
"""Values by the second after noon from which on they come."""
UNKNOWN: Fed = {0: [80, None, 80]}
LATE: Fed = {0: [50] * 4, 24.9: [50], 25: [50] * 3}
SUSPENDED: Fed = {0: [40] * 20, 60: [60] * 20}
NO_NEWS: Fed = {0: [30] * 10}


@pytest.mark.parametrize(
    ("fed", "step", "asked", "drawn"),
    [
        pytest.param({}, 1, (60, 3, 0), [None] * 3, id="a GPU never seen"),
        pytest.param({0: [10]}, 1, (60, 3), [None, None, 10], id="before the first sample"),
        pytest.param({0: range(0, 70, 10)}, 1, (9, 3), [10, 40, 60], id="means, the last is live"),
        pytest.param({0: [10, 20], 0.5: [30]}, 1, (2, 2), [10, 25], id="a small step back"),
        pytest.param(UNKNOWN, 1, (3, 3), [80, None, 80], id="unknown"),
        pytest.param(UNKNOWN, 1, (3, 6, 2.5), [80, 80, None, None, 80, 80], id="unknown, closely"),
        pytest.param(LATE, 5, (36, 36, 35.5), [50] * 36, id="a late sample"),
        # The sample of second 19 stands until the next is late, at 21.5.
        pytest.param(SUSPENDED, 1, (80, 8), [*[40] * 3, *[None] * 3, 60, 60], id="a suspend"),
        pytest.param(
            SUSPENDED,
            1,
            (80, 160, 79.5),
            [40] * 43 + [None] * 77 + [60] * 40,
            id="a suspend, closely",
        ),
        pytest.param(
            {0: [0, *[50] * 60], 7200: [50] * 5}, 1, (7200, 4), [*[None] * 3, 50], id="set forward"
        ),
        pytest.param(NO_NEWS, 1, (20, 20, 19.5), [30] * 12 + [None] * 8, id="no news"),
        pytest.param(NO_NEWS, 1, (20, 40, 19.5), [30] * 23 + [None] * 17, id="no news, closely"),
        # From 14:00 two days later back to midnight, in halves of days.
        pytest.param({0: [30] * 1500}, 120, (72 * HOUR, 6), [None] * 3 + [30] * 3, id="a day ago"),
    ],
)
def test_a_chart_draws_what_was_measured_and_nothing_else(
    history: History, fed: Fed, step: float, asked: tuple[float, int], drawn: list[float | None]
) -> None:
    for start, values in fed.items():
        feed(history, *values, start=start, step=step)
    assert utilization(history, *asked) == drawn


@pytest.mark.parametrize(
    ("seconds", "count"),
    [(60, 60), (60, 600), (60, 40), (600, 600), (3000, 6000), (7200, 720), (7200, 1440)],
)
@pytest.mark.parametrize(("phase", "more"), [(0.05, 9), (0.75, 2)])
def test_of_a_second_whoever_asks_again_is_told_the_same_and_of_the_next_what_came(
    history: History, seconds: float, count: int, phase: float, more: int
) -> None:
    feed(history, *[10] * 300, step=0.1)
    # Seconds and tens begin here.
    asked_at = 30 + phase
    feed(history, 10, start=asked_at)
    told = utilization(history, seconds, count)
    assert utilization(history, seconds / count * 2, 2) == [10, 10], "as wide, but fewer"
    feed(history, *[90] * more, start=asked_at + 0.1, step=0.1)
    assert utilization(history, seconds, count, asked_at) == told
    feed(history, 90, 90, start=asked_at + 1, step=0.1)
    assert utilization(history, seconds, count, asked_at + 1.1) != told[1:] + told[-1:]
    assert 10 < (utilization(history, seconds, count)[-1] or 0) <= 90


def test_the_peak_of_a_bucket_is_its_highest_sample(history: History) -> None:
    feed(history, *([0] * 9 + [100]), step=0.1)
    assert utilization(history, 2, 2, peak=True) == [None, 100]
    assert utilization(history, 2, 2) == [None, 10]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "count", "step"),
    [
        (60, 20, 0.1),
        (60, 120, 0.1),
        (60, 120, 0.7),
        (60, 40, 0.1),
        (100, 7, 0.3),
        (600, 100, 1.0),
        (3600, 90, 2.0),
        (7200, 90, 5.0),
        (60, 60, 5.0),
    ],
)
def test_a_past_bucket_never_changes_while_it_scrolls(
    history: History, seconds: float, count: int, step: float
) -> None:
    # Seeded, so that a failure comes again.
    dice = random.Random(7)
    width = seconds / count
    seen: dict[int, float | None] = {}
    time = 0.0
    for _ in range(int(1.25 * seconds / step)):
        time += step * dice.uniform(0.8, 1.2)
        feed(history, dice.choice([None, *range(100)]), start=time)
        newest = int((NOON + time) // width)
        for number, found in enumerate(utilization(history, seconds, count)[:-1]):
            bucket = newest - count + 1 + number
            assert seen.setdefault(bucket, found) == pytest.approx(found)
    assert any(value is not None for value in seen.values())


def test_the_live_bucket_is_never_empty_while_samples_come(history: History) -> None:
    for number in range(600):
        feed(history, 50, start=number / 10)
        for count in (20, 40, 120, 7):
            assert utilization(history, 60, count)[-1] == 50


def test_a_time_that_rounds_up_into_the_next_bucket_keeps_those_before_it(history: History) -> None:
    # The quotient of this time and the width of a bucket is rounded to a whole number.
    now = math.nextafter(1_764_000_000.0, 0)
    for second in range(320):
        history.add(snapshot(now - 319 + second, gpu(utilization_gpu=50)))
    for peak in (False, True):
        values = gpu_values(history).buckets("utilization_gpu", 300, 46, now, peak=peak)
        assert len(values) == 46
        assert set(values[-9:-1]) == {50}


@pytest.mark.parametrize("step", [1.0, 2.0, 5.0, 30.0])
def test_a_slow_pace_leaves_no_holes(history: History, step: float) -> None:
    feed(history, *[50] * 80, step=step)
    now = 79.5 * step
    assert utilization(history, 60, 120, now)[-60:] == [50] * 60
    assert utilization(history, 60, 20, now) == [50] * 20
    assert utilization(history, 10 * step, 5, now) == [50] * 5


def test_samples_around_a_suspend_are_at_their_times(history: History) -> None:
    for start, values in SUSPENDED.items():
        feed(history, *values, start=start)
    window = gpu_values(history).window("utilization_gpu", 100)
    assert [time - NOON for time, _ in window] == [*range(20), *range(60, 80)]


def test_a_night_of_suspend_does_not_look_like_a_slow_pace_afterwards(history: History) -> None:
    feed(history, *[40] * 20)
    night = 8 * HOUR
    feed(history, 60, start=night)
    history.add(snapshot(NOON + night + 1, gpu(utilization_gpu=None, status=GpuStatus.LOST)))
    assert utilization(history, 60, 6, night + 50) == [60, None, None, None, None, None]
    assert utilization(history, night, 8, night)[2:7] == [None] * 5


def test_a_lost_gpu_leaves_a_gap_and_the_others_run_on(history: History) -> None:
    for second in range(30):
        lost = gpu(index=0, status=GpuStatus.LOST, utilization_gpu=None)
        first = gpu(index=0, utilization_gpu=90) if second < 10 else lost
        history.add(snapshot(NOON + second, first, gpu(index=1, utilization_gpu=70)))
    assert utilization(history, 30, 3) == [90, pytest.approx(90), None]
    assert history.gpu_series("GPU-1").buckets("utilization_gpu", 30, 3) == [70, 70, 70]


def test_old_values_shown_again_while_another_gpu_hangs_are_not_new_ones(history: History) -> None:
    for second in range(40):
        read_at = NOON + min(second, 9)
        history.add(snapshot(NOON + second, gpu(utilization_gpu=90, sampled_at=read_at)))
    assert utilization(history, 40, 4)[2:] == [None, None]
    assert busy_interval(history) is None


def test_what_was_measured_of_the_machine_before_a_card_hung_is_not_drawn_on(
    history: History,
) -> None:
    def cpu(*hosts: Host, start: float = 0.0) -> list[float | None]:
        for second, host in enumerate(hosts):
            history.add(replace(snapshot(NOON + start + second), host=host))
        return history.host_series().buckets("cpu_percent", 30, 30, history.now)

    drawn = cpu(*[Host("ada-07", cpu_percent=40.0)] * 30)
    assert drawn[:6] == [40.0] * 6
    assert set(drawn[10:]) == {None}
    assert cpu(Host("ada-07", cpu_percent=90.0), start=30)[-1] == 90.0


@pytest.mark.parametrize(("seconds", "count"), [(6, 60), (60, 60), (600, 3)])
def test_a_gpu_that_never_answered_is_unknown_just_before_it_was_seen_too(
    history: History, seconds: float, count: int
) -> None:
    history.add(snapshot(NOON + 0.5, gpu(status=GpuStatus.LOST)))
    assert utilization(history, seconds, count, 0) == [None] * count


def test_a_gpu_never_seen_has_no_values_and_a_field_that_is_not_kept_is_an_error(
    history: History,
) -> None:
    feed(history, 10)
    assert history.gpu_series("GPU-9").window("utilization_gpu", 60) == []
    assert history.gpu_series("GPU-9").peak("utilization_gpu", 60) is None
    with pytest.raises(KeyError):
        gpu_values(history).buckets("fan_speed", 60, 10, NOON)


@pytest.mark.slow
def test_values_are_kept_for_two_minutes_an_hour_and_a_day(history: History) -> None:
    # Where every second is not looked at, samples are rarer.
    for second in (*range(0, 23 * HOUR, 5), *range(23 * HOUR, 25 * HOUR)):
        feed(history, second // HOUR, start=second)
    for seconds, points in ((120, 121), (HOUR, 3600), (24 * HOUR, 8640)):
        window = gpu_values(history).window("utilization_gpu", seconds)
        assert len(window) == pytest.approx(points, abs=1)
        assert window[0][0] == pytest.approx(history.now - seconds, abs=10)
    assert utilization(history, 24 * HOUR, 24) == list(range(1, 25))


@pytest.mark.slow
@pytest.mark.parametrize("step", [7, 60, 2 * HOUR])
def test_a_value_stands_until_the_next_one_at_any_pace(history: History, step: int) -> None:
    feed(history, *range(32 * HOUR // step), step=step)
    for seconds, slot, kept in ((HOUR, 1, 3600), (24 * HOUR, 10, 8640)):
        window = gpu_values(history).window("utilization_gpu", seconds)
        # Of the newest value only the beginning has passed.
        assert len(window) >= kept - 1
        wrong = [
            (time, value)
            for time, value in window
            if not (time - NOON) // step <= value <= (time - NOON + slot - 1) // step
        ]
        assert wrong == []


def test_two_minutes_at_ten_a_second_keep_every_sample(history: History) -> None:
    feed(history, *[number % 100 for number in range(3000)], step=0.1)
    window = gpu_values(history).window("utilization_gpu", 120)
    assert [value for _, value in window] == [number % 100 for number in range(1799, 3000)]


def serving(tokens: float | None, waiting: int | None = 0) -> GpuProcess:
    return replace(process(), load=ServerLoad(running=1, waiting=waiting, tokens=tokens))


def test_what_a_server_reported_has_a_past_and_silence_is_a_gap(history: History) -> None:
    silent = process()
    add_lists(history, [silent], [serving(400.0)], [silent], [serving(None, 3)])
    series = history.server_series(silent.id)
    assert series.buckets("tokens", 4, 4, NOON + 3) == [None, 400.0, None, None]
    assert series.buckets("waiting", 4, 4, NOON + 3) == [None, 0, None, 3]
    # The clock is set back by a minute.
    add_lists(history, [serving(100.0)], start=-57)
    tokens = [value for _, value in history.server_series(silent.id).window("tokens", 300)]
    assert tokens == [400.0, 100.0]


@pytest.mark.slow
def test_what_servers_reported_takes_no_memory_where_there_is_none() -> None:
    sizes = []
    for listed in (process(), serving(400.0)):
        history = History({})
        add_lists(history, *[[listed]] * (13 * HOUR // 10), step=10)
        sizes.append(size(history))
    assert 20_000 < sizes[1] - sizes[0] < 66_000


def test_the_machine_has_a_past_too_and_what_is_unknown_of_it_is_a_gap(history: History) -> None:
    for second in range(60):
        percent = 40.0 if second >= 30 else None
        host = Host("ada-07", cpu_percent=percent, load=(8.0, 4.0, 2.0))
        history.add(replace(snapshot(NOON + second), host=host))
    assert {
        field: history.host_series().buckets(field, 60, 60, NOON + 59)
        for field in ("cpu_percent", "load", "memory_used")
    } == {"cpu_percent": [None] * 30 + [40.0] * 30, "load": [8.0] * 60, "memory_used": [None] * 60}


@pytest.mark.slow
def test_memory_stays_within_what_the_module_says() -> None:
    history, listed = History({}), [process(started_at=None)]
    add_lists(history, *[listed] * (25 * HOUR // 10), step=10)
    day = size(history)
    add_lists(history, *[listed] * (7 * HOUR // 10), start=25 * HOUR, step=10)
    window = history.process_series(listed[0].id).window("sm", 900)
    assert len(window) == pytest.approx(900, abs=10)
    assert 500_000 < day < (980 + 155 + 132 + 81) * 1000 + 10_000
    assert size(history) - day < 20_000


def test_a_process_is_kept_for_a_quarter_of_an_hour_in_seconds_and_half_a_day_in_tens(
    history: History,
) -> None:
    for second in (*range(0, 12 * HOUR, 10), *range(12 * HOUR, 13 * HOUR, 2)):
        grown = replace(process(), cpu_percent=second / 3600, rss=second)
        add_lists(history, [grown], start=second)
    series = history.process_series(process().id)
    for seconds, points in ((120, 120), (900, 900), (1800, 180), (12 * HOUR, 4320)):
        for field in PROCESS_CHARTED:
            window = series.window(field, seconds)
            assert len(window) == pytest.approx(points, abs=2)
            assert window[0][0] == pytest.approx(history.now - seconds, abs=10)
    rises = [value for _, value in series.window("rss", 12 * HOUR)]
    assert rises == sorted(rises)
    assert len(series.window("sm", 24 * HOUR)) == pytest.approx(4320, abs=2)


def test_the_four_values_of_a_process_are_charted_and_an_unknown_one_is_a_gap(
    history: History,
) -> None:
    seen = replace(process(memory_used=GIB, sm=7), cpu_percent=250.0, rss=3 * GIB)
    add_lists(history, [replace(seen, cpu_percent=None)], [seen])
    series = history.process_series(seen.id)
    assert {field: series.buckets(field, 2, 2) for field in PROCESS_CHARTED} == {
        "memory_used": [GIB, GIB],
        "sm": [7, 7],
        "cpu_percent": [None, 250],
        "rss": [3 * GIB, 3 * GIB],
    }


# Peak and slope


def test_a_peak_of_gpu_memory_outlives_the_seconds(history: History) -> None:
    least, most = [process(memory_used=GIB)], [process(memory_used=9 * GIB)]
    add_lists(history, *[least] * 300, most, *[least] * 3299)
    assert memory_peak(history, process().id, 900) == GIB
    assert memory_peak(history, process().id, HOUR) == 9 * GIB


def test_the_peak_is_found_though_it_lasted_for_one_sample_an_hour_ago(history: History) -> None:
    feed(history, 3, 97, 3, step=0.1)
    feed(history, *[3] * 2400, start=1)
    peaks = [gpu_values(history).peak("utilization_gpu", at) for at in (60, HOUR, 24 * HOUR)]
    assert peaks == [3, 97, 97]


@pytest.mark.slow
def test_the_slope_of_a_leak_is_what_leaks_in_a_second(history: History) -> None:
    for second in range(7200):
        add_lists(history, [process(memory_used=GIB + second * 2**20)], start=second)
    series = history.process_series(process().id)
    slopes = [series.slope("memory_used", seconds) for seconds in (60, 900, 7200)]
    assert slopes == pytest.approx([2**20] * 3, rel=0.01)


def test_one_point_has_no_slope(history: History) -> None:
    add_lists(history, [process()])
    assert history.process_series(process().id).slope("memory_used", 60) is None


# Clocks that jump


def test_a_clock_set_back_keeps_the_order_and_the_ages(history: History) -> None:
    feed(history, *[0, *[50] * 60])
    before = known(busy_interval(history))
    feed(history, *[50] * 60, start=-HOUR)
    after = known(busy_interval(history))
    assert after.seconds == pytest.approx(before.seconds + 60, abs=2)
    assert history.now == NOON - HOUR + 59
    window = gpu_values(history).window("utilization_gpu", 120)
    assert [time for time, _ in window] == sorted(time for time, _ in window)
    assert len(window) > 110
    # Ten seconds may be missing where slots of that length were moved.
    assert utilization(history, 100, 10).count(50) >= 9
    assert utilization(history, 100, 50).count(50) >= 44
    assert known(history.started) < NOON - HOUR


def test_a_clock_set_back_keeps_the_past_of_processes(history: History) -> None:
    for start in (0, -HOUR):
        add_lists(history, *[[process()]] * 60, start=start)
    window = history.process_series(process().id).window("memory_used", 120)
    assert len(window) > 110
    assert [time for time, _ in window] == sorted(time for time, _ in window)


def test_users_have_their_memory_and_gpus_over_time(history: History) -> None:
    ann = [process(1, gpus=(0, 1))]
    more = [*ann, process(2, gpus=(1,))]
    add_lists(history, ann, ann, more, [], [process(3, memory_used=None)])

    def values(field: str) -> list[float | None]:
        return history.user_series("ann").buckets(field, 5.0, 5)

    assert values("memory_used") == [2 * GIB, 2 * GIB, 3 * GIB, 0, None]
    assert values("gpus") == [2, 2, 2, 0, 1]
    assert history.user_series("bo").buckets("gpus", 2.0, 2) == [None, None]
    add_lists(history, ann, start=-100)
    assert values("gpus")[-1] == 2, "the clock was set back"


def test_values_of_a_bounded_number_of_users_are_kept(history: History) -> None:
    def kept() -> list[int]:
        """The users whose number of GPUs is known at the newest moment."""
        asked = (history.user_series(f"u{n}").buckets("gpus", 1.0, 1) for n in range(200))
        return [number for number, (value,) in enumerate(asked) if value is not None]

    crowd = [process(n + 1, user=f"u{n}", memory_used=(n + 1) * GIB) for n in range(150)]
    add_lists(history, crowd)
    assert kept() == list(range(150 - USERS_CHARTED, 150)), "those with the most memory"
    add_lists(history, crowd[:40], start=1)
    assert kept() == [*range(40), *range(150 - USERS_CHARTED + 40, 150)], "those seen last"


# Intervals in which a GPU is busy, or a process idle


SLOWLY = {60.0 * minute: seen for minute, seen in enumerate("--++++++++++")}
Seen: TypeAlias = "tuple[float, float, bool, int]"
"""Since when, until when, whether its start was observed, and in how many samples."""
UNLISTED = {
    ".": gpu(),
    "u": gpu(unknown={"processes": Unknown.NOT_SUPPORTED}),
    "n": gpu(status=GpuStatus.NO_ANSWER),
}
"""GPUs of which no process is listed."""


def sample(time: float, seen: str) -> Snapshot:
    """A GPU is busy and a process idle (``+``) or neither is (``-``); see ``UNLISTED``.

    Or that is unknown (``?``), or the GPU does not answer and the processes are an old list
    (``~``).
    """
    if seen in UNLISTED:
        return snapshot(time, UNLISTED[seen])
    use, sm = {"+": (50, 0), "-": (0, 40), "?": (None, None), "~": (0, 0)}[seen]
    status = GpuStatus.NO_ANSWER if seen == "~" else GpuStatus.OK
    listed_at = NOON + 1 if seen == "~" else time
    listed = (process(sm=sm),)
    return snapshot(
        time, gpu(status=status, utilization_gpu=use), processes=listed, processes_at=listed_at
    )


def idle_interval(history: History) -> Interval | None:
    return history.process_idle(process().id)


def interval_after(
    history: History, course: dict[float, str], of: Callable[[History], Interval | None]
) -> Seen | None:
    """The interval after one sample a second from each of these seconds after noon on."""
    for start, answers in course.items():
        for number, seen in enumerate(answers):
            history.add(sample(NOON + start + number, seen))
    found = of(history)
    return found and (found.since - NOON, found.last - NOON, found.start_observed, found.samples)


@pytest.mark.parametrize("of", [busy_interval, idle_interval], ids=["busy GPU", "idle process"])
@pytest.mark.parametrize(
    ("course", "expected"),
    [
        pytest.param({0: "--+++"}, (2, 4, True, 3), id="seen to begin"),
        pytest.param({0: "++"}, (0, 1, False, 2), id="may be older than the first sample"),
        pytest.param({0: "++-"}, None, id="ended by the first sample that denies it"),
        pytest.param({0: "++-+"}, (3, 3, True, 1), id="begins again"),
        pytest.param({0: "-+????????"}, None, id="unknown now"),
        pytest.param({0: "-+????????+"}, (1, 10, True, 2), id="unknown for a moment"),
        pytest.param({0: "-+???????????+"}, (13, 13, False, 1), id="unknown for longer"),
        pytest.param({0: "-+", PATIENCE + 1: "?+"}, (12, 12, False, 1), id="across a gap"),
        pytest.param({0: "-+", 9: "~"}, (1, 1, True, 1), id="no news"),
        pytest.param({0: "-+", 12: "~"}, None, id="no news for longer"),
        pytest.param(SLOWLY, (120, 660, True, 10), id="a slow pace"),
        pytest.param({**SLOWLY, -3600: "+"}, (-4140, -3600, True, 11), id="set back"),
        pytest.param(
            {0: "-" + 60 * "+", -3600: 12 * "?" + "+"}, (-3588, -3588, False, 1), id="gap, set back"
        ),
        pytest.param({0: "-" + 60 * "+", 7200: "+++++"}, (7200, 7204, False, 5), id="set forward"),
    ],
)
def test_an_interval_is_claimed_as_far_as_it_was_observed(
    history: History,
    of: Callable[[History], Interval | None],
    course: dict[float, str],
    expected: Seen | None,
) -> None:
    assert interval_after(history, course, of) == expected


@pytest.mark.parametrize(
    ("course", "expected"),
    [
        pytest.param({0: ".++"}, (1, 2, True, 2), id="idle since it came"),
        pytest.param({0: "-+."}, None, id="left out of the newest list"),
        pytest.param({0: "-+.+"}, (1, 3, True, 2), id="left out of one list"),
        pytest.param({0: "u+"}, (1, 1, False, 1), id="its GPU was not listed"),
        pytest.param({0: "n+"}, (1, 1, False, 1), id="its GPU did not answer"),
        pytest.param({0: ".", PATIENCE + 1: "+"}, (11, 11, False, 1), id="no list for a while"),
    ],
)
def test_a_process_is_idle_since_it_came_if_it_was_seen_to_come(
    history: History, course: dict[float, str], expected: Seen | None
) -> None:
    assert interval_after(history, course, idle_interval) == expected


def test_hysteresis_survives_a_short_denial() -> None:
    history = History({"busy": replace(BUSY, hysteresis=5)})
    assert interval_after(history, {0: "-+--+-"}, busy_interval) == (1, 4, True, 2)
    assert interval_after(history, {6: "-----"}, busy_interval) is None


def test_an_interval_does_not_depend_on_how_often_it_is_asked_for() -> None:
    # Seeded, so that a failure comes again.
    dice = random.Random(7)
    watched = {
        "busy": BUSY,
        "lingering": replace(BUSY, hysteresis=5),
        "idle": Condition(lambda gpu, _: gpu.utilization_gpu == 0),
    }
    asked, left_alone = History(watched), History(watched)
    time, value = NOON, None
    for _ in range(3000):
        time += dice.choice([0.1] * 20 + [3.0, 9.0, 11.0, 40.0])
        value = dice.choice([0, 0, 50, 50, None]) if dice.random() < 0.2 else value
        for history in (asked, left_alone):
            history.add(snapshot(time, gpu(utilization_gpu=value)))
        found = {name: asked.interval("GPU-0", name) for name in watched}
        if dice.random() < 0.05:
            assert {name: left_alone.interval("GPU-0", name) for name in watched} == found


def test_each_gpu_has_its_own_intervals(history: History) -> None:
    gpus = gpu(index=0, utilization_gpu=0), gpu(index=1, utilization_gpu=9)
    for second in range(3):
        history.add(snapshot(NOON + second, *gpus))
    found = [history.interval(f"GPU-{index}", "busy") for index in (0, 1, 7)]
    assert found == [None, Interval(NOON, NOON + 2, start_observed=False, samples=3), None]


def on_two_gpus(first: int | None, second: int | None) -> GpuProcess:
    """A process with this SM use on each of two GPUs."""
    uses = process(sm=first).uses + process(sm=second, gpus=(1,)).uses
    return replace(process(), uses=uses)


@pytest.mark.parametrize(
    ("one", "is_idle"),
    [
        pytest.param(on_two_gpus(0, 0), True, id="on several GPUs"),
        pytest.param(on_two_gpus(0, None), False, id="one unknown"),
        pytest.param(on_two_gpus(None, 3), False, id="one at work"),
        pytest.param(process(sm=None), False, id="SM unknown"),
        pytest.param(process(memory_used=None), False, id="memory unknown"),
        pytest.param(process(memory_used=0), False, id="no memory"),
        pytest.param(process(type_="G"), False, id="draws"),
    ],
)
def test_a_process_is_idle_only_if_all_of_it_is_known_to_be(
    history: History, one: GpuProcess, is_idle: bool
) -> None:
    add_lists(history, *[[one]] * 5)
    assert (history.process_idle(one.id) is not None) is is_idle


# Processes


def test_a_process_advances_only_when_the_lists_were_read(history: History) -> None:
    for number in range(50):
        now, listed_at = NOON + number / 10, NOON + number // 10
        history.add(snapshot(now, processes=(process(),), processes_at=listed_at))
    window = history.process_series(process().id).window("memory_used", 60)
    assert window == [(NOON + n, GIB) for n in range(5)]


def test_a_process_over_several_gpus_is_one_series(history: History) -> None:
    add_lists(history, [process(sm=40, gpus=(0, 1))])
    assert memory_peak(history, process().id) == 2 * GIB
    assert history.process_series(process().id).buckets("sm", 60, 2, NOON) == [None, 40]


def test_a_reused_pid_is_another_process(history: History) -> None:
    first, second = process(7), process(7, start_time=2, memory_used=3 * GIB)
    add_lists(history, *[[first]] * 60, [second])
    assert [memory_peak(history, one.id) for one in (first, second)] == [GIB, 3 * GIB]
    assert known(history.process_idle(second.id)).seconds == 0
    for gone in (first.id, ProcessId(8, 1)):
        assert history.process_idle(gone) is None


def test_a_process_that_ended_is_forgotten_after_a_while(history: History) -> None:
    gone, runs = process(7), process(8)
    add_lists(history, [gone, runs])
    add_lists(history, [runs], start=GONE_SECONDS)
    assert memory_peak(history, gone.id) == GIB
    add_lists(history, [runs], start=GONE_SECONDS + 1)
    assert [memory_peak(history, one.id) for one in (gone, runs)] == [None, GIB]


def charted(history: History, crowd: Sequence[GpuProcess]) -> set[int]:
    """Which of them have values over time, by PID."""
    return {one.id.pid for one in crowd if memory_peak(history, one.id) is not None}


def test_of_thousands_of_short_processes_only_the_newest_are_remembered(history: History) -> None:
    crowd = [process(pid) for pid in range(1, 1001)]
    add_lists(history, *[[one] for one in crowd], step=0.1)
    assert charted(history, crowd) == set(range(1000 - GONE_KEPT, 1001))


def test_of_cards_that_come_and_go_only_the_newest_are_remembered(history: History) -> None:
    for number in range(100):
        history.add(snapshot(NOON + number, gpu(uuid="GPU-here"), gpu(uuid=f"GPU-{number}")))

    def remembered(uuid: str) -> bool:
        return bool(history.gpu_series(uuid).window("memory_used", HOUR))

    kept = [number for number in range(100) if remembered(f"GPU-{number}")]
    assert kept == list(range(100 - GPUS_KEPT + 1, 100))
    assert remembered("GPU-here")


def test_of_errors_that_are_all_different_only_the_newest_are_remembered(history: History) -> None:
    for number in range(100):
        history.add(snapshot(NOON + number, gpu(xid=number, xid_at=NOON + number)))
    assert sorted(history.xids("GPU-0")) == list(range(100 - XIDS_KEPT, 100))


CROWD = [process(pid, memory_used=pid * 2**20) for pid in range(1, 1001)]


def test_of_a_crowd_those_with_most_memory_have_charts_and_all_are_known(history: History) -> None:
    add_lists(history, CROWD, CROWD, CROWD)
    assert charted(history, CROWD) == set(range(1001 - PROCESSES_CHARTED, 1001))
    holding = known(history.holding(gpu()))
    assert (holding.processes, holding.memory) == (1000, sum(range(1, 1001)) * 2**20)
    assert holding.owner_since == NOON
    assert known(history.process_idle(CROWD[0].id)).seconds == 2


def test_who_has_a_chart_keeps_it_while_others_overtake_it_a_little(history: History) -> None:
    kept, left = 1001 - PROCESSES_CHARTED, 1002 - PROCESSES_CHARTED
    slid = {
        kept: process(kept, memory_used=450 * 2**20),
        left: process(left, memory_used=300 * 2**20),
    }
    add_lists(history, CROWD, [slid.get(one.id.pid, one) for one in CROWD])
    assert kept in charted(history, CROWD)
    assert left not in charted(history, CROWD)
    assert len(charted(history, CROWD)) <= PROCESSES_KEPT


@pytest.mark.slow
def test_the_charts_of_a_crowd_that_keeps_changing_places_are_bounded(history: History) -> None:
    dice = random.Random(7)
    for second in range(20):
        sizes = dice.sample(range(1, 1001), 1000)
        crowd = [process(n + 1, memory_used=size * 2**20) for n, size in enumerate(sizes)]
        add_lists(history, crowd, start=second)
        assert PROCESSES_CHARTED <= len(charted(history, crowd)) <= PROCESSES_KEPT
    holding = known(history.holding(gpu()))
    assert holding.owner_since == NOON, "who has no chart was seen all the same"


# Time on GPUs


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        pytest.param(
            (process(1, gpus=(0, 1)), process(2, user="bo", gpus=(1,))),
            {"ann": 120, "bo": 60, "chen": 0},
            id="seconds times GPUs",
        ),
        pytest.param(
            (process(1), process(2), process(3, type_="G", user="root")),
            {"ann": 60, "root": 0},
            id="a GPU counts once, and not for drawing",
        ),
        pytest.param((process(user=None, visible=False),), {None: 60}, id="of nobody knows whom"),
    ],
)
def test_time_on_gpus_is_counted_by_user(
    history: History, listed: tuple[GpuProcess, ...], expected: dict[str | None, float]
) -> None:
    add_lists(history, *[listed] * 61)
    assert {user: history.gpu_seconds(user) for user in expected} == expected


def test_a_user_who_has_left_keeps_the_time(history: History) -> None:
    add_lists(history, *[[process()]] * 11, *[[]] * 11)
    assert history.gpu_seconds("ann") == 11


def test_a_suspend_or_a_hung_driver_is_no_time_on_gpus(history: History) -> None:
    add_lists(history, *[[process()]] * 22)
    morning, listed = NOON + 8 * HOUR, (process(),)
    for second in range(30):
        history.add(snapshot(morning + second, processes=listed, processes_at=morning))
        assert history.gpu_seconds("ann") == 21
    history.add(snapshot(morning + 30, processes=listed))
    assert history.gpu_seconds("ann") == 21


def test_a_slow_pace_is_no_gap_and_a_clock_set_back_takes_nothing_away(history: History) -> None:
    add_lists(history, *[[process()]] * 21, step=60)
    # No pace is known before the second list, so what lies between them may be a gap.
    assert history.gpu_seconds("ann") == 1140
    add_lists(history, [process()], [process()], start=-HOUR, step=60)
    assert history.gpu_seconds("ann") == 1200


@pytest.mark.slow
def test_of_thousands_of_users_those_with_the_most_time_are_remembered(history: History) -> None:
    add_lists(history, *[[process()]] * 101)
    for number in range(1000):
        listed = [process(number + 1, user=f"user{number}")]
        add_lists(history, listed, listed, start=101 + 2 * number)
    assert history.gpu_seconds("ann") == 101
    remembered = sum(bool(history.gpu_seconds(f"user{number}")) for number in range(1000))
    assert USERS_KEPT - 2 <= remembered <= USERS_KEPT


# Holdings


def test_a_holding_is_what_the_processes_have_on_that_gpu_alone(history: History) -> None:
    both = process(1, memory_used=2 * GIB, gpus=(0, 1))
    less = process(2, gpus=(1,), user="bo")
    more = process(3, memory_used=5 * GIB, gpus=(1,), user="bo")
    display = process(4, gpus=(1,), user="root", type_="G")
    gpus = gpu(index=0), gpu(index=1), gpu(index=2)
    history.add(snapshot(NOON - 9, *gpus, processes=(less,)))
    history.add(snapshot(NOON, *gpus, processes=(both, less, more, display)))
    assert history.holding(gpus[1]) == Holding(
        processes=4,
        computing=3,
        memory=9 * GIB,
        owners=("bo", "ann"),
        owner_since=NOON - 9,
        unseen=3,
    )
    assert history.holding(gpus[2]) == Holding()


IN_TWO_INSTANCES = tuple(GpuUse("GPU-0", 0, instance=(part, 0), memory_used=GIB) for part in (1, 2))


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        pytest.param([replace(process(), uses=IN_TWO_INSTANCES)], (1, 2 * GIB), id="added up"),
        pytest.param([process(1, memory_used=None), process(2)], (2, None), id="unknown in part"),
    ],
)
def test_the_memory_of_a_holding_is_that_of_all_parts(
    history: History, listed: list[GpuProcess], expected: tuple[int, int | None]
) -> None:
    add_lists(history, listed)
    holding = known(history.holding(gpu()))
    assert (holding.processes, holding.memory) == expected


def test_a_hidden_owner_counts_from_when_it_was_first_seen(history: History) -> None:
    hidden = process(1, start_time=None, user=None, visible=False, started_at=None)
    add_lists(history, [hidden], [hidden], [hidden])
    assert history.holding(gpu()) == Holding(
        processes=1,
        computing=1,
        memory=GIB,
        hidden=1,
        owners=(None,),
        owner_since=NOON,
        unseen=1,
    )


def test_without_a_present_list_nothing_is_known_of_a_holding(history: History) -> None:
    assert history.holding(gpu()) is None
    history.add(snapshot(NOON, processes_at=None))
    assert history.holding(gpu()) is None
    history.add(snapshot(NOON + 1))
    assert history.holding(gpu()) == Holding()
    assert history.holding(gpu(unknown={"processes": Unknown.NOT_SUPPORTED})) is None
    history.add(snapshot(NOON + 60, processes_at=NOON + 1))
    assert history.holding(gpu()) is None


# Threads


def test_it_can_be_asked_while_it_is_told(history: History) -> None:
    told = threading.Event()

    def ask() -> None:
        while not told.is_set():
            for count in (20, 120, 600):
                assert len(utilization(history, 60, count, 60)) == count
            for field in CHARTED:
                gpu_values(history).window(field, HOUR)
            busy_interval(history)
            history.process_series(process().id).slope("memory_used", 60)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        for number in range(2000):
            listed = (process(number % 50 + 1),)
            sampled = gpu(utilization_gpu=number % 100)
            history.add(snapshot(NOON + number / 10, sampled, processes=listed))
        told.set()
    assert asking.result() is None


def test_a_history_of_values_alone_has_the_same_values(history: History) -> None:
    values_alone = History({}, judged=False)
    for at in range(0, 1200, 7):
        there = (process(7, sm=at % 90), process(8, user="bo", sm=at % 40))
        sample = snapshot(NOON + at, gpu(utilization_gpu=at % 100), processes=there[: 1 + at % 2])
        for each in (history, values_alone):
            each.add(sample)

    def drawn(history: History, seconds: float) -> list[list[float | None]]:
        series = [
            (gpu_values(history), "utilization_gpu"),
            (gpu_values(history), "power_draw"),
            (history.process_series(process(7).id), "sm"),
            (history.user_series("bo"), "gpus"),
        ]
        return [values.buckets(field, seconds, 60) for values, field in series]

    for seconds in (60, 600, 1200):
        assert drawn(values_alone, seconds) == drawn(history, seconds)
