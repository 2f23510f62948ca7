"""Measures what a sample costs: ``python -m tests.makers.amd.cost [PROCESSES [OTHERS]]``.

Eight cards with the files of an RX 6900 XT and those of RAS, and processes of ROCm: each has one of
the cards and fifty other files open, and is in KFD's list. See ``tests.makers.drm.cost``.
"""

from __future__ import annotations

import sys
from unittest.mock import patch

from gpumon.makers.amd import backend as amd_backend
from gpumon.makers.amd.backend import AmdBackend
from tests.clock import HandClock
from tests.makers.amd.machines import add, add_kfd_node, add_kfd_process
from tests.makers.amd.test_gpu import RAS
from tests.makers.amd.test_processes import info
from tests.makers.drm.cost import GPUS, bus_id, busy_machine, measure


def main(processes: int = 100, others: int = 500) -> None:
    """Measure AMD's cards."""
    with busy_machine(processes, others) as (tree, users):
        for number in range(GPUS):
            changes = {**RAS, "unique_id": f"{number + 1:016x}\n"}
            add(tree, "rx_6900_xt", changes, bus_id=bus_id(number), number=number)
            add_kfd_node(tree, 1 + number, 100 + number, bus_id(number), 100300)
        for pid in users:
            # KFD has a folder with the memory on each GPU that the process sees.
            memory_of = {100 + number: 0 for number in range(GPUS)}
            add_kfd_process(tree, pid, memory_of | {100 + pid % GPUS: 2**30})
        clock = HandClock()
        with patch.object(amd_backend, "in_initial_pid_namespace", return_value=True):
            backend = tree.backend(AmdBackend, clock=clock)
        measure(tree, backend, clock, users, _info)


def _info(pid: int, bus: str, number: int) -> str:
    return info(bus, pid, gfx=107322799 + number * 10**6)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
