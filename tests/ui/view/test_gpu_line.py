"""The line of a GPU: what its cells are used for at each width, its name and its state."""

from __future__ import annotations

import re

import pytest

from gpumon.findings import Finding, FindingKind, Severity
from gpumon.text.charset import substitute
from gpumon.ui.view import dashboard_view
from gpumon.ui.view.dashboard_rows import Parts
from gpumon.ui.view.gpu_text import STATE_SIGNS, short_name, state_field
from tests.build import GIB, NOON, gpu, snapshot
from tests.ui.view.drawing import Live, dashboard_of, demo, demo_dashboard, lines_of


def lines(width: int, height: int = 24) -> list[str]:
    """The demo's list of GPUs, with its heading."""
    return lines_of(demo_dashboard(8, width, height).gpus)


def widths(parts: Parts) -> dict[str, int]:
    assert parts.layout.line_columns is not None
    return dict(parts.layout.line_columns.widths)


@pytest.mark.parametrize(("width", "height"), [(200, 24), (200, 50), (240, 50), (300, 60)])
def test_the_bars_of_a_wide_terminal_have_more_cells_than_blank_cells_of_the_state(
    width: int, height: int
) -> None:
    parts = demo_dashboard(8, width, height)
    found = widths(parts)
    heading, *shown = lines_of(parts.gpus)
    at = heading.index("state")
    states = [line[at : at + found["state"]] for line in shown]
    blank = min(len(state) - len(state.rstrip()) for state in states)
    assert blank <= 20
    bars = found["memory_bar"] + found["util_bar"] + found.get("spark", 0)
    assert bars >= (width - 100) // 2


@pytest.mark.parametrize("width", [200, 240, 300])
def test_a_wide_terminal_names_every_holder(width: int) -> None:
    shown = lines(width, 50)[8]
    assert re.search(r"svc-llm 26\.0G, finn.*, dara.*, gina", shown)
    if width >= 240:
        assert "svc-llm 26.0G, finn 6.8G, dara 4.7G, gina 1.2G" in shown


def test_the_first_holder_keeps_the_amount_where_the_others_have_only_names() -> None:
    assert "ann 48.5G, dara  " in lines(80)[1]


@pytest.mark.parametrize("width", [80, 120, 200, 300])
def test_no_state_moves_a_column(width: int) -> None:
    now, history = demo()
    quiet = snapshot(now.time, *now.gpus)
    before, after = (dashboard_of(each, width, 50, history=history) for each in (now, quiet))
    assert before.layout.line_columns == after.layout.line_columns


def test_the_small_graph_tells_apart_what_the_bar_of_utilisation_shows_alike() -> None:
    heading, *rows = lines(100)
    assert heading.endswith(" power 60 s")
    graph = {index: rows[index][-10:] for index in (1, 2, 5)}
    bars = {index: re.search(r"% (▇+) ", rows[index]) for index in graph}
    assert {match and match[1] for match in bars.values()} == {"▇" * 5}
    assert set(graph[1]) == {"▃"}, "busy but empty"
    assert set(graph[2]) == {"▇"}, "hot"
    assert set(graph[5]) == {"▂"}, "stuck"


@pytest.mark.parametrize("changes", [{"power_draw": None}, {"power_limit": None}])
def test_without_a_power_cap_the_small_graph_is_utilisation(changes: dict[str, None]) -> None:
    cards = [gpu(index=index, utilization_gpu=50, **changes) for index in range(8)]
    heading, first, *_ = lines_of(dashboard_of(snapshot(NOON, *cards)).gpus)
    assert heading.endswith(" util 60 s ")
    assert "▅" in first


def test_the_key_goes_on_from_what_the_small_graph_shows() -> None:
    parts = demo_dashboard()
    view, message = dashboard_view.show_next_graph(parts.layout.view, parts.layout)
    assert message == "the graphs show temperature, against where it slows down"
    assert view.graph == "temperature"


@pytest.mark.parametrize("cards", [1, 8])
def test_the_key_changes_large_charts_each_time(cards: int) -> None:
    gpus = [gpu(index=index, utilization_gpu=50, memory_used=GIB) for index in range(cards)]
    screen = Live(width=200, height=50)
    screen.see(snapshot(NOON, *gpus))
    for name, shown in (
        ("power", "power, against its cap"),
        ("temperature", "temperature, against where it slows down"),
        ("util", "utilisation and memory"),
        ("power", "power, against its cap"),
    ):
        before = screen.draw()
        screen.view, message = dashboard_view.show_next_graph(before.layout.view, before.layout)
        after = screen.draw()
        assert (before.gpus, before.graphs) != (after.gpus, after.graphs)
        assert (screen.view.graph, message) == (name, f"the graphs show {shown}")


