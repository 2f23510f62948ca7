"""Reads the values of an Intel GPU.

The files are those of the kernel's ``Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon``,
``sysfs-driver-intel-xe-hwmon``, ``drivers/gpu/drm/i915/gt/intel_gt_sysfs_pm.c``,
``drivers/gpu/drm/xe/xe_gt_freq.c`` and ``xe_gt_throttle.c``.

The kernel does not show ordinary users how busy a GPU is or how much of its memory is used. Where
all clients on the machine can be read, which needs root, both follow from these. Everybody may know
that it did nothing: how long it was in its idle state.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from gpumon.makers.drm.attributes import NO_HWMON, NO_LINK, PcieLink, read_link
from gpumon.makers.drm.backend import DrmBackend
from gpumon.makers.drm.gpu import DrmGpu, Engines, ProcessUse, busy_percent, resident_bytes
from gpumon.makers.intel import MAKER
from gpumon.makers.intel.drivers import (
    THROTTLE_REASONS,
    XE_FILES,
    CardMemory,
    i915_files,
    read_card_memory,
)
from gpumon.makers.intel.names import is_integrated, model_of
from gpumon.model.snapshot import Unknown

if TYPE_CHECKING:
    from gpumon.makers.drm.cards import DrmCard
    from gpumon.makers.drm.clients import Client
    from gpumon.makers.source import CallWatch
    from gpumon.system.system import Clock

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
"""Only the Data Center GPU Max has it: ``drivers/gpu/drm/xe/xe_vram_freq.c``. None has the
current clock."""

_ENGINES = {
    "i915": Engines(graphics=("render",), compute=("compute",)),
    "xe": Engines(graphics=("rcs",), compute=("ccs",)),
}
"""The video engines both encode and decode, so neither share is known."""

_REGIONS = {
    ("i915", False): ("local",),
    ("i915", True): ("system", "stolen"),
    ("xe", False): ("vram",),
    ("xe", True): ("system", "gtt", "stolen"),
}
"""Memory regions by driver and whether the GPU is part of the processor."""


class IntelBackend(DrmBackend):
    """The GPUs that the kernel's drivers ``i915`` and ``xe`` run; see ``DrmBackend``."""

    maker = MAKER

    def new_gpu(self, card: DrmCard) -> DrmGpu:
        """See ``DrmBackend.new_gpu``."""
        return IntelGpu(card, self._calls, self._clock, self._system.dev)


