"""Times every NVML call that gpumon makes, idle and under load, as root and as an ordinary user.

    python -m tests.gpu.latency OUT [--pace P]

writes ``OUT/latency.csv``: a row for each function, and one for each value that the driver refuses.
It takes about 30 s at pace 1.

The ordinary user's run is started as root and becomes that user once its modules are imported and
before NVML is initialised: neither the Python nor the checkout need be readable to that user.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from unittest.mock import patch

import msgspec
import pynvml

import gpumon.host
import gpumon.makers
from gpumon.makers.nvidia.library import Library, load_library
from gpumon.makers.source import SourceError
from gpumon.model.snapshot import Gpu, Unknown
from gpumon.text.formatting import printable
from tests.bench.percentiles import percentile
from tests.bench.rows import whole_rows
from tests.bench.tables import table
from tests.gpu.work import ROOT, Kind, NoWorkError, working
from tests.nvml_source import NvmlSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpumon.model.snapshot import Snapshot

T = TypeVar("T")

FILE = "latency.csv"
COLUMNS = (
    *("user", "load", "function", "calls", "p50_us", "p99_us", "longest_us", "refused"),
    *("card", "driver", "date"),
)
"""``refused``: how often each error code came back, ``NO_PERMISSION 12; NOT_SUPPORTED 1``."""

README_HEADINGS = (
    *("call", "idle: median µs", "p99 µs", "under load: median µs", "p99 µs"),
    *("card", "driver", "date"),
)

SECONDS = 6.0
"""Of each run at pace 1."""
INTERVAL = 0.1

_LOAD = "tensor"
_NOBODY = 65534
_PR_SET_DUMPABLE = 4
_START_SECONDS = 60.0
"""Allowed for what a run needs beyond its sampling."""
_LAZY = ("pwd", "resource", "select")
"""Modules of Python's own that a first sample imports."""

_NAMES: dict[int, str] = {
    code: name.removeprefix("NVML_ERROR_")
    for name, code in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(code, int)
}


class Run(msgspec.Struct):
    """What one run saw."""

    seconds: dict[str, list[float]]  # Function -> seconds of each of its calls.
    codes: dict[str, list[int]]  # Function -> each code but SUCCESS that it returned.
    # Value of a GPU that is unknown for want of permission, or ``status`` -> GPUs.
    refused: dict[str, int]
    card: str  # The names of the GPUs.
    driver: str  # The driver's version.


class RunError(Exception):
    """A run gave nothing, for the reason in the text."""


class User(NamedTuple):
    """Who samples."""

    name: str  # In the file.
    uid: int | None = None  # Whom root becomes; ``None`` is to stay who one is.


def users() -> list[User]:
    """Root and an ordinary user; without root whoever this is."""
    return [User("root"), User("ordinary", _NOBODY)] if os.geteuid() == 0 else [User("ordinary")]


def sample(seconds: float) -> Run:
    """Sample ten times a second for so long, twice at least, and time each call.

    Raises:
        SourceError: There is nothing to sample.
    """
    run = Run(defaultdict(list), defaultdict(list), {}, "", "")
    with _timed(run):
        source = NvmlSource(profiled=True)
        source.open()
        began = time.monotonic()
        for tick in range(max(2, round(seconds / INTERVAL))):
            time.sleep(max(0.0, began + tick * INTERVAL - time.monotonic()))
            snapshot = source.sample()
        source.close()
    if snapshot.trouble is not None:
        raise SourceError(snapshot.trouble.sentence, snapshot.trouble.advice)
    run.card = " + ".join(sorted({printable(gpu.name or "?") for gpu in snapshot.gpus}))
    run.driver = snapshot.host.driver_version or "?"
    run.refused = refused_values(snapshot)
    return run


@contextmanager
def _timed(run: Run) -> Iterator[None]:
    reader, prepared = Library.reader, Library.prepared

    def timed(name: str, call: Callable[[], T], *, returns_code: bool) -> Callable[[], T]:
        def timed_call() -> T:
            began = time.perf_counter()
            try:
                answer = call()
            except pynvml.NVMLError as error:
                run.codes[name].append(error.value)
                raise
            finally:
                run.seconds[name].append(time.perf_counter() - began)
            if returns_code and isinstance(answer, int) and answer:
                run.codes[name].append(answer)
            return answer

        return timed_call

    def timed_reader(
        self: Library, gpu_uuid: str | None, function: Callable[..., Any], *arguments: object
    ) -> Callable[[], Any]:
        call = reader(self, gpu_uuid, function, *arguments)
        return timed(function.__name__, call, returns_code=False)

    def timed_prepared(
        self: Library, gpu_uuid: str | None, name: str, *arguments: object
    ) -> Callable[[], int]:
        call = prepared(self, gpu_uuid, name, *arguments)
        return timed(name, call, returns_code=True) if self.has(name) else call

    with (
        patch.object(Library, "reader", timed_reader),
        patch.object(Library, "prepared", timed_prepared),
    ):
        yield


def refused_values(snapshot: Snapshot) -> dict[str, int]:
    """Each value that is unknown for want of permission, and of how many GPUs."""
    return dict(Counter(name for gpu in snapshot.gpus for name in _refused(gpu)))


def _refused(gpu: Gpu) -> list[str]:
    values = [name for name, why in gpu.unknown.items() if why is Unknown.NO_PERMISSION]
    return ["status", *values] if gpu.status.value == Unknown.NO_PERMISSION.value else values


