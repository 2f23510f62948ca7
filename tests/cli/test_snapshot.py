"""``gpumon snapshot``: every format tells what the driver says, and nothing else."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from gpumon.cli.commands import command
from gpumon.cli.machine_options import SampleOptions
from gpumon.cli.parser import make_parser
from gpumon.host.process_host import ProcessHost
from gpumon.makers.demo import DemoSource
from gpumon.model.processes import Container, GpuProcess, ProcessId, Workload
from gpumon.model.snapshot import GPU_METRICS, Snapshot
from gpumon.sampling.enrichment import Lookup
from tests.build import GivenMachine
from tests.command import GPUMON, run_gpumon, run_program
from tests.driver import GIB, MIB, Card, Driver, Owner, gb10, h100, h100_mig, owners, rtx4090
from tests.sampling.test_enrichment import FakeHost, Hang
from tests.screen import PATIENCE, Screen

FORMATS = {
    "table": ["--format", "table"],
    "json": ["--format", "json"],
    "csv": ["--format", "csv"],
    "processes": ["--format", "csv", "--processes"],
    "prometheus": ["--format", "prometheus"],
}

# What the driver calls it, its unit here for one of the driver's, and what each format calls it.
READINGS = [
    ("memory_total", 1, "memory_total_bytes"),
    ("memory_used", 1, "memory_used_bytes"),
    ("memory_reserved", 1, "memory_reserved_bytes"),
    ("bar1_total", 1, "bar1_total_bytes"),
    ("bar1_used", 1, "bar1_used_bytes"),
    ("utilization_gpu", 1, "utilization_gpu_percent"),
    ("utilization_memory", 1, "utilization_memory_percent"),
    ("utilization_encoder", 1, "utilization_encoder_percent"),
    ("utilization_decoder", 1, "utilization_decoder_percent"),
    ("temperature", 1, "temperature_gpu_celsius"),
    ("temperature_memory", 1, "temperature_memory_celsius"),
    ("power_usage", 1e-3, "power_draw_watts"),
    ("power_limit_enforced", 1e-3, "power_limit_watts"),
    ("power_limit_max", 1e-3, "power_limit_max_watts"),
    ("clock_sm", 1, "clock_sm_mhz"),
    ("clock_memory", 1, "clock_memory_mhz"),
    ("clock_graphics", 1, "clock_graphics_mhz"),
    ("clock_video", 1, "clock_video_mhz"),
    ("clock_sm_max", 1, "clock_sm_max_mhz"),
    ("pstate", 1, "pstate"),
    ("clock_event_reasons", 1, "clock_event_reasons_bits"),
    ("fan_speed", 1, "fan_speed_percent"),
    ("pcie_generation", 1, "pcie_generation"),
    ("pcie_width", 1, "pcie_width"),
    ("ecc_mode", 1, "ecc_mode_enabled"),
    ("ecc_uncorrected_volatile", 1, "ecc_uncorrected_volatile"),
    ("ecc_corrected_aggregate", 1, "ecc_corrected_aggregate"),
    ("remapped_uncorrected", 1, "remapped_rows_uncorrectable"),
    ("persistence_mode", 1, "persistence_mode_enabled"),
]
CSV_COLUMN = {metric.json_key: metric.smi for metric in GPU_METRICS if metric.smi}
DCGM_NAME = {metric.json_key: metric.dcgm for metric in GPU_METRICS if metric.dcgm}

HIDDEN = 3_999_999
NAMES = (
    ["python", "train.py", "--lr", "3e-4"],
    ["python\x1b[2J\x1b[H", "\u202eevil", "a\nb", "=1+1"],
    ["./gmx", "mdrun"],
)


def snapshot(*arguments: str, env: Mapping[str, str] = os.environ, said: str = "") -> str:
    done = run_gpumon("snapshot", *arguments, env=env)
    assert (done.returncode, done.stderr) == (0, said)
    return done.stdout


class Machine:
    """Cards of four kinds with three live owners and one that is not visible here."""

    def __init__(self, driver: Driver, pids: list[int]) -> None:
        self.driver = driver
        self.first, self.hostile, self.last = pids
        driver.set_clock(10.0)
        card, ada, _, mig = driver.cards
        card.memory_used, card.utilization_gpu, card.temperature = 70 * GIB, 93, 61
        card.power_usage, card.clock_event_reasons, card.clock_sm = 612_345, 0x4, 1755
        card.ecc_corrected_aggregate, card.remapped_uncorrected = 12, 1
        card.processes = [
            Owner(self.first, memory=40 * GIB, sm=77),
            Owner(self.hostile, memory=None, type="G"),
            Owner(HIDDEN, memory=3 * GIB, sm=5),
        ]
        ada.memory_used, ada.fan_speed, ada.pstate = 5 * GIB, 44, 2
        ada.name = b"RTX \x1b[31;1m4090\x1b]0;owned\x07\n\xff\xfe"
        ada.processes = [Owner(self.first, memory=4 * GIB, sm=3)]
        instance = mig.mig[0]
        instance.memory_used = 9 * GIB
        place = {name: getattr(instance, name) for name in ("gpu_instance", "compute_instance")}
        mig.processes = [Owner(self.last, memory=8 * GIB, **place)]
        self.printed = {
            form: snapshot(*options, env=driver.env()) for form, options in FORMATS.items()
        }

    def json(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.printed["json"])
        return read

    def expected(self, reading: str, factor: float) -> Iterator[tuple[Card, float | None]]:
        """What the driver says of each card, in gpumon's unit."""
        for card in self.driver.cards:
            if card.memory_total is None and reading in ("memory_total", "memory_used"):
                continue  # A chip without memory of its own is told to have the host's.
            value = card.get(reading)
            if card is self.driver.cards[3] and reading.startswith("utilization"):
                value = None  # unknown for a card that is cut into instances
            yield card, None if value is None else value * factor

    def owned(self) -> set[tuple[int, str, int | None]]:
        """Every owner as the driver tells it: PID, card, bytes."""
        return {
            (owner.pid, card.uuid, owner.memory)
            for card in self.driver.cards
            for owner in card.processes
        }


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with ExitStack() as stack:
        started = [stack.enter_context(owners(1, name))[0] for name in NAMES]
        driver = stack.enter_context(Driver([h100(), rtx4090(), gb10(), h100_mig()]))
        yield Machine(driver, [process.pid for process in started])


