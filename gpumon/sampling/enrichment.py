"""Slow lookups on the host: where processes run, who holds the GPUs, and process trees.

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
from gpumon.model.snapshot import Reserved
from gpumon.system.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpumon.host.process_host import ProcessHost, RelatedProcess
    from gpumon.model.processes import GpuProcess, HolderScan, ProcessId, Workload
    from gpumon.model.snapshot import ReservationHolder, Snapshot
    from gpumon.sampling.machine import Reservations

_PLACES_AGAIN = 10.0
"""Seconds after which all places are looked up again: sessions and notebooks are renamed."""
_SCAN_AGAIN = 10.0
_SCAN_SOON = 2.0
"""Seconds between two scans at least; also before the first, which leaves the start of the program
to its screen."""
_KIN_AGAIN = 1.0
_LOCKS_AGAIN = 2.0
_REST = 20
"""A look is followed by a rest this many times as long: it takes less than 5 % of a core."""
_UNTIL_WOKEN = 3600.0

_STOP_PATIENCE = 0.1
_ONCE_PATIENCE = 1.0

_UNEXPLAINED_BYTES = 2**30
_UNEXPLAINED_SHARE = 0.02
"""Memory without an owner that is worth a scan, in bytes or as a share of the GPU, whichever is
more. Only the pace hangs on it; what is told to people is a finding, with thresholds of its own."""


class Lookup:
    """Runs lookups while snapshots pass, and adds the results to them.

    A bug in a lookup is never silent: ``failure`` holds it, and ``annotate`` and ``stop`` raise it.
    An ``OSError`` is not a bug, nor is a machine that cannot be asked: the previous result stays.

    Args:
        host: The host, queried by up to three threads at a time.
        clock: Clock, for tests.
        reservations: See ``Machine.reservations``.
    """

    def __init__(
        self,
        host: ProcessHost,
        clock: Clock | None = None,
        reservations: Reservations | None = None,
    ) -> None:
        self._host = host
        self._ask_for_locks = reservations
        self._clock: Clock = clock or SystemClock()
        self._stopping = False
        self._failure: BaseException | None = None
        self._for_places = threading.Event()
        self._for_scan = threading.Event()
        self._for_relatives = threading.Event()
        self._for_locks = threading.Event()
        self._threads = tuple(
            threading.Thread(
                target=self._guarded,
                args=(self._look_on, look, wake),
                name=f"gpumon-lookup-{name}",
                daemon=True,
            )
            for name, look, wake in (
                ("workloads", self._look_for_places, self._for_places),
                ("holders", self._look_for_holders, self._for_scan),
                ("relatives", self._look_for_relatives, self._for_relatives),
                *(
                    ()
                    if reservations is None
                    else (("locks", self._look_for_locks, self._for_locks),)
                ),
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
        self._places: dict[ProcessId, Workload] = {}
        self._holders: HolderScan | None = None
        self._relatives: tuple[RelatedProcess, ...] = ()
        self._reserved: tuple[Reserved, ...] = ()

        self._places_asked: frozenset[ProcessId] = frozenset()
        self._places_due = 0.0
        self._scan_due = 0.0
        self._scan_soonest = 0.0

        # The newest process list as given, the places known then, and the combination of both.
        self._given: tuple[GpuProcess, ...] = ()
        self._given_places = self._places
        self._made: tuple[GpuProcess, ...] = ()

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
        for wake in (self._for_places, self._for_scan, self._for_relatives, self._for_locks):
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

        Processes get their ``place``, and the snapshot its ``holders`` and ``reserved``, unless its
        source has set them. Without new results, the same tuple of processes gives the same tuple
        again, and a process without new results stays the same object.

        Call it from one thread at a time.

        Raises:
            BaseException: The bug that is in ``failure``, if there is one.
        """
        if self._failure is not None:
            raise self._failure
        self._note(snapshot)
        processes = self._with_places(snapshot.processes)
        holders = snapshot.holders or self._holders
        reserved = snapshot.reserved or self._reserved
        if (
            processes is snapshot.processes
            and holders is snapshot.holders
            and reserved is snapshot.reserved
        ):
            return snapshot
        return replace(snapshot, processes=processes, holders=holders, reserved=reserved)

    def look_once(self, snapshot: Snapshot, patience: float = _ONCE_PATIENCE) -> Snapshot:
        """Run all lookups for one snapshot, instead of ``start``, and annotate it.

        Args:
            snapshot: What to annotate.
            patience: Maximum seconds; later results are left out.

        Raises:
            BaseException: A bug in a lookup.
        """
        self._note(snapshot)

        def look() -> None:
            self._look_for_locks()
            self._look_for_places()
            self._look_for_holders()

        looking = threading.Thread(
            target=self._guarded, args=(look,), name="gpumon-lookup", daemon=True
        )
        looking.start()
        looking.join(patience)
        return self.annotate(snapshot)

    def _note(self, snapshot: Snapshot) -> None:
        """Record pending lookups, and wake the threads of urgent ones."""
        if self._snapshot is None:
            # A GPU that is reserved for a job must not be shown as free for long.
            self._for_locks.set()
        listed_anew = self._snapshot is None or snapshot.processes is not self._snapshot.processes
        self._snapshot = snapshot
        if not listed_anew:
            return
        before, unexplained_before = self._ids, self._unexplained
        self._ids = frozenset([process.id for process in snapshot.processes])
        self._unexplained = _unexplained(snapshot)
        self._listed = tuple(
            [one for one in snapshot.processes if one.visible and one.place is None]
        )
        if not self._ids <= before:
            self._for_places.set()
        # A process that left the list may have left orphans, and unattributed memory has a holder.
        if not before <= self._ids or self._unexplained != unexplained_before:
            self._scan_early = True
            self._for_scan.set()

    def _with_places(self, processes: tuple[GpuProcess, ...]) -> tuple[GpuProcess, ...]:
        places = self._places
        if processes is self._given and places is self._given_places:
            return self._made
        # A process seen before, the same object, has already been combined with its place.
        known = dict(zip(map(id, self._given), self._made, strict=True))
        before = [known.get(id(given), given) for given in processes]
        made = tuple(
            [
                _placed(given, one, places.get(given.id))
                for given, one in zip(processes, before, strict=True)
            ]
        )
        for same in (processes, self._made):
            if len(same) == len(made) and all(map(is_, made, same)):
                made = same
        self._given, self._given_places, self._made = processes, places, made
        return made

    def _guarded(self, body: Callable[..., None], *arguments: object) -> None:
        """Run the body of a thread; an exception is kept for the owner."""
        try:
            body(*arguments)
        except BaseException as failure:  # noqa: BLE001 - a thread has nobody above it to see this
            self._failure = self._failure or failure

    def _look_on(self, look: Callable[[], float], wake: threading.Event) -> None:
        while not self._stopping:
            if self._clock.wait(wake, look()):
                wake.clear()

    def _look_for_places(self) -> float:
        """Look up new processes, or all if it is time. Returns seconds until the next lookup."""
        listed = self._listed
        began = self._clock.monotonic()
        all_again = began >= self._places_due
        asked = [one for one in listed if all_again or one.id not in self._places_asked]
        if asked:
            with suppress(OSError):
                self._keep_places(listed, self._host.workloads(asked))
        self._places_asked = frozenset([process.id for process in listed])
        now = self._clock.monotonic()
        if all_again:
            self._places_due = now + _rest(now - began, _PLACES_AGAIN)
        return max(0.0, self._places_due - now)

    def _keep_places(
        self, processes: tuple[GpuProcess, ...], found: Mapping[ProcessId, Workload]
    ) -> None:
        """Store the results; an exited process keeps its place while it is listed."""
        kept: dict[ProcessId, Workload] = {}
        for process in processes:
            known, place = self._places.get(process.id), found.get(process.id)
            if place is None or place == known:
                place = known
            if place is not None:
                kept[process.id] = place
        self._places = kept

    def _look_for_holders(self) -> float:
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

    def _look_for_relatives(self) -> float:
        """Read the process trees if requested. Returns seconds until the next time."""
        if not self._relatives_wanted:
            return _UNTIL_WOKEN
        began = self._clock.monotonic()
        if self._snapshot is not None:
            roots = [process.id for process in self._snapshot.processes if process.visible]
            with suppress(OSError, Refused):
                self._relatives = self._host.relatives(roots)
        return _rest(self._clock.monotonic() - began, _KIN_AGAIN)

    def _look_for_locks(self) -> float:
        """Read the reservations. Returns seconds until the next time."""
        began = self._clock.monotonic()
        snapshot = self._snapshot
        if snapshot is not None and self._ask_for_locks is not None:
            gpu_of = {gpu.uuid: gpu.uuid for gpu in snapshot.gpus}
            gpu_of |= {mig.uuid: gpu.uuid for gpu in snapshot.gpus for mig in gpu.mig}
            with suppress(OSError):
                held = self._ask_for_locks(gpu_of)
                found = tuple(_reserved(gpu_of[uuid], uuid, held[uuid]) for uuid in held)
                # The same tuple while nothing has changed, so that the snapshot need not be
                # rebuilt.
                if found != self._reserved:
                    self._reserved = found
        return _rest(self._clock.monotonic() - began, _LOCKS_AGAIN)


def _reserved(gpu: str, uuid: str, holder: ReservationHolder) -> Reserved:
    mig = None if uuid == gpu else uuid
    return Reserved(gpu, mig, holder.user, holder.pid, holder.since, holder.command)


def _rest(took: float, least: float) -> float:
    """Seconds to wait after a lookup that took that long."""
    return max(least, _REST * took)


def _placed(given: GpuProcess, known: GpuProcess, place: Workload | None) -> GpuProcess:
    """A process with its place, if its source has not set one.

    Args:
        given: The process from its source.
        known: The process as published before.
        place: Where it runs, if known by now.
    """
    if given.place is not None or place is None or known.place is place:
        return known
    return replace(known, place=place)


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
