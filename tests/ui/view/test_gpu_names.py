"""Names of GPUs in the list: apart from the next column, and apart from other models."""

from __future__ import annotations

import re

import pytest

from gpumon.ui.view.gpu_text import short_name
from tests.build import NOON, gpu, snapshot
from tests.ui.view.drawing import dashboard_of, lines_of

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
