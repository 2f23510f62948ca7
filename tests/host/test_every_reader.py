"""What holds for each reader of ``/proc``, whatever it reads of a process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpumon.host.details import read_details
from gpumon.host.listeners import sockets_of
from gpumon.host.process_tree import read_relatives
from gpumon.host.processes import ProcessReader
from gpumon.host.workloads import WorkloadReader
from gpumon.model.processes import ProcessId
from gpumon.system.system import THIS_SYSTEM, System
from tests.build import device_files, process
from tests.host.fakes import FakeProc
from tests.host.programs import identity
from tests.known import known
from tests.lives import Family

Reader = Callable[..., Any]
"""Of a process, and of the system that has it; ``None`` where it is not there."""


def by_processes(one: ProcessId, system: System = THIS_SYSTEM) -> object:
    found = ProcessReader(system).read(one.pid, 0.0)
    return found if found is not None and found.id == one else None


def by_relatives(one: ProcessId, system: System = THIS_SYSTEM) -> object:
    found = read_relatives([one], system)
    told = next((relative for relative in found if relative.id == one), None)
    assert told is not None or found == (), "relatives of another process"
    return told


def by_details(one: ProcessId, system: System = THIS_SYSTEM) -> object:
    return read_details(one, device_files(), system)


def by_workloads(one: ProcessId, system: System = THIS_SYSTEM) -> object:
    return WorkloadReader(system).read([process(one.pid, start_time=one.start_time)]).get(one)


def by_sockets(one: ProcessId, system: System = THIS_SYSTEM) -> object:
    try:
        return sockets_of(one, system)
    except OSError:
        return None


OF_COMMANDS = [by_processes, by_relatives, by_details]
each_reader = pytest.mark.parametrize("read", [*OF_COMMANDS, by_workloads, by_sockets])
each_reader_of_commands = pytest.mark.parametrize("read", OF_COMMANDS)


@each_reader
def test_a_reused_number_and_a_process_that_ended_are_not_it(read: Reader, family: Family) -> None:
    started = family.sleeper()
    one = identity(started.pid)
    assert read(one) is not None
    assert read(replace(one, start_time=known(one.start_time) - 1)) is None
    assert read(replace(one, start_time=None)) is None
    started.kill()
    started.wait()
    assert read(one) is None


@each_reader
def test_without_a_process_file_system_there_is_no_process(read: Reader, tmp_path: Path) -> None:
    assert read(identity(os.getpid()), System(str(tmp_path / "absent"))) is None


@each_reader_of_commands
def test_a_zombie_has_no_command(read: Reader) -> None:
    with subprocess.Popen(["sleep", "1000"]) as started:
        one = identity(started.pid)
        started.kill()
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        found = read(one)
    assert (found.id, found.state, found.command) == (one, "Z", ())


@each_reader_of_commands
def test_text_chosen_to_confuse_is_told_as_it_is(read: Reader, tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    found = read(fake.add(20, name="a) S 1 (\n", command=b"a\xffb\0\x1b[31m\0"), fake.system)
    assert (found.state, found.command) == ("S", ("a\N{REPLACEMENT CHARACTER}b", "\x1b[31m"))


@pytest.mark.root
@pytest.mark.parametrize("read", [by_processes, by_relatives])
def test_a_process_of_another_user_is_told_too(read: Reader, family: Family) -> None:
    started = family.start("sh", "-c", "echo; read line", user=65534)
    found = read(identity(started.pid))
    assert (found.uid, found.command) == (65534, ("sh", "-c", "echo; read line"))
