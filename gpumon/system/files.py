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


MIB = 2**20
_MOST_SECRET = 2**16


class FileFault(Exception):  # noqa: N818 - becomes an error of the feature that names the file
    """A file that a user has named cannot be used.

    The message is the predicate of a sentence about the file: ``is not a regular file``.
    """

    def __init__(self, message: str, *, is_absent: bool = False) -> None:
        super().__init__(message)
        self.is_absent = is_absent


def read_bytes(path: str, most: int, what: str) -> bytes:
    """The content of a file that a user has named, of at most so many bytes.

    It never waits for a pipe. ``what`` the file should be is for the message about a larger one.

    Raises:
        FileFault: It cannot be read, is not a regular file or is larger.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | os.O_CLOEXEC)
        try:
            kind = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(kind):
                raise FileFault("is a folder, and should be a file")
            if not stat.S_ISREG(kind):
                raise FileFault("is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(most + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        is_absent = isinstance(error, (FileNotFoundError, NotADirectoryError))
        raise FileFault(f"cannot be read: {error.strerror}", is_absent=is_absent) from None
    except ValueError:
        raise FileFault("is not the name of a file") from None
    if len(data) > most:
        size = f"{most // MIB} MiB" if most >= MIB else f"{most // 1024} KiB"
        raise FileFault(f"is larger than {size}, which no {what} is")
    return data


def read_text(path: str, most: int, what: str) -> str:
    """The text of a file; see ``read_bytes``.

    Raises:
        FileFault: It cannot be used, or is not UTF-8.
    """
    data = read_bytes(path, most, what)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileFault(f"is not UTF-8 from line {line} on: save it as UTF-8") from None


def read_secret(path: str) -> bytes:
    """The content of a file with a password, a token or the value of a header; at most 64 KiB.

    Any permissions will do: containers get such files readable by everybody.

    Raises:
        FileFault: It cannot be used; the message does not have the content.
    """
    return read_bytes(path, _MOST_SECRET, "password or token")


def read_secret_line(path: str) -> str:
    """The only line of a file with a secret, for the header of a request; see ``read_secret``.

    Raises:
        FileFault: It cannot be used, or has something else.
    """
    text = read_secret(path).strip(b" \t\r\n").decode("latin-1")
    # http.client would quote another value in its error.
    if not text or not text.isascii() or not text.isprintable():
        raise FileFault("should have one line, of printable ASCII characters")
    return text


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
