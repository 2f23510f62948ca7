"""The memory that comes back when processes end, card by card."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpumon.ending.report import Return
from gpumon.model import blamed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpumon.ending.life import Life
    from gpumon.model import Gpu, HolderScan, ProcessId, Snapshot

WAIT_SECONDS = 10.0
"""How long after the last end memory is waited for."""

_BELIEVED_SECONDS = 5.0
"""How old the last sample of a card may be when the wait is over: older ones say nothing of now."""

_PAGE = 2 * 2**20
_STEADY_SECONDS = 0.4


class MemoryWatch:
    """Follows the cards from the last snapshot before the first signal.

    Args:
        before: That snapshot.
        sent_time: When the first signal was sent, since the epoch.
    """

    def __init__(self, before: Snapshot, sent_time: float) -> None:
        self._before = before
        self._uses_before = {process.id: process.uses for process in before.processes}
        self._sent_time = sent_time
        self._cards: dict[str, _Card] = {}

    def look(
        self, snapshot: Snapshot | None, lives: Sequence[Life], now: float, time: float
    ) -> tuple[Return, ...]:
        """How the cards stand.

        Args:
            snapshot: The newest; what it says of a time before the signal is not believed.
            lives: The processes of the case.
            now: Monotonic.
            time: The same since the epoch.
        """
        burdens: dict[str, list[tuple[Life, int | None]]] = {}
        for life in lives:
            if life.counts:
                # The newer of two answers: the dialog may have been open for long.
                uses = self._uses_before.get(life.target.id, life.target.uses)
                for use in uses:
                    burdens.setdefault(use.gpu_uuid, []).append((life, use.memory_used))
        ends = _last_end(lives)
        for uuid, burden in burdens.items():
            before = _gpu(self._before, uuid)
            if before is None or before.memory_used is None:
                continue
            card = self._cards.get(uuid)
            if card is None:
                card = self._cards[uuid] = _Card(before, before.memory_used)
            card.reopen(ends)
            if card.state.open:
                card.look(self._before, snapshot, burden, self._sent_time)
                card.settle(snapshot, burden, ends, now, time)
        cards = sorted(self._cards.values(), key=lambda card: card.state.gpu_index)
        return tuple(card.state for card in cards)

    @property
    def unexplained(self) -> bool:
        """Whether some card has settled short, and nobody has looked yet who holds it."""
        return any(card.unexplained for card in self._cards.values())

    def explain(self, scan: HolderScan | None, kin: Collection[ProcessId]) -> None:
        """Take from a scan who holds the cards that have settled short."""
        suspects = () if scan is None else scan.suspects
        for card in self._cards.values():
            if card.short:
                uuid = card.state.gpu_uuid
                card.explained = True
                here = (one for one in suspects if uuid in one.gpu_uuids)
                card.state = msgspec.structs.replace(card.state, remaining=blamed(here, kin))


class _End(NamedTuple):
    """When a process ended.

    Attributes:
        time: Since the epoch.
        at: Monotonic.
    """

    time: float
    at: float


class _Card:
    """One card of the case."""

    def __init__(self, gpu: Gpu, before: int) -> None:
        self.state = Return(gpu.uuid, gpu.index, expected=None, before=before, now=None)
        self.explained = False
        self._sampled_at: float | None = None
        self._settled_after: _End | None = None
        self._steady: tuple[float, int] | None = None

    @property
    def short(self) -> bool:
        """Whether it has settled short, and the driver's list does not say why."""
        return self.state.settled and self.state.short and not self.state.listed

    @property
    def unexplained(self) -> bool:
        """Whether it has settled so, and nobody has looked yet who holds it."""
        return self.short and not self.explained

    def reopen(self, end: _End | None) -> None:
        """Look on where memory was missing and another of the case has ended since.

        It may have been that one who held it, though it was in no list.
        """
        if self.state.settled and self.state.short and end != self._settled_after:
            self.state = msgspec.structs.replace(self.state, settled=False, remaining=())
            self.explained = False
            self._steady = None

    def look(
        self,
        before: Snapshot,
        snapshot: Snapshot | None,
        burden: list[tuple[Life, int | None]],
        sent_time: float,
    ) -> None:
        """Take in a snapshot."""
        sizes = [size for _, size in burden]
        expected = None if None in sizes else sum(size or 0 for size in sizes)
        state = msgspec.structs.replace(self.state, expected=expected)
        gpu = None if snapshot is None else _gpu(snapshot, state.gpu_uuid)
        if snapshot is None or snapshot.time <= sent_time:
            pass
        elif gpu is None or gpu.memory_used is None:
            state = msgspec.structs.replace(state, now=None)
        elif _sampled_after(gpu, sent_time):
            pids = {life.target.id.pid for life, _ in burden}
            over = {life.target.id.pid for life, _ in burden if life.ended_time is not None}
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
        burden: list[tuple[Life, int | None]],
        end: _End | None,
        now: float,
        time: float,
    ) -> None:
        """Decide whether what was taken in is enough."""
        self._settled_after = end
        if self.state.settled or end is None:
            return
        if any(life.ended_time is None for life, _ in burden):
            return
        if now - end.at >= WAIT_SECONDS:
            old = self._sampled_at is None or time - self._sampled_at > _BELIEVED_SECONDS
            known = None if old else self.state.now
            self.state = msgspec.structs.replace(self.state, now=known, settled=True)
        elif self._is_complete(snapshot, end.time):
            self.state = msgspec.structs.replace(self.state, settled=True)

    def _is_complete(self, snapshot: Snapshot | None, last_end: float) -> bool:
        """Whether the memory that the card got back is all, or does not change any more."""
        gpu = None if snapshot is None else _gpu(snapshot, self.state.gpu_uuid)
        if snapshot is None or gpu is None or gpu.memory_used is None or self.state.listed:
            return False
        if not _sampled_after(gpu, last_end):
            return False
        if snapshot.processes_at is None or snapshot.processes_at <= last_end:
            return False
        if self.state.missing == 0:
            return True
        return self._steady_at(gpu.sampled_at or last_end, gpu.memory_used)

    def _steady_at(self, sampled_at: float, used: int) -> bool:
        """Whether the same was seen before: the driver may free in several steps."""
        if self._steady is None or abs(self._steady[1] - used) > _PAGE:
            self._steady = sampled_at, used
        return sampled_at - self._steady[0] >= _STEADY_SECONDS


