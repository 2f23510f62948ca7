"""Takes one snapshot within bounded time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from gpumon.sampling.collector import Collector
from gpumon.sources.source import SourceError

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot
    from gpumon.sources.source import Source

_PATIENCE = 10.0
"""Seconds for the driver: initialising GPUs without persistence mode takes seconds each."""


def take_one(source: Source, patience: float = _PATIENCE) -> Snapshot:
    """One snapshot, from its own thread, so that a hung driver does not hang the caller.

    Args:
        source: The source; opened and closed here.
        patience: Maximum seconds.

    Raises:
        SourceError: The source cannot be opened, or has not answered in time.
    """
    deadline = time.monotonic() + patience
    settled = threading.Event()
    taken: list[Snapshot] = []

    def take(snapshot: Snapshot) -> None:
        taken.append(snapshot)
        settled.set()

    collector = Collector(source, 3600.0)
    collector.subscribe(take, lambda _: settled.set())
    collector.start()
    try:
        collector.wait_open(patience)
        if not settled.wait(max(0.0, deadline - time.monotonic())):
            raise SourceError(
                f"The driver has not answered for {patience:.0f} s.",
                "Other programs that use the GPUs may hang too; `dmesg` may say why.",
            )
    finally:
        collector.stop()
    if not taken and collector.failure is not None:
        raise collector.failure
    return taken[0]