def rows(text: str) -> list[dict[str, str]]:
    found = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    assert all(None not in row and None not in row.values() for row in found)
    return found


def samples(text: str) -> dict[str, dict[str, float]]:
    """Values by name and card."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # The parser gives counters the suffix that OpenMetrics wants.
            if "UUID" in sample.labels:
                cards = found.setdefault(sample.name.removesuffix("_total"), {})
                cards[sample.labels["UUID"]] = sample.value
    return found


# JSON


@pytest.mark.parametrize(("reading", "factor", "key"), READINGS)
def test_json_tells_what_the_driver_says(
    machine: Machine, reading: str, factor: float, key: str
) -> None:
    told = {gpu["uuid"]: gpu[key] for gpu in machine.json()["gpus"]}
    assert len(told) == len(machine.driver.cards)
    for card, expected in machine.expected(reading, factor):
        if expected is None:
            assert told[card.uuid] is None, card.index
        else:
            assert told[card.uuid] == pytest.approx(expected), card.index
    assert any(value is not None for value in told.values())


def test_json_says_why_a_value_is_null_and_never_writes_nan(machine: Machine) -> None:
    ada = machine.json()["gpus"][1]
    assert ada["temperature_memory_celsius"] is None
    assert ada["unknown"]["temperature_memory_celsius"] == "not supported"
    json.loads(machine.printed["json"], parse_constant=pytest.fail)


def test_json_names_the_machine_and_the_driver(machine: Machine) -> None:
    told = machine.json()
    assert told["schema"] == "gpumon.snapshot/1"
    assert told["source"] == "nvml"
    assert told["host"]["name"] == os.uname().nodename
    assert told["host"]["driver_version"] == "570.124.06"
    assert [gpu["uuid"] for gpu in told["gpus"]] == [card.uuid for card in machine.driver.cards]


def test_json_nests_mig_devices_with_their_memory(machine: Machine) -> None:
    told = machine.json()["gpus"][3]["mig"]
    assert [(mig["gpu_instance"], mig["memory_used_bytes"]) for mig in told] == [
        (mig.gpu_instance, mig.memory_used) for mig in machine.driver.cards[3].mig
    ]


def test_json_has_every_process_with_what_it_has_of_each_card(machine: Machine) -> None:
    told = {process["pid"]: process for process in machine.json()["processes"]}
    uses = {
        (pid, use["gpu_uuid"], use["memory_used_bytes"])
        for pid, process in told.items()
        for use in process["uses"]
    }
    assert uses == machine.owned()
    first = told[machine.first]
    assert first["gpu"] == [0, 1], "a process on several GPUs is one process"
    assert first["memory_used_bytes"] == 44 * GIB
    assert first["command"] == NAMES[0]
    assert first["uid"] == os.getuid()
    assert [use["sm_percent"] for use in first["uses"]] == [77, 3]
    assert told[machine.hostile]["memory_used_bytes"] is None
    assert told[machine.hostile]["command"] == NAMES[1]
    (use,) = told[machine.last]["uses"]
    assert use["gpu_instance"] == machine.driver.cards[3].mig[0].gpu_instance


def test_json_marks_a_process_of_another_name_space_and_matches_it_with_nobody(
    machine: Machine,
) -> None:
    told = {process["pid"]: process for process in machine.json()["processes"]}
    assert [pid for pid, process in told.items() if not process["visible"]] == [HIDDEN]
    for key in ("user", "uid", "name", "start_time_ticks", "rss_bytes", "cpu_percent"):
        assert told[HIDDEN][key] is None
    assert told[HIDDEN]["memory_used_bytes"] == 3 * GIB


# CSV


@pytest.mark.parametrize(
    ("reading", "factor", "key"), [line for line in READINGS if line[2] in CSV_COLUMN]
)
def test_csv_tells_what_the_driver_says(
    machine: Machine, reading: str, factor: float, key: str
) -> None:
    found = {row["uuid"]: row for row in rows(machine.printed["csv"])}
    assert len(found) == len(machine.driver.cards)
    names = next(iter(found.values()))
    (column,) = (name for name in names if name.partition(" [")[0] == CSV_COLUMN[key])
    for card, expected in machine.expected(reading, factor):
        row = found[card.uuid]
        if expected is None:
            assert row[column] == "", card.index
        elif key.endswith("_bytes"):
            assert int(row[column]) == expected // MIB
        elif key.endswith("_enabled"):
            assert row[column] == ("Enabled" if expected else "Disabled")
        elif key.endswith("_bits"):
            assert int(row[column], 16) == expected
        else:
            assert float(row[column].removeprefix("P")) == pytest.approx(expected, abs=0.005)


def test_csv_has_a_row_for_every_process_and_card(machine: Machine) -> None:
    found = rows(machine.printed["processes"])
    memory = "used_gpu_memory [MiB]"
    told = {
        (int(row["pid"]), row["gpu_uuid"], int(row[memory]) * MIB if row[memory] else None)
        for row in found
    }
    assert len(found) == len(told)
    assert told == machine.owned()
    (hidden,) = (row for row in found if row["pid"] == str(HIDDEN))
    assert hidden["user"] == hidden["process_name"] == hidden["start_time"] == ""
    (other, *_) = (row for row in found if row["pid"] == str(machine.first))
    assert other["process_name"] == " ".join(NAMES[0])


# Prometheus


@pytest.mark.parametrize(
    ("reading", "factor", "key"), [line for line in READINGS if line[2] in DCGM_NAME]
)
def test_prometheus_tells_what_the_driver_says(
    machine: Machine, reading: str, factor: float, key: str
) -> None:
    found = samples(machine.printed["prometheus"])[DCGM_NAME[key]]
    for card, expected in machine.expected(reading, factor):
        if expected is None:
            assert card.uuid not in found, card.index
        elif key.endswith("_bytes"):
            assert found[card.uuid] == expected // MIB
        else:
            assert found[card.uuid] == pytest.approx(expected)


def test_prometheus_has_no_sample_that_is_no_number(machine: Machine) -> None:
    found = samples(machine.printed["prometheus"])
    assert found
    assert all(math.isfinite(value) for cards in found.values() for value in cards.values())


# The table


def test_the_table_has_every_card_and_every_process(machine: Machine) -> None:
    lines = machine.printed["table"].splitlines()
    cards = [line for line in lines if re.match(r" \d \S", line)]
    assert [int(line.split()[0]) for line in cards] == [0, 1, 2, 3]
    assert re.search(r" 70\.0/79\.6G .* 93% .* 61 +612/700W +1755 ", cards[0])
    assert sum(line.startswith(" └ ") for line in lines) == len(machine.driver.cards[3].mig)
    heading = next(n for n, line in enumerate(lines) if "COMMAND" in line)
    table = {int(line.split()[1]): line for line in lines[heading + 1 :]}
    assert table.keys() == {machine.first, machine.hostile, machine.last, HIDDEN}
    assert re.match(
        rf" +0,1 +{machine.first} .* 44\.0G .*python train\.py --lr 3e-4$", table[machine.first]
    )
    assert re.search(rf" {machine.hostile} \S+ +G +– ", table[machine.hostile])
    # Where a process here may have had this number, it has ended.
    said = r"\((not visible here|has ended; the driver still lists it)\)$"
    assert re.search(rf" {HIDDEN} – .* 3\.0G .*{said}", table[HIDDEN])


@pytest.mark.parametrize("form", FORMATS)
def test_names_of_other_people_cannot_act_on_a_terminal(machine: Machine, form: str) -> None:
    text = machine.printed[form]
    assert text.endswith("\n")
    # Not even an escape sequence of gpumon's own: nothing here is a terminal.
    assert text.replace("\n", "").isprintable()
    assert "4090" in text or form == "processes"


def test_a_name_with_a_line_break_makes_no_line_of_its_own(machine: Machine) -> None:
    assert len(rows(machine.printed["csv"])) == machine.printed["csv"].count("\n") - 1 == 4
    assert machine.printed["processes"].count("\n") == len(rows(machine.printed["processes"])) + 1


def test_on_a_terminal_the_table_is_as_wide_as_it() -> None:
    with Screen([*GPUMON, "snapshot", "--demo"], columns=80, lines=50) as screen:
        assert screen.wait_end() == 0
        lines = screen.text().rstrip().splitlines()
        assert b"\x1b" not in screen.output
    # A line that is too long would be two on the screen.
    assert [line[1] for line in lines[2:10]] == list("01234567")
    assert lines[10].startswith("── 18 processes")
    assert len(lines) == 12 + 18


# The demo


def test_the_demo_is_marked_as_one_in_every_format_that_can() -> None:
    assert snapshot("--demo").splitlines()[0].startswith(" gpumon  DEMO")
    assert json.loads(snapshot("--demo", "--format", "json"))["source"] == "demo"


def test_the_formats_agree_on_the_cards_and_processes_of_the_demo() -> None:
    told = json.loads(snapshot("--demo", "--format", "json"))
    cards = [gpu["uuid"] for gpu in told["gpus"]]
    pids = {process["pid"] for process in told["processes"]}
    assert len(cards) == 8
    assert [row["uuid"] for row in rows(snapshot("--demo", "--format", "csv"))] == cards
    listed = rows(snapshot("--demo", "--format", "csv", "--processes"))
    assert {int(row["pid"]) for row in listed} == pids
    metered = samples(snapshot("--demo", "--format", "prometheus"))
    assert set().union(*metered.values()) == set(cards)
    table = snapshot("--demo")
    for pid in pids:
        assert re.search(rf"^ +[\d,]+ +{pid} ", table, re.MULTILINE)
    assert re.search(r"^ 6 .* LOST ", table, re.MULTILINE)


# Where processes run


class Bare(DemoSource):
    """The demo, less what has to be looked up on a real machine."""

    def sample(self, *, full: bool = True) -> Snapshot:
        told = super().sample(full=full)
        processes = tuple(replace(process, place=None) for process in told.processes)
        return replace(told, processes=processes, holders=None)


class Whereabouts(FakeHost):
    """A host that says of every process that it is in a container of its own number."""

    def workloads(self, processes: Sequence[GpuProcess]) -> Mapping[ProcessId, Workload]:
        super().workloads(processes)
        return {
            one.id: Workload(container=Container("docker", name=f"c{one.id.pid}"))
            for one in processes
        }


def printed(form: str, host: ProcessHost, *more: str) -> str:
    options = make_parser().parse_args(["snapshot", "--format", form, *more])
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as stream:
        machine = GivenMachine(Bare(), host)
        patch.setattr(SampleOptions, "open", lambda *_, **__: machine)
        assert command("snapshot").run(options) == 0
        return stream.getvalue()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is late, however busy the machine."""
    monkeypatch.setattr(Lookup, "look_once", partialmethod(Lookup.look_once, patience=PATIENCE))


