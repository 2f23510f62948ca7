"""Samples a real card in a process of its own, beside nvidia-smi, and prints what both said.

A process of its own, because the test process may have loaded the simulated driver, and the
dynamic linker knows libraries by name.

    python -m tests.gpu.witness values     one sample, nvidia-smi, another sample
    python -m tests.gpu.witness rate 5     ten samples a second for so many seconds
"""

from __future__ import annotations

import sys
import time

import msgspec

from gpumon.makers.backend import PERIOD
from gpumon.model.snapshot import GPU_METRICS, Snapshot
from tests.gpu.smi import query
from tests.nvml_source import NvmlSource

INTERVAL = 0.1


class Values(msgspec.Struct):
    """What gpumon said before and after nvidia-smi did."""

    before: Snapshot  # A snapshot.
    after: Snapshot  # Another.
    # nvidia-smi's name of a metric -> what it said, a text for each card; absent when this
    # nvidia-smi does not know the name.
    smi: dict[str, list[str]]


class Rate(msgspec.Struct):
    late: int  # How many samples were not ready before the next was due.
    longest: float  # Seconds that the longest took, the first left out.
    driver_share: float  # Seconds inside the driver per second.


def witness_values() -> Values:
    """What nvidia-smi says, between two samples with everything slow in them."""
    source = NvmlSource(profiled=True)
    source.open()
    source.sample()
    before = source.sample()
    asked = query([metric.smi for metric in GPU_METRICS if metric.smi])
    known = asked.gpus[0] if asked.gpus else ()
    smi = {name: [gpu[name] for gpu in asked.gpus] for name in known}
    # Every slow value is due again by now.
    time.sleep(PERIOD)
    after = source.sample()
    source.close()
    return Values(before, after, smi)


def witness_rate(seconds: float) -> Rate:
    """Ten samples a second by absolute deadlines."""
    source = NvmlSource(profiled=True)
    source.open()
    source.sample()
    inside = source.driver_seconds
    began = time.monotonic()
    late, longest = 0, 0.0
    ticks = round(seconds / INTERVAL)
    for tick in range(1, ticks + 1):
        time.sleep(max(0.0, began + tick * INTERVAL - time.monotonic()))
        started = time.monotonic()
        source.sample()
        longest = max(longest, time.monotonic() - started)
        late += time.monotonic() > began + (tick + 1) * INTERVAL
    share = (source.driver_seconds - inside) / (time.monotonic() - began)
    source.close()
    return Rate(late, longest, share)


if __name__ == "__main__":
    answer = witness_rate(float(sys.argv[2])) if sys.argv[1] == "rate" else witness_values()
    sys.stdout.buffer.write(msgspec.json.encode(answer))
