"""A ``/proc`` of files, for what real processes cannot be brought to do."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from gpumon.host.workloads import WorkloadReader
from gpumon.model.processes import ProcessId
from gpumon.system.system import System
from tests.build import process
from tests.clock import HandClock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpumon.model.processes import GpuProcess, Workload

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class FakeProc:
    """Processes whose every fact a test can choose; all belong to whoever runs the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(exist_ok=True)

    def __str__(self) -> str:
        return str(self.root)

    @property
    def system(self) -> System:
        return System(str(self.root))

    def add(
        self,
        pid: int,
        parent: int = 1,
        *,
        group: int | None = None,
        session: int | None = None,
        name: str = "python",
        state: str = "S",
        ticks: int = 0,
        threads: int = 1,
        start_time: int | None = None,
        rss_pages: int = 10,
        stack: int = 0,
        flags: int = 0,
        command: bytes = b"",
        cgroup: str = "",
        status: str = "",
        wait_channel: str = "",
        files: Mapping[int, Path] | None = None,
        namespace: int = 0,
    ) -> ProcessId:
        """Add a process, or change it: the leader of its own group and session, unless told.

        It started ``pid`` ticks after the machine, unless told.
        """
        directory = self.root / str(pid)
        for folder in ("fd", f"task/{pid}/fd", "ns"):
            (directory / folder).mkdir(parents=True, exist_ok=True)
        fields = ["0"] * 50
        fields[0] = state
        fields[1] = str(parent)
        fields[2] = str(pid if group is None else group)
        fields[3] = str(pid if session is None else session)
        fields[6] = str(flags)
        fields[11] = str(ticks)
        fields[17] = str(threads)
        fields[19] = str(pid if start_time is None else start_time)
        fields[21] = str(rss_pages)
        fields[25] = str(stack)
        stat = os.fsencode(f"{pid} ({name}) {' '.join(fields)}\n")
        (directory / "stat").write_bytes(stat)
        (directory / "task" / str(pid) / "stat").write_bytes(stat)
        (directory / "cmdline").write_bytes(command)
        (directory / "cgroup").write_text(cgroup)
        (directory / "status").write_text(status)
        (directory / "wchan").write_text(wait_channel)
        _relink(directory / "ns" / "pid", f"pid:[{namespace or 4026531836}]")
        for number, path in (files or {}).items():
            _relink(directory / "fd" / str(number), str(path))
        return ProcessId(pid, pid if start_time is None else start_time)

    def add_thread(self, pid: int, tid: int, *, state: str = "S", wait_channel: str = "") -> None:
        directory = self.root / str(pid)
        thread = directory / "task" / str(tid)
        thread.mkdir()
        leader = (directory / "stat").read_text()
        line = re.sub(r"^\d+ (\(.*\)) \S", rf"{tid} \1 {state}", leader)
        (thread / "stat").write_text(line)
        (thread / "cmdline").write_bytes((directory / "cmdline").read_bytes())
        (thread / "wchan").write_text(wait_channel)

    def remove(self, pid: int) -> None:
        """Take the process away from the list, as if it had ended."""
        (self.root / str(pid)).rename(self.root / f"ended-{pid}")


class FakeWorkloads:
    """A ``/proc`` of files in which processes have an environment, and a reader of workloads."""

    def __init__(self, folder: Path) -> None:
        # The file system in which the reader looks for the names of containers.
        self.root = folder / "root"
        self.clock = HandClock(epoch=0.0)
        self.proc = FakeProc(folder / "proc")
        self.reader = WorkloadReader(System(str(self.proc), clock=self.clock), root=str(self.root))
        self._mount(self.proc.root / "self", "ours")

    def _mount(self, directory: Path, name: str) -> None:
        """Let a process be in a mount name space of this name."""
        space = self.proc.root / name
        space.touch()
        (directory / "ns").mkdir(parents=True, exist_ok=True)
        (directory / "ns/mnt").unlink(missing_ok=True)
        (directory / "ns/mnt").symlink_to(space)

    def add(
        self,
        pid: int,
        command: str = "python train.py",
        *,
        parent: int = 0,
        start: int = 100,
        state: str = "S",
        name: str | None = None,
        cgroup: str = "0::/\n",
        mounts: str = "ours",
        **environ: str,
    ) -> GpuProcess:
        """Let there be such a process, in the place of an earlier one of that number."""
        words = command.split()
        self.proc.add(
            pid,
            parent,
            name=(name or os.path.basename(words[0]))[:15],  # noqa: PTH119 - it is text
            state=state,
            start_time=start,
            command="".join(f"{word}\0" for word in words).encode(),
            cgroup=cgroup,
        )
        directory = self.proc.root / str(pid)
        (directory / "environ").write_text("".join(f"{k}={v}\0" for k, v in environ.items()))
        self._mount(directory, mounts)
        return process(pid, start_time=start)

    def hide_environ(self, pid: int) -> None:
        """Let it be a process of another user."""
        (self.proc.root / str(pid) / "environ").unlink()

    def place(self, one: GpuProcess) -> Workload:
        """Where a process runs, as far as its reader knows."""
        return self.reader.read([one])[one.id]


def _relink(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)
