"""Times every NVML call that gpumon makes on the cards of this machine.

``python -m tests.gpu.latency`` samples for half a minute and prints the rows of the table in
``tests/driver/README.md``.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from gpumon.sources.nvml.library import Library
from gpumon.sources.source import SourceError
from gpumon.text.formatting import printable
from tests.nvml_source import NvmlSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECONDS = 30.0
INTERVAL = 0.1


def measure(seconds: float) -> tuple[dict[str, list[float]], str, str]:
    """Sample ten times a second.

    Returns:
        Function -> seconds of each of its calls; the cards' names; the driver's version.
    """
    took: dict[str, list[float]] = defaultdict(list)
    prepared = Library.prepared

    def timed(
        self: Library, gpu_uuid: str | None, name: str, *arguments: object
    ) -> Callable[[], int]:
        call = prepared(self, gpu_uuid, name, *arguments)

        def timed_call() -> int:
            began = time.perf_counter()
            code = call()
            took[name].append(time.perf_counter() - began)
            return code

        return timed_call

    Library.prepared = timed  # type: ignore[method-assign] # the one place all calls go through
    try:
        source = NvmlSource(profiled=True)
        source.open()
        began = time.monotonic()
        for tick in range(round(seconds / INTERVAL)):
            time.sleep(max(0.0, began + tick * INTERVAL - time.monotonic()))
            snapshot = source.sample()
        source.close()
    finally:
        Library.prepared = prepared  # type: ignore[method-assign] # as it was
    names = " + ".join(sorted({printable(gpu.name or gpu.uuid) for gpu in snapshot.gpus}))
    return took, names, snapshot.host.driver_version or "?"


def rows(took: Mapping[str, list[float]], card: str, driver: str, date: str) -> list[str]:
    """The table's rows, the dearest call first."""
    lines = []
    for name, times in sorted(took.items(), key=lambda item: -statistics.median(item[1])):
        ordered = sorted(times)
        median = statistics.median(ordered) * 1e6
        high = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e6
        lines.append(f"| {name} | {median:.1f} | {high:.1f} | {card} | {driver} | {date} |")
    return lines


if __name__ == "__main__":
    try:
        measured = measure(SECONDS)
    except SourceError as error:
        sys.exit(f"Nothing to measure: {error}")
    sys.stdout.write("\n".join(rows(*measured, time.strftime("%Y-%m-%d"))) + "\n")
