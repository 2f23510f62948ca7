"""Compares what gpumon costs with earlier runs: ``python -m tests.bench --short --json``.

CPU figures are compared as multiples of the run's own reference, a fixed piece of Python work,
because machines differ, and neighbours slow a shared machine down.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections import defaultdict
from enum import Enum
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from gpumon import __version__
from tests.bench.measures import cost, once, start
from tests.bench.programs import gpumon
from tests.bench.rows import is_cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.bench.machine import Machine

FIGURES = Path(__file__).with_name("figures.jsonl")
"""Earlier runs, one in each line, the oldest first."""

STEP = 0.10
"""A difference of this share of the earlier figure is reported."""
LAST = 10
"""How many of the earlier runs count."""

_ROUNDS = 3
_AFTER = 5.0
"""Seconds until a dashboard is measured: on a busy machine its start takes more than three."""
_SECONDS = 3.0

_REFERENCE = """
import argparse, asyncio, dataclasses, decimal, json, logging, re

rows = [
    {"pid": number, "name": f"process {number % 97}", "memory": number * 7919 % 65536}
    for number in range(3000)
]
for turn in range(4):
    rows.sort(key=lambda row: (row["memory"] + turn) % 4096)
    cells = [f"{row['pid']:>7} {row['name'][:12]:<12} {row['memory'] / 1024:6.1f}G" for row in rows]
    re.findall(r"process (\\d+)", "\\n".join(cells))
    json.loads(json.dumps(rows))
"""
"""Starts Python, imports, sorts and formats, as gpumon does.

If it changes, the earlier runs cannot be compared any more.
"""


class Unit(Enum):
    """The unit of a figure, and with it how it is compared."""

    CPU_MS = "CPU ms"
    CPU_PERCENT = "CPU % of a core"
    MIB = "MiB"

    @property
    def is_cpu(self) -> bool:
        """Whether the figure is proportional to the speed of the machine's cores."""
        return self in {Unit.CPU_MS, Unit.CPU_PERCENT}


class Figure(msgspec.Struct, frozen=True):
    """One measured figure."""

    value: float
    unit: Unit


class Run(msgspec.Struct, frozen=True):
    """One run of the benchmark, as it is printed and kept."""

    date: str
    gpumon: str
    python: str
    cores: int
    # CPU ms of the reference, median.
    reference: float
    figures: dict[str, Figure]

    def __post_init__(self) -> None:
        if not self.reference > 0:
            raise ValueError("reference must be above 0")


def measure(on: Machine) -> Run:
    """Measure gpumon alone, in about a minute."""
    references: list[float] = []
    measured: dict[tuple[str, Unit], list[float]] = defaultdict(list)
    for _ in range(_ROUNDS):
        for name, value, unit in _round(on):
            measured[name, unit].append(value)
            if unit.is_cpu:
                references.append(once((sys.executable, "-I", "-c", _REFERENCE), on).cpu)
    return Run(
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        __version__,
        platform.python_version(),
        os.cpu_count() or 1,
        round(median(references), 2),
        {name: Figure(round(median(values), 2), unit) for (name, unit), values in measured.items()},
    )


def _round(on: Machine) -> Iterator[tuple[str, float, Unit]]:
    for arguments in (("--version",), ("snapshot",), ("snapshot", "--format", "json")):
        command = gpumon(*arguments)
        yield command.name, once(command.command, on).cpu, Unit.CPU_MS
    for interval in ("0.1", "0.5"):
        program = gpumon("-n", interval)._replace(after=_AFTER)
        spent, _ = cost(program, on, _SECONDS)
        yield program.name, spent.cpu, Unit.CPU_PERCENT
        if interval == "0.1" and spent.pss is not None:
            yield f"{program.name}, PSS", spent.pss, Unit.MIB
    begun = start(gpumon("-n", "0.1"), on)
    if begun.cpu is not None:
        yield "CPU until the first data", begun.cpu, Unit.CPU_MS


def to_json(run: Run) -> str:
    """The run as one line."""
    return msgspec.json.encode(run).decode()


def keep(file: Path, run: Run) -> None:
    """Append the run to the file."""
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
    """What differs from the last of the earlier runs, a sentence each."""
    last = runs[-LAST:]
    if not last:
        return ["there are no earlier runs to compare with; --keep adds this one"]
    found = [_compared(name, run, last) for name in run.figures]
    sentences = [sentence for sentence in found if sentence is not None]
    if not sentences:
        sentences.append(f"no figure differs by {STEP:.0%} or more from its earlier median")
    if len(last) < LAST:
        earlier_runs = "1 earlier run" if len(last) == 1 else f"{len(last)} earlier runs"
        sentences.append(f"compared with only {earlier_runs} instead of {LAST}")
    return sentences


def _compared(name: str, run: Run, runs: Sequence[Run]) -> str | None:
    figure = run.figures[name]
    values = [
        other.figures[name].value * (run.reference / other.reference if figure.unit.is_cpu else 1)
        for other in runs
        if name in other.figures and other.figures[name].unit is figure.unit
    ]
    before = median(values) if values else 0.0
    if before <= 0:
        return f"{name}: no earlier figure to compare with"
    both = f"{figure.value:.4g} {figure.unit.value} now, {before:.4g} before"
    if figure.unit.is_cpu:
        both += " at this run's speed"
    spread = (max(values) - min(values)) / before
    if spread > STEP:
        return f"{name}: too noisy to compare, earlier runs vary by {spread:.0%} ({both})"
    change = figure.value / before - 1
    # Rounding must not hide a difference of exactly a step.
    if abs(change) < STEP - 1e-9:
        return None
    return f"{name}: {abs(change):.0%} {'more' if change > 0 else 'less'} ({both})"
