"""The large charts: where a value, a gap, a limit, a time and a mark stand, at any size."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion

from gpumon.config.keymap import WINDOWS, ChartWindow
from gpumon.model.snapshot import Gpu, Unknown
from gpumon.recording.history import History
from gpumon.recording.recording import Event, EventKind
from gpumon.text.cells import Row, row_width
from gpumon.ui.view.chart_plot import Span, plot
from gpumon.ui.view.chart_series import Quantity, window_seconds, window_title
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.gpu_charts import chart_rows
from tests.build import GIB, NOON, gpu, recording_of, snapshot
from tests.ui.view.drawing import lines_of

MINUTE, FIVE, HALF_HOUR, ALL = WINDOWS
CARD = gpu(
    utilization_gpu=50,
    memory_used=60 * GIB,
    power_draw=350.0,
    clock_sm_max=1980,
    pcie_rx=1.5 * GIB,
    pcie_tx=0.25 * GIB,
    nvlink_rx=40.0 * GIB,
    nvlink_tx=41.0 * GIB,
)
MARKS = (
    Event(NOON + 60, EventKind.CAME, "x", "one came", ("GPU-0",)),
    Event(NOON + 120, EventKind.WENT, "x", "one went", ("GPU-0",)),
    Event(NOON + 200, EventKind.THROTTLED, "GPU-0", "slowed", ("GPU-0",)),
)


pytestmark = pytest.mark.usefixtures("utc")


def seen(card: Gpu = CARD, seconds: int = 300, gap: range = range(0)) -> History:
    """A history in which the card's utilisation goes up and down, but for a gap."""
    history = History({})
    for second in range(seconds):
        if second not in gap:
            busy = None if card.utilization_gpu is None else abs(second % 120 - 60) * 100 // 60
            now = replace(card, utilization_gpu=busy)
            history.add(snapshot(NOON + second, now))
    return history


def rows_of(
    history: History,
    width: int = 100,
    height: int = 38,
    window: ChartWindow = FIVE,
    card: Gpu = CARD,
    marks: tuple[Event, ...] = MARKS,
    memo: Memo | None = None,
    *,
    is_past: bool = False,
) -> list[Row]:
    return chart_rows(
        *(memo or Memo(), card, history, window, recording_of(*marks)),
        *(width, height),
        is_past=is_past,
    )


def picture(rows: list[Row]) -> str:
    return "\n".join(line.rstrip() for line in lines_of(rows))


@pytest.mark.parametrize("size", [(54, 13), (74, 22), (114, 38), (194, 48), (294, 78)])
def test_the_charts_look_as_they_did(size: tuple[int, int], snapshot: SnapshotAssertion) -> None:
    assert picture(rows_of(seen(gap=range(130, 170)), *size)) == snapshot


