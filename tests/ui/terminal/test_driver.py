"""The terminal is taken once and given back whole, whatever it sends, however often it goes on."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle

import pytest
from textual import events
from textual.message import Message

from gpumon.ui.terminal.driver import LenientParser
from tests.driver import Driver, h100
from tests.screen import Screen

GPUMON = [sys.executable, "-m", "gpumon"]
READY = r"GPU-MEM▼[\s\S]*\n q quit"
SORTS = (("P", "PID"), ("M", "GPU-MEM"))
"""Keys that sort, and the heading that each marks."""
INVALID = ("\x1b[99999999999u", "\x1b[48;24;80;0;0t\x1b[<0;5;5M")


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
    assert isinstance(read("\x1b[48;24;80;0;0t\x1b[<0;5;5Mj")[-1], events.Key)


UNFINISHED = ("\x1b[200~", "\x1b]11;rgb:", "\x1bP>|XTerm(", "\x1b_Gi=31;", "\x1b[<0;5", "\x1b[48;1")


def test_a_paste_whose_markers_arrive_in_parts_is_complete() -> None:
    parser = LenientParser()
    told = [message for letter in "\x1b[200~one\x1b[201~j" for message in parser.feed(letter)]
    assert not parser.pasting
    paste, key = told
    assert isinstance(paste, events.Paste)
    assert paste.text == "one"
    assert isinstance(key, events.Key)


@pytest.fixture(scope="module")
def machine() -> Iterator[dict[str, str]]:
    """The environment of a machine with one GPU: a start there costs half of the demo's."""
    with Driver([h100()]) as driver:
        yield driver.env()


def sorted_by(heading: str) -> Callable[[Screen], bool]:
    """Whether the processes are sorted by this column, in either order."""
    return lambda screen: re.search(f"{heading}[▲▼]", screen.text()) is not None


@pytest.mark.slow
@pytest.mark.parametrize(("sequence", "key"), zip(UNFINISHED, cycle("\x03q"), strict=False))
def test_keys_act_again_after_a_sequence_that_never_ends(
    sequence: str, key: str, machine: dict[str, str]
) -> None:
    with Screen(GPUMON, machine) as screen:
        screen.wait_for(READY)
        screen.type(sequence)
        for _ in range(5):
            # Until the sequence is given up, keys are a part of it.
            with contextlib.suppress(AssertionError):
                screen.wait(lambda it: it.process.poll() is not None, "waiting for its end", 2)
            if screen.process.poll() is not None:
                break
            screen.type(key)
        assert screen.wait_end() == 0


@pytest.mark.slow
def test_it_survives_what_a_terminal_sends_and_leaves_it_as_it_was(machine: dict[str, str]) -> None:
    with Screen(GPUMON, machine) as screen:
        screen.wait_for(READY)
        # Invalid keys and mouse input do not end it.
        for sequence, (key, heading) in zip(INVALID, SORTS, strict=True):
            screen.type(f"{sequence}{key}")
            screen.wait(sorted_by(heading), f"waiting for {key} after {sequence!r}")
        # A paste without an end reaches the filter line.
        screen.press("/", "Enter keep")
        screen.type("\x1b[200~da")
        screen.press("ra", r"\n / *dara *\n")
        screen.press("\r", "0 processes · /dara ")
        screen.wait_gone("Enter keep")
        # Several SIGCONT take the terminal only once.
        for _ in range(15):
            screen.signal(signal.SIGCONT)
            # Whoever is in the middle of taking it writes.
            written = len(screen.output)
            screen.wait(lambda it, written=written: len(it.output) > written, "waiting for more")  # type: ignore[misc]  # a default binds the value
        # What comes while the terminal is taken is thrown away, so the last time must be over.
        taken = -1
        while taken != (taken := screen.output.count(b"\x1b[?1049h")):
            time.sleep(1)
        # The terminal says that it can tell of its size by itself, and tells an impossible one.
        screen.type("\x1b[?2048;2$y")
        screen.wait(lambda it: b"\x1b[?1016h" in it.output, "waiting for pixels to be asked for")
        screen.press("\x1b[48;2147483647;80;0;0t?", "Filter the processes")
        screen.press("q", " q quit")
        screen.type("q")
        assert screen.wait_end() == 0
        # Mouse reporting in pixels is switched off too.
        assert screen.left_on() == set()
        assert screen.attributes() == screen.attributes_before
