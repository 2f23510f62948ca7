"""The units of systemd start what they say, with options that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpumon.cli.parser import make_parser
from tests.command import run_program
from tests.lives import needs

FOLDER = Path(__file__).parents[2] / "packages" / "systemd"
UNITS = sorted(path.name for path in FOLDER.iterdir())
PROGRAM = "/usr/local/bin/gpumon"


def text(unit: str) -> str:
    return (FOLDER / unit).read_text(encoding="utf-8")


@needs("systemd-analyze")
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_it(unit: str, tmp_path: Path) -> None:
    path = tmp_path / unit
    path.write_text(text(unit).replace(PROGRAM, "/bin/sh"))
    done = run_program(["systemd-analyze", "verify", "--man=no", path])
    assert [line for line in done.stderr.splitlines() if unit in line] == []
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("unit", UNITS)
def test_gpumon_takes_its_command_line(unit: str) -> None:
    (line,) = re.findall(r"^ExecStart=(.+)$", text(unit), re.MULTILINE)
    program, *arguments = line.split()
    assert program == PROGRAM
    assert make_parser().parse_args(arguments).command == unit[len("gpumon-") : -len(".service")]


@pytest.mark.parametrize("unit", UNITS)
def test_its_head_says_how_to_install_it(unit: str) -> None:
    head = text(unit).partition("[Unit]")[0]
    assert f"install -m 644 {unit} /etc/systemd/system/" in head
    assert f"systemctl enable --now {unit.removesuffix('.service')}" in head


@pytest.mark.parametrize("unit", UNITS)
def test_it_runs_as_a_user_with_no_capability(unit: str) -> None:
    settings = text(unit).splitlines()
    assert "User=gpumon" in settings
    assert "CapabilityBoundingSet=" in settings
    assert "NoNewPrivileges=yes" in settings
