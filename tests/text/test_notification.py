"""What a terminal gets to show a notification."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.text.notification import notification

_OSC_9 = "\x1b]9;gpumon: GPU 3 is free\a"
_OSC_777 = "\x1b]777;notify;gpumon;GPU 3 is free\a"
_OSC_99 = "\x1b]99;i=gpumon-6352c375:d=0;gpumon\a\x1b]99;i=gpumon-6352c375:p=body;GPU 3 is free\a"
_XTERM = {"TERM": "xterm-256color"}
_TMUX = {"TERM": "tmux-256color", "TERM_PROGRAM": "tmux", "TMUX": "/tmp/tmux,1,0"}
ENVIRONMENTS: list[tuple[dict[str, str], str]] = [
    ({}, _OSC_9),
    (_XTERM, _OSC_9),
    ({**_XTERM, "TERM_PROGRAM": "iTerm.app", "ITERM_SESSION_ID": "w0t0p0:1"}, _OSC_9),
    ({"TERM": "rxvt-unicode-256color"}, _OSC_777),
    ({"TERM": "foot-extra"}, _OSC_777),
    ({**_XTERM, "VTE_VERSION": "7600"}, _OSC_777),
    ({**_XTERM, "TERM_PROGRAM": "WezTerm", "WEZTERM_PANE": "0"}, _OSC_777),
    ({"TERM": "xterm-ghostty"}, _OSC_777),
    ({**_XTERM, "WT_SESSION": "e6d2-11"}, _OSC_777),
    ({"TERM": "xterm-kitty"}, _OSC_99),
    ({**_XTERM, "KITTY_WINDOW_ID": "1"}, _OSC_99),
]


@pytest.mark.parametrize(("environment", "sequence"), ENVIRONMENTS)
def test_each_terminal_gets_the_sequence_that_it_knows(
    environment: dict[str, str], sequence: str
) -> None:
    assert notification("gpumon", "GPU 3 is free", environment) == sequence


@pytest.mark.parametrize(
    ("environment", "sequence"),
    [(found, sequence) for found, sequence in ENVIRONMENTS if found.keys() - {"TERM"}],
)
def test_in_tmux_and_screen_it_is_wrapped_for_the_terminal_outside(
    environment: dict[str, str], sequence: str
) -> None:
    outside = {name: value for name, value in environment.items() if not name.startswith("TERM")}
    doubled = sequence.replace("\x1b", "\x1b\x1b")
    shown = notification("gpumon", "GPU 3 is free", {**outside, **_TMUX})
    assert shown == f"\x1bPtmux;{doubled}\x1b\\"
    shown = notification("gpumon", "GPU 3 is free", {**outside, "TERM": "screen", "STY": "1.x"})
    assert shown == f"\x1bP{sequence}\x1b\\"


def test_screen_gets_a_long_one_in_pieces_that_it_keeps() -> None:
    title, text = "ü" * 90, "日" * 300
    plain = notification(title, text, _XTERM)
    wrapped = notification(title, text, {"STY": "1.x"})
    pieces = re.findall(r"\x1bP(.*?)\x1b\\", wrapped, re.DOTALL)
    assert "".join(f"\x1bP{piece}\x1b\\" for piece in pieces) == wrapped
    assert "".join(pieces) == plain
    assert len(pieces) > 1
    assert max(len(piece.encode()) for piece in pieces) <= 256


@given(
    st.text(max_size=2000),
    st.text(max_size=2000),
    st.sampled_from([environment for environment, _ in ENVIRONMENTS]),
)
def test_no_text_ends_or_changes_the_sequence(
    title: str, text: str, environment: dict[str, str]
) -> None:
    for name, content in (("title", title), ("\x1b\\;\a\x9c\n", f"{text};p=title:\x07\x1b]52;c;")):
        shown = notification(name, content, environment)
        plain = notification("title", "text", environment)
        assert len(shown) < 700
        # The same control characters, and as many semicolons, as with harmless texts.
        assert re.findall(r"[\0-\x1f\x7f-\x9f;]", shown) == re.findall(r"[\0-\x1f;]", plain)
        shown.encode()


@pytest.mark.parametrize("environment", [environment for environment, _ in ENVIRONMENTS])
def test_a_long_text_is_cut(environment: dict[str, str]) -> None:
    shown = notification("a" * 10_000, "b" * 10_000, environment)
    assert "…" in shown
    assert len(shown) < 700


def test_a_later_notification_does_not_replace_an_earlier_one() -> None:
    kitty = {"TERM": "xterm-kitty"}
    names = {
        re.findall(r"i=([\w-]+):", notification("gpumon", f"GPU {number}", kitty))[0]
        for number in range(10)
    }
    assert len(names) == 10
