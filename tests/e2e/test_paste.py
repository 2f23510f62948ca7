"""What is pasted, or arrives in one packet, has the effect of typing it."""

from __future__ import annotations

import pytest

from tests.e2e.demo import demo

READY = r"\n q quit"
ESCAPE, CONTROL_P = "\x1b", "\x10"


def pasted(text: str) -> str:
    """A bracketed paste."""
    return f"\x1b[200~{text}\x1b[201~"


@pytest.mark.slow
def test_pasted_text_has_the_effect_of_typing_it() -> None:
    with demo(columns=120) as screen:
        # A colon follows no word: the last valid filter on the way there applies.
        for together in ("/foo:", pasted("/foo:"), "/" + pasted("foo:"), pasted("/foo:\nq")):
            screen.press(together, r'of 18 processes · /foo ─[\s\S]*\n /foo:[\s\S]*no term "foo"')
            screen.press(ESCAPE, rf"── 18 processes[\s\S]*{READY}")
        screen.press("/", "Enter keep")
        screen.press("fo" + pasted("o:") + "\x7f", r"of 18 processes · /foo ─[\s\S]*\n /foo *\n")
        screen.press(ESCAPE, rf"── 18 processes[\s\S]*{READY}")
        for together in ("?sort by", pasted("?sort by"), "?" + pasted("sort by")):
            screen.press(together, r"\n *sort by *\n[\s\S]*Sort by PID")
            screen.press(ESCAPE, "type to search")
            screen.press(ESCAPE, READY)
        screen.press(CONTROL_P + pasted("rewind"), "🔎 *rewind")
        screen.press_away(ESCAPE, "🔎")
        screen.wait_for(READY)
        for together in ("@never\r", pasted("@never"), "@" + pasted("never") + "\r"):
            screen.press(together, r"│ *never *│")
            if not together.endswith("\r"):
                screen.type("\r")
            screen.wait_for("'never' is not a time")
            screen.press_away(ESCAPE, "is not a time")
        # Where no input is open, a paste that opens none is no command.
        screen.type(pasted("q"))
        screen.press("?", "type to search")
