"""Which of the driver's PIDs may be looked up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.host.namespaces import PidTrust, in_initial_pid_namespace, pid_trust
from tests import lives


@pytest.mark.parametrize("version", ["470.57.02", "570.86.10", "", "garbage", None])
def test_on_the_machine_itself_every_driver_is_trusted(version: str | None) -> None:
    assert pid_trust(version, True) == PidTrust(True, True)


@pytest.mark.parametrize(
    ("version", "processes", "utilization"),
    [
        ("470.256.02", False, False),
        ("535.54.03", False, False),
        ("535.104.05", False, False),
        ("535.104.12", False, False),
        ("535.113.01", True, False),
        ("535.247.01", True, False),
        ("545.23.08", True, False),
        ("550.54.15", True, False),
        ("560.35.03", True, False),
        ("565.57.01", True, False),
        ("570.85.99", True, False),
        ("570.86.10", True, True),
        ("570.86", True, True),
        ("570.124.06", True, True),
        ("580.65.06", True, True),
        ("1000.1", True, True),
    ],
)
def test_in_a_container_trust_follows_the_driver(
    version: str, processes: bool, utilization: bool
) -> None:
    assert pid_trust(version, False) == PidTrust(processes, utilization)


@pytest.mark.parametrize("version", [None, "", "570", "v570.86.10", "570.86-beta", "N/A", "570.x"])
def test_in_a_container_a_version_that_says_nothing_is_not_trusted(version: str | None) -> None:
    assert pid_trust(version, False) == PidTrust(False, False)


def test_this_namespace_is_told_by_its_number() -> None:
    link = Path("/proc/self/ns/pid").readlink()
    assert in_initial_pid_namespace() == (str(link) == f"pid:[{0xEFFFFFFC}]")


@lives.needs("unshare")
def test_a_container_is_not_the_initial_namespace() -> None:
    program = "from gpumon.host.namespaces import *; print(in_initial_pid_namespace())"
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    inside = subprocess.run(
        [*command, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in inside.stderr:
        pytest.skip(f"no name spaces to be had here: {inside.stderr.strip()}")
    assert (inside.stdout.strip(), inside.stderr) == ("False", "")


def test_a_kernel_that_does_not_say_is_not_trusted(tmp_path: Path) -> None:
    assert in_initial_pid_namespace(str(tmp_path)) is False
