"""What is added up over time for one card or one subject, in bounded memory.

Everything is weighted by the seconds for which it held, and every sum knows for how many seconds it
was known: what is unknown is left out of a mean and never counts as 0.
"""

from __future__ import annotations

from array import array
from collections import Counter

from msgspec import Struct, field

_PERCENT = 101


class Distribution(Struct):
    """Percentages over time: their mean and quantiles.

    Attributes:
        seconds: For how long one was known.
        total: Percent times seconds.
        bins: Seconds at each whole percent, from 0 to 100; the driver tells whole ones.
    """

    seconds: float = 0.0
    total: float = 0.0
    bins: array[float] = field(default_factory=lambda: array("d", bytes(8 * _PERCENT)))

    def add(self, percent: float, seconds: float) -> None:
        """A percentage, at most 100, that held for so many seconds."""
        self.seconds += seconds
        self.total += percent * seconds
        self.bins[min(100, max(0, round(percent)))] += seconds

    def join(self, other: Distribution) -> None:
        """Add all of another."""
        self.seconds += other.seconds
        self.total += other.total
        for percent, seconds in enumerate(other.bins):
            self.bins[percent] += seconds

    @property
    def mean(self) -> float | None:
        """Weighted by time; ``None`` where nothing was known."""
        return self.total / self.seconds if self.seconds else None

    def quantile(self, share: float) -> float | None:
        """The least whole percentage that was not exceeded for this share of the known time."""
        if not self.seconds:
            return None
        # A sum of many floats may miss the whole by a little.
        wanted = share * self.seconds * (1 - 1e-12)
        reached = 0.0
        for percent, seconds in enumerate(self.bins):
            reached += seconds
            if reached >= wanted:
                return float(percent)
        return 100.0


class WeightedMean(Struct):
    """Bytes over time: their mean and peak.

    Attributes:
        seconds: For how long they were known.
        total: Bytes times seconds.
        peak: The most; ``None`` while none was known.
    """

    seconds: float = 0.0
    total: float = 0.0
    peak: float | None = None

    def add(self, size: float, seconds: float) -> None:
        """Bytes that were held for so many seconds."""
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
        """Weighted by time; ``None`` where nothing was known for any time."""
        return self.total / self.seconds if self.seconds else None


class Energy(Struct):
    """Joules, and where they are known from.

    Attributes:
        joules: Altogether.
        counted: Seconds that the card's own counter tells of.
        integrated: Seconds for which power draw was added up.
    """

    joules: float = 0.0
    counted: float = 0.0
    integrated: float = 0.0

    def add(self, part: Energy, share: float = 1.0) -> None:
        """A part of it, or a share of that part."""
        self.joules += part.joules * share
        self.counted += part.counted
        self.integrated += part.integrated


class Slowed(Struct):
    """Seconds during which a card ran slower than it could, by reason.

    Attributes:
        known: For how long the reasons were known.
        heat: Thermal slowdown, by the hardware or the driver.
        brake: Power brake: the machine's power supply asked for it.
        hardware: A hardware slowdown that named neither.
        capped: The power limit, which is how a busy card keeps to it, and no fault.
    """

    known: float = 0.0
    heat: float = 0.0
    brake: float = 0.0
    hardware: float = 0.0
    capped: float = 0.0

    def add(self, reasons: int, seconds: float) -> None:
        """Clock event reasons that held for so many seconds."""
        self.known += seconds
        if reasons & _REDUCED:
            # HW slowdown is set beside the thermal bit and the power brake too (nvml.h).
            if reasons & _THERMAL:
                self.heat += seconds
            if reasons & _POWER_BRAKE:
                self.brake += seconds
            if not reasons & (_THERMAL | _POWER_BRAKE):
                self.hardware += seconds
        if reasons & _POWER_CAP:
            self.capped += seconds

    def join(self, other: Slowed) -> None:
        """Add all of another."""
        self.known += other.known
        self.heat += other.heat
        self.brake += other.brake
        self.hardware += other.hardware
        self.capped += other.capped


_POWER_CAP, _HW_SLOWDOWN, _THERMAL, _POWER_BRAKE = 0x04, 0x08, 0x20 | 0x40, 0x80
_REDUCED = _HW_SLOWDOWN | _THERMAL | _POWER_BRAKE


class Faults(Struct):
    """Errors.

    Attributes:
        xids: How often each came.
        ecc: Uncorrected memory errors that were added; ``None`` where no counter was read.
        watched: Seconds for which it was told whether a card answers, and with it what XIDs came.
        lost: Seconds for which a card was lost, or asked for a reset.
    """

    xids: Counter[int] = field(default_factory=Counter)
    ecc: int | None = None
    watched: float = 0.0
    lost: float = 0.0

    def add_ecc(self, errors: int) -> None:
        """So many more, maybe none."""
        self.ecc = errors + (self.ecc or 0)

    def join(self, other: Faults) -> None:
        """Add all of another."""
        self.xids.update(other.xids)
        if other.ecc is not None:
            self.add_ecc(other.ecc)
        self.watched += other.watched
        self.lost += other.lost


class Sums(Struct):
    """What is known of one card, or of one subject on all its cards together.

    Seconds are seconds times cards, but for ``present`` and those of ``memory``.

    Attributes:
        first: When it was first seen, seconds since the epoch.
        last: When it was last seen.
        present: Seconds for which it was there, on however many cards.
        seconds: Seconds of cards: covered by samples, or with the subject on them.
        computing: Those with a process that computes.
        listed: Those for which the process list was known.
        memory: Of all its cards together.
        utilization: Of the card, or the subject's SM share, on each card for itself.
        busy: Seconds in which that was above 0.
        idle: Seconds in which it was 0 while memory was held.
        idle_known: Seconds for which that could be told.
        energy: Used; of a subject its part.
        slowed: Seconds of cards that were slowed down.
        faults: Errors of its cards.
        gaps: How often samples stayed away.
        missing: For how many seconds.
    """

    first: float | None = None
    last: float | None = None
    present: float = 0.0
    seconds: float = 0.0
    computing: float = 0.0
    listed: float = 0.0
    memory: WeightedMean = field(default_factory=WeightedMean)
    utilization: Distribution = field(default_factory=Distribution)
    busy: float = 0.0
    idle: float = 0.0
    idle_known: float = 0.0
    energy: Energy = field(default_factory=Energy)
    slowed: Slowed = field(default_factory=Slowed)
    faults: Faults = field(default_factory=Faults)
    gaps: int = 0
    missing: float = 0.0

    def see(self, time: float) -> None:
        """It was there at this time."""
        if self.first is None or time < self.first:
            self.first = time
        if self.last is None or time > self.last:
            self.last = time

    def join(self, other: Sums) -> None:
        """Add all of another, as if both were one subject that was there at different times."""
        for seen in (other.first, other.last):
            if seen is not None:
                self.see(seen)
        self.present += other.present
        self.seconds += other.seconds
        self.computing += other.computing
        self.listed += other.listed
        self.memory.join(other.memory)
        self.utilization.join(other.utilization)
        self.busy += other.busy
        self.idle += other.idle
        self.idle_known += other.idle_known
        self.energy.add(other.energy)
        self.slowed.join(other.slowed)
        self.faults.join(other.faults)
        self.gaps += other.gaps
        self.missing += other.missing
