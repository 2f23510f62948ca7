"""A retention tier: snapshots at one rate, the newest encoded, older ones compressed in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.recording.encoded import EncodedSnapshot

if TYPE_CHECKING:
    from gpumon.recording.memory.block import Block

BLOCK_BYTES = 2**18
"""Bytes from which on snapshots are compressed: some 20 of eight GPUs, or a list of a thousand
processes. A block with so many opens in some 2 ms."""
_CREDIT = 60
"""How many snapshots out of turn may come at once."""


class RetentionTier:
    """Snapshots at one rate, the newest ``most`` of them.

    Snapshots with an event are kept in addition, as long as they are not more than the regular
    ones; a burst of ``_CREDIT`` is allowed.

    Attributes:
        blocks: Compressed, oldest first.
        fresh: The newer ones. Replaced when some of them are compressed, so that a thread that
            reads the old list can continue.
        fresh_bytes: Size of the newer ones; what they share with other tiers counts in each.
        packed_bytes: Size of the blocks.

    Args:
        period: Seconds between snapshots; 0 keeps all.
        most: Maximum number of snapshots.
    """

    def __init__(self, period: float, most: int) -> None:
        self.blocks: list[Block] = []
        self.fresh: list[EncodedSnapshot] = []
        self._period = period
        self._most = most
        self._slot: float | None = None
        self._credit = _CREDIT
        self._packed = 0
        self.packed_bytes = 0
        self.fresh_bytes = 0

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

    def take(self, snapshot: EncodedSnapshot, *, eventful: bool) -> None:
        """Keep the next snapshot if it is due or has an event."""
        slot = snapshot.time // self._period if self._period else None
        if slot is None or slot != self._slot:
            self._slot = slot
            self._credit = min(self._credit + 1, _CREDIT)
        elif eventful and self._credit:
            self._credit -= 1
        else:
            return
        self.fresh_bytes += snapshot.bytes_after(self.fresh[-1] if self.fresh else None)
        self.fresh.append(snapshot)

    def seal(self, block: Block) -> None:
        """Replace the oldest of the newer snapshots by the block made of them."""
        self.blocks.append(block)
        self._packed += len(block)
        self.packed_bytes += block.bytes
        self.fresh = self.fresh[len(block) :]
        before = [None, *self.fresh]
        self.fresh_bytes = sum(map(EncodedSnapshot.bytes_after, self.fresh, before))
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
