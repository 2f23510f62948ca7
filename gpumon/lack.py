"""What this machine, or this program's share of it, has run out of, where that is why it fails."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY = "there is no memory left on this machine, or for this program."
_THREADS = (
    "no thread can be started: this machine, or your limit of processes (ulimit -u) or of memory "
    "(ulimit -v), has no room for one more."
)
_FILES = (
    "no more files can be opened: your limit of open files (ulimit -n), or this machine's, has no "
    "room for one more."
)
_NO_THREAD = "can't start new thread"
"""All that Python says of it, whichever of these it was."""
_NO_ROOM_FOR_A_LIBRARY = ("failed to map segment", "annot allocate memory")
"""The dynamic linker's words, in an ``ImportError`` or an ``OSError`` without a number."""
_NO_FILE_FOR_A_LIBRARY = ("Too many open files", f"Error {errno.EMFILE}", f"Error {errno.ENFILE}")
"""Likewise; it says the number where it cannot open its own messages."""


def lack_behind(error: BaseException) -> str | None:
    """What was lacking when this failed, or what led to it, in a sentence for a person.

    Returns:
        ``None`` where nothing was: it fails for a reason of its own.
    """
    return next((found for one in causes(error) if (found := _lack(one)) is not None), None)


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what led to it."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        # Cleaning up after it may fail in its turn.
        seen = seen.__cause__ or seen.__context__


def is_lack_of_files(error: BaseException) -> bool:
    """Whether it says that no more files can be opened."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in {errno.EMFILE, errno.ENFILE}
    return isinstance(error, (OSError, ImportError)) and any(
        it in str(error) for it in _NO_FILE_FOR_A_LIBRARY
    )


def require_files(count: int) -> None:
    """Fail at once where so many more files cannot be opened, and not halfway.

    Raises:
        OSError: See ``lack_behind``.
    """
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(count))
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _lack(error: BaseException) -> str | None:
    if isinstance(error, MemoryError):
        return _MEMORY
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return _THREADS
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return _MEMORY
    if is_lack_of_files(error):
        return _FILES
    if isinstance(error, ImportError) and any(it in str(error) for it in _NO_ROOM_FOR_A_LIBRARY):
        return _MEMORY
    return None
