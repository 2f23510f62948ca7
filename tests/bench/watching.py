"""What watching costs the watched: step times of a training loop beside monitors.

    python -m tests.bench.watching [--rounds 7] [--seconds 10] [--budget SECONDS] [--csv FILE]
        [--python PYTHON]

``--budget`` ends it before so many seconds are over, in the middle of a round if need be. ``--csv``
writes each turn as it ends.

One training loop runs without a monitor, then beside each of them, again and again in another
order; prints a Markdown table. ``--python`` is a Python that has PyTorch or JAX. Without a card the
loop computes on the CPU beside a simulated driver: that shows that the bench works, and what a
monitor takes from a CPU that it shares; nothing of what it costs a GPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench.line import Line
from tests.bench.machine import RealMachine, machine
from tests.bench.percentiles import percentile
from tests.bench.programs import gpumon
from tests.bench.rows import whole_rows
from tests.bench.tables import table
from tests.gpu.card import HAS_CARD
from tests.known import known

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

TRAINING = Path(__file__).with_name("training.py")
ROOT = Path(__file__).parents[2]
NO_CARD = "no card: CPU loop"
UNWATCHED, UNWATCHED_AGAIN = "no monitor", "no monitor again (noise)"
HEADINGS = ("", "step ms", "least–most", "p99 ms", "to no monitor", "monitor's CPU %")

COLUMNS = (
    *("round", "monitor", "steps", "p50_ms", "p99_ms", "mean_ms", "longest_ms"),
    *("monitor_cpu_percent", "failed"),
)
"""Of the CSV; ``failed`` says why a turn has no numbers."""

_WITHOUT_GPM = (sys.executable, "-m", "tests.bench.without_gpm")
_SETTLE_SECONDS = 4.0
_KEY_SECONDS = 0.5
_USED = 0.9
"""Of what is left: starting programs takes time too."""
_LEAST_SHARE = 0.01
"""Of a turn's usual length."""


class Watcher(NamedTuple):
    name: str  # In the table.
    command: tuple[str, ...] = ()  # Program and arguments; empty for none.
    keys: tuple[bytes, ...] = ()  # Pressed one after the other once it is there.


class Turn(NamedTuple):
    """One turn of the training loop."""

    round: int  # From 1.
    monitor: str  # Its name in the table.
    steps: int  # How many.
    p50: float  # Milliseconds of the median step.
    p99: float  # Milliseconds: of a hundred steps one takes longer.
    mean: float  # Milliseconds.
    longest: float  # Milliseconds.
    cpu: float | None  # What the monitor took meanwhile, in % of a core; ``None`` without one.


class Failed(NamedTuple):
    """A turn that gave nothing: its monitor could not start, or ended."""

    round: int  # From 1.
    monitor: str  # Its name in the table.
    reason: str  # A sentence without a full stop.


class NoTrainingError(Exception):
    """The training loop cannot run, for the reason in the text."""


