"""What a measurement adds up of one GPU."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from gpumon.model.arithmetic import known_sum
from gpumon.model.snapshot import ANSWERING, Unknown
from gpumon.report.sums import Energy, Slowed, WeightedMean
from gpumon.text.formatting import UNKNOWN, memory_size, number
from gpumon.ui.view.gpu_text import short_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.processes import GpuUse
    from gpumon.model.snapshot import Gpu


class GpuUsage(Struct, frozen=True):
    """One GPU during a measurement. ``None`` is unknown; ``unknown`` says why.

    Means are over the time for which the value was known. "Own" is of this process and its
    descendants, as far as the driver lists processes.

    Attributes:
        index: Its index in nvidia-smi's order.
        uuid: Its UUID.
        name: Its product name.
        seconds: How long it was observed.
        own: Whether this process, or a descendant, was seen on it; ``None`` if the process list
            does not say.
        utilization_mean: Percent of time in which a kernel ran, whoever's.
        utilization_peak: The highest utilisation of a sample, percent.
        own_sm_mean: Percent of time in which a kernel of this process ran.
        memory_total: Bytes.
        memory_mean: Bytes in use, by everybody.
        memory_peak: The most bytes in use in a sample.
        own_memory_mean: Bytes that this process held.
        own_memory_peak: The most bytes that it held in a sample.
        power_mean: Watts.
        power_peak: Watts.
        temperature_mean: Degrees Celsius.
        temperature_peak: Degrees Celsius.
        energy: Joules that the whole GPU used.
        energy_seconds: Seconds that ``energy`` covers.
        energy_source: ``counter``: the GPU's own counter; ``power``: the power draw, integrated;
            ``counter and power``.
        throttled_seconds: Seconds for which heat, a power brake or the hardware slowed it down.
        power_capped_seconds: Seconds for which its power limit did.
        unknown: Why a value is ``None``, by the name of its attribute.
    """

    index: int
    uuid: str
    name: str | None = None
    seconds: float = 0.0
    own: bool | None = None
    utilization_mean: float | None = None
    utilization_peak: float | None = None
    own_sm_mean: float | None = None
    memory_total: int | None = None
    memory_mean: float | None = None
    memory_peak: float | None = None
    own_memory_mean: float | None = None
    own_memory_peak: float | None = None
    power_mean: float | None = None
    power_peak: float | None = None
    temperature_mean: float | None = None
    temperature_peak: float | None = None
    energy: float | None = None
    energy_seconds: float = 0.0
    energy_source: str | None = None
    throttled_seconds: float | None = None
    power_capped_seconds: float | None = None
    unknown: Mapping[str, str] = {}

    def __str__(self) -> str:
        parts = [
            f"GPU {self.index} {short_name(self.name)}",
            f"utilisation {number(self.utilization_mean, ' %')}",
            f"peak {number(self.utilization_peak, ' %')}",
            f"memory peak {_bytes(self.memory_peak)}, own {_bytes(self.own_memory_peak)}",
            f"power {number(self.power_mean, ' W')}",
            f"energy {_energy_text(self.energy)}",
            f"throttled {number(self.throttled_seconds, ' s')}",
        ]
        return ", ".join(parts)


class OwnUse(NamedTuple):
    """What this process and its descendants use of one GPU; see ``GpuUse``."""

    seen: bool
    memory: int | None
    sm: int | None

    @classmethod
    def of(cls, uses: Sequence[GpuUse]) -> OwnUse:
        """What all these uses are together."""
        sm = known_sum(use.sm for use in uses)
        return cls(
            seen=True,
            memory=known_sum(use.memory_used for use in uses),
            sm=None if sm is None else min(sm, 100),
        )


NO_USE = OwnUse(seen=False, memory=0, sm=0)


class UsageSample(NamedTuple):
    """A GPU in one sample; the process's own use is ``None`` while it is unknown."""

    time: float
    gpu: Gpu
    own: OwnUse | None


_MEASURED = {
    "utilization": "utilization_gpu",
    "memory": "memory_used",
    "power": "power_draw",
    "temperature": "temperature_gpu",
}
"""The figures with a mean and a peak, and their fields of ``Gpu``."""


