"""Logs to report on, from whatever snapshots a test has."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpumon.makers.demo import DemoSource
from gpumon.model.processes import Workload
from gpumon.recording.csv.files import log_files
from gpumon.recording.csv.rows import GpuRows, ProcessRows
from gpumon.report.output import print_report
from tests.build import GIB, gpu, process, snapshot
from tests.clock import HandClock
from tests.log_headers import GPU_HEADER, PROCESS_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gpumon.model.snapshot import Gpu, Snapshot

Sample = tuple["Snapshot", float]
"""A snapshot, and seconds since the log began."""


def write_log(path: Path, samples: Iterable[Sample]) -> Path:
    """A log with the rows of ``gpumon log``; its cards' file."""
    files = log_files(path)
    gpu_rows, process_rows = GpuRows(), ProcessRows()
    with files.gpus.open("wb") as cards, files.processes.open("wb") as listed:
        cards.write(GPU_HEADER)
        listed.write(PROCESS_HEADER)
        run = -1.0
        for taken, elapsed in samples:
            if elapsed <= run:
                # Another gpumon goes on with the log.
                gpu_rows, process_rows = GpuRows(), ProcessRows()
            run = elapsed
            cards.write(gpu_rows.of(taken, elapsed))
            listed.write(process_rows.of(taken, elapsed))
    return files.gpus


def changed(taken: Snapshot, index: int, **changes: object) -> Snapshot:
    """The snapshot with other values of one card."""
    return msgspec.structs.replace(
        taken,
        gpus=tuple(
            msgspec.structs.replace(card, **changes) if card.index == index else card
            for card in taken.gpus
        ),
    )


def eventful_night(start: float) -> Iterator[Sample]:
    """A night of the demo with all that makes figures hard, told twice: as two runs of gpumon.

    Five minutes by the second; then nothing for nearly an hour; then a reloaded driver, whose
    energy counters begin anew, and a sample each five seconds, with values that are unknown for a
    while, errors, and a clock that is set back by twenty minutes.
    """
    clock = HandClock(start, epoch=0.0)
    source = DemoSource(clock=clock)
    for second in range(300):
        clock.now = start + second
        yield source.sample(), float(second)
    counted = {card.uuid: card.energy or 0.0 for card in source.sample().gpus}
    began = start + 3600
    for number in range(1000):
        elapsed = 5.0 * number
        clock.now = began + elapsed
        taken = _reloaded(source.sample(), counted)
        for holds, index, values in (
            (100 <= number < 200, 4, {"energy": None, "power_draw": None}),
            (number % 3 == 0, 1, {"utilization_gpu": None, "memory_used": None}),
            (300 <= number < 350, 3, {"energy": None}),
            (number >= 400, 5, {"xid": 31, "xid_at": began + 2000.0}),
            (number >= 500, 5, {"xid": 79, "xid_at": began + 2500.0}),
            (600 <= number < 620, 0, {"clock_event_reasons": 0x88}),
            (True, 2, {"ecc_uncorrected_volatile": number // 300}),
        ):
            taken = changed(taken, index, **values) if holds else taken
        moved = 1200.0 if number >= 700 else 0.0
        yield msgspec.structs.replace(taken, time=clock.now - moved), elapsed


def chaos(seed: int, start: float) -> Iterator[Sample]:
    """Two cards at no steady pace, whose jobs come and go and whose values are anything."""
    random = Random(seed)
    elapsed, energy = 0.0, 1e6
    here: list[int] = []
    for _ in range(400):
        if random.random() < 0.1:
            here = random.sample(range(1, 6), random.randrange(5))
        cards = [
            gpu(
                index=index,
                utilization_gpu=random.choice((None, 0, 3, 50, 97, 100)),
                memory_used=random.choice((None, random.randrange(80 * GIB))),
                power_draw=random.choice((None, 70.5, 700.0)),
                energy=random.choice((None, energy, energy)),
                clock_event_reasons=random.choice((None, 0, 4, 8, 0x20, 0x40, 0x48, 0x84, 0x88)),
            )
            for index in range(2)
        ]
        processes = tuple(
            msgspec.structs.replace(
                process(
                    pid,
                    user="ann" if pid < 3 else "bo",
                    gpus=((0,), (1,), (0, 1))[pid % 3],
                    sm=random.choice((0, 10, 80)),
                    memory_used=random.randrange(10) * GIB,
                ),
                place=Workload(slurm_job=str(pid % 4)),
            )
            for pid in here
        )
        yield snapshot(start + elapsed, *cards, processes=processes), round(elapsed, 3)
        pace = random.choice((0.1, 1.0, 1.0, 1.1, 2.0, 2.6, 5.0, 30.0))
        elapsed = round(elapsed + pace, 3)
        energy = round(energy + random.random() * 700 * pace, 3)


def _reloaded(taken: Snapshot, counted: dict[str, float]) -> Snapshot:
    def again(card: Gpu) -> Gpu:
        energy = None if card.energy is None else round(card.energy - counted[card.uuid], 3)
        return msgspec.structs.replace(card, energy=energy)

    return msgspec.structs.replace(taken, gpus=tuple(again(card) for card in taken.gpus))


def report(*paths: Path, by: str = "gpu", **options: Any) -> dict[str, Any]:
    """The report of logs, or of the history that an option names, as JSON."""
    out = io.StringIO()
    assert print_report([*map(str, paths)], by=by, form="json", out=out, **options) == 0
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def printed(*paths: Path, by: str = "gpu", **options: Any) -> str:
    """The report of logs as it is printed, a table unless an option says otherwise."""
    out = io.StringIO()
    assert print_report([*map(str, paths)], by=by, out=out, **options) == 0
    return out.getvalue()


def refused(*paths: Path, status: int = 1, **options: Any) -> str:
    """What is said where there is no report: lines on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stderr(err):
        assert print_report([*map(str, paths)], out=out, **options) == status
    assert out.getvalue() == ""
    return err.getvalue()


def lines_of(told: dict[str, Any], key: str) -> dict[Any, dict[str, Any]]:
    """The lines of a report in JSON by one of their figures."""
    return {line[key]: line for line in told["lines"]}


def about(told: Any, rel: float = 1e-6, least: float | None = None) -> Any:
    """The same figures, but for the order in which numbers were added, or for what is given."""
    if isinstance(told, float):
        return pytest.approx(told, rel=rel, abs=least)
    if isinstance(told, dict):
        return {key: about(value, rel, least) for key, value in told.items()}
    return [about(one, rel, least) for one in told] if isinstance(told, list) else told
