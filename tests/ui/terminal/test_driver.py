"""The terminal is taken once and given back whole, whatever it sends, however often it goes on."""

from __future__ import annotations

import contextlib
import signal
import sys
from itertools import cycle
from typing import TYPE_CHECKING

import pytest
from textual import events

from gpumon.ui.terminal.parser import LenientParser
from tests.e2e.test_terminal import READY
from tests.screen import Screen

if TYPE_CHECKING:
    from textual.message import Message

DEMO = [sys.executable, "-m", "gpumon", "--demo"]


def read(text: str) -> list[Message]:
    return list(LenientParser().feed(text))


@pytest.mark.parametrize(
    "sequence",
    [
        # No character has these numbers.
        *("\x1b[99999999999u", "\x1b[97;;1114112u", "\x1b[97;;4294967296u"),
        # A key that is let go, which was not asked for.
        "\x1b[97;1:3u",
    ],
)
def test_an_invalid_key_sequence_is_ignored(sequence: str) -> None:
    keys = [one.key for one in read(f"j{sequence}k") if isinstance(one, events.Key)]
    assert keys[0] == "j"
    assert keys[-1] == "k"


def test_mouse_input_of_a_terminal_without_pixel_size_does_no_harm() -> None:
    told = read("\x1b[48;24;80;0;0t\x1b[<0;5;5Mj")
    assert isinstance(told[-1], events.Key)


@pytest.mark.parametrize("sequence", ["\x1b[99999999999u", "\x1b[48;24;80;0;0t\x1b[<0;5;5M"])
def test_invalid_input_does_not_end_it(sequence: str) -> None:
    with Screen(DEMO) as screen:
        screen.wait_for(READY)
        screen.type(f"{sequence}\x1b[B")
        screen.wait_for("▸")
        screen.type("q")
        assert screen.wait_end() == 0


UNFINISHED = ("\x1b[200~", "\x1b]11;rgb:", "\x1bP>|XTerm(", "\x1b_Gi=31;", "\x1b[<0;5", "\x1b[48;1")


@pytest.mark.parametrize(("sequence", "key"), zip(UNFINISHED, cycle("\x03q"), strict=False))
def test_keys_act_again_after_a_sequence_that_never_ends(sequence: str, key: str) -> None:
    with Screen(DEMO) as screen:
        screen.wait_for(READY)
        screen.type(sequence)
        for _ in range(5):
            # Until the sequence is given up, keys are a part of it.
            with contextlib.suppress(AssertionError):
                screen.wait(lambda it: it.process.poll() is not None, "waiting for its end", 2)
            if screen.process.poll() is not None:
                break
            screen.type(key)
        assert screen.wait_end(2) == 0


def test_a_paste_without_an_end_reaches_the_filter_line() -> None:
    with Screen(DEMO) as screen:
        screen.wait_for(READY)
        screen.type("/")
        screen.wait_for("Enter keep")
        screen.type("\x1b[200~da")
        screen.type("ra")
        screen.wait_for(r"\n / *dara *\n")
        screen.type("\r")
        screen.wait_for("of 18 processes · /dara ")
        screen.wait_gone("Enter keep")


def test_a_paste_whose_markers_arrive_in_parts_is_complete() -> None:
    parser = LenientParser()
    told = [message for letter in "\x1b[200~one\x1b[201~j" for message in parser.feed(letter)]
    assert not parser.pasting
    paste, key = told
    assert isinstance(paste, events.Paste)
    assert paste.text == "one"
    assert isinstance(key, events.Key)


def test_mouse_reporting_in_pixels_is_switched_off_too() -> None:
    with Screen(DEMO) as screen:
        screen.wait_for(READY)
        # The terminal says that it can tell of its size by itself.
        screen.type("\x1b[?2048;2$y")
        screen.wait(lambda it: b"\x1b[?1016h" in it.output, "waiting for pixels to be asked for")
        screen.type("q")
        assert screen.wait_end() == 0
        assert screen.left_on() == set()


def test_an_impossible_terminal_size_is_ignored() -> None:
    with Screen(DEMO) as screen:
        screen.wait_for(READY)
        screen.type("\x1b[?2048;2$y\x1b[48;2147483647;80;0;0t?")
        screen.wait_gone(" q quit")
        screen.type("q")
        screen.wait_for(READY)
        screen.type("q")
        assert screen.wait_end() == 0


def test_several_continue_signals_take_the_terminal_only_once() -> None:
    with Screen(DEMO) as screen:
        screen.wait_for(READY)
        for _ in range(15):
            screen.signal(signal.SIGCONT)
            # Whoever is in the middle of taking it writes.
            written = len(screen.output)
            screen.wait(lambda it, written=written: len(it.output) > written, "waiting for more")  # type: ignore[misc]  # a default binds the value
        screen.signal(signal.SIGTERM)
        assert screen.wait_end() in (-signal.SIGTERM, 128 + signal.SIGTERM)
        assert screen.left_on() == set()
        assert screen.attributes() == screen.attributes_before
