"""Encodes snapshots, each once, and restores them unchanged.

What changes with every sample is the head of a snapshot: machine and GPUs. Its lists, of processes
and of holders of device files, are read less often; heads that share them share their bytes.

Measured on 8 GPUs and 18 processes whose values all change: 0.04 ms to encode a snapshot to 15 kB.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.model.codec import Codec, encode
from gpumon.model.processes import GpuProcess, HolderScan
from gpumon.model.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.snapshot import Gpu

    Lists = tuple[tuple[GpuProcess, ...], HolderScan | None]

_ENCODED_BYTES = 200
"""What an encoded snapshot takes besides its bytes."""


class EncodedSnapshot(Struct, frozen=True, gc=False):
    """A snapshot as bytes."""

    time: float  # Seconds since the epoch.
    head: bytes  # All but its lists.
    lists: bytes  # The lists; the same object as that of the snapshot before if it has the same.

    def bytes_after(self, before: EncodedSnapshot | None) -> int:
        """What it takes in memory beside the snapshot before it."""
        shares = before is not None and before.lists is self.lists
        return _ENCODED_BYTES + len(self.head) + (0 if shares else len(self.lists))


class SnapshotEncoder:
    """Encodes snapshots in order, lists that several of them share once."""

    def __init__(self) -> None:
        self._lists: Lists = ((), None)
        self._encoded = encode(self._lists)

    def encode(self, snapshot: Snapshot) -> EncodedSnapshot:
        """The snapshot as bytes."""
        processes, holders = snapshot.processes, snapshot.holders
        if processes is not self._lists[0] or holders is not self._lists[1]:
            self._lists = processes, holders
            self._encoded = encode(self._lists)
        head = encode(replace(snapshot, processes=(), holders=None))
        return EncodedSnapshot(snapshot.time, head, self._encoded)


class SnapshotDecoder:
    """Restores encoded snapshots; those that share their lists share them again.

    What it restored last it gives again.
    """

    def __init__(self) -> None:
        self._lists: tuple[bytes, Lists] = b"", ((), None)
        self._last: tuple[EncodedSnapshot, Snapshot] | None = None

    def decode(self, encoded: EncodedSnapshot) -> Snapshot:
        """The snapshot of these bytes."""
        if self._last is not None and self._last[0] is encoded:
            return self._last[1]
        if encoded.lists is not self._lists[0]:
            self._lists = encoded.lists, decode_lists(encoded.lists)
        snapshot = decode_snapshot(encoded.head, self._lists[1])
        self._last = encoded, snapshot
        return snapshot


def decode_lists(data: bytes) -> Lists:
    """The lists of ``EncodedSnapshot.lists``."""
    return _lists_codec().decode(data)


def decode_snapshot(head: bytes, lists: Lists) -> Snapshot:
    """The snapshot of ``EncodedSnapshot.head`` with its lists."""
    processes, holders = lists
    return replace(_head_codec().decode(head), processes=processes, holders=holders)


@cache
def _head_codec() -> Codec[Snapshot]:
    return Codec(Snapshot)


@cache
def _lists_codec() -> Codec[Lists]:
    return Codec(tuple[tuple[GpuProcess, ...], HolderScan | None])


def moved(snapshots: Iterable[Snapshot], seconds: float) -> list[Snapshot]:
    """The snapshots with so many seconds added to all their times."""

    def move(time: float | None) -> float | None:
        return None if time is None else time + seconds

    def move_gpu(gpu: Gpu) -> Gpu:
        return replace(
            gpu,
            sampled_at=move(gpu.sampled_at),
            status_since=move(gpu.status_since),
            xid_at=move(gpu.xid_at),
        )

    found: list[Snapshot] = []
    lists: tuple[tuple[GpuProcess, ...], tuple[GpuProcess, ...]] = (), ()
    for snapshot in snapshots:
        if snapshot.processes is not lists[0]:
            processes = snapshot.processes
            lists = (
                processes,
                tuple(
                    [replace(process, started_at=move(process.started_at)) for process in processes]
                ),
            )
        holders, host = snapshot.holders, snapshot.host
        found.append(
            replace(
                snapshot,
                time=snapshot.time + seconds,
                host=replace(host, driver_since=move(host.driver_since)),
                gpus=tuple(map(move_gpu, snapshot.gpus)),
                processes=lists[1],
                processes_at=move(snapshot.processes_at),
                holders=None if holders is None else replace(holders, at=holders.at + seconds),
            )
        )
    return found
