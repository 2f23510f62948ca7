"""One GPU of a DRM driver: its values, and whether it responds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from gpumon.host.power import read_word
from gpumon.model.metrics import GPU_METRICS, Tier
from gpumon.model.snapshot import Gpu, GpuStatus, Unknown
from gpumon.sources.drm.attributes import Attributes, GpuLostError
from gpumon.sources.drm.uses import uses_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.sources.drm.calls import CallWatch
    from gpumon.sources.drm.cards import DrmCard
    from gpumon.sources.drm.clients import Client
    from gpumon.sources.drm.uses import Engines, ProcessUse
    from gpumon.system.clock import Clock

_FIELDS = Gpu.__struct_fields__[Gpu.__struct_fields__.index("mig") + 1 :]
_STATIC = {metric.field for metric in GPU_METRICS if metric.tier is Tier.STATIC}

REASON_OF_STATUS: dict[GpuStatus, Unknown] = {
    GpuStatus.LOST: Unknown.GPU_LOST,
    GpuStatus.ASLEEP: Unknown.ASLEEP,
    GpuStatus.NO_ANSWER: Unknown.NO_ANSWER,
    GpuStatus.NO_PERMISSION: Unknown.NO_PERMISSION,
}

_KEPT_SECONDS = 10.0
"""A value is kept for this time while reading it fails for a passing reason."""

_DETAIL_SECONDS = 0.95
"""A second, less the time that a tick may come early."""

_SLOW_SECONDS = 2.0

_SPREAD = 0.6180339887498949
"""Multiples of this spread the GPUs' slow readings evenly over their period."""

_SLEEPS = ("suspended", "suspending")
"""States of the runtime power management in which reading wakes the GPU, see
``Documentation/ABI/testing/sysfs-devices-power``."""


