"""Keys on the screen of many hosts: the cursor, lists, sorting and filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.ui.view import fleet_view, list_view
from gpumon.ui.view.fleet_rows import FleetPicture, fleet_keys
from gpumon.ui.view.fleet_view import FleetListing, FleetView
from tests.build import NOON
from tests.hosts import demo_hosts

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.fleet.summary import HostSummary


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
