"""Files that gpumon did not make, or cannot remove, do the history no harm."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import pytest

from gpumon.recording.archive import Archive, Bounds
from gpumon.recording.archive.segment_format import FRAME
from gpumon.recording.csv.opening import LogError
from tests.build import NOON
from tests.recording.archive.archives import archived, demo_samples, plain, segments, writer

SEGMENT = "000002-20231114-120000.gpumon"


@pytest.mark.slow
def test_thousands_of_files_without_a_sample(tmp_path: Path) -> None:
    archived(tmp_path, [plain(0)])
    (whole,) = segments(tmp_path)
    header = whole.read_bytes().partition(b"\n")[0] + b"\n"
    for number in range(2, 1200):
        (tmp_path / f"{number:06}-20231114-120000.gpumon").write_bytes(header)
    archive = Archive(tmp_path)
    assert archive.first == archive.last == NOON
    assert archive.at(NOON + 5) == plain(0)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    archived(tmp_path, [plain(0)])
    os.mkfifo(tmp_path / SEGMENT)
    os.mkfifo(segments(tmp_path)[0].with_suffix(".events"))
    archived(tmp_path, [plain(10)])
    archive = Archive(tmp_path)
    assert (archive.first, archive.last) == (NOON, NOON + 10)
    assert archive.events(0, NOON * 2) == []


def test_the_highest_number_is_followed_by_a_longer_one(tmp_path: Path) -> None:
    (tmp_path / "999999999999-20231114-120000.gpumon").write_bytes(b"junk")
    archived(tmp_path, [plain(0)])
    archived(tmp_path, [plain(10)])
    assert Archive(tmp_path).last == NOON + 10


def test_what_cannot_be_removed_ends_nothing(tmp_path: Path) -> None:
    folder = tmp_path / SEGMENT
    folder.mkdir()
    os.utime(folder, (NOON, NOON))
    samples = [plain(86400 * 30 + second) for second in range(3)]
    archived(tmp_path, samples, Bounds(days=1))
    assert list(Archive(tmp_path).samples(0, NOON * 2)) == samples


def test_a_bound_that_cannot_be_kept_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = demo_samples(20)
    archived(tmp_path, samples[:10])
    log = writer(tmp_path, Bounds(bytes=segments(tmp_path)[0].stat().st_size + 20_000))

    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    for number, sample in enumerate(samples[10:]):
        log.write({None: sample}, number)
    assert log.trouble == f"{tmp_path} is too large: its oldest files cannot be removed."
    log.close()
    assert list(Archive(tmp_path).samples(0, NOON * 2)) == list(samples)


def test_a_folder_that_was_removed_has_one_writer_again(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    log = writer(folder)
    log.write({None: plain(0)}, 0)
    shutil.rmtree(folder)
    other = writer(folder)
    other.write({None: plain(1)}, 0)
    with pytest.raises(LogError, match="already"):
        log.write({None: plain(2)}, 2)
    other.close()
    log.write({None: plain(3)}, 3)
    with pytest.raises(LogError, match="already"):
        writer(folder)
    log.close()
    assert [sample.time - NOON for sample in Archive(folder).samples(0, NOON * 2)] == [1, 3]


def test_a_file_in_place_of_the_folder_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    folder.touch()
    with pytest.raises(LogError, match="is no folder"):
        writer(folder)


def test_a_file_that_may_not_grow_is_followed_by_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = writer(tmp_path)
    log.write({None: plain(0)}, 0)
    real = os.write
    small = segments(tmp_path)[0].stat()

    def write(descriptor: int, data: bytes) -> int:
        if os.path.samestat(os.fstat(descriptor), small):
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return real(descriptor, data)

    monkeypatch.setattr("gpumon.recording.archive.writer.os.write", write)
    with pytest.raises(OSError, match="too large"):
        log.write({None: plain(1)}, 1)
    log.write({None: plain(2)}, 2)
    log.close()
    assert list(Archive(tmp_path).samples(0, NOON * 2)) == [plain(0), plain(2)]


def test_millions_of_marks_are_not_looked_at(tmp_path: Path) -> None:
    archived(tmp_path, [plain(0)])
    header = segments(tmp_path)[0].read_bytes().partition(b"\n")[0] + b"\n"
    (tmp_path / SEGMENT).write_bytes(header + FRAME * 2**21)
    archive = Archive(tmp_path)
    began = time.process_time()
    assert archive.last == NOON
    assert time.process_time() - began < 1
