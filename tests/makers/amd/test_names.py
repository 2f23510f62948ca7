"""Names of AMD GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.makers.amd import names
from gpumon.makers.amd.backend import architecture
from gpumon.makers.amd.names import gpu_name
from tests.absent import ABSENT

TABLE = (
    "# List of AMDGPU IDs\n\n1.0.0\n"
    "73BF,\tC3,\tAMD Radeon RX 6800\n1309,\t00,\tRadeon R7 Graphics\n"
)


def test_the_table_of_libdrm_gives_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "amdgpu.ids"
    path.write_text(TABLE)
    monkeypatch.setattr(names, "IDS_PATHS", (ABSENT, str(path)))
    assert gpu_name(0x73BF, 0xC3) == "AMD Radeon RX 6800"
    assert gpu_name(0x1309, 0x00) == "AMD Radeon R7 Graphics"


@pytest.mark.parametrize(
    ("device", "revision", "board", "name"),
    [
        # libdrm's amdgpu.ids
        (0x67DF, 0xE7, None, "AMD Radeon RX 580 Series"),
        (0x731F, 0xC1, None, "AMD Radeon RX 5700 XT"),
        (0x744C, 0xC8, None, "AMD Radeon RX 7900 XTX"),
        (0x7550, 0xC0, None, "AMD Radeon RX 9070 XT"),
        (0x74A1, 0x00, None, "AMD Instinct MI300X"),
        # What no table has is named by its board or number.
        (0x1234, 0x01, "Instinct MI999", "AMD Instinct MI999"),
        (0x744C, 0xFF, None, "AMD GPU 0x744c"),
        (0x744C, None, None, "AMD GPU 0x744c"),
        (None, None, None, "AMD GPU"),
    ],
)
def test_common_models_have_their_name_without_libdrm(
    device: int | None, revision: int | None, board: str | None, name: str
) -> None:
    assert gpu_name(device, revision, board) == name


@pytest.mark.parametrize(
    ("version", "name"),
    [(90010, "gfx90a"), (90402, "gfx942"), (110000, "gfx1100"), (120001, "gfx1201"), (0, None)],
)
def test_the_architecture_is_the_target_of_the_compiler(version: int, name: str | None) -> None:
    assert architecture(version) == name
