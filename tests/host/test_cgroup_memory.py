"""Memory of cgroups in a made ``/sys/fs/cgroup``, with the kernel's own contents of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.host.cgroup_memory import CgroupMemoryReader, OomKills
from gpumon.model.processes import CgroupMemory
from gpumon.system.system import System

EVENTS = "low 0\nhigh 0\nmax 12\noom 3\noom_kill {}\noom_group_kill 0\n"
JOB, STEP = "system.slice/slurmstepd.scope/job_91", "system.slice/slurmstepd.scope/job_91/step_0"


class Tree:
    """A ``/proc`` and a ``/sys`` with one process, 42."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reader = CgroupMemoryReader(System(str(root / "proc"), str(root / "sys")))
        self.now = 0.0
        self.write("proc/42/cgroup", f"0::/{STEP}\n")
        self.cgroup("system.slice", "max", 90)
        self.cgroup("system.slice/slurmstepd.scope", "max", 80)
        self.cgroup(JOB, "1000", 970)
        self.cgroup(STEP, "max", 960)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def cgroup(self, path: str, limit: str, used: int, kills: int = 0) -> None:
        self.write(f"sys/fs/cgroup/{path}/memory.max", f"{limit}\n")
        self.write(f"sys/fs/cgroup/{path}/memory.current", f"{used}\n")
        self.write(f"sys/fs/cgroup/{path}/memory.events", EVENTS.format(kills))

    def read(self, *pids: int) -> CgroupMemory | None:
        self.now += 5.0
        return self.reader.read(pids or (42,), self.now).get(42)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_the_lowest_limit_from_the_process_up_counts_with_what_is_used_there(tree: Tree) -> None:
    assert tree.read() == CgroupMemory(f"/{JOB}", 970, 1000)
    tree.cgroup("system.slice", "500", 90)
    assert tree.read() == CgroupMemory("/system.slice", 90, 500)
    tree.cgroup(STEP, "400", 399)
    assert tree.read() == CgroupMemory(f"/{STEP}", 399, 400)


def test_no_limit_is_known_to_be_none(tree: Tree) -> None:
    tree.cgroup(JOB, "max", 970)
    assert tree.read() == CgroupMemory(f"/{STEP}", 960, None)


def test_a_container_knows_its_own_limit_and_nothing_of_those_above(tree: Tree) -> None:
    tree.write("proc/42/cgroup", "0::/\n")
    tree.cgroup("", "2000", 1500)
    assert tree.read() == CgroupMemory("/", 1500, 2000)
    tree.cgroup("", "max", 1500)
    assert tree.read() is None


@pytest.mark.parametrize(
    "cgroup",
    [
        "4:memory:/job_91\n1:name=systemd:/\n",  # Version 1.
        "0::/../../other\n",  # Another container.
        "0::/absent\n",
        "0::" + "/a" * 5000,
        "",
        "\x00\xff\n0:",
        "0::/a\x00b\n",
    ],
)
def test_what_cannot_be_known_is_not_said(tree: Tree, cgroup: str) -> None:
    tree.write("proc/42/cgroup", cgroup)
    assert tree.read() is None
    assert tree.reader.take_kills() == []


@pytest.mark.parametrize("content", ["", "-1", "9e9", "12 13", "\x00" * 9000, "maximum", "9" * 99])
def test_a_file_with_anything_else_in_it_is_not_known(tree: Tree, content: str) -> None:
    tree.write(f"sys/fs/cgroup/{JOB}/memory.max", content)
    assert tree.read() is None
    tree.cgroup(JOB, "1000", 970)
    tree.write(f"sys/fs/cgroup/{JOB}/memory.current", content)
    tree.write(f"sys/fs/cgroup/{JOB}/memory.events", f"oom_kill {content}")
    assert tree.read() is None


def test_a_kill_is_counted_from_the_second_look_on_also_once_its_process_is_gone(
    tree: Tree,
) -> None:
    tree.cgroup(JOB, "1000", 970, kills=7)
    tree.read()
    assert tree.reader.take_kills() == []
    tree.cgroup(JOB, "1000", 970, kills=9)
    tree.read(1)  # Without it.
    assert tree.reader.take_kills() == [OomKills(f"/{JOB}", 2)]
    tree.read()
    assert tree.reader.take_kills() == []


def test_a_cgroup_is_forgotten_a_minute_after_its_last_process(tree: Tree) -> None:
    tree.read()
    tree.now += 100
    tree.read(1)
    tree.cgroup(JOB, "1000", 970, kills=1)
    tree.read(1)
    assert tree.reader.take_kills() == []


@pytest.mark.slow
def test_many_cgroups_are_bounded(tree: Tree) -> None:
    pids = range(100, 1100)
    for pid in pids:
        tree.write(f"proc/{pid}/cgroup", f"0::/job_{pid}\n")
        tree.cgroup(f"job_{pid}", "10", 5)
    assert len(tree.reader.read(pids, 5.0)) == 64
    for pid in pids:
        tree.cgroup(f"job_{pid}", "10", 5, kills=1)
    tree.reader.read(pids, 10.0)
    assert len(tree.reader.take_kills()) == 64


def test_cgroups_are_read_every_two_seconds_at_most(tree: Tree) -> None:
    first = tree.reader.read((42,), 5.0)
    tree.cgroup(JOB, "1000", 980)
    assert tree.reader.read((42,), 6.0) is first
    assert tree.reader.read((42,), 7.0)[42].used == 980