def test_every_state_has_a_sign_of_its_own_which_the_help_explains() -> None:
    signs = [sign for sign, _ in STATE_SIGNS]
    assert len(set(signs)) == len(signs)
    plain = [substitute(sign) for sign in signs]
    assert len(set(plain)) == len(plain), "also where only ASCII is shown"
    for kind in FindingKind:
        for severity in Severity:
            state = Finding(kind, "GPU-0", severity, "it is so", "so", "so")
            assert state_field(state, 10)[0][0] in signs
    idle, full, asleep = (
        state_field(Finding(kind, "GPU-0", Severity.NOTE, "", "", ""), 2)[0][0]
        for kind in (FindingKind.IDLE, FindingKind.FULL, FindingKind.ASLEEP)
    )
    assert (idle, full, asleep) == ("◐", "■", "◌")


MODELS = [
    ["Tesla T4", "NVIDIA L4"],
    ["NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU"],
    ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"],
    ["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB"],
    ["NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-40GB"],
    ["Tesla V100-SXM2-16GB", "Tesla V100-PCIE-16GB", "Tesla V100-SXM2-32GB"],
    ["NVIDIA GeForce RTX 4070", "NVIDIA GeForce RTX 4070 Ti", "NVIDIA GeForce RTX 4070 Ti SUPER"],
    ["NVIDIA GeForce GTX 1650", "NVIDIA GeForce GTX 1650 with Max-Q Design"],
    ["Quadro RTX 6000", "NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX A6000"],
    ["Quadro T1000", "NVIDIA T1000", "NVIDIA T1000 8GB"],
    [
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    ],
    ["Tesla M40", "Tesla M40 24GB"],
    ["NVIDIA H20", "NVIDIA H20-3e", "NVIDIA H200"],
    ["AMD Radeon RX 7900 XTX", "AMD Radeon RX 7900 XT", "AMD Radeon RX 7900 GRE"],
    ["AMD Instinct MI250X / MI250", "AMD Instinct MI250X"],
    ["AMD Radeon Graphics", "Intel Graphics"],
    ["AMD Radeon VII", "AMD Radeon Pro VII"],
    ["Intel Data Center GPU Max 1550", "Intel Data Center GPU Max 1550VG"],
    ["Intel Arc A770", "Intel Arc A770M"],
    # Two names that only an unknown order of words distinguishes.
    ["NVIDIA X1 a b", "NVIDIA X1 b a"],
]


def gpu_lines(names: list[str], width: int, height: int = 24) -> list[str]:
    """The heading and the lines of GPUs of these models."""
    cards = [gpu(index=at, name=name) for at, name in enumerate(names)]
    return lines_of(dashboard_of(snapshot(NOON, *cards), width, height).gpus)


@pytest.mark.parametrize("width", [240, 300])
def test_a_wide_terminal_shows_every_name_in_full(width: int) -> None:
    for names in MODELS:
        lines = gpu_lines([*names, *names], width)[1:]
        for name, line in zip([*names, *names], lines, strict=True):
            assert f"{short_name(name)} " in line


@pytest.mark.slow
@pytest.mark.parametrize("width", range(60, 301, 10))
def test_a_name_is_not_cut(width: int) -> None:
    for names in MODELS:
        heading, *lines = gpu_lines([*names, *names], width)
        assert "…" not in "".join(line[: heading.index("state")] for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("names", MODELS, ids=lambda names: names[0])
@pytest.mark.parametrize("size", [(200, 50), (120, 35), (100, 24), (80, 24), (60, 15)])
def test_models_on_one_machine_have_different_names(
    names: list[str], size: tuple[int, int]
) -> None:
    # Lines, not panels, and each model twice.
    cards = [gpu(index=at, name=name) for at, name in enumerate([*names, *names])]
    texts = lines_of(dashboard_of(snapshot(NOON, *cards), *size).all())
    heading = next(text for text in texts if text.startswith(" # "))
    assert re.match(r" # +GPU +state +memory ", heading)
    at = heading.index("state")
    shown = [text[3:at] for text in texts if re.match(r" ?\d+ ", text)][: len(cards)]
    assert len(shown) == len(cards)
    assert shown[: len(names)] == shown[len(names) :]
    assert len(set(shown)) == len(names)
    assert all(text.strip() and text.endswith(" ") for text in shown)
