"""One GPU of a DRM driver: its values, its processes, and whether it responds."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from gpumon.host.pci import read_word
from gpumon.makers.backend import (
    COMPUTE,
    DRIVER_FIELDS,
    EVERY_SECOND,
    GOLDEN,
    GRAPHICS,
    KEPT_SECONDS,
    PERIOD,
    REASON_OF_STATUS,
    Answers,
    BackendGpu,
    ListedProcess,
    joined_type,
)
from gpumon.makers.drm.attributes import Attributes, GpuLostError
from gpumon.model.metrics import Tier
from gpumon.model.processes import GpuUse
from gpumon.model.snapshot import GPU_METRICS, GpuStatus, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.makers.drm.cards import DrmCard
    from gpumon.makers.drm.clients import Client
    from gpumon.makers.source import CallWatch
    from gpumon.system.system import Clock


class Engines(Struct, frozen=True):
    """The engines of a driver by their meaning. A name is the driver's in ``fdinfo``."""

    graphics: tuple[str, ...]  # Engines that draw, and may compute too.
    compute: tuple[str, ...]  # Engines that only compute.
    encoder: tuple[str, ...] = ()  # Engines that only encode video.
    decoder: tuple[str, ...] = ()  # Engines that only decode video.


class ProcessUse(Struct, frozen=True):
    """The use that one process makes of one GPU. ``None`` is unknown."""

    # A subset of ``C`` and ``G``; empty if nothing indicates either.
    types: frozenset[str] = frozenset()
    memory: int | None = None  # Bytes.
    sm: float | None = None  # Percent of the busiest of the engines that draw or compute.
    encoder: float | None = None  # Percent of the video encoder.
    decoder: float | None = None  # Percent of the video decoder.


def uses_of(
    clients: Iterable[Client], engines: Engines, regions: tuple[str, ...]
) -> dict[int, ProcessUse]:
    """The use of one GPU by PID.

    Args:
        clients: The clients of the GPU.
        engines: The engines of its driver.
        regions: Prefixes of the memory regions that count: ``vram`` is ``vram0`` too.
    """
    by_pid: dict[int, list[Client]] = {}
    for client in clients:
        by_pid.setdefault(client.pid, []).append(client)
    return {pid: _use(its, engines, regions) for pid, its in by_pid.items()}


def resident_bytes(client: Client, regions: tuple[str, ...]) -> int | None:
    """Bytes of a client in some regions: resident ones where they are known, else all."""
    table = client.usage.resident or client.usage.memory
    sizes = [size for name, size in table.items() if name.startswith(regions)]
    return sum(sizes) if sizes else None


def busy_percent(clients: Iterable[Client], names: tuple[str, ...]) -> float | None:
    """Percent of the busiest of some engines, all clients together; ``None`` if unknown."""
    totals: dict[str, float] = {}
    known = False
    for client in clients:
        if client.busy is not None:
            known = True
            for name in names:
                totals[name] = totals.get(name, 0.0) + client.busy.get(name, 0.0)
    return min(100.0, max(totals.values(), default=0.0)) if known and names else None


def _use(clients: list[Client], engines: Engines, regions: tuple[str, ...]) -> ProcessUse:
    sizes = [size for client in clients if (size := resident_bytes(client, regions)) is not None]
    types = set()
    for client in clients:
        if _has_used(client, engines.graphics):
            types.add(GRAPHICS)
        if _has_used(client, engines.compute):
            types.add(COMPUTE)
    return ProcessUse(
        types=frozenset(types),
        memory=sum(sizes) if sizes else None,
        sm=busy_percent(clients, engines.graphics + engines.compute),
        encoder=busy_percent(clients, engines.encoder),
        decoder=busy_percent(clients, engines.decoder),
    )


def _has_used(client: Client, names: tuple[str, ...]) -> bool:
    usage = client.usage
    return any(
        usage.engine_ns.get(name) or usage.cycles.get(name) or usage.percent.get(name)
        for name in names
    )


