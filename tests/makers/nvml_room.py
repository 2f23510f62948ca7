"""Where the tests of the NVML source stand: a simulated driver, a clock in hand, a source."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from gpumon.host import kernel_watcher
from gpumon.makers.nvidia.library import c_function, load_library
from gpumon.makers.nvidia.xids import THREAD
from gpumon.model.selection import ALL, GpuSelection
from gpumon.system.system import System
from tests.clock import HandClock
from tests.driver import Driver, Model
from tests.nvml_source import NvmlSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, Snapshot

UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 1, 2, 3, 4, 6
INSUFFICIENT_SIZE = 7
NOT_LOADED, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, LOST, RESET_REQUIRED = 9, 12, 13, 15, 16
OPERATING_SYSTEM = 17
MISMATCH, IN_USE, MEMORY, NO_DATA, RESOURCES, OLD_VERSION, NOT_READY = 18, 19, 20, 21, 23, 25, 27
UNKNOWN = 999


class Room:
    """A driver with cards, and a source that samples it when told to."""

    def __init__(self, driver: Driver, proc: Path, sys_folder: Path, kernel_log: Path) -> None:
        self.driver = driver
        self.clock = HandClock()
        self.proc = proc
        self.sys = sys_folder
        self.kernel_log = kernel_log
        self.slept = 0.0
        self.sources: list[NvmlSource] = []
        self.replaced: dict[str, Function] = {}

    def new_source(
        self, selection: GpuSelection = ALL, proc: str | None = None, *, profiled: bool = False
    ) -> NvmlSource:
        dev = str(self.kernel_log.parent)
        system = System(proc or "/proc", str(self.sys), dev, self.clock, lambda: self.slept)
        source = NvmlSource(selection, system, profiled=profiled)
        self.sources.append(source)
        return source

    def open(
        self, selection: GpuSelection = ALL, proc: str | None = None, *, profiled: bool = False
    ) -> NvmlSource:
        source = self.new_source(selection, proc, profiled=profiled)
        source.open()
        return source

    def sample(self, seconds: float = 0.1, *, full: bool = True) -> Snapshot:
        """One more sample of the first source, so many seconds later."""
        self.clock.now += seconds
        return self.sources[0].sample(full=full)

    def samples(self, count: int, seconds: float = 0.1) -> Snapshot:
        """The last of several samples."""
        for _ in range(count - 1):
            self.sample(seconds)
        return self.sample(seconds)

    def gpu(self, seconds: float = 0.1, index: int = 0) -> Gpu:
        """A card in one more sample."""
        return self.sample(seconds).gpus[index]

    def processes(self, seconds: float = 1.0) -> dict[int, GpuProcess]:
        """The processes in one more sample, by PID."""
        return {process.id.pid: process for process in self.sample(seconds).processes}

    def calls(self, function: str) -> int:
        """How often a function was called, over all cards."""
        spent = self.driver.calls().get(function)
        return spent.calls if spent else 0

    def close(self) -> None:
        for source in self.sources:
            source.close()
        pynvml._nvmlGetFunctionPointer_cache.update(self.replaced)
        # A driver that is gone lets the waiting threads go at once.
        self.driver.close()
        join_watchers()


Function = Callable[..., int]


def replace_function(room: Room, name: str, function: Function) -> Function:
    """Put a function between the source and the driver's of that name, which is returned."""
    replaced = c_function(name)
    room.replaced.setdefault(name, replaced)
    pynvml._nvmlGetFunctionPointer_cache[name] = function
    return replaced


def kernel_thread() -> threading.Thread | None:
    """The thread that reads the kernel log; it ends where that may not be read."""
    threads = (thread for thread in threading.enumerate() if thread.name == kernel_watcher.THREAD)
    return next(threads, None)


def count_events(room: Room) -> Callable[[], int]:
    """Returns what counts the events of the driver that the source has received from now on."""
    load_library()
    handed_out, received = 0, 0

    def counted(*arguments: object) -> int:
        nonlocal handed_out, received
        # The thread that waits comes back for the next one.
        received = handed_out
        code = wait(*arguments)
        handed_out += not code
        return code

    wait = replace_function(room, "nvmlEventSetWait_v2", counted)
    return lambda: received


def join_watchers() -> None:
    """Wait for the threads that wait for XIDs."""
    for thread in threading.enumerate():
        if thread.name in {THREAD, kernel_watcher.THREAD}:
            thread.join(60)


@pytest.fixture
def furnish(tmp_path: Path) -> Iterator[Callable[..., Room]]:
    """Makes a room with these cards; what `Driver` takes may be given by name."""
    rooms: list[Room] = []

    def make(*models: Model, **driver: Any) -> Room:
        folders = (tmp_path / name for name in ("proc", "sys", "kmsg"))
        room = Room(Driver(models, **driver), *folders)
        room.driver.set_clock(10.0)
        room.driver.attach()
        rooms.append(room)
        return room

    yield make
    for room in rooms:
        room.close()


@pytest.fixture
def opened(furnish: Callable[..., Room]) -> Callable[..., Room]:
    """Makes a room as `furnish` does, and opens its source."""

    def make(*models: Model, **driver: Any) -> Room:
        room = furnish(*models, **driver)
        room.open()
        return room

    return make


_ELSEWHERE = """
import sys
import msgspec
from gpumon.makers.source import SourceError
from gpumon.makers.machine import this_machine
source = this_machine()
try:
    source.open()
except SourceError as error:
    answer = {"sentence": error.sentence, "advice": error.advice}
else:
    # The structures that are arrays in their encoded form as objects.
    snapshot = source.sample()
    answer = {
        "gpus": [msgspec.structs.asdict(gpu) for gpu in snapshot.gpus],
        "processes": [
            {"uses": [msgspec.structs.asdict(use) for use in process.uses]}
            for process in snapshot.processes
        ],
    }
    source.close()
sys.stdout.buffer.write(msgspec.json.encode(answer))
"""


def sample_elsewhere(driver: Driver, **env: str) -> dict[str, Any]:
    """The first snapshot of a process of its own, or why there is none.

    A process keeps the first library it loaded: a driver that lacks symbols needs another one.
    """
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE],
        env={**driver.env(), **env},
        capture_output=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
