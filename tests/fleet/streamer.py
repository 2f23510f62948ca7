"""``python -m tests.fleet.streamer stream -n S``: stands for gpumon on a host with invented GPUs.

Its clock may differ from that of this machine (``STREAMER_CLOCK``, seconds), and it may do what a
broken or hostile host does (``STREAMER_FAULT``).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.model.snapshot import MigInstance
from gpumon.stream import StreamWriter
from tests.build import gpu, process, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.model.snapshot import Gpu, Snapshot

GPUS, PROCESSES = 8, 40


def samples(begin: float, interval: float) -> Iterator[Snapshot]:
    """Samples of a host whose utilisation, power and one process's memory always change."""
    number = 0
    while True:
        now = begin + number * interval
        gpus = [
            gpu(
                index=index,
                uuid=f"GPU-{index}",
                sampled_at=now,
                utilization_gpu=(number * 7 + index) % 100,
                power_draw=300.0 + (number * 13 + index) % 100,
                temperature_gpu=60 + (number + index) % 3,
                memory_used=2**30 * (index + 1),
            )
            for index in range(GPUS)
        ]
        processes = [
            replace(
                process(
                    1000 + each,
                    start_time=each,
                    user=f"user{each % 5}",
                    gpus=(each % GPUS,),
                    sm=number % 90 if each < GPUS else 0,
                    memory_used=2**28,
                ),
                command=("python", "train.py", f"--seed={each}"),
            )
            for each in range(PROCESSES)
        ]
        yield snapshot(now, *gpus, processes=tuple(processes))
        number += 1


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    os._exit(0)


def main() -> None:
    """Write a stream until standard input ends."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    interval = float(sys.argv[sys.argv.index("-n") + 1])
    ahead = float(os.environ.get("STREAMER_CLOCK", "0"))
    fault = os.environ.get("STREAMER_FAULT", "")
    writer = StreamWriter(interval)
    begin = time.time() + ahead
    for number, sample in enumerate(samples(begin, interval)):
        line = writer.write(sample, time.time() + ahead)
        if number == 2 and fault:
            misbehave(fault, line, writer, sample)
        os.write(1, line)
        time.sleep(max(0.0, begin + (number + 1) * interval - time.time() - ahead))


def large_gpu(index: int) -> Gpu:
    """A GPU that takes long to read."""
    instances = [MigInstance(f"MIG-{index}-{number}", number) for number in range(60)]
    return gpu(index=index, uuid=f"GPU-{index}", mig=tuple(instances))


def misbehave(fault: str, line: bytes, writer: StreamWriter, sample: Snapshot) -> None:
    """Do what a broken host does."""
    if fault == "garbage":
        os.write(1, b"\x00\xff\x1b]0;owned\x07 no stream\n" * 100)
    elif fault == "gigabyte":
        for _ in range(2**10):
            os.write(1, b"x" * 2**20)
    elif fault == "expands":
        os.write(1, line)
        for _ in range(2**10):
            # To a hundred times its bytes: each part of it is within what a reader expands.
            command = ("x" * 300_000, os.urandom(1500).hex())
            owner = replace(sample.processes[0], command=command)
            os.write(1, writer.write(replace(sample, processes=(owner,)), sample.time))
    elif fault == "repeats":
        os.write(1, line)
        large = replace(sample, gpus=tuple([large_gpu(index) for index in range(250)]))
        data = [writer.write(large, large.time) for _ in range(20_000)]
        os.write(1, b"".join(data))
        time.sleep(3600)
    elif fault == "errors":
        for _ in range(2**10):
            os.write(2, b"\x1b[31mx" * 2**17)
    elif fault == "half":
        os.write(1, line[: len(line) // 2])
        time.sleep(3600)
    elif fault == "end":
        os.write(2, b"the driver \x1b[31mis gone\n")
        os._exit(3)


if __name__ == "__main__":
    main()
