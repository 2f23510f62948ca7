"""A stand-in for ``nvidia-smi`` of driver 580 on the simulated driver.

    python -m tests.driver.smi --query-gpu=index,name --format=csv

It reads NVML through pynvml, and answers in nvidia-smi's forms. ``installed`` puts it on a PATH.
``SMI_WRONG="temperature.gpu=+40,clocks/sm_clock=7 MHz"`` makes values wrong on purpose: fields of
``--query-gpu`` and element paths of ``-q -x``; a number with a sign is added to the true one.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.sax.saxutils import escape

import pynvml

from .models import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
NO_VALUE = "[N/A]"
NO_LONGER = "Requested functionality has been deprecated"
NO_SUCH_OPTION, NO_SUCH_FIELD = 1, 2

Value = str | None
"""Without its unit; ``None``: not available."""


class Gpu:
    """A GPU; each method gives ``None`` for what its driver does not report."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(index)

    def get(self, name: str, *arguments: object) -> Any:
        """What ``nvmlDeviceGet`` with this ending gives."""
        try:
            return getattr(pynvml, f"nvmlDeviceGet{name}")(self.handle, *arguments)
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
            return None

    def field(self, number: int) -> int | None:
        """A field of ``nvmlDeviceGetFieldValues``."""
        values = self.get("FieldValues", [number])
        if values is None or values[0].nvmlReturn:
            return None
        value = values[0].value
        kinds = {1: value.uiVal, 3: value.ullVal, 5: value.siVal}
        return int(kinds[values[0].valueType])

    def memory(self, part: str) -> Value:
        """MiB of the memory, with the driver's reserve apart."""
        info = self.get("MemoryInfo", pynvml.nvmlMemory_v2)
        return None if info is None or not info.total else _mib(getattr(info, part))

    def bar1(self, part: str) -> Value:
        """MiB of BAR1."""
        info = self.get("BAR1MemoryInfo")
        return None if info is None else _mib(getattr(info, f"bar1{part}"))

    def part(self, name: str, index: int | str) -> Any:
        """A part of a pair or a structure."""
        found = self.get(name)
        if found is None:
            return None
        return getattr(found, index) if isinstance(index, str) else found[index]

    def pci(self, part: str) -> Any:
        """A number of its place on the bus."""
        return self.part("PciInfo", part)

    def bus_id(self) -> str:
        """As nvidia-smi writes it."""
        pci = self.get("PciInfo")
        return f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.0"

    def reason(self, bit: int) -> Value:
        """Whether the clocks are reduced for this reason."""
        bits = self.get("CurrentClocksEventReasons")
        return None if bits is None else "Active" if bits & bit else "Not Active"

    def remapped(self, index: int) -> Any:
        """A number of ``nvmlDeviceGetRemappedRows``."""
        return self.part("RemappedRows", index)

    def retired(self, cause: int) -> Value:
        """How many pages were retired."""
        pages = self.get("RetiredPages", cause)
        return None if pages is None else str(len(pages))

    def processes(self) -> list[tuple[str, Any]]:
        """Its processes with their letters; a process of both kinds is listed once."""
        found: dict[int, tuple[str, Any]] = {}
        for letter in "CG":
            kind = "Compute" if letter == "C" else "Graphics"
            for process in self.get(f"{kind}RunningProcesses") or ():
                before = found.get(process.pid)
                found[process.pid] = (f"{before[0]}+{letter}" if before else letter, process)
        return list(found.values())


def _mib(size: int) -> str:
    return str(round(size / MIB))


def _text(value: object) -> Value:
    return None if value is None else str(value)


def _watts(milliwatts: int | None) -> Value:
    return None if milliwatts is None else f"{milliwatts / 1000:.2f}"


def _on(value: object, yes: str = "Enabled", no: str = "Disabled") -> Value:
    return None if value is None else yes if value else no


def _yes(value: object) -> Value:
    return _on(value, "Yes", "No")


def _hex(value: int | None, digits: int) -> Value:
    return None if value is None else f"0x{value:0{digits}X}"


def _named(names: Sequence[str], value: int | None) -> Value:
    return None if value is None else names[value]


def _capability(gpu: Gpu) -> Value:
    pair = gpu.get("CudaComputeCapability")
    return None if pair is None else f"{pair[0]}.{pair[1]}"


def _margin(gpu: Gpu) -> Value:
    return _text(gpu.get("MarginTemperature"))


def _now() -> str:
    now = time.time()
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)) + f".{int(now * 1000) % 1000:03}"


