"""``gpumon.measure()``: what the GPUs did while a block ran, and what this process had of them."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from msgspec import Struct
from msgspec.structs import asdict

from gpumon.api.local import selection_of, source_and_host
from gpumon.host.cuda_visible_devices import visible_devices
from gpumon.host.process_tree import DescendantFinder
from gpumon.model.selection import ALL
from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.report.sums import Energy, Slowed, WeightedMean
from gpumon.sampling.collector import MAX_INTERVAL, MIN_INTERVAL
from gpumon.scheduling.gpu_sampler import PATIENCE, QUICK_PATIENCE, GpuSampler
from gpumon.sources import SourceError
from gpumon.text.formatting import UNKNOWN, memory_size, number
from gpumon.ui.view.gpu_text import short_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from gpumon.api.local import Gpus
    from gpumon.model.processes import GpuUse
    from gpumon.model.selection import GpuSelection
    from gpumon.model.snapshot import Gpu, Snapshot

    Function = TypeVar("Function", bound=Callable[..., Any])

MINE = "mine"
_REACH = 2.5
"""Number of intervals for which a value counts at most; then nothing is known until the next."""
_LISTS = 2
_ANSWERING = (GpuStatus.OK, GpuStatus.FAILING)


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


class Measurement:
    """Measures while its block runs: ``with gpumon.measure() as m: ...``.

    It never raises because of a GPU or a driver, and so never ends the work that it measures:
    ``trouble`` says what is missing. ``gpus`` may be read at any time, also inside the block.

    Attributes:
        interval: Seconds between samples.
    """

    def __init__(self, gpus: Gpus = MINE, interval: float = 1.0, *, demo: bool = False) -> None:
        if not MIN_INTERVAL <= interval <= MAX_INTERVAL:
            raise ValueError(
                f"The interval must be {MIN_INTERVAL:g} to {MAX_INTERVAL:g} seconds, "
                f"not {interval:g}."
            )
        self.interval = interval
        self._failure: str | None = None
        self._trouble: str | None = None
        self._selection: GpuSelection | None = (
            None if gpus == MINE else ALL if gpus == "all" else selection_of(gpus)
        )
        self._demo = demo
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._tallies: dict[str, _Tally] = {}
        self._visible: frozenset[str] | None = None
        self._sees_processes = True
        self._lists: set[float | None] = set()
        self._sampler: GpuSampler | None = None
        self._began: float | None = None
        self._ended: float | None = None
        self._sampled = 0.0
        self._descendants = DescendantFinder(self._process)

    @property
    def trouble(self) -> str | None:
        """Why nothing is measured now, or why measuring ended; ``None`` if all is well."""
        return self._failure or self._trouble

    @property
    def seconds(self) -> float:
        """How long the block ran, or has run so far."""
        if self._began is None:
            return 0.0
        return (time.monotonic() if self._ended is None else self._ended) - self._began

    @property
    def gpus(self) -> tuple[GpuUsage, ...]:
        """The GPUs, by index.

        For ``"mine"`` those on which this process or a descendant was seen. If none was, those that
        ``CUDA_VISIBLE_DEVICES`` names; without it, all, if the driver lists processes of another
        PID namespace, as in many containers, and else none.

        Raises:
            RuntimeError: This is a forked child of the process that measures.
        """
        if not self.is_here:
            raise RuntimeError(
                f"process {self._process} measures; this is its forked child {os.getpid()}"
            )
        with self._changed:
            # Of one list nobody knows whether a process came later.
            sees = self._sees_processes and len(self._lists) > 1
            usages = [tally.usage(sees=sees) for tally in self._tallies.values()]
            visible = self._visible
        if self._selection is None:
            own = [one for one in usages if one.own]
            if not own and visible is not None:
                own = [one for one in usages if one.uuid in visible]
            usages = own if own or self._sees_processes else usages
        return tuple(sorted(usages, key=lambda one: one.index))

    @property
    def energy(self) -> float | None:
        """Joules that these GPUs used together.

        ``None`` if that is unknown for one of them, or for more than a tenth of its time.
        """
        gpus = self.gpus
        known = [
            one.energy
            for one in gpus
            if one.energy is not None and one.energy_seconds >= 0.9 * one.seconds
        ]
        return sum(known) if known and len(known) == len(gpus) else None

    @property
    def is_here(self) -> bool:
        """Whether this process measures, and not the one that it was forked from."""
        return self._process == os.getpid()

    def to_dict(self) -> dict[str, Any]:
        """All figures, for JSON or a tracker: the attributes, and ``gpus`` as a list of theirs."""
        return {
            "seconds": self.seconds,
            "trouble": self.trouble,
            "energy": self.energy,
            "gpus": [asdict(one) for one in self.gpus],
        }

    def __str__(self) -> str:
        gpus = self.gpus
        if not gpus:
            return self.trouble or "This process was seen on no GPU."
        return "\n".join(map(str, gpus))

    def __enter__(self) -> Measurement:
        began = self.start()
        try:
            if self._sampler is not None:
                self._sampler.wait_open()
                self._wait_for_sample(began, PATIENCE)
        except SourceError as error:
            self._end(error)
        return self

    def start(self) -> float:
        """Start without waiting for the first sample; returns when, on the monotonic clock."""
        if self._began is not None:
            raise RuntimeError("a measurement is used once: call gpumon.measure() again")
        self._began = time.monotonic()
        # It may have been made before a fork.
        self._process = os.getpid()
        self._descendants = DescendantFinder(self._process)
        try:
            source, _ = source_and_host(
                self._selection or ALL, demo=self._demo, readonly=True, profiled=False
            )
            self._sampler = GpuSampler(source, self.interval)
            self._sampler.listen(self._take)
            self._sampler.__enter__()
        except Exception as error:  # noqa: BLE001 - what is measured goes on
            self._end(error)
        return self._began

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended = ended = time.monotonic()
        if self._sampler is None or not self.is_here:
            return
        # One sample more: a short block may have none but the first.
        self._sampler.sample_now()
        self._wait_for_sample(ended, QUICK_PATIENCE)
        self._end(None)

    def _wait_for_sample(self, since: float, patience: float) -> None:
        """Wait until a sample was counted since a time, or until sampling has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._sampled >= since, patience)

    def _end(self, failure: Exception | None) -> None:
        """Stop sampling, and note why that was not as intended."""
        sampler, self._sampler = self._sampler, None
        try:
            if sampler is not None:
                sampler.__exit__()
        except Exception as bug:  # noqa: BLE001 - what is measured goes on
            failure = failure or bug
        if failure is not None and self._failure is None:
            self._failure = str(failure)

    def _take(self, snapshot: Snapshot) -> None:
        """Count a sample; called on the sampling thread."""
        now = time.monotonic()
        uses = self._own_uses(snapshot)
        with self._changed:
            self._trouble = None if snapshot.trouble is None else snapshot.trouble.sentence
            if not snapshot.gpus:
                return
            self._sees_processes = snapshot.host.pids_are_ours
            if len(self._lists) < _LISTS:
                self._lists.add(snapshot.processes_at)
            if self._visible is None:
                self._visible = _visible(snapshot.gpus)
            for gpu in snapshot.gpus:
                tally = self._tallies.setdefault(gpu.uuid, _Tally())
                listed = uses is not None and "processes" not in gpu.unknown
                own = uses.get(gpu.uuid, _NO_USE) if listed and uses is not None else None
                tally.add(_Sample(now, gpu, own), _REACH * self.interval)
            self._sampled = now
            self._changed.notify_all()

    def _own_uses(self, snapshot: Snapshot) -> dict[str, _OwnUse] | None:
        """What this process and its descendants use, by GPU; ``None`` if that cannot be seen."""
        if not snapshot.host.pids_are_ours:
            return None
        found: dict[str, list[GpuUse]] = {}
        for process in snapshot.processes:
            if self._descendants.includes(process.id):
                for use in process.uses:
                    found.setdefault(use.gpu_uuid, []).append(use)
        return {uuid: _OwnUse.of(uses) for uuid, uses in found.items()}


