"""How many files this program may open (``ulimit -n``)."""

from __future__ import annotations

from contextlib import suppress


def max_open_files(enough: int) -> int:
    """The soft limit of open files, or ``enough`` if that is less."""
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
