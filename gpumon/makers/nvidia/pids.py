"""Whether NVML reports PIDs of this program's PID namespace.

In a container, older drivers report PIDs of the host. The same number can then be another process
here.
"""

from __future__ import annotations

import re

from msgspec import Struct

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*")

# The first releases in which each of the two calls reports the container's own PIDs when it is made
# in a container. Releases in between mix both.
_PROCESSES_FROM = (535, 113)
_UTILIZATION_FROM = (570, 86)


class PidTrust(Struct, frozen=True):
    """Which of NVML's PIDs are in this program's PID namespace.

    Attributes:
        processes: Those of the lists of running processes.
        utilization: Those of the per-process utilization. It also contains processes of other
            containers, with PIDs of *their* namespace: use only PIDs that are in the lists.
    """

    processes: bool
    utilization: bool


def pid_trust(driver_version: str | None, initial_namespace: bool) -> PidTrust:
    """Whether the driver's PIDs can be looked up here.

    Args:
        driver_version: Such as ``570.124.06``; unknown or malformed versions are not trusted.
        initial_namespace: Whether this program runs in the machine's initial PID namespace, where
            the driver's PIDs are right in every version.
    """
    if initial_namespace:
        return PidTrust(processes=True, utilization=True)
    match = _VERSION.fullmatch(driver_version or "")
    if match is None:
        return PidTrust(processes=False, utilization=False)
    version = int(match[1]), int(match[2])
    return PidTrust(processes=version >= _PROCESSES_FROM, utilization=version >= _UTILIZATION_FROM)
