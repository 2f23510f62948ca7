"""What gpumon remembers is bounded in bytes, however many processes, cards and faults pass by."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from weakref import WeakSet

import pytest

from gpumon.host.process_tree import Descendants
from gpumon.host.workloads import WorkloadReader
from gpumon.scheduling.choose import StabilityWindow
from gpumon.scheduling.eligibility import Circumstances, judge
from gpumon.scheduling.requirements import Requirements
from gpumon.system.system import System
from gpumon.text.command_lines import shorten_command
from gpumon.text.formatting import cell_width, printable
from tests.build import NOON, gpu, process, snapshot
from tests.clock import HandClock
from tests.driver import Driver, h100
from tests.host.fakes import FakeProc
from tests.nvml_source import NvmlSource

pytestmark = pytest.mark.slow

MIB = 2**20
_PATIENCE = 5.0
_hanging: WeakSet[threading.Thread] = WeakSet()
_VARIABLES = (
    *("CONDA_DEFAULT_ENV", "HOSTNAME", "JPY_SESSION_NAME", "SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID"),
    *("SLURM_STEP_ID", "TMUX", "VIRTUAL_ENV", "container"),
)
"""Of the environment of a process, these are kept."""


def others() -> set[threading.Thread]:
    """The other threads, without those for which a test has waited in vain."""
    return set(threading.enumerate()) - {threading.current_thread(), *_hanging}


def kept(do: Callable[[], object]) -> int:
    """Bytes that are held once something was done, by what it returns too."""
    # Threads that earlier tests told to end would be counted; one that hangs allocates nothing.
    deadline = time.monotonic() + _PATIENCE
    while (ending := others()) and time.monotonic() < deadline:
        time.sleep(0.05)
    _hanging.update(ending)
    gc.collect()
    tracemalloc.start()
    try:
        returned = do()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        del returned
        return held
    finally:
        tracemalloc.stop()


def long_text(number: int) -> str:
    return random.Random(number).randbytes(2040).hex() + "é"


@pytest.mark.parametrize("remember", [printable, cell_width])
def test_long_texts_do_not_fill_the_caches(remember: Callable[[str], object]) -> None:
    def pass_by() -> None:
        for number in range(1000):
            remember(long_text(number))

    assert kept(pass_by) < 2.5 * MIB


def test_long_commands_do_not_fill_the_caches() -> None:
    def pass_by() -> None:
        for number in range(400):
            shorten_command((str(number), long_text(number), *[""] * 4000), 9)

    assert kept(pass_by) < 10 * MIB


def test_workloads_of_many_short_processes_are_forgotten(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path / "proc")
    reader = WorkloadReader(proc.system, root=str(tmp_path))
    there = []
    for pid in range(1000, 1200):
        one = proc.add(pid, command=b"python\0" + long_text(pid).encode())
        environ = [f"{name}={long_text(pid)}\0" for name in _VARIABLES]
        (proc.root / str(pid) / "environ").write_text("".join(environ))
        there.append(process(pid, start_time=one.start_time))

    def pass_by() -> WorkloadReader:
        for one in there:
            assert reader.read([one])
        return reader

    assert kept(pass_by) < 7 * MIB


def test_a_job_of_weeks_does_not_remember_every_process_it_started(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path / "proc")
    members = Descendants(50, system=proc.system)
    for pid, parent in ((50, 1), (100, 50), (200, 1)):
        proc.add(pid, parent)
    lists = [
        [process(pid, start_time=pid) for pid in range(begin, begin + 500)]
        for begin in range(10_000, 60_000, 500)
    ]
    theirs = [process(pid, start_time=pid) for pid in (100, 200)]

    def pass_by() -> None:
        for listed in lists:
            assert members.among([*theirs, *listed]) == (theirs[0],)

    assert kept(pass_by) < 1.5 * MIB


def test_watching_a_card_for_days_keeps_no_look_that_tells_nothing() -> None:
    steady = StabilityWindow(7 * 86400)

    def watch() -> None:
        for number in range(5000):
            # A new sample has new cards.
            seen = snapshot(NOON + number, gpu(memory_used=0, power_draw=70.0 + number))
            steady.add(NOON + number, judge(seen, Requirements(), Circumstances()))

    assert kept(watch) < MIB
    assert steady.left == 7 * 86400 - 4999


def test_a_driver_that_fails_again_and_again_leaves_no_queries() -> None:
    with Driver([h100()] * 2) as driver:
        driver.attach()
        # No time passes, so no query of a handle from before is due, and found to be stopped.
        source = NvmlSource(system=System(clock=HandClock()))

        def reload() -> NvmlSource:
            source.open()
            try:
                for _ in range(40):
                    driver.reload()
                    source.sample()
            finally:
                source.close()
            return source

        assert kept(reload) < 2 * MIB


def test_faults_without_end_and_processes_without_number_stay_within_the_bound() -> None:
    soak = [sys.executable, "-m", "tests.bench.soak", "--faults", "--hours", "1"]
    ended = subprocess.run([*soak, "--interval", "36"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
