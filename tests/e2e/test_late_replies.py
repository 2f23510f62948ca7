"""A terminal that answers late: after gpumon, a shell reads nothing that was meant for gpumon."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from gpumon.system.terminal_replies import ATTRIBUTES, TerminalReplies
from tests.command import GPUMON
from tests.driver import Driver, h100
from tests.screen import PATIENCE, Screen

pytestmark = pytest.mark.slow

READY = r"\n q quit"
FOLLOWED = """
import os, signal, subprocess, sys, termios, tty
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen(sys.argv[1:], process_group=0)
os.tcsetpgrp(0, job.pid)
while True:
    status = os.waitpid(job.pid, os.WUNTRACED)[1]
    os.tcsetpgrp(0, os.getpgrp())
    os.write(1, b"<echo>" if termios.tcgetattr(0)[3] & termios.ECHO else b"<no echo>")
    tty.setraw(0)
    os.write(1, b"<prompt>")
    read = b""
    while not read.endswith(b"<typed>"):
        read += os.read(0, 4096)
    os.write(1, f"<read {read!r}>".encode())
    if not os.WIFSTOPPED(status):
        break
    os.tcsetpgrp(0, job.pid)
    os.killpg(job.pid, signal.SIGCONT)
"""
"""Shows what a shell reads after a program has ended or was stopped."""
QUERY = re.compile(rb"\x1b\[\?(\d+)\$p|(\x1b\[c)|(\x1b\[\?2048h)|(\x1b\[\?1003l)")
ENTER = b"\x1b[?1049h"
AT_START = 4
"""Queries of Textual, and that for the background."""


class LateTerminal(Screen):
    """Answers every query after ``delay`` seconds, in their order."""

    def __init__(
        self, command: Sequence[str], delay: float, env: Mapping[str, str] | None = None
    ) -> None:
        self.delay = delay
        self.asked = 0
        self.ended_at = 0.0
        self.reports_mouse = False
        self.answered = self._queries = 0
        self._answers: deque[bytes] = deque()
        self._done = threading.Condition()
        super().__init__([sys.executable, "-c", FOLLOWED, *command], env)

    def reply(self) -> None:
        for query in list(QUERY.finditer(self.output))[self._queries :]:
            self._queries += 1
            if query[4] is not None:
                # The terminal has read that only now: until then the mouse moved.
                if self.reports_mouse:
                    self.reports_mouse = False
                    self._answer_later(b"\x1b[<35;10;10M")
                continue
            if query[1] is not None:
                answer = b"\x1b[?%s;2$y" % query[1]
            else:
                answer = b"\x1b[?62;22c" if query[2] else b"\x1b[48;24;100;480;1000t"
            self._answer_later(answer)
        if not self.ended_at and b"<prompt>" in self.output:
            self.ended_at = time.monotonic()

    def _answer_later(self, answer: bytes) -> None:
        self.asked += 1
        self._answers.append(answer)
        timer = threading.Timer(self.delay, self._answer)
        timer.daemon = True
        timer.start()

    def _answer(self) -> None:
        with self._done:
            self.send(self._answers.popleft())
            self.answered += 1
            self._done.notify_all()

    def left_for_the_shell(self, nth: int = 1) -> str:
        """Type at the prompt once all answers have arrived; returns what came before that."""
        self.wait(lambda it: it.output.count(b"<prompt>") == nth, "waiting for a prompt")
        with self._done:
            assert self._done.wait_for(lambda: self.answered == self.asked, PATIENCE)
        self.send(b"<typed>")
        self.wait(lambda it: it.output.count(b"<read ") == nth, "waiting for what was read")
        read: list[bytes] = re.findall(rb"<read b'(.*?)<typed>'>", self.output)
        return read[nth - 1].decode()


@pytest.fixture(scope="module")
def machine() -> Iterator[dict[str, str]]:
    """The environment of a machine with one GPU: a start there costs half of the demo's."""
    with Driver([h100()]) as driver:
        yield driver.env()


def first_query(screen: LateTerminal) -> None:
    screen.wait(lambda it: b"$p" in it.output, "waiting for a query")


def first_picture(screen: LateTerminal) -> None:
    screen.wait(lambda it: ENTER in it.output, "waiting for the first picture")


def dashboard(screen: LateTerminal) -> None:
    screen.wait_for(READY)


def moving_cursor(screen: LateTerminal) -> None:
    screen.wait_for(READY)
    screen.type("\x1b[B\x1b[A")
    # After a key a query follows the frame, once the terminal is known to answer.
    screen.wait(lambda _: screen.asked > AT_START, "waiting for a query after a frame")


