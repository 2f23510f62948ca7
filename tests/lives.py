"""Real processes for tests that end them: found again by a mark, and never left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from gpumon.host.process_host import RelatedProcess, Target
from gpumon.host.procfs import in_initial_pid_namespace
from gpumon.model.processes import ProcessId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 60.0
"""Seconds a test waits for something that must come; a pass takes a fraction of it."""


def _proc_options() -> list[str]:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [mount[3] for mount in mounts if mount[1] == "/proc"][-1].split(",")


def needs(program: str) -> pytest.MarkDecorator:
    """Skips a test where a program is not installed."""
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"there is no {program} here")


NEEDS_OTHERS = pytest.mark.skipif(
    any(option.startswith("hidepid=") for option in _proc_options()),
    reason="/proc is mounted with hidepid: one user does not see the processes of another",
)

NEEDS_ALL_PIDS = pytest.mark.skipif(
    not in_initial_pid_namespace("/proc"),
    reason="in a container gpumon cannot tell memory of nobody from that of other containers",
)

_MARK = "GPUMON_TEST_MARK"
_pidfd_open = os.pidfd_open  # tests take it away from gpumon


def signal_another_thread(pid: int, number: int) -> None:
    """Send a signal that a thread other than the main one of a program receives.

    Python runs handlers on the main thread only, and does not wake it for this.
    """
    tgkill = getattr(ctypes.CDLL(None), "tgkill", None)
    if tgkill is None:
        pytest.skip("this C library has no tgkill")
    threads = {int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()} - {pid}
    assert tgkill(pid, max(threads), number) == 0


class Family:
    """What one test started, its descendants included, orphans too: all carry one mark.

    The mark is in the environment, which children inherit and only a process itself can drop.
    """

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._started: list[subprocess.Popen[str]] = []
        self._reapers: list[threading.Thread] = []

    def start(self, *command: str, **options: object) -> subprocess.Popen[str]:
        """Start a program; it can be talked to, and has said a line when this returns."""
        process = subprocess.Popen(  # type: ignore[call-overload]  # keywords pass through
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, _MARK: self._mark},
            start_new_session=True,
            **options,
        )
        self._started.append(process)
        # A shell takes notice of the end of what it started, and so does this.
        reaper = threading.Thread(target=process.wait, name="reaper")
        reaper.start()
        self._reapers.append(reaper)
        assert process.stdout.readline(), "it ended before it was ready"
        return process  # type: ignore[no-any-return]  # keywords pass through

    def python(self, program: str, *arguments: str, **options: object) -> subprocess.Popen[str]:
        """Start a Python program that says a line when it is ready."""
        return self.start(sys.executable, "-S", "-c", program, *arguments, **options)

    def sleeper(self) -> subprocess.Popen[str]:
        """Start a program that does nothing."""
        process = self.start("sh", "-c", "echo ready; exec sleep 1000")

        def sleeps() -> bool:
            relative = look(process.pid)
            return relative is None or (relative.name, relative.state) == ("sleep", "S")

        until(sleeps, "its sleep")
        return process

    def members(self) -> set[int]:
        """The numbers of all that live and bear the mark. A zombie bears nothing."""
        numbers = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
        return {pid for pid in numbers if self._bears_the_mark(pid)}

    def _bears_the_mark(self, pid: int) -> bool:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"{_MARK}={self._mark}".encode() in environment.split(b"\0")

    def close(self) -> None:
        """Kill all that bear the mark, and take notice of those that were started here."""
        deadline = time.monotonic() + PATIENCE
        while strays := self.members():
            assert time.monotonic() < deadline, f"{strays} cannot be killed"
            for pid in strays:
                self._kill(pid)
        for process in self._started:
            process.kill()
            process.communicate()
        for reaper in self._reapers:
            reaper.join()

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            descriptor = _pidfd_open(pid)
            try:
                # Looked at once more while it is held: the number may have changed hands.
                if self._bears_the_mark(pid):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)


@contextmanager
def family() -> Iterator[Family]:
    """A family that is gone at the end of the block."""
    started = Family()
    try:
        yield started
    finally:
        started.close()


def target(pid: int, **changes: object) -> Target:
    """A process as somebody sees it now."""
    relative = look(pid)
    assert relative is not None, f"there is no process {pid}"
    seen = Target(
        id=relative.id,
        uid=relative.uid,
        user=relative.user,
        name=relative.name,
        command=relative.command,
        parent=relative.parent,
    )
    return msgspec.structs.replace(seen, **changes)


def look(pid: int) -> RelatedProcess | None:
    """What ``/proc`` says of a process, in a test's own few words."""
    try:
        # Other processes of the machine may have any bytes in their names.
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        uid = Path(f"/proc/{pid}").stat().st_uid
        command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return RelatedProcess(
        id=ProcessId(pid, int(fields[19])),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        name=stat[stat.index("(") + 1 : stat.rindex(")")],
        command=tuple(command.rstrip("\0").split("\0")),
        uid=uid,
        state=fields[0],
    )


def user_name(uid: int) -> str:
    """The name of a user, or the number of one without an account."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def children(pid: int) -> list[int]:
    """The numbers of its children."""
    numbers = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return sorted(
        n for n in numbers if (relative := look(n)) is not None and relative.parent == pid
    )


def until(condition: Callable[[], object], what: str | Callable[[], str]) -> None:
    """Wait for something that must come; ``what`` says in the end what did not."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        late = time.monotonic() >= deadline
        assert not late, f"never: {what if isinstance(what, str) else what()}"
        time.sleep(0.005)