COMPUTE_MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
RECOVERY = ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset")
ARCHITECTURES = {5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper"}
ARCHITECTURES[10] = "Blackwell"
REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "sw_thermal_slowdown": 0x20,
    "sync_boost": 0x10,
}
CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}


class Field(NamedTuple):
    """A field of ``--query-gpu``; ``other`` is a second name."""

    about: str
    read: Callable[[Gpu], Value]
    unit: str = ""
    other: str = ""


def _never(_: Gpu) -> Value:
    return None


def _absent(about: str, *names: str, unit: str = "") -> dict[str, Field]:
    """Fields that the simulated driver has no value for."""
    return {name: Field(about, _never, unit) for name in names}


def _fixed(text: str) -> Callable[[Gpu], Value]:
    return lambda _: text


def _utilization(name: str) -> Callable[[Gpu], Value]:
    if name in {"gpu", "memory"}:
        return lambda gpu: _text(gpu.part("UtilizationRates", name))
    call = {"encoder": "Encoder", "decoder": "Decoder", "jpeg": "Jpg", "ofa": "Ofa"}[name]
    return lambda gpu: _text(gpu.part(f"{call}Utilization", 0))


def _clock(kind: str, number: int) -> Callable[[Gpu], Value]:
    return lambda gpu: _text(gpu.get(kind, number))


def _memory(part: str) -> Callable[[Gpu], Value]:
    return lambda gpu: gpu.memory(part)


def _reason(bit: int) -> Callable[[Gpu], Value]:
    return lambda gpu: gpu.reason(bit)


def _ecc(kind: int, counter: int) -> Callable[[Gpu], Value]:
    return lambda gpu: _text(gpu.get("TotalEccErrors", kind, counter))


def _switch(name: str, index: int) -> Callable[[Gpu], Value]:
    """Of a pair: how it is now, and after the next reset."""
    return lambda gpu: _on(gpu.part(name, index))


def _milliwatts(number: int) -> Callable[[Gpu], Value]:
    return lambda gpu: _watts(gpu.field(number))


_ECC_PARTS = ("device_memory", "dram", "register_file", "l1_cache", "l2_cache", "texture_memory")

