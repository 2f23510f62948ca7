"""The row under the past: which moment it is, and where on the tape."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion

from gpumon.recording.playback.replay import Playing
from gpumon.recording.recording import Event, EventKind
from gpumon.text.cells import Row, row_width
from gpumon.text.formatting import cell_width
from gpumon.ui.view import timeline
from gpumon.ui.view.dashboard_view import Timeline
from tests.build import NOON
from tests.known import known
from tests.ui.view.drawing import text_of

HOUR = 3600.0
PLAYING = Playing(NOON + 1700, NOON, NOON + HOUR, playing=False, speed=1.0, at_end=False)


def mark(seconds: float, kind: EventKind, sentence: str = "something happened") -> Event:
    return Event(NOON + seconds, kind, "GPU-0", sentence)


MARKS = (
    mark(60, EventKind.CAME, "41233 python of chen came to GPU 5"),
    mark(900, EventKind.WENT, "41233 python of chen went from GPU 5"),
    mark(1801, EventKind.THROTTLED, "GPU 2 was slowed down by SW thermal"),
    mark(1801, EventKind.ERROR, "GPU 6 is lost (XID 79)"),
    mark(3000, EventKind.FULL, "GPU 1 became full, 0.3 of 79.6 GiB are free"),
)


pytestmark = pytest.mark.usefixtures("utc")


def timeline_row(
    playing: Playing,
    marks: Sequence[Event],
    width: int,
    *,
    live: bool,
    shown: float | None = None,
) -> Row:
    """The row where the sample that is shown is as old as the place, unless told."""
    shown = playing.position if shown is None else shown
    past = Timeline(playing, marks, live)
    [row] = timeline.timeline_rows(past, shown, width, with_event=False)
    return row


def time_at(x: int, playing: Playing, width: int, marks: Sequence[Event] = ()) -> float | None:
    return timeline.time_at(x, Timeline(playing, marks, live=True), width)


def bar_of(row: Row) -> str:
    """What stands between the two times at the ends of the bar."""
    end = r"(?:\d\d:\d\d|\d\d-\d\d)"
    return known(re.search(rf"{end} (\S+) {end} ", text_of(row)))[1]


def event_row(playing: Playing, marks: Sequence[Event], width: int) -> Row:
    past = Timeline(playing, marks, live=True)
    _, row = timeline.timeline_rows(past, playing.position, width, with_event=True)
    return row


def styles_of(row: Row, glyph: str) -> set[str]:
    return {style for text, style in row if text == glyph}


@pytest.mark.parametrize("live", [True, False], ids=["rewound", "replayed"])
@pytest.mark.parametrize("width", [60, 80, 100, 119, 160, 200, 300])
def test_the_row_at_every_width(width: int, live: bool, snapshot: SnapshotAssertion) -> None:
    paused = timeline_row(PLAYING, MARKS, width, live=live)
    played = timeline_row(replace(PLAYING, playing=True, speed=0.1), MARKS, width, live=live)
    event = event_row(PLAYING, MARKS, width)
    assert f"\n{text_of(paused)}\n{text_of(played)}\n{text_of(event)}\n" == snapshot


@pytest.mark.parametrize("length", [40.0, 700.0, HOUR, 4 * HOUR, 11 * 86400.0])
@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_bar_reaches_the_end_of_the_screen(width: int, length: float) -> None:
    for live in (True, False):
        playing = replace(PLAYING, last=NOON + length, position=NOON)
        row = text_of(timeline_row(playing, (), width, live=live))
        # Cells have steps of 5 %, and both ends of the recording may lie anywhere in theirs.
        assert len(row) - len(row.rstrip()) <= 4 + 0.05 * width


def test_the_signs_on_the_bar_are_named_and_no_others() -> None:
    def signs(*kinds: EventKind, width: int = 100) -> str:
        marks = [mark(600 * at, kind) for at, kind in enumerate(kinds, 1)]
        return text_of(event_row(replace(PLAYING, position=NOON), marks, width)).strip()

    assert signs() == ""
    assert signs(EventKind.FULL) == "■ memory full"
    assert signs(EventKind.CAME, EventKind.WENT) == "- ended  + started"
    every = "! accident  ✖ error  ▼ slowed down  ■ memory full  - ended  + started"
    assert signs(*EventKind) == every
    for width in range(10, 100):
        assert every.startswith(signs(*EventKind, width=width)), "the worst first, and whole"
    both = [mark(600, EventKind.CAME), mark(600, EventKind.WENT)]
    row = text_of(event_row(replace(PLAYING, position=NOON), both, 100))
    assert row.strip() == "± started and ended"


def test_both_rows_read_the_events_once() -> None:
    class CountedEvents(tuple[Event, ...]):
        reads = 0

        def __iter__(self) -> Iterator[Event]:
            CountedEvents.reads += 1
            return super().__iter__()

    past = Timeline(PLAYING, CountedEvents(MARKS), live=True)
    CountedEvents.reads = 0
    assert len(timeline.timeline_rows(past, PLAYING.position, 120, with_event=True)) == 2
    assert CountedEvents.reads == 1


def test_the_text_of_an_event_is_never_cut_beside_blank_cells() -> None:
    long = mark(60, EventKind.FULL, "GPU 1 became full " + "x" * 60)
    for width in range(60, 200):
        row = text_of(event_row(PLAYING, [long], width))
        if "…" in row:
            assert row.rstrip().endswith("…")
            assert len(row) - len(row.rstrip()) <= 1
        else:
            assert "x" * 60 in row


@given(
    st.integers(1, 300),
    st.floats(0.0, 400 * 86400.0),
    st.floats(0.0, 1.0),
    st.lists(st.tuples(st.floats(-0.5, 1.5), st.sampled_from(EventKind)), max_size=30),
    st.sampled_from([0.1, 1.0, 1000.0]),
    st.booleans(),
    st.booleans(),
    st.one_of(st.none(), st.floats(1.0, 1e6)),
)
def test_it_is_as_wide_as_it_should_be_whatever_is_on_the_tape(
    width: int,
    length: float,
    part: float,
    happened: list[tuple[float, EventKind]],
    speed: float,
    played: bool,
    live: bool,
    waiting: float | None,
) -> None:
    marks = [mark(where * length, kind, "\x1b[2J\u202e進程") for where, kind in sorted(happened)]
    state = Playing(NOON + part * length, NOON, NOON + length, played, speed, part == 1.0, waiting)
    past = Timeline(state, marks, live)
    for row in timeline.timeline_rows(past, state.position, width, with_event=True):
        assert row_width(row) == width
        assert all(character.isprintable() for character in text_of(row))


def rewound(seconds: float) -> dict[str, object]:
    """So long before the newest sample of many hours."""
    first, last = NOON - 9 * HOUR, NOON + 11 * HOUR
    return {"position": last - seconds, "first": first, "last": last}


YESTERDAY = {"position": NOON - 15 * HOUR, "first": NOON - 20 * HOUR}
READ = {"position": NOON, "read_until": NOON + 900}


@pytest.mark.parametrize(
    ("width", "live", "changes", "words"),
    [
        # How long before now, as precisely as there is room for.
        (100, True, rewound(0.2), " 0s ago "),
        (100, True, rewound(42), " 42s ago "),
        (100, True, rewound(750), " 12m 30s ago "),
        (60, True, rewound(750), " 12m ago "),
        (100, True, rewound(3605), " 1h 00m ago "),
        (60, True, rewound(3605), " 1h ago "),
        (100, True, rewound(40_000), " 11h 06m ago "),
        # A date where it is not today's, and in a replay.
        (100, True, YESTERDAY, "11-13 21:00:00"),
        (100, True, {}, "^(?!.*11-14)"),
        (100, False, {}, "2023-11-14 12:28:20"),
        # Whether and how fast it is played.
        (100, False, {}, "^ *❚❚ paused "),
        (100, False, {"playing": True, "speed": 1000.0}, "^ *▶ 1000x "),
        (100, False, {"playing": True, "speed": 0.1}, r"^ *▶ 0\.1x "),
        (100, False, {"playing": True, "at_end": True}, "^ *▶ at end "),
        (100, False, {"at_end": True}, "^ *❚❚ paused "),
        # The ends of the bar where there is room for them.
        (100, True, {}, r" begins 12:00 ·+┃·+ 13:00 \(End: now\) "),
        (100, False, {}, r" begins 12:00 ·+┃·+ 13:00 \(End\) "),
        (100, False, {"first": NOON - 3 * 86400}, r" begins 11-11 ·+┃·* 11-14 \(End\) "),
        (60, False, {}, r" 2023-11-14 12:28:20 +12:00 ·+┃·+ 13:00 "),
        (60, True, {}, r" 12:28:20 31m ago +12:00 ·+┃·+ 13:00 "),
        (44, True, {}, "^(?!.*12:00)"),
        # The line goes as far as the log has been read.
        (100, False, READ, r" 12:00 ┃·+ +13:00 "),
        (100, False, {**READ, "read_until": -math.inf}, r" 12:00 ┃ +13:00 "),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_row_says_which_moment_it_is_and_of_what(
    width: int, live: bool, changes: dict[str, object], words: str
) -> None:
    assert re.search(
        words, text_of(timeline_row(replace(PLAYING, **changes), (), width, live=live))
    )


@pytest.mark.parametrize("width", [60, 100, 200])
def test_the_bar_stays_where_it_is_whatever_is_said_beside_it(width: int) -> None:
    rows = [
        timeline_row(replace(PLAYING, position=NOON + at, playing=at > 5), (), width, live=True)
        for at in (0.0, 7.0, 1800.0, 3599.0)
    ]
    bars = [
        [x for x, cell in enumerate(text_of(row)) if cell in "·┃" and x < width] for row in rows
    ]
    assert bars[0]
    assert all(bar == bars[0] for bar in bars)
    assert len({tuple(cell_width(text) for text, _ in row) for row in rows}) == 1


def test_of_several_marks_in_a_cell_the_most_severe_is_shown() -> None:
    def shown(*kinds: EventKind) -> str:
        row = timeline_row(PLAYING, [mark(3000, kind) for kind in kinds], 100, live=True)
        return bar_of(row).replace("┃", "").replace("·", "").strip()

    assert shown(EventKind.CAME) == "+"
    assert shown(EventKind.WENT, EventKind.WENT) == "-"
    assert shown(EventKind.WENT, EventKind.CAME) == "±"
    assert shown(EventKind.FULL, EventKind.CAME) == "■"
    assert shown(EventKind.FULL, EventKind.THROTTLED, EventKind.WENT) == "▼"
    assert shown(EventKind.CAME, EventKind.ERROR, EventKind.THROTTLED) == "✖"


def test_a_mark_stays_where_it_is_while_the_tape_grows() -> None:
    def places(seconds: int) -> tuple[int, int]:
        playing = replace(PLAYING, last=NOON + HOUR + seconds)
        row = text_of(timeline_row(playing, [mark(1801, EventKind.ERROR)], 120, live=True))
        return row.index("✖"), row.index("┃")

    assert {places(seconds) for seconds in range(120)} == {places(0)}


def test_the_bar_scrolls_by_whole_cells_while_its_beginning_goes() -> None:
    events = [mark(at, EventKind.ERROR) for at in (1000, 1801, 2300, 3000)]

    def gaps_and_first(seconds: int) -> tuple[tuple[int, ...], int]:
        playing = replace(PLAYING, first=NOON + seconds, last=NOON + HOUR + seconds)
        row = text_of(timeline_row(playing, events, 120, live=True)).partition(" 13:")[0]
        places = [at for at, cell in enumerate(row) if cell == "✖"]
        return tuple(place - places[0] for place in places), places[0]

    seen = [gaps_and_first(seconds) for seconds in range(600)]
    assert len({gaps for gaps, _ in seen}) == 1
    firsts = [first for _, first in seen]
    assert sum(a != b for a, b in pairwise(firsts)) == firsts[0] - firsts[-1] < 12


def test_who_came_and_went_is_shown_where_that_is_rare() -> None:
    busy = [mark(at, EventKind.CAME) for at in range(0, 3600, 60)]
    row = bar_of(timeline_row(PLAYING, [*busy, mark(3001, EventKind.FULL)], 120, live=True))
    assert set(row) == {"·", "┃", "■"}
    row = bar_of(timeline_row(PLAYING, [*busy[::8], mark(3001, EventKind.FULL)], 120, live=True))
    assert row.count("+") == len(busy[::8])


def test_what_lies_beyond_the_ends_of_the_tape_is_not_shown() -> None:
    beyond = [mark(-1, EventKind.ERROR), mark(HOUR + 1, EventKind.ERROR)]
    assert "✖" not in text_of(timeline_row(PLAYING, beyond, 100, live=True))


def test_the_cursor_keeps_the_mark_that_is_under_it() -> None:
    row = timeline_row(PLAYING, [mark(1700, EventKind.ERROR)], 100, live=True)
    assert styles_of(row, "✖") == {"cursor"}
    assert styles_of(timeline_row(PLAYING, (), 100, live=True), "┃") == {"cursor"}


def test_the_newest_mark_until_the_moment_is_told_and_how_long_ago_it_was() -> None:
    def told(at: float) -> str:
        playing = replace(PLAYING, position=NOON + at)
        return text_of(event_row(playing, MARKS, 200))

    assert "✖ 12:30:01 (1m before) GPU 6 is lost (XID 79) +1" in told(1900)
    assert "✖ 12:30:01 GPU 6 is lost (XID 79) +1" in told(1801)
    assert told(1800).startswith("  ended 12:15:00 (15m before) 41233 python of chen went")
    assert told(60).startswith("  started 12:01:00 41233 python of chen came to GPU 5")
    assert "came to" not in told(59), "nothing had happened yet"
    assert "came to" in told(60)


def test_the_time_told_is_that_of_the_sample_and_the_cursor_stands_at_the_place() -> None:
    row = text_of(timeline_row(PLAYING, (), 100, live=True, shown=PLAYING.position - 9))
    assert " 12:28:11 31m 49s ago " in row
    assert row.index("┃") == text_of(timeline_row(PLAYING, (), 100, live=True)).index("┃")


@pytest.mark.parametrize("width", [60, 100, 200])
def test_a_tape_that_does_not_answer_is_told_with_the_moment(width: int) -> None:
    playing = replace(PLAYING, waiting=12.3)
    row = timeline_row(playing, MARKS, width, live=True)
    assert "the log is not read: no answer for 12 s" in text_of(row)
    assert "12:28:20" in text_of(row)
    assert all(time_at(x, playing, width) is None for x in range(width))


@pytest.mark.slow
@given(
    st.integers(46, 300),
    st.floats(0.0, 1.0),
    st.floats(0.0, 400 * 86400.0),
    st.lists(st.tuples(st.floats(0.0, 1.0), st.sampled_from(EventKind)), max_size=5),
)
def test_what_a_cell_stands_for_is_in_that_cell(
    width: int, part: float, length: float, happened: list[tuple[float, EventKind]]
) -> None:
    last = NOON + length
    playing = replace(PLAYING, position=min(last, NOON + part * length), last=last)
    marks = [mark(where * length, kind) for where, kind in sorted(happened)]
    cells = [x for x in range(width) if time_at(x, playing, width, marks) is not None]
    assert cells == list(range(cells[0], cells[-1] + 1))
    for x in cells:
        moment = known(time_at(x, playing, width, marks))
        assert playing.first <= moment <= playing.last
        row = timeline_row(replace(playing, position=moment), marks, width, live=True)
        at = next(i for i, style in enumerate(_styles(row)) if style == "cursor")
        assert at == x


def _styles(row: Row) -> list[str]:
    """The style of each cell."""
    return [style for text, style in row for _ in range(cell_width(text))]


def test_a_click_on_a_mark_goes_to_what_happened() -> None:
    marks = [mark(2999, EventKind.CAME), mark(3001, EventKind.FULL), mark(3001.5, EventKind.CAME)]
    row = text_of(timeline_row(PLAYING, marks, 120, live=True))
    assert time_at(row.index("■"), PLAYING, 120, marks) == NOON + 3001


def test_the_ends_of_the_bar_are_the_ends_of_the_tape_and_beside_it_is_no_moment() -> None:
    row = text_of(timeline_row(PLAYING, (), 100, live=True))
    first, last = row.index("·"), row.rindex("·")
    times = [time_at(x, PLAYING, 100) for x in (first - 1, first, last, last + 1)]
    assert times == [None, PLAYING.first, PLAYING.last, None]
    assert time_at(0, PLAYING, 20) is None
