"""What a report of one job says above and below its table, short enough for a mail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.findings.lag import lags, usual_load
from gpumon.report.table import time_of
from gpumon.text.formatting import UNKNOWN, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.report.figures import ReportRow, UsageReport
    from gpumon.report.sums import Sums

WIDTH = 80
"""Cells of a mail's lines."""
MOST_HOSTS = 8
"""Hosts in the table; the others are in JSON and CSV."""

_HostLoad = tuple[float, str]


def gpu_hours(report: UsageReport) -> str:
    """The GPU-hours of the job, in a sentence."""
    total = report.whole
    used, allocated = report.total.computing, report.total.allocated
    parts = [f"{time_of('allocated')(total)} allocated"]
    if used.known:
        is_part = (
            report.total.known_share("allocated") == 1 and 0 < used.seconds <= allocated.seconds
        )
        share = f" ({100 * used.seconds / allocated.seconds:.0f} %)" if is_part else ""
        parts.append(f"{time_of('computing')(total)} with its processes{share}")
    parts.append(f"{time_of('unused')(total)} unused")
    return f"GPU-hours: {', '.join(parts)}"


def load(sums: Sums) -> float | None:
    """Mean SM share in percent of the GPUs of a job, those that it does not use included."""
    known = sums.utilization.known + sums.unused.seconds
    return sums.utilization.total / known if known else None


def lagging(lines: Iterable[ReportRow]) -> list[str]:
    """The names of the hosts of a job that lag behind the others, the slowest first."""
    return [host for _, host in _lagging(_loads(lines))]


def lagging_note(lines: Iterable[ReportRow]) -> list[str]:
    """The hosts that lag, in a sentence; none if none does."""
    loads = _loads(lines)
    late = _lagging(loads)
    if not late:
        return []
    named = [f"{host} {own:.0f} %" for own, host in late[:MOST_HOSTS]]
    more = [f"{len(late) - MOST_HOSTS} more"] * (len(late) > MOST_HOSTS)
    usual = usual_load(own for own, _ in loads)
    return [
        f"Lagging, by mean SM of all their GPUs (median {usual:.0f} %): {', '.join(named + more)}."
    ]


def _lagging(loads: Sequence[_HostLoad]) -> list[_HostLoad]:
    usual = usual_load(own for own, _ in loads)
    return [each for each in loads if lags(each[0], usual)]


def _loads(lines: Iterable[ReportRow]) -> list[_HostLoad]:
    """The load of each host of which it is known, and its name; the lowest load first."""
    found = [(load(line.sums), line.host or UNKNOWN) for line in lines]
    return sorted((own, host) for own, host in found if own is not None)


def shortened(report: UsageReport) -> tuple[UsageReport, list[str]]:
    """A report with the hosts that fit into a mail, and what is left out in a sentence."""
    lines = report.lines
    if len(lines) <= MOST_HOSTS:
        return report, []
    loads = {id(line): load(line.sums) for line in lines}
    # Those of unknown load come last.
    kept = sorted(loads, key=lambda line: (loads[line] is None, loads[line] or 0.0))[:MOST_HOSTS]
    what = "with more load" if None not in loads.values() else "with more or unknown load"
    left = counted(len(lines) - MOST_HOSTS, "host")
    said = f"{left} {what}: --format json and csv have all."
    return replace(report, lines=tuple(line for line in lines if id(line) in kept)), [said]
