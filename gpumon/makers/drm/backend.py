"""The backend of GPUs that a DRM driver of the kernel runs; the makers' backends are subclasses.

One thread reads, each value at its own rate:

- every sample: what changes fast (``DrmGpu.read_fast``);
- every second, or every sample if a listener keeps all values: ``DrmGpu.read_details``;
- every second: the processes (``clients``);
- every two seconds: ``DrmGpu.read_slow``, and whether GPUs were added or removed.

A GPU that is lost, asleep or hangs does not affect the others. Nothing that wakes a sleeping GPU
is read.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from gpumon.makers.backend import (
    PERIOD,
    RETRY_SECONDS,
    DriverInfo,
    GpuBackend,
    Reading,
    pause_after_lists,
)
from gpumon.makers.drm.attributes import GpuLostError
from gpumon.makers.drm.cards import (
    DrmCard,
    bus_order,
    card_of,
    driver_version,
    list_nodes,
    partition_nodes,
)
from gpumon.makers.drm.clients import ClientReader, Node
from gpumon.makers.drm.gpu import ProcessUse, list_processes
from gpumon.makers.source import CallWatch, NoSuchGpuError, SourceError, gpus_there
from gpumon.model.selection import ALL, GpuSelection
from gpumon.model.snapshot import GpuStatus, Trouble
from gpumon.system.system import THIS_SYSTEM, System

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpumon.makers.backend import ListedProcess
    from gpumon.makers.drm.clients import ClientScan
    from gpumon.makers.drm.gpu import DrmGpu


_FORGET_SECONDS = 30.0
"""Seconds after which files that were missing are tried again."""


class DrmBackend(GpuBackend):
    """The GPUs of some DRM drivers.

    A subclass defines ``maker`` and ``new_gpu``, and may define ``known_pids`` and ``add_uses`` for
    processes that are not in ``fdinfo``.
    """

    def __init__(
        self,
        selection: GpuSelection = ALL,
        system: System = THIS_SYSTEM,
        *,
        profiled: bool = False,
    ) -> None:
        super().__init__(selection, system, profiled=profiled)
        self._clock = system.clock
        self._drivers = self.maker.kernel_drivers
        self.calls = self._calls = CallWatch(self._clock)
        self._clients = ClientReader(self._calls, system)
        self._known: dict[str, DrmGpu] = {}
        self._gpus: tuple[DrmGpu, ...] = ()
        self._found: list[tuple[str, str, str]] | None = None
        self._partitions: frozenset[str] = frozenset()
        self._driver = DriverInfo()
        self._listed: Mapping[int, ListedProcess] | None = None
        self._listed_at: float | None = None
        self._lists_due = self._find_due = self._forget_due = 0.0
        self._retry_at: dict[str, float] = {}

    # What a maker defines

    @abstractmethod
    def new_gpu(self, card: DrmCard) -> DrmGpu:
        """A GPU of this backend. May read only what wakes no GPU."""

    def known_pids(self) -> Collection[int]:
        """PIDs that the driver lists otherwise: every scan reads their files."""
        return ()

    def add_uses(self, gpu: DrmGpu, uses: dict[int, ProcessUse]) -> dict[int, ProcessUse]:
        """Add processes that are not in ``fdinfo``, or what it lacks of them.

        Called for each GPU that is awake, once a second, after ``known_pids``.
        """
        del gpu
        return uses

    # The backend

    def open(self) -> None:
        """See ``Source.open``."""
        self._find(self._clock.monotonic())
        if not self._known:
            trouble = self._no_gpu()
            raise SourceError(trouble.sentence, trouble.advice)
        uuids = [gpu.uuid for gpu in self._known.values()]
        missing = self._selection.missing(len(uuids), uuids)
        if missing:
            raise NoSuchGpuError(missing, len(uuids))

    def read(self, *, full: bool = True) -> Reading:
        """See ``GpuBackend.read``."""
        now = self._clock.monotonic()
        if now >= self._find_due:
            self._find(now)
        for gpu in self._gpus:
            self._read_gpu(gpu, now, full=full)
        if now >= self._lists_due:
            self._read_processes(now)
        return Reading(
            time=self._clock.time(),
            gpus=tuple([gpu.snapshot() for gpu in self._gpus]),
            driver=self._driver,
            listed=self._listed,
            listed_at=self._listed_at,
            trouble=None if self._gpus else self._why_empty(),
        )

    @property
    def only_integrated(self) -> bool:
        """See ``GpuBackend.only_integrated``."""
        return all(gpu.integrated for gpu in self._known.values())

    def close(self) -> None:
        """See ``Source.close``."""
        for gpu in self._known.values():
            gpu.attributes.close()

    # GPUs

    def _find(self, now: float) -> None:
        """Find added and removed GPUs; a removed one stays, as lost, with what is known of it."""
        self._find_due = now + PERIOD
        for gpu in self._gpus:
            gpu.check_power()
            if now >= self._forget_due:
                gpu.attributes.forget_missing()
        if now >= self._forget_due:
            self._forget_due = now + _FORGET_SECONDS
        found = list_nodes(self._drivers, self._system.sys)
        if found == self._found:
            return
        known = dict(self._known)
        for gpu in known.values():
            gpu.present = False
        for card in sorted((card_of(*node) for node in found), key=bus_order):
            before = known.get(card.bus_id)
            if before is not None and before.card != card:
                # Another GPU in this slot, or another node or driver of this one.
                before.attributes.close()
                before = None
            known[card.bus_id] = before or self.new_gpu(card)
            known[card.bus_id].present = True
        ordered = sorted(known.values(), key=_order)
        for index, gpu in enumerate(ordered):
            gpu.index = index
            gpu.check_power()
        self._known = {gpu.card.bus_id: gpu for gpu in ordered}
        self._gpus = tuple(gpu for gpu in ordered if self._selection.includes(gpu.index, gpu.uuid))
        self._partitions = partition_nodes(self._drivers, self._system.sys)
        self._describe()
        # Last: if this thread is given up meanwhile, the next one finds them again.
        self._found = found
        self._lists_due = now

    def _describe(self) -> None:
        """Read the versions of the drivers."""
        drivers = sorted({gpu.card.driver for gpu in self._known.values()})
        if not drivers:
            return
        since = self._clock.time() if self._driver.since is None else self._driver.since
        versions = [driver_version(driver, self._system) for driver in drivers]
        self._driver = DriverInfo(version=", ".join(versions), since=since)

    def _no_gpu(self) -> Trouble:
        """There is no GPU of these drivers, and what to do about that."""
        pattern, reports = self._drivers[0], "driver reports"
        if len(self._drivers) > 1:
            pattern, reports = f"-E '{'|'.join(self._drivers)}'", "drivers report"
        return Trouble(
            f"No GPU of {self.maker.name} was found.",
            f"`lspci -nnk -d {self.maker.pci_vendor[2:]}:` lists those of the machine with their "
            f"drivers, and `sudo dmesg | grep {pattern}` shows what the {reports} about them.",
        )

    def _why_empty(self) -> Trouble:
        """Why there is nothing to read."""
        count = len(self._known)
        if count:
            return Trouble("This machine has none of the selected GPUs.", gpus_there(count))
        return self._no_gpu()

    # Reading

    def _read_gpu(self, gpu: DrmGpu, now: float, *, full: bool) -> None:
        """Read one GPU. Raises ``CallGivenUpError``."""
        hanging_since = self._calls.hanging.get(gpu.uuid)
        if hanging_since is not None:
            ago = self._clock.monotonic() - hanging_since
            gpu.stop(GpuStatus.NO_ANSWER, self._clock.time() - ago)
        elif not gpu.present:
            gpu.stop(GpuStatus.LOST)
        elif gpu.status is GpuStatus.LOST and now < self._retry_at.get(gpu.uuid, 0.0):
            pass
        elif gpu.asleep():
            gpu.stop(GpuStatus.ASLEEP)
        else:
            try:
                gpu.read(now, full=full)
            except GpuLostError:
                gpu.stop(GpuStatus.LOST)
                self._retry_at[gpu.uuid] = now + RETRY_SECONDS

    def _read_processes(self, now: float) -> None:
        """Read the processes of all GPUs. Raises ``CallGivenUpError``."""
        began = self._clock.monotonic()
        hanging = self._calls.hanging
        nodes: dict[str, Node | None] = dict.fromkeys(self._partitions)
        for gpu in self._gpus:
            readable = gpu.status is GpuStatus.OK and gpu.uuid not in hanging
            node = Node(gpu.uuid, gpu.card.bus_id, readable)
            nodes[gpu.card.node] = node
            if gpu.card.render_minor is not None:
                nodes[f"renderD{gpu.card.render_minor}"] = node
        scan = self._clients.read(now, nodes, self.known_pids())
        for gpu in self._gpus:
            self._set_uses(gpu, scan)
        self._listed = list_processes([(gpu.uuid, gpu.index, gpu.uses) for gpu in self._gpus])
        self._listed_at = self._clock.time()
        self._lists_due = now + pause_after_lists(self._clock.monotonic() - began)

    def _set_uses(self, gpu: DrmGpu, scan: ClientScan) -> None:
        silent = scan.silent.get(gpu.card.bus_id, ())
        if gpu.status is GpuStatus.OK and gpu.uuid not in self._calls.hanging:
            clients = scan.clients.get(gpu.card.bus_id, [])
            uses = gpu.uses_of(clients, complete=scan.complete and not silent)
            for pid in silent:
                uses.setdefault(pid, ProcessUse())
            gpu.uses = self.add_uses(gpu, uses)
            gpu.processes_unknown = None
        elif gpu.status is GpuStatus.ASLEEP:
            # Who holds it is known; how much of it is known only after waking it.
            gpu.uses = {pid: _asleep(gpu.uses.get(pid)) for pid in sorted(silent)}
            gpu.processes_unknown = None


def _asleep(before: ProcessUse | None) -> ProcessUse:
    return ProcessUse() if before is None else ProcessUse(types=before.types)


def _order(gpu: DrmGpu) -> tuple[bool, tuple[int, str]]:
    """Discrete GPUs first, in the order of the bus."""
    return gpu.integrated, bus_order(gpu.card)
