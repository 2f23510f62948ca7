"""The page that compares GPUs: what stands beside what, and on which scale."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gpumon.config.keymap import DEFAULT_WINDOW
from gpumon.model.snapshot import Gpu, GpuStatus, MigInstance, Unknown
from gpumon.recording.history import History
from gpumon.text.cells import Row, row_width
from gpumon.ui.view.compare_page import compare_rows
from gpumon.ui.view.frame import Memo
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known
from tests.ui.view.drawing import history_of, text_of

pytestmark = pytest.mark.usefixtures("utc")

FAST = gpu(
    utilization_gpu=90,
    clock_sm=1980,
    clock_sm_max=1980,
    power_draw=600.0,
    power_limit=700.0,
    memory_used=40 * GIB,
    pcie_generation=5,
    pcie_width=16,
)
TWIN = replace(FAST, index=1, uuid="GPU-1")
SLOW = replace(
    TWIN,
    clock_sm=990,
    power_draw=300.0,
    power_limit=350.0,
    pcie_width=8,
    clock_event_reasons=0x20,
)


def seen(*gpus: Gpu) -> History:
    taken = (snapshot(NOON + second, *gpus, processes=(process(),)) for second in range(310))
    return history_of(*taken)


def rows_of(
    *gpus: Gpu, width: int = 100, height: int = 22, gone: dict[str, str] | None = None
) -> list[Row]:
    history = seen(*gpus)
    shown = gpus, gone or {}, history, history.latest, DEFAULT_WINDOW
    rows = compare_rows(Memo(), *shown, width, height)
    assert {row_width(row) for row in rows} == {width}
    return rows


def lines_of(*gpus: Gpu, width: int = 100, height: int = 22, **more: dict[str, str]) -> list[str]:
    rows = rows_of(*gpus, width=width, height=height, **more)
    return [text_of(row).rstrip() for row in rows]


def below(lines: list[str], title: str) -> list[str]:
    """The lines below a chart's title."""
    return lines[next(at for at, line in enumerate(lines) if title in line) + 1 :]


def line_of(index: int, lines: list[str]) -> str:
    """The first line of a GPU."""
    return next(line for line in lines if line.split()[:1] == [str(index)])


def many(count: int) -> list[Gpu]:
    return [
        replace(SLOW if index % 2 else FAST, index=index, uuid=f"GPU-{index}")
        for index in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 8, 16])
@pytest.mark.parametrize("size", [(80, 22), (100, 22), (120, 33), (200, 48), (60, 13), (40, 10)])
def test_each_gpu_has_a_line_of_values_and_one_in_each_chart(
    count: int, size: tuple[int, int]
) -> None:
    width, height = size
    lines = lines_of(*many(count), width=width, height=height)
    table = lines[1 : count + 1]
    assert [line.split()[0] for line in table] == [str(index) for index in range(count)]
    assert all("H100" in line for line in table)
    assert line_of(0, below(lines, "utilisation  0–100 %"))


def test_values_stand_in_columns_and_the_clock_is_among_the_first() -> None:
    heading, fast, slow = lines_of(FAST, SLOW, width=80)[:3]
    assert heading.split()[:5] == ["#", "GPU", "state", "util", "SM"]
    for text, line in (("1980/1980", fast), ("990/1980", slow)):
        assert line.index(text) + len(text) == heading.index("SM MHz") + len("SM MHz")
    assert "600/700W" in fast
    assert "300/350W" in slow


def test_values_that_differ_are_bold_and_so_are_limits() -> None:
    _, fast, slow = rows_of(FAST, SLOW)[:3]
    styles = {text.strip(): style for row in (fast, slow) for text, style in row}
    assert styles["990"] == "strong"
    assert styles["/350W"] == "state.note"
    assert styles["90"] == "", "both are as busy"


def test_settings_that_differ_are_named_with_their_gpus_and_the_rest_is_counted() -> None:
    lines = lines_of(FAST, SLOW, replace(FAST, index=2, uuid="GPU-2"), height=40)
    text = "\n".join(lines)
    assert "Power limit               GPU 1: 350 W   GPU 0, 2: 700 W" in text
    assert "PCIe width                GPU 1: 8   GPU 0, 2: 16" in text
    assert "Clock event reasons       GPU 1: SW thermal   GPU 0, 2: none" in text
    assert "What differs (the same: " in text
    assert "PCIe generation" not in text, "it is the same"
    assert "UUID" not in text, "it always differs"


def test_what_differs_leaves_room_for_charts_and_goes_on_below_them() -> None:
    other = replace(
        SLOW,
        name="NVIDIA L4",
        ecc_mode=False,
        persistence_mode=False,
        clock_sm_max=2040,
        memory_total=24 * GIB,
        pcie_generation=4,
    )
    lines = lines_of(FAST, other, width=80)
    above, below = "\n".join(lines).split("The last 5 minutes")
    assert "utilisation  0–100 %" in "\n".join(lines[:22])
    assert "Clock event reasons" in above
    assert "What else differs" in below
    assert "Memory total" in below.split("What else differs")[1]