SECTIONS: dict[str, dict[str, Field]] = {
    "": {
        "timestamp": Field("When the query was made.", lambda _: _now()),
        "driver_version": Field(
            "Version of the driver.", lambda _: str(pynvml.nvmlSystemGetDriverVersion())
        ),
        "count": Field("Number of GPUs.", lambda _: str(pynvml.nvmlDeviceGetCount())),
        "name": Field("Product name.", lambda gpu: _text(gpu.get("Name")), other="gpu_name"),
        "serial": Field("Number of the board.", lambda gpu: gpu.get("Serial"), other="gpu_serial"),
        "uuid": Field("Identifier of the GPU.", lambda gpu: gpu.get("UUID"), other="gpu_uuid"),
        "pci.bus_id": Field("Workload on the bus, in hex.", Gpu.bus_id, other="gpu_bus_id"),
        "pci.domain": Field("Domain, in hex.", lambda gpu: _hex(gpu.pci("domain"), 4)),
        "pci.bus": Field("Bus, in hex.", lambda gpu: _hex(gpu.pci("bus"), 2)),
        "pci.device": Field("Device, in hex.", lambda gpu: _hex(gpu.pci("device"), 2)),
        "pci.device_id": Field("Model, in hex", lambda gpu: _hex(gpu.pci("pciDeviceId"), 8)),
        "pcie.link.gen.current": Field(
            "Generation of the link. Deprecated.",
            lambda gpu: _text(gpu.get("CurrPcieLinkGeneration")),
        ),
        "pcie.link.gen.gpucurrent": Field(
            "Generation of the link.", lambda gpu: _text(gpu.get("CurrPcieLinkGeneration"))
        ),
        "pcie.link.gen.max": Field(
            "Highest generation of GPU and slot.",
            lambda gpu: _text(gpu.get("MaxPcieLinkGeneration")),
        ),
        "pcie.link.gen.gpumax": Field(
            "Highest generation of the GPU.", lambda gpu: _text(gpu.get("GpuMaxPcieLinkGeneration"))
        ),
        "pcie.link.width.current": Field(
            "Lanes of the link.", lambda gpu: _text(gpu.get("CurrPcieLinkWidth"))
        ),
        "pcie.link.width.max": Field(
            "Most lanes of the link.", lambda gpu: _text(gpu.get("MaxPcieLinkWidth"))
        ),
        "index": Field("Index of the GPU.", lambda gpu: str(gpu.index)),
        "display_mode": Field("Deprecated, do not use.", _fixed(f"[{NO_LONGER}]")),
        "display_attached": Field(
            'Whether a display is connected: "Yes" or "No".',
            lambda gpu: _yes(gpu.get("DisplayMode")),
        ),
        "display_active": Field(
            "Whether a display is set up.", lambda gpu: _on(gpu.get("DisplayActive"))
        ),
        "persistence_mode": Field(
            'Whether the driver stays: "Enabled" or "Disabled".',
            lambda gpu: _on(gpu.get("PersistenceMode")),
        ),
        "addressing_mode": Field("How memory is addressed.", _fixed("None")),
        "accounting.mode": Field(
            "Whether processes are accounted.", lambda gpu: _on(gpu.get("AccountingMode"))
        ),
        "accounting.buffer_size": Field(
            "For how many processes.", lambda gpu: _text(gpu.get("AccountingBufferSize"))
        ),
        **_absent("Always N/A on Linux.", "driver_model.current", "driver_model.pending"),
        "vbios_version": Field("Version of the firmware.", lambda gpu: gpu.get("VbiosVersion")),
    },
    "inforom": {
        **_absent("Version of an object.", *(f"inforom.{part}" for part in ("img", "oem", "ecc"))),
        "inforom.pwr": Field("Version of an object.", _never, other="inforom.power"),
        "inforom.checksum_validation": Field("Whether it is sound.", _fixed("valid")),
        "gpu_recovery_action": Field(
            "What recovers the GPU.", lambda gpu: _named(RECOVERY, gpu.field(230))
        ),
    },
    "gom": {
        **_absent("Operation mode.", "gom.current", "gom.pending"),
        "fan.speed": Field("Speed wanted.", lambda gpu: _text(gpu.get("FanSpeed")), "%"),
        "pstate": Field(
            "Performance state.",
            lambda gpu: None if (state := gpu.get("PerformanceState")) is None else f"P{state}",
        ),
    },
    "clocks_event_reasons": {
        "clocks_event_reasons.supported": Field(
            "Bits.", lambda gpu: _hex(gpu.get("SupportedClocksEventReasons"), 16)
        ),
        "clocks_event_reasons.active": Field(
            "Bits.",
            lambda gpu: _hex(gpu.get("CurrentClocksEventReasons"), 16),
            other="clocks_throttle_reasons.active",
        ),
        **{
            f"clocks_event_reasons.{name}": Field("Whether clocks are reduced.", _reason(bit))
            for name, bit in REASONS.items()
        },
    },
    "clocks_event_reasons_counters": _absent(
        "For how long the clocks were reduced.",
        *(
            f"clocks_event_reasons_counters.{name}"
            for name in ("sw_power_cap", "sync_boost", "sw_thermal_slowdown")
        ),
        "clocks_event_reasons_counters.hw_thermal_slowdown",
        "clocks_event_reasons_counters.hw_power_brake_slowdown",
        unit="us",
    ),
    "memory": {
        **{
            f"memory.{part}": Field("Memory of the GPU.", _memory(part), "MiB")
            for part in ("total", "reserved", "used", "free")
        },
        "compute_mode": Field(
            'Who may use it.\n"0: Default" means several contexts.',
            lambda gpu: _named(COMPUTE_MODES, gpu.get("ComputeMode")),
        ),
        "compute_cap": Field("Compute capability.", _capability),
    },
    "utilization": {
        f"utilization.{name}": Field("Share of time in use.", _utilization(name), "%")
        for name in ("gpu", "memory", "encoder", "decoder", "jpeg", "ofa")
    },
    "encoder.stats": _absent(
        "Sessions of the encoder.",
        *(f"encoder.stats.{name}" for name in ("sessionCount", "averageFps", "averageLatency")),
    ),
    "dramEncryption.mode": _absent(
        "Whether memory is encrypted.", "dramEncryption.mode.current", "dramEncryption.mode.pending"
    ),
    "ecc.mode": {
        f"ecc.mode.{name}": Field("Whether ECC is on.", _switch("EccMode", i))
        for i, name in enumerate(("current", "pending"))
    },
    "ecc.errors": {
        name: field
        for kind, what in enumerate(("corrected", "uncorrected"))
        for counter, since in enumerate(("volatile", "aggregate"))
        for name, field in {
            **_absent("Errors.", *(f"ecc.errors.{what}.{since}.{part}" for part in _ECC_PARTS)),
            f"ecc.errors.{what}.{since}.total": Field("All errors.", _ecc(kind, counter)),
        }.items()
    },
    "retired_pages": {
        "retired_pages.single_bit_ecc.count": Field(
            "Pages.", lambda gpu: gpu.retired(0), other="retired_pages.sbe"
        ),
        "retired_pages.double_bit.count": Field(
            "Pages.", lambda gpu: gpu.retired(1), other="retired_pages.dbe"
        ),
        "retired_pages.pending": Field(
            "At the next reset.", lambda gpu: _yes(gpu.get("RetiredPagesPendingStatus"))
        ),
    },
    "remapped_rows": {
        "remapped_rows.correctable": Field("Rows.", lambda gpu: _text(gpu.remapped(0))),
        "remapped_rows.uncorrectable": Field("Rows.", lambda gpu: _text(gpu.remapped(1))),
        "remapped_rows.pending": Field("At the next reset.", lambda gpu: _yes(gpu.remapped(2))),
        "remapped_rows.failure": Field("Whether it failed.", lambda gpu: _yes(gpu.remapped(3))),
        **_absent(
            "Banks.",
            *(f"remapped_rows.histogram.{n}" for n in ("max", "high", "partial", "low", "none")),
        ),
        "temperature.gpu": Field(
            " Of the chip, in degrees C.", lambda gpu: _text(gpu.get("Temperature", 0))
        ),
        "temperature.gpu.tlimit": Field(" To the limit, in degrees C.", _margin),
        "temperature.memory": Field(
            " Of the memory, in degrees C.", lambda gpu: _text(gpu.field(82)) or "N/A"
        ),
        "power.management": Field(
            "Whether power is managed.", lambda gpu: _on(gpu.get("PowerManagementMode"))
        ),
        "power.draw": Field("Power.", lambda gpu: _watts(gpu.get("PowerUsage")), "W"),
        "power.draw.average": Field("Of a second.", _milliwatts(185), "W"),
        "power.draw.instant": Field("Now.", _milliwatts(186), "W"),
        "power.limit": Field("Wanted.", lambda gpu: _watts(gpu.get("PowerManagementLimit")), "W"),
        "enforced.power.limit": Field(
            "In effect.", lambda gpu: _watts(gpu.get("EnforcedPowerLimit")), "W"
        ),
        "power.default_limit": Field(
            "By default.", lambda gpu: _watts(gpu.get("PowerManagementDefaultLimit")), "W"
        ),
        "power.min_limit": Field(
            "Lowest.", lambda gpu: _watts(gpu.part("PowerManagementLimitConstraints", 0)), "W"
        ),
        "power.max_limit": Field(
            "Highest.", lambda gpu: _watts(gpu.part("PowerManagementLimitConstraints", 1)), "W"
        ),
        **_absent("Of the module.", "module.power.draw.average", "module.power.limit", unit="W"),
        **{
            f"clocks.current.{name}": Field("Clock.", _clock("ClockInfo", number), "MHz")
            for name, number in CLOCKS.items()
        },
    },
    "clocks.applications": {
        f"clocks.applications.{name}": Field(
            "Clock of applications.", _clock("ApplicationsClock", CLOCKS[name]), "MHz"
        )
        for name in ("graphics", "memory")
    },
    "clocks.max": {
        f"clocks.max.{name}": Field("Highest.", _clock("MaxClockInfo", CLOCKS[name]), "MHz")
        for name in ("graphics", "sm", "memory")
    },
    "mig.mode": {
        f"mig.mode.{name}": Field("Whether MIG is on.", _switch("MigMode", i))
        for i, name in enumerate(("current", "pending"))
    },
    "gsp.mode": {
        **{f"gsp.mode.{n}": Field("Firmware.", _fixed("Enabled")) for n in ("current", "default")},
        "c2c.mode": Field("Whether chips are joined.", _fixed("Disabled")),
    },
    "protected_memory": {
        **_absent(
            "Memory.", *(f"protected_memory.{p}" for p in ("total", "used", "free")), unit="MiB"
        ),
        **_absent("Of the fabric.", "fabric.state", "fabric.status", "fabric.cliqueId"),
    },
    "platform": {
        **_absent("Where it is.", "platform.slot_number", "platform.module_id"),
        "platform.chassis_serial_number": Field("Of the chassis.", _fixed("")),
        "hostname": Field("Of the GPU.", _never),
    },
}

