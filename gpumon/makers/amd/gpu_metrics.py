"""Parses ``gpu_metrics``, the binary table of a GPU's firmware that amdgpu passes on.

The layouts are the structures of ``drivers/gpu/drm/amd/include/kgd_pp_interface.h`` in the kernel.
The table begins with its size, the revision of its format (1 for discrete GPUs and the Instinct
accelerators, 2 and 3 for APUs) and the revision of its content. A table with another revision, or
with another size than its structure has, is not read: 1.9 already has nothing in common with 1.8.

A value with all bits set is not filled in by the firmware. ``event_reasons`` makes of a table why
the firmware limits the clocks.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from msgspec import Struct

TABLE_BYTES = 4096
"""The kernel writes at most a page."""

_HEADER = struct.Struct("<HBB")
_LARGEST = {2: 0xFFFF, 4: 0xFFFFFFFF, 8: 0xFFFFFFFFFFFFFFFF}
_SIZES = {"B": 1, "H": 2, "I": 4, "Q": 8}

_JOULES = 2.0**-16
"""The unit of ``energy_accumulator``: "15.259uJ (2^-16)"."""

# Fields whose meaning is used have their name in the header, most others are "-". Of the arrays
# below, each entry is NAME:TYPE or NAME:TYPE*COUNT, with B, H, I, Q for 8, 16, 32 and 64 bits.
_CLOCKS_1 = "-:H*7 gfxclk:H -:H uclk:H vclk:H -:H*3"
_TEMPERATURES_1 = "edge:H hotspot:H mem:H -:H*3"
_V1_1 = (
    f"{_TEMPERATURES_1} gfx_activity:H umc_activity:H -:H power:H energy:Q -:Q {_CLOCKS_1} -:I "
    "fan:H pcie_width:H pcie_speed:H -:H -:I*2 -:H*4"
)
_V1_3 = f"{_V1_1} -:Q -:H*4 throttle:Q"
_XGMI = "xgmi_read:Q*8 xgmi_write:Q*8"
_CLOCKS_4 = "gfxclk:H*8 -:H*4 vclk:H*4 -:H*4 uclk:H"
_HEAD_4 = "hotspot:H mem:H -:H power:H gfx_activity:H umc_activity:H"
_LINKS_4 = "pcie_width:H pcie_speed:H -:H*2 -:I*2 -:Q*2 -:Q*3"
_RESIDENCIES = "cycles:I prochot:I ppt:I socket_thm:I vr_thm:I hbm_thm:I"
_V1_6 = f"energy:Q -:Q {_RESIDENCIES} -:I {_LINKS_4} -:I*2 {_XGMI}"
_V2_HEAD = "gfx:H soc:H -:H*8 -:H*2 gfx_activity:H -:H"
_V2_REST = "-:H*4 -:H*8 -:H*6 gfxclk:H -:H uclk:H -:H vclk:H -:H -:H*8 -:H*2 -:I -:H"
_V2_1 = f"{_V2_HEAD} -:Q {_V2_REST} -:H*3"

_LAYOUTS = {
    (1, 0): f"-:Q {_TEMPERATURES_1} gfx_activity:H umc_activity:H -:H power:H -:I "
    f"{_CLOCKS_1} -:I fan:H pcie_width:B pcie_speed:B",
    (1, 1): _V1_1,
    (1, 2): f"{_V1_1} -:Q",
    (1, 3): _V1_3,
    (1, 4): f"{_HEAD_4} vcn_activity:H*4 energy:Q -:Q -:I*2 {_LINKS_4} {_XGMI} -:Q {_CLOCKS_4} -:H",
    (1, 5): f"{_HEAD_4} vcn_activity:H*4 jpeg_activity:H*32 energy:Q -:Q -:I*2 {_LINKS_4} -:I*2 "
    f"{_XGMI} -:Q {_CLOCKS_4} -:H",
    # The partitions' part: XCP_BYTES of each, which begin with 32-bit activities of 8 dies.
    (1, 6): f"{_HEAD_4} {_V1_6} -:Q {_CLOCKS_4} -:H xcp:Q*168 -:I",
    (1, 7): f"{_HEAD_4} -:Q {_V1_6} -:H*8 -:H -:Q {_CLOCKS_4} -:H xcp:Q*232 -:I",
    (1, 8): f"{_HEAD_4} -:Q {_V1_6} -:H*8 -:H -:Q {_CLOCKS_4} -:H xcp:Q*440 -:I",
    (2, 0): f"-:Q {_V2_HEAD} {_V2_REST} -:H",
    (2, 1): _V2_1,
    (2, 2): f"{_V2_1} throttle:Q",
    (2, 3): f"{_V2_1} throttle:Q -:H*12",
    (2, 4): f"{_V2_1} throttle:Q -:H*12 -:H*6",
    (3, 0): "gfx:H soc:H -:H*16 -:H gfx_activity:H -:H -:H*8 -:H*16 -:H*4 -:Q power:I "
    "-:H apu_power:I gfx_power:I -:I -:I -:H*16 -:H -:H*2 gfxclk:H -:H*4 vclk:H uclk:H -:H "
    "-:H*16 -:H*2 -:I*7 -:I",
}


class Residencies(NamedTuple):
    """How long the firmware has limited the clocks, in its cycles, since the driver was loaded."""

    cycles: int  # The cycles that passed.
    prochot: int  # Those in which a signal from outside the GPU was active (``PROCHOT``).
    ppt: int  # Those at the limit of power.
    socket_thm: int  # Those at the limit of the temperature of the chip.
    vr_thm: int  # Those at the limit of the temperature of the voltage regulators.
    hbm_thm: int  # Those at the limit of the temperature of the memory.


class GpuMetrics(Struct, frozen=True):
    """The values of one table that gpumon uses. ``None`` is unknown."""

    # Percent of time that the graphics and compute engine worked. Not of formats 2.x: their unit
    # depends on the APU.
    gfx_activity: int | None = None
    umc_activity: int | None = None  # Percent of time that the memory controller worked.
    # Percent of each video engine, which only decode. Only of MI300.
    vcn_activity: tuple[int, ...] = ()
    jpeg_activity: tuple[int, ...] = ()  # Percent of each JPEG decoder.
    energy: float | None = None  # Joules since the driver was loaded.
    energy_has_unit: bool = False  # Whether the header gives the unit for this format.
    clock_memory: int | None = None  # MHz.
    clock_video: int | None = None  # MHz; the highest of several.
    throttle: int | None = None  # Why clocks are limited, as the bits ``SMU_THROTTLER_..._BIT``.
    residencies: Residencies | None = None  # How long they were.
    pcie_width: int | None = None  # Lanes.
    pcie_speed: int | None = None  # In tenths of GT/s.


class _Field(NamedTuple):
    offset: int
    kind: str
    length: int


class _Layout(NamedTuple):
    size: int
    fields: dict[str, _Field]


@cache
def _layout(version: tuple[int, int]) -> _Layout | None:
    """Offsets as the C compiler of a 64-bit kernel places the fields; ``None`` if unknown."""
    text = _LAYOUTS.get(version)
    if text is None:
        return None
    offset, widest = _HEADER.size, 2
    fields = {}
    for entry in text.split():
        name, _, kind = entry.partition(":")
        kind, _, count = kind.partition("*")
        size = _SIZES[kind]
        offset += -offset % size
        fields[name] = _Field(offset, kind, int(count or 1))
        offset += size * int(count or 1)
        widest = max(widest, size)
    fields.pop("-", None)
    return _Layout(offset + -offset % widest, fields)


def parse_gpu_metrics(data: bytes) -> GpuMetrics | None:
    """The values of a table; ``None`` if it is none that is known here, or is cut off."""
    if len(data) < _HEADER.size:
        return None
    size, form, content = _HEADER.unpack_from(data)
    layout = _layout((form, content))
    if layout is None or size != layout.size or len(data) < size:
        return None
    table = _Table(data, layout.fields)
    energy = table.number("energy")
    return GpuMetrics(
        gfx_activity=None if form == 2 else _percent(table.number("gfx_activity")),
        umc_activity=_percent(table.number("umc_activity")),
        vcn_activity=_percents(table.numbers("vcn_activity")),
        jpeg_activity=_percents(table.numbers("jpeg_activity")),
        energy=None if energy is None else energy * _JOULES,
        energy_has_unit=energy is not None and content >= 4,
        clock_memory=table.number("uclk"),
        clock_video=max(table.numbers("vclk"), default=None),
        throttle=table.number("throttle"),
        residencies=table.residencies(),
        pcie_width=table.number("pcie_width"),
        pcie_speed=table.number("pcie_speed"),
    )


class _Table(NamedTuple):
    data: bytes
    fields: dict[str, _Field]

    def numbers(self, name: str) -> list[int]:
        """The values of a field that are filled in."""
        field = self.fields.get(name)
        if field is None:
            return []
        values = struct.unpack_from(f"<{field.length}{field.kind}", self.data, field.offset)
        absent = _LARGEST.get(_SIZES[field.kind])
        return [value for value in values if value != absent]

    def number(self, name: str) -> int | None:
        """The value of a field; ``None`` if it is not there or not filled in."""
        numbers = self.numbers(name)
        return numbers[0] if numbers else None

    def residencies(self) -> Residencies | None:
        """The residencies; ``None`` if one is missing."""
        values = [number for name in Residencies._fields for number in self.numbers(name)]
        return Residencies(*values) if len(values) == len(Residencies._fields) else None


_WHOLE = 100


def _percent(value: int | None) -> int | None:
    """A share of time; ``None`` if it is in another unit than percent."""
    return value if value is not None and value <= _WHOLE else None


def _percents(values: list[int]) -> tuple[int, ...]:
    return tuple(value for value in values if value <= _WHOLE)


_POWER_CAP, _SLOWDOWN, _SOFT_THERMAL, _THERMAL = 0x004, 0x008, 0x020, 0x040

_POWER = 0xFF
"""Bits 0 to 7, limits of power; this and the next are ``SMU_THROTTLER_..._BIT`` of
``drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h``."""

_CURRENT = 0xFF << 16
"""Bits 16 to 23, limits of current. They come with load as those of power do."""

_TEMPERATURE = 0xFFF << 32
"""Bits 32 to 43: the firmware keeps a temperature below its limit."""

_REGULATOR_HOT = 0x3 << 44
"""Bits 44 and 45, ``VRHOT``: a voltage regulator has signalled that it is too hot."""

_PROCHOT = 0x3 << 46
"""Bits 46 and 47: a signal from outside of the GPU, because of heat or lack of power."""


def event_reasons(
    metrics: GpuMetrics, before: Residencies | None
) -> tuple[int | None, Residencies | None]:
    """The reasons; ``None`` if the table does not have them in a form common to all GPUs.

    MI300 counts how long each limit was active, so its reasons are those since the last reading.

    Args:
        metrics: The table now.
        before: What this function returned at the last reading.

    Returns:
        The reasons, and what the next call needs.
    """
    if metrics.throttle is not None:
        reasons = _from_bits(metrics.throttle)
        if metrics.gfx_activity == 0:
            # Heat slows no idle GPU: an RX 7600S sets the bit at 54 °C (its capture in the tests).
            reasons &= ~_SOFT_THERMAL
        return reasons, None
    now = metrics.residencies
    if now is None or before is None or now.cycles == before.cycles:
        return None, now or before
    reasons = 0
    for name, bit in _COUNTED.items():
        if getattr(now, name) != getattr(before, name):
            reasons |= bit
    return reasons, now


_COUNTED = {
    "ppt": _POWER_CAP,
    "prochot": _SLOWDOWN,
    "socket_thm": _SOFT_THERMAL,
    "hbm_thm": _SOFT_THERMAL,
    "vr_thm": _SOFT_THERMAL,
}


def _from_bits(bits: int) -> int:
    reasons = 0
    if bits & (_POWER | _CURRENT):
        reasons |= _POWER_CAP
    if bits & _TEMPERATURE:
        reasons |= _SOFT_THERMAL
    if bits & _REGULATOR_HOT:
        reasons |= _THERMAL
    if bits & _PROCHOT:
        reasons |= _SLOWDOWN
    return reasons
