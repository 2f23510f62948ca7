"""The screen of many hosts as text: what stands on it at every size, and nothing hostile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from gpumon.fleet.fleet import HostOrigin, HostStatus
from gpumon.model.snapshot import GpuStatus
from gpumon.text.cells import row_width
from gpumon.text.charset import substitute
from gpumon.text.table import Sort
from gpumon.ui.view.fleet_rows import FleetParts, FleetPicture
from gpumon.ui.view.fleet_view import FleetListing, FleetView, show_list
from tests.build import GIB, NOON, gpu, process
from tests.hosts import demo_hosts, host, host_state

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from gpumon.fleet.summary import HostSummary
    from gpumon.text.cells import Row

pytestmark = pytest.mark.usefixtures("utc")

VIEW = FleetView(interval=1.0)
PICTURED = [(200, 50), (100, 24)]
SIZES = [(200, 50), (140, 40), (100, 24), (80, 24), (60, 15), (40, 10), (20, 5)]


def all_rows(parts: FleetParts) -> list[Row]:
    return [*parts.header, *parts.lines, *parts.rule, *parts.footer]


def picture(hosts: tuple[HostSummary, ...], width: int, height: int, view: FleetView = VIEW) -> str:
    rows = all_rows(FleetPicture().rows(hosts, view, NOON + 1, width, height, "DEMO"))
    assert [row_width(row) for row in rows] == [width] * height
    return "\n".join("".join(text for text, _ in row).rstrip() for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "count"),
    [
        *((size, 16) for size in SIZES),
        # ``test_same_pictures`` has the others of few and many hosts, cell by cell.
        *((size, count) for size in SIZES if size not in PICTURED for count in (3, 100)),
    ],
    ids=lambda value: "x".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_the_hosts_look_as_they_did(
    size: tuple[int, int], count: int, snapshot: SnapshotAssertion
) -> None:
    assert picture(demo_hosts(count), *size) == snapshot


@pytest.mark.parametrize("listing", [FleetListing.USERS, FleetListing.PROCESSES])
@pytest.mark.parametrize("size", SIZES[2:], ids=lambda size: f"{size[0]}x{size[1]}")
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
    down = msgspec.structs.replace(
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
    narrowed = msgspec.structs.replace(VIEW, filter="free>9")
    assert "no host matches free>9 · Esc shows all" in picture(hosts, 80, 24, narrowed)
    assert "0 of 3 hosts · free>9" in picture(hosts, 80, 24, narrowed)
    assert "connecting" in picture((), 80, 24)


def test_the_host_under_the_cursor_has_its_whole_sentence() -> None:
    text = picture(demo_hosts(16), 140, 40, msgspec.structs.replace(VIEW, cursor="gpu-04"))
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
    down = msgspec.structs.replace(live, status=HostStatus.DOWN)
    header = picture((host(live, down),), 100, 10).splitlines()[0]
    assert "hosts 0/1" in header
    assert "free" not in header


@pytest.mark.parametrize("column", ["host", "gpu", "free", "most_free", "state", "age"])
def test_a_heading_has_room_for_its_arrow(column: str) -> None:
    view = msgspec.structs.replace(VIEW, sort=Sort(column))
    heading = picture((host(host_state("a")),), 80, 10, view).splitlines()[1]
    assert "▼" in heading
    assert "…" not in heading


def test_what_the_hosts_are_together_and_a_note_are_shown() -> None:
    noted = host(host_state("gpu-01", note="which GPUs there belong to slurm 7 is not known"))
    view = msgspec.structs.replace(VIEW, cursor="gpu-01")
    parts = FleetPicture().rows((noted,), view, NOON, 160, 24, "DEMO", "slurm 7")
    header, lines, rule = (
        "\n".join("".join(text for text, _ in row) for row in rows)
        for rows in (parts.header, parts.lines, parts.rule)
    )
    assert header.startswith(" gpumon  DEMO  slurm 7  hosts 1 ")
    assert "which GPUs there belong to slurm 7" in lines
    assert "gpu-01: which GPUs there belong to slurm 7 is not known" in rule
