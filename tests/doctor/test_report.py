"""A report of gpumon doctor, line by line, and what it leaves out for a public issue."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.doctor import Result, failed, passed, warned
from gpumon.doctor.report import SECTIONS, Scrubber, result_rows, summary_rows
from gpumon.text.formatting import cell_width
from tests.doctor.doctor_page import PAGE, with_checks

LONG = (
    "libnvidia-ml is 575.51.03, the loaded kernel module 570.124.06: the driver was upgraded "
    "while it was running."
)


def lines(result: Result, width: int = 80) -> list[str]:
    return ["".join(text for text, _ in row) for row in result_rows(result, width)]


def test_a_result_reads_from_the_verdict_to_what_is_to_be_done() -> None:
    result = replace(failed(LONG, "Reboot.", "/usr/lib/libcuda.so.1"), check="driver library")
    assert lines(result) == [
        " FAIL  driver library    libnvidia-ml is 575.51.03, the loaded kernel module",
        "                         570.124.06: the driver was upgraded while it was",
        *("                         running.", "                         /usr/lib/libcuda.so.1"),
        "                       → Reboot.",
    ]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_is_wider_than_the_terminal_or_than_an_eye_follows(width: int) -> None:
    result = warned(LONG * 3, LONG, LONG)
    assert all(cell_width(line) <= min(width, 100) for line in lines(result, width))


def test_a_path_is_never_broken() -> None:
    path = "/data/" + "very-long-name/" * 10
    assert any(path in line for line in lines(passed(path)))


def test_text_of_others_cannot_move_the_cursor() -> None:
    result = passed("a\x1b[2Jb", "\x1b]0;owned\x07")
    assert not any("\x1b" in line or "\x07" in line for line in lines(result))


def test_the_summary_counts_and_says_where_to_begin() -> None:
    results = [
        replace(passed(""), check="one"),
        replace(failed("", ""), check="two"),
        replace(failed("", ""), check="three"),
    ]
    rows = ["".join(text for text, _ in row) for row in summary_rows(results, 80)]
    assert rows[0] == " 3 checks  1 pass  2 fail"
    assert rows[1].startswith(" Begin with two:")
    assert len(list(summary_rows(results[:2], 80))) == 1, "one fault needs no order"


SCRUBBER = Scrubber("/data/ann", {"ann", "", "x"}, {"ada-07", "ada-07.example.org"})


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/data/ann/venv/lib", "~/venv/lib"),
        ("/data/ann", "~"),
        ("/data/anna/venv", "/data/anna/venv"),
        ("/home/bo/x and /home/cy", "/home/USER/x and /home/USER"),
        ("/scratch/ann/runs", "/scratch/USER/runs"),
        ("/mnt/teams/ann/envs", "/mnt/teams/USER/envs"),
        ("on ada-07.example.org, ada-07", "on HOST, HOST"),
        ("GPU-0123abcd-aaaa-bbbb-cccc-0123456789ab", "GPU-…"),
        ("MIG-0123abcd-aaaa-bbbb-cccc-0123456789ab", "MIG-…"),
        ("//ann:secret@host/simple", "//host/simple"),
        ("570.124.06 and cuDNN 9.1.0.70", "570.124.06 and cuDNN 9.1.0.70"),
        ("cuda:0 is GPU 3, index", "cuda:0 is GPU 3, index"),
    ],
)
def test_names_go_and_facts_stay(text: str, left: str) -> None:
    assert SCRUBBER.text(text) == left


def test_every_text_of_a_result_is_scrubbed() -> None:
    result = warned("/data/ann/a", "ask ann", "/home/bo/b")
    assert SCRUBBER.result(result) == warned("~/a", "ask USER", "/home/USER/b")
    assert SCRUBBER.result(passed("ann")) == passed("USER")


@pytest.mark.parametrize("home", ["", "/", "/root"])
def test_roots_home_is_no_name(home: str) -> None:
    text = "/usr/lib, /root/.config"
    left = Scrubber(home, {"root"}, set()).text(text)
    assert left == text.replace("/root", "~") if home == "/root" else left == text


def test_the_page_has_every_check_with_a_name_of_its_own() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_checks(page) == page, "run python -m tests.doctor.doctor_page"
    names = [check.name for checks in SECTIONS.values() for check in checks]
    assert len(names) == len(set(names))