FIELDS = {name: field for section in SECTIONS.values() for name, field in section.items()}
NAMES = {**{field.other: name for name, field in FIELDS.items()}, **{name: name for name in FIELDS}}
NAMES.pop("", None)


def _help(switch: str) -> None:
    print(f'List of valid properties to query for the switch "{switch}":\n')
    for section, fields in SECTIONS.items():
        if section:
            print(f"Section about {section} properties\nOf the {section} of the GPU.\n")
        for name, field in fields.items():
            print(f'"{name}"' + (f' or "{field.other}"' if field.other else ""))
            print(f"{field.about}\n")


# Values that are wrong on purpose


def _changes() -> dict[str, str]:
    parts = os.environ.get("SMI_WRONG", "").split(",")
    return dict(part.split("=", 1) for part in parts if "=" in part)


def _wrong(name: str, text: str) -> str:
    change = _changes().get(name)
    if change is None:
        return text
    if change[:1] not in "+-":
        return change
    return re.sub(r"-?[0-9]+", lambda match: str(int(match[0]) + int(change)), text, count=1)


# --query-gpu, --query-compute-apps


class _Format(NamedTuple):
    header: bool
    units: bool


def _format(text: str) -> _Format:
    parts = text.split(",")
    return _Format("noheader" not in parts, "nounits" not in parts)


