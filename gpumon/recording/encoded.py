"""Encodes snapshots, each once, and restores them unchanged.

What changes with every sample is the head of a snapshot: machine and GPUs. Its lists, of processes
and of holders of device files, are read less often; snapshots that share a list share its bytes.
``docs/decisions/0005-snapshot-codec.md`` has the figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gpumon.model.codec import encode, shared_codec
from gpumon.model.processes import GpuProcess, HolderScan
from gpumon.model.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.codec import Codec, Layout

T = TypeVar("T")

_ENCODED_BYTES = 200
"""What an encoded snapshot takes besides its bytes."""
Processes: TypeAlias = tuple[GpuProcess, ...]
Holders: TypeAlias = HolderScan | None
Parts: TypeAlias = tuple[bytes, bytes | None, bytes | None]


class EncodedSnapshot(Struct, frozen=True, gc=False):
    """A snapshot as bytes; those of a list that several snapshots share are one object."""

    time: float  # Seconds since the epoch.
    head: bytes  # All but its lists.
    processes: bytes
    holders: bytes

    def after(self, before: EncodedSnapshot | None) -> Parts:
        """Its head and lists; ``None`` for a list that is that of the snapshot before it."""
        if before is None:
            return self.head, self.processes, self.holders
        return (
            self.head,
            None if self.processes is before.processes else self.processes,
            None if self.holders is before.holders else self.holders,
        )

    def bytes_after(self, before: EncodedSnapshot | None) -> int:
        """What it takes in memory beside the snapshot before it."""
        return _ENCODED_BYTES + sum(map(len, filter(None, self.after(before))))


def restored(time: float, parts: Parts, before: EncodedSnapshot | None) -> EncodedSnapshot:
    """The snapshot of these parts, see ``EncodedSnapshot.after``.

    Raises:
        ValueError: A list is missing.
    """
    head, processes, holders = parts
    if before is not None:
        processes = before.processes if processes is None else processes
        holders = before.holders if holders is None else holders
    if processes is None or holders is None:
        raise ValueError("it lacks a list")
    return EncodedSnapshot(time, head, processes, holders)


class SnapshotEncoder:
    """Encodes snapshots in order, a list that several of them share once.

    Args:
        encode: How: ``codec.encode`` or ``codec.encode_for_others``.
    """

    def __init__(self, encode: Callable[[Any], bytes] = encode) -> None:
        self._encode = encode
        self._processes = Once(encode)
        self._holders = Once(encode)

    def encode(self, snapshot: Snapshot) -> EncodedSnapshot:
        """The snapshot as bytes."""
        return EncodedSnapshot(
            snapshot.time,
            self._encode(replace(snapshot, processes=(), holders=None)),
            self._processes(snapshot.processes),
            self._holders(snapshot.holders),
        )


class SnapshotDecoder:
    """Restores encoded snapshots; those that share a list share it again.

    Args:
        layout: That of another program that encoded them, see ``Codec``.
        shared: Makes parts of processes one object that are equal in several lists.
    """

    def __init__(
        self, layout: Layout | None = None, shared: Callable[[Processes], Processes] | None = None
    ) -> None:
        head: Codec[Snapshot] = shared_codec(Snapshot, layout)
        processes: Codec[Processes] = shared_codec(Processes, layout)
        self._head = head.decode
        self._processes: Once[Processes] = Once(
            processes.decode if shared is None else lambda data: shared(processes.decode(data))
        )
        self._holders: Once[Holders] = Once(shared_codec(Holders, layout).decode)
        self._last: tuple[EncodedSnapshot, Snapshot] | None = None

    def decode(self, encoded: EncodedSnapshot) -> Snapshot:
        """The snapshot of these bytes; of the same object as before the same snapshot.

        Raises:
            msgspec.MsgspecError, RecursionError: As ``Codec.decode``, of bytes of another program.
        """
        # No ``Once`` of a method: objects that refer to each other stay until they are collected.
        if self._last is None or self._last[0] is not encoded:
            snapshot = replace(
                self._head(encoded.head),
                processes=self._processes(encoded.processes),
                holders=self._holders(encoded.holders),
            )
            self._last = encoded, snapshot
        return self._last[1]


class Once(Generic[T]):
    """Caches the last result of a function, for the same object."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self._last: tuple[Any, T] | None = None

    def __call__(self, value: Any) -> T:
        """The result of the function."""
        if self._last is None or self._last[0] is not value:
            self._last = value, self._function(value)
        return self._last[1]