def list_processes(
    uses: Sequence[tuple[str, int, Mapping[int, ProcessUse]]],
) -> dict[int, ListedProcess]:
    """The processes on all GPUs.

    Args:
        uses: UUID and index of each GPU, in index order, with the uses by PID.
    """
    types: dict[int, set[str]] = {}
    listed: dict[int, list[GpuUse]] = {}
    for uuid, index, by_pid in uses:
        for pid, use in by_pid.items():
            types.setdefault(pid, set()).update(use.types)
            listed.setdefault(pid, []).append(
                GpuUse(
                    gpu_uuid=uuid,
                    gpu_index=index,
                    memory_used=use.memory,
                    sm=_whole(use.sm),
                    encoder=_whole(use.encoder),
                    decoder=_whole(use.decoder),
                )
            )
    return {
        # A process that has only opened the GPU is most probably a display's.
        pid: ListedProcess(joined_type(types[pid]) or GRAPHICS, tuple(its))
        for pid, its in listed.items()
    }


def _whole(percent: float | None) -> int | None:
    return None if percent is None else round(percent)


_STATIC = {metric.field for metric in GPU_METRICS if metric.tier is Tier.STATIC}

_SLEEPS = ("suspended", "suspending")
"""States of the runtime power management in which reading wakes the GPU, see
``Documentation/ABI/testing/sysfs-devices-power``."""


class DrmAnswers(Answers):
    """The fields of ``Gpu``; a known value outlives passing errors.

    All but ``fields`` are not supported.
    """

    def __init__(self, fields: frozenset[str], clock: Clock) -> None:
        super().__init__(DRIVER_FIELDS)
        self._monotonic = clock.monotonic
        self._fields = fields
        self._failing_since: dict[str, float] = {}
        others = tuple(name for name in DRIVER_FIELDS if name not in fields)
        self.miss(others, Unknown.NOT_SUPPORTED)

    def put(self, field: str, value: object) -> None:
        """Set a value; an ``Unknown`` says why there is none.

        A known value stays for some seconds where the reason is ``NO_ANSWER``: passing errors are
        common while the firmware of a GPU is busy.
        """
        if not isinstance(value, Unknown):
            self.values[field] = value
            self._failing_since.pop(field, None)
            self.found((field,))
        elif self.unknown.get(field) is not value and not (
            value is Unknown.NO_ANSWER and self._is_kept(field)
        ):
            self.miss((field,), value)

    def lose(self, reason: Unknown) -> None:
        """Set all values that can change to unknown, except those that are not supported."""
        self._failing_since = {}
        moving = self._fields - _STATIC
        supported = [name for name in moving if self.unknown.get(name) is not Unknown.NOT_SUPPORTED]
        self.miss(tuple(supported), reason)

    def forget(self, reason: Unknown) -> None:
        """Remove a reason that does not apply any more: the values are not read yet."""
        self.found(tuple(name for name, why in self.unknown.items() if why is reason))

    def _is_kept(self, field: str) -> bool:
        now = self._monotonic()
        since = self._failing_since.setdefault(field, now)
        return self.values[field] is not None and now - since < KEPT_SECONDS


