"""Whoever only looks for reservations leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.scheduling.locks import Locks, holders_now


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "locks"
    monkeypatch.setenv("GPUMON_LOCK_DIR", str(path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    return path


def test_reading_without_reservations_creates_nothing(folder: Path) -> None:
    assert holders_now(["GPU-0"]) == {}
    assert not folder.exists()


def test_the_holder_is_known_until_the_release(folder: Path) -> None:
    locks = Locks(str(folder), os.environ)
    reservation = locks.take(["GPU-0"], "python train.py")
    held = holders_now(["GPU-0", "GPU-1"])
    assert list(held) == ["GPU-0"]
    assert (held["GPU-0"].pid, held["GPU-0"].command) == (os.getpid(), "python train.py")
    reservation.close()
    locks.close()
    assert holders_now(["GPU-0", "GPU-1"]) == {}


def test_a_replaced_folder_is_found(folder: Path) -> None:
    Locks(str(folder), os.environ).close()
    assert holders_now(["GPU-0"]) == {}
    folder.rename(folder.with_name("old"))
    locks = Locks(str(folder), os.environ)
    reservation = locks.take(["GPU-0"], "x")
    assert list(holders_now(["GPU-0"])) == ["GPU-0"]
    reservation.close()
    locks.close()


def test_reading_keeps_no_file_open(folder: Path) -> None:
    Locks(str(folder), os.environ).close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        holders_now(["GPU-0", "GPU-1"])
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
