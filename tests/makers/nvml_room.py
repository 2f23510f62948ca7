"""Where the tests of the NVML source stand: a simulated driver, a clock in hand, a source."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from gpumon.host import kernel_watcher
from gpumon.makers.nvidia.library import c_function, load_library
from gpumon.makers.nvidia.xids import THREAD
from gpumon.model.selection import ALL, GpuSelection
from gpumon.system.system import System
from tests.clock import HandClock
from tests.driver import Card, Driver, Model, Owner
from tests.driver.layout import FUNCTION_IDS
from tests.makers.hanging import Hanging, wait_until
from tests.nvml_source import NvmlSource
from tests.threads import wait_for_end

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, Snapshot


PCIE_THROUGHPUT = "nvmlDeviceGetPcieThroughput"


class Code(IntEnum):
    """What a function of NVML returns, as far as tests name it."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    MISMATCH = 18
    IN_USE = 19
    MEMORY = 20
    NO_DATA = 21
    RESOURCES = 23
    OLD_VERSION = 25
    NOT_READY = 27
    UNKNOWN = 999

    def __str__(self) -> str:
        return self.name  # in the names of tests


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

    @property
    def card(self) -> Card:
        """The first card."""
        return self.driver.cards[0]

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

    def write_log(self, *lines: str) -> None:
        """Append lines to the kernel log, which is there from the first on."""
        with self.kernel_log.open("a") as log:
            log.writelines(lines)

    def until_registered(self, count: int) -> None:
        """Wait until cards were registered for events so often."""
        wait_until(lambda: self.calls("nvmlDeviceRegisterEvents") == count)

    def close(self) -> None:
        for source in self.sources:
            source.close()
        pynvml._nvmlGetFunctionPointer_cache.update(self.replaced)
        # A driver that is gone lets the waiting threads go at once.
        self.driver.close()
        join_watchers()


Function = Callable[..., int]
Furnish = Callable[..., Room]


def replace_function(room: Room, name: str, function: Function) -> Function:
    """Put a function between the source and the driver's of that name, which is returned."""
    replaced = c_function(name)
    room.replaced.setdefault(name, replaced)
    pynvml._nvmlGetFunctionPointer_cache[name] = function
    return replaced


class BlockingClock(HandClock):
    """Moves with every call that blocks, which itself takes no time here."""

    def __init__(
        self, cards: list[Card], function: str = PCIE_THROUGHPUT, seconds: float = 0.020
    ) -> None:
        super().__init__()
        for card in cards:
            card.latency(function, 0)
        self._rows = [card._rows[FUNCTION_IDS[function]] for card in cards]
        self._seconds = seconds

    def blocked(self) -> int:
        return sum(row.calls for row in self._rows)

    def monotonic(self) -> float:
        return self.now + self._seconds * self.blocked()


def sampling(room: Room, card: Card, function: str = "nvmlDeviceGetPowerUsage") -> Hanging:
    """A sample that hangs in a call about a card."""
    card.hang(function)
    source = room.sources[0]
    return Hanging(source, source.sample, card.uuid, function, card.release)


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
    wait_for_end(lambda thread: thread.name in {THREAD, kernel_watcher.THREAD})


@pytest.fixture
def furnish(tmp_path: Path) -> Iterator[Furnish]:
    """Makes a room with these cards; what `Driver` takes may be given by name.

    `owners` use the first card, and `failing` are the codes that its functions return.
    """
    rooms: list[Room] = []

    def make(
        *models: Model,
        owners: Iterable[Owner] = (),
        failing: Mapping[str | None, int] | None = None,
        **driver: Any,
    ) -> Room:
        folders = (tmp_path / name for name in ("proc", "sys", "kmsg"))
        room = Room(Driver(models, **driver), *folders)
        room.driver.set_clock(10.0)
        room.driver.attach()
        rooms.append(room)
        if owners:
            room.card.processes = tuple(owners)
        for function, code in (failing or {}).items():
            room.card.fail(function, code)
        return room

    yield make
    for room in rooms:
        room.close()


@pytest.fixture
def opened(furnish: Furnish) -> Furnish:
    """Makes a room as `furnish` does, and opens its source."""

    def make(
        *models: Model, selection: GpuSelection = ALL, profiled: bool = False, **more: Any
    ) -> Room:
        room = furnish(*models, **more)
        room.open(selection, profiled=profiled)
        return room

    return make


@pytest.fixture
def sampled(opened: Furnish) -> Furnish:
    """Makes a room as `opened` does, of which one sample was taken."""

    def make(*models: Model, **more: Any) -> Room:
        room = opened(*models, **more)
        room.sample()
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
