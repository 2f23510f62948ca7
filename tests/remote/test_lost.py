"""Where the other machine is out of reach, nothing is guessed: neither an end nor a signal."""

from __future__ import annotations

import os
import signal
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.host.process_host import ProcessHandle, Refusal, Refused
from gpumon.model.processes import ProcessId
from gpumon.remote.client import RemoteHost
from tests import lives
from tests.absent import ABSENT
from tests.known import known
from tests.lives import Family
from tests.remote.conftest import Connect, kill_server, servers

ENDED = "the connection to gpu-04 ended"
HELLO = (
    '{"say":"hello","schema":"gpumon.remote/1","version":"9","uid":0,"user":"root",'
    '"readonly":false,"time":1.0,"monotonic":1.0}'
)
ASKED = ProcessId(7, 1)
OPENED = '{"say":"opened","id":%d,"handle":%d,"monotonic":1.0}'


def held(host: RemoteHost, family: Family) -> ProcessHandle:
    return host.open_handle(lives.target(family.sleeper().pid))


def why(ask: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as refused:
        ask()
    return refused.value


def test_a_server_that_is_killed_leaves_nothing_known(host: RemoteHost, family: Family) -> None:
    handle, second = held(host, family), held(host, family)
    kill_server()
    pid = handle.target.id.pid
    refused = why(lambda: handle.send(signal.SIGTERM))
    # Whether the request was read before the end depends on the moment.
    assert (refused.reason, refused.sentence) in {
        (Refusal.UNREACHABLE, f"{pid} got no TERM: {ENDED}"),
        (Refusal.UNANSWERED, f"{pid} may have got TERM: {ENDED}"),
    }
    refused = why(lambda: second.send(signal.SIGTERM))
    assert refused.reason is Refusal.UNREACHABLE
    assert why(handle.status).sentence == f"{pid} may still be running: {ENDED}"
    assert not handle.ended()
    host.wait([handle], 0.01)
    handle.close()
    assert lives.look(pid) is not None


def test_nothing_connects_again_and_again(host: RemoteHost, family: Family) -> None:
    handle = held(host, family)
    kill_server()
    for _ in range(64):
        assert ENDED in why(lambda: held_again(host, handle)).sentence
    assert ENDED in why(lambda: host.relatives([handle.target.id])).sentence
    assert ENDED in why(lambda: host.details(handle.target.id)).sentence
    assert servers() == []


def held_again(host: RemoteHost, handle: ProcessHandle) -> None:
    host.open_handle(handle.target)


def test_it_connects_anew_later_and_old_handles_stay_lost(connect: Connect, family: Family) -> None:
    host = connect(retry_after=0.0)
    handle = held(host, family)
    kill_server()
    assert why(handle.status).reason is Refusal.UNREACHABLE
    newer = host.open_handle(handle.target)
    assert newer.status() is not None
    assert why(handle.status).reason is Refusal.UNREACHABLE
    newer.send(signal.SIGKILL)
    host.wait([newer], lives.PATIENCE)
    assert newer.ended()
    assert not handle.ended()


def test_a_frozen_server_is_waited_for_once(host: RemoteHost, family: Family) -> None:
    handle, second = held(host, family), held(host, family)
    (frozen,) = servers()
    os.kill(frozen, signal.SIGSTOP)
    began = time.monotonic()
    refused = why(lambda: handle.send(signal.SIGTERM))
    assert refused.reason is Refusal.UNANSWERED
    assert refused.sentence == (
        f"{handle.target.id.pid} may have got TERM: gpu-04 has not answered for 5 s"
    )
    for _ in range(20):
        assert why(lambda: second.send(signal.SIGTERM)).reason is Refusal.UNREACHABLE
        assert why(lambda: held_again(host, second)).reason is Refusal.UNREACHABLE
    # Each would wait for 5 s.
    assert time.monotonic() - began < lives.PATIENCE
    lives.until(lambda: not Path(f"/proc/{frozen}").exists(), "its end")
    assert lives.look(handle.target.id.pid) is not None


def says(*lines: str, then: str = "sys.stdin.read()") -> list[str]:
    """A server that says these lines after the first request, whatever it is."""
    program = f"import sys\nsys.stdin.readline()\nprint(*{lines!r}, sep='\\n', flush=True)\n{then}"
    return [sys.executable, "-S", "-c", f"print({HELLO!r}, flush=True)\n{program}"]


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        (["garbage"], "what gpumon on gpu-04 sent cannot be read"),
        (['{"say":"answer","id":1,"result":7}'], "gpumon on gpu-04 gave an answer that cannot be"),
        (['{"say":"answer","id":1}'], "what gpumon on gpu-04 sent cannot be read"),
        (["[" * 100_000], "what gpumon on gpu-04 sent cannot be read"),
        (['{"say":"declined","id":1,"reason":"?","sentence":""}'], "cannot be read"),
        (['{"say":"answer","id":99,"result":[]}', "\x00"], "cannot be read"),
    ],
    ids=["text", "type", "field", "nesting", "reason", "number"],
)
def test_an_answer_that_cannot_be_read_is_told(
    connect: Connect, answers: list[str], sentence: str
) -> None:
    host = connect(says(*answers))
    refused = why(lambda: host.relatives([ASKED]))
    assert refused.reason is Refusal.UNREACHABLE
    assert sentence in refused.sentence


