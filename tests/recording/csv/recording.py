"""What the tests of writing a log share: numbered samples, rows read back, and a nursery.

Run as a program it is the nursery: it forks recorders that record as fast as they can, and kills
them when told to. One that has imported everything already can be born a hundred times a second.
"""

from __future__ import annotations

import csv
import mmap
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gpumon.recording.csv.csv_log import CsvLog
from gpumon.recording.recorder import Recorder
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpumon.model.snapshot import Snapshot

CARDS = 8
PATIENCE = 60.0
"""Seconds that anything may take on a busy machine."""

Row = dict[str, str]


def sample(number: int, cards: int = CARDS, processes: int = 3) -> Snapshot:
    """The sample with a number, taken so many seconds after noon; every list is a new one."""
    return snapshot(
        NOON + number,
        *(gpu(index=index, memory_used=number * 2**20) for index in range(cards)),
        processes=tuple(
            process(100 + pid, start_time=number, gpus=(pid % cards,), memory_used=GIB)
            for pid in range(processes)
        ),
    )


def numbers(rows: list[Row]) -> list[int]:
    """The numbers of the samples that rows are of."""
    return [round(datetime.fromisoformat(row["timestamp"]).timestamp() - NOON) for row in rows]


def rows(path: Path, begin: int = 0) -> list[Row]:
    """The rows of a file, from a place in it where one begins; every one is whole."""
    with path.open(encoding="utf-8", newline="") as file:
        header = next(csv.reader([file.readline()]))
        if begin:
            file.seek(begin)
        text = file.read()
    assert text.endswith("\n") or not text
    assert "\0" not in text
    found = list(csv.reader(text.splitlines(), strict=True))
    assert all(len(cells) == len(header) for cells in found)
    return [dict(zip(header, cells, strict=True)) for cells in found]


def wait_until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.001)


def record(recorder: Recorder, *snapshots: Snapshot) -> None:
    """Hand snapshots over, each when the one before has been dealt with."""
    for one in snapshots:
        before = recorder.status
        recorder.take(one)
        wait_until(
            lambda then=before: _dealt_with(recorder) > then.samples + then.lost,  # type: ignore[misc]  # a default binds the value
            "a sample",
        )


def _dealt_with(recorder: Recorder) -> int:
    status = recorder.status
    return status.samples + status.lost


class Nursery:
    """Where recorders are born and killed, in a process of its own."""

    def __init__(self, program: subprocess.Popen[str], known: mmap.mmap) -> None:
        self._program = program
        self._known = known

    def begin(self, path: Path, first: int) -> int:
        """Fork one that records the samples from a number on; returns its PID."""
        self._known[:8] = bytes(8)
        return int(self._ask(f"begin {first} {path}"))

    def kill(self) -> None:
        """SIGKILL to the one that records, and wait until it is gone."""
        assert self._ask("kill") == "killed"

    @property
    def written(self) -> int:
        """How many samples the one that records, or recorded last, knows to be written."""
        return int.from_bytes(self._known[:8], "little")

    def _ask(self, words: str) -> str:
        print(words, file=self._program.stdin, flush=True)
        return known(self._program.stdout).readline().strip()


@contextmanager
def nursery(folder: Path) -> Iterator[Nursery]:
    """A nursery; it and all that it started have ended when the block does."""
    shared = folder / "known"
    shared.write_bytes(bytes(8))
    with (
        shared.open("r+b") as file,
        mmap.mmap(file.fileno(), 8) as written,
        subprocess.Popen(
            [sys.executable, "-m", "tests.recording.csv.recording", str(shared)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        ) as program,
    ):
        yield Nursery(program, written)
        known(program.stdin).close()
        program.wait(PATIENCE)


def _serve(shared: str) -> None:
    child = 0
    with Path(shared).open("r+b") as file, mmap.mmap(file.fileno(), 8) as known:
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "begin":
                first, _, path = rest.partition(" ")
                child = os.fork() or _record_on(path, int(first), known)
                print(child, flush=True)
            else:
                _end(child)
                child = 0
                print("killed", flush=True)
    _end(child)


def _end(child: int) -> None:
    if child:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _record_on(path: str, first: int, known: mmap.mmap) -> NoReturn:
    """Record until killed; all that is known to be written stands in the shared memory."""
    try:
        recorder = Recorder(CsvLog(path))
        recorder.start()
        number = first
        nursed_by = os.getppid()
        while os.getppid() == nursed_by:
            written = recorder.status.samples
            known[:8] = written.to_bytes(8, "little")
            if number - first - written < 20:
                recorder.take(sample(number))
                number += 1
            else:
                time.sleep(0.0005)
    finally:
        os._exit(1)


if __name__ == "__main__":
    _serve(sys.argv[1])
