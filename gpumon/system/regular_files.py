"""Reads files that a user has named."""

from __future__ import annotations

import os
import stat


def read_regular(path: str, most: int) -> bytes | None:
    """The content of a file, of a longer one ``most`` bytes and one more; never waits for a pipe.

    ``None`` if it is not a regular file.

    Raises:
        OSError: It cannot be read.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - pathlib takes no descriptor
        return file.read(most + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