_PATIENTLY = f"""
from functools import partialmethod
from gpumon.sampling.enrichment import Lookup
Lookup.look_once = partialmethod(Lookup.look_once, patience={PATIENCE})
from gpumon.cli import main
raise SystemExit(main(["snapshot", "--format", "json"]))
"""


def test_real_processes_are_looked_up_and_those_of_another_name_space_are_not(
    machine: Machine,
) -> None:
    done = run_program([sys.executable, "-c", _PATIENTLY], machine.driver.env(), check=True)
    told = {process["pid"]: process["place"] for process in json.loads(done.stdout)["processes"]}
    for pid in (machine.first, machine.hostile, machine.last):
        # In a container, the session may be one from outside, which has no number here.
        assert told[pid]["session"] == (os.getsid(pid) or None)
        assert told[pid]["parent_pid"] == os.getpid()
    assert told[HIDDEN]["session"] is told[HIDDEN]["parent_pid"] is None


@pytest.mark.usefixtures("patient")
def test_every_format_with_processes_tells_where_they_run() -> None:
    told = json.loads(printed("json", Whereabouts()))
    assert told["holders"]["suspects"][0]["reason"] == "orphan"
    for process in told["processes"]:
        assert process["place"]["container"]["name"] == f"c{process['pid']}"
        assert process["container"] == f"docker c{process['pid']}"
    for row in rows(printed("csv", Whereabouts(), "--processes")):
        assert row["container"] == f"docker c{row['pid']}"
    table = printed("table", Whereabouts())
    assert all(f" docker c{process['pid']} " in table for process in told["processes"])


