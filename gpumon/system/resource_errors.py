"""What this machine, or this program's share of it, has run out of, where that is why it fails."""

from __future__ import annotations

import errno

_MEMORY = "there is no memory left on this machine, or for this program."
_THREADS = (
    "no thread can be started: this machine, or your limit of processes (ulimit -u) or of memory "
    "(ulimit -v), has no room for one more."
)
_NO_THREAD = "can't start new thread"
"""All that Python says of it, whichever of these it was."""
_NO_ROOM_FOR_A_LIBRARY = ("failed to map segment", "annot allocate memory")
"""The dynamic linker's words, in an ``ImportError``."""


def lack_behind(error: BaseException) -> str | None:
    """What was lacking when this failed, or what led to it, in a sentence for a person.

    Returns:
        ``None`` where nothing was: it fails for a reason of its own.
    """
    seen: BaseException | None = error
    while seen is not None:
        found = _lack(seen)
        if found is not None:
            return found
        # Cleaning up after it may fail in its turn.
        seen = seen.__cause__ or seen.__context__
    return None


def _lack(error: BaseException) -> str | None:
    if isinstance(error, MemoryError):
        return _MEMORY
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return _THREADS
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return _MEMORY
    if isinstance(error, ImportError) and any(it in str(error) for it in _NO_ROOM_FOR_A_LIBRARY):
        return _MEMORY
    return None
