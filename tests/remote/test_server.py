"""What ``gpumon remote`` promises to whatever speaks to it."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.remote.protocol import MOST_REQUEST, Lines
from gpumon.remote.server import MOST_HANDLES, OWN_FILES
from tests import lives
from tests.host.programs import until_state
from tests.known import known
from tests.lives import Family
from tests.remote.conftest import SERVER
from tests.screen import Screen

pytestmark = pytest.mark.usefixtures("state")

LATE = 10.0**9
"""A time on the server's clock that does not come."""


class Server:
    """The server as a process, and what is written to it."""

    def __init__(
        self, command: Sequence[str] = SERVER, files: tuple[int, int] | None = None
    ) -> None:
        if files is not None:
            limited = f'ulimit -Sn {files[0]} && ulimit -Hn {files[1]} && exec "$@"'
            command = ["sh", "-c", limited, "sh", *command]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.hello = self.hear()

    def say(self, *lines: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(line + b"\n" for line in lines))
        self.process.stdin.flush()

    def ask(self, **request: object) -> dict[str, Any]:
        self.say(msgspec.json.encode(request))
        return self.hear()

    def hear(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(known(self.process.stdout).readline())
        return answer

    def close_input(self) -> None:
        known(self.process.stdin).close()

    def close_output(self) -> None:
        known(self.process.stdout).close()


@contextmanager
def started(
    command: Sequence[str] = SERVER, files: tuple[int, int] | None = None
) -> Iterator[Server]:
    """A server that is killed at the end of the block; ``files`` are its limits of open files."""
    server = Server(command, files)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        server.close_input()
        server.close_output()


@pytest.fixture
def server() -> Iterator[Server]:
    with started() as one:
        yield one


def test_it_says_who_and_what_it_is(server: Server) -> None:
    hello = server.hello
    assert hello["schema"] == "gpumon.remote/1"
    assert (hello["uid"], hello["readonly"]) == (os.geteuid(), False)
    assert abs(hello["time"] - time.time()) < lives.PATIENCE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b"garbage", None),
        (b"\xff\xfe\x00", None),
        (b"[" * 100_000, None),
        (b'{"ask":"reboot","id":4}', 4),
        (b'{"ask":"send","id":5}', 5),
        (b'{"ask":"families","id":6,"roots":[{"pid":"x"}]}', 6),
        (b'{"ask":"status","id":7,"handle":99}', 7),
        (b'{"ask":"send","id":8,"handle":99,"number":9,"before":1e9}', 8),
        (b'{"ask":"status","id":9,"handle":99999999999999999999999}', 9),
        (b"x" * (MOST_REQUEST + 1), None),
        (b"x" * (20 * MOST_REQUEST), None),
    ],
    ids=["text", "bytes", "nesting", "kind", "field", "type", "handle", "send", "big", "1M", "20M"],
)
def test_a_bad_request_gets_an_answer_and_ends_nothing(
    server: Server, line: bytes, number: int | None
) -> None:
    server.say(line)
    answer = server.hear()
    assert (answer["say"], answer["id"]) == ("failed", number)
    assert server.ask(ask="families", id=10, roots=[]) == {"say": "answer", "id": 10, "result": []}
    # A handle that is not open may be closed, which has no answer.
    server.say(b'{"ask":"close","id":0,"handle":3}')
    assert server.ask(ask="families", id=11, roots=[])["id"] == 11


def test_there_is_no_such_signal(server: Server, family: Family) -> None:
    process = family.sleeper()
    handle = open_one(server, process.pid)
    for number in (-1, 4096, 2**70):
        answer = server.ask(ask="send", id=2, handle=handle, number=number, before=LATE)
        assert answer["say"] == "failed"
    assert process.poll() is None


