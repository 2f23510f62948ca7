"""Whether this program runs in the machine's initial PID namespace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.host.procfs import in_initial_pid_namespace
from tests import lives


def test_this_namespace_is_told_by_its_number() -> None:
    link = Path("/proc/self/ns/pid").readlink()
    assert in_initial_pid_namespace("/proc") == (str(link) == f"pid:[{0xEFFFFFFC}]")


@lives.needs("unshare")
def test_a_container_is_not_the_initial_namespace() -> None:
    program = "from gpumon.host.procfs import *; print(in_initial_pid_namespace('/proc'))"
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    inside = subprocess.run(
        [*command, sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    if "unshare" in inside.stderr:
        pytest.skip(f"no name spaces to be had here: {inside.stderr.strip()}")
    assert (inside.stdout.strip(), inside.stderr) == ("False", "")


def test_a_kernel_that_does_not_say_is_not_trusted(tmp_path: Path) -> None:
    assert in_initial_pid_namespace(str(tmp_path)) is False