class _OwnUse(NamedTuple):
    """What this process and its descendants use of one GPU; see ``GpuUse``."""

    seen: bool
    memory: int | None
    sm: int | None

    @classmethod
    def of(cls, uses: Sequence[GpuUse]) -> _OwnUse:
        sizes = [use.memory_used for use in uses if use.memory_used is not None]
        shares = [use.sm for use in uses if use.sm is not None]
        return cls(
            seen=True,
            memory=sum(sizes) if len(sizes) == len(uses) else None,
            sm=min(sum(shares), 100) if len(shares) == len(uses) else None,
        )


_NO_USE = _OwnUse(seen=False, memory=0, sm=0)


class _Sample(NamedTuple):
    """One GPU at one moment; the process's own use is ``None`` while it is unknown."""

    time: float
    gpu: Gpu
    own: _OwnUse | None


_MEASURED = {
    "utilization": "utilization_gpu",
    "memory": "memory_used",
    "power": "power_draw",
    "temperature": "temperature_gpu",
}
"""The figures with a mean and a peak, and their fields of ``Gpu``."""


class _Tally:
    """Sums up the samples of one GPU; each value counts until the next sample."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._newest: _Sample | None = None
        self._last: _Sample | None = None
        self._means = {name: WeightedMean() for name in (*_MEASURED, "own_memory", "own_sm")}
        self._energy = Energy()
        self._since_counter = Energy()
        self._counter: tuple[float, float] | None = None
        self._slowed = Slowed()
        self._own: bool | None = None

    def add(self, sample: _Sample, reach: float) -> None:
        """Add a sample; the one before counts for ``reach`` seconds at most."""
        if self._first is None:
            self._first = sample.time
        self._newest = sample
        if sample.own is not None:
            self._own = sample.own.seen or bool(self._own)
        if sample.gpu.status not in _ANSWERING:
            # Its values are old, if there are any.
            return
        last, self._last = self._last, sample
        if last is not None:
            seconds = min(sample.time - last.time, reach)
            self._count(last, seconds)
            if last.gpu.power_draw is not None:
                self._since_counter.add(Energy(last.gpu.power_draw * seconds, integrated=seconds))
        self._count_energy(sample)
        # For the peaks; how long it lasts is not known yet.
        self._count(sample, 0.0)

    def _count_energy(self, sample: _Sample) -> None:
        """Replace what was integrated since the last reading of the counter by its difference.

        The counter is read every few seconds only; an unchanged value was not read anew.
        """
        joules = sample.gpu.energy
        if joules is None or (self._counter is not None and joules == self._counter[1]):
            return
        if self._counter is not None:
            time, before = self._counter
            # It restarts when the driver is loaded.
            self._energy.add(
                Energy(joules - before, counted=sample.time - time)
                if joules > before
                else self._since_counter
            )
        self._since_counter = Energy()
        self._counter = sample.time, joules

    def _count(self, sample: _Sample, seconds: float) -> None:
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
        energy.add(self._energy)
        energy.add(self._since_counter)
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
    if gpu.status not in _ANSWERING:
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


def _visible(gpus: Sequence[Gpu]) -> frozenset[str] | None:
    """The GPUs that this process's environment names; ``None`` if it names none for sure."""
    value, order = (os.environ.get(f"CUDA_{name}") for name in ("VISIBLE_DEVICES", "DEVICE_ORDER"))
    if value is None:
        return None
    meaning = visible_devices(value, order, gpus)
    if not meaning.devices and not meaning.certain:
        return None
    return frozenset(device.gpu_uuid for device in meaning.devices)


