"""Compresses snapshots in blocks, and restores them unchanged.

Measured on 90 samples of 8 GPUs and 18 processes whose values all change: 2 ms to compress to
76 kB, 6 ms to restore.
"""

from __future__ import annotations

import sys
from array import array
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import msgpack
from msgspec.structs import replace

from gpumon.model.codec import encode
from gpumon.recording.memory.encoded import decode_lists, decode_snapshot, moved

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.memory.encoded import EncodedSnapshot, Lists

    _Content = tuple[list[bytes], list[bytes], list[int]]

_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.window_log: 18,
}
"""A quarter of the time of level 7, for 5 to 11 % more. The window holds a whole block."""
_OWN_BYTES = 400
"""What a block takes besides its data."""


class Block:
    """Compressed snapshots.

    Attributes:
        shift: Seconds to add to its times: the clock was set back since.

    Args:
        snapshots: What it is made of, oldest first, at least one.
    """

    __slots__ = ("_data", "_times", "shift")

    def __init__(self, snapshots: Sequence[EncodedSnapshot]) -> None:
        self._times = array("d", map(attrgetter("time"), snapshots))
        lists = {id(snapshot.lists): snapshot.lists for snapshot in snapshots}
        numbers = {key: number for number, key in enumerate(lists)}
        content = (
            [snapshot.head for snapshot in snapshots],
            [*lists.values()],
            [numbers[id(snapshot.lists)] for snapshot in snapshots],
        )
        self._data = zstd.compress(encode(content), options=_OPTIONS)
        self.shift = 0.0

    def __len__(self) -> int:
        return len(self._times)

    @property
    def first(self) -> float:
        """The time of its first snapshot."""
        first: float = self._times[0]
        return first + self.shift

    @property
    def times(self) -> Sequence[float]:
        """The times of its snapshots."""
        if not self.shift:
            return self._times
        return array("d", [time + self.shift for time in self._times])

    @property
    def bytes(self) -> int:
        """Its size in bytes."""
        return _OWN_BYTES + len(self._data) + 8 * len(self._times)

    def open(self, shift: float) -> list[Snapshot]:
        """Restore its snapshots.

        Args:
            shift: Seconds to add to all times in them.
        """
        content: _Content = msgpack.decode(zstd.decompress(self._data))
        heads, lists, numbers = content
        kept: dict[Any, Any] = {}
        opened = [_shared(decode_lists(data), kept) for data in lists]
        snapshots = [
            decode_snapshot(head, opened[number])
            for head, number in zip(heads, numbers, strict=True)
        ]
        return moved(snapshots, shift) if shift else snapshots


def _shared(lists: Lists, kept: dict[Any, Any]) -> Lists:
    """The lists, with one object for equal parts of processes in all lists of a block."""
    processes, holders = lists
    return tuple(
        [
            replace(
                process,
                id=kept.setdefault(process.id, process.id),
                uses=kept.setdefault(process.uses, process.uses),
            )
            for process in processes
        ]
    ), holders
