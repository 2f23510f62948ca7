"""The screen of many hosts as text at every size, and keys: the cursor, lists and filters."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion

from gpumon.fleet.fleet import HostOrigin, HostStatus
from gpumon.fleet.summary import HostSummary
from gpumon.model.snapshot import GpuStatus
from gpumon.text.cells import Row, row_width
from gpumon.text.charset import substitute
from gpumon.text.table import Sort
from gpumon.ui.view import fleet_view, list_view
from gpumon.ui.view.fleet_rows import FleetParts, FleetPicture, fleet_keys
from gpumon.ui.view.fleet_view import FleetListing, FleetView, show_list
from tests.build import GIB, NOON, gpu, process
from tests.hosts import demo_hosts, host, host_state

pytestmark = pytest.mark.usefixtures("utc")

VIEW = FleetView(interval=1.0)
# ``test_same_pictures`` has others, cell by cell.
SIZES = [(140, 40), (80, 24), (60, 15), (40, 10), (20, 5)]


def all_rows(parts: FleetParts) -> list[Row]:
    return [*parts.header, *parts.lines, *parts.rule, *parts.footer]


def picture(hosts: tuple[HostSummary, ...], width: int, height: int, view: FleetView = VIEW) -> str:
    rows = all_rows(FleetPicture().rows(hosts, view, NOON + 1, width, height, "DEMO"))
    assert [row_width(row) for row in rows] == [width] * height
    return "\n".join("".join(text for text, _ in row).rstrip() for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 16, 100])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_hosts_look_as_they_did(
    size: tuple[int, int], count: int, snapshot: SnapshotAssertion
) -> None:
    assert picture(demo_hosts(count), *size) == snapshot


@pytest.mark.parametrize("listing", [FleetListing.USERS, FleetListing.PROCESSES])
@pytest.mark.parametrize("size", [(100, 24), *SIZES[1:]], ids=lambda size: f"{size[0]}x{size[1]}")
def test_users_and_processes_look_as_they_did(
    size: tuple[int, int], listing: FleetListing, snapshot: SnapshotAssertion
) -> None:
    assert picture(demo_hosts(16), *size, show_list(VIEW, listing)) == snapshot


def test_in_ascii_a_cell_tells_what_it_tells_in_unicode() -> None:
    text = picture(demo_hosts(16), 100, 24)
    plain = substitute(text)
    assert plain.isascii()
    assert "?" not in plain.replace("? help", "")
    assert [len(line) for line in plain.splitlines()] == [len(line) for line in text.splitlines()]
    assert "X 6: LOST" in plain


def line_of(made: HostSummary, width: int = 120) -> str:
    return picture((made,), width, 10).splitlines()[2]


def test_a_cell_is_free_sick_or_filled() -> None:
    busy = gpu(index=1, memory_used=79 * GIB, memory_free=GIB, utilization_gpu=90)
    lost = gpu(index=2, status=GpuStatus.LOST, memory_used=None)
    half = gpu(index=3, memory_used=40 * GIB, utilization_gpu=50)
    held = (
        process(7, memory_used=79 * GIB, sm=90, gpus=(1,)),
        process(8, memory_used=40 * GIB, sm=50, gpus=(3,)),
    )
    made = host(host_state("gpu-01", gpu(), busy, lost, half, processes=held))
    assert "gpu-01 ○▇✖▄ " in line_of(made)


def test_a_host_that_is_down_says_why_and_since_when_and_keeps_no_numbers() -> None:
    live = host_state("gpu-01")
    down = replace(
        live, status=HostStatus.DOWN, since=NOON - 120, sentence="the connection was refused"
    )
    line = line_of(host(live, down))
    assert "◌ down 2m: the connection was refused" in line
    assert " – " in line
    rows = all_rows(FleetPicture().rows((host(live, down),), VIEW, NOON, 100, 10))
    assert {style for _, style in rows[2]} == {"stale"}


def test_a_host_with_nvidia_smi_alone_says_that_it_is_less() -> None:
    assert "nvidia-smi only" in line_of(host(host_state("a", origin=HostOrigin.NVIDIA_SMI)))


def test_old_data_of_a_live_host_show_their_age() -> None:
    assert "42s" not in line_of(host(host_state("a")))
    assert "42s" in line_of(host(host_state("a", received_at=NOON - 41)))


def test_empty_lists_say_what_to_do() -> None:
    hosts = demo_hosts(3)
    narrowed = replace(VIEW, filter="free>9")
    assert "no host matches free>9 · Esc shows all" in picture(hosts, 80, 24, narrowed)
    assert "0 of 3 hosts · free>9" in picture(hosts, 80, 24, narrowed)
    assert "connecting" in picture((), 80, 24)


def test_the_host_under_the_cursor_has_its_whole_sentence() -> None:
    text = picture(demo_hosts(16), 140, 40, replace(VIEW, cursor="gpu-04"))
    assert "gpu-04: GPU 6: lost" in text


def test_only_rows_with_news_are_drawn_anew() -> None:
    hosts = demo_hosts(16)
    drawing = FleetPicture()
    before = all_rows(drawing.rows(hosts, VIEW, NOON, 100, 24))
    changed = host(host_state("gpu-02", gpu(utilization_gpu=50)), place=1)
    after = all_rows(drawing.rows((hosts[0], changed, *hosts[2:]), VIEW, NOON, 100, 24))
    same = [one is other for one, other in zip(before, after, strict=True)]
    assert [at for at, kept in enumerate(same[1:18], 1) if not kept] == [3]


def test_without_a_live_host_no_sum_is_shown() -> None:
    live = host_state("a")
    down = replace(live, status=HostStatus.DOWN)
    header = picture((host(live, down),), 100, 10).splitlines()[0]
    assert "hosts 0/1" in header
    assert "free" not in header


@pytest.mark.parametrize("column", ["host", "gpu", "free", "most_free", "state", "age"])
def test_a_heading_has_room_for_its_arrow(column: str) -> None:
    view = replace(VIEW, sort=Sort(column))
    heading = picture((host(host_state("a")),), 80, 10, view).splitlines()[1]
    assert "▼" in heading
    assert "…" not in heading


def test_what_the_hosts_are_together_and_a_note_are_shown() -> None:
    noted = host(host_state("gpu-01", note="which GPUs there belong to slurm 7 is not known"))
    view = replace(VIEW, cursor="gpu-01")
    parts = FleetPicture().rows((noted,), view, NOON, 160, 24, "DEMO", "slurm 7")
    header, lines, rule = (
        "\n".join("".join(text for text, _ in row) for row in rows)
        for rows in (parts.header, parts.lines, parts.rule)
    )
    assert header.startswith(" gpumon  DEMO  slurm 7  hosts 1 ")
    assert "which GPUs there belong to slurm 7" in lines
    assert "gpu-01: which GPUs there belong to slurm 7 is not known" in rule


class Hand:
    """Presses keys, each of which refers to the last drawing."""

    def __init__(self, count: int = 16, width: int = 100, height: int = 24) -> None:
        self.hosts: tuple[HostSummary, ...] = demo_hosts(count)
        self.size = width, height
        self.view = FleetView(interval=1.0)
        self.message = ""
        self._picture = FleetPicture()
        self.draw()

    def draw(self) -> None:
        parts = self._picture.rows(self.hosts, self.view, NOON, *self.size)
        self.layout, self.view = parts.layout, parts.layout.view

    def press(
        self, key: Callable[..., FleetView | tuple[FleetView, str]], *arguments: object
    ) -> None:
        after = key(self.view, self.layout, *arguments)
        self.view, self.message = after if isinstance(after, tuple) else (after, "")
        self.draw()

    def filter(self, text: str) -> None:
        self.view = fleet_view.narrow(self.view, text)
        self.draw()

    def escape(self) -> None:
        self.view = fleet_view.clear_choice(self.view)
        self.draw()

    @property
    def names(self) -> list[str]:
        return [entry.host.name for entry in self.layout.entries if entry.host is not None]


def test_the_first_press_shows_the_cursor_and_it_stays_on_its_host() -> None:
    hand = Hand()
    hand.press(list_view.move, 1)
    assert hand.view.cursor == "gpu-01"
    hand.press(list_view.move, 1)
    hand.press(list_view.sort, "free")
    assert hand.view.cursor == "gpu-02"
    assert hand.layout.entry is not None
    assert hand.layout.entry.key == "gpu-02"


def test_free_first_and_sick_first() -> None:
    hand = Hand()
    hand.press(list_view.sort, "free")
    assert hand.names[0] == "gpu-10"
    assert hand.names[-1] == "gpu-07", "unknown comes last"
    assert hand.message == "sorted by FREE, descending"
    hand.press(list_view.sort, "state")
    assert set(hand.names[:2]) == {"gpu-04", "gpu-07"}
    hand.press(list_view.reverse)
    assert set(hand.names[-2:]) == {"gpu-04", "gpu-07"}
    hand.press(list_view.sort, "host")
    assert hand.names == sorted(hand.names)
    hand.press(list_view.sort, "pid")
    assert hand.message == "PID is no column of hosts"


def test_every_visible_column_can_be_sorted_by_in_every_list() -> None:
    hand = Hand(width=200)
    for press in ((), (fleet_view.switch_listing, "users"), (fleet_view.change_side,)):
        if press:
            hand.press(*press)
        for _ in range(len(hand.layout.headers) + 1):
            hand.press(list_view.sort_step, 1)
            assert hand.message.startswith("sorted by")


@pytest.mark.slow
def test_hosts_stand_beside_each_other_where_they_would_not_fit() -> None:
    hand = Hand(100, 200, 50)
    assert hand.layout.beside == 3
    assert len(hand.layout.visible) == 100
    hand.press(list_view.move, 1)
    hand.press(fleet_view.aside, 1)
    assert hand.view.cursor == hand.names[46]
    hand.press(fleet_view.aside, 1)
    hand.press(fleet_view.aside, 1)
    assert hand.view.cursor == hand.names[92]
    hand.press(fleet_view.aside, -1)
    hand.press(fleet_view.aside, -1)
    hand.press(fleet_view.aside, -1)
    assert hand.view.cursor == hand.names[0]
    assert hand.layout.line_at(0, 3) == 3
    assert hand.layout.line_at(70, 3) == 49
    assert hand.layout.line_at(199, 8) is None


def test_a_list_scrolls_with_its_cursor() -> None:
    hand = Hand(100, 80, 24)
    hand.press(list_view.move_to_end, 1)
    assert hand.layout.visible[-1] == 99
    hand.press(list_view.page, -1)
    assert hand.view.cursor == hand.names[79]
    hand.press(lambda view, _: view.scrolled(-200))
    assert hand.layout.visible[0] == 0


def test_a_filter_hides_hosts_and_escape_brings_them_back() -> None:
    hand = Hand()
    hand.press(list_view.move_to, 3)
    hand.filter("free>3")
    assert hand.names == ["gpu-03", "gpu-10", "gpu-16"]
    assert hand.view.cursor is None, "no key acts on what is hidden"
    hand.escape()
    assert len(hand.names) == 16


def test_enter_on_a_user_shows_their_processes_and_escape_goes_back_step_by_step() -> None:
    hand = Hand()
    hand.press(fleet_view.switch_listing, "users")
    assert [entry.user.user for entry in hand.layout.entries[:2] if entry.user] == ["ann", "erin"]
    hand.press(lambda view, _: fleet_view.narrow_to_user(view, "ann"))
    assert hand.view.listing is FleetListing.PROCESSES
    assert {one.process.user for one in hand.layout.entries if one.process} == {"ann"}
    hand.escape()
    assert len({one.process.user for one in hand.layout.entries if one.process}) > 5
    hand.escape()
    assert len(hand.names) == len({entry.key for entry in hand.layout.entries}) == 16
    before = hand.view
    hand.escape()
    assert hand.view is before, "nothing is left to clear"


def test_jobs_lead_to_their_machines_and_escape_goes_back_step_by_step() -> None:
    hand = Hand()
    hand.press(list_view.move_to, 3)
    hand.press(fleet_view.switch_listing, "jobs")
    first = hand.layout.entries[0].job
    assert first is not None
    assert first.label == "slurm 88117"
    hand.filter("job:88123")
    (entry,) = hand.layout.entries
    hand.press(lambda view, _: fleet_view.open_job(view, str(entry.key)))
    assert entry.job is not None
    assert hand.names == [node.host.name for node in entry.job.nodes]
    hand.press(list_view.sort, "lag")
    assert hand.message.startswith("sorted by LAGS")
    hand.escape()
    assert (hand.view.listing, hand.view.filter) == (FleetListing.JOBS, "job:88123")
    hand.escape()
    hand.escape()
    assert (hand.view.listing, hand.view.cursor) == (FleetListing.HOSTS, "gpu-04")


def test_a_filter_of_jobs_selects_by_their_processes_and_by_what_they_were_given() -> None:
    hand = Hand()
    hand.press(fleet_view.switch_listing, "jobs")

    def shown(text: str) -> set[str]:
        hand.filter(text)
        return {entry.job.label for entry in hand.layout.entries if entry.job is not None}

    assert shown("alloc:chen") == {"slurm 88123"}
    assert shown("user:dara cmd:eval") == {"torchrun 47302"}
    assert shown("alloc:nobody") == set()


def test_the_machines_of_a_job_that_has_ended_say_so() -> None:
    hand = Hand()
    hand.press(lambda view, _: fleet_view.open_job(view, "slurm 1"))
    assert hand.layout.entries == []
    rows = FleetPicture().rows(hand.hosts, hand.view, NOON, *hand.size)
    assert "the job has ended" in "".join(text for row in rows.lines for text, _ in row)


def test_a_user_whose_name_needs_quotes_is_found() -> None:
    hand = Hand()
    hand.press(lambda view, _: fleet_view.narrow_to_user(view, 'a "b" c'))
    assert hand.view.filter == 'user="a ""b"" c"'
    assert not hand.layout.entries
    hand.press(lambda view, _: fleet_view.narrow_to_user(view, None))
    assert "not visible" in hand.message


def test_each_list_keeps_its_cursor_and_its_filter() -> None:
    hand = Hand()
    hand.press(list_view.move_to, 5)
    hand.press(fleet_view.change_side)
    hand.filter("host:gpu-02")
    hand.press(list_view.move_to, 2)
    assert {entry.host.name for entry in hand.layout.entries if entry.host} == {"gpu-02"}
    hand.press(fleet_view.change_side)
    assert (hand.view.cursor, hand.view.filter) == ("gpu-06", "")
    hand.press(fleet_view.change_side)
    assert hand.view.filter == "host:gpu-02"
    assert hand.layout.entry is hand.layout.entries[2]


def test_the_footer_offers_what_works() -> None:
    hand = Hand()

    def labels() -> list[str]:
        return [key.label for key in fleet_keys(hand.layout)]

    assert "open" not in labels()
    hand.press(list_view.move, 1)
    assert {"open", "filter", "free first", "worst first"} <= set(labels())
    hand.press(fleet_view.switch_listing, "users")
    assert not {"filter", "free first"} & set(labels())
    assert next(key for key in fleet_keys(hand.layout) if key.label == "users").on
