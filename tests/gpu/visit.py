"""Everything that can be learnt on a machine with a real GPU, in nine minutes; see ``visit.sh``.

    python -m tests.gpu.visit OUT [--pace P]

runs each step as a process of its own. One that takes longer than it may is ended with all that it
has started, and the next goes on; facts.json says how each went. ``--pace`` shortens everything.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tests.gpu.anonymous import anonymous
from tests.gpu.smi import SmiError, query
from tests.gpu.work import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS = 525.0
"""For everything, less than the nine minutes that visit.sh promises: it has to unpack wheels."""

_LEAST_SECONDS = 90.0
"""A step may take so long, or as long as in earnest, however short the pace is: Python has to
start, on a machine that may be busy."""
_GRACE_SECONDS = 4.0
"""Between one signal and the next."""
_CHILDREN_SECONDS = 0.2
_SMI_SECONDS = 8.0
_LOOK_SECONDS = 0.5
"""Between one look for a signal and the next."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
"""What ends a step: first as Ctrl+C does, on which pytest still says what has failed."""
_WATCHING_SECONDS = 100.0
_CLOSING_SECONDS = 10.0
"""What watching leaves of the time, so that it ends by itself."""


class Step(NamedTuple):
    name: str  # In the report.
    file: str  # What it makes of the folder's files.
    # Of Python, with ``OUT`` and ``PACE`` for these, and ``WATCHING`` for the seconds that are left
    # for watching, which comes last and takes what there is.
    arguments: tuple[str, ...]
    seconds: float  # How long it may take at most.
    output: bool = False  # Whether its output becomes the file.


class Outcome(msgspec.Struct):
    name: str  # Of the step.
    file: str  # What it should have made.
    began: float  # Seconds after the beginning of the visit.
    seconds: float  # How long it took.
    outcome: str  # ``done``, ``failed``, ``cut`` or ``not begun``.
    said: str  # The end of what it wrote to standard error.


class Stage(NamedTuple):
    """Steps that belong together."""

    # The steps of a row come one after the other, the rows beside one another.
    rows: tuple[tuple[Step, ...], ...]
    seconds: float  # When it ends at the latest, from its beginning: what runs then is cut.


RECORD = Step("record", "run.tar", ("-m", "tests.gpu.record", "OUT", "--pace", "PACE"), 320)
SCREEN = Step("screen", "screen.txt", ("-m", "tests.gpu.screen", "OUT", "--pace", "PACE"), 100)
FACTS = Step("facts", "facts.json", ("-m", "tests.gpu.facts"), 60, output=True)
PYTEST = Step(
    "pytest",
    "pytest.txt",
    ("-m", "pytest", "-v", "-m", "gpu", "-n", "0", "-p", "no:cacheprovider", "tests/gpu"),
    80,
    output=True,
)
ENDING = Step("ending", "ending.json", ("-m", "tests.gpu.ending", "OUT"), 250)
COMPARE = Step("compare", "compare.csv", ("-m", "tests.gpu.compare", "OUT", "--pace", "PACE"), 112)
LATENCY = Step("latency", "latency.csv", ("-m", "tests.gpu.latency", "OUT", "--pace", "PACE"), 50)
WATCHING = Step(
    "watching",
    "watching.csv",
    (
        *("-m", "tests.bench.watching", "--csv", "OUT/watching.csv", "--budget", "WATCHING"),
        *("--rounds", "20", "--seconds", "1.5", "--settle", "0.7"),
    ),
    110,
)

PLAN = (
    # Screens and tests beside the job; what ends processes waits until it has ended.
    Stage(((RECORD,), (SCREEN, FACTS, PYTEST, ENDING)), 320),
    # Each of these needs the GPU for itself.
    Stage(((COMPARE, LATENCY, WATCHING),), SECONDS - 320),
)


