"""Whether a PID that the driver names means the same process to this program.

Inside a container it may not: older drivers speak in the host's numbers there, and a stranger's
number can be that of a process here.
"""

from __future__ import annotations

import os
import re

from msgspec import Struct

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""``PROC_PID_INIT_INO`` of the kernel's ``include/linux/proc_ns.h``."""

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*")

# The first releases in which each of the two calls, made inside a container, speaks in the
# container's own numbers. Releases in between speak both ways at once.
_PROCESSES_FROM = (535, 113)
_UTILIZATION_FROM = (570, 86)


class PidTrust(Struct, frozen=True):
    """Which of the driver's PIDs are in this program's own PID name space.

    Attributes:
        processes: Those of the lists of running processes.
        utilization: Those of the per-process utilisation. Processes of other containers are in
            it under the numbers of *their* host even so: believe only PIDs that are in the lists.
    """

    processes: bool
    utilization: bool


def pid_trust(driver_version: str | None, initial_namespace: bool) -> PidTrust:
    """Whether the driver's PIDs can be looked up here.

    Args:
        driver_version: Such as ``570.124.06``; unknown or strange versions are not trusted.
        initial_namespace: Whether this program runs in the machine's first PID name space, where
            the driver's numbers are right whatever its version.
    """
    if initial_namespace:
        return PidTrust(processes=True, utilization=True)
    match = _VERSION.fullmatch(driver_version or "")
    if match is None:
        return PidTrust(processes=False, utilization=False)
    version = int(match[1]), int(match[2])
    return PidTrust(processes=version >= _PROCESSES_FROM, utilization=version >= _UTILIZATION_FROM)


def in_initial_pid_namespace(proc: str = "/proc") -> bool:
    """Whether this program runs in the machine's first PID name space.

    False also where the kernel will not say: a process then stays without a name, which is better
    than bearing a stranger's.

    Args:
        proc: Where the process file system is mounted.
    """
    try:
        inode = os.stat(f"{proc}/self/ns/pid").st_ino  # noqa: PTH116 - before the first picture
        return inode == _INITIAL_PID_NAMESPACE
    except OSError:
        return False
