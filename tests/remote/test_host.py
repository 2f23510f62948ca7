"""A process of another machine is inspected and ended as one of this machine is."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import msgspec
import pytest

from gpumon.host.process_host import Refusal, Refused, Target
from gpumon.host.process_tree import read_relatives
from gpumon.model.processes import ProcessId
from gpumon.remote.client import RemoteHost
from gpumon.system.system import user_name
from tests import lives
from tests.absent import ABSENT
from tests.host.programs import go_on
from tests.known import known
from tests.lives import Family
from tests.remote.conftest import SERVER, Connect, forking

LOADERS = forking(3)


def refusal(host: RemoteHost, target: Target, number: int | None = None) -> Refused:
    """The answer to somebody who tries."""
    with pytest.raises(Refused) as refused:  # noqa: PT012 - either of two steps may refuse
        handle = host.open_handle(target)
        try:
            if number is not None:
                handle.send(number)
        finally:
            handle.close()
    return refused.value


def test_a_signal_reaches_the_process_that_was_chosen_and_its_end_is_announced(
    host: RemoteHost, family: Family
) -> None:
    process, other = family.sleeper(), family.sleeper()
    handle = host.open_handle(lives.target(process.pid))
    assert known(handle.status()).state == "S"
    host.wait([handle], 0.01)
    assert not handle.ended()
    handle.send(signal.SIGTERM)
    assert process.wait(lives.PATIENCE) == -signal.SIGTERM
    host.wait([handle], lives.PATIENCE)
    assert handle.ended()
    assert handle.status() is None
    handle.close()
    handle.close()
    assert handle.ended(), "what is known is not forgotten"
    assert other.poll() is None


def test_who_is_logged_in_there_is_known_once_it_is_connected(host: RemoteHost) -> None:
    assert (host.uid, host.user) == (None, None)
    host.connect()
    lives.until(lambda: host.user is not None, "the connection")
    assert (host.uid, host.user) == (os.geteuid(), user_name(os.geteuid()))


def test_families_and_details_are_those_of_that_machine(host: RemoteHost, family: Family) -> None:
    root = lives.target(family.python(LOADERS).pid).id
    found, here = host.relatives([root]), read_relatives([root])
    below = [relative.id for relative in found if relative.parent == root.pid]
    assert len(below) == 3
    assert [(relative.id, relative.parent, relative.command) for relative in found] == [
        (relative.id, relative.parent, relative.command) for relative in here
    ]
    details = known(host.details(root))
    assert details.command[-1] == LOADERS
    assert details.environment is not None
    assert {relative.id for relative in details.family} >= {root, *below}
    assert host.details(ProcessId(root.pid, 1)) is None


def test_what_the_connection_runs_in_is_protected_there(host: RemoteHost) -> None:
    # This test started the server, as sshd would have.
    refused = refusal(host, lives.target(os.getpid()))
    assert refused.reason is Refusal.PROTECTED
    assert refused.sentence.endswith("ending it would end gpumon too (on gpu-04)")


def test_a_reused_number_gets_nothing(host: RemoteHost, family: Family) -> None:
    process = family.sleeper()
    seen = lives.target(process.pid)
    assert seen.id.start_time is not None
    earlier = msgspec.structs.replace(seen, id=ProcessId(seen.id.pid, seen.id.start_time - 1))
    refused = refusal(host, earlier, signal.SIGKILL)
    assert refused.reason is Refusal.REUSED
    assert "is another process now" in refused.sentence
    assert process.poll() is None


@pytest.mark.root
def test_a_process_that_changes_its_user_while_it_is_held_gets_nothing(
    host: RemoteHost, family: Family
) -> None:
    change = "import os; print(1, flush=True); input(); os.setuid(1); print(2, flush=True); input()"
    process = family.python(change)
    handle = host.open_handle(lives.target(process.pid))
    go_on(process)
    assert known(process.stdout).readline()
    with pytest.raises(Refused) as refused:
        handle.send(signal.SIGKILL)
    assert refused.value.reason is Refusal.REUSED
    assert process.poll() is None


def test_a_process_that_has_ended_is_gone(host: RemoteHost, family: Family) -> None:
    process = family.sleeper()
    seen = lives.target(process.pid)
    process.kill()
    process.wait()
    assert refusal(host, seen).reason is Refusal.GONE


def test_the_signals_are_logged_there(host: RemoteHost, family: Family, state: Path) -> None:
    process = family.sleeper()
    handle = host.open_handle(lives.target(process.pid))
    handle.send(signal.SIGTERM)
    process.wait()
    host.wait([handle], lives.PATIENCE)
    host.close()
    lines = [json.loads(line) for line in (state / "signals.jsonl").read_text().splitlines()]
    assert [(line["pid"], line["signal"]) for line in lines] == [(process.pid, "TERM")] * 2
    assert [line["outcome"][:5] for line in lines] == ["sent", "ended"]


def test_readonly_here_asks_nothing(connect: Connect, family: Family) -> None:
    host = connect([ABSENT], readonly=True)
    assert host.readonly
    refused = refusal(host, lives.target(family.sleeper().pid), signal.SIGTERM)
    assert refused.reason is Refusal.READ_ONLY


@pytest.mark.parametrize("how", ["option", "setting"])
def test_readonly_there_refuses_whoever_asks(
    connect: Connect, family: Family, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "setting":
        monkeypatch.setenv("GPUMON_READONLY", "true")
    host = connect(SERVER if how == "setting" else [*SERVER, "--readonly"])
    process = family.sleeper()
    assert refusal(host, lives.target(process.pid), signal.SIGTERM).reason is Refusal.READ_ONLY
    assert host.readonly
    assert process.poll() is None
    assert host.relatives([lives.target(process.pid).id])


def test_many_threads_ask_at_the_same_time(host: RemoteHost, family: Family) -> None:
    targets = [lives.target(family.sleeper().pid) for _ in range(8)]
    states: list[str] = []

    def ask(target: Target) -> None:
        for _ in range(20):
            handle = host.open_handle(target)
            status = known(handle.status())
            details = host.details(target.id) if not states else None
            states.append(status.state if details is None else details.state or "")
            handle.close()

    threads = [threading.Thread(target=ask, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert states == ["S"] * 160
