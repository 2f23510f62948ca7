"""Processes of another machine are ended as those of this one: same code, same words."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest

from gpumon.host.process_host import Refused, Target, target_of
from gpumon.kill.audit_log import AuditLog
from gpumon.kill.outcome import Outcome, Success, TerminationReport, report_text
from gpumon.kill.session import TerminationSession
from gpumon.makers.machine import this_machine
from gpumon.model.snapshot import Snapshot
from gpumon.remote.client import RemoteHost
from gpumon.sampling.collector import Collector
from tests import lives
from tests.lives import Family
from tests.remote.conftest import forking, kill_server, training

End = Callable[..., TerminationSession]

DEAF = forking(3, before="signal.signal(signal.SIGTERM, signal.SIG_IGN)")


@pytest.fixture
def end(host: RemoteHost, tmp_path: Path) -> Iterator[End]:
    """Begins sessions, and closes them after the test."""
    begun: list[TerminationSession] = []
    log = AuditLog(tmp_path / "here", machine="gpu-04")

    def end(
        *targets: Target,
        number: int = signal.SIGTERM,
        tree: bool = False,
        before: Snapshot | None = None,
    ) -> TerminationSession:
        session = TerminationSession(host, targets, audit_log=log)
        begun.append(session)
        if before is not None:
            session.see(before)
        session.send(number, whole_tree=tree)
        return session

    yield end
    for session in begun:
        session.close()
        assert session.join(lives.PATIENCE)
        assert session.failure is None
    assert log.flush(lives.PATIENCE)


def finished(session: TerminationSession) -> TerminationReport:
    lives.until(lambda: session.report.done or session.failure, f"the end: {session.report}")
    return session.report


def until_signalled(session: TerminationSession, processes: int) -> None:
    def signalled() -> int:
        return sum(one.signal is not None for one in session.report.outcomes)

    lives.until(lambda: signalled() == processes, "the signals")


def test_a_whole_tree_that_ignores_term_is_killed(end: End, family: Family, tmp_path: Path) -> None:
    root = family.python(DEAF)
    session = end(lives.target(root.pid), number=signal.SIGKILL, tree=True)
    report = finished(session)
    assert {one.outcome for one in report.outcomes} == {Outcome.ENDED}
    assert len(report.outcomes) == 4
    assert not family.members()
    log = (tmp_path / "here/signals.jsonl").read_text()
    assert log.count('"machine":"gpu-04"') == len(log.splitlines()) >= 8


def test_sixty_four_processes_end(end: End, family: Family) -> None:
    many = family.python(forking(63))
    targets = [lives.target(pid) for pid in family.members()]
    assert len(targets) == 64
    report = finished(end(*targets))
    assert {one.outcome for one in report.outcomes} == {Outcome.ENDED}
    assert many.wait(lives.PATIENCE) == -signal.SIGTERM


def test_a_connection_that_is_lost_leaves_unknown_what_became_of_them(
    end: End, family: Family
) -> None:
    targets = [lives.target(family.python(DEAF).pid) for _ in range(3)]
    session = end(*targets)
    until_signalled(session, 3)
    kill_server()
    report = finished(session)
    assert {one.outcome for one in report.outcomes} == {Outcome.UNKNOWN}
    text = report_text(report, "")
    assert (text.success, text.summary) == (Success.PARTIAL, "0 of 3 ended, 3 unknown")
    assert text.processes == ("3 may still be running: the connection to gpu-04 ended",)
    again = finished(end(*targets))
    assert {one.outcome for one in again.outcomes} == {Outcome.REFUSED}
    assert report_text(again, "").summary == "TERM was not sent"


def test_kill_after_the_connection_is_lost_kills_nobody_and_says_so(
    end: End, host: RemoteHost, family: Family
) -> None:
    root = family.python(DEAF)
    session = end(lives.target(root.pid), tree=True)
    until_signalled(session, 4)
    kill_server()
    lives.until(lambda: is_lost(host), "the loss")
    session.send(signal.SIGKILL, whole_tree=True)
    report = finished(session)
    assert {one.outcome for one in report.outcomes} == {Outcome.UNKNOWN}
    assert len(family.members()) == 4


def is_lost(host: RemoteHost) -> bool:
    try:
        host.relatives([])
    except Refused:
        return True
    return False


@contextmanager
def sampled(**how: bool) -> Iterator[tuple[Popen[bytes], list[Snapshot], Collector]]:
    """A process with 30 GiB on a GPU, and the snapshots of its machine."""
    with training(**how) as (driver, process):
        driver.attach()
        collector = Collector(this_machine(), 0.1)
        seen: list[Snapshot] = []
        collector.subscribe(seen.append)
        collector.start()
        try:
            lives.until(
                lambda: seen and seen[-1].processes,
                lambda: f"the process in {seen[-1:]}, {collector.failure}",
            )
            yield process, seen, collector
        finally:
            collector.stop()


def test_its_memory_comes_back(end: End) -> None:
    with sampled() as (process, seen, collector):
        session = end(target_of(seen[-1].processes[0]), before=seen[-1])
        collector.subscribe(session.see)
        assert process.wait(lives.PATIENCE) == -signal.SIGTERM
        text = report_text(finished(session), "")
    assert text.success is Success.FULL
    assert text.summary == "1 of 1 ended, 30.0 GiB came back on GPU 1"


def test_no_memory_is_waited_for_of_a_process_that_is_out_of_reach(
    end: End,
) -> None:
    with sampled(stubborn=True) as (_, seen, collector):
        session = end(target_of(seen[-1].processes[0]), before=seen[-1])
        collector.subscribe(session.see)
        lives.until(lambda: session.report.memory, "the GPU")
        kill_server()
        report = finished(session)
    assert report.memory == ()
    assert report_text(report, "").summary == "0 of 1 ended, 1 unknown"
