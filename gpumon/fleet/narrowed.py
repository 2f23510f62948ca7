"""A fleet that shows of some hosts only the GPUs of Slurm jobs.

The states of hosts are narrowed before anybody sees them, so that all lists, sums and findings
agree.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.fleet.fleet import Fleet, FleetSnapshot, HostMachine, HostSource
from gpumon.model.allocations import SLURM, allocations_of, unplaced_count
from gpumon.model.subset import subset_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.fleet.fleet import HostState
    from gpumon.fleet.host_names import HostList
    from gpumon.model.allocations import Allocation
    from gpumon.model.snapshot import Snapshot


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
        self._jobs = hosts.jobs_by_host
        self._label = "one of the jobs" if others else label
        self._lock = Lock()
        # The newest state of each host, as it was and narrowed.
        self._narrowed: dict[str, tuple[HostState, HostState]] = {}

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
        names = self._jobs.get(state.name)
        if names is None or state.snapshot is None:
            return state
        known = self._narrowed.get(state.name)
        if known is None or known[0] is not state:
            narrowed = narrowed_state(state, state.snapshot, names, self._label)
            known = self._narrowed[state.name] = state, narrowed
        return known[1]


def narrowed_state(
    state: HostState, snapshot: Snapshot, names: frozenset[str], label: str
) -> HostState:
    """A host with the GPUs of jobs only; all of them, and a note, if these are not known.

    Args:
        state: The host.
        snapshot: Its snapshot.
        names: The names of the jobs.
        label: What they are called in a note.
    """
    own, unplaced = _allocations(snapshot, names)
    uuids = {
        use.gpu_uuid
        for process in snapshot.processes
        if process.place is not None and process.place.slurm_job in names
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
    states = tuple(each for each in state.states if each.gpu_uuid in uuids)
    narrowed = subset_of(snapshot, uuids)
    return replace(state, snapshot=narrowed, states=states, note=note)


def _allocations(
    snapshot: Snapshot, names: frozenset[str]
) -> tuple[Sequence[Allocation], int | None]:
    """What Slurm has given to jobs on a host.

    Returns:
        It, and the number of GPUs that they have without it being known which ones; ``None`` if not
        even their number is known.
    """
    of_slurm = [each for each in snapshot.allocations or () if each.scheduler == SLURM]
    own = [each for each in of_slurm if not names.isdisjoint((each.job, each.number))]
    if own:
        return own, unplaced_count(own)
    # Where only other schedulers answer, Slurm may not have been asked.
    was_asked = snapshot.allocations is not None and (of_slurm or not snapshot.allocations)
    is_known = was_asked and all(each.job is not None for each in of_slurm)
    return (), 0 if is_known else None