def has_all_replies(screen: Screen) -> bool:
    assert isinstance(screen, LateTerminal)
    return AT_START <= screen.asked == screen.answered


def q(screen: LateTerminal) -> None:
    screen.send(b"q")


def control_c(screen: LateTerminal) -> None:
    screen.send(b"\x03")


def terminate(screen: LateTerminal) -> None:
    os.killpg(screen.foreground(), signal.SIGTERM)


@pytest.mark.parametrize("delay", [0.1, 0.4, 0.8])
@pytest.mark.parametrize(
    ("when", "end"),
    [
        (first_query, q),
        (first_query, terminate),
        (first_picture, control_c),
        (first_picture, terminate),
        (dashboard, q),
        (moving_cursor, q),
        (moving_cursor, terminate),
    ],
    ids=lambda it: it.__name__,
)
def test_no_late_reply_is_left_for_the_shell(
    when: Callable[[LateTerminal], None],
    end: Callable[[LateTerminal], None],
    delay: float,
    machine: dict[str, str],
) -> None:
    with LateTerminal([*GPUMON, "-n", "0.1"], delay, machine) as screen:
        when(screen)
        end(screen)
        assert screen.left_for_the_shell() == ""
        assert screen.left_on() == set()


FAILS = """
from gpumon.cli import main
from gpumon.ui.screens.dashboard import DashboardScreen

def broken(self, step):
    raise RuntimeError("a bug for the test")

DashboardScreen.action_move = broken
raise SystemExit(main(["-n", "0.1"]))
"""


def test_no_late_reply_is_left_where_it_is_suspended_or_fails(machine: dict[str, str]) -> None:
    with LateTerminal([sys.executable, "-c", FAILS], 0.4, machine) as screen:
        screen.wait_for(READY)
        for nth in (1, 2):
            screen.send(b"\x1a")
            assert screen.left_for_the_shell(nth) == ""
            screen.wait(lambda _: screen.asked > AT_START, "waiting for it to go on")
            screen.wait_for(READY)
        screen.send(b"\x1b[B")
        assert screen.left_for_the_shell(3) == ""
        assert b"a bug for the test" in screen.output


@pytest.mark.parametrize("delay", [0.0, 0.8])
def test_it_ends_at_once_where_no_reply_is_outstanding(
    delay: float, machine: dict[str, str]
) -> None:
    took: list[float] = []
    # A busy machine may take longer once.
    while len(took) < 3 and not (took and took[-1] < 0.5):
        with LateTerminal([*GPUMON, "-n", "60"], delay, machine) as screen:
            screen.wait_for(READY)
            screen.wait(has_all_replies, "waiting for all replies")
            begun = time.monotonic()
            screen.send(b"q")
            assert screen.left_for_the_shell() == ""
            took.append(screen.ended_at - begun)
    assert min(took) < 0.5


@pytest.mark.parametrize("delay", [0.05, 0.5])
@pytest.mark.parametrize("reported", [b"\x1b[<35;9;9M", b"\x1b[48;24;100;480;1000t", b"\x1b[I"])
def test_mouse_reports_on_their_way_are_not_left_either(
    delay: float, reported: bytes, machine: dict[str, str]
) -> None:
    with LateTerminal([*GPUMON, "-n", "60"], delay, machine) as screen:
        screen.wait_for(READY)
        screen.wait(has_all_replies, "waiting for all replies")
        screen.reports_mouse = True
        screen.send(reported + b"q")
        assert screen.left_for_the_shell() == ""


@pytest.mark.parametrize("end", [control_c, terminate, q])
def test_doctor_leaves_no_late_reply(
    end: Callable[[LateTerminal], None], machine: dict[str, str]
) -> None:
    with LateTerminal([*GPUMON, "doctor"], 0.8, machine) as screen:
        first_query(screen)
        end(screen)
        assert screen.left_for_the_shell().strip("q") == ""
        assert b"<echo>" in screen.output


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_long_reply_is_recognised_however_it_is_split(size: int) -> None:
    replies = TerminalReplies()
    replies.expect(ATTRIBUTES, time.monotonic())
    data = f"j\x1b[Aj\x1b[?62{';22' * 60}cj"
    for at in range(0, len(data), size):
        assert replies.seconds_left()
        replies.read(data[at : at + size])
        if "c" in data[: at + size]:
            break
    assert not replies.seconds_left()
