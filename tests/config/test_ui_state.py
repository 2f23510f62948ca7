"""What the screen was left like: kept in one small file, and never in anybody's way."""

from __future__ import annotations

import os
import pathlib
import stat
from pathlib import Path

import pytest

from gpumon.config.ui_state import NAME, UiState, load, store


def test_what_was_stored_is_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "gpumon"
    assert load(folder) == UiState(host_strip=None)
    assert store(folder, UiState(host_strip=True))
    assert load(folder) == UiState(host_strip=True)
    assert store(folder, UiState(host_strip=False))
    assert load(folder) == UiState(host_strip=False)
    assert list(folder.iterdir()) == [folder / NAME]


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store(tmp_path / "gpumon", UiState())
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "gpumon" / NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "gpumon").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[1]",
        b'{"host_strip": "yes"}',
        b'{"x": ' + b"[" * 3000 + b"]" * 1000,
        b" " * 10000 + b'{"host_strip": true}',
    ],
    ids=["empty", "cut", "no text", "a list", "a wrong type", "deep", "long"],
)
def test_a_broken_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert load(tmp_path) == UiState()
    assert store(tmp_path, UiState(host_strip=True))
    assert load(tmp_path) == UiState(host_strip=True)


def test_a_later_version_may_remember_more(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b'{"host_strip": true, "more": [1, 2]}')
    assert load(tmp_path) == UiState(host_strip=True)


def test_what_cannot_be_read_or_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert load(tmp_path / "file") == UiState()
    assert not store(tmp_path / "file" / "gpumon", UiState())
    (tmp_path / NAME).mkdir()
    assert load(tmp_path) == UiState()
    assert not store(tmp_path, UiState())
    assert {path.name for path in tmp_path.iterdir()} == {"file", NAME}


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)
    assert load(tmp_path) == UiState()


def test_a_folder_that_is_emptied_meanwhile_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def emptied(self: Path, _: Path) -> None:
        self.unlink()
        raise FileNotFoundError(self)

    monkeypatch.setattr(pathlib.Path, "replace", emptied)
    assert not store(tmp_path, UiState())
