"""Sums over time for one GPU or one subject, in bounded memory.

Every value is weighted by the seconds for which it held, and every sum keeps the seconds for which
it was known: an unknown value is left out of a mean and never counts as 0.
"""

from __future__ import annotations

from array import array
from collections import Counter

from msgspec import Struct, field

from gpumon.model.metrics import HARMFUL_CLOCK_EVENTS

_PERCENT = 101


class Distribution(Struct):
    """The distribution of a percentage over time: mean and quantiles.

    Attributes:
        seconds: Known time in seconds.
        total: Percent times seconds.
        bins: Seconds at each whole percent, from 0 to 100; the driver reports integers.
    """

    seconds: float = 0.0
    total: float = 0.0
    bins: array[float] = field(default_factory=lambda: array("d", bytes(8 * _PERCENT)))

    def add(self, percent: float, seconds: float) -> None:
        """Add a percentage, 0 to 100, that held for that many seconds."""
        self.seconds += seconds
        self.total += percent * seconds
        self.bins[round(percent)] += seconds

    def join(self, other: Distribution) -> None:
        """Add all of another."""
        self.seconds += other.seconds
        self.total += other.total
        for percent, seconds in enumerate(other.bins):
            self.bins[percent] += seconds

    @property
    def mean(self) -> float | None:
        """The mean over time; ``None`` if nothing was known."""
        return self.total / self.seconds if self.seconds else None

    def quantile(self, share: float) -> float | None:
        """The lowest whole percentage that was not exceeded for this share of the known time."""
        if not self.seconds:
            return None
        # The sum of many floats may differ slightly from the total.
        wanted = share * self.seconds * (1 - 1e-12)
        reached = 0.0
        for percent, seconds in enumerate(self.bins):
            reached += seconds
            if reached >= wanted:
                return float(percent)
        return 100.0


class WeightedMean(Struct):
    """An amount over time, such as bytes: its mean and peak.

    Attributes:
        seconds: Known time in seconds.
        total: The amount times seconds.
        peak: The maximum; ``None`` while none was known.
    """

    seconds: float = 0.0
    total: float = 0.0
    peak: float | None = None

    def add(self, size: float, seconds: float) -> None:
        """Add an amount that held for that many seconds."""
        self.seconds += seconds
        self.total += size * seconds
        if self.peak is None or size > self.peak:
            self.peak = size

    def join(self, other: WeightedMean) -> None:
        """Add all of another."""
        self.seconds += other.seconds
        self.total += other.total
        if other.peak is not None and (self.peak is None or other.peak > self.peak):
            self.peak = other.peak

    @property
    def mean(self) -> float | None:
        """The mean over time; ``None`` if nothing was known."""
        return self.total / self.seconds if self.seconds else None


class Energy(Struct):
    """Joules, and their source.

    Attributes:
        joules: The total.
        counted: Seconds covered by the GPU's energy counter.
        integrated: Seconds for which power draw was integrated.
        impossible: Seconds in which the counter went down, or up by more than a GPU can use.
        stopped: Seconds in which the counter stood still although power was drawn.
    """

    joules: float = 0.0
    counted: float = 0.0
    integrated: float = 0.0
    impossible: float = 0.0
    stopped: float = 0.0

    def add(self, part: Energy, share: float = 1.0) -> None:
        """Add an amount, or a share of it."""
        self.joules += part.joules * share
        self.counted += part.counted
        self.integrated += part.integrated
        self.impossible += part.impossible
        self.stopped += part.stopped


