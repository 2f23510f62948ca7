"""Sums over time for one GPU or one subject, in bounded memory.

Every value is weighted by the seconds for which it held, and every sum keeps the seconds for which
it was known: an unknown value is left out of a mean and never counts as 0.

The type of a field says how it is added up, see ``Sum``.
"""

from __future__ import annotations

from array import array
from collections import Counter
from functools import cache
from operator import add
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from msgspec import Struct, field

from gpumon.model.metrics import HARMFUL_CLOCK_EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.serving import ServerLoad

    _Rule = Callable[[Any, Any, float], Any]
    _Floats = array[float]
else:
    # Python 3.11 cannot evaluate the other.
    _Floats = array

_PERCENT = 101


class Sum(Struct):
    """Amounts that add up: numbers and other sums, and fields whose type has a rule of its own."""

    def join(self, other: Sum, share: float = 1.0) -> None:
        """Add all of another.

        Args:
            other: A sum of this class or of its base.
            share: The share that this gets of the fields that are ``Shared``.
        """
        for name, rule in _rules(type(other)):
            setattr(self, name, rule(getattr(self, name), getattr(other, name), share))


@cache
def _rules(kind: type[Sum]) -> list[tuple[str, _Rule]]:
    """How each field of a class is added."""
    hints = get_type_hints(kind, include_extras=True)
    return [(name, _rule(hints[name])) for name in kind.__struct_fields__]


def _rule(hint: Any) -> _Rule:
    if hint in (float, int):
        return _plus
    if isinstance(hint, type) and issubclass(hint, Sum):
        return _joined
    (rule,) = hint.__metadata__
    found: _Rule = rule
    return found


_SumT = TypeVar("_SumT", bound=Sum)


def _joined(total: _SumT, other: _SumT, share: float) -> _SumT:
    total.join(other, share)
    return total


def _plus(total: float, more: float, _: float) -> float:
    return total + more


def _known(rule: Callable[[float, float], float]) -> _Rule:
    """Joins two values of which each may be unknown."""

    def join(total: float | None, more: float | None, _: float) -> float | None:
        if total is None or more is None:
            return more if total is None else total
        return rule(total, more)

    return join


def _each(total: dict[Any, Any], more: dict[Any, Any], _: float) -> dict[Any, Any]:
    for key, number in more.items():
        total[key] = total.get(key, 0) + number
    return total


Shared = Annotated[float, lambda total, more, share: total + more * share]
"""An amount of a GPU of which each subject on it has a share."""
Lowest = Annotated[float | None, _known(min)]
Highest = Annotated[float | None, _known(max)]
Count = Annotated[int | None, _known(add)]
"""A number; ``None`` while nothing was counted."""
Whether = Annotated[bool, lambda total, more, _: total or more]
Counts = Annotated[Counter[int], _each]
SecondsByKind = Annotated[dict[str, float], _each]
Bins = Annotated[_Floats, lambda total, more, _: array("d", map(add, total, more))]


class Mean(Sum):
    """A value over time."""

    known: float = 0.0  # known time in seconds
    total: float = 0.0  # the value times seconds

    @property
    def mean(self) -> float | None:
        """The mean over time; ``None`` if nothing was known."""
        return self.total / self.known if self.known else None


class Distribution(Mean):
    """The distribution of a percentage over time: mean and quantiles."""

    # seconds at each whole percent, from 0 to 100; the driver reports integers
    bins: Bins = field(default_factory=lambda: array("d", bytes(8 * _PERCENT)))

    def add(self, percent: float, seconds: float) -> None:
        """Add a percentage, 0 to 100, that held for that many seconds."""
        self.known += seconds
        self.total += percent * seconds
        self.bins[round(percent)] += seconds

    def quantile(self, share: float) -> float | None:
        """The lowest whole percentage that was not exceeded for this share of the known time."""
        if not self.known:
            return None
        # The sum of many floats may differ slightly from the total.
        wanted = share * self.known * (1 - 1e-12)
        reached = 0.0
        for percent, seconds in enumerate(self.bins):
            reached += seconds
            if reached >= wanted:
                return float(percent)
        return 100.0


class WeightedMean(Mean):
    """An amount over time, such as bytes: its mean and peak."""

    peak: Highest = None  # the maximum; ``None`` while none was known

    def add(self, size: float, seconds: float) -> None:
        """Add an amount that held for that many seconds."""
        self.known += seconds
        self.total += size * seconds
        if self.peak is None or size > self.peak:
            self.peak = size


