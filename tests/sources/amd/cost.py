"""Measures what a sample costs: ``python -m tests.sources.amd.cost [PROCESSES [OTHERS]]``.

Eight cards with the files of an RX 6900 XT and those of RAS, and processes of ROCm: each has one of
the cards and fifty other files open, and is in KFD's list. The files are real ones in memory, so
reading one costs the system call and not the driver's work.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from gpumon.sources.amd import source
from gpumon.sources.amd.source import AmdBackend
from tests.clock import HandClock
from tests.sources.amd.machines import add, add_kfd_node, add_kfd_process
from tests.sources.amd.test_gpu import RAS
from tests.sources.amd.test_processes import info
from tests.sources.drm.trees import Tree

GPUS = 8
ROUNDS = 30


def main(processes: int = 100, others: int = 500) -> None:
    """Measure samples with and without process lists, in milliseconds."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        tree = Tree(Path(folder))
        for number in range(GPUS):
            changes = {**RAS, "unique_id": f"{number + 1:016x}\n"}
            add(tree, "rx_6900_xt", changes, bus_id=_bus(number), number=number)
            add_kfd_node(tree, 1 + number, 100 + number, _bus(number), 100300)
        plain = dict.fromkeys(range(10, 60), ("/usr/lib/libc.so.6", ""))
        for pid in range(1000, 1000 + processes):
            tree.process(pid, plain)
            # KFD has a folder with the memory on each GPU that the process sees.
            memory_of = {100 + number: 0 for number in range(GPUS)}
            add_kfd_process(tree, pid, memory_of | {100 + pid % GPUS: 2**30})
        for pid in range(50_000, 50_000 + others):
            tree.process(pid, plain)
        clock = HandClock()
        with patch.object(source, "in_initial_pid_namespace", return_value=True):
            backend = tree.backend(AmdBackend, clock=clock)
        with_lists: list[float] = []
        without: list[float] = []
        for number in range(ROUNDS):
            for pid in range(1000, 1000 + processes):
                gpu = pid % GPUS
                text = info(_bus(gpu), pid, gfx=107322799 + number * 10**6)
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
