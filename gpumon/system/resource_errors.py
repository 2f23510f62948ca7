"""Detects resource exhaustion behind an exception, and checks or raises the limit of open files."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MEMORY = "there is no memory left on this machine, or for this program."
_THREADS = (
    "no thread can be started: this machine, or your limit of processes (ulimit -u) or of memory "
    "(ulimit -v), has no room for one more."
)
_FILES = (
    "no more files can be opened: your limit of open files (ulimit -n), or this machine's, has no "
    "room for one more."
)
_NO_ERROR = "returned NULL without setting an exception"
_NO_THREAD = "can't start new thread"
"""All that Python says of it, whichever of these it was."""
_NO_ROOM_FOR_A_LIBRARY = ("failed to map segment", "annot allocate memory")
"""The dynamic linker's words, in an ``ImportError`` or an ``OSError`` without a number."""
_NO_FILE_FOR_A_LIBRARY = ("Too many open files", f"Error {errno.EMFILE}", f"Error {errno.ENFILE}")
"""The same; it says the number where it cannot open its own messages."""


def lack_behind(error: BaseException) -> str | None:
    """The resource whose exhaustion caused this failure, in a sentence for the user.

    Returns:
        ``None`` where nothing was: it fails for a reason of its own.
    """
    return next(filter(None, map(_lack, causes(error))), None)


def causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and its causes."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        # Cleaning up after it may fail as well.
        seen = seen.__cause__ or seen.__context__


def is_lack_of_files(error: BaseException) -> bool:
    """Whether the error says that no more files can be opened."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in {errno.EMFILE, errno.ENFILE}
    return isinstance(error, (OSError, ImportError)) and any(
        it in str(error) for it in _NO_FILE_FOR_A_LIBRARY
    )


@contextmanager
def tolerated_lack_of_files(otherwise: Callable[[], None] | None = None) -> Iterator[None]:
    """A block of which the rest is left out if no file can be opened, also not that of a module.

    Args:
        otherwise: Called if the rest was left out.
    """
    try:
        yield
    except (OSError, ImportError) as error:
        if not is_lack_of_files(error):
            raise
        if otherwise is not None:
            otherwise()


def require_files(count: int) -> None:
    """Fail at once, not halfway, if that many more files cannot be opened.

    Raises:
        OSError: See ``lack_behind``.
    """
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(count))
    finally:
        for descriptor in opened:
            os.close(descriptor)


def max_open_files(enough: int) -> int:
    """The soft limit of open files (``ulimit -n``), or ``enough`` if that is less."""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return enough if soft == resource.RLIM_INFINITY else min(soft, enough)


def allow_open_files(more: int) -> None:
    """Raise the soft limit for that many more files, as far as the hard limit allows."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    allowed = soft + more if hard == resource.RLIM_INFINITY else min(soft + more, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))


def _lack(error: BaseException) -> str | None:
    if isinstance(error, MemoryError):
        return _MEMORY
    # Python forgets to raise MemoryError where a call does not fit into its stack.
    if isinstance(error, SystemError) and _NO_ERROR in str(error):
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