def _cell(value: str, unit: str, form: _Format) -> str:
    return f"{value} {unit}" if unit and form.units and not value.startswith("[") else value


def _heading(names: Sequence[str], units: Mapping[str, str], form: _Format) -> str:
    return ", ".join(
        f"{name} [{units[name]}]" if units.get(name) and form.units else name for name in names
    )


def _query_gpu(names: Sequence[str], form: _Format) -> None:
    if form.header:
        print(_heading(names, {name: field.unit for name, field in FIELDS.items()}, form))
    for gpu in _gpus():
        cells = []
        for name in names:
            value = FIELDS[name].read(gpu)
            text = NO_VALUE if value is None else value
            cells.append(_cell(_wrong(name, text), FIELDS[name].unit, form))
        print(", ".join(cells))


APP_FIELDS: dict[str, Callable[[Gpu, Any], Value]] = {
    "timestamp": lambda _gpu, _app: _now(),
    "gpu_name": lambda gpu, _app: _text(gpu.get("Name")),
    "gpu_bus_id": lambda gpu, _app: gpu.bus_id(),
    "gpu_serial": lambda gpu, _app: gpu.get("Serial"),
    "gpu_uuid": lambda gpu, _app: gpu.get("UUID"),
    "pid": lambda _gpu, app: str(app.pid),
    "process_name": lambda _gpu, app: _command(app.pid),
    "used_gpu_memory": lambda _gpu, app: _app_memory(app),
}
APP_NAMES = {"name": "process_name", "used_memory": "used_gpu_memory"}


def _app_memory(app: Any) -> Value:
    return None if app.usedGpuMemory is None else _mib(app.usedGpuMemory)


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        words = [""]
    return words[0] or "[Not Found]"


def _query_apps(names: Sequence[str], form: _Format) -> None:
    if form.header:
        print(_heading(names, {"used_gpu_memory": "MiB"}, form))
    for gpu in _gpus():
        for kind, app in gpu.processes():
            if "C" in kind:
                values = [(name, APP_FIELDS[name](gpu, app) or NO_VALUE) for name in names]
                units = {"used_gpu_memory": "MiB"}
                print(", ".join(_cell(text, units.get(name, ""), form) for name, text in values))


# -q -x

Tree = dict[str, "str | Tree"]


def _with(unit: str, value: Value) -> str:
    if value is None:
        return "N/A"
    return f"{value}{unit}" if unit == "x" or not unit else f"{value} {unit}"


def _element(gpu: Gpu, name: str) -> str:
    field = FIELDS[name]
    return _with(field.unit, field.read(gpu))


def _pci(gpu: Gpu) -> Tree:
    return {
        "pci_bus": f"{gpu.pci('bus'):02X}",
        "pci_bus_id": gpu.bus_id(),
        "pci_gpu_link_info": {
            "pcie_gen": {
                "max_link_gen": _element(gpu, "pcie.link.gen.max"),
                "current_link_gen": _element(gpu, "pcie.link.gen.gpucurrent"),
                "device_current_link_gen": _element(gpu, "pcie.link.gen.gpucurrent"),
                "max_device_link_gen": _element(gpu, "pcie.link.gen.gpumax"),
                "max_host_link_gen": "N/A",
            },
            "link_widths": {
                "max_link_width": _with("x", _text(gpu.get("MaxPcieLinkWidth"))),
                "current_link_width": _with("x", _text(gpu.get("CurrPcieLinkWidth"))),
            },
        },
        "replay_counter": _with("", _text(gpu.get("PcieReplayCounter"))),
        "tx_util": _with("KB/s", _text(gpu.get("PcieThroughput", 0))),
        "rx_util": _with("KB/s", _text(gpu.get("PcieThroughput", 1))),
    }