def open_one(server: Server, pid: int) -> int:
    answer = server.ask(ask="open", id=1, target=lives.target(pid))
    handle: int = answer["handle"]
    return handle


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [256, 1024, 4096])
def test_only_so_many_processes_are_held(family: Family, allowed: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < allowed:
        pytest.skip(f"only {hard} files may be opened here")
    target = msgspec.json.encode(lives.target(family.sleeper().pid))
    opening = b'{"ask":"open","id":1,"target":' + target + b"}"
    most = min(MOST_HANDLES, allowed - OWN_FILES)
    # The server raises its soft limit itself.
    with started(files=(min(soft, allowed, 128), allowed)) as server:
        for _ in range(most):
            server.say(opening)
            assert server.hear()["say"] == "opened"
        server.say(opening)
        answer = server.hear()
        assert (answer["say"], answer["id"]) == ("failed", 1)
        assert answer["sentence"] == f"{most} processes are held already"
        # Processes can still be read.
        roots = [msgspec.to_builtins(lives.target(family.sleeper().pid).id)]
        assert server.ask(ask="families", id=3, roots=roots)["result"]
        server.say(b'{"ask":"close","id":0,"handle":1}')
        assert server.ask(ask="open", id=2, target=msgspec.Raw(target))["say"] == "opened"
        files = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        assert files < most + OWN_FILES


def test_a_signal_that_comes_too_late_is_not_sent(server: Server, family: Family) -> None:
    process = family.sleeper()
    handle = open_one(server, process.pid)
    now = server.ask(ask="open", id=1, target=lives.target(process.pid))["monotonic"]
    answer = server.ask(ask="send", id=2, handle=handle, number=15, before=now - 1)
    assert (answer["say"], answer["reason"]) == ("declined", "unreachable")
    assert process.poll() is None
    server.ask(ask="send", id=3, handle=handle, number=15, before=now + lives.PATIENCE)
    assert process.wait(lives.PATIENCE) == -15


def test_a_signal_of_a_client_that_has_gone_is_not_sent(server: Server, family: Family) -> None:
    process = family.sleeper()
    handle = open_one(server, process.pid)
    server.process.send_signal(signal.SIGSTOP)
    until_state(server.process.pid, "T")
    sending = {"ask": "send", "id": 2, "handle": handle, "number": 15, "before": LATE}
    server.say(msgspec.json.encode(sending))
    server.close_input()
    server.process.send_signal(signal.SIGCONT)
    assert b"came too late" in known(server.process.stdout).read()
    assert server.process.wait(lives.PATIENCE) == 0
    assert process.poll() is None


def test_an_exit_is_said_before_the_families_that_were_read_after_it(
    server: Server, family: Family
) -> None:
    process = family.sleeper()
    handle = open_one(server, process.pid)
    process.kill()
    process.wait()
    server.say(b'{"ask":"families","id":2,"roots":[]}')
    assert [server.hear()["say"] for _ in range(2)] == ["exited", "answer"]
    assert server.ask(ask="status", id=3, handle=handle)["result"] is None


def test_it_ends_with_its_input(server: Server, family: Family) -> None:
    open_one(server, family.sleeper().pid)
    server.close_input()
    assert server.process.wait(lives.PATIENCE) == 0


def test_it_ends_with_its_output(server: Server) -> None:
    server.close_output()
    server.say(b"garbage")
    assert server.process.wait(lives.PATIENCE) == 0


def test_it_ends_with_a_client_that_reads_no_answer(server: Server) -> None:
    many = b'{"ask":"families","id":1,"roots":[{"pid":%d,"start_time":null}]}\n' % os.getpid()
    assert server.process.stdin is not None
    os.set_blocking(server.process.stdin.fileno(), False)
    # More than the pipes hold: its answer to each has as many bytes.
    deadline = time.monotonic() + lives.PATIENCE
    full = 0
    while full < 20:
        assert time.monotonic() < deadline
        try:
            os.write(server.process.stdin.fileno(), many)
            full = 0
        except BlockingIOError:
            full += 1
            time.sleep(0.05)
    server.close_input()
    server.close_output()
    assert server.process.wait(lives.PATIENCE) == 0


def test_nobody_starts_it_by_hand() -> None:
    with Screen(SERVER) as screen:
        screen.wait_for("gpumon remote is started by gpumon --hosts, not by hand")
        assert screen.wait_end() == 2


MOST = 8
"""Bytes of a line that is kept."""
TEXTS = st.lists(st.binary(max_size=2 * MOST).map(lambda text: text.replace(b"\n", b"")))


@given(TEXTS, st.data())
def test_lines_do_not_depend_on_how_they_arrive(texts: list[bytes], data: st.DataObject) -> None:
    written = b"".join(text + b"\n" for text in texts)
    borders = sorted(data.draw(st.lists(st.integers(0, len(written)))))
    lines, found = Lines(MOST), []
    for begin, end in zip([0, *borders], [*borders, len(written)], strict=True):
        found += lines.feed(written[begin:end])
    assert found == [None if len(text) > MOST else text for text in texts]
    assert not lines.too_long


def test_a_line_without_end_takes_no_memory() -> None:
    lines = Lines(2**20)
    tracemalloc.start()
    try:
        for _ in range(4000):
            assert lines.feed(bytes(2**16)) == []
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lines.too_long
    assert held < 2.5 * 2**20
    assert lines.feed(b"\nok\n") == [None, b"ok"]
