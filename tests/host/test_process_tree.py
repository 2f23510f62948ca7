"""Whom a process belongs to, and in which namespace, on real processes where they can be had."""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from gpumon.host.process_host import RelatedProcess
from gpumon.host.process_tree import Descendants, pids_above, read_relatives
from gpumon.host.procfs import in_initial_pid_namespace
from gpumon.model.processes import ProcessId
from tests.build import process
from tests.command import run_program
from tests.host.fakes import FakeProc
from tests.host.programs import HOLLOW, identity, until_state
from tests.lives import Family, needs
from tests.screen import PATIENCE

LAUNCHER = """
import os, signal
told, tell = os.pipe()
for loaders in (2, 1):
    if os.fork() == 0:
        for _ in range(loaders):
            if os.fork() == 0:
                signal.pause()
        os.write(tell, b".")
        signal.pause()
    os.read(told, 1)
print("ready", flush=True)
signal.pause()
"""
"""Starts two trainers, one with two loaders and one with one."""


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def trainers(launcher: int) -> list[ProcessId]:
    return [identity(child.pid) for child in psutil.Process(launcher).children()]


def descendants(pid: int) -> set[int]:
    return {child.pid for child in psutil.Process(pid).children(recursive=True)}


def pids(relative: tuple[RelatedProcess, ...]) -> list[int]:
    return [one.id.pid for one in relative]


def test_a_process_has_its_ancestors_and_its_descendants_and_no_siblings(family: Family) -> None:
    launcher = family.python(LAUNCHER).pid
    trainer, other = trainers(launcher)
    loaders = descendants(trainer.pid)
    above = {parent.pid for parent in psutil.Process(trainer.pid).parents()}
    found = read_relatives([trainer])
    assert len(loaders) == 2
    assert set(pids(found)) == above - {1} | {trainer.pid} | loaders
    assert os.getpid() in pids(found)
    assert other.pid not in pids(found)
    assert 1 not in pids(found)


def test_parents_come_first_and_everybody_once(family: Family) -> None:
    launcher = identity(family.python(LAUNCHER).pid)
    found = read_relatives([*trainers(launcher.pid), launcher, launcher])
    numbers = pids(found)
    assert len(numbers) == len(set(numbers))
    assert descendants(launcher.pid) < set(numbers)
    for place, relative in enumerate(found):
        assert relative.parent not in numbers or relative.parent in numbers[:place]


def test_each_is_told_as_it_is(family: Family) -> None:
    process = family.python(LAUNCHER, "an argument")
    known = identity(process.pid)
    until_state(process.pid, "S")
    told = {relative.id: relative for relative in read_relatives([known])}[known]
    peer = psutil.Process(process.pid)
    assert told.command == tuple(peer.cmdline())
    assert told.command[-1] == "an argument"
    assert (told.name, told.user, told.uid) == (peer.name(), peer.username(), os.geteuid())
    assert (told.parent, told.threads, told.state) == (os.getpid(), 1, "S")
    assert (told.group, told.session) == (process.pid, process.pid)
    assert told.rss == pytest.approx(peer.memory_info().rss, rel=0.05)
    assert told.started_at == pytest.approx(peer.create_time(), abs=1.1)


def test_the_start_time_is_the_same_to_the_digit_at_every_look(family: Family) -> None:
    process = identity(family.sleeper().pid)
    assert len({read_relatives([process])[-1].started_at for _ in range(10)}) == 1


