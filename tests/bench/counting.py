"""Runs gpumon and counts its function calls: ``python -m tests.bench.counting FILE ARGUMENT…``.

Calls of Python and of C functions are the same however busy the machine is. FILE gets a ``Counted``
at the end of gpumon, or after ``SAMPLES`` samples.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from types import CodeType, FrameType

SAMPLES = 120
"""After so many samples of a dashboard FILE is written."""

SAMPLE, FRAME = ("collector.py", "_tick"), ("list_screen.py", "draw")
"""The functions that take a sample, and that draw one."""
_NAMES = {SAMPLE[1], FRAME[1]}


class Counted(TypedDict):
    calls: int  # Calls on the thread that writes this; others wait, and poll meanwhile.
    modules: int  # Modules that were imported.
    samples: list[int]  # Calls in each sample.
    frames: list[int]  # Calls in each drawing of a sample.


class _Counter:
    def __init__(self, file: str) -> None:
        self._file = file
        self._modules = len(sys.modules)
        self._calls: defaultdict[int, int] = defaultdict(int)
        # Of each function, the calls inside it each time it ran.
        self._inside: dict[tuple[str, str], list[int]] = {SAMPLE: [], FRAME: []}
        self._began: dict[CodeType, int] = {}

    def start(self) -> None:
        """Count the calls of this thread, and of all that it starts."""
        threading.setprofile(self._count)
        sys.setprofile(self._count)

    def write(self) -> None:
        sys.setprofile(None)
        counted = Counted(
            calls=self._calls[threading.get_ident()],
            modules=len(sys.modules) - self._modules,
            samples=self._inside[SAMPLE],
            frames=self._inside[FRAME],
        )
        # Imported before, it would not count as a module of gpumon.
        import json

        # Whoever waits for the file finds it whole.
        with open(f"{self._file}.new", "w", encoding="utf-8") as new:  # noqa: PTH123 - pathlib is gpumon's
            json.dump(counted, new)
        os.replace(f"{self._file}.new", self._file)  # noqa: PTH105 - pathlib is gpumon's to import

    def _count(self, frame: FrameType, event: str, _: object) -> None:
        thread = threading.get_ident()
        if event in {"call", "c_call"}:
            self._calls[thread] += 1
        if event in {"call", "return"} and (name := frame.f_code.co_name) in _NAMES:
            code = frame.f_code
            file = os.path.basename(code.co_filename)  # noqa: PTH119 - pathlib is gpumon's to import
            if (file, name) in self._inside:
                self._limit((file, name), code, event, self._calls[thread])

    def _limit(self, function: tuple[str, str], code: CodeType, event: str, calls: int) -> None:
        if event == "call":
            self._began[code] = calls
        elif code in self._began:
            self._inside[function].append(calls - self._began.pop(code))
            if function == SAMPLE and len(self._inside[SAMPLE]) == SAMPLES:
                self.write()


def main() -> int:
    counter = _Counter(sys.argv[1])
    sys.argv[:2] = ["gpumon"]
    counter.start()
    from gpumon.cli import main as gpumon

    status = gpumon()
    counter.write()
    return status


if __name__ == "__main__":
    sys.exit(main())
