"""Whether somebody can continue this program once it is stopped."""

from __future__ import annotations

import os

from gpumon.host.procfs import stat_of

_MOST_ANCESTORS = 64


def is_orphaned() -> bool:
    """Whether nobody watches over our process group who could continue it, as a shell does.

    The kernel then ignores the terminal's stop signals (POSIX, orphaned process group), but not
    SIGSTOP: a session leader, as ``ssh -t host gpumon`` starts one, would stay stopped.
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