class Visit:
    """One visit; the pace is what the steps' own times are multiplied by."""

    def __init__(self, out: Path, pace: float, seconds: float = SECONDS) -> None:
        self.outcomes: list[Outcome] = []
        self._out = out
        self._pace = pace
        self._began = time.monotonic()
        self._until = self._began + seconds
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    def go(self, plan: Sequence[Stage]) -> bool:
        """Run all; whether all were done. Ctrl+C or SIGTERM ends what runs, and all.

        Raises:
            KeyboardInterrupt: So it was ended.
        """
        try:
            for stage in plan:
                until = min(self._until, time.monotonic() + stage.seconds)
                rows = [
                    threading.Thread(target=self._row, args=(steps, until), daemon=True)
                    for steps in stage.rows
                ]
                for row in rows:
                    row.start()
                for row in rows:
                    # A signal that comes as a wait begins, or to another thread, ends no wait.
                    while row.is_alive():
                        row.join(_LOOK_SECONDS)
        finally:
            with self._starting:
                self._until = 0.0
                running = tuple(self._running)
            for process in running:
                _end_all_of(process)
        wanted = sum(len(row) for stage in plan for row in stage.rows)
        return [one.outcome for one in self.outcomes] == ["done"] * wanted

    def _row(self, steps: Sequence[Step], until: float) -> None:
        for step in steps:
            at = round(time.monotonic() - self._began, 1)
            try:
                outcome = self._run(step, min(until, self._until))
            except OSError as error:
                outcome = Outcome(step.name, step.file, at, 0.0, "failed", str(error))
            with self._lock:
                self.outcomes.append(outcome)
                self._write_outcomes()
                print(f"{outcome.name}: {outcome.outcome} after {outcome.seconds} s", flush=True)
                if outcome.said:
                    print(outcome.said, flush=True)

    def _run(self, step: Step, until: float) -> Outcome:
        began = time.monotonic()
        at = round(began - self._began, 1)
        seconds = max(step.seconds * self._pace, min(step.seconds, _LEAST_SECONDS))
        allowed = min(seconds, until - began)
        if allowed <= 0:
            return Outcome(step.name, step.file, at, 0.0, "not begun", "no time was left")
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            # A visit that is ended must know of each process, or none may be started any more.
            with self._starting:
                if not self._until:
                    return Outcome(step.name, step.file, at, 0.0, "not begun", "it was ended")
                process = subprocess.Popen(
                    [sys.executable, *self._arguments(step, allowed)],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONUNBUFFERED": "1"},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,
                )
                self._running.add(process)
            was_cut = not _ended_within(process, allowed)
            _end_all_of(process)
            self._running.discard(process)
            # facts.json is also that of the outcomes, which another row may be writing.
            with self._lock:
                if step.output:
                    output.seek(0)
                    (self._out / step.file).write_bytes(output.read())
                self._leave_names_out(self._out / step.file)
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()[-20:]
        outcome = "cut" if was_cut else "failed" if process.returncode else "done"
        took = round(time.monotonic() - began, 1)
        return Outcome(step.name, step.file, at, took, outcome, anonymous("\n".join(said)))

    def _leave_names_out(self, file: Path) -> None:
        """No file that comes back names the machine or its users; an archive was made without."""
        if file.suffix != ".tar" and file.exists():
            file.write_text(anonymous(file.read_text(errors="replace"), _serials()))

    def _arguments(self, step: Step, allowed: float) -> list[str]:
        left = allowed - _CLOSING_SECONDS
        watching = max(5.0, min(_WATCHING_SECONDS * self._pace, left))
        words = {"OUT": str(self._out), "PACE": str(self._pace), "WATCHING": str(watching)}
        return [
            "/".join(words.get(part, part) for part in one.split("/")) for one in step.arguments
        ]

    def _write_outcomes(self) -> None:
        """Keep what the step of that name wrote, and add how all went."""
        file = self._out / FACTS.file
        try:
            known = msgspec.json.decode(file.read_bytes(), type=dict[str, object])
        except (OSError, msgspec.DecodeError, msgspec.ValidationError):
            known = {}
        known["steps"] = [msgspec.to_builtins(outcome) for outcome in self.outcomes]
        file.write_bytes(msgspec.json.format(msgspec.json.encode(known)))


@cache
def _serials() -> tuple[str, ...]:
    """Those of the GPUs; none where nvidia-smi does not say."""
    try:
        gpus = query(["serial"], _SMI_SECONDS).gpus
    except SmiError:
        return ()
    return tuple(gpu["serial"] for gpu in gpus if gpu["serial"].isalnum())


def _ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end_all_of(process: subprocess.Popen[bytes]) -> None:
    """End a step and what it has left running: asked at first, so that it keeps what it has."""
    for number in _SIGNALS:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        if _ended_within(process, _GRACE_SECONDS):
            # What it has started may be about to end as well.
            time.sleep(_CHILDREN_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.visit", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pace", type=float, default=1.0, help="0 to 1: shorter than in earnest")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    out: Path = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    try:
        return 0 if Visit(out, options.pace).go(PLAN) else 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