class Energy(Sum):
    """Joules, and their source."""

    joules: Shared = 0.0  # the total
    counted: float = 0.0  # seconds covered by the GPU's energy counter
    integrated: float = 0.0  # seconds for which power draw was integrated
    # seconds in which the counter went down, or up by more than a GPU can use
    impossible: float = 0.0
    stopped: float = 0.0  # seconds in which the counter stood still although power was drawn

    @property
    def known(self) -> float:
        """Seconds for which it is known."""
        return self.counted + self.integrated

    @property
    def source(self) -> str | None:
        """``counter``, ``power`` or ``counter+power``; ``None`` if nothing is known."""
        named = [("counter", self.counted), ("power", self.integrated)]
        return "+".join(name for name, seconds in named if seconds > 0) or None


class TimeSum(Sum):
    """Time in which something was so."""

    seconds: float = 0.0  # its length
    known: float = 0.0  # seconds for which it is known whether it was so
    joules: Shared = 0.0  # energy used in it, where that is counted


class AllocatedTime(TimeSum):
    """Time in which GPUs were allocated to jobs."""

    # The seconds that ``known`` is a part of: of a GPU all; of a subject those in which a GPU was,
    # or may have been, allocated to it.
    whole: float = 0.0


class Served(Mean):
    """What inference servers reported over time; the total of a rate is the amount."""

    whole: float = 0.0  # seconds with a server, times servers, that ``known`` is a part of

    def add(self, value: float | None, seconds: float) -> None:
        """Add the value of one server that held for that many seconds."""
        self.whole += seconds
        if value is not None:
            self.known += seconds
            self.total += value * seconds


class Slowed(Sum):
    """Seconds during which a GPU was slowed down, by reason."""

    known: float = 0.0  # seconds for which the reasons were known
    heat: float = 0.0  # thermal slowdown, by the hardware or the driver
    brake: float = 0.0  # power brake: requested by the machine's power supply
    hardware: float = 0.0  # a hardware slowdown without either reason
    capped: float = 0.0  # the power limit, which is normal for a busy GPU
    # of the known seconds those for which the log lacks a kind of reason
    not_logged: SecondsByKind = field(default_factory=dict)
    joules: Shared = 0.0  # energy used while slowed down for any reason but the power limit

    def add(self, reasons: int, seconds: float, logged: int | None = None) -> None:
        """Add clock event reasons that held for that many seconds.

        Args:
            reasons: The reasons.
            seconds: The seconds.
            logged: The bits of the reasons that the log has; all by default.
        """
        self.known += seconds
        if logged is not None:
            for kind, bits in _KINDS.items():
                if not logged & bits:
                    self.not_logged[kind] = self.not_logged.get(kind, 0.0) + seconds
        if reasons & HARMFUL_CLOCK_EVENTS:
            # HW slowdown is also set together with the thermal bit and the power brake (nvml.h).
            if reasons & _THERMAL:
                self.heat += seconds
            if reasons & _POWER_BRAKE:
                self.brake += seconds
            if not reasons & (_THERMAL | _POWER_BRAKE):
                self.hardware += seconds
        if reasons & _POWER_CAP:
            self.capped += seconds

    def of(self, kind: str) -> TimeSum:
        """The seconds for a kind of reason, and those for which that was known."""
        return TimeSum(getattr(self, kind), self.known - self.not_logged.get(kind, 0.0))

    @property
    def harmful(self) -> TimeSum:
        """The same for any kind but the power limit, with the energy."""
        kinds = [self.of(kind) for kind in HARMFUL]
        known = [kind.known for kind in kinds]
        return TimeSum(sum(kind.seconds for kind in kinds), max(known), self.joules)


HARMFUL = ("heat", "brake", "hardware")
"""The kinds of slowdown but the power limit."""
_POWER_CAP, _THERMAL, _POWER_BRAKE = 0x04, 0x20 | 0x40, 0x80
_KINDS = {"heat": _THERMAL, "brake": _POWER_BRAKE, "hardware": 0x08, "capped": _POWER_CAP}
"""The bits of which any indicates a kind of slowdown."""


