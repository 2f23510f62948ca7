"""The firmware's table is read as it is meant, or not at all.

The layouts of formats without a capture are those of the kernel's header ``kgd_pp_interface.h``.
C types place the fields here, independently of the parser.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from gpumon.makers.amd.gpu_metrics import GpuMetrics, event_reasons, parse_gpu_metrics
from tests.known import known
from tests.makers.amd.machines import capture

U16, U32, U64 = ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
HEADER = [("size", U16), ("format", ctypes.c_uint8), ("content", ctypes.c_uint8)]

V1_3 = [
    *HEADER,
    *[("temperatures", U16 * 6), ("gfx", U16), ("umc", U16), ("mm", U16), ("power", U16)],
    *[("energy", U64), ("time", U64), ("averages", U16 * 7), ("gfxclk", U16), ("socclk", U16)],
    *[("uclk", U16), ("vclk0", U16), ("dclk0", U16), ("vclk1", U16), ("dclk1", U16)],
    *[("throttle", U32), ("fan", U16), ("width", U16), ("speed", U16), ("padding", U16)],
    *[("gfx_acc", U32), ("mem_acc", U32), ("hbm", U16 * 4), ("firmware_time", U64)],
    *[("voltages", U16 * 3), ("padding1", U16), ("indep_throttle", U64)],
]
HEAD_4 = [
    *HEADER,
    *[("hotspot", U16), ("mem", U16), ("vrsoc", U16), ("power", U16), ("gfx", U16), ("umc", U16)],
]
LINKS_4 = [
    *[("width", U16), ("speed", U16), ("xgmi_width", U16), ("xgmi_speed", U16)],
    *[("gfx_acc", U32), ("mem_acc", U32), ("bandwidth", U64 * 2), ("replays", U64 * 3)],
]
CLOCKS_4 = [
    *[("gfxclk", U16 * 8), ("socclk", U16 * 4), ("vclk0", U16 * 4), ("dclk0", U16 * 4)],
    ("uclk", U16),
]
XGMI = [("xgmi_read", U64 * 8), ("xgmi_write", U64 * 8)]
RESIDENCIES = [
    *[("energy", U64), ("time", U64), ("cycles", U32), ("prochot", U32), ("ppt", U32)],
    *[("socket_thm", U32), ("vr_thm", U32), ("hbm_thm", U32), ("lock", U32)],
]


def xcp(jpegs: int, accumulators: int) -> Any:
    fields = [("gfx", U32 * 8), ("jpeg", U16 * jpegs), ("vcn", U16 * 4)]
    return type(
        "Xcp", (ctypes.Structure,), {"_fields_": [*fields, ("acc", U64 * (8 * accumulators))]}
    )


TAIL_4 = [("firmware_time", U64), *CLOCKS_4, ("padding", U16)]
TAIL_6 = [("firmware_time", U64), *CLOCKS_4, ("partitions", U16)]
THROTTLE_4 = [("energy", U64), ("time", U64), ("throttle", U32), ("lock", U32)]
NAKS = ("naks", U32 * 2)
LAYOUTS: dict[tuple[int, int], list[tuple[str, Any]]] = {
    (1, 3): V1_3,
    (1, 4): [*HEAD_4, ("vcn", U16 * 4), *THROTTLE_4, *LINKS_4, *XGMI, *TAIL_4],
    (1, 5): [
        *[*HEAD_4, ("vcn", U16 * 4), ("jpeg", U16 * 32), *THROTTLE_4, *LINKS_4, NAKS, *XGMI],
        *TAIL_4,
    ],
    (1, 6): [
        *[*HEAD_4, *RESIDENCIES, *LINKS_4, NAKS, *XGMI, *TAIL_6],
        *[("xcp", xcp(32, 1) * 8), ("recovery", U32)],
    ],
    **{
        (1, content): [
            *[*HEAD_4, ("bandwidth_max", U64), *RESIDENCIES, *LINKS_4, NAKS, *XGMI],
            *[("xgmi_status", U16 * 8), ("padding", U16), *TAIL_6],
            *[("xcp", partitions * 8), ("recovery", U32)],
        ]
        for content, partitions in ((7, xcp(32, 2)), (8, xcp(40, 5)))
    },
}


def table(version: tuple[int, int], **values: Any) -> bytes:
    """A table in which the firmware has filled in only these values."""
    kind: Any = type("Table", (ctypes.Structure,), {"_fields_": LAYOUTS[version]})
    made: Any = kind.from_buffer_copy(b"\xff" * ctypes.sizeof(kind))
    made.size, (made.format, made.content) = ctypes.sizeof(kind), version
    for name, value in values.items():
        if isinstance(value, tuple):
            for index, one in enumerate(value):
                getattr(made, name)[index] = one
        else:
            setattr(made, name, value)
    return bytes(made)


def parsed(data: bytes) -> GpuMetrics:
    return known(parse_gpu_metrics(data))


def captured(model: str) -> bytes:
    data = capture(model)[1]["gpu_metrics"]
    assert isinstance(data, bytes)
    return data


@pytest.mark.parametrize("model", ["rx_6900_xt", "rx_7600s", "rx_7800_xt", "rx_9070"])
def test_the_table_of_a_real_card_agrees_with_its_sensors(model: str) -> None:
    _, files = capture(model)
    metrics = parsed(captured(model))
    folder = next(path.rpartition("/")[0] for path in files if path.endswith("freq2_input"))
    assert metrics.clock_memory == int(files[f"{folder}/freq2_input"]) // 1_000_000


@pytest.mark.parametrize("version", LAYOUTS)
def test_each_known_version_is_read_at_its_offsets(version: tuple[int, int]) -> None:
    metrics = parsed(
        table(version, gfx=71, umc=13, energy=65536 * 5, uclk=1300, width=16, speed=320)
    )
    assert (metrics.gfx_activity, metrics.umc_activity) == (71, 13)
    assert (metrics.pcie_width, metrics.pcie_speed) == (16, 320)
    assert (metrics.clock_memory, metrics.energy) == (1300, 5.0)


def test_the_unit_of_energy_is_known_only_where_the_header_gives_it() -> None:
    assert parsed(table((1, 4), energy=65536 * 5)).energy_has_unit
    assert not parsed(table((1, 3), energy=65536 * 5)).energy_has_unit


def test_values_that_the_firmware_left_out_are_unknown() -> None:
    for version in LAYOUTS:
        assert parsed(table(version)) == GpuMetrics()
    # Renoir's successors leave out the whole table of format 2.1 on some kernels.
    assert parsed(captured("phoenix")) == GpuMetrics()


def test_the_busiest_of_several_engines_can_be_told() -> None:
    metrics = parsed(table((1, 5), vcn=(3, 97, 0, 12), jpeg=(0, 8)))
    assert (metrics.vcn_activity, metrics.jpeg_activity) == ((3, 97, 0, 12), (0, 8))


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"\x78\x00\x01\x09", id="1.9, whose form is another"),
        pytest.param(b"\x78\x00\x04\x00", id="a format of the future"),
        pytest.param(b"\x79\x00\x01\x03", id="1.3 with another size"),
        pytest.param(b"\x00\x00\x00\x00", id="zeros"),
        pytest.param(b"\xff\xff\xff\xff", id="nothing filled in"),
    ],
)
def test_an_unknown_version_is_not_read(header: bytes) -> None:
    data = captured("rx_6900_xt")
    assert parse_gpu_metrics(header + data[4:]) is None


@pytest.mark.parametrize("length", [0, 1, 3, 4, 60, 119])
def test_a_table_that_is_cut_off_is_not_read(length: int) -> None:
    assert parse_gpu_metrics(captured("rx_6900_xt")[:length]) is None


def test_a_longer_answer_than_the_table_is_read() -> None:
    # Some kernels answer with a whole page: the capture of the RX 6900 XT had 4096 bytes.
    data = captured("rx_6900_xt")
    assert parse_gpu_metrics(data.ljust(4096, b"\0")) == parse_gpu_metrics(data)


@pytest.mark.parametrize(
    ("bit", "reason"),
    [(0, 0x4), (16, 0x4), (23, 0x4), (34, 0x20), (36, 0x20), (44, 0x40), (46, 0x8), (56, 0)],
)
def test_each_limit_is_told_as_its_reason(bit: int, reason: int) -> None:
    # The bits are SMU_THROTTLER_..._BIT of amdgpu_smu.h: PPT0, TDC_GFX, APCC, TEMP_MEM,
    # TEMP_HOTSPOT, VRHOT0, PROCHOT_CPU and PPM.
    metrics = parsed(table((1, 3), indep_throttle=1 << bit))
    assert event_reasons(metrics, None)[0] == reason


def test_an_idle_gpu_is_not_said_to_be_slowed_by_heat() -> None:
    # The RX 7600S of the capture had the bit of its hottest place at 54 °C, doing nothing.
    metrics = parsed(captured("rx_7600s"))
    assert metrics.throttle == 1 << 36
    assert event_reasons(metrics, None)[0] == 0


def test_limits_of_mi300_are_those_since_the_last_reading() -> None:
    none = {"prochot": 9, "ppt": 50, "socket_thm": 0, "vr_thm": 0, "hbm_thm": 4}
    first = parsed(table((1, 6), cycles=1000, **none))
    reasons, state = event_reasons(first, None)
    assert reasons is None
    idle = parsed(table((1, 6), cycles=2000, **none))
    reasons, state = event_reasons(idle, state)
    assert reasons == 0
    limited = parsed(table((1, 6), cycles=3000, **(none | {"ppt": 51, "hbm_thm": 5})))
    assert event_reasons(limited, state)[0] == 0x4 | 0x20


def test_reasons_in_bits_of_one_model_are_not_told() -> None:
    assert event_reasons(parsed(table((1, 4), throttle=0xF)), None)[0] is None
