"""The table of ``docs/doctor.md``, made from the docstrings of the checks.

``python -m tests.doctor.doctor_page`` writes it into the page; a test checks that it is there.
"""

from __future__ import annotations

from pathlib import Path

from gpumon.doctor.report import SECTIONS
from tests.pages import with_table

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"


def with_checks(page: str) -> str:
    """The page with its table made anew."""
    rows = [
        f"| {'' if number else section} | {check.name} | {_about(check.run.__doc__)} |\n"
        for section, checks in SECTIONS.items()
        for number, check in enumerate(checks)
    ]
    return with_table(
        page, "checks", "".join(["| section | check | what it reports |\n|---|---|---|\n", *rows])
    )


def _about(docstring: str | None) -> str:
    return " ".join((docstring or "").split()).replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(with_checks(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