class Values:
    """The values of a GPU by the name of their field, and the reasons for unknown ones.

    Args:
        fields: The fields that the backend reads; all others are not supported.
        clock: Clock.
    """

    def __init__(self, fields: frozenset[str], clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._fields = fields
        self._values: dict[str, Any] = {}
        self._failing_since: dict[str, float] = {}
        self.unknown: Mapping[str, Unknown] = {
            name: Unknown.NOT_SUPPORTED for name in _FIELDS if name not in fields
        }

    def put(self, field: str, value: object) -> None:
        """Set a value; an ``Unknown`` says why there is none.

        A known value stays for some seconds where the reason is ``NO_ANSWER``: passing errors are
        common while the firmware of a GPU is busy.
        """
        if isinstance(value, Unknown):
            if value is Unknown.NO_ANSWER and self._is_kept(field):
                return
            self._values.pop(field, None)
            if self.unknown.get(field) is not value:
                self.unknown = {**self.unknown, field: value}
        else:
            self._values[field] = value
            self._failing_since.pop(field, None)
            if field in self.unknown:
                self.unknown = {
                    name: reason for name, reason in self.unknown.items() if name != field
                }

    def put_number(self, field: str, value: int | Unknown, unit: int = 1) -> None:
        """Set a whole number that is told in a smaller unit: ``unit`` of those are 1."""
        if isinstance(value, int) and unit != 1:
            value = round(value / unit)
        self.put(field, value)

    def put_fraction(self, field: str, value: int | Unknown, unit: int) -> None:
        """Set a number with a fraction that is told in a smaller unit."""
        self.put(field, value / unit if isinstance(value, int) else value)

    def get(self, field: str) -> object:
        """The value; ``None`` if it is unknown."""
        return self._values.get(field)

    def lose(self, reason: Unknown) -> None:
        """Set all values that can change to unknown, except those that are not supported."""
        self._failing_since = {}
        unknown = dict(self.unknown)
        for name in self._fields - _STATIC:
            self._values.pop(name, None)
            if unknown.get(name) is not Unknown.NOT_SUPPORTED:
                unknown[name] = reason
        self.unknown = unknown

    def forget(self, reason: Unknown) -> None:
        """Remove a reason that does not apply any more: the values are not read yet."""
        self.unknown = {name: why for name, why in self.unknown.items() if why is not reason}

    def as_fields(self) -> dict[str, Any]:
        """The known values."""
        return self._values

    def _is_kept(self, field: str) -> bool:
        now = self._monotonic()
        since = self._failing_since.setdefault(field, now)
        return self._values.get(field) is not None and now - since < _KEPT_SECONDS


class DrmGpu(ABC):
    """A GPU. A maker's subclass reads its values with ``attributes`` into ``values``.

    The ``read_...`` methods run only while the GPU is awake, and may raise ``GpuLostError``. In
    ``__init__`` a subclass may read only what wakes no GPU: PCI IDs and the like, with
    ``host.power.read_word``, as ``attributes`` needs the UUID.

    Attributes:
        fields: Names of the fields of ``Gpu`` that the subclass sets.
        engines: Engines of the driver, for its processes.
        card: The card.
        uuid: Its UUID.
        integrated: Whether it is part of the processor.
        index: Its index among the GPUs of its backend.
        attributes: Its files.
        values: Its values.
        uses: The use that processes make of it, by PID.
        processes_unknown: Why the processes are unknown; ``None`` if they are known.
        present: Whether the kernel lists it now.

    Args:
        card: The card.
        uuid: Its UUID.
        integrated: Whether it is part of the processor.
        calls: Publishes reads that may hang.
        clock: Clock.
    """

    fields: ClassVar[frozenset[str]]
    engines: Engines

    def __init__(
        self, card: DrmCard, uuid: str, calls: CallWatch, clock: Clock, *, integrated: bool
    ) -> None:
        self.card = card
        self.uuid = uuid
        self.integrated = integrated
        self.index = 0
        self.clock = clock
        self.attributes = Attributes(card.folder, uuid, calls)
        self.status = GpuStatus.OK
        self.status_since = clock.time()
        self.sampled_at: float | None = None
        self.uses: Mapping[int, ProcessUse] = {}
        self.processes_unknown: Unknown | None = Unknown.NOT_READ
        self.present = True
        self.may_sleep = True
        self._begun = False
        self._touched = True
        self._details_at = self._slow_at = 0.0
        self.values = Values(self.fields | _COMMON, clock)
        self.values.put("pci_bus_id", card.bus_id)
        self.values.put("memory_unified", integrated)
        minor = card.render_minor
        self.values.put("minor_number", Unknown.NOT_SUPPORTED if minor is None else minor)

    # What a maker reads

    def read_once(self) -> None:  # noqa: B027 - a default, not a missing method
        """Read values that never change. Called when the GPU is found, wakes or comes back."""

    @abstractmethod
    def read_fast(self) -> None:
        """Read the values of every sample."""

    def read_details(self) -> None:  # noqa: B027 - as above
        """Read the values of every second, or of every sample if a listener keeps all values."""

    def read_slow(self) -> None:  # noqa: B027 - as above
        """Read the values of every two seconds."""

    def regions(self) -> tuple[str, ...]:
        """Prefixes of the memory regions in ``fdinfo`` that count as memory of this GPU."""
        return ("vram",)

    def uses_of(self, clients: list[Client], *, complete: bool) -> dict[int, ProcessUse]:
        """The use that processes make of this GPU.

        A maker's subclass may set values of the GPU from it.

        Args:
            clients: The clients of this GPU.
            complete: Whether these are all clients on the machine.
        """
        del complete
        return uses_of(clients, self.engines, self.regions())

    # Reading

    def read(self, now: float, *, closely: bool) -> None:
        """Read what is due.

        Raises:
            GpuLostError: The GPU is gone.
            CallGivenUpError: A read of it hung and was given up.
        """
        self._touched = True
        self.attributes.begin_pass()
        if not self._begun:
            self.read_once()
        details = not self._begun or closely or now >= self._details_at
        slow = not self._begun or now >= self._slow_at
        self.read_fast()
        if details:
            self.read_details()
            self._details_at = now + _DETAIL_SECONDS
        if slow:
            self.read_slow()
            self._read_displays()
            moment = self.index * _SPREAD % 1 * _SLOW_SECONDS
            self._slow_at = now + _SLOW_SECONDS - (now - moment) % _SLOW_SECONDS
        if self.attributes.all_failed:
            raise GpuLostError
        self._begun = True
        self.sampled_at = self.clock.time()
        self._set_status(GpuStatus.OK)

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
        self.values.put("display_mode", connected)
        self.values.put("display_active", driven)

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
        self._set_status(status)
        if since is not None:
            self.status_since = since
        self._begun = False
        self.attributes.close()
        self.attributes.forget_missing()
        reason = REASON_OF_STATUS[status]
        if status is not GpuStatus.NO_ANSWER:
            # A GPU that does not answer keeps its last values.
            self.values.lose(reason)
        if status is GpuStatus.LOST:
            self.uses = {}
        if status is not GpuStatus.ASLEEP:
            self.processes_unknown = reason

    def _set_status(self, status: GpuStatus) -> None:
        if status is not self.status:
            if self.status in (GpuStatus.ASLEEP, GpuStatus.LOST):
                self.values.forget(REASON_OF_STATUS[self.status])
            self.status = status
            self.status_since = self.clock.time()

    def snapshot(self) -> Gpu:
        """The GPU with its current values."""
        unknown = self.values.unknown
        if self.processes_unknown is not None:
            unknown = {**unknown, "processes": self.processes_unknown}
        return Gpu(
            self.index,
            self.uuid,
            self.status,
            self.status_since,
            self.sampled_at,
            unknown,
            **self.values.as_fields(),
        )


_COMMON = frozenset(
    {
        *("name", "pci_bus_id", "minor_number", "memory_unified"),
        *("display_mode", "display_active"),
    }
)
"""Fields that are set here, or by every subclass."""
