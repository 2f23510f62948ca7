"""A day of a busy machine in minutes: ``python -m tests.bench.soak``.

Everything that runs beneath the screen, and the dashboard's rows, on a simulated driver with eight
cards and a hundred processes that come and go, by a clock that does not wait. After each hour of it
memory, threads, open files and the length of a tick are told; after the first hour none of them may
grow, but for what is kept on purpose: the tape fills up for days and the history for one, each up
to its bound, and they are told apart. The exit status says whether anything else did, and whether
all memory together exceeded ``MOST_MIB``. Ticks and pictures are processor time, whatever else the
machine does.

With ``--faults`` calls return every error code, cards are lost or exchanged, XIDs come, and every
process has a command line of 4 KiB and lives for seconds.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import threading
import time
from array import array
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import pynvml
from msgspec.structs import replace

from gpumon.findings import conditions
from gpumon.host.processes import COMMAND_BYTES
from gpumon.makers.nvidia.queries import REACTIONS, Reaction
from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.history import History
from gpumon.recording.memory.recording import MOST_BYTES, MemoryRecording
from gpumon.sampling.collector import Collector
from gpumon.system.system import System
from gpumon.ui.view.dashboard_rows import Dashboard
from gpumon.ui.view.dashboard_view import View
from tests.bench.meters import pss_of
from tests.clock import ThreadedClock
from tests.driver import GIB, Driver, Owner, Wave, h100
from tests.driver.layout import FUNCTIONS
from tests.nvml_source import NvmlSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.processes import ProcessId
    from gpumon.model.snapshot import Snapshot

MOST_MIB = 90.0
"""What all memory may come to, with faults or without, and no screen: of the program 35, of the
tape 32 and of the history 21, as their bounds are."""
CARDS, PROCESSES = 8, 100
HEAD = (
    "| hours | PSS MiB | recording | history | rest | threads | open files | tick ms "
    "| picture ms |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)
_HOUR = 3600.0
_LIFE, _SHORT_LIFE = 1800.0, 20.0
"""Seconds a process lives, on average; the second one with faults."""
_CODES = [
    pynvml.NVML_ERROR_UNKNOWN,
    *(code for code, reaction in REACTIONS.items() if reaction is not Reaction.DRIVER),
]
"""Not of the driver as a whole: what ends with that waits by another clock than this one."""
_DEVICE_FUNCTIONS = [name for name in FUNCTIONS if name.startswith("nvmlDevice")]
_DRAWN = 5
"""Every so manieth sample is drawn."""
_HISTORY_MIB = 21.0
"""What eight cards and a hundred processes may come to, as ``gpumon.recording.history`` says."""
_FULL = 24
"""Hours after which nothing fills up any more that is kept on purpose."""
_MEMORY_GROWS = 1.03
_REST_GROWS = 1.25
_TICK_GROWS = 1.5
"""How much more there may be in the end: of all memory than when all was full, of what is beside
tape and history than after the first hour, as the allocator cannot use every hole that the tape
leaves when it packs, and of a tick likewise, as the machine has others to serve."""


class Figures(NamedTuple):
    """How it stands after some hours."""

    hours: float
    pss_mib: float
    tape_mib: float
    history_mib: float
    threads: int
    files: int
    tick_ms: float
    drawn_ms: float

    @property
    def rest_mib(self) -> float:
        """Memory beside tape and history."""
        return self.pss_mib - self.tape_mib - self.history_mib


class Day:
    """The machine, what looks at it, and its figures; the driver is loaded into this process."""

    def __init__(
        self,
        driver: Driver,
        interval: float,
        *,
        faults: bool = False,
        annotate: Callable[[Snapshot], Snapshot] | None = None,
    ) -> None:
        self._driver, self._interval = driver, interval
        self._clock = ThreadedClock(0.0)
        self._chance = random.Random(1)
        self._history, tape = History(conditions()), MemoryRecording(DEFAULTS.full_share)
        self._source = NvmlSource(system=System(clock=self._clock))
        self._faults = faults
        self._commands: dict[ProcessId, tuple[str, ...]] = {}
        annotate = self._with_long_commands if faults else annotate
        self._collector = Collector(self._source, interval, self._clock, annotate)
        self._collector.subscribe(self._history.add)
        self._collector.subscribe(tape.add)
        self._tape = tape
        self._dashboard = Dashboard(self._history)
        self._view = View(interval=interval)
        self._owners: list[Owner] = []
        self._next = 1_000_000
        self._clock.start(self._collector)

    def live(self, hours: float) -> Figures:
        """Let some hours pass; what they came to."""
        ticks, drawn = [], []
        for number in range(round(hours * _HOUR / self._interval)):
            ticks.append(self._tick())
            if number % _DRAWN == 0:
                began = time.thread_time()
                self._dashboard.rows(self._history.latest, self._view, 200, 50)
                drawn.append(time.thread_time() - began)
        return self._figures(ticks, drawn)

    def _tick(self) -> float:
        """One more sample; the seconds it took."""
        self._clock.now += self._interval
        self._come_and_go()
        if self._faults:
            self._break_something()
        began = time.process_time()
        self._collector.sample_now()
        self._clock.settle()
        return time.process_time() - began

    def _figures(self, ticks: list[float], drawn: list[float]) -> Figures:
        gc.collect()
        return Figures(
            self._clock.now / _HOUR,
            pss_of(os.getpid()) / 2**20,
            self._tape.bytes / 2**20,
            history_bytes(self._history) / 2**20,
            threading.active_count(),
            len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - they are counted
            1000 * median(ticks),
            1000 * median(drawn),
        )

    def close(self) -> None:
        self._collector.stop()

    def _come_and_go(self) -> None:
        """Every process has its life, and another comes in its place."""
        ending = self._interval / (_SHORT_LIFE if self._faults else _LIFE)
        kept = [owner for owner in self._owners if self._chance.random() > ending]
        if len(kept) == len(self._owners) == PROCESSES:
            return
        while len(kept) < PROCESSES:
            kept.append(Owner(self._newcomer(), memory=self._chance.randrange(1, 5) * GIB, sm=7))
        self._owners = kept
        for index, card in enumerate(self._driver.cards):
            card.processes = kept[index::CARDS]

    def _break_something(self) -> None:
        """Another fault of any card, or the end of one."""
        chance = self._chance
        card = chance.choice(self._driver.cards)
        card.fail(chance.choice(_DEVICE_FUNCTIONS), chance.choice(_CODES))
        if chance.random() < 0.1:
            card.xid(chance.randrange(1, 200))
        if chance.random() < 0.1:
            card.heal()
            card.latency("nvmlDeviceGetPcieThroughput", 0.0)
            card.lost = chance.random() < 0.2
        if chance.random() < 0.01:
            card.uuid = f"GPU-{chance.getrandbits(128):032x}"

    def _with_long_commands(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot as it would be if the processes were there and had long command lines."""
        listed = {one.id for one in snapshot.processes}
        self._commands = {id_: one for id_, one in self._commands.items() if id_ in listed}
        for id_ in listed - self._commands.keys():
            words = [self._chance.randbytes(32).hex() for _ in range(COMMAND_BYTES // 64)]
            self._commands[id_] = tuple(words)
        processes = [replace(one, command=self._commands[one.id]) for one in snapshot.processes]
        return replace(snapshot, processes=tuple(processes))

    def _newcomer(self) -> int:
        """The number of a process that was not there before."""
        self._next += 1
        return self._next


def history_bytes(history: History) -> int:
    """What the values over time take, whose number grows for as long as they reach back."""
    series = [card.series for card in history.observed.gpus.values()]
    series += [one.series for one in history.observed.processes.values() if one.series is not None]
    series += [] if history.observed.host is None else [history.observed.host]
    return sum(map(array_bytes, series))


def array_bytes(owner: object) -> int:
    """What the arrays take that an object refers to."""
    seen: set[int] = set()
    taken, referents = 0, [owner]
    while referents:
        referent = referents.pop()
        if id(referent) not in seen and not isinstance(referent, type):
            seen.add(id(referent))
            taken += sys.getsizeof(referent) if isinstance(referent, array) else 0
            referents += gc.get_referents(referent)
    return taken


def grown(first: Figures, last: Figures) -> list[str]:
    """What has grown from one hour to another, in words."""
    words = []
    before, after = first.rest_mib, last.rest_mib
    if after > before * _REST_GROWS:
        words.append(f"memory beside recording and history from {before:.1f} to {after:.1f} MiB")
    if last.history_mib > _HISTORY_MIB:
        words.append(f"the history to {last.history_mib:.1f} MiB")
    if last.tape_mib > MOST_BYTES / 2**20:
        words.append(f"the recording to {last.tape_mib:.1f} MiB")
    if last.threads > first.threads:
        words.append(f"threads from {first.threads} to {last.threads}")
    if last.files > first.files:
        words.append(f"open files from {first.files} to {last.files}")
    for name, before, after in (
        ("a tick", first.tick_ms, last.tick_ms),
        ("a picture", first.drawn_ms, last.drawn_ms),
    ):
        if after > before * _TICK_GROWS:
            words.append(f"{name} from {before:.2f} to {after:.2f} ms")
    return words


def machine() -> Driver:
    """The cards; none of them takes any of this machine's time."""
    driver = Driver([h100(utilization_gpu=Wave(50, 45, 7 + index)) for index in range(CARDS)])
    driver.attach()
    for card in driver.cards:
        # The time that it blocks would be this machine's own.
        card.latency("nvmlDeviceGetPcieThroughput", 0.0)
    return driver


def tell(figures: Figures) -> None:
    """Write a row of the table that begins with ``HEAD``."""
    print(
        f"| {figures.hours:.0f} | {figures.pss_mib:.1f} | {figures.tape_mib:.1f} "
        f"| {figures.history_mib:.1f} | {figures.rest_mib:.1f} | {figures.threads} "
        f"| {figures.files} | {figures.tick_ms:.2f} | {figures.drawn_ms:.2f} |",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--interval", type=float, default=2.0, help="seconds of a sample")
    parser.add_argument("--faults", action="store_true", help="with faults all the time")
    options = parser.parse_args(arguments)
    print(HEAD)
    with machine() as driver:
        day = Day(driver, options.interval, faults=options.faults)
        figures = []
        for _ in range(options.hours):
            figures.append(day.live(1))
            tell(figures[-1])
        day.close()
    words = grown(figures[0], figures[-1])
    full, end = figures[min(_FULL, len(figures)) - 1].pss_mib, figures[-1].pss_mib
    if end > full * _MEMORY_GROWS:
        words.append(f"all memory from {full:.1f} to {end:.1f} MiB, after {_FULL} hours")
    if end > MOST_MIB:
        words.append(f"all memory to {end:.1f} MiB, above {MOST_MIB:.0f}")
    print(f"Grown after the first hour: {', '.join(words) or 'nothing'}.")
    return 1 if words else 0


if __name__ == "__main__":
    sys.exit(main())
