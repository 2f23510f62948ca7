"""A retention tier: snapshots at one rate, the newest unpacked, older ones packed in blocks."""

from __future__ import annotations

from array import array
from itertools import chain
from operator import attrgetter
from sys import getsizeof
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.model.processes import GpuProcess, UnlistedHolder, Workload
    from gpumon.model.snapshot import Snapshot

ROW_BYTES = 600
"""What a row, of a GPU or of a listed process, takes before it is packed, about; long texts are
counted besides."""
BLOCK_BYTES = 1000 * ROW_BYTES
"""Bytes from which on snapshots are packed. A block with so many opens in some 2 ms. What never
changes is in it once, so packed snapshots take a fifth more than in blocks of twice as many; but
2 MiB less of them wait unpacked."""
_BLOCK_BYTES = 400
"""What a block takes besides its data."""
_CREDIT = 60
"""How many snapshots out of turn may come at once."""
_TEXTS = attrgetter("command", "place")


class Block:
    """Packed snapshots.

    Attributes:
        data: For ``packing.unpacked``.
        shift: Seconds to add to its times: the clock was set back since.
    """

    __slots__ = ("_times", "data", "shift")

    def __init__(self, times: Iterable[float], data: bytes) -> None:
        self._times = array("d", times)
        self.data = data
        self.shift = 0.0

    def __len__(self) -> int:
        return len(self._times)

    @property
    def first(self) -> float:
        """The time of its first snapshot."""
        return self._times[0] + self.shift

    @property
    def times(self) -> Sequence[float]:
        """The times of its snapshots."""
        if not self.shift:
            return self._times
        return array("d", [time + self.shift for time in self._times])

    @property
    def bytes(self) -> int:
        """Its size in bytes."""
        return _BLOCK_BYTES + len(self.data) + 8 * len(self._times)


class RetentionTier:
    """Snapshots at one rate, the newest ``most`` of them.

    Snapshots with an event are kept in addition, as long as they are not more than the regular
    ones; a burst of ``_CREDIT`` is allowed.

    Attributes:
        blocks: Packed, oldest first.
        fresh: The newer ones, unpacked. Replaced when some of them are packed, so that a thread
            that reads the old list can continue.
        fresh_bytes: Approximate size of the unpacked ones.
        packed_bytes: Size of the blocks.

    Args:
        period: Seconds between snapshots; 0 keeps all.
        most: Maximum number of snapshots.
    """

    def __init__(self, period: float, most: int) -> None:
        self.blocks: list[Block] = []
        self.fresh: list[Snapshot] = []
        self._period = period
        self._most = most
        self._slot: float | None = None
        self._credit = _CREDIT
        self._packed = 0
        self.packed_bytes = 0
        self.fresh_bytes = 0
        self._newest: Snapshot | None = None

    @property
    def first(self) -> float | None:
        """The time of the oldest snapshot."""
        if self.blocks:
            return self.blocks[0].first
        return self.fresh[0].time if self.fresh else None

    @property
    def bytes(self) -> int:
        """The approximate total size in bytes."""
        return self.packed_bytes + self.fresh_bytes

    def take(self, snapshot: Snapshot, *, eventful: bool) -> None:
        """Keep the next snapshot if it is due or has an event."""
        slot = snapshot.time // self._period if self._period else None
        if slot is None or slot != self._slot:
            self._slot = slot
            self._credit = min(self._credit + 1, _CREDIT)
        elif eventful and self._credit:
            self._credit -= 1
        else:
            return
        self.fresh_bytes += _new_bytes(self._newest, snapshot)
        self._newest = snapshot
        self.fresh.append(snapshot)

    def seal(self, block: Block) -> None:
        """Replace the oldest unpacked snapshots by the block made from them."""
        self.blocks.append(block)
        self._packed += len(block)
        self.packed_bytes += block.bytes
        self.fresh = self.fresh[len(block) :]
        self.fresh_bytes = sum(map(_new_bytes, [None, *self.fresh], self.fresh))
        # A packed snapshot must not stay in memory unpacked.
        self._newest = self.fresh[-1] if self.fresh else None
        while self.blocks and self._packed - len(self.blocks[0]) >= self._most:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Drop the oldest block."""
        block = self.blocks.pop(0)
        self._packed -= len(block)
        self.packed_bytes -= block.bytes

    def move_back(self, seconds: float) -> None:
        """Follow a clock that was set back. Everything must be packed."""
        for block in self.blocks:
            block.shift -= seconds


def _new_bytes(before: Snapshot | None, snapshot: Snapshot) -> int:
    """The approximate size a snapshot adds; a GPU counts as two rows for its many fields.

    A command line may be longer than the rest of a list, so texts from outside are counted, unless
    the previous snapshot has the same objects.
    """
    rows, more = 1, 0
    reasons = set() if before is None else {id(gpu.unknown) for gpu in before.gpus}
    for gpu in snapshot.gpus:
        rows += 2 + len(gpu.mig)
        if id(gpu.unknown) not in reasons:
            more += getsizeof(gpu.unknown)
    if before is None or before.processes is not snapshot.processes:
        rows += sum([len(process.uses) for process in snapshot.processes])
        kept = {} if before is None else _texts(before.processes)
        texts = _texts(snapshot.processes)
        more += sum([_text_bytes(texts[key]) for key in texts.keys() - kept.keys()])
    holders = snapshot.holders
    if holders is not None and (before is None or before.holders is not holders):
        rows += len(holders.suspects)
        more += sum(map(_text_bytes, _texts(holders.suspects).values()))
    return rows * ROW_BYTES + more


def _texts(
    processes: Iterable[GpuProcess | UnlistedHolder],
) -> dict[int, tuple[str, ...] | Workload]:
    """The command lines of processes, and where they run, by identity."""
    texts = list(filter(None, chain.from_iterable(map(_TEXTS, processes))))
    return dict(zip(map(id, texts), texts, strict=True))


def _text_bytes(text: tuple[str, ...] | Workload) -> int:
    strings = text if isinstance(text, tuple) else text.labels
    return getsizeof(text) + sum(map(getsizeof, strings))
