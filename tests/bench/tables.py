"""What was measured, as tables for a README."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.bench.measures import Cost, Obedience, Once, Start

COST_HEADINGS = ("CPU %", "PSS MiB", "kB/s", "frames/s", "calls/s", "in NVML ms/s")


def cost_cells(cost: Cost) -> tuple[str, ...]:
    """A row's numbers, under ``COST_HEADINGS``."""
    return (
        f"{cost.cpu:.2f}",
        "–" if cost.pss is None else f"{cost.pss:.1f}",
        f"{cost.kilobytes:.1f}",
        f"{cost.frames:.1f}",
        _number(cost.calls),
        _number(cost.inside),
    )


def costs(rows: Mapping[str, Cost], first: str) -> list[str]:
    """What each program costs, and how many times the first one's processor time."""
    base = rows[first].cpu
    return table(
        ("", *COST_HEADINGS, "CPU, ratio"),
        ((name, *cost_cells(cost), f"{cost.cpu / base:.2f}") for name, cost in rows.items()),
    )


def starts(rows: Mapping[str, Start]) -> list[str]:
    """When something is first to be seen."""
    return table(
        ("", "first data ms", "processes ms"),
        ((name, _number(start.data), _number(start.whole)) for name, start in rows.items()),
    )


def keys(rows: Mapping[str, Obedience]) -> list[str]:
    """How soon keys work."""
    return table(
        ("", "p50 ms", "p99 ms", "overtaken", "frames/s"),
        (
            (
                name,
                f"{one.half:.1f}",
                f"{one.most:.1f}",
                f"{one.missed} of {one.pressed}",
                f"{one.frames:.1f}",
            )
            for name, one in rows.items()
        ),
    )


def ends(rows: Mapping[str, Once]) -> list[str]:
    """What commands that end take."""
    return table(
        ("", "ms", "CPU ms"),
        ((name, f"{one.wall:.0f}", f"{one.cpu:.0f}") for name, one in rows.items()),
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table, numbers to the right."""
    return [
        f"| {' | '.join(headings)} |",
        f"|---|{'--:|' * (len(headings) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def markers(name: str) -> tuple[str, str]:
    """What begins and ends the part of a README that has this name."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def put(readme: Path, lines: Sequence[str], name: str = "measured") -> None:
    """Replace the part of a README that has this name.

    Raises:
        ValueError: It has no such part.
    """
    begin, end = markers(name)
    text = readme.read_text(encoding="utf-8")
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{readme} has no place for what was measured: {begin} … {end}")
    readme.write_text("\n".join((before + begin, "", *lines, "", end + after)), encoding="utf-8")


def _number(number: float | None) -> str:
    return "–" if number is None else f"{number:.0f}"
