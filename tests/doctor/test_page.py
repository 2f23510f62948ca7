"""A report of gpumon doctor, line by line."""

from __future__ import annotations

import pytest

from gpumon.doctor import CheckVerdict, Result
from gpumon.doctor.page import result_rows, summary_rows
from gpumon.text.formatting import cell_width

LONG = (
    "libnvidia-ml is 575.51.03, the loaded kernel module 570.124.06: the driver was upgraded "
    "while it was running."
)


def lines(result: Result, width: int = 80) -> list[str]:
    return ["".join(text for text, _ in row) for row in result_rows(result, width)]


def test_a_result_reads_from_the_verdict_to_what_is_to_be_done() -> None:
    result = Result(
        CheckVerdict.FAIL, LONG, "Reboot.", ("/usr/lib/libcuda.so.1",), "driver library"
    )
    assert lines(result) == [
        " FAIL  driver library    libnvidia-ml is 575.51.03, the loaded kernel module",
        "                         570.124.06: the driver was upgraded while it was",
        "                         running.",
        "                         /usr/lib/libcuda.so.1",
        "                       → Reboot.",
    ]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_is_wider_than_the_terminal_or_than_an_eye_follows(width: int) -> None:
    result = Result(CheckVerdict.WARN, LONG * 3, LONG, (LONG,))
    assert all(cell_width(line) <= min(width, 100) for line in lines(result, width))


def test_a_path_is_never_broken() -> None:
    path = "/data/" + "very-long-name/" * 10
    assert any(path in line for line in lines(Result(CheckVerdict.PASS, path)))


def test_text_of_others_cannot_move_the_cursor() -> None:
    result = Result(CheckVerdict.PASS, "a\x1b[2Jb", "", ("\x1b]0;owned\x07",))
    assert not any("\x1b" in line or "\x07" in line for line in lines(result))


def test_the_summary_counts_and_says_where_to_begin() -> None:
    results = [
        Result(CheckVerdict.PASS, "", check="one"),
        Result(CheckVerdict.FAIL, "", check="two"),
        Result(CheckVerdict.FAIL, "", check="three"),
    ]
    rows = ["".join(text for text, _ in row) for row in summary_rows(results, 80)]
    assert rows[0] == " 3 checks  1 pass  2 fail"
    assert rows[1].startswith(" Begin with two:")
    assert len(list(summary_rows(results[:2], 80))) == 1, "one fault needs no order"