def _ecc_errors(gpu: Gpu, since: str) -> Tree:
    """The simulated driver knows totals only; they are all of the DRAM."""
    corrected = _element(gpu, f"ecc.errors.corrected.{since}.total")
    sram = "N/A" if corrected == "N/A" else "0"
    return {
        "sram_correctable": sram,
        "sram_uncorrectable_parity": sram,
        "sram_uncorrectable_secded": sram,
        "dram_correctable": corrected,
        "dram_uncorrectable": _element(gpu, f"ecc.errors.uncorrected.{since}.total"),
    }


def _temperatures(gpu: Gpu) -> Tree:
    now: Tree = {"gpu_temp": _with("C", FIELDS["temperature.gpu"].read(gpu))}
    memory = _with("C", _text(gpu.field(82)))
    if _margin(gpu) is None:
        limits = {"gpu_temp_max_threshold": 0, "gpu_temp_slow_threshold": 1}
        now |= {n: _with("C", _text(gpu.get("TemperatureThreshold", i))) for n, i in limits.items()}
    else:
        now["gpu_temp_tlimit"] = _with("C", _margin(gpu))
        limits = {"gpu_temp_max_tlimit_threshold": 193, "gpu_temp_slow_tlimit_threshold": 194}
        now |= {name: _with("C", _text(gpu.field(number))) for name, number in limits.items()}
    return {**now, "gpu_target_temperature": "N/A", "memory_temp": memory}


def _process(kind: str, app: Any) -> str:
    memory = _with("MiB", _app_memory(app))
    return "".join(
        f"<{tag}>{escape(text)}</{tag}>"
        for tag, text in (
            *(("gpu_instance_id", "N/A"), ("compute_instance_id", "N/A"), ("pid", str(app.pid))),
            *(("type", kind), ("process_name", _command(app.pid)), ("used_memory", memory)),
        )
    )


def _tree(gpu: Gpu) -> Tree:
    def of(*names: str, **renamed: str) -> Tree:
        tags = {**{name: name for name in names}, **renamed}
        return {tag: _element(gpu, name) for tag, name in tags.items()}

    reasons: Tree = {
        f"clocks_event_reason_{name}": gpu.reason(bit) or "N/A"
        for name, bit in {**REASONS, "display_clocks_setting": 0x100}.items()
    }
    bar1 = {part.lower(): _with("MiB", gpu.bar1(part)) for part in ("Total", "Used", "Free")}
    clocks = {"graphics": "graphics", "sm": "sm", "mem": "memory", "video": "video"}
    power = _of_power(gpu)
    return {
        "product_name": _element(gpu, "name"),
        "product_brand": "NVIDIA",
        "product_architecture": ARCHITECTURES.get(gpu.get("Architecture"), "N/A"),
        "display_mode": NO_LONGER,
        **of("display_attached", "display_active", "persistence_mode", "addressing_mode"),
        "mig_mode": of(current_mig="mig.mode.current", pending_mig="mig.mode.pending"),
        "accounting_mode": _element(gpu, "accounting.mode"),
        **of("serial", "uuid"),
        "minor_number": _with("", _text(gpu.get("MinorNumber"))),
        **of("vbios_version", c2c_mode="c2c.mode"),
        **of("gpu_recovery_action"),
        "pci": _pci(gpu),
        "fan_speed": _element(gpu, "fan.speed"),
        "performance_state": _element(gpu, "pstate"),
        "clocks_event_reasons": reasons,
        "fb_memory_usage": of(
            total="memory.total", reserved="memory.reserved", used="memory.used", free="memory.free"
        ),
        "bar1_memory_usage": {**bar1},
        "compute_mode": _element(gpu, "compute_mode"),
        "utilization": {
            f"{name}_util": _element(gpu, f"utilization.{name}")
            for name in ("gpu", "memory", "encoder", "decoder", "jpeg", "ofa")
        },
        "ecc_mode": of(current_ecc="ecc.mode.current", pending_ecc="ecc.mode.pending"),
        "ecc_errors": {since: _ecc_errors(gpu, since) for since in ("volatile", "aggregate")},
        "retired_pages": {
            "multiple_single_bit_retirement": of(
                retired_count="retired_pages.single_bit_ecc.count"
            ),
            "double_bit_retirement": of(retired_count="retired_pages.double_bit.count"),
            **of(pending_retirement="retired_pages.pending"),
        },
        "remapped_rows": of(
            remapped_row_corr="remapped_rows.correctable",
            remapped_row_unc="remapped_rows.uncorrectable",
            remapped_row_pending="remapped_rows.pending",
            remapped_row_failure="remapped_rows.failure",
        ),
        "temperature": _temperatures(gpu),
        "gpu_power_readings": power,
        "clocks": of(**{f"{tag}_clock": f"clocks.current.{name}" for tag, name in clocks.items()}),
        "max_clocks": {
            f"{tag}_clock": _with("MHz", _text(gpu.get("MaxClockInfo", CLOCKS[name])))
            for tag, name in clocks.items()
        },
        "fabric": {"state": "N/A", "status": "N/A", "cliqueId": "N/A"},
    }


