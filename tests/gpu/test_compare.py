"""The comparison with nvidia-smi, on the simulated driver and with a stand-in for nvidia-smi."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.makers.nvidia.xids import THREAD
from gpumon.model.snapshot import GPU_METRIC
from tests.driver import GIB, MIB, Driver, Owner, h100, owners, rtx4090
from tests.driver.smi import FIELDS, installed
from tests.gpu import compare, smi
from tests.gpu.agreement import COMPARED, XML, Verdict, element_value, judge
from tests.gpu.compare import Row, differences, read
from tests.gpu.work import Kind
from tests.threads import wait_for_end

Install = Callable[[str, str], None]

pytestmark = pytest.mark.slow

LOADS: dict[Kind, dict[str, int]] = {
    Kind.TENSOR: {"utilization_gpu": 99, "sm_active": 90, "tensor_active": 60, "dram_active": 20},
    Kind.COPY: {"utilization_gpu": 99, "sm_active": 20, "tensor_active": 0, "dram_active": 80},
    Kind.TINY: {"utilization_gpu": 95, "sm_active": 2, "tensor_active": 0, "dram_active": 1},
    Kind.SLEEP: {},
}


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Two GPUs, nvidia-smi on the PATH, and a process on the first while ``working``."""
    with (
        Driver([h100(), h100(bar1_used=3 * MIB)], driver_version="580.95.05") as found,
        owners(2, ["python", "train.py"]) as started,
    ):
        found.attach()
        monkeypatch.setenv("LD_LIBRARY_PATH", found.env()["LD_LIBRARY_PATH"])
        installed(tmp_path)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        loaded, other = found.cards
        other.processes = [Owner(started[1].pid, memory=2 * GIB, sm=20)]
        other.memory_used = 2 * GIB

        @contextmanager
        def working(kind: Kind) -> Iterator[int]:
            values = {**dict.fromkeys(LOADS[Kind.TENSOR], 0), **LOADS[kind]}
            loaded.processes = [Owner(started[0].pid, memory=512 * MIB, sm=0)]
            loaded.memory_used = 512 * MIB
            for name, value in values.items():
                loaded.set(name, value)
            yield started[0].pid
            for name in values:
                loaded.set(name, 0)
            loaded.processes = []
            loaded.memory_used = 0

        monkeypatch.setattr(compare, "working", working)
        yield found
        # The XID watcher ends NVML when it ends, which the next test must not suffer from.
        wait_for_end(lambda thread: thread.name == THREAD)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a shell script on the PATH, before the system's programs."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def install(name: str, script: str) -> None:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return install


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that do not wait for slow values."""
    monkeypatch.setattr(compare, "PERIOD", 0.05)
    monkeypatch.setattr(compare, "SETTLE_SECONDS", 0.05)


def found_in(path: Path) -> list[compare.Difference]:
    return differences(read(path / "compare.csv"))


@pytest.mark.usefixtures("driver")
def test_nothing_differs_on_a_sound_machine(tmp_path: Path) -> None:
    assert compare.compare(tmp_path, 0.02)
    rows = read(tmp_path / "compare.csv")
    assert differences(rows) == []
    assert {row.source for row in rows} == {"query-gpu", "xml", "compute-apps", "pmon", "gpm"}
    assert {row.load for row in rows} == {"tensor", "copy", "tiny", "sleep", "idle"}
    asked = {row.name for row in rows if row.source == "query-gpu"}
    assert asked == set(FIELDS)
    assert {metric.smi for metric in COMPARED} <= asked
    verdicts = {(row.source, row.name): row.verdict for row in rows if row.load == "idle"}
    assert verdicts["query-gpu", "temperature.gpu"] == Verdict.SAME.value
    assert verdicts["query-gpu", "fan.speed"] == Verdict.BOTH_UNKNOWN.value
    assert verdicts["query-gpu", "c2c.mode"] == Verdict.NOT_IN_GPUMON.value
    memory = [row for row in rows if row.name == "memory of the load's process"]
    assert {row.nvidia_smi for row in memory} == {"512 MiB"}
    assert {row.source for row in memory} == {"compute-apps", "xml", "pmon"}


@pytest.mark.usefixtures("driver", "hasty")
def test_values_that_are_wrong_on_purpose_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = "temperature.gpu=+40,serial=7,fan.speed=30,ecc.mode.current=[N/A]"
    monkeypatch.setenv("SMI_WRONG", f"{wrong},clocks/sm_clock=+900,power.draw=much,minor_number=+1")
    compare.compare(tmp_path, 0.02)
    found = {(d.load, d.name): d for d in found_in(tmp_path) if d.source != "gpm"}
    # Rounds in such haste are too short for a rate, and for the list of processes.
    hasty = {"pcie_rx", "pcie_tx", *(name for _, name in found if " of process " in name)}
    assert {name for load, name in found if load == "idle"} - hasty == {
        *("temperature.gpu", "serial", "fan.speed", "ecc.mode.current", "power.draw"),
        *("clock_sm", "minor_number"),
    }
    assert found["idle", "temperature.gpu"].nvidia_smi == "74"
    assert found["idle", "temperature.gpu"].gpumon == "34"
    assert found["idle", "fan.speed"].verdict == Verdict.ONLY_SMI.value
    assert found["idle", "ecc.mode.current"].verdict == Verdict.ONLY_GPUMON.value
    assert (found["idle", "serial"].gpumon, found["idle", "serial"].nvidia_smi) == ("", "")


@pytest.mark.usefixtures("hasty")
def test_a_load_that_does_not_look_like_it_is_found(driver: Driver, tmp_path: Path) -> None:
    for card in driver.cards:
        # A card that cannot tell, as before Hopper.
        card.sm_active = None
    driver.cards[0].fail("nvmlDeviceGetUtilizationRates", 999)
    assert not compare.compare(tmp_path, 0.02)
    found = {(d.load, d.name): d for d in found_in(tmp_path) if d.source == "gpm"}
    assert "gpumon has no value" in found["tensor", "utilization_gpu"].nvidia_smi


DCGMI = """
echo "#Entity   SMACT  SMOCC  TENSO  DRAMA  FP64A  FP32A  FP16A"
echo "ID"
echo "GPU 0     N/A    N/A    N/A    N/A    N/A    N/A    N/A"
echo "GPU 0     0.000  0.000  0.900  0.000  N/A    0.000  0.000"
"""


@pytest.mark.usefixtures("driver", "hasty")
def test_dcgm_is_asked_where_it_is_installed(tmp_path: Path, install: Install) -> None:
    install("dcgmi", DCGMI)
    compare.compare(tmp_path, 0.02)
    rows = read(tmp_path / "compare.csv")
    found = {row.name: row for row in rows if row.load == "idle" and "DCGM" in row.name}
    assert len(found) == 6
    assert found["tensor_active, DCGM"].nvidia_smi == "90"
    assert {one.name for one in found_in(tmp_path)} >= {"tensor_active, DCGM"}


SCRIPTS = {
    "hangs": ("sleep 60", "did not end within 0.5 s"),
    "fails": ("echo driver gone; exit 9", "ended with status 9: driver gone"),
    "lists nothing": ("true", "lists no field"),
}


@pytest.mark.usefixtures("driver", "hasty")
@pytest.mark.parametrize("way", [*SCRIPTS, "absent"])
def test_the_step_goes_on_without_nvidia_smi(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "SMI_SECONDS", 0.5)
    program = tmp_path / "nvidia-smi"
    script, words = SCRIPTS.get(way, ("", "cannot be run: No such file or directory"))
    program.write_text(f"#!/bin/sh\n{script}\n")
    if way == "absent":
        program.unlink()
        monkeypatch.setenv("PATH", str(tmp_path))
    assert not compare.compare(tmp_path, 0.02)
    rows = read(tmp_path / "compare.csv")
    failed = [row for row in rows if row.verdict == Verdict.FAILED.value and row.source != "gpm"]
    assert words in failed[0].nvidia_smi
    assert any(row.source == "gpm" and row.load == "idle" for row in rows)
    assert any(words in found.nvidia_smi for found in found_in(tmp_path))


@pytest.mark.parametrize(
    ("field", "before", "after", "theirs", "verdict"),
    [
        ("temperature_gpu", 40, 41, 40, Verdict.SAME),
        ("temperature_gpu", 40, 41, 43, Verdict.NEAR),
        ("temperature_gpu", 40, 41, 50, Verdict.DIFFERS),
        ("temperature_gpu", None, None, None, Verdict.BOTH_UNKNOWN),
        ("temperature_gpu", 40, 40, None, Verdict.ONLY_GPUMON),
        ("temperature_gpu", None, None, 40, Verdict.ONLY_SMI),
        ("pcie_rx", None, 2e9, 0.5e9, Verdict.NEAR),
        ("pcie_rx", 2e9, 2e9, 2e6, Verdict.DIFFERS),
        ("pcie_rx", 2e9, 2e9, 2e12, Verdict.DIFFERS),
        ("clock_event_reasons", 4, 4, 5, Verdict.DIFFERS),
    ],
)
def test_verdicts(
    field: str, before: float | None, after: float | None, theirs: float | None, verdict: Verdict
) -> None:
    assert judge(GPU_METRIC[field], (before, after), theirs).verdict is verdict


def rows_of(name: str, verdicts: list[Verdict]) -> list[Row]:
    return [
        Row("idle", number, "0", "query-gpu", name, "1", "2", "", verdict.value)
        for number, verdict in enumerate(verdicts, 1)
    ]


@pytest.mark.parametrize(
    ("name", "wrong", "counts"),
    [
        ("temperature.gpu", 1, False),
        ("temperature.gpu", 2, True),
        ("clocks.max.sm", 1, True),
        ("clocks.max.sm", 0, False),
    ],
)
def test_one_leap_of_a_value_that_moves_is_no_difference(
    name: str, wrong: int, counts: bool
) -> None:
    verdicts = [*[Verdict.DIFFERS] * wrong, *[Verdict.SAME] * (5 - wrong)]
    found = differences(rows_of(name, verdicts))
    assert [(one.name, one.rounds, one.of) for one in found] == [(name, wrong, 5)] * counts


def test_the_elements_of_the_xml_are_read_in_the_models_units() -> None:
    elements = {
        "fb_memory_usage/used": "3 MiB",
        "pci/rx_util": "358 KB/s",
        "pci/pci_gpu_link_info/link_widths/current_link_width": "16x",
        "product_architecture": "Ada Lovelace",
        "clocks_event_reasons/clocks_event_reason_sw_power_cap": "Active",
        "clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown": "Active",
        "clocks_event_reasons/clocks_event_reason_gpu_idle": "Not Active",
        "ecc_errors/volatile/sram_uncorrectable_parity": "1",
        "ecc_errors/volatile/dram_uncorrectable": "2",
        "temperature/gpu_temp_tlimit": "-3 C",
        "gpu_power_readings/average_power_draw": "85.16 W",
        "performance_state": "P8",
        "display_mode": "Requested functionality has been deprecated",
    }
    expected = {
        "memory_used": 3 * MIB,
        "pcie_rx": 358_000,
        "pcie_width": 16,
        "architecture": "Ada",
        "clock_event_reasons": 0x44,
        "ecc_uncorrected_volatile": 3,
        "temperature_margin": -3,
        "power_draw": 85.16,
        "power_average": 85.16,
        "pstate": 8,
    }
    read_ones = {field: element_value(field, elements) for field in XML}
    assert {field: value for field, value in read_ones.items() if value is not None} == expected


def test_a_field_that_is_listed_but_refused_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Driver([rtx4090()]) as found:
        for name in ("LD_LIBRARY_PATH", "NVML_SIM_STATE"):
            monkeypatch.setenv(name, found.env()[name])
        installed(tmp_path)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        asked = smi.query(["index", "no.such", "clocks.sm", "fan.speed", "nor.this"])
    assert asked.refused == ["no.such", "clocks.sm", "nor.this"]
    assert asked.gpus == [{"index": "0", "fan.speed": "30"}]


def test_a_program_that_hangs_is_ended_in_time(install: Install) -> None:
    # The child holds the pipe, too.
    install("nvidia-smi", "sleep 1000 & wait")
    with pytest.raises(smi.HungError):
        smi.ask("-q", seconds=0.2)


def test_a_comma_in_a_name_stays_in_it(install: Install) -> None:
    install("nvidia-smi", "echo 'RTX, Pro, GPU-1, 7'")
    (gpu,) = smi.query(["name", "uuid", "fan.speed"]).gpus
    assert (gpu["name"], gpu["uuid"]) == ("RTX, Pro", "GPU-1")


def test_a_comma_that_shifts_the_cells_is_no_answer(install: Install) -> None:
    install("nvidia-smi", "echo 'RTX, GPU-1, a, 7'")
    with pytest.raises(smi.SmiError, match="4 cells for 3 fields"):
        smi.query(["name", "uuid", "fan.speed"])


def test_what_identifies_a_machine_is_compared_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "compare.csv"
    with path.open("w", newline="") as file:
        table = compare.Table(file)
        for name in ("serial", "pci.bus_id", "platform.chassis_serial_number", "fan.speed"):
            table.write(Row("idle", 1, "0", "query-gpu", name, "17", "18", "", "differs"))
    written = {row.name: (row.gpumon, row.nvidia_smi, row.verdict) for row in read(path)}
    assert written.pop("fan.speed") == ("17", "18", "differs")
    assert set(written.values()) == {("…", "…", "differs")}