def test_equal_gpus_say_so() -> None:
    assert any("No setting differs (the same: " in line for line in lines_of(FAST, TWIN))


def test_charts_have_one_scale_for_gpus_of_different_limits() -> None:
    lines = below(lines_of(FAST, SLOW, height=60), "power  0–700 W")
    assert "600W" in line_of(0, lines)
    assert "300W" in line_of(1, lines)
    first, second, *_ = below(lines_of(FAST, SLOW, height=22), "power  0–700 W")
    assert set(first.split()[2]) == {"▇"}
    assert set(second.split()[2]) == {"▄"}, "half of the power, and not of its limit"


def test_what_is_zero_or_unknown_for_all_has_one_line() -> None:
    still = [replace(one, nvlink_rx=0.0, nvlink_tx=0.0) for one in (FAST, SLOW)]
    lines = lines_of(*still)
    assert "0 throughout: NVLink receive, NVLink transmit" in lines[-2]
    assert "no values in this time: PCIe receive, PCIe transmit" in lines[-1]
    (one, other) = still
    other = replace(other, nvlink_rx=None)
    lines = lines_of(one, other)
    assert "0 throughout: NVLink receive on GPU 0, NVLink transmit" in lines[-2]
    silent = replace(Gpu(index=0, uuid="GPU-0", name=FAST.name), status=GpuStatus.LOST)
    assert "no values in this time: utilisation, SM clock" in "\n".join(lines_of(silent))


@pytest.mark.parametrize(("height", "of_700", "of_1200"), [(22, "▇", "▅"), (60, "⣀", "⠉")])
def test_peaks_and_scales_never_contradict_the_newest_value_and_are_those_of_the_lines(
    height: int, of_700: str, of_1200: str
) -> None:
    calm = replace(SLOW, power_draw=100.0)
    history, memo = seen(FAST, calm), Memo()
    for second, power in enumerate((100.0, 100.0, 1200.0, 100.0, 100.0, 100.0, 100.0)):
        newest = replace(calm, power_draw=power)
        history.add(snapshot(NOON + 310 + second, FAST, newest))
        size = DEFAULT_WINDOW, 100, height
        rows = compare_rows(memo, (FAST, newest), {}, history, history.latest, *size)
        top, mark, value = (1200, of_1200, "1200W") if second >= 2 else (700, of_700, "100W")
        lines = below([text_of(row) for row in rows], f" power  0–{top} W")
        line = known(re.search("[▁-█⠁-⣿]", "".join(lines)))
        assert line[0] == mark, "600 W of the first GPU"
        assert line_of(1, lines).split()[-1] == value


def test_charts_of_several_rows_are_lines_and_have_the_axis_of_all_charts() -> None:
    text = "\n".join(lines_of(FAST, SLOW, height=60))
    assert re.search("[⠉⠒⠤⣀]{20}", text)
    assert not re.search("[⣿⣶⣤⣀]{9}\n.*⣿{9}", text)
    assert re.search("-5m +-4m +-3m +-2m +-1m +now", text)
    history = seen(FAST, SLOW)
    size = history.latest, DEFAULT_WINDOW, 100, 60
    past = compare_rows(Memo(), (FAST, SLOW), {}, history, *size, is_past=True)
    assert any(re.search(r"12:01 +12:02", text_of(row)) for row in past)


def test_each_column_has_the_times() -> None:
    text = "\n".join(lines_of(*many(2), width=200, height=48))
    assert text.count("-5m") == text.count("now") == 3


def test_a_lost_gpu_is_unknown_and_one_that_is_gone_says_since_when() -> None:
    nothing = dict.fromkeys(("utilization_gpu", "clock_sm", "power_draw", "power_limit"))
    lost = replace(
        SLOW, **nothing, status=GpuStatus.LOST, unknown=dict.fromkeys(nothing, Unknown.GPU_LOST)
    )
    lines = lines_of(FAST, lost)
    assert "LOST" in lines[2]
    assert "–" in lines[2]
    assert " 0%" not in lines[2], "unknown is not zero"
    assert not any(line.strip().startswith("Power limit") for line in lines)
    gone = lines_of(FAST, SLOW, gone={"GPU-1": "not listed since 12:03"})
    assert "not listed since 12:03" in gone[2]


def test_mig_devices_follow_their_gpu() -> None:
    device = MigInstance(
        *("MIG-1", 0, 9, 0, "1g.10gb"), memory_total=10 * GIB, memory_used=4 * GIB, sm_active=62.4
    )
    split = replace(FAST, mig=(device,), mig_mode=True)
    lines = lines_of(split, SLOW)
    assert "└ MIG 0:0 1g.10gb  memory 4.0/10.0G  SMs active 62%" in lines[2]
    assert lines[3].split()[0] == "1"
