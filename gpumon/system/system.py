"""What the package takes from the operating system: the kernel's file systems, and the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.system.clock import SystemClock

if TYPE_CHECKING:
    from gpumon.system.clock import Clock


class System(Struct, frozen=True):
    """The operating system that is read; tests have trees of files and a clock of their own."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    clock: Clock = SystemClock()


THIS_SYSTEM = System()
