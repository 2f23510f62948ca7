"""What gpumon's screen takes beside its peers under load, and what stands on it.

    python -m tests.gpu.screen OUT [--pace P]

writes ``OUT/screen.txt``: a table, then the text of screens of 200×50 cells. It takes about 60 s at
pace 1. Names and paths of the machine are replaced.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.bench.line import Line
from tests.bench.machine import RealMachine
from tests.bench.measures import cost, first
from tests.bench.programs import DOWN, Program, gpumon, nvtop
from tests.bench.sight import Sight
from tests.bench.tables import table
from tests.gpu.anonymous import anonymous
from tests.gpu.work import Kind, NoWorkError, working

if TYPE_CHECKING:
    from typing import TextIO

    from tests.bench.machine import Surroundings

FILE = "screen.txt"
HEADINGS = ("", "first data ms", "frames/s", "CPU %", "PSS MiB")
POWER = r"\b\d+ ?W? ?/ ?\d+ ?W"
"""A GPU's power and its limit, in anybody's way to write it."""

SECONDS, FIRST_SECONDS = 5.0, 2.5
"""How long a program is measured, and given to show something, at pace 1."""
_PATIENCE_SECONDS = 15.0
"""A screen that has not come by then does not."""
_GLANCE_SECONDS = 0.2


class Page(NamedTuple):
    name: str  # Its heading.
    keys: tuple[bytes, ...]  # Pressed one after the other on the dashboard.
    pattern: str  # It stands on this screen only.


PAGES = (
    Page("The dashboard", (), POWER),
    Page("A GPU's page", (b"\t", b"\r"), "CUDA_VISIBLE_DEVICES"),
    Page("The page of a process", (DOWN, b"\r"), "On the GPUs"),
    Page("Help", (b"?",), "Find a command by name"),
)


def programs() -> list[Program]:
    """gpumon, and the peers that are here."""
    found = [gpumon("-n", "0.1"), gpumon("-n", "0.5")]
    nvitop = shutil.which("nvitop")
    if importlib.util.find_spec("nvitop") is not None:
        command = (sys.executable, "-m", "nvitop", "--interval", "0.25")
        found.append(Program("nvitop --interval 0.25", command))
    elif nvitop is not None:
        found.append(Program("nvitop --interval 0.25", (nvitop, "--interval", "0.25")))
    path = shutil.which("nvtop")
    return [*found, nvtop(path, pcie_free=False)] if path is not None else found


def measured(program: Program, on: Surroundings, pace: float) -> tuple[str, ...]:
    """The row of a program, under ``HEADINGS``.

    Raises:
        RuntimeError: It ended.
    """
    (data,) = first(program, on, (POWER,), FIRST_SECONDS * pace)
    spent, _ = cost(program._replace(after=program.after * pace), on, SECONDS * pace)
    return (
        program.name,
        "–" if data is None else f"{data:.0f}",
        f"{spent.frames:.1f}",
        f"{spent.cpu:.2f}",
        "–" if spent.pss is None else f"{spent.pss:.1f}",
    )


def shown(page: Page, on: Surroundings) -> str:
    """The text of a screen once it is there.

    Raises:
        RuntimeError: It did not come.
    """
    with Line(gpumon("-n", "0.5").command, on.env()) as line:
        watched = _Watched(line)
        watched.wait_for(POWER)
        for key in page.keys:
            line.press(key)
            # Else a second key may come before the first has had its effect.
            watched.look(5 * _GLANCE_SECONDS)
        watched.wait_for(page.pattern)
        watched.look(5 * _GLANCE_SECONDS)
        return watched.text()


class _Watched:
    """A line that is drawn as it comes."""

    def __init__(self, line: Line) -> None:
        self._line, self._sight, self._drawn = line, Sight(), 0

    def look(self, seconds: float) -> None:
        self._line.read_until(self._line.now + seconds)
        new = self._line.output[self._drawn :]
        self._drawn += len(new)
        for _ in self._sight.watch(new):
            pass

    def text(self) -> str:
        return "\n".join(row.rstrip() for row in self._sight.text().splitlines()).rstrip()

    def wait_for(self, pattern: str) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not re.search(pattern, self._sight.text()):
            if self._line.ended or time.monotonic() > deadline:
                raise RuntimeError(f"it did not come, but this:\n{self.text()}")
            self.look(_GLANCE_SECONDS)


class _File:
    """``screen.txt``, of which each line is on the disk once it is said."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.missing = False

    def say(self, *lines: str) -> None:
        self._file.write(anonymous("\n".join(lines)) + "\n")
        self._file.flush()

    def row(self, program: Program, on: Surroundings, pace: float) -> None:
        """Measure a program, and say it or why not."""
        try:
            cells = measured(program, on, pace)
        except (RuntimeError, OSError) as error:
            self.missing = True
            cells = (program.name, f"not measured: {error}", "–", "–", "–")
        self.say(table(HEADINGS, [cells])[-1])

    def page(self, page: Page, on: Surroundings) -> None:
        """Show a screen, or say why not."""
        self.say("", f"## {page.name}", "")
        try:
            text = shown(page, on)
        except RuntimeError:
            # The process whose page it was may have ended before its page was there.
            text = self._once_more(page, on)
        self.say(text)

    def _once_more(self, page: Page, on: Surroundings) -> str:
        try:
            return shown(page, on)
        except RuntimeError as error:
            self.missing = True
            return f"Not shown: {error}."


def write(out: Path, pace: float) -> int:
    """Measure, and write the file as it comes.

    Returns:
        0 if there is all of it, else 1.
    """
    with ExitStack() as stack:
        file = _File(stack.enter_context((out / FILE).open("w", encoding="utf-8")))
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="gpumon-screen-"))
        on = RealMachine(Path(home))
        file.say("Screens of 200×50 cells, under load (products of matrices).", "")
        try:
            stack.enter_context(working(Kind.TENSOR))
        except NoWorkError as error:
            file.missing = True
            file.say(f"No load: {error}. What follows is without one.", "")
        file.say(*table(HEADINGS, []))
        for program in programs():
            file.row(program, on, pace)
        for page in PAGES:
            file.page(page, on)
    return int(file.missing)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.screen", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--pace", type=float, default=1.0)
    options = parser.parse_args()
    return write(options.out, options.pace)


if __name__ == "__main__":
    sys.exit(main())