class DrmGpu(BackendGpu):
    """A GPU. A maker's subclass reads its values with ``attributes`` into ``answers``.

    The ``read_...`` methods run only while the GPU is awake, and may raise ``GpuLostError``. In
    ``__init__`` a subclass may read only what wakes no GPU: PCI IDs and the like, with
    ``host.pci.read_word``, as ``attributes`` needs the UUID.

    Attributes:
        fields: Names of the fields of ``Gpu`` that the subclass sets.
        engines: Engines of the driver, for its processes.
        regions: Prefixes of the memory regions in ``fdinfo`` that count as memory of this GPU.
        card: The card.
        integrated: Whether it is part of the processor.
        attributes: Its files.
        uses: The use that processes make of it, by PID.
        present: Whether the kernel lists it now.
    """

    fields: ClassVar[frozenset[str]]
    engines: Engines
    regions: tuple[str, ...] = ("vram",)
    answers: DrmAnswers
    processes_unknown: Unknown | None = Unknown.NOT_READ

    def __init__(
        self, card: DrmCard, uuid: str, calls: CallWatch, clock: Clock, *, integrated: bool
    ) -> None:
        answers = DrmAnswers(self.fields | _COMMON, clock)
        super().__init__(uuid, 0, clock, answers)
        self.card = card
        self.integrated = integrated
        self.attributes = Attributes(card.folder, uuid, calls)
        self.uses: Mapping[int, ProcessUse] = {}
        self.present = True
        self.may_sleep = True
        self._begun = False
        self._touched = True
        self._details_at = self._slow_at = 0.0
        self.answers.put("pci_bus_id", card.bus_id)
        self.answers.put("memory_unified", integrated)
        minor = card.render_minor
        self.answers.put("minor_number", Unknown.NOT_SUPPORTED if minor is None else minor)

    # What a maker reads

    def read_once(self) -> None:
        """Read values that never change. Called when the GPU is found, wakes or comes back."""

    @abstractmethod
    def read_fast(self) -> None:
        """Read the values of every sample."""

    def read_details(self) -> None:
        """Read the values of every second, or of every sample if a listener keeps all values."""

    def read_slow(self) -> None:
        """Read the values of every two seconds."""

    def uses_of(self, clients: list[Client], *, complete: bool) -> dict[int, ProcessUse]:
        """The use that processes make of this GPU.

        A maker's subclass may set values of the GPU from it.

        Args:
            clients: The clients of this GPU.
            complete: Whether these are all clients on the machine.
        """
        del complete
        return uses_of(clients, self.engines, self.regions)

    # Reading

    def read(self, now: float, *, full: bool) -> None:
        """Read what is due.

        Raises:
            GpuLostError: The GPU is gone.
            CallGivenUpError: A read of it hung and was given up.
        """
        self._touched = True
        self.attributes.begin_pass()
        if not self._begun:
            self.read_once()
        details = not self._begun or full or now >= self._details_at
        slow = not self._begun or now >= self._slow_at
        self.read_fast()
        if details:
            self.read_details()
            self._details_at = now + EVERY_SECOND
        if slow:
            self.read_slow()
            self._read_displays()
            moment = self.index * GOLDEN % 1 * PERIOD
            self._slow_at = now + PERIOD - (now - moment) % PERIOD
        if self.attributes.all_failed:
            raise GpuLostError
        self._begun = True
        self.sampled_at = self.clock.time()
        self.set_status(GpuStatus.OK)

    def put_used(self, used: int | Unknown) -> None:
        """Set the used memory, and the free one by the total."""
        total = self.answers.values["memory_total"]
        free = used
        if total is None:
            free = self.answers.unknown.get("memory_total", Unknown.NOT_SUPPORTED)
        elif isinstance(used, int):
            free = max(0, total - used)
        self.answers.put("memory_used", used)
        self.answers.put("memory_free", free)

    def set_status(self, status: GpuStatus) -> None:
        """See ``BackendGpu.set_status``; also forget reasons that no longer apply."""
        if status is not self.status and self.status in (GpuStatus.ASLEEP, GpuStatus.LOST):
            self.answers.forget(REASON_OF_STATUS[self.status])
        super().set_status(status)

    def _read_displays(self) -> None:
        """Read whether a monitor is connected, and whether one is driven.

        The kernel answers from memory and asks no monitor: ``status_show()`` and
        ``enabled_show()`` in its ``drm_sysfs.c``.
        """
        node = self.card.node
        connected = driven = False
        for name in self.attributes.folders(f"drm/{node}"):
            if name.startswith(f"{node}-"):
                # Not as attributes, which stay open: an output of a hub can vanish and come back.
                output = f"{self.card.folder}/drm/{node}/{name}"
                connected |= read_word(f"{output}/status") == "connected"
                driven |= read_word(f"{output}/enabled") == "enabled"
        self.answers.put("display_mode", connected)
        self.answers.put("display_active", driven)

    def check_power(self) -> None:
        """Check whether the kernel may power it down (``power/control`` is ``auto``)."""
        self.may_sleep = read_word(f"{self.card.folder}/power/control") == "auto"

    def asleep(self) -> bool:
        """Whether it is powered down. The kernel answers from memory."""
        if not self.may_sleep:
            return False
        return read_word(f"{self.card.folder}/power/runtime_status") in _SLEEPS

    def stop(self, status: GpuStatus, since: float | None = None) -> None:
        """Stop reading: values that can change become unknown.

        Args:
            status: Its status.
            since: When that began; now by default.
        """
        if status is self.status and not self._touched:
            return
        self._touched = False
        self.set_status(status)
        if since is not None:
            self.status_since = since
        self._begun = False
        self.attributes.close()
        self.attributes.forget_missing()
        reason = REASON_OF_STATUS[status]
        if status is not GpuStatus.NO_ANSWER:
            # A GPU that does not answer keeps its last values.
            self.answers.lose(reason)
        if status is GpuStatus.LOST:
            self.uses = {}
        if status is not GpuStatus.ASLEEP:
            self.processes_unknown = reason


_COMMON = frozenset(
    {
        *("name", "pci_bus_id", "minor_number", "memory_unified"),
        *("display_mode", "display_active"),
    }
)
"""Fields that are set here, or by every subclass."""
