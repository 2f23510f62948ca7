"""A program of a scheduler takes bounded time and memory, whatever it does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gpumon.allocations import local_allocations
from gpumon.allocations.programs import Printed, printed_by
from gpumon.allocations.slurm import scontrol

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of ``scontrol``, the first on the path."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "scontrol"


def write(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_what_it_prints_is_returned_with_its_exit_status(program: Path) -> None:
    write(program, 'echo "$1 $SLURM_TIME_FORMAT $LC_ALL"; echo wrong >&2; exit 3')
    printed = scontrol(("show",), 5.0)
    assert printed == Printed(b"show standard C\n", b"wrong\n", 3)


@pytest.mark.parametrize(
    "script",
    [
        "sleep 60",
        # It has closed its output, and does not end.
        "exec >/dev/null 2>&1; sleep 60",
        # What it started has its output.
        "sleep 60 & exit 0",
        "trap '' TERM; while :; do echo no >&2; done",
    ],
)
def test_one_that_hangs_is_killed_in_time(program: Path, script: str) -> None:
    write(program, script)
    began = time.monotonic()
    assert printed_by(("scontrol",), patience=0.5) is None
    assert time.monotonic() - began < 5


def test_one_that_prints_without_end_is_killed_early(program: Path) -> None:
    write(program, "exec cat /dev/zero")
    began = time.monotonic()
    assert printed_by(("scontrol",), patience=20.0) is None
    assert time.monotonic() - began < 10


def test_one_that_cannot_be_started_prints_nothing(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    program.write_text("#!/no/such/program\n")
    program.chmod(0o755)
    assert printed_by(("scontrol",), 5.0) is None


def test_where_there_is_none_nothing_is_asked(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    assert local_allocations() is None
    write(program, "exit 1")
    assert local_allocations() is not None