def _become(uid: int) -> None:
    """Become another user for good, with nothing of root's left but what is already imported."""
    for package in (gpumon.host, gpumon.makers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for name in _LAZY:
        importlib.import_module(name)
    load_library()
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    # Else the process's own files in /proc stay root's, as they would not in a program of the
    # user's; prctl cannot fail with this value.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _sample_and_print(seconds: float, uid: int | None) -> int:
    try:
        if uid is not None:
            _become(uid)
        run = sample(seconds)
    except (SourceError, OSError, ImportError) as error:
        sys.stderr.write(f"{printable(str(error))}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(run))
    return 0


def sampled_by(user: User, seconds: float) -> Run:
    """Let a process of this user's sample.

    Raises:
        RunError: It could not.
    """
    command = [sys.executable, "-m", "tests.gpu.latency", "--sample", f"{seconds}"]
    if user.uid is not None:
        command += ["--uid", f"{user.uid}"]
    with tempfile.TemporaryDirectory(prefix="gpumon-latency-") as home:
        homes = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"), home)
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, **homes},
                capture_output=True,
                timeout=seconds + _START_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RunError("it did not end in time") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise RunError(said[-1] if said else f"it ended with {done.returncode}")
    return msgspec.json.decode(done.stdout, type=Run)


def rows(run: Run, user: str, load: str, date: str) -> list[dict[str, str]]:
    """The rows of a run, keyed by ``COLUMNS``: the slowest function first, then refused values."""
    common = {"user": user, "load": load, "card": run.card, "driver": run.driver, "date": date}
    micros = {name: [1e6 * each for each in times] for name, times in run.seconds.items()}
    ordered = sorted(micros, key=lambda name: -percentile(micros[name], 0.5))
    functions = [
        {
            **common,
            "function": name,
            "calls": f"{len(micros[name])}",
            "p50_us": f"{percentile(micros[name], 0.5):.1f}",
            "p99_us": f"{percentile(micros[name], 0.99):.1f}",
            "longest_us": f"{max(micros[name]):.1f}",
            "refused": refusals(run.codes.get(name, ())),
        }
        for name in ordered
    ]
    values = [
        {**common, "function": f"Gpu.{name}", "refused": f"no permission, GPUs: {count}"}
        for name, count in sorted(run.refused.items())
    ]
    return functions + values


def refusals(codes: Sequence[int]) -> str:
    """How often each code came back, by its name in nvml.h."""
    return "; ".join(
        f"{_NAMES.get(code, code)} {count}" for code, count in Counter(codes).most_common()
    )


def rows_for_readme(file: Path) -> list[str]:
    """The table of ``tests/driver/README.md``, from the run of root, or of whoever came first."""
    timed = [row for row in whole_rows(file) if row["calls"]]
    first = [row for row in timed if row["user"] == timed[0]["user"]]
    loads: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    about: dict[str, tuple[str, str, str]] = {}
    for row in first:
        loads[row["function"]][row["load"]] = row["p50_us"], row["p99_us"]
        about.setdefault(row["function"], (row["card"], row["driver"], row["date"]))
    return table(
        README_HEADINGS,
        (
            (name, *_cells(found, "idle"), *_cells(found, _LOAD), *about[name])
            for name, found in loads.items()
        ),
    )


def _cells(found: Mapping[str, tuple[str, str]], load: str) -> tuple[str, str]:
    return found.get(load, ("–", "–"))


class _File:
    """``latency.csv``, of which each row is on the disk once it is written."""

    def __init__(self, out: Path) -> None:
        self._file = (out / FILE).open("w", newline="")
        self._writer = csv.DictWriter(self._file, COLUMNS, restval="")
        self._writer.writeheader()
        self._file.flush()
        self.missing = False

    def write(self, found: Sequence[Mapping[str, str]]) -> None:
        self._writer.writerows(found)
        self._file.flush()

    def miss(self, user: str, load: str, reason: str) -> None:
        self.missing = True
        self.write([{"user": user, "load": load, "refused": f"not measured: {reason}"}])

    def close(self) -> None:
        self._file.close()


def _measure_as(user: User, file: _File, load: str, seconds: float) -> None:
    try:
        run = sampled_by(user, seconds)
    except RunError as error:
        file.miss(user.name, load, str(error))
    else:
        file.write(rows(run, user.name, load, time.strftime("%Y-%m-%d")))


def _measure(file: _File, load: str, seconds: float) -> None:
    for user in users():
        _measure_as(user, file, load, seconds)
    if os.geteuid() != 0:
        file.write([{"user": "root", "load": load, "refused": "not measured: this is not root"}])


def write(out: Path, pace: float) -> int:
    """Measure, and write the file.

    Returns:
        0 if every run gave something, else 1.
    """
    file = _File(out)
    _measure(file, "idle", SECONDS * pace)
    try:
        with working(Kind.TENSOR):
            _measure(file, _LOAD, SECONDS * pace)
    except NoWorkError as error:
        file.miss("", _LOAD, str(error))
    file.close()
    return int(file.missing)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.latency", description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT", default=Path())
    parser.add_argument("--pace", type=float, default=1.0)
    parser.add_argument("--sample", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--uid", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sample is not None:
        return _sample_and_print(options.sample, options.uid)
    return write(options.out, options.pace)


if __name__ == "__main__":
    sys.exit(main())
