"""Logs of several machines, written of snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.recording.csv.files import log_files
from gpumon.recording.csv.rows import SEVERAL_MACHINES, GpuRows, ProcessRows
from tests.build import NOON, gpu, process, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot

Tick = dict[str, "Snapshot"]
"""The snapshots of one moment, by host."""


def write_several(path: Path, ticks: Iterable[Mapping[str, Snapshot]]) -> Path:
    """A log with the rows of ``gpumon log --hosts``; its GPU file."""
    files = log_files(path)
    rows: dict[str, tuple[GpuRows, ProcessRows]] = {}
    began: float | None = None
    with files.gpus.open("wb") as cards, files.processes.open("wb") as lists:
        cards.write(SEVERAL_MACHINES.gpu_header)
        lists.write(SEVERAL_MACHINES.process_header)
        for tick in ticks:
            for host, taken in tick.items():
                began = taken.time if began is None else began
                if host not in rows:
                    rows[host] = GpuRows(host), ProcessRows(hostname=host)
                own, listed = rows[host]
                cards.write(own.of(taken, taken.time - began))
                lists.write(listed.of(taken, taken.time - began))
    return files.gpus


def of_host(host: str, second: float, *, cards: int = 2, at: float = NOON) -> Snapshot:
    """A sample of a host: its first GPU tells the second, its process and memory tell the host.

    The UUIDs, the user and the PID are the same on every host.
    """
    number = sum(map(ord, host)) % 50
    found = tuple(
        gpu(
            index=index,
            utilization_gpu=(int(second) + number) % 100,
            memory_used=(number + 1) * 2**30 + int(second) * 2**20,
            sampled_at=at + second,
            energy=1000.0 * number + 100.0 * second,
        )
        for index in range(cards)
    )
    mine = process(100, gpus=tuple(range(cards)), memory_used=(number + 1) * 2**29, sm=number)
    taken = snapshot(at + second, *found, processes=(mine,))
    return replace(taken, host=replace(taken.host, name=f"{host}.example"))


def ticks(hosts: Mapping[str, range], seconds: range) -> list[Tick]:
    """Samples of hosts, each of which is there at some of the seconds."""
    found = (
        {host: of_host(host, second) for host, there in hosts.items() if second in there}
        for second in seconds
    )
    return [tick for tick in found if tick]
