"""The times that people write after ``--from`` and ``--to``."""

from __future__ import annotations

from datetime import datetime

import pytest

from gpumon.cli.parser import make_parser
from gpumon.report.window import TimeWindow, parse_span
from gpumon.text.time_parsing import MomentError


def local(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


NOW = local("2025-03-10 10:00")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-03-01", local("2025-03-01 00:00")),
        ("2025-03-01 03:00", local("2025-03-01 03:00")),
        ("2025-03-01T03:00:15", local("2025-03-01 03:00:15")),
        ("2025-03-01T03:00:00+01:00", 1740794400.0),
        ("2025-03-01T02:00:00Z", 1740794400.0),
        ("03:00", local("2025-03-10 03:00")),
        ("3:00", local("2025-03-10 03:00")),
        ("10:01", local("2025-03-09 10:01")),
        ("03:00:30", local("2025-03-10 03:00:30")),
        ("yesterday", local("2025-03-09 00:00")),
        ("yesterday 03:00", local("2025-03-09 03:00")),
        ("today", local("2025-03-10 00:00")),
        ("-8h", NOW - 8 * 3600),
        ("8h", NOW - 8 * 3600),
        ("-90s", NOW - 90),
        ("-1.5d", NOW - 1.5 * 86400),
        (" -30m ", NOW - 1800),
    ],
)
def test_a_time_is_read_as_a_person_means_it(text: str, expected: float) -> None:
    assert parse_span(text, None, NOW) == TimeWindow(first=expected)
    assert parse_span(None, text, NOW) == TimeWindow(last=expected)


def test_a_bare_time_of_the_end_is_the_next_one_after_the_beginning() -> None:
    night = parse_span("yesterday 22:00", "03:00", NOW)
    assert night == TimeWindow(local("2025-03-09 22:00"), local("2025-03-10 03:00"))
    assert parse_span("2025-03-01 03:00", "05:00", NOW).last == local("2025-03-01 05:00")
    assert parse_span("22:00", "03:00", NOW) == night
    # A time that is still to come on the same day ends the day so far.
    today = TimeWindow(local("2025-03-10 09:00"), local("2025-03-10 18:00"))
    assert parse_span("09:00", "18:00", NOW) == today


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "yesterday noon", "25:00", "3", "-8", "-8x", "2025-13-01", "1e99d", "\x1b[2J"],
)
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(MomentError, match="such as") as refused:
        parse_span(text, None, NOW)
    assert "--from" in str(refused.value)


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("-1h", "-2h", "nothing lies between"),
        # These are still to come on the next day.
        ("09:34", "09:33", "--to 09:33 is not after --from 09:34"),
        ("11:34", "11:33", "--to 11:33 is not after --from 11:34"),
    ],
)
def test_an_end_before_its_beginning_is_refused(first: str, last: str, said: str) -> None:
    with pytest.raises(MomentError, match=said):
        parse_span(first, last, NOW)


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_a_time_that_looks_like_an_option_is_its_value(option: str) -> None:
    read = make_parser().parse_args(["report", option, "-8h", "a", "b"])
    assert "-8h" in {read.first, read.last}
    assert read.files == ["a", "b"]
    assert make_parser().parse_args(["replay", "--at", "-30m", "a"]).at == "-30m"
