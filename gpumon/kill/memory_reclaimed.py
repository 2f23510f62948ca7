"""The memory that is reclaimed when processes exit, per GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpumon.kill.outcome import MemoryReclaimed
from gpumon.model.processes import blamed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpumon.kill.target import TargetState
    from gpumon.model.processes import HolderScan, ProcessId
    from gpumon.model.snapshot import Gpu, Snapshot

WAIT_SECONDS = 10.0
"""Seconds to wait for memory after the last exit."""

_BELIEVED_SECONDS = 5.0
"""Maximum age in seconds of a GPU's last sample at the end of the wait; older ones are ignored."""

_PAGE = 2 * 2**20
_STABLE_SECONDS = 0.4


class MemoryWatch:
    """Follows the GPUs from the last snapshot before the first signal.

    Args:
        before: That snapshot.
        sent_time: When the first signal was sent, since the epoch.
    """

    def __init__(self, before: Snapshot, sent_time: float) -> None:
        self._before = before
        self._uses_before = {process.id: process.uses for process in before.processes}
        self._sent_time = sent_time
        self._gpus: dict[str, _Gpu] = {}

    def update(
        self, snapshot: Snapshot | None, processes: Sequence[TargetState], now: float, time: float
    ) -> tuple[MemoryReclaimed, ...]:
        """The state of the GPUs, from a newer snapshot: values from before the signal are ignored.

        Args:
            snapshot: The newest snapshot.
            processes: The processes of the session.
            now: Monotonic time.
            time: Wall-clock time.
        """
        holders_by_gpu: dict[str, list[tuple[TargetState, int | None]]] = {}
        for process in processes:
            if process.counts:
                # The newer of two values: the dialog may have been open for long.
                uses = self._uses_before.get(process.target.id, process.target.uses)
                for use in uses:
                    holders_by_gpu.setdefault(use.gpu_uuid, []).append((process, use.memory_used))
        # Nothing is expected where the last target was refused, or is on a machine out of reach.
        for uuid in self._gpus.keys() - holders_by_gpu.keys():
            del self._gpus[uuid]
        ends = _last_end(processes)
        for uuid, holders in holders_by_gpu.items():
            before = _gpu(self._before, uuid)
            if before is None or before.memory_used is None:
                continue
            gpu = self._gpus.get(uuid)
            if gpu is None:
                gpu = self._gpus[uuid] = _Gpu(before, before.memory_used)
            gpu.reopen(ends)
            if gpu.state.open:
                gpu.update(self._before, snapshot, holders, self._sent_time)
                gpu.settle(snapshot, holders, ends, now, time)
        gpus = sorted(self._gpus.values(), key=lambda gpu: gpu.state.gpu_index)
        return tuple(gpu.state for gpu in gpus)

    @property
    def unexplained(self) -> bool:
        """Whether memory is missing on a settled GPU and no scan has looked for its holder yet."""
        return any(gpu.unexplained for gpu in self._gpus.values())

    def explain(self, scan: HolderScan | None, relatives: Collection[ProcessId]) -> None:
        """Take the holders of missing memory from a scan."""
        holders = () if scan is None else scan.suspects
        for gpu in self._gpus.values():
            if gpu.short:
                uuid = gpu.state.gpu_uuid
                gpu.explained = True
                here = (holder for holder in holders if uuid in holder.gpu_uuids)
                gpu.state = msgspec.structs.replace(gpu.state, remaining=blamed(here, relatives))


class _End(NamedTuple):
    """The exit of a process."""

    time: float  # since the epoch
    at: float  # monotonic


