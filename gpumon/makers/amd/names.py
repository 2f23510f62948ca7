"""Names of AMD's GPUs, by PCI device ID and revision.

libdrm brings a table of them, ``amdgpu.ids``. Machines with only ROCm may lack it, so the common
models are here too, with the names of that table or, where it has none for the revision, of the PCI
ID database (pci-ids.ucw.cz).
"""

from __future__ import annotations

from gpumon.host.procfs import read_file

IDS_PATHS = ("/usr/share/libdrm/amdgpu.ids", "/opt/amdgpu/share/libdrm/amdgpu.ids")

_MAKER = "AMD "
_IDS_BYTES = 1024 * 1024
_FIELDS = 3

_ANY = -1
"""Stands for every revision."""

_COMMON: dict[tuple[int, int], str] = {
    (0x1586, _ANY): "AMD Radeon 8050S / 8060S Graphics",
    (0x150E, _ANY): "AMD Radeon 880M / 890M Graphics",
    (0x15BF, _ANY): "AMD Radeon 780M Graphics",
    (0x15E7, _ANY): "AMD Radeon Graphics",
    (0x1636, _ANY): "AMD Radeon Graphics",
    (0x1638, _ANY): "AMD Radeon Graphics",
    (0x163F, _ANY): "AMD Custom GPU 0405",
    (0x66A1, 0x02): "AMD Instinct MI60 / MI50",
    (0x66A1, 0x06): "AMD Radeon Pro VII",
    (0x66AF, 0xC1): "AMD Radeon VII",
    (0x67DF, 0xC7): "AMD Radeon RX 480 Graphics",
    (0x67DF, 0xE7): "AMD Radeon RX 580 Series",
    (0x67DF, 0xEF): "AMD Radeon RX 570 Series",
    (0x687F, _ANY): "AMD Radeon RX Vega",
    (0x731F, 0xC1): "AMD Radeon RX 5700 XT",
    (0x731F, 0xC4): "AMD Radeon RX 5700",
    (0x7340, 0xC5): "AMD Radeon RX 5500 XT",
    (0x738C, _ANY): "AMD Instinct MI100",
    (0x73BF, 0xC0): "AMD Radeon RX 6900 XT",
    (0x73BF, 0xC1): "AMD Radeon RX 6800 XT",
    (0x73BF, 0xC3): "AMD Radeon RX 6800",
    (0x73FF, 0xC1): "AMD Radeon RX 6600 XT",
    (0x73FF, 0xC7): "AMD Radeon RX 6600",
    (0x7408, _ANY): "AMD Instinct MI250X",
    (0x740C, _ANY): "AMD Instinct MI250X / MI250",
    (0x740F, _ANY): "AMD Instinct MI210",
    (0x744C, 0xC8): "AMD Radeon RX 7900 XTX",
    (0x744C, 0xCC): "AMD Radeon RX 7900 XT",
    (0x747E, 0xC8): "AMD Radeon RX 7800 XT",
    (0x74A0, _ANY): "AMD Instinct MI300A",
    (0x74A1, _ANY): "AMD Instinct MI300X",
    (0x74A5, _ANY): "AMD Instinct MI325X",
    (0x7550, 0xC0): "AMD Radeon RX 9070 XT",
    (0x7550, 0xC3): "AMD Radeon RX 9070",
}


def gpu_name(device: int | None, revision: int | None, product: str | None = None) -> str:
    """The name of a model; it begins with ``AMD``.

    ``product`` is the name that the board has (``product_name``), for a model that no table has.
    """
    if device is None:
        return "AMD GPU"
    known = None if revision is None else _listed(device, revision)
    if known is None and revision is not None:
        known = _COMMON.get((device, revision))
    known = known or _COMMON.get((device, _ANY)) or product
    if known is None:
        return f"AMD GPU {device:#06x}"
    return known if known.startswith(_MAKER) else _MAKER + known


def _listed(device: int, revision: int) -> str | None:
    """The name in the first table that can be read: lines of ``DEVICE, REVISION, NAME``."""
    for path in IDS_PATHS:
        try:
            text = read_file(path, _IDS_BYTES).decode(errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            parts = [part.strip() for part in line.split(",", _FIELDS - 1)]
            if len(parts) == _FIELDS and (_hex(parts[0]), _hex(parts[1])) == (device, revision):
                return parts[2] or None
    return None


def _hex(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None
