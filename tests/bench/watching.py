"""What watching costs the watched: step times of a training loop beside monitors.

    python -m tests.bench.watching [--rounds 7] [--seconds 10] [--python PYTHON]

One training loop runs without a monitor, then beside each of them, again and again in another
order; prints a Markdown table. ``--python`` is a Python that has PyTorch or JAX. Without a card the
loop computes on the CPU beside a simulated driver: that shows that the bench works, and what a
monitor takes from a CPU that it shares; nothing of what it costs a GPU.
"""

from __future__ import annotations

import argparse
import json
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
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench.line import Line
from tests.bench.machine import machine
from tests.bench.programs import gpumon
from tests.bench.sight import percentile
from tests.bench.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TRAINING = Path(__file__).with_name("training.py")
ROOT = Path(__file__).parents[2]
NO_CARD = "no card: CPU loop"
UNWATCHED = "no monitor"
HEADINGS = ("", "step ms", "least–most", "p99 ms", "to no monitor", "monitor's CPU %")

_SETTLE_SECONDS = 4.0
_KEY_SECONDS = 0.5


class Watcher(NamedTuple):
    """A monitor.

    Attributes:
        name: In the table.
        command: Program and arguments; empty for none.
        keys: Pressed one after the other once it is there.
    """

    name: str
    command: tuple[str, ...] = ()
    keys: tuple[bytes, ...] = ()


class Watched(NamedTuple):
    """One turn of the training loop.

    Attributes:
        steps: Milliseconds of each step.
        cpu: What the monitor took meanwhile, in % of a core; ``None`` without one.
    """

    steps: Sequence[float]
    cpu: float | None


class NoTrainingError(Exception):
    """The training loop cannot run, for the reason in the text."""


class Training:
    """The training loop in a process of its own.

    Args:
        python: The Python that runs it.
        device: ``gpu`` or ``cpu``.
        env: Its environment.

    Attributes:
        trained: What trains on what.

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
        self.trained: str = answer["trained"]

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
        """End it."""
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise NoTrainingError("the training loop ended")
        return json.loads(line)


def watchers() -> list[Watcher]:
    """No monitor, and each that is there."""
    found = [
        Watcher(UNWATCHED),
        Watcher("gpumon -n 0.5", gpumon("-n", "0.5").command),
        Watcher("gpumon -n 0.1", gpumon("-n", "0.1").command),
        # The page of the first GPU shows the values of GPM, which are read only while it is open.
        Watcher("gpumon -n 0.1, a GPU's page", gpumon("-n", "0.1").command, (b"\t", b"\r")),
    ]
    smi = shutil.which("nvidia-smi")
    if smi is not None:
        found.append(Watcher("nvidia-smi -lms 100", (smi, "-lms", "100")))
    return found


def watch(
    watcher: Watcher, training: Training, env: Mapping[str, str], seconds: float, settle: float
) -> Watched:
    """Train for so long beside a monitor that has been there for ``settle`` seconds."""
    if not watcher.command:
        training.steps(min(settle, seconds))
        return Watched(training.steps(seconds), None)
    with Line(watcher.command, env) as line, _reading(line):
        time.sleep(settle)
        for key in watcher.keys:
            line.press(key)
            time.sleep(_KEY_SECONDS)
        training.steps(min(settle, seconds))
        spent, began = line.cpu_seconds(), time.monotonic()
        steps = training.steps(seconds)
        spent = line.cpu_seconds() - spent
        took = time.monotonic() - began
        if line.ended:
            raise RuntimeError(f"{watcher.name} ended while it was measured")
    return Watched(steps, 100 * spent / took)


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


def rounds(
    found: Sequence[Watcher],
    training: Training,
    env: Mapping[str, str],
    options: argparse.Namespace,
) -> dict[str, list[Watched]]:
    """Each monitor in each round, the first one another in each."""
    seen: dict[str, list[Watched]] = defaultdict(list)
    for number in range(options.rounds):
        first = number % len(found)
        for watcher in (*found[first:], *found[:first]):
            seen[watcher.name].append(
                watch(watcher, training, env, options.seconds, options.settle)
            )
    return {watcher.name: seen[watcher.name] for watcher in found}


def lines(seen: Mapping[str, Sequence[Watched]]) -> list[str]:
    """The table: medians of the rounds' medians, and of the ratios within each round."""
    usual = [median(one.steps) for one in seen[UNWATCHED]]
    rows = []
    for name, each in seen.items():
        middles = [median(one.steps) for one in each]
        ratio = median(mine / theirs for mine, theirs in zip(middles, usual, strict=True))
        cpu = [one.cpu for one in each if one.cpu is not None]
        rows.append(
            (
                name,
                f"{median(middles):.3f}",
                f"{min(middles):.3f}–{max(middles):.3f}",
                f"{median(percentile(one.steps, 0.99) for one in each):.3f}",
                "1" if name == UNWATCHED else f"{100 * (ratio - 1):+.2f} %",
                f"{median(cpu):.1f}" if cpu else "–",
            )
        )
    return table(HEADINGS, rows)


@contextmanager
def _surroundings() -> Iterator[tuple[str, Mapping[str, str]]]:
    """The device to train on, and the environment of monitors."""
    if Path("/dev/nvidia0").exists():
        with tempfile.TemporaryDirectory(prefix="gpumon-bench-") as home:
            homes = {f"XDG_{name}_HOME": home for name in ("CONFIG", "STATE", "CACHE")}
            env = {**os.environ, **homes, "PYTHONPATH": str(ROOT)}
            yield "gpu", {name: one for name, one in env.items() if not name.startswith("GPUMON_")}
        return
    with machine(cards=1, processes=10) as on:
        yield "cpu", on.env()


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.watching", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each turn")
    parser.add_argument("--settle", type=float, default=_SETTLE_SECONDS, help=argparse.SUPPRESS)
    parser.add_argument("--python", default=sys.executable, help="it has PyTorch or JAX")
    options = parser.parse_args()
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
            seen = rounds(found, training, env, options)
        finally:
            training.close()
    about = training.trained if device == "gpu" else f"{NO_CARD} ({training.trained})"
    print(
        f"{time.strftime('%d %B %Y')}, {about}, {os.cpu_count()} cores; {options.rounds} rounds of "
        f"{options.seconds:g} s.\n"
    )
    print("\n".join(lines(seen)))
    if "nvidia-smi -lms 100" not in seen:
        print("\nThere is no nvidia-smi here.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