def _last_end(lives: Sequence[Life]) -> _End | None:
    """When the last of those that have ended did."""
    ends = [
        _End(life.ended_time, life.ended_at)
        for life in lives
        if life.ended_time is not None and life.ended_at is not None
    ]
    return max(ends, default=None)


def _gpu(snapshot: Snapshot, uuid: str) -> Gpu | None:
    return next((gpu for gpu in snapshot.gpus if gpu.uuid == uuid), None)


def _sampled_after(gpu: Gpu, time: float) -> bool:
    return gpu.sampled_at is not None and gpu.sampled_at > time


def _listed(snapshot: Snapshot, uuid: str) -> list[tuple[ProcessId, int | None]]:
    """The processes of a card with their memory there; one under each MIG instance."""
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
    """Bytes that the other processes of a card took since; ``None`` where no list tells.

    Those that were ended are known by their numbers: the driver may list an ended process on, which
    then has no start time, or that of a process that was given its number.
    """
    if snapshot.processes_at is None or snapshot.processes_at <= sent_time:
        return None
    sums = []
    for moment in (before, snapshot):
        gpu = _gpu(moment, uuid)
        if moment.processes_at is None or gpu is None or "processes" in gpu.unknown:
            return None
        sizes = [size for id_, size in _listed(moment, uuid) if id_.pid not in ended]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            return None
        sums.append(sum(known))
    return sums[1] - sums[0]