def _of_power(gpu: Gpu) -> Tree:
    names = {
        "average_power_draw": "power.draw.average",
        "instant_power_draw": "power.draw.instant",
        "current_power_limit": "enforced.power.limit",
        "requested_power_limit": "power.limit",
        "default_power_limit": "power.default_limit",
        "min_power_limit": "power.min_limit",
        "max_power_limit": "power.max_limit",
    }
    return {tag: _element(gpu, name) for tag, name in names.items()}


def _written(tree: Tree, path: str, depth: int) -> Iterator[str]:
    tabs = "\t" * depth
    for tag, inner in tree.items():
        if isinstance(inner, dict):
            yield f"{tabs}<{tag}>"
            yield from _written(inner, f"{path}{tag}/", depth + 1)
            yield f"{tabs}</{tag}>"
        else:
            yield f"{tabs}<{tag}>{escape(_wrong(path + tag, inner))}</{tag}>"


def _xml() -> None:
    gpus = _gpus()
    print('<?xml version="1.0" ?>')
    print('<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>')
    print(f"\t<timestamp>{time.ctime()}</timestamp>")
    print(f"\t<driver_version>{pynvml.nvmlSystemGetDriverVersion()}</driver_version>")
    print(f"\t<attached_gpus>{len(gpus)}</attached_gpus>")
    for gpu in gpus:
        print(f'\t<gpu id="{gpu.bus_id()}">')
        print("\n".join(_written(_tree(gpu), "", 2)))
        apps = [f"<process_info>{_process(*found)}</process_info>" for found in gpu.processes()]
        print("\t\t<processes>" + "\n".join(apps) + "</processes>\n\t</gpu>")
    print("</nvidia_smi_log>")


# pmon and the table


def _samples(gpu: Gpu) -> dict[int, Any]:
    newest: dict[int, Any] = {}
    for sample in gpu.get("ProcessUtilization", 0) or ():
        if sample.pid not in newest or newest[sample.pid].timeStamp < sample.timeStamp:
            newest[sample.pid] = sample
    return newest


def _pmon(kinds: str) -> None:
    memory, use = "m" in kinds, "u" in kinds
    parts = [*(["fb", "ccpm"] if memory else [])]
    parts += ["sm", "mem", "enc", "dec", "jpg", "ofa"] if use else []
    units = ["MB" if part in {"fb", "ccpm"} else "%" for part in parts]
    print("# gpu         pid   type " + "".join(f"{part:>6} " for part in parts) + "   command ")
    print("# Idx           #    C/G " + "".join(f"{unit:>6} " for unit in units) + "   name ")
    for gpu in _gpus():
        samples = _samples(gpu)
        for kind, app in gpu.processes():
            cells = [*([_app_memory(app) or "-", "0"] if memory else [])]
            sample = samples.get(app.pid)
            if use:
                names = ("smUtil", "memUtil", "encUtil", "decUtil")
                cells += [str(getattr(sample, n)) if sample else "-" for n in names] + ["-", "-"]
            shown = "".join(f"{cell:>6} " for cell in cells)
            name = Path(_command(app.pid)).name
            print(f"{gpu.index:>5} {app.pid:>10} {kind:>5}  {shown}   {name:<14} ")
        if not gpu.processes():
            print(f"{gpu.index:>5} {'-':>10} {'-':>5}  " + "     - " * len(parts) + "   -")


_IN_TABLE = (
    *("fan.speed", "temperature.gpu", "pstate", "power.draw", "enforced.power.limit"),
    *("memory.used", "memory.total", "utilization.gpu", "compute_mode"),
)


