"""Compares what gpumon costs with earlier runs: ``python -m tests.bench --short --json``.

What is compared are counts, which are the same on a busy machine. Times and memory are not.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from enum import Enum
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

import msgspec

from gpumon import __version__
from tests.bench import counting
from tests.bench.counting import SAMPLES, Counted
from tests.bench.line import Line
from tests.bench.measures import MIB, once
from tests.bench.percentiles import percentile
from tests.bench.programs import gpumon
from tests.bench.rows import is_cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.bench.machine import Machine

FIGURES = Path(__file__).with_name("figures.jsonl")
"""Earlier runs, one in each line, the oldest first."""

STEP = 0.10
"""A difference of this share of the earlier figure is reported."""
LAST_RUNS = 10
"""How many of the earlier runs count."""

_ROUNDS = 3
_FIRST = 20
"""Samples and frames until a dashboard has looked up what changes rarely."""
_PATIENCE = 60.0
"""Seconds after which a dashboard that has not taken its samples is given up."""


class Unit(Enum):
    CALLS = "calls"
    ROUGH_CALLS = "calls, roughly"
    NVML_CALLS = "NVML calls"
    MODULES = "modules"
    MIB = "MiB"
    CPU_MS = "CPU ms"

    @property
    def is_compared(self) -> bool:
        """Whether a difference means something: the others vary too much from run to run."""
        return self not in {Unit.CPU_MS, Unit.MIB, Unit.ROUGH_CALLS}


class Figure(msgspec.Struct, frozen=True):
    value: float
    unit: Unit


class Run(msgspec.Struct, frozen=True):
    """One run of the benchmark, as it is printed and kept."""

    date: str
    gpumon: str
    python: str
    cores: int
    figures: dict[str, Figure]

    @property
    def minor(self) -> tuple[str, ...]:
        """Python's version without the patch: each counts the same work differently."""
        return tuple(self.python.split(".")[:2])


def measure(on: Machine) -> Run:
    """Measure gpumon alone."""
    figures = {name: Figure(round(value, 2), unit) for name, value, unit in _measured(on)}
    return Run(
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        __version__,
        platform.python_version(),
        os.cpu_count() or 1,
        figures,
    )


def _measured(on: Machine) -> Iterator[tuple[str, float, Unit]]:
    # The order in which sets are walked is the same in each run.
    env = {**on.env(), "PYTHONHASHSEED": "0"}
    snapshot = gpumon("snapshot")
    # The first one compiles what it imports.
    cpu = median(once(snapshot.command, on).cpu for _ in range(_ROUNDS))
    yield f"{snapshot.name}, time", cpu, Unit.CPU_MS
    with tempfile.TemporaryDirectory(prefix="gpumon-counted-") as folder:
        file = Path(folder, "counted.json")
        for arguments in (("--version",), ("snapshot",), ("snapshot", "--format", "json")):
            name = gpumon(*arguments).name
            counted = _counted(file, arguments, env)
            yield name, counted["calls"], Unit.CALLS
            yield f"{name}, imports", counted["modules"], Unit.MODULES
        yield from _dashboard(file, on, env)


def _counted(file: Path, arguments: Sequence[str], env: Mapping[str, str]) -> Counted:
    subprocess.run(
        _counting(file, *arguments),
        env=env,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    return _read(file)


def _dashboard(
    file: Path, on: Machine, env: Mapping[str, str]
) -> Iterator[tuple[str, float, Unit]]:
    on.calls()
    with Line(_counting(file, "-n", "0.1"), env) as line:
        while not file.exists():
            line.read_until(line.now + 0.1)
            if line.ended or line.now > _PATIENCE:
                raise RuntimeError("the dashboard did not take its samples")
        called, _ = on.calls()
        memory = line.pss_bytes()
    counted = _read(file)
    yield "dashboard, a sample", mean(counted["samples"][_FIRST:]), Unit.CALLS
    # About once a second a frame draws everything anew, the others what is new.
    frames = counted["frames"][_FIRST:]
    yield "dashboard, half of the frames", percentile(frames, 0.5), Unit.ROUGH_CALLS
    yield "dashboard, a long frame", percentile(frames, 0.95), Unit.ROUGH_CALLS
    yield "dashboard, a sample's NVML", called / SAMPLES, Unit.NVML_CALLS
    yield "dashboard, imports", counted["modules"], Unit.MODULES
    if memory:
        yield "dashboard, PSS", memory / MIB, Unit.MIB


def _counting(file: Path, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", counting.__name__, str(file), *arguments)


def _read(file: Path) -> Counted:
    counted = msgspec.json.decode(file.read_bytes(), type=Counted)
    file.unlink()
    return counted


def to_json(run: Run) -> str:
    return msgspec.json.encode(run).decode()


def keep(file: Path, run: Run) -> None:
    # A line that was cut must not swallow this one.
    before = "\n" if file.exists() and is_cut(file) else ""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{before}{to_json(run)}\n")


def earlier(file: Path) -> tuple[list[Run], list[str]]:
    """The runs of the file, oldest first, and a sentence for each line that is not one."""
    try:
        lines = file.read_bytes().splitlines()
    except FileNotFoundError:
        return [], []
    decoded = [(number, _decoded(line)) for number, line in enumerate(lines, 1)]
    runs = [run for _, run in decoded if isinstance(run, Run)]
    problems = [
        f"line {number} of {file.name} is ignored, because it is not a run: {problem}"
        for number, problem in decoded
        if isinstance(problem, str)
    ]
    return runs, problems


def _decoded(line: bytes) -> Run | str:
    try:
        return msgspec.json.decode(line, type=Run)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return str(error)


def compare(run: Run, runs: Sequence[Run]) -> list[str]:
    """What differs from the last of the earlier runs of the same Python, a sentence each."""
    last = [other for other in runs if other.minor == run.minor][-LAST_RUNS:]
    if not last:
        python = ".".join(run.minor)
        return [f"there are no earlier runs of Python {python} to compare with; --keep adds this"]
    names = [name for name, figure in run.figures.items() if figure.unit.is_compared]
    sentences = [sentence for name in names if (sentence := _compared(name, run, last))]
    if not sentences:
        sentences.append(f"no figure differs by {STEP:.0%} or more from its earlier median")
    if len(last) < LAST_RUNS:
        earlier_runs = "1 earlier run" if len(last) == 1 else f"{len(last)} earlier runs"
        sentences.append(f"compared with only {earlier_runs} instead of {LAST_RUNS}")
    return sentences


def _compared(name: str, run: Run, runs: Sequence[Run]) -> str | None:
    figure = run.figures[name]
    values = [
        other.figures[name].value
        for other in runs
        if name in other.figures and other.figures[name].unit is figure.unit
    ]
    before = median(values) if values else 0.0
    if before <= 0:
        return f"{name}: no earlier figure to compare with"
    both = f"{figure.value:.7g} {figure.unit.value} now, {before:.7g} before"
    change = figure.value / before - 1
    # Rounding must not hide a difference of exactly a step.
    if abs(change) < STEP - 1e-9:
        return None
    return f"{name}: {abs(change):.0%} {'more' if change > 0 else 'less'} ({both})"
