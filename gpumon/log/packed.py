"""A log's file to read at any place, packed or not.

What is packed is unpacked to disk, within bounds: a small file may hold any number of bytes.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
import threading
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast
from weakref import WeakValueDictionary

from gpumon.tape import TapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedIOBase
    from pathlib import Path
    from typing import BinaryIO

_BLOCK = 2**18
MOST_UNPACKED = 2**32
"""Bytes of a file that are unpacked at most."""
FREE_SHARE = 4
"""One part in so many of the free space may be taken by a file that is unpacked."""


def is_packed(path: Path) -> bool:
    """Whether a file is compressed, by its name."""
    return path.suffix in (".gz", ".zst")


class Opener:
    """Opens files; what was unpacked once serves all who have it open. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._unpacked: WeakValueDictionary[tuple[int, ...], BinaryIO] = WeakValueDictionary()

    def stop(self) -> None:
        """Unpack nothing any more, nor what is being unpacked."""
        self._stopping.set()

    def open(self, path: Path) -> BinaryIO:
        """See ``open_file``."""
        if not is_packed(path):
            return open_file(path)
        # Whoever wants the same file waits for it here.
        with self._lock:
            with _readable(path):
                found = path.stat()
            key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            shared = self._unpacked.get(key)
            try:
                again = None if shared is None else os.fdopen(os.dup(shared.fileno()), "rb")
            except ValueError:
                # It was closed meanwhile.
                again = None
            file = again or open_file(path, self._stopping.is_set)
            self._unpacked[key] = file
            return file


def open_file(path: Path, stop: Callable[[], bool] = lambda: False) -> BinaryIO:
    """A file, unpacked if need be, to be read at any place.

    What was packed is unpacked whole, to a file on disk that has no name. Where that breaks off,
    what came before is there.

    Args:
        path: The file.
        stop: Whether it is no longer wanted; asked while it is being unpacked.

    Raises:
        TapeError: It cannot be opened, is too long unpacked, or is no longer wanted.
    """
    file = _open(path)
    if not is_packed(path):
        return file
    with _readable(path), file, _unpacking(file, path) as packed:
        unpacked = _nameless()
        try:
            _unpack(packed, unpacked, path, stop)
            unpacked.flush()
        except BaseException:
            unpacked.close()
            raise
        return unpacked


def _unpack(packed: BufferedIOBase, to: BinaryIO, path: Path, stop: Callable[[], bool]) -> None:
    space = os.fstatvfs(to.fileno())
    most = min(MOST_UNPACKED, space.f_bavail * space.f_frsize // FREE_SHARE)
    try:
        # Not `read`, which loses what came before a broken place.
        while block := packed.read1(_BLOCK):
            if stop():
                raise TapeError(f"{path} is no longer wanted.")
            most -= len(block)
            if most < 0:
                raise TapeError(
                    f"{path} is too long unpacked for the free space, or for a log: unpack it where"
                    " there is room, and open it there."
                )
            to.write(block)
    except _broken():
        # A file that is still being packed, or whose disk was full, ends early.
        pass


def head(path: Path, size: int) -> bytes:
    """The beginning of a file, unpacked if need be; less where it is shorter or broken.

    Raises:
        TapeError: It cannot be opened.
    """
    with _open(path) as file, _readable(path):
        if not is_packed(path):
            return file.read(size)
        with _unpacking(file, path) as packed:
            found = b""
            try:
                while len(found) < size and (block := packed.read1(size - len(found))):
                    found += block
            except _broken():
                pass
            return found


def _open(path: Path) -> BinaryIO:
    with _readable(path):
        # A pipe or a device would wait, or never end.
        if not path.is_file():
            if path.is_dir():
                raise TapeError(f"{path} is a directory: name the log's .csv file in it.")
            path.stat()
            raise TapeError(f"{path} is no ordinary file: gpumon reads logs from files only.")
        return path.open("rb")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """What the system refuses within the block is told with the file's name.

    Raises:
        TapeError: It refused something.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and str(error.filename) == str(path):
            sentence = f"There is no log at {path}: name the file that gpumon log wrote."
        else:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            sentence = f"{path} cannot be read: {why}."
        raise TapeError(sentence) from error


def _unpacking(file: BinaryIO, path: Path) -> BufferedIOBase:
    if path.suffix == ".gz":
        return cast("BufferedIOBase", gzip.GzipFile(fileobj=file))
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return cast("BufferedIOBase", zstd.ZstdFile(file))


def _broken() -> tuple[type[Exception], ...]:
    """What a file that is no whole packed one raises; zstd's only where it was imported."""
    zstd = sys.modules.get("compression.zstd") or sys.modules.get("backports.zstd")
    broken = (EOFError, zlib.error, gzip.BadGzipFile)
    return broken if zstd is None else (*broken, zstd.ZstdError)


def _nameless() -> BinaryIO:
    # A large temporary file goes where it does not take memory, as /tmp often does.
    directory = None if "TMPDIR" in os.environ else "/var/tmp"  # noqa: S108 - made without a name
    if directory is not None and not os.access(directory, os.W_OK):
        directory = None
    return cast("BinaryIO", tempfile.TemporaryFile(dir=directory))