class Training:
    """The training loop in a process of its own.

    Raises:
        NoTrainingError: It cannot run.
    """

    def __init__(self, python: str, device: str, env: Mapping[str, str]) -> None:
        try:
            self._process = subprocess.Popen(
                [python, str(TRAINING), device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=env,
            )
        except OSError as error:
            raise NoTrainingError(f"{python} cannot be run: {error.strerror}") from None
        try:
            answer = self._answer()
            if "error" in answer:
                raise NoTrainingError(answer["error"])
        except NoTrainingError:
            self.close()
            raise
        self.trained: str = answer["trained"]  # What trains on what.

    def steps(self, seconds: float) -> list[float]:
        """Train for so long; milliseconds of each step, at least one.

        Raises:
            NoTrainingError: It ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise NoTrainingError("the training loop ended") from None
        found: list[float] = self._answer()
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> Any:
        line = known(self._process.stdout).readline()
        if not line:
            raise NoTrainingError("the training loop ended")
        return json.loads(line)


def watchers() -> list[Watcher]:
    """No monitor, and each that is there."""
    found = [
        Watcher(UNWATCHED),
        Watcher("gpumon -n 0.5", gpumon("-n", "0.5").command),
        Watcher("gpumon -n 0.1", gpumon("-n", "0.1").command),
        # Not right after the other, which would have less noise between them than the others have.
        Watcher(UNWATCHED_AGAIN),
        Watcher("gpumon -n 0.1, without GPM", (*_WITHOUT_GPM, "-n", "0.1")),
        Watcher("gpumon -n 0.1, a GPU's page", gpumon("-n", "0.1").command, (b"\t", b"\r")),
    ]
    smi = shutil.which("nvidia-smi")
    if smi is not None:
        found.append(Watcher("nvidia-smi -lms 100", (smi, "-lms", "100")))
        # Where there is no watch, the row says so.
        found.append(Watcher("watch -n 0.1 nvidia-smi", ("watch", "-n", "0.1", smi)))
    return found


def watch(
    watcher: Watcher, training: Training, env: Mapping[str, str], seconds: float, settle: float
) -> tuple[list[float], float | None]:
    """Train for so long beside a monitor that has been there for ``settle`` seconds.

    Returns:
        Milliseconds of each step, and the monitor's processor time in % of a core.

    Raises:
        RuntimeError: The monitor ended.
        OSError: It cannot be run.
    """
    if not watcher.command:
        training.steps(min(settle, seconds))
        return training.steps(seconds), None
    with Line(watcher.command, env) as line, _reading(line):
        time.sleep(settle)
        for key in watcher.keys:
            _require(line)
            line.press(key)
            time.sleep(_KEY_SECONDS)
        training.steps(min(settle, seconds))
        spent, began = line.cpu_seconds(), time.monotonic()
        steps = training.steps(seconds)
        spent = line.cpu_seconds() - spent
        took = time.monotonic() - began
        _require(line)
    return steps, 100 * spent / took


def _require(line: Line) -> None:
    if line.ended:
        raise RuntimeError("it ended while it was measured")


def turn(
    number: int,
    watcher: Watcher,
    training: Training,
    env: Mapping[str, str],
    options: argparse.Namespace,
) -> Turn | Failed:
    """A turn of the loop beside this monitor, in the round of this number."""
    try:
        steps, cpu = watch(watcher, training, env, options.seconds, options.settle)
    except (RuntimeError, OSError) as error:
        return Failed(number, watcher.name, str(error))
    p50, p99 = median(steps), percentile(steps, 0.99)
    return Turn(number, watcher.name, len(steps), p50, p99, fmean(steps), max(steps), cpu)


@contextmanager
def _reading(line: Line) -> Iterator[None]:
    """Read what a program writes on a thread of its own, as a terminal would."""
    over = threading.Event()

    def read() -> None:
        while not over.is_set() and not line.ended:
            line.read_until(line.now + 0.2)

    thread = threading.Thread(target=read, name="terminal")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def turns(
    found: Sequence[Watcher],
    training: Training,
    env: Mapping[str, str],
    options: argparse.Namespace,
    until: float,
) -> Iterator[Turn | Failed]:
    """Each monitor in each round, the first one another in each; none that would not fit.

    All have ended ``until`` then, by ``time.monotonic``.
    """
    longest = {watcher.name: turn_seconds(watcher, options) for watcher in found}
    for number in range(1, options.rounds + 1):
        first = (number - 1) % len(found)
        for watcher in (*found[first:], *found[:first]):
            began = time.monotonic()
            if began + longest[watcher.name] > until:
                return
            yield turn(number, watcher, training, env, options)
            longest[watcher.name] = max(longest[watcher.name], time.monotonic() - began)


def turn_seconds(watcher: Watcher, options: argparse.Namespace) -> float:
    """How long a turn takes, as far as that is known beforehand."""
    warm_up = min(options.settle, options.seconds)
    beside = options.settle + _KEY_SECONDS * len(watcher.keys) if watcher.command else 0.0
    return float(options.seconds + warm_up + beside)


def shortened(
    options: argparse.Namespace, found: Sequence[Watcher], left: float
) -> argparse.Namespace:
    """The options with turns so short that a whole round fits into ``left`` seconds."""
    whole = sum(turn_seconds(watcher, options) for watcher in found)
    keys = sum(_KEY_SECONDS * len(watcher.keys) for watcher in found)
    if whole <= left * _USED:
        return options
    share = max(_LEAST_SHARE, (left * _USED - keys) / (whole - keys))
    return argparse.Namespace(
        **{**vars(options), "seconds": options.seconds * share, "settle": options.settle * share}
    )


def written(turns_: Iterable[Turn | Failed], file: Path | None) -> list[Turn | Failed]:
    """All turns; each is written to the file, if there is one, as it ends."""
    if file is None:
        return list(turns_)
    done = []
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(COLUMNS)
        opened.flush()
        for each in turns_:
            writer.writerow(_cells(each))
            opened.flush()
            done.append(each)
    return done


def _cells(each: Turn | Failed) -> list[str]:
    if isinstance(each, Failed):
        return [f"{each.round}", each.monitor, *[""] * 6, each.reason]
    times = (f"{number:.4f}" for number in each[3:7])
    cpu = "" if each.cpu is None else f"{each.cpu:.2f}"
    return [f"{each.round}", each.monitor, f"{each.steps}", *times, cpu, ""]


def read(file: Path) -> list[Turn | Failed]:
    """The turns that a CSV has."""
    return [_turn(row) for row in whole_rows(file)]


def _turn(row: Mapping[str, str]) -> Turn | Failed:
    number, monitor = int(row["round"]), row["monitor"]
    if row["failed"]:
        return Failed(number, monitor, row["failed"])
    p50, p99, mean, longest = (float(row[name]) for name in COLUMNS[3:7])
    cpu = float(row["monitor_cpu_percent"]) if row["monitor_cpu_percent"] else None
    return Turn(number, monitor, int(row["steps"]), p50, p99, mean, longest, cpu)


def lines(seen: Iterable[Turn | Failed]) -> list[str]:
    """The table: medians of the rounds' medians, and of the ratios within each round.

    A monitor that failed in every round has a row without numbers; a line below says why it did.
    """
    each_of: dict[str, list[Turn]] = defaultdict(list)
    failures: dict[str, str] = {}
    for each in sorted(seen, key=lambda one: one.round):
        known = each_of[each.monitor]
        if isinstance(each, Failed):
            failures[each.monitor] = each.reason
        else:
            known.append(each)
    usual = {one.round: one.p50 for one in each_of[UNWATCHED]}
    said = [f"{name} failed: {reason}." for name, reason in failures.items()]
    return [
        *table(HEADINGS, (_row(name, each, usual) for name, each in each_of.items())),
        *(["", *said] if said else []),
    ]


def _row(name: str, each: Sequence[Turn], usual: Mapping[int, float]) -> tuple[str, ...]:
    if not each:
        return (name, *["–"] * (len(HEADINGS) - 1))
    middles = [one.p50 for one in each]
    ratios = [one.p50 / usual[one.round] for one in each if one.round in usual]
    cpu = [one.cpu for one in each if one.cpu is not None]
    compared = f"{100 * (median(ratios) - 1):+.2f} %" if ratios else "–"
    return (
        name,
        f"{median(middles):.3f}",
        f"{min(middles):.3f}–{max(middles):.3f}",
        f"{median(one.p99 for one in each):.3f}",
        "1" if name == UNWATCHED else compared,
        f"{median(cpu):.1f}" if cpu else "–",
    )


@contextmanager
def _surroundings() -> Iterator[tuple[str, Mapping[str, str]]]:
    """The device to train on, and the environment of monitors."""
    if HAS_CARD or "NVML_SIM_STATE" in os.environ:
        with tempfile.TemporaryDirectory(prefix="gpumon-bench-") as home:
            yield "gpu" if HAS_CARD else "cpu", RealMachine(Path(home)).env()
        return
    with machine(cards=1, processes=10) as on:
        yield "cpu", on.env()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.watching", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each turn")
    parser.add_argument("--settle", type=float, default=_SETTLE_SECONDS, help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=float, help="seconds that it takes at most")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="a row for each turn")
    parser.add_argument("--python", default=sys.executable, help="it has PyTorch or JAX")
    options = parser.parse_args()
    until = math.inf if options.budget is None else time.monotonic() + options.budget
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("at least one round of more than no time")
    with _surroundings() as (device, env):
        try:
            training = Training(options.python, device, os.environ)
        except NoTrainingError as error:
            print(f"Nothing to watch: {error}.", file=sys.stderr)
            return 1
        try:
            found = watchers()
            fitting = shortened(options, found, until - time.monotonic())
            seen = written(turns(found, training, env, fitting, until), options.csv)
        finally:
            training.close()
    about = training.trained if device == "gpu" else f"{NO_CARD} ({training.trained})"
    begun = max((one.round for one in seen), default=0)
    print(
        f"{time.strftime('%d %B %Y')}, {about}, {os.cpu_count()} cores; {begun} "
        f"rounds of {fitting.seconds:.3g} s.\n"
    )
    print("\n".join(lines(seen)))
    if shutil.which("nvidia-smi") is None:
        print("\nThere is no nvidia-smi here.")
    return int(any(isinstance(one, Failed) for one in seen) or not seen)


if __name__ == "__main__":
    sys.exit(main())
