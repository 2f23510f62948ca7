"""The processes to wait for, held so that a reused PID is not mistaken for one of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpumon.host.handle import Handle
from gpumon.host.procfs import started_after_boot
from gpumon.model.processes import ProcessId
from gpumon.system.resource_errors import allow_open_files
from gpumon.system.system import THIS_SYSTEM
from gpumon.system.users import user_name
from gpumon.text.formatting import duration, printable

if TYPE_CHECKING:
    from gpumon.system.system import System


class WaitedProcess(Handle):
    """The process that has a PID now, to wait for. Its errors are those of ``Handle``."""

    def __init__(self, pid: int, system: System) -> None:
        super().__init__(ProcessId(pid, None), system)
        seen = self.read()
        if seen is None or seen[0].ended:
            self.close()
            raise ProcessLookupError
        stat, uid = seen
        self.id = stat.id
        # For the user, safe to print: ``ann's python (4711)``.
        self.words = f"{printable(user_name(uid))}'s {printable(stat.name)} ({pid})"

    @property
    def age(self) -> str:
        """How long it has run."""
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        return duration(since_boot - started_after_boot(self.id))


def hold(pid: int, system: System = THIS_SYSTEM) -> WaitedProcess | None:
    """Open a handle on a process; ``None`` if it does not exist, is hidden or is a zombie.

    Raises:
        OSError: No more files can be opened.
    """
    allow_open_files(1)
    try:
        return WaitedProcess(pid, system)
    except ProcessLookupError:
        return None
