"""Findings about the links of a GPU: PCIe and NVLink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings.conditions import SLOW_LINK, link_is_slow
from gpumon.findings.finding import SHORT_CELLS, Answer, Finding, FindingKind, Severity
from gpumon.findings.phrases import at_most, long_duration, spaced, time_of_day
from gpumon.findings.work import lasting
from gpumon.text.formatting import counted

if TYPE_CHECKING:
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History


def slow_link(history: History, gpu: Gpu) -> Answer:
    """Under load the PCIe link is below what GPU and machine allow.

    An idle GPU lowers its link, which is no fault.
    """
    thresholds = history.thresholds
    interval = lasting(history, gpu, SLOW_LINK, thresholds.slow_link_after)
    if not interval or not link_is_slow(gpu):
        return interval and (None if link_is_slow(gpu) is None else False)
    generation, width = gpu.pcie_generation, gpu.pcie_width
    most, widest = gpu.pcie_generation_max, gpu.pcie_width_max
    lower = [
        text
        for text, is_lower in (
            (f"gen {generation} of {most}", generation != most),
            (f"x{width} of x{widest}", width != widest),
        )
        if is_lower
    ]
    what = ", ".join(lower)
    samples = counted(interval.samples, "sample")
    return Finding(
        kind=FindingKind.SLOW_LINK,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"the PCIe link is at {' and '.join(lower)} under load, "
        f"for {long_duration(history, interval)}: copies to and from the host may be slower",
        short=at_most(f"slow PCIe: {what}", SHORT_CELLS),
        brief="slow PCIe",
        since=interval.since,
        evidence=(
            f"PCIe generation {generation} of {most}, width x{width} of x{widest}",
            f"at least {thresholds.slow_link_utilization:g} % busy in {samples}",
        ),
    )


def nvlink_errors(history: History, gpu: Gpu) -> Answer:
    """Packets over NVLink were repeated, or links were trained anew, and lately."""
    seen = history.nvlink_increases(gpu.uuid, history.thresholds.nvlink_for)
    if not seen:
        return None if gpu.nvlink_errors is None else False
    count = sum([more for _, more in seen])
    first, last = seen[0][0], seen[-1][0]
    growing = len(seen) >= history.thresholds.nvlink_growing
    errors = counted(count, "NVLink error")
    lately = f"the last {spaced(history.now - last)} ago"
    return Finding(
        kind=FindingKind.NVLINK_ERRORS,
        subject=gpu.uuid,
        severity=Severity.WARNING if growing else Severity.NOTE,
        sentence=f"{errors} (replays and recoveries) since {time_of_day(history, first)}, "
        f"{lately}: "
        + ("a link may be failing" if growing else "once, as after the reset of a neighbour"),
        short=at_most(errors, SHORT_CELLS),
        brief="NVLink!" if growing else "NVLink",
        since=first,
        evidence=(
            f"{counted(len(seen), 'increase')} by {count} in all, {lately}",
            f"{gpu.nvlink_errors} counted since the driver was loaded",
        ),
    )
