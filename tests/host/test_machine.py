"""What the reader of the machine promises."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gpumon.host.machine import MachineReader
from gpumon.system.system import System

FIELDS = (
    *("user", "nice", "system", "idle", "iowait"),
    *("irq", "softirq", "steal", "guest", "guest_nice"),
)


class Proc:
    """A process file system of one's own, as far as the machine is read from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory(MemTotal=64, MemFree=16, MemAvailable=32)

    def processor(self, **ticks: int) -> None:
        words = [str(ticks.get(name, 0)) for name in FIELDS]
        lines = f"cpu  {' '.join(words)}\ncpu0 {' '.join(words)}\nintr 1 2 3\n"
        (self.folder / "stat").write_text(lines)

    def memory(self, **kibibytes: int) -> None:
        lines = [f"{name}:  {size} kB\n" for name, size in kibibytes.items()]
        (self.folder / "meminfo").write_text("".join((*lines, "HugePages_Total:       0\n")))

    def reader(self) -> MachineReader:
        return MachineReader(System(str(self.folder)))


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_the_machine_is_told_as_it_is() -> None:
    facts = MachineReader().read()
    memory = psutil.virtual_memory()
    assert (facts.name, facts.cpu_count) == (socket.gethostname(), psutil.cpu_count())
    assert facts.memory_total == memory.total
    assert facts.memory_used == pytest.approx(memory.total - memory.available, rel=0.2)
    assert facts.load == pytest.approx(os.getloadavg(), abs=0.5)


def test_what_cannot_be_opened_is_unknown_and_comes_back(proc: Proc) -> None:
    reader = proc.reader()
    (proc.folder / "meminfo").unlink()
    facts = reader.read()
    assert (facts.memory_total, facts.memory_used, facts.cpu_percent) == (None, None, None)
    proc.memory(MemTotal=64, MemAvailable=32)
    assert reader.read().memory_total == 64 * 1024


def test_a_file_with_nothing_in_it_tells_nothing(proc: Proc) -> None:
    (proc.folder / "stat").write_text("")
    (proc.folder / "meminfo").write_text("\n")
    facts = proc.reader().read()
    assert (facts.memory_total, facts.memory_used, facts.cpu_percent) == (None, None, None)


@pytest.mark.parametrize(
    ("kibibytes", "used"),
    [
        pytest.param({"MemFree": 16, "MemAvailable": 32}, 32 * 1024, id="what is not available"),
        pytest.param({"MemFree": 16}, None, id="the kernel does not say what is available"),
        pytest.param({"MemAvailable": 256}, 0, id="more is available than a container has"),
    ],
)
def test_memory_in_use(proc: Proc, kibibytes: dict[str, int], used: int | None) -> None:
    proc.memory(MemTotal=64, **kibibytes)
    facts = proc.reader().read()
    assert (facts.memory_total, facts.memory_used) == (64 * 1024, used)


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [
        ({"user": 100, "idle": 100}, {"user": 103, "idle": 105, "iowait": 2}, 30.0),
        ({}, {"user": 5, "nice": 1, "guest": 4, "guest_nice": 1, "idle": 4}, 60.0),
        ({"user": 1, "iowait": 5}, {"user": 3, "iowait": 4}, 100.0),
    ],
    ids=["idle", "guests are not counted twice", "a waiting count that goes backwards"],
)
def test_the_processor_is_unknown_at_first_and_measured_between_readings(
    proc: Proc, before: dict[str, int], after: dict[str, int], percent: float
) -> None:
    reader = proc.reader()
    proc.processor(**before)
    assert reader.read().cpu_percent is None
    proc.processor(**after)
    assert reader.read().cpu_percent == pytest.approx(percent)


def test_counters_that_did_not_move_leave_the_last_value(proc: Proc) -> None:
    reader = proc.reader()
    proc.processor(user=1)
    reader.read()
    assert reader.read().cpu_percent is None
    proc.processor(user=2, idle=1)
    assert reader.read().cpu_percent == pytest.approx(50.0)
    assert reader.read().cpu_percent == pytest.approx(50.0)


def test_a_machine_without_load_averages_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("Load averages are unobtainable")

    monkeypatch.setattr(os, "getloadavg", refuse)
    assert MachineReader().read().load is None


def test_psutil_is_not_imported_by_a_reading() -> None:
    program = (
        "import sys; from gpumon.host import machine, pci, processes, procfs;"
        "machine.MachineReader().read(); print('psutil' in sys.modules)"
    )
    output = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert output.strip() == "False"