class Slowed(Struct):
    """Seconds during which a GPU was slowed down, by reason.

    Attributes:
        known: Seconds for which the reasons were known.
        heat: Thermal slowdown, by the hardware or the driver.
        brake: Power brake: requested by the machine's power supply.
        hardware: A hardware slowdown without either reason.
        capped: The power limit, which is normal for a busy GPU.
        not_logged: Of the known seconds those for which the log lacks a kind of reason.
    """

    known: float = 0.0
    heat: float = 0.0
    brake: float = 0.0
    hardware: float = 0.0
    capped: float = 0.0
    not_logged: dict[str, float] = field(default_factory=dict)

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

    def known_of(self, kind: str) -> float:
        """Seconds for which it is known whether the GPU was slowed down for this kind of reason."""
        return self.known - self.not_logged.get(kind, 0.0)

    @property
    def known_harmful(self) -> float:
        """The same for any kind but the power limit."""
        return max(map(self.known_of, ("heat", "brake", "hardware")))

    def join(self, other: Slowed) -> None:
        """Add all of another."""
        self.known += other.known
        for kind, seconds in other.not_logged.items():
            self.not_logged[kind] = self.not_logged.get(kind, 0.0) + seconds
        self.heat += other.heat
        self.brake += other.brake
        self.hardware += other.hardware
        self.capped += other.capped


_POWER_CAP, _THERMAL, _POWER_BRAKE = 0x04, 0x20 | 0x40, 0x80
_KINDS = {"heat": _THERMAL, "brake": _POWER_BRAKE, "hardware": 0x08, "capped": _POWER_CAP}
"""The bits of which any tells of a kind of slowdown."""


class WastedTime(Struct):
    """Time with little or no work of one kind.

    Attributes:
        seconds: Its length.
        known: Seconds for which it is known whether they are such time.
        joules: Energy used in it.
    """

    seconds: float = 0.0
    known: float = 0.0
    joules: float = 0.0

    def join(self, other: WastedTime, share: float) -> None:
        """Add all of another, with a share of its energy."""
        self.seconds += other.seconds
        self.known += other.known
        self.joules += other.joules * share


class Wasted(Struct):
    """What a GPU spent on little or no work.

    Attributes:
        empty: It was busy but empty.
        starved: It waited between two spells of load while one of its processes was at one full CPU
            core or waited inside the kernel.
        left_out: A subject did not use it while it worked on most of its other GPUs.
        idle_joules: Energy used while it was idle, see ``Sums.idle``.
        slowed_joules: Energy used while it was slowed down, other than by its power limit.
    """

    empty: WastedTime = field(default_factory=WastedTime)
    starved: WastedTime = field(default_factory=WastedTime)
    left_out: WastedTime = field(default_factory=WastedTime)
    idle_joules: float = 0.0
    slowed_joules: float = 0.0

    def join(self, other: Wasted, share: float = 1.0) -> None:
        """Add all of another, with a share of its energy."""
        self.empty.join(other.empty, share)
        self.starved.join(other.starved, share)
        self.left_out.join(other.left_out, share)
        self.idle_joules += other.idle_joules * share
        self.slowed_joules += other.slowed_joules * share


def slows(reasons: int) -> bool:
    """Whether clock event reasons slow a GPU down, other than its power limit."""
    return bool(reasons & HARMFUL_CLOCK_EVENTS)


class Period(Struct):
    """What a GPU and the subjects on it have in common while one process list is current.

    Attributes:
        seconds: Seconds covered by samples.
        energy: Energy used by the GPU.
        slowed: Seconds of slowdown.
        wasted: What was spent on little work; idleness is of each subject.
        watched: Seconds for which the GPU's XIDs were known.
        answered: Seconds for which its status was known.
        lost: Seconds for which it was lost or needed a reset.
    """

    seconds: float = 0.0
    energy: Energy = field(default_factory=Energy)
    slowed: Slowed = field(default_factory=Slowed)
    wasted: Wasted = field(default_factory=Wasted)
    watched: float = 0.0
    answered: float = 0.0
    lost: float = 0.0


