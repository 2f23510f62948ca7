"""The machine's line: its course over time, unknown never zero, at any width, on demand."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion

from gpumon.model.network import Nic, NicKind
from gpumon.model.snapshot import Host
from gpumon.recording.history import History
from gpumon.text.cells import row_width
from gpumon.ui.view.dashboard_rows import Dashboard
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.host_strip import host_rows
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.ui.view.drawing import history_of, text_of

HOST = Host("ada-07", cpu_count=96, memory_total=1008 * GIB)


def host(second: int) -> Host:
    """Busier and busier, then unknown for ten seconds, then busy."""
    if 40 <= second < 50:
        return HOST
    return replace(
        HOST,
        cpu_percent=min(100.0, 2.0 * second),
        memory_used=(200 + second) * GIB,
        load=(float(second), 1.0, 1.0),
    )


def seen(seconds: int = 70) -> History:
    now = snapshot(NOON, gpu(), gpu(index=1), gpu(index=2))
    course = (replace(now, time=NOON + second, host=host(second)) for second in range(seconds))
    return history_of(*course)


def lines(width: int, tall: int, seconds: int = 70, window: float = 60.0) -> list[str]:
    history = seen(seconds)
    used = (
        replace(process(pid=7, user="ann"), cpu_percent=650.0, rss=30 * GIB),
        replace(process(pid=8, user="bo"), cpu_percent=150.0, rss=10 * GIB),
    )
    rows = host_rows(Memo(), host(seconds - 1), used, history, history.now, window, width, tall)
    assert {row_width(row) for row in rows} <= {width}
    return [text_of(row).rstrip() for row in rows]


@pytest.mark.parametrize("size", [(60, 1), (80, 1), (120, 1), (120, 2), (200, 2)])
def test_the_line_looks_as_it_did(size: tuple[int, int], snapshot: SnapshotAssertion) -> None:
    assert "\n".join(lines(*size)) == snapshot


def test_what_is_unknown_is_dotted_and_said_to_be_unknown() -> None:
    (line,) = lines(245, 1, 45)
    assert "cpu  –/96 cores" in line
    assert "ram    –G free" in line
    assert "load     –    –    –" in line
    (line,) = lines(245, 1)
    graph = line[line.index("cores") + 6 : line.index("ram")]
    # Ten seconds in cells of a second, less as long as the value before them stands.
    assert "····▇" in graph


def test_it_says_what_the_header_does_not() -> None:
    (line,) = lines(200, 1)
    # 2 × 69 s is more than all; the header has the percent and the memory in use.
    assert "cpu 96/96 cores" in line
    assert "ram  739G free" in line
    assert "load  69.0  1.0  1.0" in line
    assert line.endswith("GPU processes:   8.0 cores,   40G ram, most by 7 ann: 6.5")
    assert "GPU processes:   8.0 cores,   40G ram" in lines(130, 1)[0]
    assert "GPU processes" not in lines(80, 1)[0], "graphs come first"
    load = lines(56, 1)[0].split("load")[1]
    assert load.split()[0] == "69.0"
    assert "1." not in load, "no number is cut"


@pytest.mark.slow
@pytest.mark.parametrize("tall", [1, 2])
def test_every_complete_cell_of_a_long_window_has_its_value(tall: int) -> None:
    for seconds in range(200, 420, 20):
        row = lines(120, tall, seconds, window=1800.0)[-1]
        graph = row[row.index("cores") + 6 : row.index("ram") - 2]
        cell = 1800 / len(graph)
        known = math.floor((NOON + seconds - 1) / cell) - math.ceil(NOON / cell)
        shown = graph[len(graph) - known :]
        assert all(sign not in " ·⠀" for sign in shown), (seconds, graph)
        assert known or seconds < 300


def test_the_dashboard_has_it_only_on_demand_and_keeps_its_height() -> None:
    history = seen()
    for size in ((60, 15), (80, 24), (100, 24), (200, 50)):
        views = (View(interval=1.0, host_strip=on) for on in (False, True))
        without, with_it = (Dashboard(history).rows(history.latest, it, *size) for it in views)
        assert without.host == []
        assert len(with_it.host) == (2 if size[1] >= 40 else 1)
        assert len(with_it.all()) == len(without.all()) == size[1]
        assert {row_width(row) for row in with_it.all()} == {size[0]}


def test_a_tiny_terminal_has_none() -> None:
    history = seen()
    parts = Dashboard(history).rows(history.latest, View(interval=1.0, host_strip=True), 50, 12)
    assert parts.host == []
    assert len(parts.tiny) == 12


NIC = Nic("mlx5_0", NicKind.ROCE, up=True, receive_rate=1e9, transmit_rate=2e9)


def shown_with(nic: Nic, width: int) -> str:
    history = seen()
    there = replace(host(69), nics=(nic,))
    (row,) = host_rows(Memo(), there, (), history, history.now, 60.0, width, 1)
    assert row_width(row) == width
    return text_of(row)


def test_the_traffic_of_the_network_stands_where_there_is_room() -> None:
    assert "NIC  1.0 GB/s in,  2.0 GB/s out" in shown_with(NIC, 200)
    assert "NIC" not in shown_with(NIC, 100)
    assert "GPU processes" in shown_with(NIC, 140)


def test_a_lost_link_stands_on_a_narrow_line_too() -> None:
    lost = replace(NIC, up=False, link_lost_at=NOON + 9)
    for width in (100, 140, 200):
        assert "mlx5_0: link down 1m ago" in shown_with(lost, width)