class SharedSums(Sum):
    """What a GPU and the subjects on it have in common."""

    seconds: float = 0.0  # GPU-seconds covered by samples, or with the subject on the GPU
    energy: Energy = field(default_factory=Energy)  # energy used; for a subject its share
    slowed: Slowed = field(default_factory=Slowed)  # GPU-seconds of slowdown
    empty: TimeSum = field(default_factory=TimeSum)  # the GPU was busy but empty
    # it waited between two spells of load while one of its processes was at one full CPU core or
    # waited inside the kernel
    starved: TimeSum = field(default_factory=TimeSum)
    # it was lost or needed a reset; known while its status was known
    lost: TimeSum = field(default_factory=TimeSum)
    watched: float = 0.0  # seconds for which the GPU's XIDs were known
    xids: Counts = field(default_factory=Counter)  # number of each XID
    ecc: Count = None  # new uncorrected memory errors; ``None`` if no counter was read


class Sums(SharedSums):
    """The sums of one GPU, or of one subject on all its GPUs.

    Seconds are GPU-seconds, except for ``present`` and ``memory``.
    """

    first: Lowest = None  # when it was first observed, in seconds since the epoch
    last: Highest = None  # when it was last observed
    present: float = 0.0  # seconds for which it was present, on any number of GPUs
    # with a computing process; known with a process list
    computing: TimeSum = field(default_factory=TimeSum)
    unlisted: float = 0.0  # GPU-seconds with processes of which not all are in a list
    memory: WeightedMean = field(default_factory=WeightedMean)  # memory on all its GPUs
    # utilisation of the GPU, or the subject's SM share on each GPU
    utilization: Distribution = field(default_factory=Distribution)
    busy: float = 0.0  # with utilisation above 0
    idle: TimeSum = field(default_factory=TimeSum)  # with utilisation 0 while memory was held
    # a subject did not use a GPU while it worked on most of its other GPUs
    left_out: TimeSum = field(default_factory=TimeSum)
    # allocated to a job; of a subject to it
    allocated: AllocatedTime = field(default_factory=AllocatedTime)
    # allocated, while no process computed on the GPU
    unused: AllocatedTime = field(default_factory=AllocatedTime)
    # of the inference servers of a subject, each once: generated tokens and finished requests
    tokens: Served = field(default_factory=Served)
    requests: Served = field(default_factory=Served)
    server_idle: Served = field(default_factory=Served)  # seconds in which they served nobody
    # whether the GPU was lost, or needed a reset, at its last sample, which counts for no time
    ended_lost: Whether = False
    gaps: int = 0  # number of gaps in the samples
    missing: float = 0.0  # seconds in these gaps

    @property
    def has_any(self) -> bool:
        """Whether there is anything to report: also errors found at its end, and gaps."""
        return self.first is not None or bool(self.missing or self.xids or self.ecc)

    def count_allocated(
        self, number: int | None, computing: bool | None, seconds: float, joules: float
    ) -> None:
        """Count a time in which a GPU was allocated to so many jobs.

        Args:
            number: The number of jobs; ``None`` if it is unknown.
            computing: Whether a process computed on the GPU; ``None`` if that is unknown.
            seconds: The length of the time.
            joules: The energy used in it.
        """
        allocated, unused = self.allocated, self.unused
        allocated.whole += seconds
        unused.whole += seconds
        if number is None:
            return
        allocated.known += seconds
        if number:
            allocated.seconds += seconds
            allocated.joules += joules
        if computing is not None or not number:
            unused.known += seconds
        if computing is False and number:
            unused.seconds += seconds
            unused.joules += joules

    def serve(self, load: ServerLoad, seconds: float) -> None:
        """Count what one inference server did for that many seconds."""
        self.tokens.add(load.tokens, seconds)
        self.requests.add(load.requests, seconds)
        self.server_idle.add(load.is_idle, seconds)

    def see(self, time: float) -> None:
        """Record that it was present at this time."""
        if self.first is None or time < self.first:
            self.first = time
        if self.last is None or time > self.last:
            self.last = time

    def time(self, name: str) -> TimeSum:
        """The time of a name: that of a field, or of a kind of slowdown."""
        if name == "busy":
            return TimeSum(self.busy, self.utilization.known)
        if name in _KINDS:
            return self.slowed.of(name)
        found: TimeSum = self.slowed.harmful if name == "slowed" else getattr(self, name)
        return found

    def known_share(self, name: str) -> float | None:
        """The share of the time for which a field was known, 0 to 1; ``None`` without any time.

        That of a subject's or host's memory is of the time for which it was present.
        """
        found = self.time(name) if name == "busy" or name in _KINDS else getattr(self, name)
        whole = self.present if name == "memory" else self.seconds
        if isinstance(found, (AllocatedTime, Served)):
            whole = found.whole
        known: float = found.known
        return round(min(1.0, known / whole), 4) if whole > 0 else None
