"""Measures what a sample costs: ``python -m tests.sources.drm.cost [PROCESSES [OTHERS]]``.

Eight cards of Intel's with ``xe``, each with the files that the driver has, and processes of which
each has one of the cards and fifty other files open. The files are real ones in memory, so reading
one costs the system call and not the driver's work.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from gpumon.sources.intel.source import IntelBackend
from tests.clock import HandClock
from tests.sources.drm.trees import Tree
from tests.sources.intel.captures import XE_CLIENT, b580_files

GPUS = 8
ROUNDS = 30


def main(processes: int = 100, others: int = 500) -> None:
    """Measure samples with and without process lists, in milliseconds."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        tree = Tree(Path(folder))
        for number in range(GPUS):
            tree.card(_bus(number), "xe", b580_files(), number=number, render=128 + number)
        plain = dict.fromkeys(range(10, 60), ("/usr/lib/libc.so.6", ""))
        for pid in range(1000, 1000 + processes):
            tree.process(pid, plain)
        for pid in range(50_000, 50_000 + others):
            tree.process(pid, plain)
        clock = HandClock()
        backend = tree.backend(IntelBackend, clock=clock)
        with_lists: list[float] = []
        without: list[float] = []
        for number in range(ROUNDS):
            for pid in range(1000, 1000 + processes):
                gpu = pid % GPUS
                text = XE_CLIENT.replace("0000:03:00.0", _bus(gpu))
                text = text.replace("client-id:  3", f"client-id:  {pid}")
                text = text.replace("7655183225", str(7655183225 + number * 10**6))
                tree.open_file(pid, 5, f"/dev/dri/renderD{128 + gpu}", text)
            if not number:
                backend.open()
            clock.now += 0.9
            for kept in (with_lists, without):
                clock.now += 0.1
                began = time.perf_counter()
                backend.read()
                kept.append((time.perf_counter() - began) * 1000)
        backend.close()
    print(f"first sample      {with_lists[0]:6.2f} ms")
    print(f"with lists        {statistics.median(with_lists[1:]):6.2f} ms (median)")
    print(f"without           {statistics.median(without[1:]):6.2f} ms (median)")


def _bus(number: int) -> str:
    return f"0000:{number + 3:02x}:00.0"


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