class UsageTally:
    """Sums up the samples of one GPU; each value counts until the next sample."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._newest: UsageSample | None = None
        self._last: UsageSample | None = None
        self._means = {name: WeightedMean() for name in (*_MEASURED, "own_memory", "own_sm")}
        self._energy = Energy()
        self._since_counter = Energy()
        self._counter: tuple[float, float] | None = None
        self._slowed = Slowed()
        self._own: bool | None = None

    def add(self, sample: UsageSample, reach: float) -> None:
        """Add a sample; the one before counts for ``reach`` seconds at most."""
        if self._first is None:
            self._first = sample.time
        self._newest = sample
        if sample.own is not None:
            self._own = sample.own.seen or bool(self._own)
        if sample.gpu.status not in ANSWERING:
            # Its values are old, if there are any.
            return
        last, self._last = self._last, sample
        if last is not None:
            seconds = min(sample.time - last.time, reach)
            self._count(last, seconds)
            if last.gpu.power_draw is not None:
                self._since_counter.join(Energy(last.gpu.power_draw * seconds, integrated=seconds))
        self._count_energy(sample)
        # For the peaks; how long it lasts is not known yet.
        self._count(sample, 0.0)

    def _count_energy(self, sample: UsageSample) -> None:
        """Replace what was integrated since the last reading of the counter by its difference.

        The counter is read every few seconds only; an unchanged value was not read anew.
        """
        joules = sample.gpu.energy
        if joules is None or (self._counter is not None and joules == self._counter[1]):
            return
        if self._counter is not None:
            time, before = self._counter
            # It restarts when the driver is loaded.
            self._energy.join(
                Energy(joules - before, counted=sample.time - time)
                if joules > before
                else self._since_counter
            )
        self._since_counter = Energy()
        self._counter = sample.time, joules

    def _count(self, sample: UsageSample, seconds: float) -> None:
        values = {name: getattr(sample.gpu, field) for name, field in _MEASURED.items()}
        if sample.own is not None:
            values["own_memory"], values["own_sm"] = sample.own.memory, sample.own.sm
        for name, value in values.items():
            if value is not None:
                self._means[name].add(value, seconds)
        if sample.gpu.clock_event_reasons is not None:
            self._slowed.add(sample.gpu.clock_event_reasons, seconds)

    def usage(self, *, sees: bool) -> GpuUsage:
        """The figures so far.

        Args:
            sees: Whether a process that is not seen on the GPU was not there.
        """
        assert self._newest is not None  # noqa: S101 - it is made for a first sample
        assert self._first is not None  # noqa: S101 - as above
        gpu, means, slowed = self._newest.gpu, self._means, self._slowed
        energy = Energy()
        energy.join(self._energy)
        energy.join(self._since_counter)
        values: dict[str, Any] = {
            **{f"{name}_mean": means[name].mean for name in (*_MEASURED, "own_memory", "own_sm")},
            **{f"{name}_peak": means[name].peak for name in (*_MEASURED, "own_memory")},
            "memory_total": gpu.memory_total,
            "energy": energy.joules if energy.counted or energy.integrated else None,
            "energy_source": _energy_source(energy),
            "throttled_seconds": slowed.heat + slowed.brake + slowed.hardware
            if slowed.known
            else None,
            "power_capped_seconds": slowed.capped if slowed.known else None,
        }
        own = self._own or (None if not sees else self._own)
        if own is None:
            values |= dict.fromkeys(("own_sm_mean", "own_memory_mean", "own_memory_peak"))
        return GpuUsage(
            index=gpu.index,
            uuid=gpu.uuid,
            name=gpu.name,
            seconds=self._newest.time - self._first,
            own=own,
            energy_seconds=energy.counted + energy.integrated,
            unknown={name: _why(gpu, name) for name, value in values.items() if value is None},
            **values,
        )


def _energy_source(energy: Energy) -> str | None:
    sources = [
        name
        for name, seconds in (("counter", energy.counted), ("power", energy.integrated))
        if seconds
    ]
    return " and ".join(sources) or None


def _why(gpu: Gpu, name: str) -> str:
    """Why a figure is unknown."""
    if gpu.status not in ANSWERING:
        return f"GPU {gpu.status.value}"
    figure = name.removesuffix("_mean").removesuffix("_peak")
    field = {
        **_MEASURED,
        "own_memory": "processes",
        "own_sm": "processes",
        "energy_source": "energy",
        "throttled_seconds": "clock_event_reasons",
        "power_capped_seconds": "clock_event_reasons",
    }.get(figure, figure)
    return gpu.unknown.get(field, Unknown.NOT_READ).words


def _bytes(size: float | None) -> str:
    return memory_size(None if size is None else round(size))


def _energy_text(joules: float | None) -> str:
    if joules is None:
        return UNKNOWN
    hours = joules / 3600
    if hours < 1:
        return f"{joules:.0f} J"
    return f"{hours:.1f} Wh" if hours < 1000 else f"{hours / 1000:.2f} kWh"
