"""The columns of a log: they keep their promises to whoever reads them years later."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.makers.demo import DemoSource
from gpumon.model.metrics import Unit
from gpumon.model.processes import GpuProcess, GpuUse, ProcessId
from gpumon.model.snapshot import GPU_METRICS, Gpu, GpuStatus, Host, MigInstance, Snapshot, Unknown
from gpumon.recording.csv.columns import (
    GPU_COLUMNS,
    PROCESS_COLUMNS,
    TEXT_CHARACTERS,
    VERSION,
    CsvColumn,
    GpuRow,
    ProcessRow,
    cell,
)
from gpumon.recording.csv.parsers import mig_devices
from gpumon.text.csv_cells import iso_time
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.export.hostile import place_of
from tests.recording.csv.log_page import PAGE, with_tables
from tests.recording.csv.reading import write_log

TEXT = PAGE.read_text(encoding="utf-8")

# Written down a second time: whoever counts columns relies on it. Only ever add at the end.
CARDS_OF_VERSION_1 = """
timestamp|index|uuid|name|utilization.gpu [%]|memory.used [MiB]|memory.total [MiB]
temperature.gpu|power.draw [W]|status|processes|pci.bus_id|minor.number|compute_cap
memory.free [MiB]|memory.reserved [MiB]|memory.unified|bar1.used [MiB]|bar1.total [MiB]
utilization.memory [%]|utilization.encoder [%]|utilization.decoder [%]|utilization.jpeg [%]
utilization.ofa [%]|temperature.memory|temperature.slowdown|temperature.shutdown
temperature.gpu.tlimit|power.draw.instant [W]|power.draw.average [W]|enforced.power.limit [W]
power.min_limit [W]|power.max_limit [W]|energy [J]|clocks.current.sm [MHz]
clocks.current.memory [MHz]|clocks.current.graphics [MHz]|clocks.current.video [MHz]
clocks.max.sm [MHz]|clocks.max.memory [MHz]|clocks.max.graphics [MHz]|clock.video.max [MHz]|pstate
clocks_event_reasons.active|fan.speed [%]|pcie.link.gen.gpucurrent|pcie.link.gen.max
pcie.link.width.current|pcie.link.width.max|pcie.rx [MiB/s]|pcie.tx [MiB/s]|nvlink.active
nvlink.count|nvlink.rx [MiB/s]|nvlink.tx [MiB/s]|ecc.mode.current
ecc.errors.corrected.volatile.total|ecc.errors.uncorrected.volatile.total
ecc.errors.corrected.aggregate.total|ecc.errors.uncorrected.aggregate.total
remapped_rows.correctable|remapped_rows.uncorrectable|remapped_rows.pending|remapped_rows.failure
retired_pages.single_bit_ecc.count|retired_pages.double_bit.count|retired_pages.pending
gpu_recovery_action|xid|xid.at|persistence_mode|compute_mode|display_mode|display_active
mig.mode.current|age [s]|status.since|mig.devices|host|driver_version|cuda_version|host.cpu [%]
host.cpu.count|host.load.1|host.load.5|host.load.15|host.memory.used [MiB]
host.memory.total [MiB]|elapsed [s]|gpumon_log
"""
ADDED_TO_CARDS_BY_VERSION_2 = """
sm.active [%]|sm.occupancy [%]|tensor.active [%]|fp64.active [%]|fp32.active [%]|fp16.active [%]
dram.active [%]|nvlink.errors
"""
PROCESSES_OF_VERSION_1 = """
timestamp|index|uuid|pid|start_time|user|type|used_gpu_memory [MiB]|sm [%]|cpu [%]|rss [MiB]
container|job|command|name|state|memory_activity [%]|encoder [%]|decoder [%]|gpu_instance
compute_instance|uid|start_ticks|visible|slurm_job|slurm_step|notebook|jupyter_kernel|tmux
environment|session|launcher|launcher_name|parent|elapsed [s]|gpumon_log
"""

EMPTY = Gpu(0, "GPU-0")
HIDDEN = GpuProcess(ProcessId(7, None), "C", (GpuUse("GPU-0", 0),), visible=False)
HOSTILE = "=1+1\x1b[2J\u202e\r\n\0,\"'\ud800"


def gpu_cells(gpu: Gpu, of: Snapshot | None = None, elapsed: float = 0.0) -> dict[str, str]:
    """The row of a card."""
    taken = of or snapshot(NOON, gpu)
    return {column.name: column.cell(GpuRow(taken, gpu, elapsed)) for column in GPU_COLUMNS}


def process_cells(process: GpuProcess, of: Snapshot | None = None, use: int = 0) -> dict[str, str]:
    """The row of a process on one of its GPUs."""
    taken = of or snapshot(NOON, processes=(process,))
    row = ProcessRow(taken, process, process.uses[use], 0.0)
    return {column.name: column.cell(row) for column in PROCESS_COLUMNS}


# What stays


@pytest.mark.parametrize(
    ("columns", "promised"),
    [
        (GPU_COLUMNS, CARDS_OF_VERSION_1 + ADDED_TO_CARDS_BY_VERSION_2),
        (PROCESS_COLUMNS, PROCESSES_OF_VERSION_1),
    ],
    ids=["cards", "processes"],
)
def test_no_column_changes_its_name_or_place(columns: Sequence[CsvColumn], promised: str) -> None:
    names = [column.name for column in columns]
    kept = [name for name in promised.replace("\n", "|").split("|") if name]
    assert names[: len(kept)] == kept
    if VERSION == 2:
        assert names == kept, "a new column comes with a new version"
    assert len(set(names)) == len(names)


def test_the_page_explains_every_column_and_names_the_version() -> None:
    assert with_tables(TEXT) == TEXT, "run: python -m tests.recording.csv.log_page"
    assert f"`gpumon_log` of both files is the version of their columns, now {VERSION}." in TEXT
    assert all(column.about.endswith(".") for column in (*GPU_COLUMNS, *PROCESS_COLUMNS))


def test_every_metric_has_a_column_but_what_never_changes_and_says_nothing_of_the_work() -> None:
    shown = {column.metric.field for column in GPU_COLUMNS if column.metric is not None}
    left_out = {"serial", "vbios_version", "architecture"}
    assert {metric.field for metric in GPU_METRICS} - shown == left_out


def test_names_are_those_of_nvidia_smi_where_it_has_one() -> None:
    for column in GPU_COLUMNS:
        if column.metric is not None and column.metric.smi is not None:
            assert column.name.partition(" [")[0] == column.metric.smi


# Unknown is never 0


ALWAYS_KNOWN = {"timestamp", "index", "uuid", "elapsed [s]", "gpumon_log"}


def test_what_is_not_known_is_an_empty_cell() -> None:
    told = gpu_cells(EMPTY, replace(snapshot(NOON, EMPTY), host=Host("ada-07"), processes_at=None))
    # That no accident was reported is known.
    known = ALWAYS_KNOWN | {"status", "host", "accidents"}
    assert {name for name, value in told.items() if value} == known
    told = process_cells(HIDDEN)
    known = ALWAYS_KNOWN | {"pid", "type", "visible"}
    assert {name for name, value in told.items() if value} == known
    assert told["visible"] == "No"


def test_zero_is_zero() -> None:
    # The metrics of a GPU are in tests/test_every_metric.py.
    told = process_cells(process(sm=0, memory_used=0))
    assert (told["used_gpu_memory [MiB]"], told["sm [%]"]) == ("0.0", "0")
    assert float(gpu_cells(gpu(sampled_at=NOON))["age [s]"]) == 0


def test_no_process_and_no_list_of_processes_are_told_apart() -> None:
    assert gpu_cells(gpu())["processes"] == "0"
    assert gpu_cells(gpu(), snapshot(NOON, gpu(), processes_at=None))["processes"] == ""
    assert gpu_cells(gpu(unknown={"processes": Unknown.NO_PERMISSION}))["processes"] == ""
    two = snapshot(NOON, gpu(), gpu(index=1), processes=(process(1), process(2, gpus=(0, 1))))
    assert [gpu_cells(card, two)["processes"] for card in two.gpus] == ["2", "1"]


def test_a_process_has_the_row_of_each_card_and_what_it_has_there() -> None:
    both = process(1, gpus=(0, 1), memory_used=3 * GIB)
    taken = snapshot(NOON, gpu(), gpu(index=1), processes=(both,))
    told = [process_cells(both, taken, use) for use in range(2)]
    assert [row["index"] for row in told] == ["0", "1"]
    assert [float(row["used_gpu_memory [MiB]"]) for row in told] == [3072, 3072]


# Numbers


@given(st.integers(0, 2**52))
def test_bytes_are_exact_though_written_in_mib(size: int) -> None:
    assert round(float(cell(size, Unit.BYTES)) * 2**20) == size


@given(st.integers(0, 10**9))
def test_the_drivers_thousandths_are_exact(thousandths: int) -> None:
    for unit in (Unit.WATTS, Unit.JOULES, Unit.SECONDS):
        assert round(float(cell(thousandths / 1000, unit)) * 1000) == thousandths


@given(st.floats() | st.integers(-(2**64), 2**64), st.sampled_from(list(Unit)))
def test_a_cell_of_numbers_is_a_plain_number_or_empty(value: float, unit: Unit) -> None:
    if unit in {Unit.TIME, Unit.BITS, Unit.PSTATE, Unit.TEXT}:
        return
    text = cell(value, unit)
    assert set(text) <= set("-0123456789.")
    assert (text == "") == (not math.isfinite(value))


def test_words_are_nvidia_smis() -> None:
    told = gpu_cells(gpu(pstate=2, ecc_mode=True, persistence_mode=False, clock_event_reasons=0x24))
    assert told["pstate"] == "P2"
    assert told["clocks_event_reasons.active"] == "0x0000000000000024"
    assert (told["ecc.mode.current"], told["persistence_mode"]) == ("Enabled", "Disabled")
    assert told["memory.unified"] == "No"


# Times


@given(st.floats(0, 4e9).map(lambda time: round(time, 3)))
def test_a_time_has_its_zone_and_is_exact_to_the_millisecond(time: float) -> None:
    read = datetime.fromisoformat(iso_time(time))
    assert read.tzinfo is not None
    assert abs(read.timestamp() - time) <= 0.001


def test_the_age_says_how_old_the_values_of_a_silent_card_are() -> None:
    silent = gpu(status=GpuStatus.NO_ANSWER, status_since=NOON - 8, sampled_at=NOON - 12.5)
    told = gpu_cells(silent)
    assert (told["status"], told["age [s]"]) == ("no answer", "12.5")
    assert datetime.fromisoformat(told["status.since"]).timestamp() == NOON - 8


# Text of other people


def harmless(text: str) -> bool:
    """Whether nothing in a cell acts on a terminal, a spreadsheet or a reader of lines."""
    visible = all(unicodedata.category(character)[0] != "C" for character in text)
    return visible and "\n" not in text and not text.startswith(("=", "+", "-", "@"))


def test_nothing_that_others_chose_can_act_in_a_cell() -> None:
    mig = MigInstance(HOSTILE, 0, profile=HOSTILE)
    card = gpu(name=HOSTILE, pci_bus_id=HOSTILE, compute_mode=HOSTILE, mig=(mig,))
    host = Host(HOSTILE, driver_version=HOSTILE, cuda_version=HOSTILE)
    told = gpu_cells(card, replace(snapshot(NOON, card), host=host))
    one = replace(
        process(user=HOSTILE), name=HOSTILE, command=(HOSTILE, "x"), place=place_of(HOSTILE)
    )
    for name, value in (told | process_cells(one)).items():
        assert harmless(value), name
    assert told["name"].startswith("'=1+1")


@given(st.lists(st.text(), max_size=5))
def test_any_command_line_is_one_harmless_cell(command: list[str]) -> None:
    text = process_cells(replace(process(), command=tuple(command)))["command"]
    assert harmless(text)
    assert len(text) <= TEXT_CHARACTERS + 1


def test_mig_devices_stand_in_one_cell_and_come_back_from_it() -> None:
    mig = MigInstance("MIG-1", 0, 9, 0, "1g.10gb", 16, 10 * GIB, GIB, 9 * GIB)
    devices = (mig, MigInstance("MIG-2", 1))
    written = gpu_cells(gpu(mig=devices))["mig.devices"]
    assert written == (f"0 MIG-1 9 0 1g.10gb 16 {10 * GIB} {GIB} {9 * GIB};1 MIG-2 - - - - - - -")
    assert mig_devices(written) == devices
    assert mig_devices("nonsense;0 MIG-3;0 MIG-4 x - - - - - -") == ()
    assert mig_devices("0 MIG-5 - - - - 4503599626321920 -1 -") == ()


# What other people's tools make of it, without a word of help


@pytest.fixture(scope="module")
def sampled() -> list[Snapshot]:
    source = DemoSource()
    source.open()
    return list(source.past())[-40:]


@pytest.fixture(scope="module")
def demo_log(sampled: list[Snapshot], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("demo") / "run.csv", sampled)


def ask(question: str, path: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        return database.execute(question.replace("FILE", str(path))).fetchall()


@pytest.mark.slow
def test_duckdb_opens_both_files_and_knows_times_and_numbers(
    demo_log: Path, sampled: list[Snapshot]
) -> None:
    types = dict(row[:2] for row in ask("describe select * from 'FILE'", demo_log))
    assert types["timestamp"] == "TIMESTAMP WITH TIME ZONE"
    for column in ("memory.used [MiB]", "power.draw [W]", "elapsed [s]"):
        assert types[column] == "DOUBLE"
    assert types["utilization.gpu [%]"] == types["index"] == "BIGINT"
    ((rows, cards, memory),) = ask(
        "select count(*), count(distinct uuid), sum(\"memory.used [MiB]\") from 'FILE'", demo_log
    )
    gpus = [gpu for snapshot in sampled for gpu in snapshot.gpus]
    assert (rows, cards) == (len(gpus), len({gpu.uuid for gpu in gpus}))
    assert memory == pytest.approx(sum(gpu.memory_used or 0 for gpu in gpus) / 2**20)

    processes = demo_log.with_suffix(".processes.csv")
    ((last,),) = ask("select count(distinct pid) from 'FILE'", processes)
    assert last == len({process.id.pid for one in sampled for process in one.processes})
    types = dict(row[:2] for row in ask("describe select * from 'FILE'", processes))
    assert (types["used_gpu_memory [MiB]"], types["pid"]) == ("DOUBLE", "BIGINT")


def test_an_unknown_value_is_null_and_no_zero(demo_log: Path, sampled: list[Snapshot]) -> None:
    lost = sum(gpu.power_draw is None for one in sampled for gpu in one.gpus)
    ((found,),) = ask("select count(*) from 'FILE' where \"power.draw [W]\" is null", demo_log)
    assert found == lost > 0