@pytest.mark.parametrize("form", ["csv", "prometheus"])
def test_nobody_looks_for_what_is_not_printed(form: str) -> None:
    host = FakeHost()
    assert printed(form, host)
    assert (host.places_asked, host.scans) == ([], 0)


def test_a_look_that_hangs_holds_nothing_up() -> None:
    host, hang = FakeHost(), Hang()
    host.before_workloads = hang
    told = json.loads(printed("json", host))
    assert told["processes"]
    assert told["holders"] is None
    assert {process["where"] for process in told["processes"]} == {None}
    hang.may_end.set()


# Some of it


@pytest.mark.parametrize(
    ("options", "gpus", "said"),
    [
        (["--filter", "user:ann gpu:1"], {1}, "user:ann gpu:1"),
        (["--user", "ann"], set(range(8)), "of ann"),
    ],
    ids=["filter", "user"],
)
def test_processes_are_narrowed_in_every_format_and_the_cards_are_left(
    options: list[str], gpus: set[int], said: str
) -> None:
    everybody = json.loads(printed("json", FakeHost()))["processes"]
    meant = {one["pid"] for one in everybody if one["user"] == "ann" and gpus & {*one["gpu"]}}
    assert 0 < len(meant) < len(everybody)
    told = json.loads(printed("json", FakeHost(), *options))
    assert {process["pid"] for process in told["processes"]} == meant
    assert len(told["gpus"]) == 8
    listed = rows(printed("csv", FakeHost(), "--processes", *options))
    assert {int(row["pid"]) for row in listed} == meant
    table = printed("table", FakeHost(), *options)
    assert f"{len(meant)} of {len(everybody)} processes" in table
    assert said in table, "what is left out is said"
    assert len(re.findall(r"^ \d \S", table, re.MULTILINE)) == 8


