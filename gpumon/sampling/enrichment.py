"""Slow lookups on the host: workloads of processes, their servers, holders of the GPUs, and more.

A lookup about a process can hang as long as that process does, even for ever. So neither sampling
nor the screen waits for one: each snapshot gets what is known so far. Each kind of lookup has its
own thread and interval, so that a hung one delays no other.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from contextlib import suppress
from operator import is_
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.host.process_host import Refused
from gpumon.model.snapshot import Reserved, lines_of
from gpumon.system.resource_errors import tolerated_lack_of_files
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpumon.allocations import Allocations
    from gpumon.host.process_host import ProcessHost, RelatedProcess
    from gpumon.model.processes import GpuProcess, HolderScan, ProcessId, Workload
    from gpumon.model.serving import ServerLoad
    from gpumon.model.snapshot import ReservationHolder, Snapshot
    from gpumon.sampling.machine import Machine, Reservations
    from gpumon.sampling.servers import Servers
    from gpumon.system.system import Clock

_WORKLOADS_AGAIN = 10.0
"""Seconds after which all workloads are looked up again: sessions and notebooks are renamed."""
_SCAN_AGAIN = 10.0
_SCAN_SOON = 2.0
"""Seconds between two scans at least; also before the first, which leaves the start of the program
to its screen."""
_RELATIVES_AGAIN = 1.0
_RESERVATIONS_AGAIN = 2.0
_AGAIN_WITHOUT_FILES = 2.0
_REST = 20
"""A lookup is followed by a rest this many times as long: it takes less than 5 % of a core."""
_UNTIL_WOKEN = 3600.0

_STOP_PATIENCE = 0.1
_ONCE_PATIENCE = 1.0

_UNEXPLAINED_BYTES = 2**30
_UNEXPLAINED_SHARE = 0.02
"""Memory without an owner that is worth a scan, in bytes or as a share of the GPU, whichever is
more. It decides only how soon; what people read is a finding, with thresholds of its own."""


class Lookup:
    """Runs lookups while snapshots pass, and adds the results to them.

    A bug in a lookup is never silent: ``failure`` holds it, and ``annotate`` and ``stop`` raise it.
    After an ``OSError``, or if the machine cannot be asked, the previous result stays.

    Args:
        host: The processes, queried by up to three threads at a time.
        clock: The clock, for tests.
        reservations: See ``Machine.reservations``.
        allocations: See ``Machine.allocations``.
        servers: See ``Machine.servers``.
    """

    def __init__(
        self,
        host: ProcessHost,
        clock: Clock = THIS_SYSTEM.clock,
        reservations: Reservations | None = None,
        allocations: Allocations | None = None,
        servers: Servers | None = None,
    ) -> None:
        self._host = host
        self._reservations = reservations
        self._ask_allocations = allocations
        self._ask_servers = servers
        self._clock = clock
        self._stopping = False
        self._failure: BaseException | None = None
        self._for_workloads = threading.Event()
        self._for_holders = threading.Event()
        self._for_relatives = threading.Event()
        self._for_reservations = threading.Event()
        self._for_allocations = threading.Event()
        self._for_servers = threading.Event()
        self._threads = tuple(
            threading.Thread(
                target=self._guarded,
                args=(self._run, find, wake),
                name=f"gpumon-lookup-{name}",
                daemon=True,
            )
            for name, find, wake in (
                ("workloads", self._find_workloads, self._for_workloads),
                ("holders", self._find_holders, self._for_holders),
                ("relatives", self._find_relatives, self._for_relatives),
                *(
                    ()
                    if reservations is None
                    else (("reservations", self._find_reservations, self._for_reservations),)
                ),
                *(
                    ()
                    if allocations is None
                    else (("allocations", self._find_allocations, self._for_allocations),)
                ),
                *(() if servers is None else (("servers", self._find_servers, self._for_servers),)),
            )
        )

        # The pending lookups, recorded by the sampling thread.
        self._snapshot: Snapshot | None = None
        self._listed: tuple[GpuProcess, ...] = ()
        self._ids: frozenset[ProcessId] = frozenset()
        self._unexplained: frozenset[str] = frozenset()
        self._scan_early = False
        self._relatives_wanted = False

        # The results. Each is replaced as a whole, only by the thread of its kind.
        self._workloads: Mapping[ProcessId, Workload] = {}
        self._loads: Mapping[ProcessId, ServerLoad] = {}
        self._holders: HolderScan | None = None
        self._relatives: tuple[RelatedProcess, ...] = ()
        self._reserved: tuple[tuple[Reserved, ...], float | None] = (), None  # and when read
        # Nothing is free before it is known what a scheduler has given away.
        self._allocations = None if allocations is None else allocations.unknown

        self._workloads_asked: frozenset[ProcessId] = frozenset()
        self._workloads_due = 0.0
        self._scan_due = 0.0
        self._scan_soonest = 0.0

        # The newest process list as given, what was known of it then, and the combination of both.
        self._given: tuple[GpuProcess, ...] = ()
        self._given_results: tuple[object, object] = (self._workloads, self._loads)
        self._made: tuple[GpuProcess, ...] = ()

    @classmethod
    def of(cls, machine: Machine) -> Lookup:
        """The lookups of a machine."""
        return cls(
            machine.processes,
            reservations=machine.reservations,
            allocations=machine.allocations,
            servers=machine.servers,
        )

    @property
    def failure(self) -> BaseException | None:
        """The first bug that ended a lookup thread."""
        return self._failure

    @property
    def relatives(self) -> tuple[RelatedProcess, ...]:
        """The process trees of the GPU processes while requested, parents first."""
        return self._relatives if self._relatives_wanted else ()

    def want_relatives(self, wanted: bool) -> None:
        """Start or stop reading process trees, about once a second."""
        if wanted == self._relatives_wanted:
            return
        self._relatives = ()
        self._relatives_wanted = wanted
        self._for_relatives.set()

    def start(self) -> None:
        """Start the lookups.

        Raises:
            RuntimeError: When it was started before.
        """
        self._scan_due = self._scan_soonest = self._clock.monotonic() + _SCAN_SOON
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop. A hung lookup is abandoned with its thread until the process exits.

        Raises:
            BaseException: The bug that is in ``failure``, if there is one.
        """
        self._stopping = True
        for wake in (
            self._for_workloads,
            self._for_holders,
            self._for_relatives,
            self._for_reservations,
            self._for_allocations,
            self._for_servers,
        ):
            wake.set()
        # The system clock, even if this object has another: threads are joined in real time.
        deadline = time.monotonic() + _STOP_PATIENCE
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        if self._failure is not None:
            raise self._failure

    def annotate(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the results known so far, without waiting.

        Processes get their ``place`` and ``load``, and the snapshot its ``holders``, ``reserved``,
        ``reserved_at`` and ``allocations``, unless its source has set them. Without new results,
        the same tuple of processes gives the same tuple again, and a process without new results
        stays the same object.

        Call it from one thread at a time.

        Raises:
            BaseException: The bug that is in ``failure``, if there is one.
        """
        if self._failure is not None:
            raise self._failure
        self._note(snapshot)
        processes = self._with_results(snapshot.processes)
        holders = snapshot.holders or self._holders
        reserved, reserved_at = snapshot.reserved, snapshot.reserved_at
        if not reserved and reserved_at is None:
            reserved, reserved_at = self._reserved
        allocations = snapshot.allocations
        if allocations is None:
            allocations = self._allocations
        if (
            processes is snapshot.processes
            and holders is snapshot.holders
            and reserved is snapshot.reserved
            and reserved_at == snapshot.reserved_at
            and allocations is snapshot.allocations
        ):
            return snapshot
        return replace(
            snapshot,
            processes=processes,
            holders=holders,
            reserved=reserved,
            reserved_at=reserved_at,
            allocations=allocations,
        )

    def look_once(self, snapshot: Snapshot, patience: float = _ONCE_PATIENCE) -> Snapshot:
        """Run all lookups for one snapshot, instead of ``start``, and annotate it.

        Args:
            snapshot: What to annotate.
            patience: Maximum seconds; later results are left out.

        Raises:
            BaseException: A bug in a lookup.
        """
        self._note(snapshot)
        deadline = self._clock.monotonic() + patience

        def find() -> None:
            self._find_reservations()
            self._find_workloads()
            while not self._find_allocations():
                pass
            self._find_holders()
            # They may have to wait for each of several servers.
            while not self._find_servers() and self._clock.monotonic() < deadline:
                pass

        finding = threading.Thread(
            target=self._guarded, args=(find,), name="gpumon-lookup", daemon=True
        )
        finding.start()
        finding.join(patience)
        return self.annotate(snapshot)

    def _note(self, snapshot: Snapshot) -> None:
        """Record pending lookups, and wake the threads of urgent ones."""
        before, self._snapshot = self._snapshot, snapshot
        if before is None:
            # A GPU that is reserved for a job must not be shown as free for long. A thread that
            # wakes needs the snapshot: without it, it would rest until the next time.
            self._for_reservations.set()
            self._for_allocations.set()
        listed_anew = before is None or snapshot.processes is not before.processes
        if not listed_anew:
            return
        ids_before, unexplained_before = self._ids, self._unexplained
        self._ids = frozenset([process.id for process in snapshot.processes])
        self._unexplained = _unexplained(snapshot)
        self._listed = tuple(
            [process for process in snapshot.processes if process.visible and process.place is None]
        )
        if not self._ids <= ids_before:
            self._for_workloads.set()
        # A process that left the list may have left orphans, and unattributed memory has a holder.
        if not ids_before <= self._ids or self._unexplained != unexplained_before:
            self._scan_early = True
            self._for_holders.set()

    def _with_results(self, processes: tuple[GpuProcess, ...]) -> tuple[GpuProcess, ...]:
        results = workloads, loads = self._workloads, self._loads
        if processes is self._given and all(map(is_, results, self._given_results)):
            return self._made
        # A process seen before, the same object, has already been combined with its results.
        made_of = dict(zip(map(id, self._given), self._made, strict=True))
        before = [made_of.get(id(given), given) for given in processes]
        made = tuple(
            [
                _with_load(given, _with_workload(given, known, workloads.get(given.id)), loads)
                for given, known in zip(processes, before, strict=True)
            ]
        )
        for same in (processes, self._made):
            if len(same) == len(made) and all(map(is_, made, same)):
                made = same
        self._given, self._given_results, self._made = processes, results, made
        return made

    def _guarded(self, body: Callable[..., None], *arguments: object) -> None:
        """Run the body of a thread; an exception is kept for the owner."""
        try:
            body(*arguments)
        except BaseException as failure:  # noqa: BLE001 - a thread has nobody above it to see this
            self._failure = self._failure or failure

    def _run(self, find: Callable[[], float], wake: threading.Event) -> None:
        while not self._stopping:
            pause = _AGAIN_WITHOUT_FILES
            with tolerated_lack_of_files():
                pause = find()
            if self._clock.wait(wake, pause):
                wake.clear()

    def _find_workloads(self) -> float:
        """Look up new processes, or all if it is time. Returns seconds until the next lookup."""
        listed = self._listed
        began = self._clock.monotonic()
        all_again = began >= self._workloads_due
        asked = [
            process for process in listed if all_again or process.id not in self._workloads_asked
        ]
        if asked:
            with suppress(OSError):
                self._keep_workloads(listed, self._host.workloads(asked))
        self._workloads_asked = frozenset([process.id for process in listed])
        now = self._clock.monotonic()
        if all_again:
            self._workloads_due = now + _rest(now - began, _WORKLOADS_AGAIN)
        return max(0.0, self._workloads_due - now)

    def _keep_workloads(
        self, processes: tuple[GpuProcess, ...], found: Mapping[ProcessId, Workload]
    ) -> None:
        """Store the results; an exited process keeps its workload while it is listed."""
        kept: dict[ProcessId, Workload] = {}
        has_new_server = False
        for process in processes:
            known, workload = self._workloads.get(process.id), found.get(process.id)
            if workload is None or workload == known:
                workload = known
            if workload is not None:
                kept[process.id] = workload
                has_new_server |= workload is not known and workload.server is not None
        self._workloads = kept
        if has_new_server:
            self._for_servers.set()

    def _find_holders(self) -> float:
        """Scan for holders if it is time. Returns seconds until the next scan."""
        began = self._clock.monotonic()
        due = self._scan_soonest if self._scan_early else self._scan_due
        if began < due:
            return due - began
        # This order matters: what is recorded from here on causes another scan.
        self._scan_early = False
        snapshot = self._snapshot
        if snapshot is not None and snapshot.gpus and snapshot.holders is None:
            with suppress(OSError):
                self._holders = self._host.scan(snapshot)
        now = self._clock.monotonic()
        self._scan_soonest = now + _rest(now - began, _SCAN_SOON)
        self._scan_due = now + _rest(now - began, _SCAN_AGAIN)
        return self._scan_due - now

    def _find_relatives(self) -> float:
        """Read the process trees if requested. Returns seconds until the next time."""
        if not self._relatives_wanted:
            return _UNTIL_WOKEN
        began = self._clock.monotonic()
        if self._snapshot is not None:
            roots = [process.id for process in self._snapshot.processes if process.visible]
            with suppress(OSError, Refused):
                self._relatives = self._host.relatives(roots)
        return _rest(self._clock.monotonic() - began, _RELATIVES_AGAIN)

    def _find_reservations(self) -> float:
        """Read the reservations. Returns seconds until the next time."""
        began = self._clock.monotonic()
        snapshot = self._snapshot
        if snapshot is not None and self._reservations is not None:
            gpu_of = {line.uuid: line.gpu.uuid for line in lines_of(snapshot.gpus)}
            with suppress(OSError):
                held = self._reservations(gpu_of)
                found = tuple(_reserved(gpu_of[uuid], uuid, held[uuid]) for uuid in held)
                # The same tuple while nothing has changed, so that the snapshot need not be
                # rebuilt.
                if found == self._reserved[0]:
                    found = self._reserved[0]
                self._reserved = found, self._clock.time()
        return _rest(self._clock.monotonic() - began, _RESERVATIONS_AGAIN)

    def _find_allocations(self) -> float:
        """Ask what schedulers have given away, a part at a time. Returns seconds until the next."""
        snapshot = self._snapshot
        if snapshot is None or self._ask_allocations is None:
            return _RESERVATIONS_AGAIN
        if snapshot.processes is self._given:
            # With their workloads: a job's processes show which GPUs are its.
            snapshot = replace(snapshot, processes=self._made)
        found, pause = self._ask_allocations.find(snapshot)
        if found != self._allocations:
            self._allocations = found
        return pause

    def _find_servers(self) -> float:
        """Ask servers for which it is time. Returns seconds until the next question."""
        if self._ask_servers is None:
            return _UNTIL_WOKEN
        workloads = self._workloads
        served = [
            replace(process, place=workloads[process.id])
            for process in self._listed
            if process.id in workloads and workloads[process.id].server is not None
        ]
        loads, pause = self._ask_servers.find(served)
        if loads != self._loads:
            self._loads = loads
        return min(pause, _UNTIL_WOKEN)


def _reserved(gpu: str, uuid: str, holder: ReservationHolder) -> Reserved:
    mig = None if uuid == gpu else uuid
    return Reserved(gpu, mig, holder.user, holder.pid, holder.since, holder.command)


def _rest(took: float, least: float) -> float:
    """Seconds to wait after a lookup that took that long."""
    return max(least, _REST * took)


def _with_workload(given: GpuProcess, known: GpuProcess, workload: Workload | None) -> GpuProcess:
    """A process with its workload, if its source has not set it; ``known`` was published before."""
    if given.place is not None or workload is None or known.place is workload:
        return known
    return replace(known, place=workload)


def _with_load(
    given: GpuProcess, known: GpuProcess, loads: Mapping[ProcessId, ServerLoad]
) -> GpuProcess:
    """A process with what its server reports; see ``_with_workload``."""
    if given.load is not None or known.load is (load := loads.get(given.id)):
        return known
    return replace(known, load=load)


def _unexplained(snapshot: Snapshot) -> frozenset[str]:
    """UUIDs of GPUs with more memory in use than their processes account for."""
    held: dict[str, float] = defaultdict(float)
    for process in snapshot.processes:
        for use in process.uses:
            held[use.gpu_uuid] += math.inf if use.memory_used is None else use.memory_used
    return frozenset(
        [
            gpu.uuid
            for gpu in snapshot.gpus
            if gpu.memory_used is not None
            and not gpu.memory_unified
            and "processes" not in gpu.unknown
            and gpu.memory_used - held[gpu.uuid]
            > max(_UNEXPLAINED_BYTES, _UNEXPLAINED_SHARE * (gpu.memory_total or 0))
        ]
    )