class Faults(Struct):
    """Errors.

    Attributes:
        xids: Number of each XID.
        ecc: New uncorrected memory errors; ``None`` if no counter was read.
        watched: Seconds for which the GPU's XIDs were known.
        answered: Seconds for which its status was known.
        lost: Seconds for which a GPU was lost or needed a reset.
        ended_lost: Whether it was, or did, at its last sample, which counts for no time.
    """

    xids: Counter[int] = field(default_factory=Counter)
    ecc: int | None = None
    watched: float = 0.0
    answered: float = 0.0
    lost: float = 0.0
    ended_lost: bool = False

    def add_ecc(self, errors: int) -> None:
        """Add a number of errors, which may be 0."""
        self.ecc = errors + (self.ecc or 0)

    def join(self, other: Faults) -> None:
        """Add all of another."""
        self.xids.update(other.xids)
        if other.ecc is not None:
            self.add_ecc(other.ecc)
        self.watched += other.watched
        self.answered += other.answered
        self.lost += other.lost
        self.ended_lost = self.ended_lost or other.ended_lost


class Sums(Struct):
    """The sums of one GPU, or of one subject on all its GPUs.

    Seconds are GPU-seconds, except for ``present`` and ``memory``.

    Attributes:
        first: When it was first observed, in seconds since the epoch.
        last: When it was last observed.
        present: Seconds for which it was present, on any number of GPUs.
        seconds: GPU-seconds covered by samples, or with the subject on the GPU.
        computing: GPU-seconds with a computing process.
        listed: GPU-seconds with a known process list.
        unlisted: GPU-seconds with processes of which not all are in a list.
        memory: Memory on all its GPUs.
        utilization: Utilisation of the GPU, or the subject's SM share on each GPU.
        busy: Seconds with utilisation above 0.
        idle: Seconds with utilisation 0 while memory was held.
        idle_known: Seconds for which that was known.
        energy: Energy used; for a subject its share.
        slowed: GPU-seconds of slowdown.
        faults: Errors of its GPUs.
        gaps: Number of gaps in the samples.
        missing: Seconds in these gaps.
    """

    first: float | None = None
    last: float | None = None
    present: float = 0.0
    seconds: float = 0.0
    computing: float = 0.0
    listed: float = 0.0
    unlisted: float = 0.0
    memory: WeightedMean = field(default_factory=WeightedMean)
    utilization: Distribution = field(default_factory=Distribution)
    busy: float = 0.0
    idle: float = 0.0
    idle_known: float = 0.0
    energy: Energy = field(default_factory=Energy)
    slowed: Slowed = field(default_factory=Slowed)
    wasted: Wasted = field(default_factory=Wasted)
    faults: Faults = field(default_factory=Faults)
    gaps: int = 0
    missing: float = 0.0

    @property
    def has_any(self) -> bool:
        """Whether there is anything to report: also errors found at its end, and gaps."""
        return self.first is not None or bool(self.missing or self.faults.xids or self.faults.ecc)

    def see(self, time: float) -> None:
        """Record that it was present at this time."""
        if self.first is None or time < self.first:
            self.first = time
        if self.last is None or time > self.last:
            self.last = time

    def add(self, period: Period, share: float = 1.0) -> None:
        """Add a period of one GPU, of whose energy it gets a share."""
        self.seconds += period.seconds
        self.energy.add(period.energy, share)
        self.slowed.join(period.slowed)
        self.wasted.join(period.wasted, share)
        self.faults.watched += period.watched
        self.faults.answered += period.answered
        self.faults.lost += period.lost

    def join(self, other: Sums) -> None:
        """Add all of another, as for one subject that was present at different times."""
        for seen in (other.first, other.last):
            if seen is not None:
                self.see(seen)
        self.present += other.present
        self.seconds += other.seconds
        self.computing += other.computing
        self.listed += other.listed
        self.unlisted += other.unlisted
        self.memory.join(other.memory)
        self.utilization.join(other.utilization)
        self.busy += other.busy
        self.idle += other.idle
        self.idle_known += other.idle_known
        self.energy.add(other.energy)
        self.slowed.join(other.slowed)
        self.wasted.join(other.wasted)
        self.faults.join(other.faults)
        self.gaps += other.gaps
        self.missing += other.missing
