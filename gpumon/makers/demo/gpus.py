"""The eight GPUs of the demo: their constant values, and the curves of the others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from gpumon.makers.backend import DRIVER_FIELDS
from gpumon.makers.demo.curves import (
    Area,
    dimmed,
    mean,
    ripples,
    scaled,
    steady,
    switch,
    together,
    wave,
)
from gpumon.makers.demo.scenario import (
    GIB,
    GPU_LOST,
    HOUR,
    JOB_STUCK,
    LOST_GPU,
    MACHINE_BOOT,
    MINUTE,
    PAST,
    STRAY_GPU,
    TRANSCRIPTIONS,
    VISITS,
)
from gpumon.model.snapshot import Gpu, GpuStatus, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from gpumon.makers.demo.scenario import Runs

GPUS = 8
DRIVER_CLIENTS = 4 * 2**20
"""Bytes in use on a GPU without processes."""

_MIB = 2**20
_HOT_GPU = 2
_STUCK_GPU = 5

_FILLED = (0.88, 0.85, 0.95, 0.6, 0.8, 0.93, 0.9, 0.52)
"""``DemoGpu.filled`` of each."""
_EMPTY_GPU, _HARDLY_FILLED = 1, 0.09
"""It is busy with kernels that are too small for it, unless it is ``sound``."""
_SPINNING = 0.03
"""The same of a job that waits for another rank: a few of its blocks spin."""

# Times of the scenario, in seconds after the demo's start.
_NOTEBOOK_LEFT = -(3 * HOUR + 12 * MINUTE)
_COOLING_WORSE = -10 * MINUTE
_THERMAL_SLOWDOWN = -4 * MINUTE

_MEMORY_TOTAL = 81559 * _MIB
_MEMORY_RESERVED = 551 * _MIB
_IDLE_WATTS = 71.0
_TEMPERATURE_TARGET = 87

# The values that nvidia-smi shows for a machine with eight H100 SXM.
PCI_BUSES = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")
_STATIC: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3",
    "architecture": "Hopper",
    "compute_capability": "9.0",
    "vbios_version": "96.00.99.00.01",
    "memory_total": _MEMORY_TOTAL,
    "memory_reserved": _MEMORY_RESERVED,
    "memory_unified": False,
    "bar1_total": 131072 * _MIB,
    "utilization_encoder": 0,
    "utilization_jpeg": 0,
    "utilization_ofa": 0,
    "temperature_slowdown": 89,
    "temperature_shutdown": 94,
    "power_limit": 700.0,
    "power_limit_min": 200.0,
    "power_limit_max": 700.0,
    "clock_memory": 2619,
    "clock_sm_max": 1980,
    "clock_memory_max": 2619,
    "clock_graphics_max": 1980,
    "clock_video_max": 1545,
    "pstate": 0,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "nvlink_active": 18,
    "nvlink_count": 18,
    "nvlink_errors": 0,
    "ecc_mode": True,
    "ecc_corrected_volatile": 0,
    "ecc_uncorrected_volatile": 0,
    "ecc_corrected_aggregate": 0,
    "ecc_uncorrected_aggregate": 0,
    "remapped_rows_correctable": 0,
    "remapped_rows_uncorrectable": 0,
    "remapped_rows_pending": False,
    "remapped_rows_failure": False,
    "recovery_action": "None",
    "persistence_mode": True,
    "compute_mode": "Default",
    "display_mode": False,
    "display_active": False,
    "mig_mode": False,
}
_KEPT_WHEN_LOST = (
    "name",
    "pci_bus_id",
    "minor_number",
    "architecture",
    "compute_capability",
    "vbios_version",
    "serial",
)
_ERRORS = ("xid", "xid_at")
_UNKNOWN_WHEN_LOST = dict.fromkeys(
    (name for name in DRIVER_FIELDS if name not in {*_KEPT_WHEN_LOST, *_ERRORS}),
    Unknown.GPU_LOST,
)


class DemoGpu(Struct, frozen=True):
    """A GPU of the demo."""

    index: int  # Its index.
    uuid: str  # Its UUID.
    fixed: dict[str, Any]  # The constant fields of ``Gpu``.
    busy: Area  # Share of time in which a kernel runs, 0 to 1.
    heat: Area  # Watts above the power of an idle GPU.
    decoder: Area  # Utilization of the video decoder, 0 to 1.
    cool: float  # Degrees Celsius when idle.
    filled: float  # Share of the multiprocessors that work while a kernel runs.
    nvlink: float  # Bytes per second over NVLink at full utilization.
    joules: float  # The energy counter at the demo's start.
    sound: bool  # Whether it is neither lost nor hot nor empty, as the scenario has it.

    def dimmed(
        self, computing: Sequence[tuple[float, float]], decoding: Sequence[tuple[float, float]]
    ) -> DemoGpu:
        """The GPU after some of its processes have ended.

        Args:
            computing: (start, remaining share of its work) ascending.
            decoding: The same for its video decoder.
        """
        return structs.replace(
            self,
            busy=dimmed(self.busy, computing),
            heat=dimmed(self.heat, computing),
            decoder=dimmed(self.decoder, decoding),
        )


def read(gpu: DemoGpu, start: float, time: float, used: int) -> Gpu:
    """The values of a GPU at a time."""
    now = time - start
    if gpu.index == LOST_GPU and now >= GPU_LOST and not gpu.sound:
        return _lost(gpu, start)
    utilization = utilization_of(gpu, now)
    heat = gpu.heat(now)
    watts = round(_IDLE_WATTS + heat - gpu.heat(now - 1.0), 2)
    temperature = _temperature(gpu, now, heat)
    slowed = gpu.index == _HOT_GPU and now >= _THERMAL_SLOWDOWN and not gpu.sound
    clock = _sm_clock(utilization, watts, slowed)
    traffic = utilization / 100
    filled = _SPINNING if gpu.index == _STUCK_GPU and now >= JOB_STUCK else gpu.filled
    active = utilization * filled
    return Gpu(
        index=gpu.index,
        uuid=gpu.uuid,
        status_since=start - PAST,
        sampled_at=time,
        memory_used=used,
        memory_free=_MEMORY_TOTAL - _MEMORY_RESERVED - used,
        bar1_used=(4 + 2 * (used > GIB)) * _MIB,
        utilization_gpu=utilization,
        utilization_memory=memory_activity(utilization),
        utilization_decoder=decoding_of(gpu, now),
        temperature_gpu=temperature,
        temperature_memory=temperature + 4 + utilization // 12,
        temperature_margin=_TEMPERATURE_TARGET - temperature,
        power_draw=watts,
        power_instant=round(_IDLE_WATTS + (heat - gpu.heat(now - 0.02)) / 0.02, 2),
        power_average=watts,
        energy=round(gpu.joules + _IDLE_WATTS * now + heat, 3),
        clock_sm=clock,
        clock_graphics=clock,
        clock_video=min(1545, clock),
        clock_event_reasons=_event_reasons(utilization, watts, slowed),
        pcie_rx=2e5 + 3.1e9 * traffic,
        pcie_tx=1e5 + 0.9e9 * traffic,
        nvlink_rx=gpu.nvlink * traffic,
        nvlink_tx=gpu.nvlink * 0.97 * traffic,
        sm_active=round(active, 1),
        sm_occupancy=round(0.46 * active, 1),
        tensor_active=round(0.51 * active * filled, 1),
        fp64_active=0.0,
        fp32_active=round(0.17 * active, 1),
        fp16_active=round(0.06 * active, 1),
        dram_active=round(0.68 * active * filled, 1),
        **gpu.fixed,
    )


def utilization_of(gpu: DemoGpu, now: float) -> int:
    """Percent; a driver measures it a few times per second and repeats it in between."""
    return round(100 * _clip(mean(gpu.busy, math.floor(now * 4) / 4, 0.5)))


def decoding_of(gpu: DemoGpu, now: float) -> int:
    """Percent of the video decoder."""
    return round(100 * _clip(mean(gpu.decoder, now, 1.0)))


def memory_activity(utilization: int) -> int:
    """Percent of time in which memory is accessed, for a utilization."""
    return round(0.62 * utilization)


def _clip(share: float) -> float:
    return min(1.0, max(0.0, share))


def _temperature(gpu: DemoGpu, now: float, heat: float) -> int:
    """The chip follows the power within seconds, its heat sink within minutes."""
    lately = (heat - gpu.heat(now - 15.0)) / 15.0
    watts = (lately + (heat - gpu.heat(now - 150.0)) / 150.0) / 2
    fever = 0.0
    if gpu.index == _HOT_GPU and not gpu.sound:
        fever = 9.0 * _clip((now - _COOLING_WORSE) / (_THERMAL_SLOWDOWN - _COOLING_WORSE))
    return round(gpu.cool + 0.082 * watts + fever)


def _sm_clock(utilization: int, watts: float, slowed: bool) -> int:
    """MHz, in steps of 15."""
    if utilization == 0:
        return 345
    wanted = 1980 - 0.9 * max(0.0, watts - 450) - (345 if slowed else 0)
    return 15 * round(wanted / 15)


def _event_reasons(utilization: int, watts: float, slowed: bool) -> int:
    """Bits of ``metrics.CLOCK_EVENT_REASONS``."""
    if utilization == 0:
        return 0x1
    return (0x4 if watts > 615 else 0) | (0x20 if slowed else 0)


def _lost(gpu: DemoGpu, start: float) -> Gpu:
    """The values of a GPU that fell off the bus."""
    since = start + GPU_LOST
    return Gpu(
        index=gpu.index,
        uuid=gpu.uuid,
        status=GpuStatus.LOST,
        status_since=since,
        sampled_at=since,
        unknown=_UNKNOWN_WHEN_LOST,
        xid=79,
        xid_at=since,
        **{field: gpu.fixed[field] for field in _KEPT_WHEN_LOST},
    )


def make_noise(random: Random, amplitude: float) -> list[tuple[float, float, float]]:
    """Ripples that look like noise around 0, rarely larger than ``amplitude``."""
    return [
        (amplitude * part, period * random.uniform(0.9, 1.1), random.random())
        for part, period in ((0.45, 1.7), (0.35, 5.3), (0.3, 17.0))
    ]


def _training(random: Random, level: float, phase: float) -> Area:
    """Epochs of four minutes: full load, then a dip for the checkpoint."""
    high = level * 1.08
    # A pause stays above 0 even with all ripples at their lowest.
    low = 0.3 * level
    epoch = [(0, 0.3), (9, high), (70, level), (130, high), (226, level), (230, low), (240, 0.3)]
    # The duration of a step varies with the length of the sequences.
    swell = (0.12 * level, 31.0 * random.uniform(0.9, 1.1), random.random())
    return together(wave(epoch, phase), ripples(swell, *make_noise(random, 0.14 * level)))


def _nearly_full(random: Random) -> Area:
    """A job that rarely waits."""
    return together(steady(0.965), ripples(*make_noise(random, 0.02)))


def _serving(random: Random) -> Area:
    """A server with bursts of requests."""
    bursts = [
        wave([(0, 0), (0.4, height), (width, height), (width + 0.6, 0), (period, 0)], phase)
        for height, width, period, phase in (
            (0.22, 2.5, 7.3 * random.uniform(0.9, 1.1), random.random()),
            (0.31, 4.0, 23.9 * random.uniform(0.9, 1.1), random.random()),
            (0.28, 9.0, 71.0 * random.uniform(0.9, 1.1), random.random()),
        )
    ]
    return together(steady(0.02), *bursts)


def _recurring(level: float, runs: Runs) -> Area:
    """Work that starts shortly after its process and ends shortly before it."""
    end = runs.lasts - 4
    points = [(0, 0), (6, 0), (9, level), (end - 1, level), (end, 0), (runs.every, 0)]
    return wave(points, phase=-runs.started / runs.every)


def make_gpus(random: Random, *, sound: bool) -> tuple[DemoGpu, ...]:
    """The eight GPUs, each with its role in the scenario.

    Args:
        random: The source of what differs between machines.
        sound: Whether no GPU is lost, hot or busy but empty.
    """
    phase = random.random()
    idle = steady(0.0)
    rushing = _nearly_full(random)
    notebook = wave([(0, 0), (40, 0), (42, 0.7), (95, 0.6), (96, 0), (300, 0)], random.random())
    busy = (
        _training(random, 0.50, phase),
        _training(random, 0.27, phase + 0.01) if sound else _nearly_full(random),
        _nearly_full(random),
        switch(_NOTEBOOK_LEFT, notebook, idle),
        _recurring(0.93, VISITS),
        switch(JOB_STUCK, rushing, steady(1.0)),
        _nearly_full(random),
        _serving(random),
    )
    full_watts = (572.0, 530.0 if sound else 165.0, 577.0, 420.0, 540.0, 0.0, 560.0, 590.0)
    heat = [scaled(area, watts) for area, watts in zip(busy, full_watts, strict=True)]
    # It spins in a kernel that waits for another rank: fully utilized without progress.
    heat[_STUCK_GPU] = switch(JOB_STUCK, scaled(rushing, 565.0), steady(50.0))
    decoding = _recurring(0.38, TRANSCRIPTIONS)
    gpus = tuple(
        DemoGpu(
            index=index,
            uuid=_uuid(random),
            fixed={
                **_STATIC,
                "pci_bus_id": f"00000000:{PCI_BUSES[index]}:00.0",
                "minor_number": index,
                "serial": f"165{random.randrange(10**10):010d}",
            },
            busy=busy[index],
            heat=heat[index],
            decoder=decoding if index == STRAY_GPU else idle,
            filled=_HARDLY_FILLED if index == _EMPTY_GPU and not sound else _FILLED[index],
            cool=random.uniform(29.5, 32.5) if index != _HOT_GPU else 31.0,
            nvlink=85e9 if index < 2 else 0.0,
            joules=random.uniform(180, 420) * -MACHINE_BOOT,
            sound=sound,
        )
        for index in range(GPUS)
    )
    # Such a GPU is cooled by the chassis, and remaps rows where older GPUs retired pages.
    known = read(gpus[0], 0.0, 0.0, 0)
    absent = [name for name in DRIVER_FIELDS if getattr(known, name) is None]
    unknown = dict.fromkeys(absent, Unknown.NOT_SUPPORTED)
    for field in _ERRORS:
        # No error has happened is no reason why it is unknown.
        del unknown[field]
    for gpu in gpus:
        gpu.fixed["unknown"] = unknown
    return gpus


def _uuid(random: Random) -> str:
    digits = f"{random.getrandbits(128):032x}"
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
