"""A driver that lists what is no process, or one that has ended: all rooms say the same."""

from __future__ import annotations

import os
import subprocess

import pytest

from gpumon.doctor import CheckVerdict, Result, access
from gpumon.doctor.context import DriverAnswer
from gpumon.host import processes as host_processes
from gpumon.host.process_host import Refusal, Refused, target_of
from gpumon.kill.local_host import LocalHost
from gpumon.model.process_states import ENDED
from gpumon.model.snapshot import Snapshot
from gpumon.scheduling.eligibility import process_name
from gpumon.text.command_lines import command_line
from gpumon.ui.view.gpu_text import holders
from tests.build import device_files
from tests.doctor.conftest import tree as tree  # noqa: PLC0414 - a fixture
from tests.doctor.trees import VERSION, Tree, verdict, words
from tests.driver import GIB, Owner, h100
from tests.makers.nvml_room import Furnish, Room

SAYS = "has ended; the driver still lists it"


@pytest.fixture
def dead() -> int:
    """A PID of a process that has ended."""
    with subprocess.Popen(["true"]) as started:
        pass
    return started.pid


@pytest.fixture
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_processes, "in_initial_pid_namespace", lambda _: True)


def sample(room: Room, *pids: int) -> Snapshot:
    room.card.processes = [Owner(pid, memory=20 * GIB) for pid in pids]
    return room.sample()


def ended(tree: Tree, snapshot: Snapshot) -> Result | None:
    """What ``gpumon doctor`` says of processes that have ended."""
    answer = DriverAnswer({"NVIDIA": VERSION}, snapshot, None, 0.1)
    return access.ended_processes(tree.case(answer=answer))


def refusal(snapshot: Snapshot) -> Refused:
    """Why the process cannot be signalled."""
    (process,) = snapshot.processes
    with pytest.raises(Refused) as refused:
        LocalHost(device_files).open_handle(target_of(process))
    return refused.value


def test_pid_0_is_no_process(opened: Furnish) -> None:
    snapshot = sample(opened(h100()), 0, os.getpid())
    assert [process.id.pid for process in snapshot.processes] == [os.getpid()]


@pytest.mark.usefixtures("on_the_host")
def test_a_process_that_ended_before_it_was_seen(opened: Furnish, dead: int, tree: Tree) -> None:
    snapshot = sample(opened(h100(memory_used=20 * GIB)), dead)
    (process,) = snapshot.processes
    assert (process.state, process.visible, process.user) == (ENDED, False, None)
    assert command_line(process) == f"({SAYS})"
    assert process_name(process) == f"a process that has ended ({dead})"
    assert holders(snapshot.processes)[snapshot.gpus[0].uuid][0] == "ended process 20.0G"
    refused = refusal(snapshot)
    assert (refused.reason, refused.sentence) == (Refusal.GONE, f"{dead} {SAYS}")
    found = ended(tree, snapshot)
    assert verdict(found) is CheckVerdict.WARN
    assert f"{dead} {SAYS}, on GPU 0, with 20.0 GiB" in words(found)


def test_in_a_container_it_may_run_elsewhere(
    opened: Furnish, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_processes, "in_initial_pid_namespace", lambda _: False)
    snapshot = sample(opened(h100()), dead)
    (process,) = snapshot.processes
    assert (process.state, process.visible) == (None, False)
    assert command_line(process) == "(not visible here)"
    assert refusal(snapshot).reason is Refusal.NOT_VISIBLE


@pytest.mark.usefixtures("on_the_host")
def test_processes_that_run_are_no_fault(opened: Furnish, tree: Tree) -> None:
    found = ended(tree, sample(opened(h100()), os.getpid()))
    assert verdict(found) is CheckVerdict.PASS
