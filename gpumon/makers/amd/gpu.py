"""Reads the values of an AMD GPU.

The files are those of the kernel's ``Documentation/gpu/amdgpu/thermal.rst`` and
``driver-misc.rst``; ``gpu_metrics`` has a module of its own. ``pcie_bw`` is never read: it counts
packets for a second, and the read blocks so long.

The files of errors (RAS) are described in ``drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c``. Only GPUs
with such a protection have the folder ``ras``: Vega 20, the Instinct accelerators, some Radeon Pro.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from gpumon.host.pci import read_word
from gpumon.makers.amd import MAKER
from gpumon.makers.amd.gpu_metrics import TABLE_BYTES, GpuMetrics, event_reasons, parse_gpu_metrics
from gpumon.makers.amd.names import gpu_name
from gpumon.makers.drm.attributes import GENERATIONS, NO_LINK, PcieLink, read_link
from gpumon.makers.drm.gpu import DrmGpu, Engines, ProcessUse
from gpumon.model.snapshot import Unknown

if TYPE_CHECKING:
    from gpumon.makers.amd.backend import KfdNode
    from gpumon.makers.amd.gpu_metrics import Residencies
    from gpumon.makers.drm.attributes import Attributes
    from gpumon.makers.drm.cards import DrmCard
    from gpumon.makers.drm.clients import Client
    from gpumon.makers.source import CallWatch
    from gpumon.system.system import Clock

_MICRO, _MHZ = 1_000_000, 1_000_000
_WHOLE, _MOST_PWM = 100, 255
_MOST_WATTS, _MOST_MHZ, _MOST_RPM = 10_000, 100_000, 100_000
"""Larger values are errors of the firmware: it answers with all bits set, or with noise."""

_WITH_ENERGY = ("gfx908", "gfx90a")
"""MI100 and MI200 count energy in units of 15.3 µJ (``rsmi_dev_energy_count_get`` of ROCm). The
discrete GPUs for displays have the same field of the same table without a documented unit."""

_RAS_SECONDS = 10.0
"""Reading the counters of errors asks the hardware, block by block."""

_UNIFIED_VCN = 4
"""From this version on one queue of the video engine decodes and encodes (``amdgpu_vcn.h``): the
driver counts both as ``enc``."""

_VCN = "ip_discovery/die/0/12/0/major"
"""The version of the video engine; 12 is ``VCN_HWID`` of ``soc15_hw_ip.h``."""

_UNIFIED = Engines(graphics=("gfx",), compute=("compute",))
_SEPARATE = Engines(("gfx",), ("compute",), encoder=("enc", "enc_1"), decoder=("dec",))

_LEVEL = re.compile(r"^[0-9S]{1,3}: ([0-9]{1,6})Mhz", re.MULTILINE | re.IGNORECASE)
_CURRENT_LEVEL = re.compile(r"^[0-9S]{1,3}: ([0-9]{1,6})Mhz \*", re.MULTILINE | re.IGNORECASE)
_MOST_BRIDGES = 4
_NO_METRICS = GpuMetrics()

_MI300A = 0x74A0
"""The only APU without the voltage ``vddnb`` (``amdgpu_pm.c``: "APUs other than gc 9,4,3")."""


_FIELDS = (
    *("architecture", "vbios_version", "serial", "bar1_total", "energy", "fan_speed"),
    *("fan_rpm", "temperature_hotspot"),
    *("memory_used", "memory_free", "memory_total"),
    *("utilization_gpu", "utilization_memory", "utilization_decoder", "utilization_jpeg"),
    *("temperature_gpu", "temperature_memory", "temperature_slowdown", "temperature_shutdown"),
    *(
        "power_draw",
        "power_instant",
        "power_average",
        "power_limit",
        "power_limit_min",
        "power_limit_max",
    ),
    *(
        "clock_sm",
        "clock_memory",
        "clock_video",
        "clock_sm_max",
        "clock_memory_max",
        "clock_event_reasons",
    ),
    *("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max"),
    *("ecc_mode", "ecc_corrected_volatile", "ecc_uncorrected_volatile"),
    *("retired_pages_double_bit", "retired_pages_pending"),
)


def is_integrated(folder: str, device: int | None) -> bool:
    """Whether a GPU is part of a processor: an APU.

    hwmon has the voltage ``vddnb`` (``in1``) of APUs alone (``hwmon_attributes_visible`` of
    ``amdgpu_pm.c``). That the file is there is known without reading it, so no GPU wakes.
    Neither KFD's count of cores (since Linux 6.6 an APU is a node without cores) nor the maker of
    the memory (unknown on some cards, too) shows it.
    """
    if device == _MI300A:
        return True
    folder = f"{folder}/hwmon"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - pathlib is not imported before the first frame
    except OSError:
        return False
    return any(os.path.exists(f"{folder}/{name}/in1_label") for name in names)  # noqa: PTH110 - as above


def uuid_of(card: DrmCard) -> str:
    """``GPU-`` with the unique ID as ROCm takes it, else ``PCI-`` with the bus ID.

    The kernel has the unique ID in memory; reading it wakes no GPU.
    """
    word = read_word(f"{card.folder}/unique_id") or ""
    if re.fullmatch(r"[0-9a-f]{16}", word) and word.strip("0"):
        return f"GPU-{word}"
    return f"PCI-{card.bus_id}"


class AmdGpu(DrmGpu):
    """An AMD GPU.

    Attributes:
        kfd_ids: KFD's numbers of the GPU: one, or one for each partition; none without KFD.
    """

    fields: ClassVar[frozenset[str]] = frozenset(_FIELDS)

    def __init__(
        self, card: DrmCard, uuid: str, nodes: list[KfdNode], calls: CallWatch, clock: Clock
    ) -> None:
        super().__init__(
            card, uuid, calls, clock, integrated=is_integrated(card.folder, card.device)
        )
        if self.integrated:
            self.regions = ("vram", "gtt")
        self.kfd_ids = tuple(node.gpu_id for node in nodes)
        self.engines = _UNIFIED if self._has_unified_video(nodes) else _SEPARATE
        self._architecture = next((node.architecture for node in nodes), None)
        self._hwmon = ""
        self._sensors: dict[str, str] = {}
        self._link = ""
        self._residencies: Residencies | None = None
        self._ras_at = 0.0
        product = read_word(f"{card.folder}/product_name")
        self.answers.put("name", gpu_name(card.device, card.revision, product))
        self.answers.put("architecture", self._architecture or Unknown.NOT_SUPPORTED)

    def _has_unified_video(self, nodes: list[KfdNode]) -> bool:
        version = read_word(f"{self.card.folder}/{_VCN}") or ""
        if version.isdecimal():
            return int(version) >= _UNIFIED_VCN
        return any((node.architecture or "").startswith(("gfx11", "gfx12")) for node in nodes)

    # Reading

    def read_once(self) -> None:
        """See ``DrmGpu.read_once``."""
        files, answers = self.attributes, self.answers
        self._hwmon = files.hwmon("amdgpu")
        self._sensors = {}
        for number in range(1, 4):
            label = files.text(f"{self._hwmon}/temp{number}_label")
            if not isinstance(label, Unknown):
                self._sensors[label] = f"{self._hwmon}/temp{number}"
        if not self._sensors:
            # GCN before Vega has one sensor, and old kernels no label for it.
            self._sensors["edge"] = f"{self._hwmon}/temp1"
        self._residencies = None
        self._ras_at = 0.0
        self._link = "" if self.integrated else self._slot_link()
        answers.put("vbios_version", files.text("vbios_version"))
        answers.put("serial", files.text("serial_number"))
        chip = self._chip()
        answers.put("temperature_slowdown", files.degrees(f"{chip}_crit"))
        answers.put("temperature_shutdown", files.degrees(f"{chip}_emergency"))
        answers.put("power_limit_min", self._watts("power1_cap_min", least=0))
        answers.put("power_limit_max", self._watts("power1_cap_max"))
        answers.put("clock_sm_max", self._highest_level("pp_dpm_sclk"))
        answers.put("clock_memory_max", self._highest_level("pp_dpm_mclk"))
        window = (
            Unknown.NOT_SUPPORTED if self.integrated else files.number("mem_info_vis_vram_total")
        )
        answers.put("bar1_total", window)

    def read_fast(self) -> None:
        """See ``DrmGpu.read_fast``."""
        files, answers = self.attributes, self.answers
        self._read_memory()
        answers.put("utilization_gpu", files.scaled("gpu_busy_percent", 1, _WHOLE))
        answers.put("temperature_gpu", files.degrees(f"{self._chip()}_input"))
        answers.put("temperature_hotspot", self._sensor("junction"))
        average, instant = self._watts("power1_average"), self._watts("power1_input")
        answers.put("power_average", average)
        answers.put("power_instant", instant)
        answers.put("power_draw", instant if average is Unknown.NOT_SUPPORTED else average)
        answers.put("clock_sm", files.scaled(f"{self._hwmon}/freq1_input", _MHZ, _MOST_MHZ))

    def read_details(self) -> None:
        """See ``DrmGpu.read_details``."""
        files, answers = self.attributes, self.answers
        table = self._metrics()
        metrics, missing = _NO_METRICS, Unknown.NOT_SUPPORTED
        if isinstance(table, Unknown):
            missing = table
        else:
            metrics = table
        reasons, self._residencies = event_reasons(metrics, self._residencies)
        answers.put("clock_event_reasons", _told(reasons, missing))
        busy = files.scaled("mem_busy_percent", 1, _WHOLE)
        if busy is Unknown.NOT_SUPPORTED and metrics.umc_activity is not None:
            busy = metrics.umc_activity
        answers.put("utilization_memory", busy)
        answers.put("temperature_memory", self._sensor("mem"))
        clock = files.scaled(f"{self._hwmon}/freq2_input", _MHZ, _MOST_MHZ)
        if clock is Unknown.NOT_SUPPORTED:
            # APUs have no such sensor.
            clock = metrics.clock_memory or self._current_level("pp_dpm_mclk")
        answers.put("clock_memory", clock)
        answers.put("clock_video", _told(metrics.clock_video, missing))
        answers.put("utilization_decoder", max(metrics.vcn_activity, default=missing))
        answers.put("utilization_jpeg", max(metrics.jpeg_activity, default=missing))
        has_unit = metrics.energy_has_unit or self._architecture in _WITH_ENERGY
        answers.put("energy", _told(metrics.energy if has_unit else None, missing))
        self._put_link(metrics)

    def read_slow(self) -> None:
        """See ``DrmGpu.read_slow``."""
        answers = self.answers
        answers.put("power_limit", self._watts("power1_cap"))
        answers.put("fan_speed", self._fan())
        answers.put("fan_rpm", self.attributes.scaled(f"{self._hwmon}/fan1_input", 1, _MOST_RPM))
        now = self.clock.monotonic()
        if now >= self._ras_at:
            self._ras_at = now + _RAS_SECONDS
            counts = read_error_counts(self.attributes)
            answers.put("ecc_corrected_volatile", counts.corrected)
            answers.put("ecc_uncorrected_volatile", counts.uncorrected)
            answers.put("ecc_mode", read_ecc_mode(self.attributes))
            pages = read_bad_pages(self.attributes)
            answers.put("retired_pages_double_bit", pages.number)
            answers.put("retired_pages_pending", pages.pending)

    # Processes

    def uses_of(self, clients: list[Client], *, complete: bool) -> dict[int, ProcessUse]:
        """See ``DrmGpu.uses_of``.

        Where KFD runs, a process without a type may work through ROCm, whose time nobody counts.
        """
        uses = super().uses_of(clients, complete=complete)
        if not self.kfd_ids:
            return uses
        return {
            pid: use if use.types else ProcessUse(memory=use.memory) for pid, use in uses.items()
        }

    # Single values

    def _chip(self) -> str:
        """The sensor of the chip: its edge; MI200 and MI300 have only ``junction``."""
        return self._sensors.get("edge") or self._sensors.get("junction") or f"{self._hwmon}/temp1"

    def _watts(self, name: str, least: int = 1) -> float | Unknown:
        """Watts. A draw or a limit of 0 is not a measurement.

        The second die of an MI200 answers 0: its power is that of the first one.
        """
        value = self.attributes.number(f"{self._hwmon}/{name}")
        if isinstance(value, Unknown):
            return value
        return value / _MICRO if least <= value <= _MOST_WATTS * _MICRO else Unknown.NOT_SUPPORTED

    def _highest_level(self, name: str) -> int | Unknown:
        """The highest clock of a list: ``2: 1750Mhz *``."""
        text = self.attributes.text(name)
        if isinstance(text, Unknown):
            return text
        return max(map(int, _LEVEL.findall(text)), default=0) or Unknown.NOT_SUPPORTED

    def _current_level(self, name: str) -> int | Unknown:
        """The clock of a list that is marked as the current one."""
        text = self.attributes.text(name)
        if isinstance(text, Unknown):
            return text
        match = _CURRENT_LEVEL.search(text)
        return Unknown.NOT_SUPPORTED if match is None else int(match[1])

    def _read_memory(self) -> None:
        files = self.attributes
        total, used = files.number("mem_info_vram_total"), files.number("mem_info_vram_used")
        if self.integrated:
            # The part that the firmware has set aside, and what may be taken of the rest. On an
            # MI300A both are the same memory, and all that is used is in the second one
            # (amdgpu_vram_mgr.c: "Setup dummy vram mgr").
            if self.card.device != _MI300A:
                total = _sum(total, files.number("mem_info_gtt_total"))
            used = _sum(used, files.number("mem_info_gtt_used"))
        self.answers.put("memory_total", total)
        self.put_used(used)

    def _sensor(self, label: str) -> int | Unknown:
        """Degrees of a sensor with a label."""
        prefix = self._sensors.get(label)
        if prefix is None:
            return Unknown.NOT_SUPPORTED
        return self.attributes.degrees(f"{prefix}_input")

    def _fan(self) -> int | Unknown:
        """Percent of the highest speed that the driver has asked for."""
        value = self.attributes.number(f"{self._hwmon}/pwm1")
        if isinstance(value, Unknown):
            return value
        return (
            round(value * _WHOLE / _MOST_PWM) if 0 <= value <= _MOST_PWM else Unknown.NOT_SUPPORTED
        )

    # The table of the firmware

    def _metrics(self) -> GpuMetrics | Unknown:
        data = self.attributes.raw("gpu_metrics", TABLE_BYTES)
        if isinstance(data, Unknown):
            return data
        return parse_gpu_metrics(data) or Unknown.NOT_SUPPORTED

    # The link

    def _slot_link(self) -> str:
        """Where the files of the link to the slot are: ``../`` for each bridge on the card.

        Since Vega 10 a card has a PCIe switch, and the GPU's own link ends there. As in
        ``amdgpu_device_partner_bandwidth`` of the kernel, bridges with the vendor ID of
        AMD's GPUs belong to the card.
        """
        path = ""
        for _ in range(_MOST_BRIDGES):
            if read_word(f"{self.card.folder}/{path}../vendor") != MAKER.pci_vendor:
                break
            path += "../"
        return path

    def _put_link(self, metrics: GpuMetrics) -> None:
        """Set the link to the slot; an APU has none."""
        answers = self.answers
        now = most = NO_LINK
        if not self.integrated:
            now = read_link(self.attributes, "current", self._link)
            most = read_link(self.attributes, "max", self._link)
            if isinstance(now.generation, Unknown):
                # A virtual machine has no such files; old kernels have other units in the table.
                generation = GENERATIONS.get(metrics.pcie_speed or 0)
                if generation is not None and metrics.pcie_width:
                    now = PcieLink(generation, metrics.pcie_width)
        answers.put("pcie_generation", now.generation)
        answers.put("pcie_width", now.width)
        answers.put("pcie_generation_max", most.generation)
        answers.put("pcie_width_max", most.width)


def _told(value: float | None, missing: Unknown) -> float | Unknown:
    return missing if value is None else value


def _sum(first: int | Unknown, second: int | Unknown) -> int | Unknown:
    """The sum; an unknown part makes it unknown."""
    if isinstance(first, Unknown):
        return first
    return second if isinstance(second, Unknown) else first + second


_COUNT = re.compile(r"^(ue|ce): ([0-9]{1,20})$", re.MULTILINE)
_MASK = re.compile(r"feature mask: 0x([0-9a-f]{1,8})\b")
_PAGE = re.compile(rb"^0x[0-9a-f]{1,16} : 0x[0-9a-f]{1,16} : ([RPF])\s*$", re.MULTILINE)

_MEMORY = 1
"""Bit 0 of the mask is the block ``umc``, the memory controllers."""

_PAGES_BYTES = 1024 * 1024


class ErrorCounts(NamedTuple):
    """Errors since the driver was loaded, of all blocks together; or why they are unknown."""

    corrected: int | Unknown  # Number of corrected ones.
    uncorrected: int | Unknown  # Number of uncorrected ones.


class BadPages(NamedTuple):
    """Pages of memory that had an uncorrected error; or why they are unknown."""

    number: int | Unknown  # How many.
    pending: bool | Unknown  # Whether some are still to be reserved.


def read_error_counts(attributes: Attributes) -> ErrorCounts:
    """The errors of a GPU.

    A block whose counter cannot be read makes the sum unknown.
    """
    names = [name for name in attributes.folders("ras") if name.endswith("_err_count")]
    if not names:
        return ErrorCounts(Unknown.NOT_SUPPORTED, Unknown.NOT_SUPPORTED)
    totals = {"ue": 0, "ce": 0}
    counted = False
    for name in names:
        text = attributes.text(f"ras/{name}")
        if text is Unknown.NOT_SUPPORTED:
            continue  # the block has no counter: "Query currently inaccessible", EOPNOTSUPP
        if isinstance(text, Unknown):
            return ErrorCounts(text, text)
        for kind, count in _COUNT.findall(text):
            counted = True
            totals[kind] += int(count)
    if not counted:
        return ErrorCounts(Unknown.NOT_SUPPORTED, Unknown.NOT_SUPPORTED)
    return ErrorCounts(totals["ce"], totals["ue"])


def read_ecc_mode(attributes: Attributes) -> bool | Unknown:
    """Whether errors of the memory are detected and corrected."""
    text = attributes.text("ras/features")
    if isinstance(text, Unknown):
        return text
    match = _MASK.search(text)
    return Unknown.NOT_SUPPORTED if match is None else bool(int(match[1], 16) & _MEMORY)


def read_bad_pages(attributes: Attributes) -> BadPages:
    """The pages that the driver has retired, or will.

    Lines are ``0x00000001 : 0x00001000 : R``; R is a reserved page, P one that will be reserved, F
    one that could not be.
    """
    data = attributes.raw("ras/gpu_vram_bad_pages", _PAGES_BYTES)
    if isinstance(data, Unknown):
        return BadPages(data, data)
    states = _PAGE.findall(data)
    return BadPages(len(states), b"P" in states)
