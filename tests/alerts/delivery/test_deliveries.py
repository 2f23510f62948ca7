"""The queues: nobody waits, nothing is told twice, and a failure is said once."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.alerts.alert import AlertCommand, Bell, Desktop, Webhook
from gpumon.alerts.delivery import Deliveries, apprise, command, deliveries, webhook
from gpumon.alerts.delivery.deliveries import MOST_WAITING
from tests.absent import ABSENT
from tests.alerts.delivery.telling import NOTICE, Terminal, alert_with, no_threads_left, threads
from tests.alerts.delivery.test_command import is_running, pid_in, shell
from tests.alerts.watching import http_server
from tests.exporter.exporting import wait_until
from tests.prometheus.hostile import answering, drip
from tests.prometheus.hostile import http as answer
from tests.screen import PATIENCE

_PAGE = Path(__file__).parents[3] / "docs" / "alerts.md"
_LIMIT = 30.0
"""Seconds; far above what anything here takes."""
_threads = pytest.fixture(autouse=True)(no_threads_left)


def test_bell_and_desktop_reach_the_terminal() -> None:
    terminal, said = Terminal(), list[str]()
    telling = Deliveries(terminal, said.append)
    telling.tell(alert_with(Bell(), Desktop()), NOTICE)
    telling.close(PATIENCE)
    assert sorted(terminal.told) == sorted(["bell", f"{NOTICE.title}|{NOTICE.sentence}"])
    assert said == []


def test_without_a_terminal_that_is_said_once() -> None:
    said: list[str] = []
    telling = Deliveries(None, said.append)
    for _ in range(3):
        telling.tell(alert_with(Bell()), NOTICE)
    telling.close(PATIENCE)
    assert said == ["bell failed: there is no terminal"]


def test_a_way_that_hangs_delays_neither_who_tells_nor_another_way(tmp_path: Path) -> None:
    terminal, mine = Terminal(), tmp_path / "mine"
    said: list[str] = []
    telling = Deliveries(terminal, said.append)
    hang = shell(f"echo $$ > '{mine}'; sleep 1000")
    with answering(drip(b"", b"")) as server:
        dead = Webhook(f"http://127.0.0.1:{server.port}/")
        for _ in range(20):
            telling.tell(alert_with(hang, dead, Bell()), NOTICE)
        wait_until(lambda: len(terminal.told) == 20, "the bell")
        pid = pid_in(mine)
        begun = time.monotonic()
        telling.close(0.1)
        assert time.monotonic() - begun < _LIMIT
    assert not is_running(pid)
    wait_until(lambda: not threads(), "the end of the threads")
    assert any(one.startswith("command sh: gpumon ended before 20 notices") for one in said)
    telling.tell(alert_with(Bell(), Desktop()), NOTICE)
    assert len(telling._queues) == 3
    telling.close(0.1)
    assert len(terminal.told) == 20


def is_pausing(telling: Deliveries) -> bool:
    """Whether the thread of the only way waits for its next attempt."""
    (queue,) = telling._queues.values()
    return bool(vars(queue._changed)["_waiters"])


def test_what_fails_is_tried_again_and_told_once_with_one_identifier() -> None:
    said: list[str] = []
    with answering(None) as server:
        server.answer = lambda connection: connection.sendall(
            answer(b"busy", "503 Busy") if len(server.requests) < 3 else answer(b"")
        )
        telling = Deliveries(None, said.append, pauses=(0.01, PATIENCE))
        telling.tell(alert_with(Webhook(f"http://127.0.0.1:{server.port}/")), NOTICE)
        # An attempt that is still in progress would be the last one.
        wait_until(lambda: len(server.requests) == 2 and is_pausing(telling), "the second pause")
        # It does not wait for the end of the pause.
        telling.close(PATIENCE)
        assert len(server.requests) == 3
    assert said == [
        "webhook 127.0.0.1 (gpumon) failed: it answers with status 503: busy; it is tried again",
        "webhook 127.0.0.1 (gpumon) works again",
    ]


def test_it_is_given_up_after_the_last_pause_and_what_was_lost_is_said() -> None:
    said: list[str] = []
    with answering(answer(b"", "503 Busy")) as server:
        telling = Deliveries(None, said.append, pauses=(0.01, 0.02))
        alert = alert_with(Webhook(f"http://127.0.0.1:{server.port}/"))
        telling.tell(alert, NOTICE)
        telling.tell(alert, NOTICE)
        wait_until(lambda: len(server.requests) == 6 and not threads(), "all attempts")
        server.answer = answer(b"")
        for _ in range(3):
            telling.tell(alert, NOTICE)
        telling.close(PATIENCE)
        assert len(server.requests) == 9
    assert len(said) == 2
    assert said[1] == "webhook 127.0.0.1 (gpumon) works again; 2 notices not told"


@pytest.mark.parametrize("status", ["404 Not Found", "302 Found", "401 Unauthorized"])
def test_what_cannot_succeed_is_not_tried_again(status: str) -> None:
    said: list[str] = []
    with answering(answer(b"", status)) as server:
        telling = Deliveries(None, said.append, pauses=(0.01,))
        alert = alert_with(Webhook(f"http://127.0.0.1:{server.port}/"))
        for _ in range(5):
            telling.tell(alert, NOTICE)
        telling.close(PATIENCE)
        assert len(server.requests) == 5
    assert len(said) == 1
    assert "tried again" not in said[0]


def test_a_command_is_run_once_for_each_notice_in_order(tmp_path: Path) -> None:
    told = tmp_path / "told"
    said: list[str] = []
    telling = Deliveries(None, said.append, pauses=(0.01,))
    command = shell(f'echo "$GPUMON_TITLE" >> "{told}"; test "$GPUMON_TITLE" != 1')
    for number in range(4):
        telling.tell(alert_with(command), replace(NOTICE, title=str(number)))
    telling.close(PATIENCE)
    assert told.read_text().split() == ["0", "1", "2", "3"]
    assert said == [
        "command sh failed: it ended with status 1",
        "command sh works again; 1 notice not told",
    ]


def test_of_a_full_queue_the_oldest_are_dropped_and_that_is_said_once() -> None:
    terminal, said = Terminal(), list[str]()
    terminal.gate.clear()
    telling = Deliveries(terminal, said.append)
    alert = alert_with(Desktop())
    telling.tell(alert, replace(NOTICE, title="first"))
    (queue,) = telling._queues.values()
    wait_until(lambda: not queue._waiting, "the first")
    for number in range(MOST_WAITING + 50):
        telling.tell(alert, replace(NOTICE, title=str(number)))
    terminal.gate.set()
    wait_until(lambda: not threads(), "all that waited")
    titles = [one.partition("|")[0] for one in terminal.told]
    assert titles == ["first", *map(str, range(50, MOST_WAITING + 50))]
    assert said == [
        "desktop: too many notices wait for it: the oldest are dropped",
    ]


def test_what_waited_too_long_is_not_told_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, said = Terminal(), list[str]()
    terminal.gate.clear()
    terminal.error = RuntimeError()
    telling = Deliveries(terminal, said.append)
    telling.tell(alert_with(Bell()), NOTICE)
    (queue,) = telling._queues.values()
    wait_until(lambda: queue._attempt is not None, "the first")
    for _ in range(2):
        telling.tell(alert_with(Bell()), NOTICE)
    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "OLDEST", -1.0)
        terminal.gate.set()
        wait_until(lambda: not threads(), "the rest")
    terminal.error = None
    telling.tell(alert_with(Bell()), NOTICE)
    telling.close(PATIENCE)
    assert terminal.told == ["bell"]
    assert said == [
        "bell failed: it met an unexpected error (RuntimeError)",
        "bell: too many notices wait for it: the oldest are dropped",
        "bell works again; 3 notices not told",
    ]


def test_what_waits_is_told_before_the_end(tmp_path: Path) -> None:
    told = tmp_path / "told"
    telling = Deliveries(None, lambda _: None)
    slow = shell(f"sleep 0.05; echo >> '{told}'")
    for _ in range(5):
        telling.tell(alert_with(slow), NOTICE)
    telling.close(PATIENCE)
    assert len(told.read_text()) == 5
    telling.close(PATIENCE)


def test_at_the_end_each_is_tried_once_more_without_pauses() -> None:
    with answering(answer(b"", "503 Busy")) as server:
        telling = Deliveries(None, lambda _: None, pauses=(1000.0, 1000.0))
        alert = alert_with(Webhook(f"http://127.0.0.1:{server.port}/"))
        for _ in range(3):
            telling.tell(alert, NOTICE)
        wait_until(lambda: server.requests, "the first attempt")
        begun = time.monotonic()
        telling.close(PATIENCE)
        assert time.monotonic() - begun < _LIMIT
        # The first, perhaps a second time, and the two that waited.
        assert 3 <= len(server.requests) <= 4


def test_whatever_listens_or_rings_the_telling_goes_on() -> None:
    terminal = Terminal()
    terminal.error = RuntimeError("secret")
    said: list[str] = []

    def say(sentence: str) -> None:
        said.append(sentence)
        raise RuntimeError

    telling = Deliveries(terminal, say)
    telling.tell(alert_with(Bell()), NOTICE)
    wait_until(lambda: said, "the failure")
    terminal.error = None
    telling.tell(alert_with(Bell(), AlertCommand((ABSENT,))), NOTICE)
    telling.close(PATIENCE)
    assert terminal.told == ["bell"]
    assert sorted(said) == [
        "bell failed: it met an unexpected error (RuntimeError)",
        "bell works again; 1 notice not told",
        f"command {ABSENT} failed: there is no program {ABSENT}, or its interpreter is missing",
    ]


def test_nobody_is_told_of_by_a_thread_that_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    telling = Deliveries(terminal, lambda _: None)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        telling.tell(alert_with(Bell()), NOTICE)
    telling.tell(alert_with(Bell()), NOTICE)
    telling.close(PATIENCE)
    assert terminal.told == ["bell", "bell"]


def test_many_threads_may_tell() -> None:
    with http_server() as (url, posts):
        telling = Deliveries(None, lambda _: None)
        alert = alert_with(Webhook(url))

        def tell(number: int) -> None:
            for one in range(9):
                telling.tell(alert, replace(NOTICE, key=f"{number}-{one}"))

        tellers = [threading.Thread(target=tell, args=(number,)) for number in range(8)]
        for teller in tellers:
            teller.start()
        for teller in tellers:
            teller.join()
        telling.close(PATIENCE)
        bodies = [json.loads(post.body) for post in posts]
    # On a busy machine an answer may come too late, and is told again: with the same identifier.
    told = Counter(body["key"] for body in {body["id"]: body for body in bodies}.values())
    assert told == Counter(f"{number}-{one}" for number in range(8) for one in range(9))


def test_telling_now_says_what_came_of_each_way() -> None:
    terminal = Terminal()
    telling = Deliveries(terminal, lambda _: None)
    ways = (Bell(), shell("exit 3"), AlertCommand((sys.executable, "-c", "")), Desktop())
    results = telling.tell_now(alert_with(*ways), NOTICE)
    assert results == [
        (ways[0], None),
        (ways[1], "it ended with status 3"),
        (ways[2], None),
        (ways[3], None),
    ]
    assert len(terminal.told) == 2


def test_the_limits_are_those_of_the_documents() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    first, second, third = deliveries.PAUSES
    for promise in (
        f"after {first:g}, {second:g} and {third:g} s",
        f"At most {MOST_WAITING} notices",
        f"It has {command.SECONDS:g} s",
        f"A POST of at most {webhook.SECONDS:g} s",
        f"{apprise.SECONDS:g} s; its URL",
    ):
        assert promise in text
    assert deliveries.OLDEST == 5 * 60
