"""Logs a job with phases for five minutes, ten samples a second, without names of the machine.

    python -m tests.gpu.record OUT [--pace P]

writes OUT/run.tar: run.csv.zst, the log of the GPUs, and run.processes.csv.zst, that of the
processes, as ``gpumon log`` wrote them, and phases.csv.zst, when each phase of the job began.
Hosts, users, UUIDs and command lines are replaced. One file, since a visit brings back few. The job
loads data, trains, rests, fills the memory, and ends before the log does.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpumon.system.zstandard import zstd
from tests.driver import GIB, MIB
from tests.gpu.anonymous import anonymous
from tests.gpu.work import ROOT, Kind, NoWorkError, first_gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.gpu.work import Gpu

SECONDS = 300.0
INTERVAL = 0.1
HOST = "node-01"
USERS = ("ann", "ben", "eve")

_LEFT = 8 * GIB
"""What the job leaves free at its most, for whoever tries other things meanwhile."""


class Phase(NamedTuple):
    """A part of the job."""

    name: str  # What it does.
    share: float  # Of all the time.
    kind: Kind | None  # What it does with the GPU; ``None``: it has not touched it.
    held: int = 0  # Bytes that it holds; negative: all but so many.


PHASES = (
    Phase("load data", 0.1, None),
    Phase("train", 0.25, Kind.TENSOR, 12 * GIB),
    Phase("rest", 0.1, Kind.SLEEP, 12 * GIB),
    Phase("fill the memory", 0.12, Kind.COPY, -_LEFT),
)
"""The rest of the time the job has ended, and others come and go."""


def job(seconds: float) -> None:
    """Go through the phases, which with their rest last so long, and print when each began.

    Raises:
        NoWorkError: There is no GPU for it.
    """
    began, due, gpu = time.monotonic(), 0.0, None
    for phase in PHASES:
        due += phase.share * seconds
        print(f"{phase.name},{time.time():.3f}", flush=True)
        if phase.kind is None:
            _load_data(began + due)
            continue
        gpu = gpu or first_gpu()
        _hold(gpu, phase.held if phase.held > 0 else gpu.free() + PHASES[1].held + phase.held)
        gpu.work(phase.kind, max(0.0, began + due - time.monotonic()))
    print(f"ended,{time.time():.3f}", flush=True)


def _hold(gpu: Gpu, size: int) -> None:
    """Hold so much, or what others leave of it."""
    while size > 0:
        try:
            gpu.hold(size)
        except MemoryError:  # noqa: PERF203 - a few times
            size -= 2 * GIB
        else:
            return


def _load_data(until: float) -> None:
    """Keep a processor busy, as a loader that unpacks does."""
    data = bytes(8 * MIB)
    while time.monotonic() < until:
        zstd.decompress(zstd.compress(data))


def record(folder: Path, seconds: float) -> str:
    """Log the job into a folder; what went otherwise than it should, or nothing."""
    log = [
        *(sys.executable, "-m", "gpumon", "log", str(folder / "run.csv")),
        *("-n", str(INTERVAL), "--for", f"{max(1, round(seconds))}s"),
    ]
    logging = subprocess.Popen(log, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    working = subprocess.Popen(
        [sys.executable, "-m", "tests.gpu.record", "--job", str(seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        phases, said = working.communicate()
        (folder / "phases.csv").write_text(f"phase,unix_seconds\n{phases}")
        wrong = f"the job: {_last_line(said)}" if working.returncode else ""
        _, said = logging.communicate()
        return f"gpumon log: {_last_line(said)}" if logging.returncode else wrong
    finally:
        # Cut: the log ends as by Ctrl+C, and is whole.
        for process in (working, logging):
            if process.poll() is None:
                process.terminate()
                process.communicate()


def _last_line(text: str) -> str:
    return anonymous(text.strip().rpartition("\n")[2])


def pack(folder: Path, target: Path) -> None:
    """Make the one file of both, with the names replaced."""
    names = Names()
    with tarfile.open(target, "w") as packed:
        for name in ("run.csv", "run.processes.csv", "phases.csv"):
            if not (folder / name).exists():
                continue
            text = rows_without_names((folder / name).read_text(), names)
            content = zstd.compress(text.encode(), 10)
            entry = tarfile.TarInfo(f"{name}.zst")
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))


class Names:
    """Words in place of names, the same for the same name."""

    def __init__(self) -> None:
        self._users: dict[str, str] = {}

    def cells(self, row: Mapping[str, str]) -> dict[str, str]:
        return {column: self._cell(column, cell) for column, cell in row.items()}

    def _cell(self, column: str, cell: str) -> str:
        if not cell:
            return cell
        if column == "host":
            return HOST
        if column == "uuid":
            return f"{cell[:3]}-{uuid.uuid5(uuid.NAMESPACE_OID, cell)}"
        if column == "user":
            number = len(self._users)
            return self._users.setdefault(cell, (*USERS, f"user{number}")[min(number, len(USERS))])
        if column == "command":
            return _command(cell)
        if column in {"name", "container", "tmux", "environment", "notebook"}:
            return anonymous(cell)
        return cell


def _command(command: str) -> str:
    """The command line of the job as people write theirs; of others the program's name only."""
    if "tests.gpu.record" in command:
        return "python train.py --config base.yaml --epochs 3"
    return anonymous(command.partition(" ")[0]).rpartition("/")[2]


def rows_without_names(text: str, names: Names) -> str:
    """The text of a log, every row without names."""
    rows = csv.DictReader(io.StringIO(text))
    return _written(rows.fieldnames or (), (names.cells(row) for row in rows))


def _written(columns: Iterable[str], rows: Iterable[Mapping[str, str]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.record", description=__doc__)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--pace", type=float, default=1.0)
    parser.add_argument("--job", type=float, metavar="SECONDS", help="be the job")
    options = parser.parse_args()
    if options.job is not None:
        try:
            job(options.job)
        except (NoWorkError, MemoryError) as error:
            sys.exit(str(error))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpumon-visit-") as name:
        folder = Path(name)
        wrong = "cut"
        try:
            wrong = record(folder, SECONDS * options.pace)
        except KeyboardInterrupt:
            # Cut by the visit: what was logged until then is packed.
            pass
        finally:
            pack(folder, options.out / "run.tar")
    if wrong:
        print(wrong, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
