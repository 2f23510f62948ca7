"""A simulated fleet: a ``DemoSource`` a host, some of them sick, down, or without gpumon."""

from __future__ import annotations

from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.allocations.host_lists import expand_hosts
from gpumon.allocations.job_hosts import JobHosts
from gpumon.fleet.fleet import (
    Fleet,
    FleetError,
    FleetSnapshot,
    HostMachine,
    HostOrigin,
    HostSource,
    HostState,
    HostStatus,
)
from gpumon.host.process_host import RecordedHost
from gpumon.makers.demo import DemoMachine, DemoSource
from gpumon.makers.demo.scenario import JOBS
from gpumon.model.processes import GpuProcess
from gpumon.model.selection import ALL, parse_selection
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.host.process_host import ProcessHost
    from gpumon.model.snapshot import Snapshot
    from gpumon.system.system import Clock

_TURNS = 10
"""Parts of an interval: a tenth of the hosts changes in each."""
_DOWN_FOR = 1260.0
"""Seconds before the start since which a host is down that never answers."""
_LIVE, _ABSENT = 240.0, 20.0
"""Seconds for which a host with a bad connection is live, then down."""
_VERSION = "1.0"


class _Part(Struct, frozen=True):
    """What a host of the fleet is like."""

    empty: frozenset[int] = frozenset()  # GPUs that only recurring processes use
    gpus: str = "0-7"  # that it has
    sick: bool = False  # whether a GPU is lost and another is hot
    down: bool = False  # whether it never answers
    drops: bool = False  # whether its connection ends now and then
    lags: bool = False  # whether the job with several nodes has no training process on it
    origin: HostOrigin = HostOrigin.GPUMON


_PARTS = (
    _Part(frozenset({7})),
    _Part(),
    _Part(frozenset({0, 1, 5, 7})),
    _Part(frozenset({7}), sick=True),
    _Part(frozenset({2, 3, 5, 6}), "0-3"),
    _Part(frozenset({7})),
    _Part(down=True),
    _Part(frozenset({3, 7}), origin=HostOrigin.NVIDIA_SMI),
    _Part(gpus="0-3"),
    _Part(frozenset({0, 1, 2, 3, 5, 6, 7})),
    _Part(frozenset({5, 7})),
    _Part(frozenset({3, 7}), drops=True),
    _Part(gpus="0-3"),
    _Part(frozenset({6, 7})),
    _Part(frozenset({7})),
    _Part(frozenset({0, 1, 2, 7})),
)
"""The hosts, again from the first one after the last."""
_NODES = (
    _Part(frozenset({0, 1, 7})),
    _Part(frozenset({2, 3, 7}), lags=True),
    _Part(frozenset({7})),
    _Part(),
)
"""The machines of a job, in its order."""


def job_hosts(number: str) -> JobHosts:
    """The hosts of a Slurm job of the demo, in place of ``allocations.job_hosts``.

    Raises:
        FleetError: It has no such job.
    """
    nodes = {str(job.number): job.nodes for job in JOBS}
    if number not in nodes:
        known = " or ".join(f"slurm:{job}" for job in nodes)
        raise FleetError(f"the demo has no such job: write {known}.")
    return JobHosts(frozenset({number}), tuple(expand_hosts(nodes[number]) or ()))


class DemoFleet(Fleet):
    """A simulated fleet. One thread samples all hosts.

    Args:
        names: Its hosts.
        interval: Seconds between samples of a host.
        clock: The clock.
        nodes: Those that are the machines of a job, in its order.
    """

    def __init__(
        self,
        names: Sequence[str],
        interval: float = 1.0,
        clock: Clock = THIS_SYSTEM.clock,
        nodes: Sequence[str] = (),
    ) -> None:
        self._clock = clock
        super().__init__(interval)
        self._start = self._clock.time()
        ranks = {name: rank for rank, name in enumerate(nodes)}
        self._hosts = {
            name: _simulated(name, index, ranks.get(name), self._clock)
            for index, name in enumerate(names)
        }
        self._states = {
            name: HostState(name, HostStatus.CONNECTING, self._start) for name in self._hosts
        }
        self._lock = Lock()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="gpumon-demo-fleet", daemon=True)

    def start(self) -> None:
        """See ``Fleet.start``."""
        self._thread.start()

    def close(self) -> None:
        """See ``Fleet.close``."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def latest(self) -> FleetSnapshot:
        """See ``Fleet.latest``."""
        with self._lock:
            return FleetSnapshot(self._clock.time(), tuple(self._states.values()))

    def machine(self, name: str, *, readonly: bool = True) -> HostMachine:
        """See ``Fleet.machine``. No real process is signalled."""
        part, source = self._hosts[name]

        def processes() -> ProcessHost:
            if part.origin is HostOrigin.GPUMON:
                return source.host(readonly=readonly)
            return RecordedHost()

        return HostMachine(HostSource(self, name), processes)

    def sample(self, name: str) -> None:
        """Take the next sample of a host."""
        part, source = self._hosts[name]
        now = self._clock.time()
        before = self._states[name]
        fault = _fault(part, now - self._start)
        if fault:
            since = before.since if before.status is HostStatus.DOWN else now
            since = self._start - _DOWN_FOR if part.down else since
            state = replace(before, status=HostStatus.DOWN, since=since, sentence=fault)
            if state == before:
                return
        else:
            since = before.since if before.status is HostStatus.LIVE else now
            state = _live(name, part, source.sample(full=False), since, now)
        with self._lock:
            self._states[name] = state
        self._notify()

    def _run(self) -> None:
        names = tuple(self._hosts)
        for name in names:
            self.sample(name)
        turn = 0
        while not self._stop.wait(self.interval / _TURNS):
            for name in names[turn::_TURNS]:
                self.sample(name)
            turn = (turn + 1) % _TURNS


def _simulated(name: str, index: int, rank: int | None, clock: Clock) -> tuple[_Part, DemoSource]:
    """A host by its place in the fleet, or among the machines of a job."""
    machine = DemoMachine(name)
    if rank is None:
        part = _PARTS[index % len(_PARTS)]
    else:
        part = _NODES[rank % len(_NODES)]
        machine = replace(machine, rank=rank, lags=part.lags)
    machine = replace(machine, empty=part.empty, sound=not part.sick)
    selection = ALL if part.gpus == "0-7" else parse_selection(part.gpus)
    source = DemoSource(1 + index, clock, selection, machine)
    source.open()
    return part, source


def _fault(part: _Part, now: float) -> str:
    """Why a host does not answer at a time, in seconds after the start; empty if it does."""
    if part.down:
        return "no answer within 5 s: it is off, or a firewall drops the connection"
    if part.drops and now % (_LIVE + _ABSENT) >= _LIVE:
        return "the connection ended"
    return ""


def _live(name: str, part: _Part, snapshot: Snapshot, since: float, now: float) -> HostState:
    sentence = ""
    if part.origin is HostOrigin.NVIDIA_SMI:
        sentence = "gpumon is not installed there: nvidia-smi says less"
        snapshot = replace(
            snapshot, processes=tuple(map(_listed_only, snapshot.processes)), allocations=None
        )
    version = _VERSION if part.origin is HostOrigin.GPUMON else None
    return HostState(name, HostStatus.LIVE, since, sentence, part.origin, snapshot, now, version)


def _listed_only(process: GpuProcess) -> GpuProcess:
    """What nvidia-smi says of a process."""
    return GpuProcess(
        process.id,
        process.type,
        tuple([replace(use, sm=None, memory_activity=None) for use in process.uses]),
        visible=False,
        name=process.name,
    )
