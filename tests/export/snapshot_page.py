"""The two tables of ``docs/snapshot.md`` that follow from the metric tables.

``python -m tests.export.snapshot_page`` writes them into the page; a test checks that they are what
stands there.
"""

from __future__ import annotations

from pathlib import Path

from gpumon.export.as_prometheus import exported_metrics
from gpumon.model.metrics import PROCESS_METRICS, Metric, ProcessMetric, Unit
from gpumon.model.snapshot import GPU_METRICS
from tests.pages import with_table

PAGE = Path(__file__).parents[2] / "docs" / "snapshot.md"

_KINDS = {
    Unit.TEXT: "text",
    Unit.NUMBER: "number",
    Unit.ENABLED: "flag",
    Unit.YES_NO: "flag",
    Unit.PSTATE: "number",
    Unit.BITS: "bits",
    Unit.BYTES: "B",
    Unit.PERCENT: "%",
    Unit.SHARE: "%",
    Unit.CELSIUS: "°C",
    Unit.WATTS: "W",
    Unit.JOULES: "J",
    Unit.MEGAHERTZ: "MHz",
    Unit.RPM: "RPM",
    Unit.PER_SECOND: "/s",
    Unit.BYTES_PER_SECOND: "B/s",
    Unit.SECONDS: "s",
    Unit.TIME: "s since 1970",
}


def with_tables(page: str) -> str:
    """The page with both tables made anew, each between its mark and the next."""
    for name, table in (("card metrics", _cards()), ("process facts", _processes())):
        page = with_table(page, name, table)
    return page


def _cards() -> str:
    exported = {
        metric.field: f"`{name}` {kind}{f', {unit}' if unit else ''}"
        for metric, name, kind, unit in exported_metrics()
    }
    return _table(
        ("JSON key", "unit", "CSV column", "Prometheus", "what it is"),
        [
            (
                f"`{metric.json_key}`",
                _KINDS[metric.unit],
                _column(metric, metric.smi),
                exported.get(metric.field, ""),
                metric.about,
            )
            for metric in GPU_METRICS
        ],
    )


def _processes() -> str:
    return _table(
        ("JSON key", "unit", "CSV column", "what it is"),
        [
            (
                f"`{'load.' if metric.in_load else ''}{metric.json_key}`",
                _KINDS[metric.unit],
                _column(metric, metric.smi or metric.key),
                metric.about,
            )
            for metric in PROCESS_METRICS
        ],
    )


def _column(metric: Metric | ProcessMetric, name: str | None) -> str:
    if name is None:
        return ""
    return f"`{name} [{metric.unit.csv}]`" if metric.unit.csv else f"`{name}`"


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    ruled = [header, ("---",) * len(header), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in ruled)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
