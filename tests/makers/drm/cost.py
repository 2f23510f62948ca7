"""Measures what a sample costs: ``python -m tests.makers.drm.cost [PROCESSES [OTHERS]]``.

Eight cards of Intel's with ``xe``, each with the files that the driver has, and processes of which
each has one of the cards and fifty other files open. The files are real ones in memory, so reading
one costs the system call and not the driver's work.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.makers.intel.gpu import IntelBackend
from tests.clock import HandClock
from tests.makers.drm.trees import Tree
from tests.makers.intel.captures import XE_CLIENT, b580_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpumon.makers.drm.backend import DrmBackend

GPUS = 8
ROUNDS = 30


@contextmanager
def busy_machine(processes: int, others: int) -> Iterator[tuple[Tree, range]]:
    """A tree in memory, with its processes: first those that will use a GPU, then the others."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        tree = Tree(Path(folder))
        plain = dict.fromkeys(range(10, 60), ("/usr/lib/libc.so.6", ""))
        users = range(1000, 1000 + processes)
        for pid in (*users, *range(50_000, 50_000 + others)):
            tree.process(pid, plain)
        yield tree, users


def measure(
    tree: Tree,
    backend: DrmBackend,
    clock: HandClock,
    users: range,
    info: Callable[[int, str, int], str],
) -> None:
    """Measure samples with and without process lists, and print milliseconds.

    ``info`` gives what ``fdinfo`` says of a process: by its PID, the GPU's bus ID and the round.
    """
    with_lists: list[float] = []
    without: list[float] = []
    for number in range(ROUNDS):
        for pid in users:
            gpu = pid % GPUS
            path = f"/dev/dri/renderD{128 + gpu}"
            tree.open_file(pid, 5, path, info(pid, bus_id(gpu), number))
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


def bus_id(number: int) -> str:
    """The PCI bus ID of a card."""
    return f"0000:{number + 3:02x}:00.0"


def main(processes: int = 100, others: int = 500) -> None:
    """Measure Intel's cards."""
    with busy_machine(processes, others) as (tree, users):
        for number in range(GPUS):
            tree.card(bus_id(number), "xe", b580_files(), number=number, render=128 + number)
        clock = HandClock()
        measure(tree, tree.backend(IntelBackend, clock=clock), clock, users, _info)


def _info(pid: int, bus: str, number: int) -> str:
    text = XE_CLIENT.replace("0000:03:00.0", bus).replace("client-id:  3", f"client-id:  {pid}")
    return text.replace("7655183225", str(7655183225 + number * 10**6))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
