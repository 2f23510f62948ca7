"""The tables of ``docs/report.md`` that follows from the figures.

``python -m tests.report.page`` writes them into the page; a test checks that they are what stands
there.
"""

from __future__ import annotations

from pathlib import Path

from gpumon.report import accidents
from gpumon.report.figures import BY, FIGURES
from tests import pages

PAGE = Path(__file__).parents[2] / "docs" / "report.md"


def with_table(page: str) -> str:
    """The page with the table made anew, between its marks."""
    rows = [
        "| key | in the table | `--by` | what it is |\n",
        "| --- | --- | --- | --- |\n",
        *(
            f"| `{one.key}` | {one.heading} | {'all' if one.by == BY else ', '.join(one.by)} "
            f"| {one.about} |\n"
            for one in FIGURES
        ),
    ]
    page = pages.with_table(page, "figures", "".join(rows))
    rows = ["| key | what it is |\n", "| --- | --- |\n"]
    rows += [f"| `{one.key}` | {one.about} |\n" for one in accidents.FIGURES]
    return pages.with_table(page, "accidents", "".join(rows))


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
