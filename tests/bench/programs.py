"""The programs that are measured, and where the peers come from."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.bench.machine import TEMPERATURE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.sight import Sight

DATA = rf"\b{TEMPERATURE} ?(?:['°]?C|f?C|°|  )"
"""The first card's temperature, in anybody's way to write it."""

UP, DOWN = b"\x1bOA", b"\x1bOB"


class Program(NamedTuple):
    name: str  # In the tables.
    command: tuple[str, ...]  # Program and arguments.
    # The lines that have its cursor, for those that have one.
    cursor: Callable[[Sight], set[int]] | None = None
    pcie_free: bool = False  # Whether it gets a driver that tells PCIe throughput at once.
    after: float = 3.0  # Seconds after the start from which on it is measured.


def gpumon(*arguments: str) -> Program:
    """The gpumon of this checkout."""
    name = " ".join(("gpumon", *arguments))
    return Program(
        name, (sys.executable, "-m", "gpumon", *arguments), lambda sight: sight.begins_with("▸")
    )


def nvitop(python: Path) -> Program:
    """The fastest that nvitop offers."""
    command = (str(python.with_name("nvitop")), "--interval", "0.25")
    return Program("nvitop --interval 0.25", command, lambda sight: sight.last_reversed(100))


def gpustat(python: Path) -> Program:
    """The fastest that gpustat offers."""
    return Program("gpustat -i 0.1", (str(python.with_name("gpustat")), "-i", "0.1"), after=4.0)


def nvtop(path: str, *, pcie_free: bool) -> Program:
    """Ten times a second, if the driver lets nvtop."""
    name = f"nvtop -d 1{', PCIe free' if pcie_free else ''}"
    return Program(name, (path, "-d", "1"), lambda sight: sight.last_reversed(198), pcie_free)


class Peers(NamedTuple):
    python: Path | None  # A Python that has nvitop and gpustat beside it; ``None`` leaves them out.
    nvtop: str | None  # nvtop; ``None`` where it is not installed.

    def versions(self) -> str:
        words = []
        if self.python is not None:
            asked = "from importlib.metadata import version as v; print(v('nvitop'), v('gpustat'))"
            both = _output(str(self.python), "-c", asked).split()
            words += [f"nvitop {both[0]}", f"gpustat {both[1]}"]
        words.append(
            "nvtop is not installed"
            if self.nvtop is None
            else f"nvtop {_output(self.nvtop, '--version').split()[-1]}"
        )
        return ", ".join(words)


@contextmanager
def peers(python: Path | None, nvtop_path: str | None, *, wanted: bool) -> Iterator[Peers]:
    """The peers: those of this Python, or of an environment that is thrown away afterwards."""
    if not wanted:
        yield Peers(None, None)
        return
    found = nvtop_path or shutil.which("nvtop")
    if python is not None:
        yield Peers(python, found)
        return
    with tempfile.TemporaryDirectory(prefix="gpumon-peers-") as folder:
        venv.create(folder, with_pip=True)
        inside = Path(folder, "bin", "python")
        subprocess.run([inside, "-m", "pip", "install", "-q", "nvitop", "gpustat"], check=True)
        yield Peers(inside, found)


def _output(*command: str) -> str:
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout
