"""The tables of ``docs/alerts.md``, which follow from the tables of the code.

``python -m tests.alerts.page`` writes them into the page; a test checks that they are what stands
there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpumon.alerts.filter_languages import GPUS, PROCESSES
from gpumon.alerts.states import PROCESS_STATES, STATE_NAMES, plain_name
from gpumon.findings.explanations import EXPLANATIONS
from gpumon.findings.finding import FindingKind
from tests.pages import with_table

if TYPE_CHECKING:
    from gpumon.filters.language import Language

PAGE = Path(__file__).parents[2] / "docs" / "alerts.md"


def with_tables(page: str) -> str:
    """The page with its tables made anew, each between its mark and the next."""
    states = [
        (_code(kind.value), _others(kind), _of(kind), EXPLANATIONS[kind].meaning)
        for kind in FindingKind
        if kind in STATE_NAMES.values()
    ]
    page = with_table(page, "states", _table([("state", "or", "of a", "what it means"), *states]))
    page = with_table(page, "process terms", _terms(PROCESSES))
    return with_table(page, "gpu terms", _terms(GPUS))


def _others(kind: FindingKind) -> str:
    names = [name for name, other in STATE_NAMES.items() if other is kind]
    return ", ".join(_code(name) for name in names if name != plain_name(kind.value))


def _of(kind: FindingKind) -> str:
    return "process" if kind in PROCESS_STATES else "GPU"


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
