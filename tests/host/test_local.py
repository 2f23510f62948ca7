"""The processes of this machine, through the one door that the rest of gpumon has to them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from gpumon.host.process_host import ProcessHost, Refusal, Refused
from gpumon.kill.local_host import LocalHost
from gpumon.model.processes import GpuProcess
from gpumon.model.snapshot import Snapshot
from tests import build, lives
from tests.command import run_program
from tests.host import programs
from tests.host.programs import identity
from tests.known import known
from tests.lives import Family


@pytest.fixture
def host(card: Path) -> ProcessHost:
    return LocalHost(lambda: build.device_files(card.parent))


def snapshot(*processes: GpuProcess) -> Snapshot:
    """One card, with these processes listed just now."""
    gpu = build.gpu(minor_number=0)
    return build.snapshot(time.time() + 60, gpu, processes=processes)


def gpu_process(pid: int) -> GpuProcess:
    return build.process(pid, start_time=identity(pid).start_time)


def test_it_says_who_asks(host: ProcessHost) -> None:
    assert (host.uid, host.user) == (os.geteuid(), lives.user_name(os.geteuid()))
    assert not host.readonly


def test_the_device_files_of_its_folder_are_looked_for(
    host: ProcessHost, family: Family, card: Path
) -> None:
    process = family.python(programs.HOLDER, str(card))
    found = known(host.scan(snapshot()))
    assert [suspect.id.pid for suspect in found.suspects] == [process.pid]
    assert known(host.details(identity(process.pid))).devices == (str(card),)


def test_orphans_are_remembered_from_scan_to_scan(
    host: ProcessHost, family: Family, card: Path
) -> None:
    reaper = family.python(programs.REAPER, str(card), "anything")
    (parent,) = lives.children(reaper.pid)
    assert host.scan(snapshot()) is not None
    programs.go_on(reaper)
    known(reaper.stdout).readline()
    found = known(host.scan(snapshot()))
    assert found.suspects[0].sentence.startswith(f"its parent {parent} ended just now")


def test_the_details_say_where_it_runs_and_who_belongs_to_it(
    host: ProcessHost, family: Family, card: Path
) -> None:
    process = family.python(programs.PARENT, str(card))
    details = known(host.details(identity(process.pid)))
    assert details.place is not None
    assert details.place == host.workloads([gpu_process(process.pid)])[details.id]
    assert details.place.session == process.pid
    assert [relative.id for relative in details.family] == [
        relative.id for relative in host.relatives([details.id])
    ]
    assert details.family[-1].id.pid in lives.children(process.pid)


def test_a_process_that_is_held_can_be_ended_and_waited_for(
    host: ProcessHost, family: Family, card: Path
) -> None:
    process = family.python(programs.HOLDER, str(card))
    handle = host.open_handle(lives.target(process.pid))
    try:
        handle.send(signal.SIGTERM)
        host.wait([handle], lives.PATIENCE)
        assert handle.ended()
    finally:
        handle.close()
    lives.until(lambda: host.details(handle.target.id) is None, "it is gone")


def test_read_only_refuses_every_signal(family: Family) -> None:
    host = LocalHost(build.device_files, readonly=True)
    assert host.readonly
    target = lives.target(family.sleeper().pid)
    with pytest.raises(Refused) as refused:
        host.open_handle(target)
    assert refused.value.reason is Refusal.READ_ONLY


def test_any_thread_may_ask_anything(host: ProcessHost, family: Family, card: Path) -> None:
    process = family.python(programs.PARENT, str(card))
    listed = gpu_process(process.pid)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(5):
                found = known(host.scan(snapshot(listed)))
                assert len(found.suspects) == 2
                assert listed.id in host.workloads([listed])
                assert listed.id in {relative.id for relative in host.relatives([listed.id])}
                assert host.details(listed.id) is not None
        except BaseException as failure:  # noqa: BLE001 - told by the test's own thread
            failures.append(failure)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from gpumon.kill.local_host import LocalHost; LocalHost(None); "
        "print(*sys.modules)"
    )
    done = run_program([sys.executable, "-c", code], check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("gpumon.")}
    system = {"gpumon.system", "gpumon.system.system"}
    assert loaded == {"gpumon.kill", "gpumon.kill.local_host", *system}