def test_what_was_not_seen_is_blank_and_zero_is_a_line() -> None:
    history = seen(gap=range(130, 170))
    # Fifty cells of six seconds.
    lines = lines_of(rows_of(history, 56, 22, marks=()))
    axis = next(y for y, line in enumerate(lines) if line.startswith("    0┼"))
    cells = ["".join(column) for column in zip(*(line[6:] for line in lines[1:axis]), strict=True)]
    gap = [place for place, column in enumerate(cells) if not re.search("[⠁-⣿]", column)]
    assert gap == list(range(132 // 6, 168 // 6))
    # After a minute the utilisation is zero: dots at the foot.
    assert re.search("[⠁-⣿]$", cells[60 // 6])


def test_unknown_is_never_drawn_as_zero() -> None:
    silent = replace(CARD, utilization_gpu=None)
    rows = rows_of(seen(silent), 60, 22, card=silent)
    assert "no values in this time" in lines_of(rows)[0]
    assert "–" in lines_of(rows)[0]
    assert "SM clock" in lines_of(rows)[1], "an empty chart has one line"


def test_no_two_places_of_an_axis_have_the_same_name() -> None:
    low = replace(
        CARD, temperature_gpu=1, temperature_slowdown=None, power_draw=1.0, power_limit=None
    )
    text = picture(rows_of(seen(low), 100, 48, card=low))
    assert "1W" in text
    # A half is rounded to none, and the foot of the axis is that already.
    assert "0W" not in text
    assert "0°" not in text


def test_what_a_card_cannot_tell_has_one_line_that_says_so() -> None:
    rest = {"nvlink_rx": None, "nvlink_tx": None}
    lacks = dict.fromkeys(rest, Unknown.NOT_SUPPORTED)
    card = replace(CARD, **rest, unknown=lacks)
    lines = picture(rows_of(seen(card), card=card)).splitlines()
    assert [line for line in lines if "NVLink" in line] == ["NVLink       –  not supported"]
    lost = replace(card, unknown=dict.fromkeys(rest, Unknown.GPU_LOST))
    assert "NVLink  ▲ in" in picture(rows_of(seen(), card=lost)), "what was seen of it stays"


def test_a_standing_zero_has_one_line_and_its_room_goes_to_the_others() -> None:
    still = replace(CARD, nvlink_rx=0.0, nvlink_tx=0.0, power_draw=0.0)
    lines = picture(rows_of(seen(still), 100, 48, card=still)).splitlines()
    assert lines[0] == "power        0 throughout"
    assert "NVLink       0 throughout" in lines
    assert len(lines) <= 48
    assert sum("peak" in line for line in lines) == 3, "five charts in three rows"


def test_a_gpu_of_which_nothing_is_known_has_one_line_for_all_charts() -> None:
    bare = Gpu(index=0, uuid="GPU-0")
    assert picture(rows_of(seen(bare), card=bare)) == "–  no values in this time"


@pytest.mark.parametrize(("width", "room"), [(96, 9), (96, 13), (76, 10), (114, 20), (196, 36)])
@pytest.mark.parametrize("power", [350.0, 0.0])
def test_the_main_charts_fit_the_room(width: int, room: int, power: float) -> None:
    card = replace(CARD, power_draw=power)
    room += power == 0
    look = picture(rows_of(seen(card), width, room, card=card)[:room])
    for label in ("utilisation", "SM clock", "power", "temperature"):
        assert label in look
    assert re.search(r"-[45]m .* now", "".join(look.splitlines()[-3:]))
    assert look.count("┼") >= 3


def test_where_no_chart_fits_each_has_a_line() -> None:
    lines = picture(rows_of(seen(), 56, 4)).splitlines()
    labels = [line.split()[0] for line in lines[:7]]
    assert labels == ["utilisation", "SM", "power", "temperature", "memory", "PCIe", "NVLink"]
    assert "50 %" in lines[0]
    assert "peak 100" in lines[0]
    assert "▇" in lines[1]


def test_the_limit_is_a_line_where_the_curve_does_not_reach_it() -> None:
    text = picture(rows_of(seen(), 100, 48)).splitlines()
    power = next(y for y, line in enumerate(text) if "power  350/700 W" in line)
    assert " 700W┤╌╌╌╌" in text[power + 1]
    assert any("  92°┤╌╌╌╌" in line for line in text)
    hot = replace(CARD, temperature_gpu=97)
    rows = rows_of(seen(hot), 100, 48, card=hot)
    assert any(("97", "state.warning") in row for row in rows)


def test_marks_stand_at_their_time_on_the_axis_and_the_legend_names_them() -> None:
    rows = rows_of(seen(), 60, 22)
    lines = lines_of(rows)
    axis = next(line for line in lines if line.startswith("    0┼"))[6:]
    assert axis.index("+") == 54 * 60 // 300
    assert axis.index("-") == 54 * 120 // 300
    assert axis.index("▼") == 54 * 200 // 300
    assert "+ started   - ended   ▼ slowed down" in lines[-1]
    assert "▼" not in lines_of(rows_of(seen(), marks=()))[-1]


def test_times_of_day_stand_below_their_ticks() -> None:
    lines = lines_of(rows_of(seen(), 60, 60, is_past=True))
    axis = next(y for y, line in enumerate(lines) if line.startswith("    0┼"))
    assert lines[axis + 1].split() == ["12:00", "12:01", "12:02", "12:03", "12:04"]
    assert lines[axis + 1].index("12:03") + 2 == lines[axis].index("┬", 30)


@pytest.mark.parametrize(
    ("seconds", "shown", "title"),
    [(40, 60, "39s"), (300, 300, "4m"), (4000, 4500, "1h06m"), (7200, 7200, "1h59m")],
)
def test_all_that_was_seen_is_shown_in_a_round_stretch_of_time(
    seconds: int, shown: float, title: str
) -> None:
    history = History({})
    for second in (0, seconds - 1):
        history.add(snapshot(NOON + second))
    assert window_seconds(ALL, history) == shown
    assert window_title(ALL, history).endswith(f": {title}")


def test_a_chart_is_drawn_anew_no_more_than_once_a_second() -> None:
    charts, drawn = Memo(), []
    history = seen()

    recording = recording_of()

    def events(first: float, last: float) -> list[Event]:
        drawn.append((first, last))
        return []

    recording.events = events
    for tenth in range(100):
        history.add(snapshot(NOON + 300 + tenth / 10, CARD))
        chart_rows(charts, CARD, history, MINUTE, recording, 60, 22)
    # Seven charts, in ten seconds.
    assert 7 * 9 <= len(drawn) <= 7 * 11
    drawn.clear()
    for second in range(60):
        history.add(snapshot(NOON + 310 + second, CARD))
        chart_rows(charts, CARD, history, ALL, recording, 60, 22)
    assert len(drawn) <= 7 * 20


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: window.label)
def test_peak_and_chart_never_contradict_the_newest_value(window: ChartWindow) -> None:
    charts, history = Memo(), seen(replace(CARD, utilization_gpu=None))
    for second in range(40):
        busy = replace(CARD, utilization_gpu=99 if second == 17 else 10)
        history.add(snapshot(NOON + 300 + second, busy))
        line = lines_of(rows_of(history, 60, 22, window, busy, memo=charts))[0]
        assert int(line.split("peak")[1]) == (99 if second >= 17 else 10)


def test_the_newest_values_are_never_those_of_an_older_picture() -> None:
    charts, history = Memo(), seen()
    rows_of(history, 60, 22, HALF_HOUR, memo=charts)
    newer = replace(CARD, utilization_gpu=77)
    assert "77 %" in lines_of(rows_of(history, 60, 22, HALF_HOUR, newer, memo=charts))[0]


@settings(max_examples=40)
@given(
    st.floats(0, 1e12),
    st.one_of(st.none(), st.floats(1, 1e4)),
    st.integers(30, 200),
    st.integers(5, 80),
)
def test_no_value_breaks_a_chart(
    value: float, limit: float | None, width: int, height: int
) -> None:
    card = replace(CARD, pcie_rx=value, power_draw=value, power_limit=limit, memory_total=None)
    rows = rows_of(seen(card, 3), width, height, card=card)
    assert {row_width(row) for row in rows} == {width}


def drawn(
    values: list[float | None],
    bounds: tuple[float | None, float | None],
    seconds: float = 300.0,
    width: int = 26,
    *,
    is_past: bool = False,
) -> str:
    """A curve of its own, as text."""
    span, style = Span(NOON, seconds), ["graph.util"]
    rows = plot([values], style, Quantity(), bounds, span, {}, width, 8, is_past=is_past)
    return picture(rows)


def test_what_passes_its_limit_is_drawn_above_it() -> None:
    rows = drawn([200.0] * 20 + [None] * 20, (None, 100.0)).splitlines()
    assert rows[0].startswith("  200┤⠤⠤")
    assert [place for place, row in enumerate(rows) if "100┤" in row] == [3], "half way up"


def test_an_axis_on_which_nothing_can_be_is_an_axis_still() -> None:
    assert "┼" in drawn([0.0] * 40, (0.0, None))


def test_links_with_little_traffic_have_an_axis_of_a_megabyte() -> None:
    still = gpu(pcie_rx=5000.0, pcie_tx=0.0)
    assert "   1M┤" in picture(rows_of(seen(still), card=still))


@pytest.mark.parametrize("width", range(12, 30))
def test_times_of_day_never_run_into_one_another(width: int) -> None:
    times = drawn([], (1.0, None), 86400.0, width, is_past=True).splitlines()[-1]
    assert all(re.fullmatch(r"\d\d:\d\d", one) for one in times.split())


def test_round_times_are_round_on_the_local_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "KTM-05:45")
    time.tzset()
    times = drawn([], (1.0, None), 6 * 3600.0, 60, is_past=True).splitlines()[-1]
    assert [one[-2:] for one in times.split()] == ["00"] * len(times.split())
    assert times.split()


@pytest.mark.parametrize("seconds", [60.0, 300.0, 1800.0, 4500.0, 86400.0])
def test_times_before_now_are_round_and_never_run_into_one_another(seconds: float) -> None:
    for width in range(12, 200):
        *before, now = drawn([], (1.0, None), seconds, width).splitlines()[-1].split()
        assert now == "now"
        assert all(re.fullmatch(r"-(\d+h\d\d|\d+)[hms]", one) for one in before)
        assert before or width < 26


def test_a_chart_with_little_past_is_that_of_the_whole_time() -> None:
    narrow = drawn([None] * 40 + [50.0] * 20, (100.0, None), 300.0, 36)
    assert "no values before" not in narrow, "it does not fit"
    assert "no values" in narrow
    whole = drawn([None] * 120 + [50.0] * 60, (100.0, None), 300.0, 96).splitlines()
    assert any("no values before 12:03:20" in line for line in whole)
    assert whole[-1].split()[0] == "-5m"
    found = [at for line in whole if (at := re.search("[⠁-⣿]", line))]
    assert [at.start() for at in found] == [6 + 60], "nothing is stretched"
    assert "no values in this time" in drawn([], (100.0, None), 300.0, 60)


def test_of_a_card_of_which_nothing_was_seen_nothing_is_drawn() -> None:
    assert rows_of(History({})) == []


def test_a_chart_that_loses_its_row_of_times_is_drawn_at_once() -> None:
    history, memo = seen(), Memo()
    # One chart is equally high in both, and has the times only in the lower one.
    for room in (17, 37, 17):
        kept, anew = (rows_of(history, 60, room, memo=each) for each in (memo, None))
        assert picture(kept) == picture(anew)


def test_a_second_curve_is_converted_and_part_of_the_scale() -> None:
    half = Quantity(convert=lambda value: value / 2, axis="{:.0f}".format)
    rows = plot(
        *([[20.0] * 40], ["a", "b"], half, (None, None), Span(NOON, 300.0), {}, 26, 10),
        second=[160.0] * 40,
    )
    lines = picture(rows).splitlines()
    assert lines[0].startswith("   80┤──"), "half of its value, beside the label"
    assert any(re.search("[⠁-⣿]", line) for line in lines[4:])


def test_a_cap_that_is_changed_is_drawn_at_once() -> None:
    charts, history = Memo(), seen()
    lowered = replace(CARD, power_limit=450.0)
    before, after = (picture(rows_of(history, card=it, memo=charts)) for it in (CARD, lowered))
    assert "450W┤" not in before
    assert "450W┤" in after
