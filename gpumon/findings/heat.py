"""Heat, and the other reasons why a GPU slows itself down."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpumon.findings.explanation import CLOCKS, THERMAL_SOURCE, ExplanationText
from gpumon.findings.finding import SHORT_CELLS, FindingKind, Severity
from gpumon.findings.phrases import at_most, spaced
from gpumon.findings.rule import HYSTERESIS, HeldFor, Rule, Words, bound
from gpumon.model.makers import maker_of
from gpumon.model.metrics import CLOCK_EVENT_REASONS
from gpumon.recording.history import Condition
from gpumon.text.formatting import number, temperature
from gpumon.text.units import degree, degrees_between

if TYPE_CHECKING:
    from gpumon.findings.rule import Said
    from gpumon.model.snapshot import Gpu
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import History

HW_SLOWDOWN, HW_POWER_BRAKE = CLOCK_EVENT_REASONS[0x08], CLOCK_EVENT_REASONS[0x80]
"""HW slowdown alone does not give a cause; heat and the power brake set it too (nvml.h)."""
THERMAL = (CLOCK_EVENT_REASONS[0x40], CLOCK_EVENT_REASONS[0x20])
"""HW and SW thermal slowdown: the GPU reports that it is too hot."""
POWER_CAP = CLOCK_EVENT_REASONS[0x04]
"""The clocks are lowered to stay within the power limit."""
SLOWDOWN_SECONDS = 2.0
"""Seconds of slowdown before it is reported; a single sample may be a change of clocks (drivers
report this as HW slowdown too)."""
_HOUR = 3600.0
_LEAST_OBSERVED = 600.0
"""A share of less time than this says little."""


class Hot(Rule):
    """The GPU is slowed down by heat, or close to it.

    A thermal clock event reason proves that the GPU is too hot. Without one, its margin or its
    slowdown temperature shows how close it is.
    """

    kind = FindingKind.HOT
    severity = Severity.WARNING
    other_names = ("heat", "too hot")
    holder_first = True
    explanation = ExplanationText(
        "The GPU is slowed down by heat, or close to it.",
        ("fans or filters that are dirty", "a warm room", "a neighbour that heats it"),
        ("Check fans and air flow.", "Until then, a lower power limit keeps the GPU cooler."),
        CLOCKS,
        THERMAL_SOURCE,
    )
    _CLOSE = "hot"
    _FIELDS = ("temperature_gpu", "temperature_slowdown", "temperature_margin")

    def conditions(self, thresholds: Thresholds) -> dict[str, Condition]:
        close = Condition(bound(self.is_close, thresholds), HYSTERESIS, optional=self._FIELDS)
        return {self._CLOSE: close, **_reasons(*THERMAL)}

    def is_close(self, thresholds: Thresholds, gpu: Gpu) -> bool | None:
        """Whether a GPU is close to its slowdown temperature."""
        left = degrees_left(gpu)
        if left:
            return min(left) <= thresholds.hot_margin
        degrees = gpu.temperature_gpu
        return None if degrees is None else degrees >= thresholds.hot_unknown

    def say(self, history: History, gpu: Gpu) -> Said:
        slowed = _slowed(history, gpu, THERMAL)
        if slowed is not None:
            return self._slowed(history, gpu, *slowed)
        interval = history.interval(gpu.uuid, self._CLOSE)
        if interval is not None:
            return self._close(gpu, HeldFor(history, interval))
        is_unsure = history.holds(gpu.uuid, self._CLOSE) is None
        if is_unsure and history.is_missing(gpu, *self._FIELDS):
            return None
        return None if _is_unsure(history, gpu, THERMAL) else False

    def _slowed(self, history: History, gpu: Gpu, name: str, held: HeldFor, names: str) -> Words:
        return Words(
            f"too hot ({_degrees(gpu.temperature_gpu)}): slowed down by {names} for {held}",
            held.after(f"hot: {name} "),
            "hot",
            (
                f"clock event reasons: {names}",
                *_share_of_hour(history, gpu, THERMAL),
                *_heat(gpu),
            ),
            held.interval.since,
        )

    def _close(self, gpu: Gpu, held: HeldFor) -> Words:
        degrees = _degrees(gpu.temperature_gpu)
        short = f"hot: {degrees}"
        margins = degrees_left(gpu)
        if not margins:
            why = "the temperature at which it slows down is not known, but this is hot for any GPU"
        elif gpu.temperature_margin == min(margins):
            short += f", margin {_between(gpu.temperature_margin)}"
            why = f"its margin to slowing down is {_between(gpu.temperature_margin)}"
        else:
            short += f", slows at {_degrees(gpu.temperature_slowdown)}"
            why = f"it slows down at {_degrees(gpu.temperature_slowdown)}"
        sentence = f"hot, {degrees}, for {held}: {why}"
        return Words(sentence, short, "hot", _heat(gpu), held.interval.since)


class Throttled(Rule):
    """The hardware slows the GPU down for another reason than heat.

    A software power cap is normal for a busy GPU and gives no finding. HW slowdown together with a
    thermal reason is the same slowdown.
    """

    kind = FindingKind.THROTTLED
    severity = Severity.WARNING
    other_names = ("slowed down", "throttling")
    holder_first = True
    explanation = ExplanationText(
        "The hardware cuts the GPU's clocks to half or less, for a reason other than heat.",
        (
            "a power supply that requests it (power brake)",
            "a sudden power draw that its protection cut off",
            "a change of clocks, if it lasts only a moment",
        ),
        ("Check power supplies and cables.", "A lower power limit may avoid it."),
        CLOCKS,
    )
    _CAUSES = {  # noqa: RUF012 - not changed
        HW_POWER_BRAKE: "the machine's power supply requested it",
        HW_SLOWDOWN: "heat, the power supply or a sudden power draw can be the cause",
    }

    def conditions(self, thresholds: Thresholds) -> dict[str, Condition]:
        return _reasons(HW_POWER_BRAKE, HW_SLOWDOWN, *THERMAL)

    def say(self, history: History, gpu: Gpu) -> Said:
        slowed = _slowed(history, gpu, (HW_POWER_BRAKE,))
        if slowed is None:
            slowed = _slowed(history, gpu, (HW_SLOWDOWN,))
            if slowed is None:
                return None if _is_unsure(history, gpu, tuple(self._CAUSES)) else False
            if _slowed(history, gpu, THERMAL) is not None:
                return False
        name, held, names = slowed
        return Words(
            f"slowed down by {names} for {held}: {self._CAUSES[name]}",
            held.after(f"throttled: {name} "),
            "throttled",
            (
                f"clock event reasons: {names}",
                *_share_of_hour(history, gpu, tuple(self._CAUSES)),
                f"{maker_of(gpu.name).cores} clock {number(gpu.clock_sm)} MHz",
            ),
            held.interval.since,
        )


class SlowedLately(Rule):
    """For which share of the last hour the clocks were lowered, and why.

    It is for the details. A software power cap is normal under load, so it alone is reported only
    if it held for much of the time.
    """

    kind = FindingKind.SLOWED_LATELY
    severity = Severity.QUIET
    is_detail = True
    explanation = ExplanationText(
        (
            "The clocks were lowered for part of the last hour. A software power cap is normal for "
            "a busy GPU; the other reasons cost performance."
        ),
        ("a power limit that somebody lowered", "heat", "a power supply that requests it"),
        ("Compare the limit with the highest one: `nvidia-smi -q -d POWER`.",),
        CLOCKS,
        THERMAL_SOURCE,
        ("Compare the limit with the highest one, on the page of the GPU.",),
    )
    least_share: ClassVar[float] = 0.01
    least_power_cap: ClassVar[float] = 0.5
    """Shares of the hour: of any reason, and of a power cap alone."""
    _REASONS = (HW_POWER_BRAKE, HW_SLOWDOWN, *THERMAL, POWER_CAP)

    def conditions(self, thresholds: Thresholds) -> dict[str, Condition]:
        return _reasons(*self._REASONS)

    def say(self, history: History, gpu: Gpu) -> Said:
        shares = {
            name: share
            for name in self._REASONS
            if (share := _share(history, gpu, name)) is not None and share >= self.least_share
        }
        if shares.get(POWER_CAP, 1.0) < self.least_power_cap:
            del shares[POWER_CAP]
        if not shares:
            had_gap = history.had_gap(gpu.uuid, POWER_CAP, _HOUR)
            return None if had_gap or gpu.clock_event_reasons is None else False
        first = max(shares, key=lambda name: shares[name])
        observed = history.held_lately(gpu.uuid, first, _HOUR)[1]
        span = "of the last hour" if observed >= _HOUR else f"of the last {spaced(observed)}"
        named = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
        return Words(
            f"its clocks were lowered for part {span}: {named}",
            at_most(f"{first} {100 * shares[first]:.0f}% lately", SHORT_CELLS),
            "slowed",
            tuple(f"{name}: {100 * share:.0f} % {span}" for name, share in shares.items()),
            history.now - observed,
        )


def degrees_left(gpu: Gpu) -> list[int]:
    """Degrees left until slowdown, from the GPU's margin and from its slowdown temperature."""
    margins = []
    if gpu.temperature_margin is not None:
        margins.append(gpu.temperature_margin)
    if gpu.temperature_gpu is not None and gpu.temperature_slowdown is not None:
        margins.append(gpu.temperature_slowdown - gpu.temperature_gpu)
    return margins


