"""A real Slurm of one node for tests: munged, slurmctld and slurmd of this user, with fake GPUs."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pytest

NODE = "node1"
PATIENCE = 30.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "sbatch")
MISSING = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
"""The programs that this machine lacks."""
_RANDOM = random.SystemRandom()


class SlurmCluster:
    """A running Slurm.

    Attributes:
        folder: Its files.
        environment: The variables for programs that ask it.
        spool: Where the sockets of the steps are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spool = folder / "spool"
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _PATH}
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a daemon in the foreground."""
        log = (self.folder / f"{program}.out").open("wb")
        with log:
            started = subprocess.Popen(
                [program, *arguments],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        self._started.append(started)
        return started

    def call(self, *command: str) -> str:
        """What a command prints."""
        return subprocess.run(
            command,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
            cwd=self.folder,
        ).stdout

    def submit(self, *options: str, script: str = "sleep 600", starts: bool = True) -> str:
        """Submit a batch job.

        Args:
            options: Those of ``sbatch``; with a ``:`` among them, a heterogeneous job.
            script: What it does; by default it waits.
            starts: Whether it is to run before this returns; of an array, its first task.

        Returns:
            Its number.
        """
        file = self.folder / "job.sh"
        file.write_text(f"#!/bin/bash\n{script}\n")
        told = self.call("sbatch", "--parsable", "-o", "/dev/null", *options, str(file))
        number = told.strip().partition(";")[0]
        if starts:
            wait_until(lambda: "RUNNING" in self.state(number).split(), f"job {number} to run")
        return number

    def state(self, number: str) -> str:
        """The state of a job, or of each of its tasks, in lines; empty once it is gone."""
        return self.call("squeue", "-h", "-t", "all", "-o", "%T", "-j", number).strip()

    def cancel(self, number: str) -> None:
        """End a job, and wait until its resources are given back."""
        self.call("scancel", number)
        over = {"CANCELLED", "COMPLETED", "FAILED"}
        wait_until(lambda: over.issuperset(self.state(number).split()), f"job {number} to end")

    def clear(self) -> None:
        """End all jobs."""
        running = self.call("squeue", "-h", "-o", "%A").split()
        if running:
            # It fails for parts of heterogeneous jobs, which end with their leader, and for jobs
            # that end meanwhile.
            with suppress(subprocess.CalledProcessError):
                self.call("scancel", *running)
        wait_until(lambda: not self.call("squeue", "-h").strip(), "the jobs to end")

    def stop(self, program: str) -> None:
        """Stop a daemon, as by an accident."""
        for started in self._started:
            if cast("list[str]", started.args)[0] == program:
                started.kill()
                started.wait()

    def close(self) -> None:
        """End the jobs and the daemons."""
        # Without its controller, a program that asks it waits for long.
        if all(started.poll() is None for started in self._started):
            with suppress(subprocess.SubprocessError, OSError):
                self.clear()
        for started in reversed(self._started):
            started.send_signal(signal.SIGTERM)
        for started in reversed(self._started):
            with suppress(subprocess.TimeoutExpired):
                started.wait(5.0)
            started.kill()
            started.wait()
        wait_until(lambda: not self._kill_steps(), "what the daemons started to end")

    def _kill_steps(self) -> bool:
        """Kill what the daemons have started and left behind, such as jobs after an accident.

        Steps leave the daemon that started them, but all have its configuration in their
        environment, as all have that a user starts by hand.

        Returns:
            Whether there was one: it may have started another, or take time to end.
        """
        found = [pid for pid in self.pids() if pid != os.getpid()]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(found)

    def pids(self) -> list[int]:
        """The processes with the configuration of this Slurm: daemons, steps, what they run."""
        # The titles of steps overwrite the beginning of it, so it is searched as bytes.
        mark = f"\0SLURM_CONF={self.environment['SLURM_CONF']}\0".encode()
        found = []
        for pid in psutil.pids():
            # Those of others, and those that end meanwhile, cannot be read.
            with suppress(OSError):
                if mark in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(pid)
        return found


def wait_until(done: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)


def _free_port() -> int:
    """A port of all addresses that is free, outside of those that systems hand out."""
    while True:
        port = _RANDOM.randint(12_000, 30_000)
        with suppress(OSError), socket.create_server(("", port)):
            return port


def _configuration(folder: Path, gpus: int, extra: str) -> str:
    host = socket.gethostname().partition(".")[0]
    user = folder.owner()
    return f"""\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={_free_port()}
SlurmdPort={_free_port()}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
MailProg=/bin/true
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=2
{extra}
NodeName={NODE} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=8 Gres=gpu:h100:{gpus} State=UNKNOWN
PartitionName=all Nodes={NODE} Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def slurm(
    gpus: int = 4, *, order: tuple[int, ...] | None = None, extra: str = ""
) -> Iterator[SlurmCluster]:
    """A running Slurm, until the end of the block.

    Args:
        gpus: Number of GPUs, which are plain files ``nvidia0``, ``nvidia1``, ...
        order: The numbers of the files in the order of ``gres.conf``.
        extra: More lines of ``slurm.conf``.
    """
    # The paths of sockets are short.
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    folder.chmod(0o755)
    cluster = SlurmCluster(folder)
    try:
        for name in ("dev", "spool", "state"):
            (folder / name).mkdir()
        files = [folder / "dev" / f"nvidia{number}" for number in order or range(gpus)]
        for file in files:
            file.touch()
        (folder / "slurm.conf").write_text(_configuration(folder, gpus, extra))
        (folder / "gres.conf").write_text(
            "".join(f"Name=gpu Type=h100 File={file}\n" for file in files)
        )
        key = folder / "munge.key"
        key.write_bytes(_RANDOM.randbytes(128))
        key.chmod(0o400)
        cluster.start(
            *("munged", "--foreground", "--force", "--num-threads=1"),
            *(f"--{name}={folder}/munge.{name}" for name in ("pid-file", "log-file")),
            *(f"--socket={folder}/munge.sock", f"--key-file={key}"),
            f"--seed-file={folder}/munge.seed",
        )
        wait_until((folder / "munge.sock").exists, "munged")
        cluster.start("slurmctld", "-D", "-c")
        cluster.start("slurmd", "-D", "-N", NODE)
        wait_until(lambda: _is_idle(cluster), "the node to be idle")
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)


def _is_idle(cluster: SlurmCluster) -> bool:
    with suppress(subprocess.SubprocessError):
        return cluster.call("sinfo", "-h", "-o", "%t").strip() == "idle"
    return False


def use(cluster: SlurmCluster, patch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """Make this program, and what it starts, ask this Slurm."""
    for name, value in cluster.environment.items():
        patch.setenv(name, value)
    return cluster.environment
