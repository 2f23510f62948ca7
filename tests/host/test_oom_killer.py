"""The kernel's own OOM killer, where a test may make a cgroup and read the kernel log."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpumon.makers.accidents import watcher_of
from gpumon.model.accidents import AccidentKind
from gpumon.system.system import THIS_SYSTEM
from tests.known import known
from tests.lives import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.host.kernel_watcher import Heard

MIB = 2**20
GREEDY = f"""
import sys
sys.stdin.readline()
memory = bytearray({400 * MIB})
for page in range(0, len(memory), 4096):
    memory[page] = 1
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup that may use 40 MiB."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = {line.split(":", 2)[1]: line.split(":", 2)[2].lstrip("/") for line in lines}
    if "memory" in own:
        parent, limit = Path("/sys/fs/cgroup/memory", own["memory"]), "memory.limit_in_bytes"
    else:
        parent, limit = Path("/sys/fs/cgroup", own.get("", "")), "memory.max"
    folder = parent / f"gpumon-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("no cgroup can be made here")
    try:
        (folder / limit).write_text(str(40 * MIB))
        yield folder
    except OSError:
        pytest.skip("no limit can be set here")
    finally:
        folder.rmdir()


@pytest.mark.root
def test_a_process_that_the_kernel_killed_is_an_accident_within_two_seconds(cgroup: Path) -> None:
    watcher = watcher_of(THIS_SYSTEM)
    watcher.start()
    try:
        until(lambda: watcher.take() is not None, "the end of the past")
        if not watcher.is_readable:
            pytest.skip("the kernel log may not be read here")
        process = subprocess.Popen([sys.executable, "-c", GREEDY], stdin=subprocess.PIPE)
        (cgroup / "cgroup.procs").write_text(str(process.pid))
        process.communicate(b"\n")
        assert process.returncode == -9
        ended = time.monotonic()
        found: list[Heard] = []
        while not found:
            assert time.monotonic() < ended + 2
            heard = watcher.take() or []
            found = [each for each in heard if str(each.report.cgroup).endswith(cgroup.name)]
            time.sleep(0.01)
    finally:
        watcher.stop()
    (killed,) = found
    assert killed.report.kind is AccidentKind.OUT_OF_MEMORY
    assert 30 * MIB < known(killed.report.memory) < 60 * MIB
    assert abs(killed.time - time.time()) < 10
    assert not killed.is_past