@pytest.mark.usefixtures("patient")
def test_a_filter_sees_what_was_looked_up() -> None:
    everybody = json.loads(printed("json", Whereabouts()))["processes"]
    pid = everybody[0]["pid"]
    told = json.loads(printed("json", Whereabouts(), "--filter", f"container:c{pid}"))
    assert [process["pid"] for process in told["processes"]] == [pid]


@pytest.mark.parametrize("terms", ["idle>1h", "!state:idle user:bo"])
def test_that_one_sample_tells_nobody_idle_is_said_beside_it(terms: str) -> None:
    done = run_program([*GPUMON, "snapshot", "--demo", "--filter", terms], check=True)
    assert re.fullmatch(r"gpumon: one sample cannot show idle processes: .*\n", done.stderr)
    assert " of 18 processes" in done.stdout


def test_a_snapshot_calls_no_card_well_whose_memory_has_no_owner() -> None:
    lines = snapshot("--demo").splitlines()[2:10]
    assert re.match(r" 3 H100 .*◐ 0% now  bo 52\.0G  ", lines[3])
    assert re.match(r" 7 H100 .*▚ 31G unattributed, orphan of ann  ", lines[7])


@pytest.mark.slow
def test_gpus_narrows_every_format_and_keeps_the_hidden(machine: Machine) -> None:
    card, env = machine.driver.cards[0], machine.driver.env()
    printed = {
        form: snapshot(*options, "--gpus", "0", env=env) for form, options in FORMATS.items()
    }
    by_uuid = snapshot("--format", "csv", "--gpus", card.uuid[:12], env=env)
    assert [row["uuid"] for row in rows(by_uuid)] == [card.uuid]
    told = json.loads(printed["json"])
    assert [gpu["uuid"] for gpu in told["gpus"]] == [card.uuid]
    pids = {machine.first, machine.hostile, HIDDEN}
    assert {process["pid"] for process in told["processes"]} == pids
    used = {use["gpu_uuid"] for process in told["processes"] for use in process["uses"]}
    assert used == {card.uuid}
    assert [row["uuid"] for row in rows(printed["csv"])] == [card.uuid]
    listed = {(int(row["pid"]), row["gpu_uuid"]) for row in rows(printed["processes"])}
    assert listed == {(pid, card.uuid) for pid in pids}
    assert set().union(*samples(printed["prometheus"]).values()) == {card.uuid}
    assert "RTX" not in printed["table"]
    assert "40.0G" in printed["table"], "what is on other GPUs is not counted"
    assert f" {HIDDEN} " in printed["table"]


