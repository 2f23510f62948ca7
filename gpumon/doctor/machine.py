"""The machine as the checks see it: a file tree, an environment, a user."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping  # noqa: TC003 - msgspec resolves annotations
from pathlib import Path

from msgspec import Struct

from gpumon.system.files import beginning

_MOST_BYTES = 2**18


def open_once(path: Path) -> None:
    """Open a device file for reading and writing, and close it.

    Raises:
        OSError: The kernel refuses.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))


def _is_root() -> bool:
    geteuid = getattr(os, "geteuid", None)  # not on Windows
    return geteuid is not None and geteuid() == 0


class Machine(Struct, frozen=True):
    """The machine to examine.

    Attributes:
        root: The folder used as ``/``.
        environ: The environment.
        prefix: The prefix of the Python that runs gpumon.
        root_user: Whether gpumon runs as root.
        try_open: Opens a device file and closes it, or raises ``OSError``.
        uptime: Seconds since the machine started, by the clock of the kernel's log.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = os.environ
    prefix: str = sys.prefix
    root_user: bool = _is_root()
    try_open: Callable[[Path], None] = open_once
    uptime: Callable[[], float] = time.monotonic

    def path(self, name: str) -> Path:
        """Where a file of this machine is.

        Args:
            name: Its absolute name.
        """
        return self.root / name.lstrip("/")

    def name(self, path: Path) -> str:
        """The name by which a person finds a file of this machine."""
        try:
            return f"/{path.relative_to(self.root)}"
        except ValueError:
            return str(path)

    def text(self, name: str) -> str | None:
        """The text of a file, with invalid UTF-8 replaced; ``None`` if it cannot be read."""
        return read_text(self.path(name))

    def folder(self, name: str, pattern: str) -> list[Path]:
        """The entries of a folder, sorted; empty if there is no such folder."""
        return found(self.path(name), pattern)


def read_text(path: Path) -> str | None:
    """The beginning of a regular file; ``None`` if it cannot be read."""
    try:
        return beginning(path, _MOST_BYTES).decode(errors="replace")
    except OSError:
        return None


def found(folder: Path, pattern: str) -> list[Path]:
    """The matching entries of a folder, sorted; empty if it cannot be read."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []
