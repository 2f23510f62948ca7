"""Which GPUs schedulers have given to jobs of this machine."""

from __future__ import annotations

import os
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING

from gpumon.allocations.scheduler import unknown
from gpumon.model.allocations import KUBERNETES, LSF, SLURM
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpumon.allocations.scheduler import Scheduler
    from gpumon.model.allocations import Allocation
    from gpumon.model.snapshot import Snapshot
    from gpumon.system.system import Clock

_PATIENCE = 25.0
"""Seconds. Slurm's ``scontrol`` itself gives up after 10 to 20 s when the controller is down."""
_LEAST_PATIENCE = 1.0
"""Seconds that a question gets at least: less says nothing about a scheduler."""
_KUBELET_VARIABLE = "GPUMON_KUBELET_SOCKET"
"""The environment variable that names the kubelet's socket, where its root is another folder."""
_KUBELET_SOCKETS = (
    "/var/lib/kubelet/pod-resources/kubelet.sock",
    # k0s and MicroK8s.
    "/var/lib/k0s/kubelet/pod-resources/kubelet.sock",
    "/var/snap/microk8s/common/var/lib/kubelet/pod-resources/kubelet.sock",
)


class Allocations:
    """Finds repeatedly what schedulers have given to jobs here. Not thread-safe.

    Args:
        schedulers: Makes each scheduler, by name. Called at the first look.
        clock: The clock.
    """

    def __init__(
        self, schedulers: Mapping[str, Callable[[], Scheduler]], clock: Clock = THIS_SYSTEM.clock
    ) -> None:
        self._makers, self._clock = schedulers, clock
        self.unknown = tuple(map(unknown, schedulers))  # What is known before the first look.

    @cached_property
    def _schedulers(self) -> Sequence[Scheduler]:
        return [make() for make in self._makers.values()]

    def find(
        self, snapshot: Snapshot, patience: float = _PATIENCE
    ) -> tuple[tuple[Allocation, ...], float]:
        """Look once, and ask each scheduler at most one question; see ``Scheduler.find``."""
        found: list[Allocation] = []
        pause = inf
        for scheduler in self._schedulers:
            allocations, seconds = scheduler.find(snapshot, patience)
            found += allocations
            pause = min(pause, seconds)
        return tuple(found), pause

    def settle(self, snapshot: Snapshot, seconds: float) -> tuple[Allocation, ...]:
        """Look until nothing is to be asked now, for about so many seconds at most."""
        deadline = self._clock.monotonic() + seconds
        while True:
            left = deadline - self._clock.monotonic()
            found, pause = self.find(snapshot, max(_LEAST_PATIENCE, left))
            if pause > 0 or self._clock.monotonic() >= deadline:
                return found


def local_allocations() -> Allocations | None:
    """What schedulers have given to jobs here; ``None`` where there is no scheduler to ask."""
    schedulers: dict[str, Callable[[], Scheduler]] = {}
    if _is_installed("scontrol"):
        schedulers[SLURM] = _slurm
    if _is_installed("bjobs"):
        schedulers[LSF] = _lsf
    named = os.environ.get(_KUBELET_VARIABLE)
    sockets = (named,) if named else _KUBELET_SOCKETS
    socket = next((path for path in sockets if os.access(path, os.W_OK)), None)
    if socket is not None:
        schedulers[KUBERNETES] = partial(_kubernetes, socket)
    return Allocations(schedulers) if schedulers else None


def _is_installed(program: str) -> bool:
    # ``shutil.which`` takes longer to import than this takes.
    return any(os.access(f"{folder}/{program}", os.X_OK) for folder in os.get_exec_path())


def _slurm() -> Scheduler:
    # Schedulers are needed after the first picture only.
    from gpumon.allocations.slurm import SlurmAllocations

    return SlurmAllocations()


def _lsf() -> Scheduler:
    from gpumon.allocations.lsf import LsfAllocations

    return LsfAllocations()


def _kubernetes(socket: str) -> Scheduler:
    from gpumon.allocations.kubernetes import KubernetesAllocations

    return KubernetesAllocations(socket)