def _bytes(size: float | None) -> str:
    return memory_size(None if size is None else round(size))


def _energy_text(joules: float | None) -> str:
    if joules is None:
        return UNKNOWN
    hours = joules / 3600
    if hours < 1:
        return f"{joules:.0f} J"
    return f"{hours:.1f} Wh" if hours < 1000 else f"{hours / 1000:.2f} kWh"


def measure(gpus: Gpus = MINE, interval: float = 1.0, *, demo: bool = False) -> Measurement:
    """Measure GPUs while a block runs.

        with gpumon.measure() as m:
            train()
        print(m)

    Args:
        gpus: ``"mine"``: those that this process and its descendants use, see ``Measurement.gpus``;
            ``"all"``; or GPUs as in ``snapshot``.
        interval: Seconds between samples, 0.1 to 3600. Memory does not grow with time.
        demo: The simulated machine of ``gpumon --demo``.

    Raises:
        ValueError: An argument is invalid. A missing driver is no error: see ``Measurement``.
    """
    return Measurement(gpus, interval, demo=demo)


@overload
def measured(function: Function) -> Function: ...


@overload
def measured(
    *,
    gpus: Gpus = MINE,
    interval: float = 1.0,
    then: Callable[[Measurement], object] | None = None,
    demo: bool = False,
) -> Callable[[Function], Function]: ...


