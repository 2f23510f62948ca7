"""Random access to a log file, compressed or not.

Compressed files are decompressed to disk, with a size limit, because a small file may expand to any
size.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from gpumon.recording.recording import RecordingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedIOBase
    from pathlib import Path

_BLOCK = 2**18
_PIECE = 64
MOST_UNPACKED = 2**32
"""Bytes of a file that are unpacked at most."""
FREE_SHARE = 4
"""A decompressed file may take this fraction (1/n) of the free space."""


class OpenFile(NamedTuple):
    """A file to read, and what is wrong with its compressed data; ``None`` if nothing is."""

    file: BinaryIO
    flaw: str | None


def is_packed(path: Path) -> bool:
    """Whether a file is compressed, by its name."""
    return path.suffix in (".gz", ".zst")


def open_file(path: Path, stop: Callable[[], bool] = lambda: False) -> OpenFile:
    """Open a file for random access, decompressed if necessary.

    A compressed file is decompressed completely, to an unnamed file on disk. If the data is
    truncated or corrupt, the part before it is available.

    Args:
        path: The file.
        stop: Whether to abort; called during decompression.

    Raises:
        RecordingError: It cannot be opened, is too large when decompressed, or was aborted.
    """
    file = _open(path)
    if not is_packed(path):
        return OpenFile(file, None)
    with _readable(path), file:
        unpacked = _nameless()
        try:
            flaw = _unpack(file, unpacked, path, stop)
            unpacked.flush()
            if flaw is not None and not unpacked.tell():
                raise _undecompressible(path)
        except BaseException:
            unpacked.close()
            raise
        return OpenFile(unpacked, flaw)


def _unpack(file: BinaryIO, to: BinaryIO, path: Path, stop: Callable[[], bool]) -> str | None:
    """Decompress a file as far as possible; what is wrong with it."""
    space = os.fstatvfs(to.fileno())
    most = min(MOST_UNPACKED, space.f_bavail * space.f_frsize // FREE_SHARE)
    error = None
    # A read that meets a corrupt place loses what it has: the last block is read in small pieces.
    for size in (_BLOCK, _PIECE):
        file.seek(0)
        with _unpacking(file, path) as packed:
            left = to.tell()
            try:
                while left:
                    left -= len(packed.read(min(left, _BLOCK)))
                # Not `read`, which loses the data before a corrupt place.
                while block := packed.read1(size):
                    if stop():
                        raise RecordingError(f"{path} is no longer wanted.")
                    if to.tell() + len(block) > most:
                        raise RecordingError(
                            f"{path} is too long unpacked for the free space, or for a log: unpack"
                            " it where there is room, and open it there."
                        )
                    to.write(block)
            except _broken() as broken:
                error = broken
        if error is None:
            return None
    return None if error is None else _flaw_of(error)


def _undecompressible(path: Path) -> RecordingError:
    return RecordingError(
        f"{path} cannot be decompressed: it is cut short near its beginning, or is no {path.suffix}"
        " file in spite of its name."
    )


def _flaw_of(error: Exception) -> str:
    """What an error of decompression says of the file."""
    if isinstance(error, EOFError):
        # It is still being compressed, or the disk was full, or the transfer was cut short.
        return "ends in the middle of its compressed data"
    if isinstance(error, gzip.BadGzipFile):
        if str(error).startswith(("CRC", "Incorrect length")):
            return "is corrupt: its checksum is wrong, so values in it may be wrong or missing"
        return "has something else after its compressed data, which is left out"
    return "is corrupt: it cannot be decompressed to its end"


def head(path: Path, size: int) -> bytes:
    """The beginning of a file, decompressed if necessary; less if it is shorter or corrupt.

    Raises:
        RecordingError: It cannot be opened.
    """
    with _open(path) as file, _readable(path):
        if not is_packed(path):
            return file.read(size)
        with _unpacking(file, path) as packed:
            found = b""
            try:
                while len(found) < size and (block := packed.read1(size - len(found))):
                    found += block
            except _broken() as error:
                if not found:
                    raise _undecompressible(path) from error
            return found


def _open(path: Path) -> BinaryIO:
    with _readable(path):
        # A pipe or a device would block, or never end.
        if not path.is_file():
            if path.is_dir():
                raise RecordingError(
                    f"{path} is a directory without a history: name a log's .csv file in it."
                )
            path.stat()
            raise RecordingError(f"{path} is no ordinary file: gpumon reads logs from files only.")
        return path.open("rb")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Convert system errors within the block to an error with the file's name.

    Raises:
        RecordingError: A system call failed.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and str(error.filename) == str(path):
            sentence = f"There is no log at {path}: name the file that gpumon log wrote."
        else:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            sentence = f"{path} cannot be read: {why}."
        raise RecordingError(sentence) from error


def _unpacking(file: BinaryIO, path: Path) -> BufferedIOBase:
    if path.suffix == ".gz":
        return cast("BufferedIOBase", gzip.GzipFile(fileobj=file))
    from gpumon.system.zstandard import zstd

    return cast("BufferedIOBase", zstd.ZstdFile(file))


def _broken() -> tuple[type[Exception], ...]:
    """The exceptions for a corrupt compressed file; zstd's only if it was imported."""
    module = sys.modules.get("gpumon.system.zstandard")
    broken = (EOFError, zlib.error, gzip.BadGzipFile)
    return broken if module is None else (*broken, module.zstd.ZstdError)


def _nameless() -> BinaryIO:
    # A large temporary file must not be where it takes memory, as /tmp often does.
    directory = None if "TMPDIR" in os.environ else "/var/tmp"  # noqa: S108 - made without a name
    if directory is not None and not os.access(directory, os.W_OK):
        directory = None
    return cast("BinaryIO", tempfile.TemporaryFile(dir=directory))
