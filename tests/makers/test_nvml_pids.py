"""Which of NVML's PIDs may be looked up."""

from __future__ import annotations

import pytest

from gpumon.makers.nvidia.processes import PidTrust, pid_trust


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