def _table() -> None:
    width = 89
    version = pynvml.nvmlSystemGetDriverVersion()
    print(f"{time.ctime()}       \n+{'-' * width}+")
    print(f"| NVIDIA-SMI {version}   Driver Version: {version}".ljust(width + 1) + "|")
    print(f"+{'-' * width}+")
    for gpu in _gpus():
        names = "  ".join(_element(gpu, n) for n in ("name", "persistence_mode", "pci.bus_id"))
        print(f"| {gpu.index:>3}  {names}".ljust(width + 1) + "|")
        values = "  ".join(_element(gpu, name) for name in _IN_TABLE)
        print(f"| {values}".ljust(width + 1) + "|")
    print(f"+{'-' * width}+\n")
    for gpu in _gpus():
        for kind, app in gpu.processes():
            words = f"| {gpu.index:>3} {app.pid:>12} {kind:>5}  {_command(app.pid)[:40]:<40}"
            print(f"{words} {_with('MiB', _app_memory(app)):>12}".ljust(width + 1) + "|")
    print(f"+{'-' * width}+", flush=True)


def _gpus() -> list[Gpu]:
    return [Gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]


# The command line


class _Options(NamedTuple):
    switches: dict[str, str]
    words: list[str]


def _options(arguments: Sequence[str]) -> _Options:
    """Switches with their values, which follow ``=`` or are the next argument."""
    switches: dict[str, str] = {}
    words: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, is_given, value = argument.partition("=")
        if not name.startswith("-"):
            words.append(name)
        elif is_given or name in {"-q", "-x", "--query", "--xml-format", "--help-query-gpu"}:
            switches[name] = value
        else:
            switches[name] = next(rest, "")
    return _Options(switches, words)


def _resolved(text: str, names: Mapping[str, str]) -> list[str]:
    """The fields in a list; ends the program as nvidia-smi does when there is an unknown one."""
    asked = [name.strip() for name in text.split(",") if name.strip()]
    for name in asked:
        if name not in names:
            print(f'Field "{name}" is not a valid field to query.\n')
            sys.exit(NO_SUCH_FIELD)
    return [names[name] for name in asked]


def _action(options: _Options) -> Callable[[], None]:
    """What to print, once or again and again."""
    switches = options.switches
    form = _format(switches.get("--format", ""))
    if "--query-gpu" in switches:
        fields = _resolved(switches["--query-gpu"], NAMES)
        return lambda: _query_gpu(fields, form)
    if "--query-compute-apps" in switches:
        known = {**{name: name for name in APP_FIELDS}, **APP_NAMES}
        apps = _resolved(switches["--query-compute-apps"], known)
        return lambda: _query_apps(apps, form)
    if "-q" in switches and "-x" in switches:
        return _xml
    if options.words[:1] == ["pmon"]:
        return lambda: _pmon(switches.get("-s", "um"))
    if options.words or set(switches) - {"-l", "-lms", "--loop", "--loop-ms"}:
        print(f"Invalid combination of input arguments. {options.words} {sorted(switches)}")
        sys.exit(NO_SUCH_OPTION)
    return _table


def main(arguments: Sequence[str]) -> int:
    """Answer as nvidia-smi does; the exit status."""
    options = _options(arguments)
    if "--help-query-gpu" in options.switches:
        _help("--query-gpu")
        return 0
    act = _action(options)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        print(f"NVIDIA-SMI has failed because it couldn't communicate with the driver: {error}")
        return 9
    seconds = options.switches.get("-l") or options.switches.get("--loop")
    millis = options.switches.get("-lms") or options.switches.get("--loop-ms")
    pause = float(seconds) if seconds else float(millis) / 1000 if millis else 0.0
    act()
    while pause:
        sys.stdout.flush()
        time.sleep(pause)
        act()
    return 0


def installed(folder: Path) -> Path:
    """Write the program ``nvidia-smi`` into a folder, which goes first on the PATH."""
    script = folder / "nvidia-smi"
    script.write_text(
        "#!/bin/sh\n"
        f"PYTHONPATH={shlex.quote(str(ROOT))}${{PYTHONPATH:+:$PYTHONPATH}} "
        f'exec {shlex.quote(sys.executable)} -m tests.driver.smi "$@"\n'
    )
    script.chmod(0o755)
    return script


@contextmanager
def _until_interrupted() -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(130)


if __name__ == "__main__":
    with _until_interrupted():
        sys.exit(main(sys.argv[1:]))
