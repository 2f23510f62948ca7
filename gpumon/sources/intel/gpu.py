"""Reads the values of an Intel GPU.

The files are those of the kernel's ``Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon``,
``sysfs-driver-intel-xe-hwmon``, ``drivers/gpu/drm/i915/gt/intel_gt_sysfs_pm.c``,
``drivers/gpu/drm/xe/xe_gt_freq.c`` and ``xe_gt_throttle.c``.

The kernel does not tell ordinary users how busy a GPU is or how much of its memory is used. Where
all clients on the machine can be read, which needs root, both follow from these. Everybody may know
that it did nothing: how long it was in its idle state.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from gpumon.model.snapshot import Unknown
from gpumon.sources.drm.gpu import DrmGpu
from gpumon.sources.drm.pcie import PcieLink, read_link
from gpumon.sources.drm.uses import Engines, ProcessUse, busy_percent, resident_bytes
from gpumon.sources.intel.files import THROTTLE_REASONS, XE_FILES, i915_files
from gpumon.sources.intel.memory import CardMemory, read_card_memory
from gpumon.sources.intel.names import model_of

if TYPE_CHECKING:
    from gpumon.sources.drm.calls import CallWatch
    from gpumon.sources.drm.cards import DrmCard
    from gpumon.sources.drm.clients import Client
    from gpumon.system.clock import Clock

PROCESSOR_BUS_ID = "0000:00:02.0"
"""Processor graphics are always at this place."""

_MICRO = 1_000_000
_MILLI = 1_000
_MOST_WATTS = 10_000

_IDLE_SHARE = 0.99
"""A GPU that was in its idle state for this share of the time did nothing: the counters of both
ends are whole milliseconds, and reading some registers wakes it for a moment."""

_IDLE_SECONDS = 0.9
"""The shortest time for which that is judged."""

_WINDOW_SECONDS = 1.0
"""Power is the mean of about this time, as on the cards of other makers."""

_BRIDGE = "0x0604"
"""PCI class of a bridge between PCI buses."""

_HIGHEST_MEMORY_CLOCK = "tile0/memory/freq0/max_freq"
"""Only the Data Center GPU Max has it: ``drivers/gpu/drm/xe/xe_vram_freq.c``. None tells the
current clock."""

_ENGINES = {
    "i915": Engines(graphics=("render",), compute=("compute",)),
    "xe": Engines(graphics=("rcs",), compute=("ccs",)),
}
"""The video engines both encode and decode, so neither share is told."""

_REGIONS = {
    ("i915", False): ("local",),
    ("i915", True): ("system", "stolen"),
    ("xe", False): ("vram",),
    ("xe", True): ("system", "gtt", "stolen"),
}
"""Memory regions by driver and whether the GPU is part of the processor."""


class IntelGpu(DrmGpu):
    """An Intel GPU.

    Args:
        card: The card.
        calls: Publishes reads that may hang.
        clock: Clock.
        dev: Where the device files are.
    """

    fields: ClassVar[frozenset[str]] = frozenset(
        {
            "name",
            "architecture",
            "memory_total",
            "memory_used",
            "memory_free",
            "utilization_gpu",
            "temperature_gpu",
            "temperature_memory",
            "temperature_slowdown",
            "temperature_shutdown",
            "power_draw",
            "power_limit",
            "energy",
            "clock_sm",
            "clock_sm_max",
            "clock_video",
            "clock_video_max",
            "clock_memory_max",
            "clock_event_reasons",
            "pcie_generation",
            "pcie_generation_max",
            "pcie_width",
            "pcie_width_max",
        }
    )

    def __init__(self, card: DrmCard, calls: CallWatch, clock: Clock, dev: str) -> None:
        model = model_of(card.device)
        integrated = (
            card.bus_id == PROCESSOR_BUS_ID if model.discrete is None else not model.discrete
        )
        super().__init__(card, f"PCI-{card.bus_id}", calls, clock, integrated=integrated)
        self.values.put("name", model.name)
        self.values.put("architecture", model.architecture or Unknown.NOT_SUPPORTED)
        self._calls = calls
        self._path = f"{dev}/dri/renderD{card.render_minor}"
        self.engines = _ENGINES[card.driver]
        self._files = XE_FILES if card.driver == "xe" else i915_files(card.node)
        self._clocks: str | None = None
        self._video_clocks: str | None = None
        self._hwmon: str | None = None
        self._energy: str | None = None
        self._reasons: tuple[str, ...] = ()
        self._counted: deque[tuple[float, int]] = deque()
        self._port: str | None = None
        self._privileged = False
        self._idle_file: str | None = None
        self._idle_before: tuple[float, int] | None = None
        self._is_idle = False

    def regions(self) -> tuple[str, ...]:
        """See ``DrmGpu.regions``."""
        return _REGIONS[self.card.driver, self.integrated]

    # Once

    def read_once(self) -> None:
        """See ``DrmGpu.read_once``."""
        files = self._files
        self._counted.clear()
        self._clocks = self._first_with(files.clocks, files.actual)
        self._video_clocks = self._first_with(files.video_clocks, files.actual)
        self._read_highest("clock_sm_max", self._clocks)
        self._read_highest("clock_video_max", self._video_clocks)
        self.values.put("clock_memory_max", self.attributes.number(_HIGHEST_MEMORY_CLOCK))
        self._reasons = tuple(
            name
            for name in THROTTLE_REASONS
            if isinstance(self.attributes.number(f"{self._throttle}{name}"), int)
        )
        self._idle_file = self._first_with(files.idle, "")
        self._idle_before, self._is_idle = None, False
        self._find_hwmon()
        self._port = None if self.integrated else self._find_port()
        self._read_highest_link()
        self._read_memory()

    def _find_hwmon(self) -> None:
        self._hwmon = self.attributes.hwmon(self._files.hwmon)
        names = () if self._hwmon is None else self._files.energy
        self._energy = self._first_with(tuple(f"{self._hwmon}/{name}" for name in names), "")
        self._read_temperature_limits()

    def _first_with(self, prefixes: tuple[str, ...], name: str) -> str | None:
        """The first of some prefixes with which there is a number."""
        for prefix in prefixes:
            if isinstance(self.attributes.number(f"{prefix}{name}"), int):
                return prefix
        return None

    def _read_highest(self, field: str, prefix: str | None) -> None:
        self.values.put(
            field,
            Unknown.NOT_SUPPORTED
            if prefix is None
            else self.attributes.number(f"{prefix}{self._files.highest}"),
        )

    @property
    def _throttle(self) -> str:
        return f"{self._files.throttle}{'reason_' if self.card.driver == 'xe' else ''}"

    def _read_temperature_limits(self) -> None:
        """Read limits of the package's temperature, which ``xe`` tells since Linux 7.0."""
        for field, limit in (
            ("temperature_slowdown", "crit"),
            ("temperature_shutdown", "emergency"),
        ):
            path = f"{self._hwmon}/{self._files.temperature}_{limit}"
            self.values.put_number(field, self._hwmon_number(path), _MILLI)

    def _hwmon_number(self, path: str) -> int | Unknown:
        return Unknown.NOT_SUPPORTED if self._hwmon is None else self.attributes.number(path)

    # Link

    def _find_port(self) -> str | None:
        """The path of the device whose link goes to the slot.

        Most cards have a PCIe switch on the board, behind which the GPU and the lower port of the
        switch always tell 2.5 GT/s and one lane; the upper port tells the link to the slot
        (Syllo/nvtop#344 of the A770, geerlingguy/raspberry-pi-pcie-devices#695 of the B570).

        Returns:
            ``None`` if it is not known, as in a virtual machine that has only the GPU.
        """
        own = read_link(self.attributes, "max")
        if own != PcieLink(1, 1):
            return ""
        for bridge in ("../", "../../", "../../../"):
            kind = self.attributes.text(f"{bridge}class")
            # The upper port, the lower port, and the root port above both.
            if isinstance(kind, Unknown) or not kind.startswith(_BRIDGE):
                return None
        return "../../"

    def _read_highest_link(self) -> None:
        """Read the best link that card and slot support together."""
        card = self._read_link("max")
        slot = PcieLink(Unknown.NOT_SUPPORTED, Unknown.NOT_SUPPORTED)
        if self._port is not None:
            slot = read_link(self.attributes, "max", f"{self._port}../")
        self.values.put("pcie_generation_max", _lower(card.generation, slot.generation))
        self.values.put("pcie_width_max", _lower(card.width, slot.width))

    def _read_link(self, which: str) -> PcieLink:
        if self._port is None:
            return PcieLink(Unknown.NOT_SUPPORTED, Unknown.NOT_SUPPORTED)
        return read_link(self.attributes, which, self._port)

    # Memory

    def _read_memory(self) -> None:
        """Ask the driver for the memory of the card."""
        if self.integrated:
            # The sampler fills in the memory of the host.
            for field in ("memory_total", "memory_used", "memory_free"):
                self.values.put(field, Unknown.NOT_SUPPORTED)
            return
        memory = self._ask_for_memory()
        if isinstance(memory, Unknown):
            self.values.put("memory_total", memory)
            return
        self.values.put("memory_total", memory.total)
        self._privileged = memory.used is not None
        if memory.used is not None:
            self._put_used(memory.used)

    def _ask_for_memory(self) -> CardMemory | Unknown:
        if self.card.render_minor is None:
            return Unknown.NOT_SUPPORTED
        ask = partial(read_card_memory, self.card.driver, self._path)
        try:
            return self._calls.run(self.uuid, "memory regions", ask) or Unknown.NOT_SUPPORTED
        except (PermissionError, FileNotFoundError):
            # A container has no file of a GPU that it was not given.
            return Unknown.NO_PERMISSION
        except OSError:
            return Unknown.NOT_SUPPORTED

    def _put_used(self, used: int) -> None:
        total = self.values.get("memory_total")
        self.values.put("memory_used", used)
        if isinstance(total, int):
            self.values.put("memory_free", max(0, total - used))
        else:
            self.values.put(
                "memory_free", self.values.unknown.get("memory_total", Unknown.NOT_SUPPORTED)
            )

    # Regularly

    def read_fast(self) -> None:
        """See ``DrmGpu.read_fast``."""
        self._read_power()
        self._put_clock("clock_sm", self._clocks)
        self.values.put_number(
            "temperature_gpu",
            self._hwmon_number(f"{self._hwmon}/{self._files.temperature}_input"),
            _MILLI,
        )

    def _put_clock(self, field: str, prefix: str | None) -> None:
        self.values.put(
            field,
            Unknown.NOT_SUPPORTED
            if prefix is None
            else self.attributes.number(f"{prefix}{self._files.actual}"),
        )

    def _read_power(self) -> None:
        """Make power of the energy that was used since about a second ago."""
        if self._energy is None:
            self.values.put("power_draw", Unknown.NOT_SUPPORTED)
            self.values.put("energy", Unknown.NOT_SUPPORTED)
            return
        now = self.clock.monotonic()
        energy = self.attributes.number(self._energy)
        self.values.put_fraction("energy", energy, _MICRO)
        if isinstance(energy, Unknown):
            self.values.put("power_draw", energy)
            return
        counted = self._counted
        if counted and energy < counted[-1][1]:
            # The driver was loaded again, or the counter began anew.
            counted.clear()
        counted.append((now, energy))
        while len(counted) > 2 and counted[1][0] <= now - _WINDOW_SECONDS:
            counted.popleft()
        since, before = counted[0]
        if now <= since:
            if self.values.get("power_draw") is None:
                self.values.put("power_draw", Unknown.NOT_READ)
            return
        watts = (energy - before) / _MICRO / (now - since)
        self.values.put("power_draw", watts if watts <= _MOST_WATTS else Unknown.NO_ANSWER)

    def read_details(self) -> None:
        """See ``DrmGpu.read_details``."""
        self._read_throttling()
        self._read_idle_time()
        if self._privileged:
            memory = self._ask_for_memory()
            if not isinstance(memory, Unknown) and memory.used is not None:
                self._put_used(memory.used)
            else:
                self._privileged = False

    def _read_idle_time(self) -> None:
        """Find out whether the GPU was in its idle state all the time since about a second ago."""
        now, before = self.clock.monotonic(), self._idle_before
        if self._idle_file is None or (before and now - before[0] < _IDLE_SECONDS):
            return
        idle = self.attributes.number(self._idle_file)
        self._is_idle = False
        if isinstance(idle, Unknown):
            self._idle_before = None
            return
        if before is not None:
            self._is_idle = idle - before[1] >= (now - before[0]) * _MILLI * _IDLE_SHARE
        self._idle_before = now, idle

    def _read_throttling(self) -> None:
        if not self._reasons:
            self.values.put("clock_event_reasons", Unknown.NOT_SUPPORTED)
            return
        status = self.attributes.number(f"{self._files.throttle}status")
        if status == 0:
            self.values.put("clock_event_reasons", 0)
            return
        bits = 0
        for name in self._reasons:
            value = self.attributes.number(f"{self._throttle}{name}")
            if isinstance(value, Unknown):
                self.values.put("clock_event_reasons", value)
                return
            if value:
                bits |= THROTTLE_REASONS[name]
        self.values.put("clock_event_reasons", bits)

    def read_slow(self) -> None:
        """See ``DrmGpu.read_slow``."""
        if self._hwmon is None and not self.integrated:
            # The driver registers it later than the GPU.
            self._find_hwmon()
        self._put_clock("clock_video", self._video_clocks)
        memory = self._files.memory_temperature
        self.values.put_number(
            "temperature_memory",
            Unknown.NOT_SUPPORTED
            if memory is None
            else self._hwmon_number(f"{self._hwmon}/{memory}_input"),
            _MILLI,
        )
        self.values.put_fraction("power_limit", self._lowest_limit(), _MICRO)
        link = self._read_link("current")
        self.values.put("pcie_generation", link.generation)
        self.values.put("pcie_width", link.width)

    def _lowest_limit(self) -> int | Unknown:
        """The lowest power limit of the card, else of the package. A limit of 0 is disabled."""
        reason = Unknown.NOT_SUPPORTED
        for names in self._files.limits:
            limits = [self._hwmon_number(f"{self._hwmon}/{name}") for name in names]
            known = [limit for limit in limits if isinstance(limit, int) and limit > 0]
            if known:
                return min(known)
            for limit in limits:
                if isinstance(limit, Unknown) and limit is not Unknown.NOT_SUPPORTED:
                    reason = limit
        return reason

    # Processes

    def uses_of(self, clients: list[Client], *, complete: bool) -> dict[int, ProcessUse]:
        """See ``DrmGpu.uses_of``; also how busy the GPU is, where all of its clients are known."""
        self._read_utilization(clients, complete=complete)
        if not self.integrated and not self._privileged:
            self._add_up_memory(clients, complete=complete)
        return super().uses_of(clients, complete=complete)

    def _read_utilization(self, clients: list[Client], *, complete: bool) -> None:
        if not complete:
            self.values.put("utilization_gpu", 0 if self._is_idle else Unknown.NO_PERMISSION)
            return
        engines = self.engines.graphics + self.engines.compute
        busy = busy_percent(clients, engines) if clients else 0.0
        self.values.put("utilization_gpu", Unknown.NOT_READ if busy is None else round(busy))

    def _add_up_memory(self, clients: list[Client], *, complete: bool) -> None:
        sizes = [resident_bytes(client, self.regions()) for client in clients]
        known = [size for size in sizes if size is not None]
        if not complete:
            reason = Unknown.NO_PERMISSION
        elif len(known) < len(sizes):
            reason = Unknown.NOT_SUPPORTED
        else:
            self._put_used(sum(known))
            return
        self.values.put("memory_used", reason)
        self.values.put("memory_free", reason)


def _lower(one: int | Unknown, other: int | Unknown) -> int | Unknown:
    """The lower of two numbers, or the first if the second is unknown."""
    return min(one, other) if isinstance(one, int) and isinstance(other, int) else one