def test_setting_the_clock_moves_start_times(
    fake: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = fake.add(20)
    real = time.time
    before = read_relatives([process], fake.system)[0].started_at
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    after = read_relatives([process], fake.system)[0].started_at
    assert before is not None
    assert after == pytest.approx(before + 3600, abs=0.2)


def test_a_process_whose_main_thread_died_keeps_its_command(family: Family, card: Path) -> None:
    process = family.python(HOLLOW, str(card))
    told = read_relatives([identity(process.pid)])[-1]
    assert (told.state, told.threads, told.rss) == ("Z", 2, None)
    assert told.command[-1] == str(card)


def test_processes_that_end_meanwhile_raise_nothing(family: Family) -> None:
    forking = "import os\nprint(1, flush=True)\nwhile True:\n"
    forking += "    if os.fork() == 0: os._exit(0)\n    os.wait()\n"
    process = identity(family.python(forking).pid)
    for _ in range(30):
        assert process.pid in pids(read_relatives([process]))


LINE = ((1, 0, 1), (20, 1, 20), (30, 20, 30))
SIBLINGS = ((20, 1, 20), (40, 20, 50), (30, 20, 60), (50, 40, 70))
YOUNGER_PARENT = ((30, 20, 100), (20, 1, 200))


@pytest.mark.parametrize(
    ("processes", "asked", "found"),
    [
        pytest.param(LINE, [30], [20, 30], id="the first process is left out"),
        pytest.param(LINE, [1], [1, 20, 30], id="unless it is asked for"),
        pytest.param(LINE, [20, 1], [1, 20, 30], id="with another"),
        pytest.param(SIBLINGS, [20], [20, 40, 50, 30], id="by age, each before its children"),
        pytest.param(YOUNGER_PARENT, [30], [30], id="a parent younger than its child"),
        pytest.param(YOUNGER_PARENT, [20], [20], id="a child older than its parent"),
    ],
)
def test_relatives_are_found_in_their_order(
    fake: FakeProc, processes: tuple[tuple[int, int, int], ...], asked: list[int], found: list[int]
) -> None:
    """Each process has its number, its parent and its start."""
    ids = {pid: fake.add(pid, parent, start_time=start) for pid, parent, start in processes}
    assert pids(read_relatives([ids[pid] for pid in asked], fake.system)) == found


def test_a_table_that_contradicts_itself_is_read_to_its_end(fake: FakeProc) -> None:
    one = fake.add(20, 30, start_time=100)
    fake.add(30, 20, start_time=100)
    assert len(read_relatives([one], fake.system)) <= 2


def test_the_command_of_a_process_that_hangs_is_not_asked_for(fake: FakeProc) -> None:
    process = fake.add(20, name="a) S 1 (\n", state="D", command=b"python\0")
    (told,) = read_relatives([process], fake.system)
    assert (told.name, told.command) == ("a) S 1 (\n", ())


def test_the_line_of_gpumon_itself_is_marked(family: Family) -> None:
    child = family.sleeper()
    relative = read_relatives([identity(child.pid), identity(os.getpid())])
    protected = {one.id.pid for one in relative if one.protected}
    above = {parent.pid for parent in psutil.Process().parents()} - {1}
    assert protected == {os.getpid(), *above}


def test_what_stands_above_a_process_ends_where_a_number_was_reused(fake: FakeProc) -> None:
    fake.add(10, start_time=10)
    fake.add(20, 10, start_time=20)
    fake.add(30, 20, start_time=30)
    assert pids_above(30, fake.system) == {20, 10, 1}
    fake.add(20, 10, start_time=40)
    assert pids_above(30, fake.system) == {20}, "20 is not the parent any more"
    assert pids_above(99, fake.system) == frozenset()


def test_a_hidden_parent_is_known_by_its_number(fake: FakeProc) -> None:
    fake.add(30, 20)
    assert pids_above(30, fake.system) == {20}


def test_a_descendant_stays_one_when_its_parents_have_ended(fake: FakeProc) -> None:
    fake.add(20)
    fake.add(30, 20)
    below = [process(40, start_time=40)]
    fake.add(40, 30)
    descendants = Descendants(20, system=fake.system)
    assert descendants.among(below) == tuple(below)
    fake.remove(30)
    fake.add(40, 1)
    assert descendants.among(below) == tuple(below)
    assert descendants.had(40)
    assert not descendants.had(30), "it was never asked for"
    later = process(50, start_time=50)
    fake.add(50, 40)
    assert descendants.among([later]) == (later,), "its parent is known to be a descendant"


def test_the_child_of_an_earlier_process_with_the_number_of_the_root_is_a_stranger(
    fake: FakeProc,
) -> None:
    fake.add(20, start_time=60)
    fake.add(40, 20)
    assert Descendants(20, system=fake.system).among([process(40, start_time=40)]) == ()


def test_the_members_of_a_group_descend_from_its_root(fake: FakeProc) -> None:
    fake.add(20)
    fake.add(40, 1, group=20)
    member = process(40, start_time=40)
    assert Descendants(20, 20, fake.system).among([member]) == (member,)
    assert Descendants(20, None, fake.system).among([member]) == ()


def test_a_process_that_has_reused_the_number_of_a_descendant_is_a_stranger(fake: FakeProc) -> None:
    fake.add(20)
    fake.add(40, 20, start_time=40)
    descendants = Descendants(20, system=fake.system)
    assert descendants.among([process(40, start_time=30)]) == ()
    assert descendants.among([process(40, start_time=40)]) == (process(40, start_time=40),)


@pytest.mark.slow
def test_one_thread_may_ask_for_descendants_while_another_does(fake: FakeProc) -> None:
    """``gpumon run`` does at the end of a job, when the last sample is still on its way."""
    fake.add(20)
    listed = [process(pid, start_time=pid) for pid in range(100, 400)]
    for member in listed:
        fake.add(member.id.pid, 20, start_time=member.id.pid)
    descendants = Descendants(20, system=fake.system)
    descendants.among(listed)
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            assert descendants.among(listed) == tuple(listed)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask)
            try:
                assert not any(descendants.had(99) for _ in range(5000))
            finally:
                over.set()
            asked.result(PATIENCE)
    finally:
        sys.setswitchinterval(before)


def test_this_namespace_is_told_by_its_number() -> None:
    link = Path("/proc/self/ns/pid").readlink()
    assert in_initial_pid_namespace("/proc") == (str(link) == f"pid:[{0xEFFFFFFC}]")


@needs("unshare")
def test_a_container_is_not_the_initial_namespace() -> None:
    program = "from gpumon.host.procfs import *; print(in_initial_pid_namespace('/proc'))"
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    inside = run_program([*command, sys.executable, "-c", program])
    if "unshare" in inside.stderr:
        pytest.skip(f"no name spaces to be had here: {inside.stderr.strip()}")
    assert (inside.stdout.strip(), inside.stderr) == ("False", "")


def test_a_kernel_that_does_not_say_is_not_trusted(tmp_path: Path) -> None:
    assert in_initial_pid_namespace(str(tmp_path)) is False