def measured(
    function: Function | None = None,
    *,
    gpus: Gpus = MINE,
    interval: float = 1.0,
    then: Callable[[Measurement], object] | None = None,
    demo: bool = False,
) -> Function | Callable[[Function], Function]:
    """Measure each call of a function, which may be ``async``.

    Args:
        function: The function.
        gpus: As in ``measure``.
        interval: As in ``measure``.
        then: Called with the measurement after each call, also after one that raised; by default
            the measurement is printed. An error in it is printed and not raised.
        demo: The simulated machine of ``gpumon --demo``.

    Raises:
        TypeError: It is a generator: measure the loop that consumes it.
        ValueError: As ``measure``.
    """
    tell = then or _print
    if function is None:
        return lambda function: _measured(function, gpus, interval, tell, demo=demo)
    return _measured(function, gpus, interval, tell, demo=demo)


def _tell(then: Callable[[Measurement], object], measurement: Measurement) -> None:
    """Hand over a measurement; what goes wrong there does not replace what was measured."""
    if not measurement.is_here:
        # A forked child comes back from the function, too.
        return
    try:
        then(measurement)
    except Exception:  # noqa: BLE001 - told, and the result of the function is kept
        traceback.print_exc()


def _print(measurement: Measurement) -> None:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(str(measurement).encode(encoding, "replace").decode(encoding))  # noqa: T201 - asked for


def _measured(
    function: Function,
    gpus: Gpus,
    interval: float,
    then: Callable[[Measurement], object],
    *,
    demo: bool,
) -> Function:
    if isgeneratorfunction(function) or isasyncgenfunction(function):
        raise TypeError(
            f"{function.__name__} is a generator, which ends when its reader likes: measure the "
            "loop that reads it, by `with gpumon.measure()`"
        )
    if gpus is not None and not isinstance(gpus, (str, int)):
        gpus = tuple(gpus)
    # Wrong arguments are told where they stand.
    Measurement(gpus, interval, demo=demo)

    if iscoroutinefunction(function):

        @wraps(function)
        async def measured_coroutine(*arguments: Any, **named: Any) -> Any:
            measurement = Measurement(gpus, interval, demo=demo)
            # The event loop waits for no sample.
            measurement.start()
            try:
                return await function(*arguments, **named)
            finally:
                ending = asyncio.to_thread(measurement.__exit__, None, None, None)
                try:
                    # Also if this call is cancelled once more.
                    await asyncio.shield(ending)
                finally:
                    _tell(then, measurement)

        return measured_coroutine  # type: ignore[return-value] # the same signature

    @wraps(function)
    def measured_function(*arguments: Any, **named: Any) -> Any:
        measurement = Measurement(gpus, interval, demo=demo)
        try:
            with measurement:
                return function(*arguments, **named)
        finally:
            _tell(then, measurement)

    return measured_function  # type: ignore[return-value] # the same signature
