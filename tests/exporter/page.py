"""The states in ``docs/exporter.md``, which follow from the findings.

``python -m tests.exporter.page`` writes them into the page; a test checks that they are what stands
there.
"""

from __future__ import annotations

from pathlib import Path

from gpumon.findings.registry import GPU_RULES
from tests.pages import with_table

PAGE = Path(__file__).parents[2] / "docs" / "exporter.md"


def with_states(page: str) -> str:
    """The page with the list of states made anew."""
    words = dict.fromkeys(
        word
        for kind, rule in GPU_RULES.items()
        if not rule.is_detail
        for word in rule.exported_briefs or (kind.value,)
    )
    return with_table(page, "states", ", ".join(f"`{word}`" for word in words) + ".\n")


if __name__ == "__main__":
    PAGE.write_text(with_states(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
