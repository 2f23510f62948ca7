"""A fleet that shows of some hosts only the GPUs of Slurm jobs.

The states of hosts are narrowed before anybody sees them, so that all lists, sums and findings
agree.
"""

from __future__ import annotations

import re
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.fleet.fleet import (
    Fleet,
    FleetSnapshot,
    HostMachine,
    HostOrigin,
    HostSource,
    HostStatus,
)
from gpumon.model.allocations import SLURM, allocations_of, jobs_are_known, unplaced_count
from gpumon.model.subset import subset_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.fleet.fleet import HostState
    from gpumon.fleet.host_names import HostList
    from gpumon.model.allocations import Allocation
    from gpumon.model.snapshot import Snapshot

_PART = re.compile("[_+]")
"""What stands between the number of an array, or of a heterogeneous job, and that of a part."""
_PATIENCE = 4.0
"""Seconds after its first sample in which a host may ask Slurm."""


class NarrowedFleet(Fleet):
    """Another fleet, narrowed to the GPUs of jobs.

    Args:
        fleet: The fleet.
        hosts: Its hosts, with the jobs for which they are in the list.
    """

    def __init__(self, fleet: Fleet, hosts: HostList) -> None:
        super().__init__(fleet.interval)
        first, *others = hosts.jobs
        label = f"slurm {first}"
        self.title = f"{label} +{len(others)}" if others else label
        self._fleet = fleet
        label = "one of the jobs" if others else label
        self._hosts = {
            host: _Host(_Jobs(names, names.intersection(hosts.jobs)), label)
            for host, names in hosts.jobs_by_host.items()
        }
        self._lock = Lock()

    def start(self) -> None:
        """See ``Fleet.start``."""
        self._fleet.start()

    def close(self) -> None:
        """See ``Fleet.close``."""
        self._fleet.close()

    def latest(self) -> FleetSnapshot:
        """See ``Fleet.latest``."""
        # Within the lock, so that no thread brings back an older state.
        with self._lock:
            latest = self._fleet.latest()
            return replace(latest, hosts=tuple(map(self._state, latest.hosts)))

    def machine(self, name: str, *, readonly: bool = True) -> HostMachine:
        """See ``Fleet.machine``."""
        machine = self._fleet.machine(name, readonly=readonly)
        return HostMachine(HostSource(self, name), lambda: machine.processes)

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """See ``Fleet.subscribe``."""
        return self._fleet.subscribe(listener)

    def _state(self, state: HostState) -> HostState:
        host = self._hosts.get(state.name)
        return state if host is None else host.narrowed(state)


class _Jobs(Struct, frozen=True):
    """Jobs of a host.

    Attributes:
        names: Their names and numbers.
        written: Those of them that the user wrote: all parts of such a job are meant, also those
            that start later.
    """

    names: frozenset[str]
    written: frozenset[str]

    def include(self, name: str | None) -> bool:
        """Whether a job with this name is one of them, or a part of one."""
        return name is not None and (
            name in self.names or _PART.split(name, maxsplit=1)[0] in self.written
        )


class _Host:
    """One host as it is narrowed to the GPUs of jobs.

    Args:
        jobs: The jobs.
        label: What they are called in a note.
    """

    def __init__(self, jobs: _Jobs, label: str) -> None:
        self._jobs, self._label = jobs, label
        self._known: frozenset[str] = frozenset()  # The last GPUs that were certainly theirs.
        self._first_at: float | None = None
        self._states: tuple[HostState, HostState] | None = None  # As it was, and narrowed.
        self._snapshots: tuple[Snapshot, Snapshot, _Gpus] | None = None

    def narrowed(self, state: HostState) -> HostState:
        """A state of the host; the same object for the same state."""
        if state.snapshot is None or not state.snapshot.gpus:
            # Why it has none is in the sentence.
            return state
        if self._states is None or self._states[0] is not state:
            self._states = state, self._narrowed(state, state.snapshot)
        return self._states[1]

    def _narrowed(self, state: HostState, snapshot: Snapshot) -> HostState:
        # A host that falls silent keeps its snapshot, which is no new sample.
        if self._snapshots is None or self._snapshots[0] is not snapshot:
            gpus = self._gpus(snapshot)
            self._snapshots = snapshot, subset_of(snapshot, gpus.uuids), gpus
        _, narrowed, gpus = self._snapshots
        if self._is_awaited(state, gpus):
            return replace(
                state, status=HostStatus.CONNECTING, snapshot=None, received_at=None, states=()
            )
        return _with_gpus(state, narrowed, gpus)

    def _gpus(self, snapshot: Snapshot) -> _Gpus:
        found = _gpus_of(snapshot, self._jobs, self._label)
        if found.is_certain and found.uuids:
            self._known = found.uuids
        elif self._known:
            note = f"{self._label} has ended there" if found.is_certain else ""
            return _Gpus(self._known, note, is_certain=True)
        return found

    def _is_awaited(self, state: HostState, gpus: _Gpus) -> bool:
        """Whether the host may still ask Slurm: until then nothing of it is shown or logged."""
        is_asked = state.status is HostStatus.LIVE and state.origin is HostOrigin.GPUMON
        if gpus.is_certain or not is_asked or state.received_at is None:
            return False
        if self._first_at is None:
            self._first_at = state.received_at
        return state.received_at < self._first_at + _PATIENCE


class _Gpus(Struct, frozen=True):
    """The GPUs of a host that are shown.

    Attributes:
        uuids: Their UUIDs.
        note: What there is to say of them.
        is_certain: Whether they are those of the jobs, and all of these.
    """

    uuids: frozenset[str]
    note: str
    is_certain: bool


def _with_gpus(state: HostState, narrowed: Snapshot, gpus: _Gpus) -> HostState:
    states = tuple(each for each in state.states if each.gpu_uuid in gpus.uuids)
    return replace(state, snapshot=narrowed, states=states, note=gpus.note)


def _gpus_of(snapshot: Snapshot, jobs: _Jobs, label: str) -> _Gpus:
    own, unplaced = _allocations(snapshot, jobs)
    uuids = {
        use.gpu_uuid
        for process in snapshot.processes
        if process.place is not None and jobs.include(process.place.slurm_job)
        for use in process.uses
    }
    uuids |= {gpu.uuid for gpu in snapshot.gpus if allocations_of(own, gpu)}
    note = ""
    if unplaced != 0 and (own or not uuids):
        uuids = {gpu.uuid for gpu in snapshot.gpus}
        note = f"which GPUs there belong to {label} is not known: all are shown"
    elif unplaced != 0:
        note = f"only GPUs with a process of {label} are shown: others may belong to it"
    elif not uuids:
        note = f"no GPU there belongs to {label}"
    return _Gpus(frozenset(uuids), note, is_certain=unplaced == 0)


def _allocations(snapshot: Snapshot, jobs: _Jobs) -> tuple[Sequence[Allocation], int | None]:
    """What Slurm has given to jobs on a host.

    Returns:
        It, and the number of GPUs that they have without it being known which ones; ``None`` if not
        even their number is known.
    """
    of_slurm = [each for each in snapshot.allocations or () if each.scheduler == SLURM]
    own = [each for each in of_slurm if jobs.include(each.job) or jobs.include(each.number)]
    if own:
        return own, unplaced_count(own)
    return (), 0 if jobs_are_known(snapshot.allocations, SLURM) else None
