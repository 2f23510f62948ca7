"""Logs that ``nvidia-smi --query-gpu=… --format=csv[,nounits] -l N`` made open like gpumon's own.

The samples follow its documented format: ``nvidia-smi --help-query-gpu`` and ``nvidia-smi(1)``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpumon.export.as_csv import gpus_csv
from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.recording.csv.columns import GPU_COLUMNS, column_name
from gpumon.recording.csv.damage import Damage
from gpumon.recording.csv.nvidia_smi import OTHER_NAMES
from tests.build import GIB, NOON, gpu, snapshot
from tests.known import known
from tests.recording.csv.reading import cuts, opened, rows, times_of

# nvidia-smi --query-gpu=timestamp,index,uuid,name,pci.bus_id,driver_version,pstate,…
#   --format=csv -l 1, with two cards of which the second has no fan and lost its power sensor.
WITH_UNITS = """\
timestamp, index, uuid, name, pci.bus_id, driver_version, pstate, temperature.gpu, fan.speed [%], \
utilization.gpu [%], utilization.memory [%], memory.total [MiB], memory.used [MiB], \
memory.free [MiB], power.draw [W], clocks.current.sm [MHz], clocks_throttle_reasons.active, \
ecc.mode.current, persistence_mode, compute_mode, remapped_rows.pending, encoder.stats.sessionCount
2026/11/21 15:22:34.123, 0, GPU-5c86dad0, NVIDIA RTX A6000, 00000000:41:00.0, 570.124.06, P2, 63, \
55 %, 97 %, 41 %, 49140 MiB, 1234 MiB, 47475 MiB, 208.36 W, 1545 MHz, 0x0000000000000004, \
Disabled, Enabled, Default, No, 0
2026/11/21 15:22:34.127, 1, GPU-6d97ebe1, NVIDIA A100-PCIE-40GB, 00000000:C1:00.0, 570.124.06, P0, \
31, [N/A], 0 %, 0 %, 40960 MiB, 3 MiB, 40444 MiB, [Unknown Error], 210 MHz, 0x0000000000000001, \
Enabled, Enabled, Exclusive_Process, Yes, 0
2026/11/21 15:22:35.124, 0, GPU-5c86dad0, NVIDIA RTX A6000, 00000000:41:00.0, 570.124.06, P2, 64, \
56 %, 98 %, 42 %, 49140 MiB, 1235 MiB, 47474 MiB, 210.00 W, 1545 MHz, 0x0000000000000000, \
Disabled, Enabled, Default, No, 0
2026/11/21 15:22:35.128, 1, GPU-6d97ebe1, NVIDIA A100-PCIE-40GB, 00000000:C1:00.0, 570.124.06, \
[GPU requires reset], [GPU requires reset], [N/A], [GPU requires reset], [GPU requires reset], \
40960 MiB, 0 MiB, 40444 MiB, [GPU requires reset], [N/A], [N/A], [N/A], Enabled, \
Exclusive_Process, [N/A], 0
"""

# The same with nounits, which leaves the units in the headings; index first, other names.
WITHOUT_UNITS = """\
index, timestamp, gpu_uuid, gpu_name, gpu_bus_id, clocks.sm, clocks.mem [MHz], memory.used [MiB], \
power.draw [W], utilization.gpu [%], pcie.link.gen.current, temperature.memory
0, 2026/11/21 15:22:34.123, GPU-5c86dad0, Quadro RTX 6000, 00000000:1A:00.0, 1545, 6800, 1234, \
208.36, 97, 3, N/A
1, 2026/11/21 15:22:34.126, GPU-6d97ebe1, Quadro RTX 6000, 00000000:1B:00.0, 300, 405, 3, \
[Not Supported], 0, 1, N/A
"""


@pytest.fixture(autouse=True, params=["UTC", "Europe/Berlin", "America/St_Johns"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def local(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))


def test_a_log_with_units_opens(tmp_path: Path) -> None:
    # Whoever sent it to a file may have called it anything.
    path = tmp_path / "gpu.log"
    path.write_text(WITH_UNITS)
    with opened(path) as tape:
        assert tape.name == str(path)
        assert tape.first == pytest.approx(local("2026-11-21 15:22:34") + 0.123)
        assert len(times_of(tape)) == 2
        read = known(tape.at(tape.first or 0))
        later = known(tape.at((tape.first or 0) + 1.5))
    assert (read.processes, read.processes_at) == ((), None)
    assert read.host.driver_version == "570.124.06"
    first, second = read.gpus
    assert (first.index, first.uuid, first.name) == (0, "GPU-5c86dad0", "NVIDIA RTX A6000")
    assert first.pci_bus_id == "00000000:41:00.0"
    assert (first.pstate, first.temperature_gpu, first.fan_speed) == (2, 63, 55)
    assert (first.utilization_gpu, first.utilization_memory) == (97, 41)
    assert (first.memory_used, first.memory_total) == (1234 * 2**20, 49140 * 2**20)
    assert (first.power_draw, first.clock_sm, first.clock_event_reasons) == (208.36, 1545, 4)
    assert (first.ecc_mode, first.persistence_mode, first.compute_mode) == (False, True, "Default")
    assert (first.remapped_rows_pending, first.sampled_at) == (False, read.time)
    for name in ("processes", "energy", "xid"):
        assert first.unknown[name] is Unknown.NOT_RECORDED, name
    assert second.unknown["fan_speed"] is Unknown.NOT_SUPPORTED
    assert (second.power_draw, second.unknown["power_draw"]) == (None, Unknown.NO_ANSWER)
    assert (second.status, second.remapped_rows_pending) == (GpuStatus.OK, True)
    first, second = later.gpus
    assert first.utilization_gpu == 98
    assert second.status is GpuStatus.RESET_REQUIRED
    assert second.unknown["utilization_gpu"] is Unknown.GPU_LOST


@pytest.mark.parametrize("quoted", [range(23), range(1, 23), (3,)], ids=["all", "rest", "one"])
def test_a_log_with_quoted_fields_opens(tmp_path: Path, quoted: Sequence[int]) -> None:
    path = tmp_path / "gpu.csv"
    path.write_text(WITH_UNITS)
    wanted = [column.name for column in GPU_COLUMNS]
    plain = list(rows(path, wanted))
    lines = [line.split(", ") for line in WITH_UNITS.splitlines()]
    path.write_text(
        "".join(
            ", ".join(f'"{cell}"' if at in quoted else cell for at, cell in enumerate(cells)) + "\n"
            for cells in lines
        )
    )
    damage = Damage()
    assert list(rows(path, wanted, damage=damage)) == plain
    assert damage == Damage()
    with opened(path) as tape:
        assert len(times_of(tape)) == 2
        read = known(tape.at(NOON * 2))
        assert [card.uuid for card in read.gpus] == ["GPU-5c86dad0", "GPU-6d97ebe1"]


def test_a_log_without_units_and_with_other_names_opens(tmp_path: Path) -> None:
    path = tmp_path / "smi.csv"
    path.write_bytes(b"\xef\xbb\xbf" + WITHOUT_UNITS.replace("\n", "\r\n").encode())
    with opened(path) as tape:
        assert len(times_of(tape)) == 1
        read = known(tape.at(0))
    first, second = read.gpus
    assert (first.uuid, first.name) == ("GPU-5c86dad0", "Quadro RTX 6000")
    assert first.pci_bus_id == "00000000:1A:00.0"
    assert (first.clock_sm, first.clock_memory, first.pcie_generation) == (1545, 6800, 3)
    assert (first.memory_used, first.power_draw) == (1234 * 2**20, 208.36)
    assert second.unknown["power_draw"] is Unknown.NOT_SUPPORTED
    assert second.unknown["temperature_memory"] is Unknown.NOT_SUPPORTED


def test_a_log_that_was_gone_on_with_repeats_its_headings(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    later = WITH_UNITS.replace("15:22:3", "15:22:4")
    other = WITHOUT_UNITS.replace("15:22:3", "15:22:5")
    path.write_text(WITH_UNITS + later + other)
    with opened(path) as tape:
        shown = [known(tape.at(time_)) for time_ in times_of(tape)]
    assert [[card.index for card in each.gpus] for each in shown] == [[0, 1]] * 5
    assert shown[-1].gpus[0].clock_memory == 6800
    assert len(list(rows(path, ("index",)))) == 10


def test_each_row_keeps_its_own_time_in_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    path.write_text(WITH_UNITS)
    read = list(rows(path, ("index", "power.draw [W]", "enforced.power.limit [W]")))
    assert [row[1:] for row in read] == [
        (0, 208.36, None),
        (1, None, None),
        (0, 210.0, None),
        (1, None, None),
    ]
    times = [float(str(row[0])) - local("2026-11-21 15:22:34") for row in read]
    assert times == pytest.approx([0.123, 0.127, 1.124, 1.128])


@pytest.mark.slow
@pytest.mark.parametrize("content", [WITH_UNITS, WITHOUT_UNITS], ids=["units", "nounits"])
def test_a_last_line_that_breaks_off_is_no_row(tmp_path: Path, content: str) -> None:
    # A torn `30` could be the beginning of `300.00 W`.
    path = tmp_path / "gpu.csv"
    wanted = ("index", "power.draw [W]", "temperature.gpu", "memory.used [MiB]")
    path.write_text(content)
    whole = list(rows(path, wanted))
    for size in cuts(content.encode(), content.index("\n") + 1):
        path.write_text(content[:size])
        ended = content[:size].count("\n") - 1
        assert list(rows(path, wanted)) == whole[:ended]
        with opened(path) as tape:
            read = tape.at(NOON * 2)
        powers = [] if read is None else [card.power_draw for card in read.gpus]
        assert set(powers) <= {row[2] for row in whole}


def test_a_snapshot_that_gpumon_printed_as_csv_opens(tmp_path: Path) -> None:
    path = tmp_path / "now.csv"
    path.write_text(gpus_csv(snapshot(NOON, gpu(index=0, serial="4711"), gpu(index=1))))
    with opened(path) as tape:
        assert times_of(tape) == [NOON]
        read = known(tape.at(NOON))
    assert [card.memory_used for card in read.gpus] == [GIB // 2] * 2
    assert read.gpus[0].serial == "4711"


def test_every_other_name_means_a_column_of_the_log() -> None:
    logged = {column.name for column in GPU_COLUMNS}
    for other, name in OTHER_NAMES.items():
        found = column_name(f" {other} [x]", processes=False)
        assert found is not None
        assert found == column_name(name, processes=False)
        assert found in logged or name == "serial"