ENDLESS = "while True:\n    sys.stdout.write('x' * 2**20)"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        pytest.param(
            says(HELLO, then=ENDLESS),
            "what gpumon on gpu-04 sent cannot be read",
            id="a line without end",
        ),
        pytest.param(
            [sys.executable, "-S", "-c", f"import sys\n{ENDLESS}"],
            "what gpu-04 sent is not from gpumon remote",
            id="a first line without end",
        ),
        pytest.param(
            ["sh", "-c", 'echo \'{"say":"hello","schema":"gpumon.remote/2"}\'; cat'],
            "gpumon on gpu-04 speaks gpumon.remote/2, and this one gpumon.remote/1: install the "
            "same version on both",
            id="another version",
        ),
        pytest.param(
            ["sh", "-c", "exec >&-; sleep 0.1; printf 'one\\n\\033[31mPermission denied\\n' >&2"],
            f"{ENDED} (�[31mPermission denied)",
            id="an error of ssh",
        ),
        pytest.param(
            [f"{ABSENT}/ssh"],
            f"{ABSENT}/ssh cannot be started: No such file or directory",
            id="no ssh",
        ),
    ],
)
def test_why_there_is_no_connection_is_said(
    connect: Connect, command: list[str], sentence: str
) -> None:
    host = connect(command)
    assert why(lambda: host.relatives([ASKED])).sentence == sentence


def test_what_a_login_shell_prints_is_skipped(connect: Connect, family: Family) -> None:
    command = f"echo Welcome to gpu-04; echo; exec {sys.executable} -m gpumon remote"
    assert held(connect(["sh", "-c", command]), family).status() is not None


@pytest.mark.slow
def test_an_end_that_nobody_asked_about_is_not_believed(connect: Connect, family: Family) -> None:
    """Nor kept: another program could send any number of them."""
    ends = (
        "import sys\nsys.stdin.readline()\n"
        "for number in range(40_000):\n"
        '    print(\'{"say":"exited","handle":%d}\' % number)\n'
        f"print({OPENED % (1, 7)!r}, flush=True)\nsys.stdin.read()"
    )
    host = connect([sys.executable, "-S", "-c", f"print({HELLO!r}, flush=True)\n{ends}"])
    tracemalloc.start()
    try:
        handle = held(host, family)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not handle.ended()
    assert kept < 2**20


def test_what_a_hostile_server_says_reaches_no_terminal(connect: Connect, family: Family) -> None:
    asked = lives.target(family.sleeper().pid)
    evil = "\\u001b]52;c;eA==\\u0007" + "x" * 5000
    host = connect(says(f'{{"say":"declined","id":1,"reason":"gone","sentence":"{evil}"}}'))
    refused = why(lambda: host.open_handle(asked))
    assert refused.reason is Refusal.GONE
    assert refused.sentence.isprintable()
    assert len(refused.sentence) < 400
    relative = '{"id":{"pid":%d,"start_time":1},"parent":%d,"group":1,"session":1,"name":"a",%s}'
    odd = f'"state":"{evil}","user":"{evil}","started_at":1e300'
    family_ = ",".join(relative % (*pids, odd) for pids in ((5, 6), (6, 5), (7, 1), (7, 1)))
    host = connect(says(f'{{"say":"answer","id":1,"result":[{family_}]}}'))
    (only,) = host.relatives([asked.id])
    assert (only.id.pid, only.state, only.started_at) == (7, "?", None)
    assert known(only.user).isprintable()
    details = '{"id":{"pid":5,"start_time":1}}'
    host = connect(says(f'{{"say":"answer","id":1,"result":{details}}}'))
    assert "the details are those of 5" in why(lambda: host.details(asked.id)).sentence


def test_times_of_a_machine_whose_clock_is_wrong_are_in_the_clock_of_this_one(
    connect: Connect,
) -> None:
    relative = '{"id":{"pid":7,"start_time":1},"parent":1,"group":1,"session":1,"name":"a"'
    # By the clock there, its hello said the first second of 1970.
    host = connect(says(f'{{"say":"answer","id":1,"result":[{relative},"started_at":1001.0}}]}}'))
    (only,) = host.relatives([ASKED])
    assert abs(known(only.started_at) - (time.time() + 1000)) < lives.PATIENCE
