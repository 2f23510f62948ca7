"""The machine as the checks see it: a file tree, an environment, a user."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping  # noqa: TC003 - msgspec resolves annotations
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.system.files import beginning

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def exists(path: Path) -> bool:
    """Whether a file exists that this user can reach."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises without permission


def is_folder(path: Path) -> bool:
    """Whether a folder exists that this user can reach."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises without permission


def resolved(path: Path) -> Path:
    """The path without symbolic links, as far as it can be followed."""
    return Path(os.path.realpath(path))  # Path.resolve raises at a loop of links.


def unreadable(machine: Machine, variables: Iterable[str]) -> list[str]:
    """The folders in variables of the environment that cannot be read, each with the reason."""
    return [
        f"{folder} ({variable}) cannot be read: {why}"
        for variable in variables
        for folder in machine.environ.get(variable, "").split(":")
        if folder.startswith("/") and (why := _why_unreadable(machine.path(folder))) is not None
    ]


def _why_unreadable(path: Path) -> str | None:
    """Why the files of a folder cannot be reached; ``None`` if they can, or it does not exist."""
    try:
        # The folder itself can be examined without permission to search it.
        os.stat(f"{path}/.")  # noqa: PTH116 - pathlib drops the dot
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return error.strerror
    return None


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
