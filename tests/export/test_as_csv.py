"""The CSV: nvidia-smi's columns, words and units, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from datetime import datetime

import pytest
from hypothesis import given
from msgspec import structs

from gpumon.export.as_csv import gpus_csv, processes_csv
from gpumon.model.processes import Container, GpuProcess, GpuUse, ProcessId, Workload
from gpumon.model.snapshot import GPU_METRICS, Gpu, Host, Snapshot
from gpumon.text.formatting import printable, spreadsheet_text
from tests.export.hostile import TEXTS, snapshot_of, texts

MIB = 2**20

# Two lines as `nvidia-smi --query-gpu=... --format=csv,nounits` prints them.
NVIDIA_SMI = """\
index, uuid, name, pci.bus_id, compute_cap, memory.used [MiB], memory.total [MiB], \
utilization.gpu [%], temperature.gpu, temperature.gpu.tlimit, power.draw [W], \
enforced.power.limit [W], clocks.current.sm [MHz], pstate, clocks_event_reasons.active, \
fan.speed [%], pcie.link.gen.gpucurrent, ecc.mode.current, remapped_rows.pending, \
persistence_mode, mig.mode.current
3, GPU-5d0c0a4e-8a5e-2ac9-1c2e-0b8a5f1d3a77, NVIDIA H100 80GB HBM3, 00000000:61:00.0, 9.0, \
59290, 81559, 47, 53, -2, 340.15, 700.00, 1980, P0, 0x0000000000000004, [N/A], 5, Enabled, No, \
Enabled, Disabled
"""

CARD = Gpu(
    index=3,
    uuid="GPU-5d0c0a4e-8a5e-2ac9-1c2e-0b8a5f1d3a77",
    name="NVIDIA H100 80GB HBM3",
    pci_bus_id="00000000:61:00.0",
    compute_capability="9.0",
    memory_used=59290 * MIB + MIB - 1,
    memory_total=81559 * MIB,
    utilization_gpu=47,
    temperature_gpu=53,
    temperature_margin=-2,
    power_draw=340.151,
    power_limit=700.0,
    clock_sm=1980,
    pstate=0,
    clock_event_reasons=0x4,
    pcie_generation=5,
    ecc_mode=True,
    remapped_rows_pending=False,
    persistence_mode=True,
    mig_mode=False,
)


def rows(text: str) -> list[dict[str, str]]:
    found = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    for row in found:
        # DictReader files what is too much or too little under None.
        assert None not in row
        assert None not in row.values()
    return found


def of(*gpus: Gpu) -> Snapshot:
    return Snapshot(1_763_700_000.5, Host("ada-07"), gpus)


def test_a_card_reads_as_nvidia_smi_prints_it() -> None:
    (theirs,) = csv.DictReader(io.StringIO(NVIDIA_SMI), skipinitialspace=True)
    (ours,) = rows(gpus_csv(of(CARD)))
    for column, value in theirs.items():
        assert ours[column] == ("" if value == "[N/A]" else value), column


def test_there_is_a_column_for_every_metric_that_nvidia_smi_names() -> None:
    (row,) = rows(gpus_csv(of(CARD)))
    names = [column.partition(" [")[0] for column in row]
    assert names == ["timestamp", *(metric.smi for metric in GPU_METRICS if metric.smi)]


def test_the_time_comes_first_with_its_zone() -> None:
    text = gpus_csv(of(CARD))
    assert text.startswith("timestamp,")
    (row,) = rows(text)
    moment = datetime.fromisoformat(row["timestamp"])
    assert moment.tzinfo is not None
    assert moment.timestamp() == 1_763_700_000.5


def test_every_card_is_a_row_and_no_cards_leave_the_header() -> None:
    assert [row["uuid"] for row in rows(gpus_csv(of(CARD, Gpu(0, "GPU-0"))))] == [
        CARD.uuid,
        "GPU-0",
    ]
    assert gpus_csv(of()).count("\n") == 1


def test_a_process_has_a_row_for_each_card_with_what_it_has_there() -> None:
    process = GpuProcess(
        id=ProcessId(4711, 99),
        type="C",
        uses=(
            GpuUse("GPU-a", 0, memory_used=5 * MIB, sm=40),
            GpuUse("GPU-b", 1, memory_used=None, sm=None),
        ),
        user="ann",
        command=("python", "train.py"),
        cpu_percent=392.04,
        rss=31 * MIB,
        started_at=1_763_699_900.0,
    )
    snapshot = structs.replace(of(CARD), processes=(process,))
    first, second = rows(processes_csv(snapshot))
    assert first["gpu_uuid"] == "GPU-a"
    assert (first["pid"], first["user"], first["type"]) == ("4711", "ann", "C")
    assert (first["used_gpu_memory [MiB]"], first["sm [%]"]) == ("5", "40.0")
    assert (first["cpu [%]"], first["rss [MiB]"]) == ("392.0", "31")
    assert first["process_name"] == "python train.py"
    assert datetime.fromisoformat(first["start_time"]).timestamp() == 1_763_699_900.0
    assert second["gpu_uuid"] == "GPU-b"
    assert (second["used_gpu_memory [MiB]"], second["sm [%]"]) == ("", "")


def test_where_a_process_runs_comes_after_the_columns_that_were_there_before() -> None:
    place = Workload(container=Container("podman", name="web"), launcher=ProcessId(9, 1))
    process = GpuProcess(ProcessId(5, 6), "C", (GpuUse("GPU-a", 0),), place=place)
    (row,) = rows(processes_csv(structs.replace(of(CARD), processes=(process,))))
    assert ",".join(row).startswith(
        "timestamp,gpu_uuid,start_time,gpu,pid,user,type,used_gpu_memory [MiB],sm [%],cpu [%],"
        "rss [MiB],age [s],process_name,where,container,job,state"
    )
    assert (row["where"], row["container"], row["job"]) == (
        "podman web",
        "podman web",
        "launcher 9",
    )
    unknown = structs.replace(process, place=None)
    (row,) = rows(processes_csv(structs.replace(of(CARD), processes=(unknown,))))
    assert row["where"] == row["container"] == row["job"] == ""


def test_a_process_that_is_not_visible_keeps_its_row() -> None:
    hidden = GpuProcess(ProcessId(5, None), "C", (GpuUse("GPU-a", 0),), visible=False)
    (row,) = rows(processes_csv(structs.replace(of(CARD), processes=(hidden,))))
    assert row["pid"] == "5"
    assert row["user"] == row["start_time"] == row["process_name"] == ""


@pytest.mark.parametrize("text", ["=1+1", "@x", "-bash", "+1", "\t=1", "\r=1", "  =1", "＝1"])
def test_a_text_that_a_spreadsheet_would_run_is_defused(text: str) -> None:
    (row,) = rows(gpus_csv(of(Gpu(0, "GPU-0", name=text))))
    assert row["name"].startswith("'")
    assert row["name"][1:] == printable(text)


def test_a_negative_number_is_no_formula() -> None:
    (row,) = rows(gpus_csv(of(Gpu(0, "GPU-0", temperature_margin=-3))))
    assert row["temperature.gpu.tlimit"] == "-3"


@given(texts)
def test_any_text_stays_in_its_cell_and_none_acts(text: str) -> None:
    snapshot = snapshot_of(text)
    for table in (gpus_csv(snapshot), processes_csv(snapshot)):
        assert table.replace("\n", "").isprintable()
        assert table.count("\n") == 2
        table.encode()
        (row,) = rows(table)
        assert not any(cell.lstrip().startswith(tuple("=+-@＝＋－＠")) for cell in row.values())
    (process,) = rows(processes_csv(snapshot))
    assert spreadsheet_text(process["user"]) == printable(text)


def test_the_hostile_texts_hold_every_kind() -> None:
    assert any(text.startswith("=") for text in TEXTS)
    assert any(not text.isprintable() for text in TEXTS)
