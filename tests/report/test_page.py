"""``docs/report.md`` says what the report does."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from gpumon.report.figures import BY, SCHEMA, figures_of
from gpumon.report.table import COLUMNS
from gpumon.report.window import parse_span
from tests.build import NOON, process, snapshot
from tests.command import run_here
from tests.report.logs import report, write_log
from tests.report.page import PAGE, with_table

if TYPE_CHECKING:
    from pathlib import Path

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_table_of_the_page_is_that_of_the_figures() -> None:
    assert with_table(TEXT) == TEXT, "run: python -m tests.report.page"


def test_the_page_explains_every_key_and_no_other(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "a.csv",
        [(snapshot(NOON + second, processes=(process(),)), float(second)) for second in range(3)],
    )
    for by in BY:
        told = report(log, by=by)
        table = TEXT.partition("<!-- keys: report -->\n")[2].partition("\n\n")[0]
        assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(told)
        assert told["schema"] == SCHEMA
        assert list(told["lines"][0]) == [figure.key for figure in figures_of(by)]
        assert set(told["total"]) < set(told["lines"][0])


def test_every_heading_of_the_table_is_explained_on_the_page_and_in_the_help() -> None:
    helped = run_here("report", "--help").stdout.partition("headings of the table:")[2]
    for by in BY:
        told = {name for one in figures_of(by) for name in one.heading.split(", ") if name}
        there = {column.heading for column in COLUMNS if by in column.by} | {"HOST"}
        assert there <= told
        # What is no abbreviation explains itself.
        plain = {"HOST", "GPU", "NAME", "USER", "PID", "JOB", "COMMAND", "ERRORS", "FIRST", "LAST"}
        assert all(re.search(rf"\b{name}(?![\w-])", helped) for name in there - plain)


def test_every_time_of_the_page_is_read() -> None:
    table = TEXT.partition("## Times")[2].partition("## How")[0]
    for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        for form in re.findall(r"`([^`]+)`", row):
            assert math.isfinite(parse_span(form, None, NOON).first)