class IntelGpu(DrmGpu):
    """An Intel GPU."""

    fields: ClassVar[frozenset[str]] = frozenset(
        {
            "architecture",
            "memory_total",
            "memory_used",
            "memory_free",
            "utilization_gpu",
            "temperature_gpu",
            "temperature_memory",
            "temperature_slowdown",
            "temperature_shutdown",
            "fan_rpm",
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
        integrated = is_integrated(card.folder, card.device)
        super().__init__(card, f"PCI-{card.bus_id}", calls, clock, integrated=integrated)
        self.answers.put("name", model.name)
        self.answers.put("architecture", model.architecture or Unknown.NOT_SUPPORTED)
        self._calls = calls
        self._path = f"{dev}/dri/renderD{card.render_minor}"
        self.engines = _ENGINES[card.driver]
        self.regions = _REGIONS[card.driver, integrated]
        self._files = XE_FILES if card.driver == "xe" else i915_files(card.node)
        self._clocks: str | None = None
        self._video_clocks: str | None = None
        self._hwmon = NO_HWMON
        self._energy: str | None = None
        self._reasons: tuple[str, ...] = ()
        self._counted: deque[tuple[float, int]] = deque()
        self._port: str | None = None
        self._privileged = False
        self._idle_file: str | None = None
        self._idle_before: tuple[float, int] | None = None
        self._is_idle = False

    # Once

    def read_once(self) -> None:
        """See ``DrmGpu.read_once``."""
        files = self._files
        self._counted.clear()
        self._clocks = self._first_with(files.clocks, files.actual)
        self._video_clocks = self._first_with(files.video_clocks, files.actual)
        self.answers.put("clock_sm_max", self._clock(self._clocks, files.highest))
        self.answers.put("clock_video_max", self._clock(self._video_clocks, files.highest))
        self.answers.put("clock_memory_max", self.attributes.number(_HIGHEST_MEMORY_CLOCK))
        self._reasons = tuple(
            name
            for name in THROTTLE_REASONS
            if isinstance(self.attributes.number(f"{files.throttle}{name}"), int)
        )
        self._idle_file = self._first_with(files.idle, "")
        self._idle_before, self._is_idle = None, False
        self._find_hwmon()
        self._port = None if self.integrated else self._find_port()
        self._read_highest_link()
        self._read_memory()

    def _find_hwmon(self) -> None:
        self._hwmon = self.attributes.hwmon(self._files.hwmon)
        energy = tuple(f"{self._hwmon}/{name}" for name in self._files.energy)
        self._energy = self._first_with(energy, "")
        # ``xe`` has limits of the package's temperature since Linux 7.0.
        package = self._files.temperature
        self.answers.put("temperature_slowdown", self._degrees(f"{package}_crit"))
        self.answers.put("temperature_shutdown", self._degrees(f"{package}_emergency"))

    def _degrees(self, name: str) -> int | Unknown:
        return self.attributes.degrees(f"{self._hwmon}/{name}")

    def _first_with(self, prefixes: tuple[str, ...], name: str) -> str | None:
        """The first of some prefixes with which there is a number."""
        for prefix in prefixes:
            if isinstance(self.attributes.number(f"{prefix}{name}"), int):
                return prefix
        return None

    def _clock(self, prefix: str | None, name: str) -> int | Unknown:
        """One of the clocks with a prefix; ``None`` if there are none."""
        if prefix is None:
            return Unknown.NOT_SUPPORTED
        return self.attributes.number(f"{prefix}{name}")

    # Link

    def _find_port(self) -> str | None:
        """The path of the device whose link goes to the slot.

        Most cards have a PCIe switch on the board, behind which the GPU and the lower port of the
        switch always report 2.5 GT/s and one lane; the upper port reports the link to the slot
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
        slot = NO_LINK
        if self._port is not None:
            slot = read_link(self.attributes, "max", f"{self._port}../")
        self.answers.put("pcie_generation_max", _lower(card.generation, slot.generation))
        self.answers.put("pcie_width_max", _lower(card.width, slot.width))

    def _read_link(self, which: str) -> PcieLink:
        if self._port is None:
            return NO_LINK
        return read_link(self.attributes, which, self._port)

    # Memory

    def _read_memory(self) -> None:
        """Ask the driver for the memory of the card."""
        if self.integrated:
            # The sampler fills in the memory of the host.
            for field in ("memory_total", "memory_used", "memory_free"):
                self.answers.put(field, Unknown.NOT_SUPPORTED)
            return
        memory = self._ask_for_memory()
        if isinstance(memory, Unknown):
            self.answers.put("memory_total", memory)
            return
        self.answers.put("memory_total", memory.total)
        self._privileged = memory.used is not None
        if memory.used is not None:
            self.put_used(memory.used)

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

    # Regularly

    def read_fast(self) -> None:
        """See ``DrmGpu.read_fast``."""
        self._read_power()
        self.answers.put("clock_sm", self._clock(self._clocks, self._files.actual))
        self.answers.put("temperature_gpu", self._degrees(f"{self._files.temperature}_input"))

    def _read_power(self) -> None:
        """Make power of the energy that was used since about a second ago."""
        now = self.clock.monotonic()
        energy = (
            Unknown.NOT_SUPPORTED if self._energy is None else self.attributes.number(self._energy)
        )
        if isinstance(energy, Unknown):
            self.answers.put("power_draw", energy)
            self.answers.put("energy", energy)
            return
        self.answers.put("energy", energy / _MICRO)
        counted = self._counted
        if counted and energy < counted[-1][1]:
            # The driver was loaded again, or the counter began anew.
            counted.clear()
        counted.append((now, energy))
        while len(counted) > 2 and counted[1][0] <= now - _WINDOW_SECONDS:
            counted.popleft()
        since, before = counted[0]
        if now <= since:
            if self.answers.values["power_draw"] is None:
                self.answers.put("power_draw", Unknown.NOT_READ)
            return
        watts = (energy - before) / _MICRO / (now - since)
        self.answers.put("power_draw", watts if watts <= _MOST_WATTS else Unknown.NO_ANSWER)

    def read_details(self) -> None:
        """See ``DrmGpu.read_details``."""
        self.answers.put("clock_event_reasons", self._throttling())
        self._read_idle_time()
        if self._privileged:
            memory = self._ask_for_memory()
            if not isinstance(memory, Unknown) and memory.used is not None:
                self.put_used(memory.used)
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

    def _throttling(self) -> int | Unknown:
        """Why the clocks are limited, as bits of ``Gpu.clock_event_reasons``."""
        if not self._reasons:
            return Unknown.NOT_SUPPORTED
        if self.attributes.number(self._files.throttle_status) == 0:
            return 0
        bits = 0
        for name in self._reasons:
            value = self.attributes.number(f"{self._files.throttle}{name}")
            if isinstance(value, Unknown):
                return value
            if value:
                bits |= THROTTLE_REASONS[name]
        return bits

    def read_slow(self) -> None:
        """See ``DrmGpu.read_slow``."""
        if self._hwmon == NO_HWMON and not self.integrated:
            # The driver registers it later than the GPU.
            self._find_hwmon()
        self.answers.put("clock_video", self._clock(self._video_clocks, self._files.actual))
        memory = self._files.memory_temperature
        degrees = Unknown.NOT_SUPPORTED if memory is None else self._degrees(f"{memory}_input")
        self.answers.put("temperature_memory", degrees)
        self.answers.put("fan_rpm", self._fastest_fan())
        self.answers.put("power_limit", self._lowest_limit())
        link = self._read_link("current")
        self.answers.put("pcie_generation", link.generation)
        self.answers.put("pcie_width", link.width)

    def _fastest_fan(self) -> int | Unknown:
        """Revolutions a minute of the fastest fan."""
        found = [self.attributes.number(f"{self._hwmon}/fan{n}_input") for n in (1, 2, 3)]
        speeds = [speed for speed in found if not isinstance(speed, Unknown)]
        return max(speeds) if speeds else found[0]

    def _lowest_limit(self) -> float | Unknown:
        """Watts of the card's lowest limit, else of the package's. A limit of 0 is disabled."""
        reason = Unknown.NOT_SUPPORTED
        for names in self._files.limits:
            limits = [self.attributes.number(f"{self._hwmon}/{name}") for name in names]
            known = [limit for limit in limits if isinstance(limit, int) and limit > 0]
            if known:
                return min(known) / _MICRO
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
            self.answers.put("utilization_gpu", 0 if self._is_idle else Unknown.NO_PERMISSION)
            return
        engines = self.engines.graphics + self.engines.compute
        busy = busy_percent(clients, engines) if clients else 0.0
        self.answers.put("utilization_gpu", Unknown.NOT_READ if busy is None else round(busy))

    def _add_up_memory(self, clients: list[Client], *, complete: bool) -> None:
        sizes = [resident_bytes(client, self.regions) for client in clients]
        known = [size for size in sizes if size is not None]
        if not complete:
            self.put_used(Unknown.NO_PERMISSION)
        else:
            self.put_used(Unknown.NOT_SUPPORTED if len(known) < len(sizes) else sum(known))


def _lower(first: int | Unknown, other: int | Unknown) -> int | Unknown:
    """The lower of two numbers, or the first if the second is unknown."""
    return min(first, other) if isinstance(first, int) and isinstance(other, int) else first
