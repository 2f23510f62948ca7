"""The queues: nobody waits, nothing is sent twice, and a failure is reported once."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.alerts import deliveries
from gpumon.alerts.channels.apprise import Apprise
from gpumon.alerts.channels.command import Command
from gpumon.alerts.channels.terminal import Bell, Desktop
from gpumon.alerts.channels.webhook import Webhook
from gpumon.alerts.deliveries import MOST_WAITING, Deliveries
from tests.absent import ABSENT
from tests.alerts.channels.test_command import is_running, pid_in, shell
from tests.alerts.sending import NOTICE, Terminal, alert_with, no_threads_left, threads
from tests.alerts.watching import http_server
from tests.exporter.exporting import wait_until
from tests.prometheus.hostile import answering, drip
from tests.prometheus.hostile import http as answer
from tests.screen import PATIENCE

_PAGE = Path(__file__).parents[2] / "docs" / "alerts.md"
_LIMIT = 30.0
"""Seconds; far above what anything here takes."""
_threads = pytest.fixture(autouse=True)(no_threads_left)


def test_bell_and_desktop_reach_the_terminal() -> None:
    terminal, reports = Terminal(), list[str]()
    sender = Deliveries(terminal, reports.append)
    sender.send(alert_with(Bell(), Desktop()), NOTICE)
    sender.close(PATIENCE)
    assert sorted(terminal.shown) == sorted(["bell", f"{NOTICE.title}|{NOTICE.sentence}"])
    assert reports == []


def test_a_missing_terminal_is_reported_once() -> None:
    reports: list[str] = []
    sender = Deliveries(None, reports.append)
    for _ in range(3):
        sender.send(alert_with(Bell()), NOTICE)
    sender.close(PATIENCE)
    assert reports == ["bell failed: there is no terminal"]


def test_a_channel_that_hangs_delays_neither_the_caller_nor_another_channel(tmp_path: Path) -> None:
    terminal, mine = Terminal(), tmp_path / "mine"
    reports: list[str] = []
    sender = Deliveries(terminal, reports.append)
    hang = shell(f"echo $$ > '{mine}'; sleep 1000")
    with answering(drip(b"", b"")) as server:
        dead = Webhook(f"{server.url}/")
        for _ in range(20):
            sender.send(alert_with(hang, dead, Bell()), NOTICE)
        wait_until(lambda: len(terminal.shown) == 20, "the bell")
        pid = pid_in(mine)
        begun = time.monotonic()
        sender.close(0.1)
        assert time.monotonic() - begun < _LIMIT
    assert not is_running(pid)
    wait_until(lambda: not threads(), "the end of the threads")
    assert any(
        line.startswith("command sh: gpumon ended before 20 notifications") for line in reports
    )
    sender.send(alert_with(Bell(), Desktop()), NOTICE)
    sender.close(0.1)
    assert len(terminal.shown) == 20


FAILED = "webhook 127.0.0.1 (gpumon) failed: it answers with status 503: busy; it will be retried"
WORKS = "webhook 127.0.0.1 (gpumon) works again"


@pytest.mark.parametrize(
    ("pauses", "failures", "awaited"),
    [((0.01, 0.02), 2, 2), ((PATIENCE,), 1, 1)],
    ids=["after each pause", "at the end without the rest of a pause"],
)
def test_what_fails_is_retried_and_sent_once(
    pauses: tuple[float, ...], failures: int, awaited: int
) -> None:
    reports: list[str] = []
    with answering(None) as server:
        server.answer = lambda connection: connection.sendall(
            answer(b"busy", "503 Busy") if len(server.requests) <= failures else answer(b"")
        )
        sender = Deliveries(None, reports.append, pauses)
        sender.send(alert_with(Webhook(f"{server.url}/")), NOTICE)
        wait_until(lambda: len(reports) == awaited, "a report")
        sender.close(PATIENCE)
        assert len(server.requests) == failures + 1
    assert reports == [FAILED, WORKS]


def test_it_is_given_up_after_the_last_pause_and_what_was_lost_is_reported() -> None:
    reports: list[str] = []
    with answering(answer(b"", "503 Busy")) as server:
        sender = Deliveries(None, reports.append, pauses=(0.01, 0.02))
        alert = alert_with(Webhook(f"{server.url}/"))
        sender.send(alert, NOTICE)
        sender.send(alert, NOTICE)
        wait_until(lambda: len(server.requests) == 6 and not threads(), "all attempts")
        server.answer = answer(b"")
        for _ in range(3):
            sender.send(alert, NOTICE)
        sender.close(PATIENCE)
        assert len(server.requests) == 9
    assert len(reports) == 2
    assert reports[1] == "webhook 127.0.0.1 (gpumon) works again; 2 notifications not sent"


@pytest.mark.parametrize("status", ["404 Not Found", "302 Found", "401 Unauthorized"])
def test_what_cannot_succeed_is_not_retried(status: str) -> None:
    reports: list[str] = []
    with answering(answer(b"", status)) as server:
        sender = Deliveries(None, reports.append, pauses=(0.01,))
        alert = alert_with(Webhook(f"{server.url}/"))
        for _ in range(5):
            sender.send(alert, NOTICE)
        sender.close(PATIENCE)
        assert len(server.requests) == 5
    assert len(reports) == 1
    assert "retried" not in reports[0]


def test_a_command_is_run_once_for_each_notice_in_order(tmp_path: Path) -> None:
    output = tmp_path / "output"
    reports: list[str] = []
    sender = Deliveries(None, reports.append, pauses=(0.01,))
    command = shell(f'echo "$GPUMON_TITLE" >> "{output}"; test "$GPUMON_TITLE" != 1')
    for number in range(4):
        sender.send(alert_with(command), replace(NOTICE, title=str(number)))
    sender.close(PATIENCE)
    assert output.read_text().split() == ["0", "1", "2", "3"]
    assert reports == [
        "command sh failed: it ended with status 1",
        "command sh works again; 1 notification not sent",
    ]


def test_a_full_queue_drops_the_oldest_and_reports_that_once() -> None:
    terminal, reports = Terminal(), list[str]()
    terminal.gate.clear()
    sender = Deliveries(terminal, reports.append)
    alert = alert_with(Desktop())
    sender.send(alert, replace(NOTICE, title="first"))
    wait_until(lambda: terminal.calls == 1, "the first")
    for number in range(MOST_WAITING + 50):
        sender.send(alert, replace(NOTICE, title=str(number)))
    terminal.gate.set()
    wait_until(lambda: not threads(), "all that waited")
    titles = [text.partition("|")[0] for text in terminal.shown]
    assert titles == ["first", *map(str, range(50, MOST_WAITING + 50))]
    assert reports == ["desktop: too many notifications are waiting: the oldest are dropped"]


def test_what_waited_too_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, reports = Terminal(), list[str]()
    terminal.gate.clear()
    terminal.error = RuntimeError()
    sender = Deliveries(terminal, reports.append)
    sender.send(alert_with(Bell()), NOTICE)
    wait_until(lambda: terminal.calls == 1, "the first")
    for _ in range(2):
        sender.send(alert_with(Bell()), NOTICE)
    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "OLDEST", -1.0)
        terminal.gate.set()
        wait_until(lambda: not threads(), "the rest")
    terminal.error = None
    sender.send(alert_with(Bell()), NOTICE)
    sender.close(PATIENCE)
    assert terminal.shown == ["bell"]
    assert reports == [
        "bell failed: an unexpected error occurred (RuntimeError)",
        "bell: too many notifications are waiting: the oldest are dropped",
        "bell works again; 3 notifications not sent",
    ]


def test_what_waits_is_sent_before_the_end(tmp_path: Path) -> None:
    output = tmp_path / "output"
    sender = Deliveries(None, lambda _: None)
    slow = shell(f"sleep 0.05; echo >> '{output}'")
    for _ in range(5):
        sender.send(alert_with(slow), NOTICE)
    sender.close(PATIENCE)
    assert len(output.read_text()) == 5
    sender.close(PATIENCE)


def test_at_the_end_each_is_tried_once_more_without_pauses() -> None:
    with answering(answer(b"", "503 Busy")) as server:
        sender = Deliveries(None, lambda _: None, pauses=(1000.0, 1000.0))
        alert = alert_with(Webhook(f"{server.url}/"))
        for _ in range(3):
            sender.send(alert, NOTICE)
        wait_until(lambda: server.requests, "the first attempt")
        begun = time.monotonic()
        sender.close(PATIENCE)
        assert time.monotonic() - begun < _LIMIT
        # The first, perhaps a second time, and the two that waited.
        assert 3 <= len(server.requests) <= 4


def test_an_error_of_the_listener_or_the_terminal_does_not_stop_deliveries() -> None:
    terminal = Terminal()
    terminal.error = RuntimeError("secret")
    reports: list[str] = []

    def say(sentence: str) -> None:
        reports.append(sentence)
        raise RuntimeError

    sender = Deliveries(terminal, say)
    sender.send(alert_with(Bell()), NOTICE)
    wait_until(lambda: reports, "the failure")
    terminal.error = None
    sender.send(alert_with(Bell(), Command((ABSENT,))), NOTICE)
    sender.close(PATIENCE)
    assert terminal.shown == ["bell"]
    assert sorted(reports) == [
        "bell failed: an unexpected error occurred (RuntimeError)",
        "bell works again; 1 notification not sent",
        f"command {ABSENT} failed: there is no program {ABSENT}, or its interpreter is missing",
    ]


def test_a_thread_that_does_not_start_loses_no_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    sender = Deliveries(terminal, lambda _: None)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        sender.send(alert_with(Bell()), NOTICE)
    sender.send(alert_with(Bell()), NOTICE)
    sender.close(PATIENCE)
    assert terminal.shown == ["bell", "bell"]


def test_many_threads_may_send() -> None:
    with http_server() as (url, posts):
        sender = Deliveries(None, lambda _: None)
        alert = alert_with(Webhook(url))

        def send(number: int) -> None:
            for notice in range(9):
                sender.send(alert, replace(NOTICE, key=f"{number}-{notice}"))

        senders = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        for thread in senders:
            thread.start()
        for thread in senders:
            thread.join()
        sender.close(PATIENCE)
        bodies = [json.loads(post.body) for post in posts]
    # On a busy machine an answer may come too late, and is sent again: with the same identifier.
    keys = Counter(body["key"] for body in {body["id"]: body for body in bodies}.values())
    assert keys == Counter(f"{number}-{notice}" for number in range(8) for notice in range(9))


def test_the_limits_are_those_of_the_documents() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    first, second, third = deliveries.PAUSES
    for promise in (
        f"after {first:g}, {second:g} and {third:g} s",
        f"At most {MOST_WAITING} notifications",
        f"It has {Command.seconds:g} s",
        f"A POST of at most {Webhook.seconds:g} s",
        f"{Apprise.seconds:g} s; its URL",
    ):
        assert promise in text
    assert deliveries.OLDEST == 5 * 60
