"""The dashboard at every size it promises: what stands where, and what is dropped first."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion

from gpumon.config.columns import DEFAULT_COLUMNS
from gpumon.filters.terms import parse_filter
from gpumon.findings import Finding, FindingKind, Severity, conditions
from gpumon.model.allocations import Allocation
from gpumon.model.processes import GpuProcess, ProcessId
from gpumon.model.snapshot import (
    GPU_METRIC,
    GpuStatus,
    Host,
    MigInstance,
    Snapshot,
    Trouble,
    Unknown,
)
from gpumon.recording.history import History, Interval
from gpumon.recording.playback.replay import Playing
from gpumon.text.cells import Row, row_width
from gpumon.text.gpu_columns import GPU_COLUMNS
from gpumon.text.process_columns import PROCESS_COLUMNS, RowContext
from gpumon.text.table import Sort
from gpumon.ui.view.dashboard_layout import is_tiny
from gpumon.ui.view.dashboard_rows import Dashboard
from gpumon.ui.view.dashboard_view import Timeline, View, Watched
from gpumon.ui.view.gpu_line import line_columns
from gpumon.ui.view.gpu_text import core_name, holders, state_fields
from gpumon.ui.view.header_footer import LogNote, footer_row, key_at
from gpumon.ui.view.key_names import footer_key, footer_keys, keycap
from gpumon.ui.view.process_filter import ProcessFilter
from gpumon.ui.view.process_table import Listing, sort_processes, visible_columns
from gpumon.ui.view.user_table import USER_COLUMNS
from tests.build import GIB, NOON, gpu, process
from tests.build import snapshot as build_snapshot
from tests.known import known
from tests.ui.view.drawing import (
    VIEW,
    Live,
    dashboard_of,
    demo,
    demo_dashboard,
    demo_picture,
    lines_of,
    of_gpus,
    picture,
    seen_at_noon,
    text_of,
)

pytestmark = pytest.mark.usefixtures("utc")


SIZES = [(200, 50), (140, 40), (120, 30), (100, 24), (80, 24), (60, 15), (50, 12), (20, 5)]
# ``test_same_pictures`` has the others of 1, 8 and 16, cell by cell.
OTHER_SIZES = [(140, 40), (120, 30), (80, 24), (60, 15), (20, 5)]


@pytest.mark.parametrize(
    ("size", "cards"),
    [
        *((size, 2) for size in SIZES),
        ((100, 24), 8),
        *((size, cards) for size in OTHER_SIZES for cards in (1, 8, 16)),
    ],
    ids=lambda value: "x".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_the_dashboard_looks_as_it_did(
    size: tuple[int, int], cards: int, snapshot: SnapshotAssertion
) -> None:
    assert demo_picture(cards, *size) == snapshot


def test_the_table_is_drawn_once_a_second_with_its_lists_and_by_the_clock_without() -> None:
    screen = Live(View(interval=0.1))
    listed_at, drawn, ages = 0.0, set(), []
    for tick in range(100):
        now = NOON + 0.75 + tick / 10
        # After four seconds no list comes any more.
        if tick % 10 == 0 and tick < 40:
            listed_at = now
            listed = (process(started_at=NOON - 9, sm=tick),)
        screen.see(build_snapshot(now, gpu(), processes=listed, processes_at=listed_at))
        row = screen.table()[1]
        drawn.add(row)
        age = known(re.search(r" (\d+)s +", row))
        ages.append(now - (NOON - 9) - int(age[1]))
    assert len(drawn) == 4 + 6
    assert max(ages) < 2


def test_where_lists_are_rarer_than_samples_ages_are_those_of_each_sample_a_second() -> None:
    screen = Live(View(interval=1.0))
    came = NOON - 5.5
    for tick in range(1, 40):
        # One is late, the next on time.
        now = NOON + tick + (0.4 if tick % 2 else 0.0)
        if tick % 5 == 1:
            listed, listed_at = (process(started_at=came),), now
        screen.see(build_snapshot(now, gpu(), processes=listed, processes_at=listed_at))
        assert f" {int(now - came)}s " in screen.table()[1]


@pytest.mark.slow
@pytest.mark.parametrize("cards", [0, 1, 2, 3, 5, 8, 9, 16, 64])
def test_every_row_is_whole_at_every_size(cards: int) -> None:
    for width in (1, 2, 19, 40, 59, 60, 61, 79, 83, 99, 132, 140, 177, 200, 231, 300):
        view = View(interval=1.0, host_strip=width % 2 == 0)
        for height in (1, 2, 14, 15, 16, 23, 36, 50, 80):
            demo_picture(cards, width, height, view)


@pytest.mark.parametrize(("width", "height"), [(100, 24), (80, 24)])
def test_eight_cards_and_eight_processes_are_on_screen_in_a_small_terminal(
    width: int, height: int
) -> None:
    lines = demo_picture(8, width, height).splitlines()
    assert [line[:8] for line in lines[2:10]] == [f" {index} H100 " for index in range(8)]
    assert all(line.split()[1].isdigit() for line in lines[12:20])


HELD = {0: "ann", 1: "ann", 2: "erin", 3: "bo", 5: "chen"}
"""The main holder of each GPU of the demo that has one and is not sick otherwise."""


@pytest.mark.parametrize(
    ("size", "cards"),
    [
        *((size, 8) for size in ((200, 50), (120, 35), (100, 24), (80, 24), (60, 15))),
        *((size, 16) for size in ((100, 24), (80, 24))),
    ],
)
def test_the_state_leads_each_line_and_names_the_main_holder(
    size: tuple[int, int], cards: int
) -> None:
    lines = lines_of(demo_dashboard(cards, *size).gpus)
    heading = lines[0].split()
    assert heading[: heading.index("memory") + 2] in (
        ["#", "GPU", "state", "memory", "util"],
        ["#", "state", "memory", "util"],
    )
    words = ("busy", "(?:busy but )?empty", "hot", "idle", "free", "stuck", "LOST", "31G")
    for index, word in enumerate(words):
        assert re.match(rf" {index} (H100 .*?)?[○●◐△▲✖] {word}", lines[1 + index])
        if index in HELD:
            assert re.match(rf".*?{word}.*?  {HELD[index]}\b.*?/79\.6G", lines[1 + index])


@pytest.mark.parametrize("width", [200, 100, 80, 60])
def test_a_bar_stands_one_space_after_its_figure_and_two_before_the_next(width: int) -> None:
    lines = demo_picture(8, width, 24).splitlines()[2:10]
    assert re.search(r"  57\.9/79\.6G ▇+ .*  53% ▇+  +54", lines[0])
    for line in lines:
        for bar in re.findall(r"[G%] (▇+)  ", line):
            assert len(bar) <= 20
    for figure in re.findall(r"\S+ ▇", "".join(lines)):
        assert re.match(r"\S+[G%] ▇", figure), figure


def test_zero_is_drawn_as_nothing_and_unknown_as_unknown() -> None:
    lines = demo_picture(8, 100, 24).splitlines()
    assert re.fullmatch(r" 4 H100 ○ free +0\.0/79\.6G +0% +31 +71/700W  ▁{10}", lines[6])
    assert re.fullmatch(r" 6 H100 ✖ LOST since 11:54 \(XID 79\)( +–){5}", lines[8])


def test_what_was_before_the_first_sample_is_dotted_in_the_small_graph() -> None:
    now = build_snapshot(NOON, *(gpu(index=index, utilization_gpu=0) for index in range(3)))
    line = picture(now, 100, 24).splitlines()[2]
    assert re.search(r"W  ·{9}▁$", line), line


def test_who_holds_a_gpu_is_told_as_far_as_it_is_known() -> None:
    hidden = process(1, user=None, visible=False, memory_used=40 * GIB)
    unsized = process(2, user="ann", gpus=(1,), memory_used=None)
    raw = process(3, user="\x1b[31mred", gpus=(2,), memory_used=GIB)
    held = holders((hidden, unsized, raw))
    assert held["GPU-0"] == ("not visible 40.0G", "not visible")
    assert held["GPU-1"] == ("ann",)
    assert "\x1b" not in "".join(held["GPU-2"])
    refused = gpu(memory_used=31 * GIB, unknown={"processes": Unknown.NO_PERMISSION})
    now = build_snapshot(NOON, *(replace(refused, index=i) for i in range(3)))
    assert "● busy  unattributed 31.0G" in picture(now, 100, 24)


def test_the_user_with_the_most_memory_on_the_gpu_leads_its_holders() -> None:
    there = (
        process(1, user="ann", memory_used=3 * GIB),
        process(2, user="bo", memory_used=4 * GIB),
        process(3, user="ann", memory_used=2 * GIB),
    )
    assert holders(there)["GPU-0"] == (
        *("ann 5.0G, bo 4.0G", "ann 5.0G, bo", "ann 5.0G +1", "ann +1", "ann"),
    )


@pytest.mark.parametrize("cards", [8, 16, 1])
def test_a_watched_gpu_bears_a_mark_until_the_watch_ends(cards: int) -> None:
    shown, dashboard = of_gpus(cards), Dashboard(demo()[1])
    uuid = shown.gpus[0].uuid
    for watched in (frozenset({uuid}), frozenset()):
        for chosen in (None, uuid):
            view = View(interval=0.5, watched=Watched(watched), gpu=chosen)
            rows = dashboard.rows(shown, view, 100, 24).gpus
            text = "\n".join(lines_of(rows))
            # Sixteen GPUs of the demo are eight twice.
            assert text.count("★") == len(watched) * (2 if cards == 16 else 1)
            start = "▸" if chosen else " "
            assert (f"{start}0★" in text) is bool(watched)


def test_a_narrow_line_drops_the_graph_first_then_the_names_tail_then_the_power() -> None:
    dropped: list[str] = []
    for width in range(200, 59, -1):
        columns = line_columns(width, [gpu()])
        least = {"spark": 0, "name": 6, "power": 0}
        gone = [key for key, size in least.items() if columns.width_of(key) <= size]
        dropped += [key for key in gone if key not in dropped]
    assert dropped == ["name", "spark", "power"]


def test_the_columns_of_a_line_add_up_to_its_width() -> None:
    large = gpu(index=1, name="NVIDIA B300", memory_total=1007 * GIB, power_limit=1400.0)
    for cards in ([gpu(), gpu(name="NVIDIA GeForce RTX 4090")], [gpu(), large], []):
        for width in range(44, 401):
            for added in ((), GPU_COLUMNS):
                columns = line_columns(width, cards, added=added)
                assert columns.width == sum(size for _, size in columns.widths) == width
                assert all(size > 0 for _, size in columns.widths)


def test_every_column_that_can_be_added_shows_its_largest_value_whole() -> None:
    for column in GPU_COLUMNS:
        full = gpu(**{column.key: GPU_METRIC[column.key].possible[1]})
        now = build_snapshot(NOON, *(replace(full, index=i) for i in range(3)))
        view = View(interval=0.5, columns=(*DEFAULT_COLUMNS, column.key))
        lines = lines_of(dashboard_of(now, 200, 24, view).all())
        heading = next(line for line in lines if column.label in line)
        end = heading.index(column.label) + len(column.label)
        text = lines[lines.index(heading) + 1][end - column.width : end]
        assert re.fullmatch(r" +P?[0-9]+[%kMGT]?", text), column


def test_numbers_of_the_largest_cards_are_neither_cut_nor_run_together() -> None:
    large = gpu(memory_total=1007 * GIB, memory_used=1003 * GIB, name="NVIDIA B300")
    large = replace(large, power_limit=1400.0, power_draw=1400.0, temperature_gpu=101)
    now = build_snapshot(NOON, *(replace(large, index=i) for i in range(3)))
    for width in (100, 140, 200):
        assert " 101 1400/1400W " in picture(now, width, 15).replace("  ", " ")
        assert "1003.0/1007.0G" in picture(now, width, 15)


def test_a_held_picture_keeps_its_words_while_the_history_goes_on() -> None:
    now, _ = demo()
    screen = Live(View(interval=0.5, paused=True), 100)
    screen.see(now)
    before = screen.draw().gpus
    idle = tuple(replace(card, utilization_gpu=0) for card in now.gpus)
    for second in range(1, 90):
        screen.history.add(replace(now, time=now.time + second, gpus=idle, processes=()))
    assert screen.draw().gpus == before


@pytest.mark.slow
@pytest.mark.parametrize("listed_ago", [0.25, 5.0], ids=["new lists", "old lists"])
def test_a_held_picture_keeps_what_it_tells_of_processes_however_it_is_drawn_again(
    listed_ago: float,
) -> None:
    screen = Live()
    resting = (process(started_at=NOON - 9.5, sm=0),)
    for tick in range(1100):
        # Now and then two lists come in one second of the clock.
        now, listed_at = NOON + tick * 0.24, NOON + tick // 4 * 0.96 - listed_ago
        screen.see(build_snapshot(now, gpu(), processes=resting, processes_at=listed_at))
        if tick >= 1000:
            live = screen.table()
            screen.draw(150)
            assert screen.table() == live
    assert live[1].count("4m ") == 2, "its age and for how long it has been idle"
    screen.change(paused=True)
    screen.draw()
    for tick in range(1100, 1500):
        screen.history.add(build_snapshot(NOON + tick * 0.24))
    screen.change(cursor=resting[0].id)
    screen.draw(150)
    assert screen.table()[1].replace("▸", " ") == live[1]


@pytest.mark.slow
def test_users_of_a_held_picture_are_those_of_its_moment_however_late_asked_for() -> None:
    screen = Live(View(interval=0.5, listing=Listing.USERS))
    # Between the newest list and the moment it becomes seven minutes old.
    resting = (process(started_at=NOON - 58.8),)

    def at(half: int) -> Snapshot:
        listed_at = NOON + half // 2
        return build_snapshot(NOON + half / 2, processes=resting, processes_at=listed_at)

    for half in range(361 * 2):
        screen.see(at(half))
        live = screen.table()[1]
    assert " 0.1 " in live
    screen.change(listing=Listing.PROCESSES)
    # Of a new list nobody asks for users while it is fresh.
    for half in range(361 * 2, 362 * 2):
        screen.see(at(half))
        screen.draw()
    screen.change(paused=True)
    screen.draw()
    for half in range(362 * 2, 2000 * 2):
        screen.history.add(at(half))
    screen.change(listing=Listing.USERS)
    assert screen.table()[1] == live


@pytest.mark.slow
@pytest.mark.parametrize(
    ("listing", "shown", "changes"),
    [
        (Listing.PROCESSES, "≥5m", [{"top": 30, "follows_cursor": False}]),
        (Listing.USERS, "0.1", [{"listing": Listing.PROCESSES}, {"listing": Listing.USERS}]),
    ],
    ids=["for how long it has been idle", "for how long the user has had the GPU"],
)
def test_what_was_out_of_sight_when_the_picture_was_held_is_told_by_that_moment_too(
    listing: Listing, shown: str, changes: list[dict[str, object]]
) -> None:
    screen = Live(View(interval=1.0, listing=listing))
    resting = tuple(process(pid, started_at=NOON - 60, sm=0) for pid in range(4000, 4045))

    for second in range(360):
        screen.see(build_snapshot(NOON + second, processes=resting))
        # What is only counted while it is drawn would begin here.
        if second < 2 or second > 350:
            live = screen.table()[1].split()[3:]
    assert shown in live
    screen.change(paused=True)
    screen.draw()
    for second in range(360, 2000):
        screen.history.add(build_snapshot(NOON + second, processes=resting))
    screen.change(interval=4.0)
    for change in changes:
        screen.change(**change)
        held = screen.table()[1].split()[3:]
    assert held == live


@pytest.mark.slow
@pytest.mark.parametrize("cards", [1, 8, 24], ids=["panels", "tiles", "lines"])
@pytest.mark.parametrize("interval", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("ticks", [40, 44, 47])
def test_the_graphs_of_a_held_picture_stay_what_they_are(
    cards: int, interval: float, ticks: int
) -> None:
    screen = Live(View(interval=interval, host_strip=True), 200, 50)

    def at(tick: int, percent: int) -> Snapshot:
        host = Host("ada", cpu_percent=percent, memory_total=100, memory_used=percent)
        gpus = [gpu(index=index, utilization_gpu=percent) for index in range(cards)]
        return replace(build_snapshot(NOON + tick * interval, *gpus), host=host)

    def graphs(width: int = 200) -> tuple[list[Row], ...]:
        parts = screen.draw(width)
        return list(parts.gpus), list(parts.graphs), list(parts.host)

    for tick in range(ticks + 1):
        screen.see(at(tick, 11))
        if tick < 2 or tick > ticks - 5:
            live = graphs()
    # What comes in the same second is in the newest bucket too.
    for later in range(ticks + 1, ticks + 20):
        screen.history.add(at(later, 95))
    graphs(150)
    assert graphs() == live


def test_a_picture_that_is_still_held_when_another_takes_its_place_is_that_one() -> None:
    screen = Live(View(interval=1.0, paused=True))
    for second in (0, 1):
        resting = (process(started_at=NOON - 7.5),)
        screen.see(build_snapshot(NOON + second, processes=resting))
        assert f" {7 + second}s " in screen.table()[1]


@pytest.mark.parametrize("second", range(20))
def test_the_first_sample_of_all_is_in_the_graph_of_a_line_at_once(second: int) -> None:
    cards = [gpu(index=index, utilization_gpu=95) for index in range(24)]
    shown = build_snapshot(NOON + second + 0.7, *cards)
    line = dashboard_of(shown, 200, 50, View(interval=2.0)).gpus[1]
    (graph,) = [text for text, style in line if style == "graph.other"]
    assert graph.strip("· ")


PLAYING = Playing(NOON, NOON - 60, NOON + 60, playing=False, speed=1.0, at_end=False)


def test_what_led_to_a_moment_of_the_past_is_told_as_soon_as_it_is_known() -> None:
    now, past = demo()
    began: dict[ProcessId, Interval] = {}

    class Told(History):
        def process_idle(self, process: ProcessId) -> Interval | None:
            return began.get(process)

        def as_of(self, snapshot: Snapshot) -> History:
            assert snapshot is now
            return self

    history = Told(conditions())
    history.add(now)
    for process_ in now.processes:
        if (spell := past.process_idle(process_.id)) is not None:
            began[process_.id] = replace(spell, since=spell.last - 600)
    dashboard = Dashboard(history)

    def drawn(*, settled: bool) -> tuple[str, str]:
        timeline = Timeline(PLAYING, (), live=True, complete=settled)
        parts = dashboard.rows(now, View(interval=0.5, timeline=timeline), 160, 30)
        return "\n".join(lines_of(parts.gpus)), "\n".join(lines_of(parts.processes))

    cards, table = drawn(settled=False)
    assert "● …" in cards
    assert " 10m " in table
    for process_id, spell in began.items():
        began[process_id] = replace(spell, since=spell.last - 7260)
    # It is still the same sample in the same history.
    cards, table = drawn(settled=True)
    assert "● busy" in cards
    assert " 2h01m " in table


@pytest.mark.parametrize("in_gap", [False, True])
def test_what_is_older_than_the_moment_is_said_to_be(*, in_gap: bool) -> None:
    timeline = Timeline(replace(PLAYING, in_gap=in_gap), (), live=True)
    (row,) = demo_dashboard(8, 120, 30, View(interval=0.5, timeline=timeline)).header
    assert ("no sample since 12:00:00" in text_of(row)) is in_gap
    assert "12:00:00" in text_of(row)


def test_sixteen_cards_leave_a_third_of_the_screen_to_the_processes() -> None:
    lines = demo_picture(16, 100, 24).splitlines()
    rule = next(y for y, line in enumerate(lines) if line.startswith("──"))
    assert len(lines) - 2 - rule >= 7
    cards = " ".join(lines[2:rule])
    assert all(f" {index} " in f" {cards}" for index in range(16))


@pytest.mark.parametrize("cards", [1, 2])
@pytest.mark.parametrize("size", [(80, 24), (100, 24), (120, 40), (200, 50)])
def test_tall_panels_leave_their_rows_to_all_processes_and_cut_nothing(
    cards: int, size: tuple[int, int]
) -> None:
    shown = of_gpus(cards)
    lines = picture(shown, *size).splitlines()
    rule = next(y for y, line in enumerate(lines) if line.startswith("──"))
    assert len(shown.processes) <= size[1] - rule - 3 <= len(shown.processes) + 2
    assert not any("…" in line for line in lines[1:rule])
    assert not any(re.match(r" (fan +–|video .* 0%)", line) for line in lines)


@pytest.mark.parametrize("cards", [1, 2])
@pytest.mark.parametrize("size", [(80, 24), (100, 24), (120, 40), (200, 50)])
def test_a_panel_says_state_and_holder_first(cards: int, size: tuple[int, int]) -> None:
    rows = demo_dashboard(cards, *size).gpus
    titles = [text_of(row) for row in rows if "panel.title" in {style for _, style in row}]
    assert [re.sub(" +", " ", title[:55]).strip() for title in titles] == [
        "0 H100 80GB HBM3 ● busy ann 48.5G, dara 9.4G",
        "1 H100 80GB HBM3 △ busy but empty, SMs 9%, 1h12m an",
    ][:cards]


@pytest.mark.parametrize(
    ("cards", "size"),
    [(1, (100, 40)), (1, (120, 30)), (1, (200, 50)), (2, (120, 50)), (2, (200, 50))],
)
def test_few_cards_on_a_large_terminal_have_all_charts_and_leave_no_row_blank(
    cards: int, size: tuple[int, int]
) -> None:
    shown = of_gpus(cards)
    lines = picture(shown, *size).splitlines()
    text = "\n".join(lines)
    for caption in (r"util +\d+%", r"mem +[\d.]+/79.6G", r"power +\d+/700W", r"temperature +\d"):
        assert len(re.findall(rf" {caption}", text)) == cards
    assert text.count("now") >= 2 * cards
    assert sum(not line for line in lines) <= 2


def test_the_state_of_a_card_is_whole_where_cards_stand_side_by_side() -> None:
    assert "31G unattr" in demo_picture(16, 100, 24)


def test_the_cursor_among_the_cards_leaves_a_space_before_the_name() -> None:
    for cards in (8, 16):
        named = tuple(replace(card, uuid=f"GPU-{card.index}") for card in of_gpus(cards).gpus)
        for index in (cards - 2, cards - 1):
            view = View(interval=0.5, gpu=f"GPU-{index}")
            rows = dashboard_of(replace(of_gpus(cards), gpus=named), 120, 40, view).gpus
            assert any(text_of(row).startswith(f"▸{index} H") for row in rows)


def test_what_is_wrong_comes_first_where_not_all_cards_fit() -> None:
    lines = demo_picture(8, 30, 5).splitlines()
    assert "DEMO" in lines[0]
    assert "✖ LOST" in lines[1]
    assert "▲" in lines[2]
    assert lines[4] == "… 5 more GPUs"
    assert "✖" in demo_picture(8, 30, 1)


def test_a_hidden_card_is_named_in_the_colour_of_how_bad_it_is() -> None:
    rule = demo_dashboard(8, 60, 15, View(interval=0.5, host_strip=True)).rule[0]
    assert (" ↓1 more GPU (Shift+↑↓) ", "strong") in rule
    assert ("GPU 7: 31G unattr ", "state.warning") in rule


USERS = View(interval=0.5, listing=Listing.USERS)


def test_a_share_that_is_no_whole_percent_is_not_none() -> None:
    now, history = demo()
    well = tuple(gpu for gpu in now.gpus if gpu.status is GpuStatus.OK)
    parts = dashboard_of(replace(now, gpus=well), 120, 30, USERS, history)
    assert re.search(r"gina .* 1\.2G +<1%", "\n".join(lines_of(parts.processes)))


def test_a_small_share_that_may_be_larger_is_more_than_zero() -> None:
    lost = gpu(index=1, status=GpuStatus.LOST, memory_used=None)
    now = build_snapshot(NOON, gpu(), lost, processes=(process(memory_used=GIB // 4),))
    row = dashboard_of(now, view=USERS).processes[1]
    assert re.search(r"ann .* 256M +>0% ", text_of(row))


def test_a_broken_card_out_of_sight_is_named() -> None:
    broken = gpu(index=15, status=GpuStatus.LOST, memory_used=None, utilization_gpu=None)
    now = build_snapshot(NOON, *(gpu(index=index) for index in range(15)), broken)
    assert "↓3 more GPUs (Shift+↑↓) GPU 15: LOST" in picture(now, 80, 24)
    rule = dashboard_of(now, 80, 24, View(interval=0.5, gpus_top=3)).rule[0]
    assert "LOST" not in text_of(rule)


def test_which_of_the_processes_are_in_sight_is_told_where_not_all_are() -> None:
    views = [View(interval=0.5, top=top) for top in (0, 4, 99)]
    rules = [text_of(demo_dashboard(view=view).rule[0]) for view in views]
    counts = [rule[-13:].strip("─ ") for rule in rules]
    assert counts == ["1–11 of 18", "5–15 of 18", "8–18 of 18"]
    whole = demo_dashboard(height=50, view=views[-1]).rule[0]
    assert not re.search(r"\d–\d+ of", text_of(whole))


@pytest.mark.parametrize("width", [60, 80, 100])
def test_which_processes_are_in_sight_is_told_before_any_sum(width: int) -> None:
    for narrowing in (ProcessFilter(), ProcessFilter(filter=parse_filter("!root"))):
        view = View(interval=0.5, narrowing=narrowing)
        rule = demo_dashboard(16, width, 24, view).rule[0]
        assert re.search(r" 1–\d+ of 1\d $", text_of(rule))


@functools.cache
def demo_with_unused_allocation() -> tuple[Snapshot, History]:
    now, history = seen_at_noon()
    unused = Allocation("slurm", "7", "finn", (now.gpus[4].uuid,))
    now = replace(now, allocations=(*(now.allocations or ()), unused))
    history.add(now)
    return now, history


def users_listed(*, sort: Sort, width: int = 100) -> list[str]:
    now, history = demo_with_unused_allocation()
    parts = dashboard_of(now, width, 40, replace(USERS, sort=sort), history)
    return lines_of([*parts.rule, *parts.processes])


@pytest.mark.slow
def test_users_are_sorted_by_each_of_their_own_columns() -> None:
    for column in USER_COLUMNS:
        both = []
        for descending, sign in ((False, "▲"), (True, "▼")):
            _, heading, *lines = users_listed(sort=Sort(column.key, descending))
            assert f" {column.label}{sign} " in heading
            users = lines[: next(place for place, line in enumerate(lines) if line[0] == "─")]
            both.append([line.split()[0] for line in users])
        assert sorted(both[0]) == sorted(both[1])
        assert both[0] != both[1]
    assert both[1][0] == "svc-llm"
    by_name = users_listed(sort=Sort("user", False))[2:4]
    assert [line.split()[0] for line in by_name] == ["ann", "bo"]


def test_the_list_of_users_says_since_when_it_counts() -> None:
    for width in (80, 100):
        rule = users_listed(sort=Sort(), width=width)[0]
        assert " 18 processes · GPU-HOURS since 08:00 " in rule


def instance(index: int, used: int) -> MigInstance:
    """An eighth of a GPU."""
    return MigInstance(
        *(f"MIG-{index}", index, 7 + index, 0, "1g.10gb"), memory_total=10 * GIB, memory_used=used
    )


def inside(one: GpuProcess, gpu_instance: int) -> GpuProcess:
    """The process in an instance of its GPU."""
    (use,) = one.uses
    return replace(one, uses=(replace(use, instance=(gpu_instance, 0)),))


def test_mig_instances_stand_under_their_card(snapshot: SnapshotAssertion) -> None:
    instances = tuple(instance(index, index * GIB) for index in range(3))
    card = gpu(mig_mode=True, mig=instances, utilization_gpu=None)
    user = inside(process(memory_used=2 * GIB, sm=None), 9)
    now = build_snapshot(NOON, card, gpu(index=1), processes=(user,))
    assert picture(now, 100, 24) == snapshot


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_mig_device_has_one_name_on_lines_and_in_the_process_table(width: int) -> None:
    third = replace(instance(3, GIB), gpu_instance=7)
    card = gpu(index=1, mig_mode=True, mig=(third,))
    there = inside(process(100, gpus=(1,)), 7)
    both = replace(there, uses=(*process(gpus=(0,)).uses, *there.uses))
    elsewhere = inside(process(200, gpus=(1,)), 9)
    now = build_snapshot(NOON, gpu(), card, processes=(both, elsewhere))
    text = picture(now, width, 24)
    assert re.search(r"└ MIG 1:3 ", text)
    assert re.search(r" 0,1:3 +100 ", text)
    assert re.search(r" 1:– +200 ", text)
    assert "1/7" not in text


def test_the_mig_devices_of_a_held_picture_keep_their_state_while_the_history_goes_on() -> None:
    screen = Live(View(interval=0.5, paused=True))

    def at(second: int, used: int, *processes: GpuProcess) -> Snapshot:
        card = gpu(mig_mode=True, mig=(instance(0, used),), utilization_gpu=None)
        return build_snapshot(NOON + second, card, processes=processes)

    def device(width: int) -> str:
        return text_of(screen.draw(width).gpus[2])

    screen.see(at(0, 0))
    assert "MIG 0:0 ○ free" in device(100)
    for second in range(1, 20):
        screen.history.add(at(second, 2 * GIB, inside(process(), 7)))
    assert "MIG 0:0 ○ free" in device(120)
    assert "MIG 0:0 ○ free" in device(100)
    screen.see(at(20, 2 * GIB, inside(process(), 7)))
    assert re.search(r"MIG 0:0 ● busy  ann", device(100))


def test_no_cards_say_why_and_what_to_do(snapshot: SnapshotAssertion) -> None:
    trouble = Trouble("The NVIDIA driver is not loaded.", "Load it with `modprobe nvidia`.")
    now = replace(build_snapshot(), gpus=(), trouble=trouble)
    assert picture(now, 80, 15) == snapshot
    assert "The NVIDIA driver is not" in picture(now, 30, 5)
    assert "Waiting" in picture(None, 80, 24)


def test_a_silent_card_turns_the_clock_into_its_silence() -> None:
    card = gpu(status=GpuStatus.NO_ANSWER, sampled_at=NOON - 4, status_since=NOON - 4)
    silent = replace(card, index=3, uuid="GPU-3")
    now = build_snapshot(NOON, *(gpu(index=index) for index in range(3)), silent)
    lines = picture(now, 100, 24).splitlines()
    assert "GPU 3: no answer for 4 s" in lines[0]
    assert "no answer" in next(line for line in lines if line.startswith(" 3 H100"))


def test_the_cursor_survives_every_sort_and_ends_with_its_process() -> None:
    now, history = demo()
    dashboard = Dashboard(history)
    chosen = dashboard.rows(now, VIEW, 100, 24).layout.entries[5].key
    assert isinstance(chosen, ProcessId)
    for column in PROCESS_COLUMNS:
        for descending in (True, False):
            view = View(interval=0.5, cursor=chosen, sort=Sort(column.key, descending))
            rows = dashboard.rows(now, view, 100, 24).processes
            marked = [row for row in rows if row[0][0] == "▸"]
            assert len(marked) == 1
            assert f" {chosen.pid} " in text_of(marked[0])
    left = tuple(p for p in now.processes if p.id != chosen)
    parts = dashboard.rows(replace(now, processes=left), view, 100, 24)
    assert parts.layout.view.cursor is None


def test_a_reused_pid_does_not_inherit_the_cursor() -> None:
    old, new = process(pid=7, start_time=1), process(pid=7, start_time=2)
    screen = Live(View(interval=0.5, cursor=old.id), 100)
    for listed, cursor in ((old, old.id), (new, None)):
        screen.see(build_snapshot(NOON + known(listed.id.start_time), processes=(listed,)))
        assert screen.draw().layout.view.cursor == cursor


def test_unknown_values_sort_last_in_both_directions() -> None:
    sized, less, unknown = (
        process(pid=pid, memory_used=size) for pid, size in ((3, 5 * GIB), (2, GIB), (1, None))
    )
    for descending, order in ((True, [3, 2, 1]), (False, [2, 3, 1])):
        ordered = sort_processes(
            [unknown, less, sized], Sort("memory_used", descending), RowContext(NOON)
        )
        assert [p.id.pid for p in ordered] == order


def test_commands_are_sorted_as_they_are_shown() -> None:
    programs = ("/usr/bin/zsh", "/opt/z/abc", "bash")
    ran = [replace(process(), command=(program, "x")) for program in programs]
    ordered = sort_processes(ran, Sort("command", descending=False), RowContext(NOON))
    assert [p.command[0] for p in ordered] == ["/opt/z/abc", "bash", "/usr/bin/zsh"]


def test_every_column_sorts_any_mixture() -> None:
    mixture = [
        process(pid=1, user=None, sm=None),
        process(pid=2, gpus=(0, 1), started_at=None),
        process(
            pid=3, visible=False, user=None, memory_used=None, started_at=None, start_time=None
        ),
        process(pid=4, user="bo", type_="C+G"),
    ]
    for column in PROCESS_COLUMNS:
        for descending in (True, False):
            ordered = sort_processes(mixture, Sort(column.key, descending), RowContext(NOON))
            assert sorted(p.id.pid for p in ordered) == [1, 2, 3, 4]


def test_a_process_that_is_not_visible_here_says_so() -> None:
    hidden = process(visible=False, user=None, start_time=None, started_at=None)
    now = build_snapshot(processes=(hidden,))
    assert "(not visible here)" in picture(now, 100, 24)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_who_is_idle_is_told_in_a_narrow_terminal_too(width: int) -> None:
    assert " IDLE " in demo_picture(8, width, 40)


def test_the_memory_and_the_command_are_the_last_columns_to_go() -> None:
    def shown(width: int) -> tuple[str, ...]:
        everything = tuple((column.key, 1) for column in PROCESS_COLUMNS)
        columns = visible_columns(width, everything, "memory_used", "SM", hides=False)
        return tuple(column.key for column in columns)

    assert shown(1) == ("memory_used", "command")
    assert shown(300) == tuple(column.key for column in PROCESS_COLUMNS)


def test_a_tiny_screen_shows_whole_amounts_alone() -> None:
    def amounts(width: int) -> list[str]:
        lines = demo_picture(8, width, 12).splitlines()[1:9]
        pattern = r"(?:\d%|–) *([\d./]+G)?(?: +\d+°C)?(?: +\d+W)?[ –]*$"
        ends = (re.search(pattern, line) for line in lines)
        return ["" if end is None else end[1] or "" for end in ends]

    whole = amounts(59)
    assert whole[0] == "57.9/79.6G"
    for width in range(12, 59):
        for told, full in zip(amounts(width), whole, strict=True):
            assert told in {full, full.partition("/")[0] + "G", ""}


def test_a_low_wide_screen_uses_its_width() -> None:
    lines = demo_picture(8, 80, 8).splitlines()
    assert re.search(r"hot: SW thermal.* erin 76.9G +\d+%  +76.9/79.6G +\d+°C +\d+W$", lines[2])
    assert all(len(line) == 80 for line in lines[1:7])
    assert lines[7] == "… 2 more GPUs"
    wide = demo_picture(8, 200, 6).splitlines()
    assert len(re.findall(r"/79\.6G", "\n".join(wide[1:]))) == 7, "all that is known, side by side"


def test_narrow_is_short_is_tiny() -> None:
    assert not is_tiny(60, 15)
    assert is_tiny(59, 15)
    assert is_tiny(60, 14)


@pytest.mark.parametrize(
    ("name", "core"),
    [
        ("H100 80GB HBM3", "H100"),
        ("RTX 4090", "RTX 4090"),
        ("RTX A6000", "RTX A6000"),
        ("A100-SXM4-80GB", "A100"),
        ("TITAN V", "TITAN V"),
        ("GB10", "GB10"),
        ("–", "–"),
    ],
)
def test_a_name_is_cut_to_what_tells_the_model(name: str, core: str) -> None:
    assert core_name(name) == core


def state(kind: FindingKind, severity: Severity, short: str, brief: str | None = None) -> Finding:
    return Finding(kind, "GPU-0", severity, "", short, brief or short)


BUSY = state(FindingKind.WORKING, Severity.QUIET, "busy")
FREE = state(FindingKind.FREE, Severity.GOOD, "free")
STUCK = state(FindingKind.STUCK, Severity.WARNING, "stuck? 100% at 17% power, 21m", "stuck?")
LOST = state(FindingKind.LOST, Severity.CRITICAL, "LOST since 11:54 (XID 79)", "LOST")
STRAY = state(FindingKind.UNATTRIBUTED, Severity.WARNING, "31G stray: orphan 17 of bo", "31G stray")
HOLDER = ("ann 48.5G, dara 9.4G", "ann 48.5G +1", "ann +1", "ann")


@pytest.mark.parametrize(
    ("state", "holder", "width", "words"),
    [
        # Alone it loses its last clause before it becomes brief.
        (STUCK, (), 40, "▲ stuck? 100% at 17% power, 21m"),
        (STUCK, (), 30, "▲ stuck? 100% at 17% power"),
        (STUCK, (), 11, "▲ stuck?"),
        (LOST, (), 20, "✖ LOST since 11:54"),
        (LOST, (), 11, "✖ LOST"),
        (LOST, (), 5, "✖ LO…"),
        (BUSY, HOLDER, 28, "● busy  ann 48.5G, dara 9.4G"),
        (BUSY, HOLDER, 27, "● busy  ann 48.5G +1"),
        (BUSY, HOLDER, 19, "● busy  ann +1"),
        (BUSY, HOLDER, 13, "● busy  ann"),
        (BUSY, HOLDER, 10, "● busy"),
        # Other columns say what the longer words of such a state say.
        (STUCK, HOLDER, 45, "▲ stuck? 100% at 17% power, 21m  ann 48.5G +1"),
        (STUCK, HOLDER, 36, "▲ stuck? 100% at 17% power, 21m  ann"),
        (STUCK, HOLDER, 35, "▲ stuck? 100% at 17% power  ann +1"),
        (STUCK, HOLDER, 20, "▲ stuck?  ann +1"),
        (FREE, HOLDER, 40, "○ free"),
        # These words say what nothing else does.
        (STRAY, HOLDER, 30, "▲ 31G stray: orphan 17 of bo"),
        (LOST, HOLDER, 28, "✖ LOST since 11:54 (XID 79)"),
    ],
)
def test_state_and_holder_are_shortened_in_a_fixed_order(
    state: Finding, holder: Sequence[str], width: int, words: str
) -> None:
    fields = state_fields(state, holder, width)
    assert row_width(fields) == width
    assert text_of(fields).rstrip() == words


def test_the_footer_names_what_matters_at_the_moment_in_eighty_columns() -> None:
    shown = of_gpus(8)
    chosen = View(interval=0.5, cursor=shown.processes[0].id)
    card = replace(chosen, gpu=shown.gpus[1].uuid)
    for view, words in [
        (card, ("? why", "Enter details", "space compare…", "d only this GPU", "Tab processes")),
        (VIEW, ("? help", "/ filter", "↑↓ select", "t tree", "[ ] rewind", "L log")),
        (chosen, ("? help", "k end…", "Enter details", "space tag", "[ ] rewind", "L log")),
    ]:
        text = footer_text(view, 80)
        assert all(word in text for word in words)
        assert ("k end…" in text) is (view is chosen), "what is offered is done"


def footer_text(view: View, width: int) -> str:
    return text_of(demo_dashboard(8, width, 24, view).footer[0])


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_footer_offers_first_what_one_needs_first(width: int) -> None:
    chosen = View(interval=0.5, cursor=of_gpus(8).processes[0].id)
    first = " q quit  ? help  k end…  / filter  Enter details  space tag "
    assert footer_text(chosen, width).startswith(first)
    alone = footer_text(VIEW, width)
    assert alone.startswith(" q quit  ? help  ↑↓ select  / filter  u users  t tree ")
    assert ("m mine" in alone) is (width >= 100)
    assert ("Ctrl+P commands" in alone) is (width == 200)


@pytest.mark.parametrize("width", [80, 200])
def test_what_is_on_is_in_brackets_in_the_footer_at_the_same_width(width: int) -> None:
    mine = {"narrowing": ProcessFilter(mine="ann")}
    for change, shown in (
        (mine, "m[mine]"),
        ({"listing": Listing.TREE}, "t[tree]"),
        ({"listing": Listing.USERS}, "u[users]"),
        ({"listing": Listing.JOBS}, "g[jobs]"),
        ({"paused": True}, "p[pause]"),
        ({"host_strip": True}, "h[host]"),
        ({"log": LogNote("1 MB 5m")}, "L[log]"),
    ):
        view = replace(VIEW, **change)
        for one in (view, replace(view, gpu=of_gpus(8).gpus[1].uuid)):
            assert shown in footer_text(one, width)
        text = footer_text(view, width)
        # The window of the charts is always on, where there are charts.
        assert text.replace("2[5m]", "").count("[") == 2, "one is on, and [ is a key"
    row = demo_dashboard(8, width, 24, replace(VIEW, **mine)).footer[0]
    assert ("[mine]", "footer.on") in row
    keys = (footer_key("mine"), footer_key("tree"))
    turned = (footer_key("mine", on=True), footer_key("tree"))
    before, after = (text_of(footer_row(each, "", 40)) for each in (keys, turned))
    assert before.index("t tree") == after.index("t tree")


@pytest.mark.parametrize(
    ("size", "cards", "graphed"),
    [((60, 30), 8, False), ((120, 30), 8, True), ((80, 24), 1, True), ((200, 60), 8, True)],
)
def test_another_small_graph_is_offered_where_there_is_one(
    size: tuple[int, int], cards: int, *, graphed: bool
) -> None:
    parts = demo_dashboard(cards, *size)
    assert (footer_key("graph") in footer_keys(parts.layout.view, None)) is graphed
    text = "\n".join(lines_of(parts.all()))
    assert (re.search(r"power \d+ s|util, |⠒ util", text) is not None) is graphed


def test_every_cell_of_the_footer_belongs_to_the_key_that_stands_there() -> None:
    keys = (
        footer_key("quit"),
        footer_key("step_back", "step_on", label="rewind"),
        footer_key("previous_line", "next_line"),
        footer_key("open", label="details"),
    )
    text = text_of(footer_row(keys, "", 60))
    names = [key_at(keys, 60, x) for x in range(60)]
    hit = "".join("." if name is None else keycap(name)[0] for name in names)
    assert text == " q quit  [ ] rewind  ↑↓ select  Enter details " + " " * 14
    assert hit == "qqqqqqqq[[[][[[[[[[[↑↑↓↑↑↑↑↑↑↑↑" + "E" * 15 + "." * 14


def first_lines(*shown: Snapshot) -> list[str]:
    """What stands on the line of the first GPU, snapshot after snapshot on one dashboard."""
    screen, lines = Live(View(interval=0.1), 100), []
    for each in shown:
        screen.see(each)
        lines.append(text_of(screen.draw().gpus[1]))
    return lines


def of_one(at: float, **values: object) -> Snapshot:
    others = [gpu(index=index, sampled_at=at) for index in (1, 2)]
    first = replace(gpu(index=0, sampled_at=at), **values)
    # The list of processes is older than the values, as it is at ten samples a second.
    return replace(build_snapshot(at, first, *others), processes_at=NOON)


def test_a_card_that_stops_answering_is_told_to_within_the_same_second() -> None:
    lines = first_lines(of_one(NOON + 0.1), of_one(NOON + 0.2, status=GpuStatus.LOST))
    assert ["LOST" in line for line in lines] == [False, True]


def test_a_card_that_becomes_hot_is_told_to_be_within_the_same_second() -> None:
    course = ((0.1, 50), (0.2, 89), (0.3, 90))
    lines = first_lines(
        *(of_one(NOON + at, temperature_gpu=it, temperature_slowdown=90) for at, it in course)
    )
    assert ["hot" in line for line in lines] == [False, True, True]
    # What is wrong is shown with the numbers of this moment.
    assert "hot: 89 °C" in lines[1]
    assert "hot: 90 °C" in lines[2]
