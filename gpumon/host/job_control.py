"""Detects whether a shell can continue this program once it is stopped."""

from __future__ import annotations

import os

from gpumon.host.procfs import stat_of

_MOST_ANCESTORS = 64


def is_orphaned() -> bool:
    """Whether no shell could continue our process group (POSIX: orphaned process group).

    The kernel then ignores the terminal's stop signals, but not SIGSTOP: a session leader, as
    started by ``ssh -t host gpumon``, would stay stopped.
    """
    own = above = stat_of("/proc", os.getpid())
    for _ in range(_MOST_ANCESTORS):
        if own is None or above is None:
            break
        parent = stat_of("/proc", above.parent)
        if parent is None or parent.session != own.session:
            return True
        if parent.group != own.group:
            break
        above = parent
    return False
