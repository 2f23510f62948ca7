"""What is unpacked of a compressed log, and how far."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from gpumon.recording.csv import compression as packed
from gpumon.recording.csv.compression import MOST_UNPACKED, open_file
from gpumon.recording.csv.recording import open_log
from gpumon.recording.recording import RecordingError
from tests.recording.csv.reading import busy, write_log

MIB = 2**20


def bomb(path: Path, size: int) -> Path:
    """A packed log with so many bytes of zeros behind it."""
    log = write_log(path.with_suffix(""), [busy(second) for second in range(10)])
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(log.read_bytes())
        for _ in range(size // MIB):
            file.write(bytes(MIB))
    for plain in (log, log.with_suffix(".processes.csv")):
        plain.unlink()
    return path


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "MOST_UNPACKED", 8 * MIB)
    path = bomb(tmp_path / "run.csv.gz", 16 * MIB)
    with pytest.raises(RecordingError) as refused:
        open_log(path)
    assert refused.value.sentence.startswith(f"{path} is too long unpacked")


def test_no_more_than_a_quarter_of_the_free_space_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bomb(tmp_path / "run.csv.gz", 16 * MIB)
    asked = os.fstatvfs

    def nearly_full(descriptor: int) -> os.statvfs_result:
        space = list(asked(descriptor))
        space[1], space[4] = 4096, 32 * MIB // 4096
        return os.statvfs_result(space)

    monkeypatch.setattr(os, "fstatvfs", nearly_full)
    with pytest.raises(RecordingError, match="is too long unpacked for the free space"):
        open_file(path)
    assert MOST_UNPACKED == 4 * 2**30


def test_unpacking_ends_when_the_log_is_closed(tmp_path: Path) -> None:
    path = bomb(tmp_path / "run.csv.gz", 16 * MIB)
    asked: list[bool] = []

    def stop() -> bool:
        asked.append(len(asked) == 2)
        return asked[-1]

    with pytest.raises(RecordingError, match="no longer wanted"):
        open_file(path, stop)
    assert asked == [False, False, True]
