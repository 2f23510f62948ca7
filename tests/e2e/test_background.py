"""A terminal is asked for its background, and the default theme suits it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.config.themes import ThemeLibrary
from gpumon.config.themes.styles import parse
from gpumon.system.terminal_replies import REPLY_SECONDS
from gpumon.ui.terminal import background
from gpumon.ui.terminal.background import QUERY, BackgroundReply, hinted_light, may_query
from tests.clock import HandClock
from tests.command import run_program
from tests.driver import Driver, h100
from tests.known import known
from tests.lives import until
from tests.screen import Screen

GPUMON = [sys.executable, "-m", "gpumon", "-n", "0.1"]
PATIENT = (
    "import sys\n"
    "from gpumon.ui.terminal import background\n"
    "background.WAIT_SECONDS = 60\n"
    "from gpumon.cli import main\n"
    "sys.exit(main([]))\n"
)
"""Waits for the reply before the first picture."""
READY = r"\n q quit"
ENTER = b"\x1b[?1049h"
WHITE, BLACK = b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\", b"\x1b]11;rgb:0000/0000/0000\x1b\\"
ATTRIBUTES = b"\x1b[?62;22c"
ASKED = QUERY.encode()
_AS_A_KEY = 0.1
"""Seconds after which an Escape character alone is the key."""


class AskedTerminal(Screen):
    """Sends bytes once it is queried, each with a pause before it."""

    def __init__(self, *parts: tuple[float, bytes], **named: Any) -> None:
        self._parts = parts
        self._has_sent = False
        self.longest_pause = 0.0
        super().__init__(named.pop("command", GPUMON), **named)

    def reply(self) -> None:
        if not self._has_sent and ASKED in self.output:
            self._has_sent = True
            for pause, data in self._parts:
                began = time.monotonic()
                time.sleep(pause)
                self.send(data)
                self.longest_pause = max(self.longest_pause, time.monotonic() - began)

    def ground(self) -> str:
        """The background of the cells in the middle."""
        return self.cells()[self.columns * self.lines // 2][2]

    def wait_for_theme(self, theme: str) -> None:
        """Wait until the background is that of a theme."""
        expected = ground_of(theme)
        self.wait(lambda _: self.ground() == expected, f"waiting for the theme {theme}")


def ground_of(theme: str) -> str:
    return parse(ThemeLibrary().read(theme).colours["background"]).hex[1:]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = str(tmp_path_factory.mktemp("home"))
    with Driver([h100()]) as driver:
        env = {**driver.env(), "XDG_CONFIG_HOME": folder, "XDG_STATE_HOME": folder}
        env.pop("COLORFGBG", None)
        yield env


def quit_and_check(screen: Screen) -> None:
    screen.quit()
    assert screen.left_on() == set()
    assert screen.attributes() == screen.attributes_before
    assert b"11;rgb" not in screen.output
    assert b"62;22" not in screen.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "theme"),
    [
        ([(0.0, WHITE + ATTRIBUTES)], "gpumon-light"),
        ([(0.0, BLACK + ATTRIBUTES)], "gpumon"),
        ([(0.0, b"\x1b]11;rgb:f/f/e\x07" + ATTRIBUTES)], "gpumon-light"),
        ([(0.0, ATTRIBUTES)], "gpumon"),
        ([(0.0, b"\x1b]11;nothing\x07" + ATTRIBUTES)], "gpumon"),
        ([(0.0005, bytes([byte])) for byte in WHITE + ATTRIBUTES], "gpumon-light"),
    ],
    ids=["white", "black", "BEL", "not known", "garbage", "byte by byte"],
)
def test_the_first_picture_has_the_theme_for_the_background(
    parts: list[tuple[float, bytes]], theme: str, machine: dict[str, str]
) -> None:
    with AskedTerminal(*parts, command=[sys.executable, "-c", PATIENT], env=machine) as screen:
        screen.wait_for(READY)
        assert screen.ground() == ground_of(theme)
        start = bytes(screen.output).partition(ENTER)[2]
        shown = known(re.search(rb"48;2;(\d+);(\d+);(\d+)", start))
        first = "".join(f"{int(part):02x}" for part in shown.groups())
        light = sum(parse("#" + first)) > 384
        assert light == (theme == "gpumon-light")
        quit_and_check(screen)


def test_a_terminal_that_replies_late_gets_it_late(machine: dict[str, str]) -> None:
    with AskedTerminal((0.6, WHITE[:8]), (0.3, WHITE[8:] + ATTRIBUTES), env=machine) as screen:
        screen.wait_for_theme("gpumon-light")
        quit_and_check(screen)


def test_a_late_reply_between_the_bytes_of_a_character_leaves_it_whole(
    machine: dict[str, str],
) -> None:
    with AskedTerminal(env=machine) as screen:
        screen.wait_for(READY)
        screen.send(b"/h\xc3" + WHITE + ATTRIBUTES + b"\xa41")
        screen.wait_for("hä1")


def test_a_terminal_that_never_replies_is_not_waited_for(machine: dict[str, str]) -> None:
    with AskedTerminal(env=machine) as screen:
        screen.wait(lambda it: ASKED in it.output, "waiting for the query")
        asked_at = time.monotonic()
        screen.wait(lambda it: ENTER in it.output, "waiting for the first picture", 5.0)
        assert time.monotonic() - asked_at < 2.0
        screen.wait_for(READY)
        assert screen.ground() == ground_of("gpumon")
        quit_and_check(screen)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2, 40])
def test_what_is_typed_meanwhile_is_not_lost(parts: int, machine: dict[str, str]) -> None:
    data = b"/h\xc3" + WHITE + b"\xa41\r" + ATTRIBUTES + b"?"
    size = -(-len(data) // parts)
    pieces = [(0.002, data[at : at + size]) for at in range(0, len(data), size)]
    for _ in range(10):
        with AskedTerminal(*pieces, env=machine) as screen:
            screen.wait_for("Help|help")
            if screen.longest_pause > _AS_A_KEY / 2:
                continue  # On a busy machine: the first byte of the reply may be the Escape key.
            # Where this test gets little of the CPU, the reply comes after the first picture.
            screen.wait_for_theme("gpumon-light")
            screen.press("\x1b", "hä1")
            return
    pytest.fail("no reply was sent without a long pause")


def test_a_key_after_a_lost_reply_is_still_a_key(machine: dict[str, str]) -> None:
    with AskedTerminal(env=machine) as screen:
        screen.wait_for(READY)
        screen.press("?", "search|Search")
        screen.press("\x1b", READY)
        screen.type("\x1b[B")
        quit_and_check(screen)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_reply_leaves_the_terminal_as_it_was(
    number: signal.Signals, machine: dict[str, str]
) -> None:
    command = [sys.executable, "-c", PATIENT]
    with AskedTerminal((0.2, b""), command=command, env=machine) as screen:
        screen.wait(lambda it: ASKED in it.output, "waiting for the query")
        screen.signal(number)
        screen.send(WHITE + ATTRIBUTES)
        assert screen.wait_end() in {-number, 130}
        assert screen.attributes() == screen.attributes_before
        assert b"11;rgb" not in screen.output


@pytest.mark.slow
def test_a_quit_key_before_the_reply_does_not_kill_it(machine: dict[str, str]) -> None:
    command = [sys.executable, "-c", PATIENT]
    parts = (0.2, b"\x1c"), (0.2, WHITE + ATTRIBUTES)
    with AskedTerminal(*parts, command=command, env=machine) as screen:
        screen.wait_for(READY)
        quit_and_check(screen)


@pytest.mark.parametrize(
    ("options", "variables"),
    [(["--theme", "gpumon"], {}), ([], {"GPUMON_THEME": "gpumon"}), ([], {"NO_COLOR": "1"})],
)
def test_it_is_not_asked_where_it_makes_no_difference(
    options: list[str], variables: dict[str, str], machine: dict[str, str]
) -> None:
    with AskedTerminal(command=[*GPUMON, *options], env={**machine, **variables}) as screen:
        screen.wait_for(READY)
        assert b"]11;" not in screen.output


def test_a_hint_of_the_environment_counts_where_it_does_not_reply(machine: dict[str, str]) -> None:
    with AskedTerminal((0.0, ATTRIBUTES), env={**machine, "COLORFGBG": "0;15"}) as screen:
        screen.wait_for(READY)
        assert screen.ground() == ground_of("gpumon-light")


def test_many_machines_have_it_too(machine: dict[str, str]) -> None:
    command = [*GPUMON, "--hosts", "ada,bo", "--demo"]
    with AskedTerminal((0.0, WHITE + ATTRIBUTES), command=command, env=machine) as screen:
        screen.wait_for(READY)
        assert screen.ground() == ground_of("gpumon-light")
        quit_and_check(screen)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_tmux_is_left_without_a_reply(machine: dict[str, str], tmp_path: Path) -> None:
    tmux = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null"]

    def pane() -> str:
        return run_program([*tmux, "capture-pane", "-p"], check=True).stdout

    def wait_for(text: str) -> None:
        until(lambda: text in pane(), lambda: f"{text!r} on\n{pane()}")

    size = ["-x", "100", "-y", "24"]
    env = {**machine, "PS1": "end$ "}
    subprocess.run([*tmux, "new-session", "-d", *size, "sh"], check=True, env=env)
    try:
        wait_for("end$")
        subprocess.run([*tmux, "send-keys", " ".join(GPUMON), "Enter"], check=True)
        wait_for("q quit")
        subprocess.run([*tmux, "send-keys", "q"], check=True)
        wait_for("\nend$")
        subprocess.run([*tmux, "send-keys", "echo done", "Enter"], check=True)
        wait_for("\ndone")
        assert "\nend$ echo done\ndone" in pane()
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)


# -- what is typed and what is the reply -----------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    hand = HandClock()
    monkeypatch.setattr(background, "time", hand)
    return hand


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("attributes", [b"\x1b[?1;2c", b"\x1b[?62" + b";22" * 60 + b"c"])
def test_a_reply_is_separated_however_it_is_split(size: int, attributes: bytes) -> None:
    reply = BackgroundReply(time.monotonic())
    data = b"a\x1b[Ab" + WHITE + b"c" + attributes + b"d\x1b"
    typed = b"".join(reply.feed(data[at : at + size]) for at in range(0, len(data), size))
    assert typed == b"a\x1b[Abcd\x1b"
    assert reply.is_light is True
    assert not reply.outstanding


def test_an_escape_key_is_held_only_for_a_pause(clock: HandClock) -> None:
    reply = BackgroundReply(clock.monotonic())
    assert reply.pause is None
    assert reply.feed(b"x\x1b") == b"x"
    assert reply.pause == 0.1
    assert reply.release() == b"\x1b"
    assert reply.pause is None


def test_an_escape_key_is_not_held_where_no_reply_comes(clock: HandClock) -> None:
    reply = BackgroundReply(clock.monotonic())
    clock.now += REPLY_SECONDS
    assert reply.feed(b"x\x1b") == b"x\x1b"
    assert reply.pause is None
    # A reply that is very late is none of the keys all the same.
    assert reply.feed(b"\x1b]11;rgb:f/f/f") == b""
    assert reply.feed(b"\x07\x1b[?1cq") == b"q"
    assert reply.is_light is True


def test_the_rest_of_a_reply_that_stalls_is_not_typed(clock: HandClock) -> None:
    reply = BackgroundReply(clock.monotonic())
    assert reply.feed(b"\x1b]11;rgb:ff") == b""
    assert reply.pause == 5.0
    clock.now += 3
    assert reply.release() == b""
    assert reply.pause == 2.0
    assert reply.feed(b"ff/ffff/ff") == b""
    clock.now += 1
    assert reply.feed(b"ff\x07/") == b"/"
    assert reply.is_light is True
    assert reply.feed(b"\x1b[?62;") == b""
    clock.now += 4
    assert reply.feed(b"22cq") == b"q"
    assert not reply.outstanding


@pytest.mark.parametrize("beginning", [b"\x1b]11;rg", b"\x1b[?62;"])
def test_keys_act_again_after_a_reply_that_never_ends(beginning: bytes, clock: HandClock) -> None:
    reply = BackgroundReply(clock.monotonic())
    assert reply.feed(beginning) == b""
    clock.now += 5
    assert reply.pause == 0.0
    assert reply.release() == b""
    assert reply.feed(b"q") == b"q"
    # Also where input came all the time.
    assert reply.feed(beginning) == b""
    clock.now += 5
    assert reply.feed(b"q") == b"q"
    assert reply.feed(beginning + b"1" * 5000) == b""
    assert reply.feed(b"q") == b"q"


def test_a_key_that_is_no_part_of_a_colour_ends_an_unfinished_reply() -> None:
    reply = BackgroundReply(time.monotonic())
    assert reply.feed(b"\x1b]11;rgb:f/f/f") == b""
    assert reply.feed(b"\x03") == b"\x03"
    assert reply.feed(b"\x1b]11;rgb:f/f/f\x1b") == b""
    assert reply.feed(b"[A") == b"\x1b[A"
    assert reply.is_light is None


@pytest.mark.parametrize(
    ("colours", "light"),
    [("0;15", True), ("0;default;7", True), ("15;0", False), ("12;8", False), ("15;default", None)],
)
def test_the_hint_of_the_environment(colours: str, *, light: bool | None) -> None:
    assert hinted_light({"COLORFGBG": colours}) is light
    assert hinted_light({"COLORFGBG": colours, "TMUX": "x"}) is hinted_light({}) is None


@pytest.mark.parametrize(
    ("term", "may"),
    [("xterm", True), ("tmux-256color", True), ("linux", False), ("dumb", False), ("vt100", False)],
)
def test_which_terminals_are_asked(term: str, *, may: bool) -> None:
    assert may_query({"TERM": term}) is may
    assert may_query({"TERM": term, "NO_COLOR": "1"}) is may_query({}) is False
