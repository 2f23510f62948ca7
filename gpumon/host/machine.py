"""Reads CPU use, memory, load and network adapters of the machine.

psutil is not used: its values are the same, but the first sample has them, and importing it takes
22 ms.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumon.host.network_watch import NetworkWatch
from gpumon.host.procfs import in_initial_pid_namespace, read_file
from gpumon.model.snapshot import Host
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from gpumon.system.system import System

_IDLE, _IOWAIT, _GUEST = 3, 4, 8
"""Positions in a line of ``/proc/stat``: proc_stat(5)."""
_LINE, _MOST_BYTES = 512, 2**16
"""More than the length of that line, and of ``/proc/meminfo``."""


class MachineReader:
    """Reads the machine repeatedly.

    The kernel generates ``/proc/stat`` for every read, which takes milliseconds with hundreds of
    cores, so it should not be read more than once a second.

    Args:
        system: The operating system that is read.
    """

    def __init__(self, system: System = THIS_SYSTEM) -> None:
        self._proc = system.proc
        self._network = NetworkWatch(system)
        self._busy: float | None = None
        self._total = 0.0
        self._cpu_percent: float | None = None

    @property
    def name(self) -> str:
        """Host name."""
        return os.uname().nodename

    def read(self) -> Host:
        """The machine now, without its driver.

        The first reading has no ``cpu_percent`` and no network adapters.
        """
        total, used = self._memory()
        return Host(
            name=self.name,
            cpu_percent=self._measure_cpu(),
            cpu_count=os.cpu_count(),
            load=_load(),
            memory_total=total,
            memory_used=used,
            in_container=not in_initial_pid_namespace(self._proc),
            nics=self._network.newest(),
        )

    def _measure_cpu(self) -> float | None:
        """Percent since the previous reading."""
        try:
            # "cpu  user nice system idle iowait irq softirq steal guest guest_nice", in ticks.
            line = read_file(f"{self._proc}/stat", _LINE).partition(b"\n")[0]
        except OSError:
            return None
        ticks = [int(word) for word in line.split()[1:]]
        if len(ticks) < _GUEST:
            return None
        # Guest time is already included in user and nice: account_guest_time() of the kernel.
        total = sum(ticks[:_GUEST])
        busy = total - ticks[_IDLE] - ticks[_IOWAIT]
        if self._busy is not None and total > self._total:
            share = (busy - self._busy) / (total - self._total)
            # iowait may decrease: proc_stat(5).
            self._cpu_percent = min(100.0, max(0.0, share * 100))
        self._busy, self._total = busy, total
        return self._cpu_percent

    def _memory(self) -> tuple[int | None, int | None]:
        """Total and used bytes."""
        try:
            lines = read_file(f"{self._proc}/meminfo", _MOST_BYTES).splitlines()
        except OSError:
            return None, None
        # "MemTotal:       16384000 kB", of 1024 bytes each.
        words = [line.split() for line in lines]
        sizes = {line[0].rstrip(b":"): line[1] for line in words if len(line) > 1}
        total, available = sizes.get(b"MemTotal"), sizes.get(b"MemAvailable")
        if total is None:
            return None, None
        whole = int(total) * 1024
        # In a container, the total may be its own while the available memory is the machine's.
        return whole, None if available is None else max(0, whole - int(available) * 1024)


def _load() -> tuple[float, float, float] | None:
    try:
        return os.getloadavg()
    except OSError:
        return None
