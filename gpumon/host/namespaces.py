"""Detects whether this program runs in the machine's initial PID namespace."""

from __future__ import annotations

import os

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""``PROC_PID_INIT_INO`` of the kernel's ``include/linux/proc_ns.h``."""


def in_initial_pid_namespace(proc: str = "/proc") -> bool:
    """Whether this program runs in the machine's initial PID namespace.

    False also if the kernel does not say: a process without a name is better than one with the name
    of another.

    Args:
        proc: Where the process file system is mounted.
    """
    try:
        inode = os.stat(f"{proc}/self/ns/pid").st_ino  # noqa: PTH116 - pathlib is not imported before the first frame
        return inode == _INITIAL_PID_NAMESPACE
    except OSError:
        return False
