"""The tables of ``docs/alerts.md``, which follow from the tables of the code.

``python -m tests.alerts.page`` writes them into the page; a test checks that they are what stands
there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpumon.alerts.alert import CHANNELS
from gpumon.alerts.filter_languages import GPUS, PROCESSES
from gpumon.alerts.when import STATES
from gpumon.findings.registry import PROCESS_RULES, RULES
from tests.pages import with_table

if TYPE_CHECKING:
    from gpumon.filters.language import Language

PAGE = Path(__file__).parents[2] / "docs" / "alerts.md"


def with_tables(page: str) -> str:
    """The page with its tables made anew, each between its mark and the next."""
    states = [
        (
            _code(kind.value),
            ", ".join(map(_code, RULES[kind].other_names)),
            "process" if kind in PROCESS_RULES else "GPU",
            RULES[kind].explanation.meaning,
        )
        for kind in STATES
    ]
    page = with_table(page, "states", _table([("state", "or", "of a", "what it means"), *states]))
    page = with_table(page, "process terms", _terms(PROCESSES))
    channels = [(_code(channel.example()), channel.about) for channel in CHANNELS.values()]
    page = with_table(page, "channels", _table([("channel", "what it is"), *channels]))
    return with_table(page, "gpu terms", _terms(GPUS))


def _terms(language: Language[Any, Any]) -> str:
    rows = [(_code(term.name), _code(term.example), term.about) for term in language.terms]
    return _table([("term", "such as", "selects those"), *rows])


def _code(word: str) -> str:
    return f"`{word}`"


def _table(rows: list[tuple[str, ...]]) -> str:
    header, *others = rows
    ruled = [header, ("---",) * len(header), *others]
    return "".join(f"| {' | '.join(row)} |\n" for row in ruled)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
