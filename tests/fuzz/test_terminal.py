"""Random bytes and signals for a real terminal: it ends when told to, and leaves nothing behind.

When they arrive hangs on the moment, and what is promised does not. ``FUZZ_SEED=7 FUZZ_BYTES=3000
pytest -n 0 tests/fuzz/test_terminal.py`` looks further.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import pytest

from tests.screen import Screen

BYTES = int(os.environ.get("FUZZ_BYTES", "400"))
SEEDS = [int(os.environ["FUZZ_SEED"])] if "FUZZ_SEED" in os.environ else [1, 2]
LEFT_OUT = {0x03, 0x11, 0x13, 0x1A, 0x1C, ord("q")}
"""Ctrl+C, Ctrl+Q and q lead out. Where the program does not have the line, as it does not for a
moment when it goes on, Ctrl+Z stops it, Ctrl+\\ kills it, and Ctrl+S holds back all it writes."""
NUMBERS = (0, 1, 2, 9, 48, 99, 300, 65535, 2**31, 2**63, 10**40)
PIECES = (
    # The mouse in three ways, its wheel, and what is no button.
    *("\x1b[<0;{};{}M", "\x1b[<0;{};{}m", "\x1b[<64;{};{}M", "\x1b[<35;{};{}M", "\x1b[<{};{};{}M"),
    *("\x1b[M !!", "\x1b[{};{};{}M", "\x1b[M\x00\x7f\x01"),
    # Answers to what was asked, and to what was not.
    *("\x1b[{};{}R", "\x1b[?2026;{}$y", "\x1b[?2048;{}$y", "\x1b[48;{};{};{};{}t", "\x1b[?{};{}c"),
    *("\x1b]11;rgb:{}/{}/{}\x07", "\x1bP>|{}\x1b\\", "\x1b]52;c;{}\x1b\\", "\x1b[8;{};{}t"),
    # Keys in the newer ways.
    *("\x1b[{}u", "\x1b[97;{}u", "\x1b[{};{}:{};{}u", "\x1b[1;{}A", "\x1b[27;{};{}~", "\x1bO{}"),
    # Pasted text that does not end, ends twice, or holds what controls.
    *("\x1b[200~{};{}", "\x1b[201~", "\x1b[200~\x1b[<0;5;5M\x00\x1b[201~"),
    # The window is looked at or not; and what is cut off.
    *("\x1b[I", "\x1b[O", "\x1b[", "\x1b", "\x1b[<", "\x1b[<0;5", "\x1b]", "\x1bP", "\x1b[?"),
)
BROKEN = (b"\xff\xfe", b"\x9b", b"\xe2\x82", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80")
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def noise(chance: random.Random) -> bytes:
    """What no keyboard sends, and what a terminal answers to nothing that was asked."""
    kind = chance.random()
    if kind < 0.5:
        numbers = [chance.choice(NUMBERS) for _ in range(4)]
        return chance.choice(PIECES).format(*numbers).encode()
    if kind < 0.6:
        return chance.choice(BROKEN)
    return bytes(byte for byte in chance.randbytes(4) if byte not in LEFT_OUT)


def disturb(screen: Screen, chance: random.Random) -> None:
    """Something comes from outside."""
    kind = chance.random()
    if kind < 0.4:
        screen.resize(chance.choice((1, 2, 20, 80, 200)), chance.choice((1, 2, 24, 50)))
    elif kind < 0.7:
        screen.signal(signal.SIGWINCH)
    elif kind < 0.9:
        screen.signal(signal.SIGSTOP)
        screen.signal(signal.SIGCONT)
    else:
        screen.signal(signal.SIGCONT)


def all_taken(screen: Screen) -> bool:
    """Whether the program has read all that was typed, or has ended."""
    return screen.unread() == 0 or screen.process.poll() is not None


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_comes_from_the_terminal_it_ends_well(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    command = [sys.executable, "-m", "gpumon", "--demo", "-n", "0.1"]
    env = {**os.environ, "PYTHONPATH": str(Path.cwd()), "XDG_STATE_HOME": str(tmp_path / "state")}
    with Screen(command, env, cwd=tmp_path) as screen:
        # The first of them come before it has taken the terminal, or while it does.
        screen.wait(lambda it: b"\x1b[?1049h" in it.output, "waiting for the alternate screen")
        typed = 0
        while typed < BYTES and screen.process.poll() is None:
            piece = noise(chance)
            typed += len(piece)
            screen.send(piece)
            if chance.random() < 0.1:
                screen.wait(all_taken, "waiting for the keys to be read")
            if chance.random() < 0.05:
                disturb(screen, chance)
        number = chance.choice(ENDS)
        screen.signal(number)
        # What the pieces come to may have quit.
        assert screen.wait_end() in (0, -number, 128 + number)
        _, traceback, told = bytes(screen.output).partition(b"Traceback")
        assert not traceback, told[-3000:].decode(errors="replace")
        assert screen.left_on() == set()
        assert screen.attributes() == screen.attributes_before
