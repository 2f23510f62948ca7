"""What a terminal sends, of which any program on it may have had its part."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from textual import events

from gpumon.tui.parser import LenientParser
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
def test_a_key_that_cannot_be_meant_is_passed_over(sequence: str) -> None:
    keys = [one.key for one in read(f"j{sequence}k") if isinstance(one, events.Key)]
    assert keys[0] == "j"
    assert keys[-1] == "k"


def test_the_mouse_of_a_terminal_that_says_it_has_no_pixels_does_no_harm() -> None:
    told = read("\x1b[48;24;80;0;0t\x1b[<0;5;5Mj")
    assert isinstance(told[-1], events.Key)


def test_a_mouse_that_is_told_of_in_pixels_is_let_go_too() -> None:
    with Screen(DEMO) as screen:
        screen.wait_for(READY)
        # The terminal says that it can tell of its size by itself.
        screen.type("\x1b[?2048;2$y")
        screen.wait(lambda it: b"\x1b[?1016h" in it.output, "waiting for pixels to be asked for")
        screen.type("q")
        assert screen.wait_end() == 0
        assert screen.output.rfind(b"\x1b[?1016l") > screen.output.rfind(b"\x1b[?1016h")