def _reasons(*names: str) -> dict[str, Condition]:
    """The conditions of clock event reasons."""
    bits = {name: bit for bit, name in CLOCK_EVENT_REASONS.items()}
    return {name: Condition(bits[name], HYSTERESIS) for name in names}


def _share(history: History, gpu: Gpu, name: str) -> float | None:
    """The share of the last hour in which a clock event reason was active, 0 to 1."""
    held, observed = history.held_lately(gpu.uuid, name, _HOUR)
    return held / observed if observed >= _LEAST_OBSERVED else None


def _share_of_hour(history: History, gpu: Gpu, names: tuple[str, ...]) -> tuple[str, ...]:
    """The largest share of the last hour in which one of these reasons was active."""
    found = [(share, name) for name in names if (share := _share(history, gpu, name))]
    if not found:
        return ()
    share, name = max(found, key=lambda item: item[0])
    observed = history.held_lately(gpu.uuid, name, _HOUR)[1]
    return (f"{name} in {100 * share:.0f} % of the last {spaced(observed)}",)


def _slowed(history: History, gpu: Gpu, names: tuple[str, ...]) -> tuple[str, HeldFor, str] | None:
    """The longest of the slowdowns that have lasted: its name, for how long, and all names."""
    lasting = [
        (name, interval)
        for name in names
        if (interval := history.interval(gpu.uuid, name)) is not None
        and interval.seconds >= SLOWDOWN_SECONDS
    ]
    if not lasting:
        return None
    name, interval = min(lasting, key=lambda slowdown: slowdown[1].since)
    return name, HeldFor(history, interval), " and ".join(name for name, _ in lasting)


def _is_unsure(history: History, gpu: Gpu, names: tuple[str, ...]) -> bool:
    """Whether it is unknown that none of these slowdowns has lasted."""
    intervals = [history.interval(gpu.uuid, name) for name in names]
    return history.is_missing(gpu, "clock_event_reasons") or any(
        interval is not None and not interval.start_observed for interval in intervals
    )


def _degrees(celsius: int | None) -> str:
    return f"{temperature(celsius)} {degree()}"


def _between(celsius: int) -> str:
    return f"{degrees_between(celsius):.0f} {degree()}"


def _heat(gpu: Gpu) -> tuple[str, ...]:
    """The temperature values that a GPU reports."""
    values = [f"GPU temperature {_degrees(gpu.temperature_gpu)}"]
    if gpu.temperature_slowdown is not None:
        values.append(f"slows down at {_degrees(gpu.temperature_slowdown)}")
    if gpu.temperature_margin is not None:
        values.append(f"{_between(gpu.temperature_margin)} from slowing down")
    return tuple(values)
