"""Finds where processes run: container, Slurm job, notebook, tmux, environment, launcher."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from itertools import pairwise
from sys import getsizeof
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.host.clues import (
    apptainer,
    declared_container,
    environment_clues,
    environment_name,
    jupyter_kernel,
    launcher,
    slurm_daemon,
    slurm_job,
)
from gpumon.host.containers import ContainerNames, cgroup_info
from gpumon.host.process_tree import ancestors
from gpumon.host.processes import COMMAND_BYTES
from gpumon.host.procfs import ProcessFiles, Stat, opened, stat_of
from gpumon.host.tmux import TmuxNames, TmuxSession, tmux_session
from gpumon.model.processes import Container, ProcessId, Workload
from gpumon.model.serving import InferenceServer
from gpumon.serving import ENGINES
from gpumon.serving.recognition import Recognised, engine_of, is_helper, recognise
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.model.processes import GpuProcess
    from gpumon.system.system import System

_ENVIRON_BYTES = 128 * 1024
_KEPT_SECONDS = 60.0
"""How long a process is remembered that was not requested: a call may request only new ones."""
_KEPT_BYTES = 4 * 2**20
"""Limit for the remembered commands and environments of processes that the last pass did not read:
if hundreds of processes start each second, a minute of them is too much."""

_KNOWN_BYTES = 1000
_TMUX_SERVER = "tmux: server"


class _Surroundings(Struct, frozen=True):
    """The surroundings of a process that change only at an exec."""

    uid: int | None = None
    slice_uid: int | None = None
    container: Container | None = None
    slurm_job: str | None = None
    slurm_step: str | None = None
    in_slurm: bool = False  # whether it is in a job, of which the number may not be known
    environment: str | None = None
    notebook: str | None = None
    host_name: str | None = None
    server: Recognised | None = None
    tmux: TmuxSession | None = None


class _Known:
    """A process, or an ancestor of one, as remembered between two readings."""

    __slots__ = (
        "clues",
        "command",
        "container",
        "engine",
        "is_helper",
        "kernel",
        "launcher",
        "name",
        "read_at",
        "settled",
        "stat",
        "surroundings",
    )

    def __init__(self, stat: Stat) -> None:
        self.stat = stat
        self.read_at = 0.0
        self.name: str | None = None
        self.command: tuple[str, ...] = ()
        self.kernel: str | None = None
        self.launcher: str | None = None
        self.engine: str | None = None
        self.is_helper = False
        self.clues: dict[str, str] = {}
        self.settled = False
        self.surroundings = _Surroundings()
        self.container: Container | None = None

    @property
    def bytes(self) -> int:
        """Its approximate size."""
        return _KNOWN_BYTES + sum(map(getsizeof, (*self.command, *self.clues.values())))


class WorkloadReader:
    """Finds repeatedly where processes run. Not thread-safe.

    Properties that change only at an exec are kept by PID and start time, and read again when the
    kernel's name of the process has changed. The ancestors are read every time.

    Args:
        system: The operating system that is read.
        root: Where the stores and the sockets of container runtimes are.
    """

    def __init__(self, system: System = THIS_SYSTEM, *, root: str = "/") -> None:
        self._proc = system.proc
        self._clock = system.clock
        self._names = ContainerNames(root)
        self._tmux = TmuxNames()
        self._uid = os.geteuid()
        self._known: dict[int, _Known] = {}
        self._seen: dict[int, _Known | None] = {}
        self._now = 0.0

    def read(self, processes: Sequence[GpuProcess]) -> dict[ProcessId, Workload]:
        """Where these processes run now.

        Only root can read the environment of other users' processes, so for these some parts are
        unknown. May wait a second for Docker or tmux if they hang.

        Args:
            processes: The processes; those that are not visible or have ended are omitted.
        """
        self._now = self._clock.monotonic()
        self._seen = {}
        places = {}
        for process in processes:
            known = self._look(process.id.pid) if process.visible else None
            if known is not None and known.stat.id == process.id:
                places[process.id] = self._place(known)
        self._forget()
        return places

    def _forget(self) -> None:
        """Forget the processes that were read longest ago, beyond the limits of age and size."""
        kept: dict[int, _Known] = {}
        size = 0
        for pid, known in sorted(self._known.items(), key=lambda item: -item[1].read_at):
            if known.read_at < self._now:
                size += known.bytes
                if known.read_at <= self._now - _KEPT_SECONDS or size > _KEPT_BYTES:
                    break
            kept[pid] = known
        self._known = kept

    def _place(self, process: _Known) -> Workload:
        around = self._around(process)
        line = self._line(process)
        kernel = next((each for each in line if each.kernel is not None), None)
        job, step = around.slurm_job, around.slurm_step
        if job is None and around.in_slurm:
            job, step = self._step(line)
        outermost = next((each for each in reversed(line) if each.launcher is not None), None)
        return Workload(
            container=self._container(process, around),
            slurm_job=job,
            slurm_step=step,
            jupyter_kernel=None if kernel is None else kernel.kernel,
            # Children of a kernel inherit its environment and may outlive it.
            notebook=around.notebook if kernel is None else self._around(kernel).notebook,
            tmux=self._tmux_name(line),
            environment=around.environment,
            session=process.stat.session if process.stat.session > 0 else None,
            launcher=None if outermost is None else outermost.stat.id,
            launcher_name=None if outermost is None else outermost.launcher,
            parent=line[1].stat.id if len(line) > 1 else None,
            server=self._server(line),
        )

    def _server(self, line: list[_Known]) -> InferenceServer | None:
        """The inference server that a process is, or is part of.

        Its workers have titles that say nothing of the model: its outermost process does.
        """
        itself = next((each for each in line if not each.is_helper), line[0])
        if itself.engine is None:
            return None
        outermost = _outermost(itself.engine, itself, line)
        engine = outermost.engine or itself.engine
        found = self._around(outermost).server or Recognised(engine)
        return InferenceServer(
            engine=engine,
            model=found.model,
            pid=outermost.stat.id.pid,
            start_time=outermost.stat.id.start_time,
            memory_setting=ENGINES[engine].memory_setting if found.knows_memory else None,
            memory_value=found.memory_value,
            has_config_file=found.has_config_file,
        )

    def _step(self, line: list[_Known]) -> tuple[str | None, str | None]:
        """The job and the step of Slurm's daemon that a process descends from."""
        for process in line:
            found = slurm_daemon(process.command)
            # Anybody can write such a title, but not run as root.
            if found is not None and self._around(process).uid == 0:
                return found
        return None, None

    def _container(self, process: _Known, around: _Surroundings) -> Container | None:
        if around.container is None:
            return None
        if process.container is None:
            named = self._names.named(
                around.container,
                self._now,
                slice_uid=around.slice_uid,
                host_name=around.host_name,
            )
            if named == around.container:
                return named
            process.container = named
        return process.container

    def _tmux_name(self, line: list[_Known]) -> str | None:
        """The session of the process, or of the tmux pane that it descends from."""
        panes = (child for child, above in pairwise(line) if above.stat.name == _TMUX_SERVER)
        for process in (line[0], *panes):
            around = self._around(process)
            session = around.tmux
            if session is None:
                continue
            # The variable is also inherited outside of tmux, for example in Slurm jobs.
            server = self._look(session.server)
            if server is None or server.stat.name != _TMUX_SERVER:
                continue
            name = self._tmux.name(session, self._now) if around.uid == self._uid else None
            return name or f"${session.session}"
        return None

    def _line(self, process: _Known) -> list[_Known]:
        """A process and its ancestors, the process first."""
        above = ancestors(process.stat, self._stat)
        return [process, *(self._known[stat.id.pid] for stat in above)]

    def _stat(self, pid: int) -> Stat | None:
        known = self._look(pid)
        return None if known is None else known.stat

    def _look(self, pid: int) -> _Known | None:
        """The process that has this PID now, read once per pass."""
        if pid not in self._seen:
            stat = stat_of(self._proc, pid)
            self._seen[pid] = None if stat is None else self._update(stat)
        return self._seen[pid]

    def _update(self, stat: Stat) -> _Known:
        known = self._known.get(stat.id.pid)
        if known is None or known.stat.id != stat.id:
            known = self._known[stat.id.pid] = _Known(stat)
        known.stat = stat
        known.read_at = self._now
        # An exec sets the new name before the new arguments.
        if known.name != stat.name or (not known.command and stat.rss):
            self._read_command(known)
        return known

    def _read_command(self, known: _Known) -> None:
        # Reading the arguments of a process in state D could hang.
        if known.stat.state == "D":
            return
        try:
            with self._opened(known) as files:
                command = files.command(COMMAND_BYTES)
        except OSError:
            return
        known.name = known.stat.name
        known.command = command or known.command
        known.kernel = jupyter_kernel(known.command)
        known.launcher = launcher(known.command)
        known.engine = engine_of(known.command)
        known.is_helper = known.engine is None and is_helper(known.command)
        known.settled = False

    def _around(self, known: _Known) -> _Surroundings:
        if not known.settled:
            try:
                with self._opened(known) as files:
                    self._read_surroundings(known, files)
            except OSError:
                known.settled = False
        return known.surroundings

    def _read_surroundings(self, known: _Known, files: ProcessFiles) -> None:
        cgroup = cgroup_info(files.text(f"{files.thread}cgroup"))
        known.settled = known.stat.state != "D" and not files.hangs()
        environ = b""
        if known.settled:
            with suppress(OSError):
                environ = files.read("environ", _ENVIRON_BYTES)
            # A program may overwrite its environment with its title.
            known.clues = environment_clues(environ) or known.clues
        clues = known.clues
        readable = clues if environ or clues else None
        container = cgroup.container
        declared = apptainer(clues) or container or declared_container(clues)
        if declared != container and self._is_elsewhere(files):
            container = declared
        job, step = slurm_job(cgroup.slurm_job, cgroup.slurm_step, clues)
        known.container = None
        known.surroundings = _Surroundings(
            uid=files.owner(),
            slice_uid=cgroup.slice_uid,
            container=container,
            slurm_job=job,
            slurm_step=step,
            in_slurm=cgroup.slurm_sluid is not None,
            environment=environment_name(known.command, clues),
            notebook=clues.get("JPY_SESSION_NAME"),
            host_name=clues.get("HOSTNAME"),
            server=recognise(known.command, readable) if known.engine else None,
            tmux=tmux_session(clues.get("TMUX", "")),
        )

    def _is_elsewhere(self, files: ProcessFiles) -> bool:
        """Whether a process has another mount namespace, as in a container.

        If not, it inherited variables about a container from a process inside of one.
        """
        try:
            own = os.stat(f"{self._proc}/self/ns/mnt")  # noqa: PTH116 - as in the next line
            other = os.stat(f"{files.thread}ns/mnt", dir_fd=files.directory)
        except OSError:
            return False
        return own.st_ino != other.st_ino

    @contextmanager
    def _opened(self, known: _Known) -> Iterator[ProcessFiles]:
        """The files of a process, after a check of its identity.

        Raises:
            OSError: It has ended.
        """
        with opened(self._proc, known.stat.id.pid) as files:
            if files.stat().id != known.stat.id:
                raise ProcessLookupError
            yield files


def _outermost(engine: str, process: _Known, line: Sequence[_Known]) -> _Known:
    """The outermost process of the server that a process is part of.

    Args:
        engine: The process' own engine.
        process: A process of a server.
        line: It and its ancestors.
    """
    for each in reversed(line):
        if each.engine is not None and engine in ENGINES[each.engine].workers:
            return each
    if ENGINES[engine].has_independent_processes:
        return process
    return next(each for each in reversed(line) if each.engine == engine)
