"""Heat, and the other reasons why a GPU slows itself down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings.conditions import (
    HEAT_FIELDS,
    HOT,
    HW_POWER_BRAKE,
    HW_SLOWDOWN,
    POWER_CAP,
    THERMAL,
    degrees_left,
)
from gpumon.findings.finding import SHORT_CELLS, Answer, Finding, FindingKind, Severity
from gpumon.findings.phrases import at_most, long_duration, or_unknown, spaced, with_duration
from gpumon.sources.maker_words import words_of
from gpumon.text.formatting import temperature
from gpumon.text.units import degree, degrees_between

if TYPE_CHECKING:
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History, Interval


def hot(history: History, gpu: Gpu) -> Answer:
    """The GPU is slowed down by heat, or close to it.

    A thermal clock event reason proves that the GPU is too hot. Without one, its margin or its
    slowdown temperature shows how close it is.
    """
    slowed = _slowed(history, gpu, THERMAL)
    degrees = _degrees(gpu.temperature_gpu)
    if slowed is not None:
        name, lasting, names = slowed
        return Finding(
            kind=FindingKind.HOT,
            subject=gpu.uuid,
            severity=Severity.WARNING,
            sentence=f"too hot ({degrees}): slowed down by {names} "
            f"for {long_duration(history, lasting)}",
            short=with_duration(f"hot: {name} ", history, lasting),
            brief="hot",
            since=lasting.since,
            evidence=(
                f"clock event reasons: {names}",
                *_share_of_hour(history, gpu, THERMAL),
                *_heat(gpu),
            ),
        )
    interval = history.interval(gpu.uuid, HOT)
    if interval is None:
        is_unsure = history.holds(gpu.uuid, HOT) is None and history.is_missing(gpu, *HEAT_FIELDS)
        return None if is_unsure or _is_unsure(history, gpu, THERMAL) else False
    short = f"hot: {degrees}"
    margins = degrees_left(gpu)
    if not margins:
        why = "where it slows down is not known, but this is hot for any GPU"
    elif gpu.temperature_margin == min(margins):
        short += f", margin {_between(gpu.temperature_margin)}"
        why = f"its margin to slowing down is {_between(gpu.temperature_margin)}"
    else:
        short += f", slows at {_degrees(gpu.temperature_slowdown)}"
        why = f"it slows down at {_degrees(gpu.temperature_slowdown)}"
    return Finding(
        kind=FindingKind.HOT,
        subject=gpu.uuid,
        severity=Severity.WARNING,
        sentence=f"hot, {degrees}, for {long_duration(history, interval)}: {why}",
        short=short,
        brief="hot",
        since=interval.since,
        evidence=_heat(gpu),
    )


def throttled(history: History, gpu: Gpu) -> Answer:
    """The hardware slows the GPU down for another reason than heat.

    A software power cap is normal for a busy GPU and gives no finding. HW slowdown together with a
    thermal reason is the same slowdown.
    """
    slowed = _slowed(history, gpu, (HW_POWER_BRAKE,))
    if slowed is None:
        slowed = _slowed(history, gpu, (HW_SLOWDOWN,))
        if slowed is None:
            return None if _is_unsure(history, gpu, (HW_POWER_BRAKE, HW_SLOWDOWN)) else False
        if _slowed(history, gpu, THERMAL) is not None:
            return False
    name, interval, names = slowed
    return Finding(
        kind=FindingKind.THROTTLED,
        subject=gpu.uuid,
        severity=Severity.WARNING,
        sentence=f"slowed down by {names} for {long_duration(history, interval)}: "
        f"{_SLOWDOWN_WORDS[name]}",
        short=with_duration(f"throttled: {name} ", history, interval),
        brief="throttled",
        since=interval.since,
        evidence=(
            f"clock event reasons: {names}",
            *_share_of_hour(history, gpu, (HW_POWER_BRAKE, HW_SLOWDOWN)),
            f"{words_of(gpu.name).cores} clock {or_unknown(gpu.clock_sm)} MHz",
        ),
    )


def slowed_lately(history: History, gpu: Gpu) -> Answer:
    """For which share of the last hour the clocks were lowered, and why.

    It is for the details. A software power cap is normal under load, so it alone is told only if it
    held for much of the time.
    """
    shares = {
        name: share
        for name in (HW_POWER_BRAKE, HW_SLOWDOWN, *THERMAL, POWER_CAP)
        if (share := _share(history, gpu, name)) is not None and share >= _LEAST_SHARE
    }
    if shares.get(POWER_CAP, 1.0) < history.thresholds.power_cap_share:
        del shares[POWER_CAP]
    if not shares:
        had_gap = history.had_gap(gpu.uuid, POWER_CAP, _HOUR)
        return None if had_gap or gpu.clock_event_reasons is None else False
    first = max(shares, key=lambda name: shares[name])
    observed = history.held_lately(gpu.uuid, first, _HOUR)[1]
    span = "of the last hour" if observed >= _HOUR else f"of the last {spaced(observed)}"
    told = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
    return Finding(
        kind=FindingKind.SLOWED_LATELY,
        subject=gpu.uuid,
        severity=Severity.QUIET,
        sentence=f"its clocks were lowered for part {span}: {told}",
        short=at_most(f"{first} {100 * shares[first]:.0f}% lately", SHORT_CELLS),
        brief="slowed",
        since=history.now - observed,
        evidence=tuple(f"{name}: {100 * share:.0f} % {span}" for name, share in shares.items()),
    )


_HOUR = 3600.0
_LEAST_OBSERVED = 600.0
"""A share of less time than this says little."""
_LEAST_SHARE = 0.01


def _share(history: History, gpu: Gpu, name: str) -> float | None:
    """The share of the last hour in which a clock event reason was active, 0 to 1."""
    held, observed = history.held_lately(gpu.uuid, name, _HOUR)
    return held / observed if observed >= _LEAST_OBSERVED else None


def _share_of_hour(history: History, gpu: Gpu, names: tuple[str, ...]) -> tuple[str, ...]:
    """The largest share of the last hour in which one of these reasons was active."""
    found = [(share, name) for name in names if (share := _share(history, gpu, name))]
    if not found:
        return ()
    share, name = max(found, key=lambda one: one[0])
    observed = history.held_lately(gpu.uuid, name, _HOUR)[1]
    return (f"{name} in {100 * share:.0f} % of the last {spaced(observed)}",)


_SLOWDOWN_WORDS = {
    HW_POWER_BRAKE: "the machine's power supply asked for it",
    HW_SLOWDOWN: "heat, the power supply or a sudden draw can be the cause",
}


def _slowed(history: History, gpu: Gpu, names: tuple[str, ...]) -> tuple[str, Interval, str] | None:
    """The longest of the slowdowns that have lasted: its name, its interval, and all names."""
    lasting = [
        (name, interval)
        for name in names
        if (interval := history.interval(gpu.uuid, name)) is not None
        and interval.seconds >= history.thresholds.throttled_after
    ]
    if not lasting:
        return None
    name, interval = min(lasting, key=lambda slowdown: slowdown[1].since)
    return name, interval, " and ".join(name for name, _ in lasting)


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
    facts = [f"GPU temperature {_degrees(gpu.temperature_gpu)}"]
    if gpu.temperature_slowdown is not None:
        facts.append(f"slows down at {_degrees(gpu.temperature_slowdown)}")
    if gpu.temperature_margin is not None:
        facts.append(f"{_between(gpu.temperature_margin)} from slowing down")
    return tuple(facts)
