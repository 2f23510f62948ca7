"""What the server has stopped for KILL runs again when its client goes, however that happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests import lives
from tests.host.programs import state, until_state
from tests.kill.hung_gpumon import COMMAND
from tests.lives import Family
from tests.remote.conftest import forking
from tests.remote.test_server import LATE, Server, open_one, started
from tests.remote.test_server import server as server  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.usefixtures("state")


def stop(server: Server, pid: int, *, freeze: bool = True) -> None:
    handle = open_one(server, pid)
    server.ask(ask="send", id=2, handle=handle, number=19, before=LATE, freeze=freeze)
    until_state(pid, "T")


def break_pipes(server: Server) -> None:
    server.close_output()
    server.say(b"garbage")


ENDS: dict[str, Callable[[Server], object]] = {
    "eof": lambda server: server.close_input(),
    "broken pipe": break_pipes,
    "term": lambda server: server.process.send_signal(signal.SIGTERM),
    "hangup": lambda server: server.process.send_signal(signal.SIGHUP),
    "int": lambda server: server.process.send_signal(signal.SIGINT),
    "close": lambda server: server.say(b'{"ask":"close","id":0,"handle":1}'),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", ENDS)
def test_a_client_that_goes_leaves_nothing_stopped(
    way: str, server: Server, family: Family
) -> None:
    pids = [family.sleeper().pid]
    if way != "close":
        pids += [family.sleeper().pid, family.sleeper().pid]
    for pid in pids:
        stop(server, pid)
    ENDS[way](server)
    for pid in pids:
        until_state(pid, "S")


def test_a_client_that_hangs_leaves_nothing_stopped_for_long(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOST_SECONDS", "0.5")
    pid = family.sleeper().pid
    with started(command=(*COMMAND, "remote")) as server:
        handle = open_one(server, pid)
        server.ask(ask="send", id=2, handle=handle, number=19, before=LATE, freeze=True)
        until_state(pid, "S")
        # It may still be killed.
        server.ask(ask="send", id=3, handle=handle, number=9, before=LATE)
        until_state(pid, "Z", "gone")


def test_what_a_user_stops_stays_stopped(server: Server, family: Family) -> None:
    pid, before = family.sleeper().pid, family.sleeper().pid
    stop(server, pid, freeze=False)
    os.kill(before, signal.SIGSTOP)
    until_state(before, "T")
    stop(server, before)
    server.close_input()
    assert server.process.wait(lives.PATIENCE) == 0
    assert [state(pid), state(before)] == ["T", "T"]


CLIENT = f"""
import sys
from gpumon.kill.audit_log import NoAuditLog
from gpumon.kill.session import TerminationSession
from gpumon.remote.client import RemoteHost
from tests import lives
host = RemoteHost("gpu-04", {[*COMMAND, "remote"]!r})
session = TerminationSession(host, [lives.target(int(sys.argv[1]))], audit_log=NoAuditLog())
session.send(9, whole_tree=True)
session.join(lives.PATIENCE)
"""
"""A client whose server hangs between STOP and KILL."""


def test_a_client_that_is_killed_leaves_nothing_stopped(family: Family) -> None:
    root = family.python(forking(3))
    pids = family.members()
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(root.pid)])
    try:
        until_state(root.pid, "T")
    finally:
        client.kill()
        client.wait()
    for pid in pids:
        until_state(pid, "S")
    assert len(pids) == 4