class _Gpu:
    """One GPU of the session."""

    def __init__(self, gpu: Gpu, before: int) -> None:
        self.state = MemoryReclaimed(gpu.uuid, gpu.index, expected=None, before=before, now=None)
        self.explained = False
        self._sampled_at: float | None = None
        self._settled_after: _End | None = None
        self._stable_since: tuple[float, int] | None = None

    @property
    def short(self) -> bool:
        """Whether memory is missing after it settled, and the driver's list does not explain it."""
        return self.state.settled and self.state.short and not self.state.listed

    @property
    def unexplained(self) -> bool:
        """Whether that is so and no scan has looked for the holder yet."""
        return self.short and not self.explained

    def reopen(self, end: _End | None) -> None:
        """Continue on a GPU with missing memory after another process of the session has exited.

        That process may have held it without being in any list.
        """
        if self.state.settled and self.state.short and end != self._settled_after:
            self.state = msgspec.structs.replace(self.state, settled=False, remaining=())
            self.explained = False
            self._stable_since = None

    def update(
        self,
        before: Snapshot,
        snapshot: Snapshot | None,
        holders: list[tuple[TargetState, int | None]],
        sent_time: float,
    ) -> None:
        """Process a snapshot."""
        sizes = [size for _, size in holders]
        expected = None if None in sizes else sum(size or 0 for size in sizes)
        state = msgspec.structs.replace(self.state, expected=expected)
        gpu = None if snapshot is None else _gpu(snapshot, state.gpu_uuid)
        if snapshot is None or snapshot.time <= sent_time:
            pass
        elif gpu is None or gpu.memory_used is None:
            state = msgspec.structs.replace(state, now=None)
        elif _sampled_after(gpu, sent_time):
            pids = {process.target.id.pid for process, _ in holders}
            over = {
                process.target.id.pid for process, _ in holders if process.ended_time is not None
            }
            listed = {id_.pid for id_, _ in _listed(snapshot, state.gpu_uuid)}
            state = msgspec.structs.replace(
                state,
                now=gpu.memory_used,
                others=_taken_by_others(before, snapshot, state.gpu_uuid, pids, sent_time),
                listed=tuple(sorted(over & listed)),
            )
            self._sampled_at = gpu.sampled_at
        self.state = state

    def settle(
        self,
        snapshot: Snapshot | None,
        holders: list[tuple[TargetState, int | None]],
        end: _End | None,
        now: float,
        time: float,
    ) -> None:
        """Decide whether the data is sufficient."""
        self._settled_after = end
        if self.state.settled or end is None:
            return
        if any(process.ended_time is None for process, _ in holders):
            return
        if now - end.at >= WAIT_SECONDS:
            old = self._sampled_at is None or time - self._sampled_at > _BELIEVED_SECONDS
            known = None if old else self.state.now
            self.state = msgspec.structs.replace(self.state, now=known, settled=True)
        elif self._is_complete(snapshot, end.time):
            self.state = msgspec.structs.replace(self.state, settled=True)

    def _is_complete(self, snapshot: Snapshot | None, last_end: float) -> bool:
        """Whether the GPU has got all memory back, or its memory no longer changes."""
        gpu = None if snapshot is None else _gpu(snapshot, self.state.gpu_uuid)
        if snapshot is None or gpu is None or gpu.memory_used is None or self.state.listed:
            return False
        if not _sampled_after(gpu, last_end):
            return False
        if snapshot.processes_at is None or snapshot.processes_at <= last_end:
            return False
        if self.state.missing == 0:
            return True
        return self._is_stable(gpu.sampled_at or last_end, gpu.memory_used)

    def _is_stable(self, sampled_at: float, used: int) -> bool:
        """Whether the value was the same before: the driver may free memory in several steps."""
        if self._stable_since is None or abs(self._stable_since[1] - used) > _PAGE:
            self._stable_since = sampled_at, used
        return sampled_at - self._stable_since[0] >= _STABLE_SECONDS


def _last_end(processes: Sequence[TargetState]) -> _End | None:
    """The time of the last exit."""
    ends = [
        _End(process.ended_time, process.ended_at)
        for process in processes
        if process.ended_time is not None and process.ended_at is not None
    ]
    return max(ends, default=None)


def _gpu(snapshot: Snapshot, uuid: str) -> Gpu | None:
    return next((gpu for gpu in snapshot.gpus if gpu.uuid == uuid), None)


def _sampled_after(gpu: Gpu, time: float) -> bool:
    return gpu.sampled_at is not None and gpu.sampled_at > time


def _listed(snapshot: Snapshot, uuid: str) -> list[tuple[ProcessId, int | None]]:
    """The processes listed on a GPU with their memory there; one entry per MIG instance."""
    return [
        (process.id, use.memory_used)
        for process in snapshot.processes
        for use in process.uses
        if use.gpu_uuid == uuid
    ]


def _taken_by_others(
    before: Snapshot,
    snapshot: Snapshot,
    uuid: str,
    ended: Collection[int],
    sent_time: float,
) -> int | None:
    """Bytes that other processes of a GPU allocated since; ``None`` if no list tells.

    Terminated processes are matched by PID: the driver may still list an exited process, then
    without a start time, or with that of a process that reused the PID.
    """
    if snapshot.processes_at is None or snapshot.processes_at <= sent_time:
        return None
    sums = []
    for sample in (before, snapshot):
        gpu = _gpu(sample, uuid)
        if sample.processes_at is None or gpu is None or "processes" in gpu.unknown:
            return None
        sizes = [size for id_, size in _listed(sample, uuid) if id_.pid not in ended]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            return None
        sums.append(sum(known))
    return sums[1] - sums[0]