@pytest.mark.slow
def test_whose_processes_are_listed_changes_nothing_about_a_card() -> None:
    with owners(1) as started, Driver([h100(memory_used=400 * MIB)]) as driver:
        driver.set_clock(10.0)
        driver.cards[0].processes = [Owner(started[0].pid, memory=300 * MIB, sm=0)]
        everybody = snapshot(env=driver.env()).splitlines()
        said = "gpumon: somebody-else has no process on these GPUs\n"
        nobody = snapshot("--user", "somebody-else", env=driver.env(), said=said).splitlines()
    assert "free" not in everybody[2], "somebody is on the GPU"
    assert nobody[2] == everybody[2]


@pytest.mark.parametrize("form", ["json", "prometheus"])
def test_one_sample_has_the_network_adapters_of_this_machine(form: str) -> None:
    real = {path.parent.name for path in Path("/sys/class/net").glob("*/device")}
    if not real:
        pytest.skip("this machine has no network adapter")
    with Driver([h100()]) as driver:
        command = [*GPUMON, "snapshot", "--format", form]
        told = run_program(command, driver.env(), check=True).stdout
    if form == "json":
        found = {nic["name"] for nic in json.loads(told)["host"]["nics"]}
    else:
        found = set(
            re.findall(r'^gpumon_nic_receive_bytes_total\{.*nic="([^"]+)"', told, re.MULTILINE)
        )
    assert found & real
