"""Small files that anybody may have put something else in place of."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.system.folders import Folder


def beginning(path: Folder, most: int) -> bytes:
    """The first bytes of a file.

    Raises:
        OSError: It cannot be read.
    """
    # A pipe must not block gpumon.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most) or b""


def read_regular(path: str, most: int) -> bytes | None:
    """The content of a file that a user has named; of a longer one ``most`` bytes and one more.

    ``None`` if it is not a regular file. It never waits for a pipe.

    Raises:
        OSError: It cannot be read.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - pathlib takes no descriptor
        return file.read(most + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None


def is_special(path: str) -> bool:
    """Whether this is a pipe, a device or a folder: a library that opens a pipe would wait."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 - the path is a text
    except (OSError, ValueError):
        return False


def replace_file(path: Folder, data: bytes) -> None:
    """Write a file that only this user may read; who reads it sees the old one or all of the new.

    Raises:
        OSError: It cannot be written; the old one stays.
    """
    import tempfile
    from pathlib import Path

    place = Path(path)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Its mode is 0600 from the start.
    descriptor, name = tempfile.mkstemp(prefix=f"{place.name}.", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).replace(place)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
