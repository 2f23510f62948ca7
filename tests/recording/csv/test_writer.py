"""What the files of a log may be, and what is made of what an ended writer left in them."""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import socket
import stat
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpumon.recording.csv.files import log_files
from gpumon.recording.csv.opening import LogError
from gpumon.recording.csv.rows import ONE_MACHINE, GpuRows, ProcessRows
from gpumon.recording.csv.writer import LogWriter
from tests.log_headers import GPU_HEADER, PROCESS_HEADER
from tests.recording.csv.reading import cuts
from tests.recording.csv.recording import CARDS, numbers, rows, sample

if TYPE_CHECKING:
    from collections.abc import Iterator

STRANGER = 12345
"""The number of a user who is not us."""


class Log:
    """A log in a folder, written without a thread."""

    def __init__(self, folder: Path) -> None:
        self.files = log_files(folder / "run")
        self.gpus, self.processes = self.files.gpus, self.files.processes
        self._writers: list[LogWriter] = []

    def writer(self, rotate: int | None = None, keep: int | None = None) -> LogWriter:
        writer = LogWriter(self.files, rotate, keep, ONE_MACHINE)
        self._writers.append(writer)
        return writer

    def write(self, writer: LogWriter, *which: int) -> None:
        for number in which:
            writer.ready()
            one = sample(number)
            writer.write(GpuRows().of(one, number), ProcessRows().of(one, number))

    def written(self, *which: int) -> None:
        """Continue, write samples and let go."""
        writer = self.writer()
        writer.ready()
        self.write(writer, *which)
        writer.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()

    def refusal(self) -> str:
        """What is said when it is not opened."""
        writer = self.writer()
        with pytest.raises(LogError) as refused:
            writer.ready()
        writer.close()
        return str(refused.value)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path)
    yield log
    log.close()


def test_files_are_readable_by_nobody_else(log: Log) -> None:
    log.gpus.touch(0o644)
    before = os.umask(0)
    try:
        log.written(1)
    finally:
        os.umask(before)

    assert log.gpus.stat().st_mode & 0o777 == 0o600
    assert log.processes.stat().st_mode & 0o777 == 0o600


def test_a_log_is_continued_after_its_last_sample(log: Log) -> None:
    log.written(1, 2)
    log.written(3)

    assert sorted(set(numbers(rows(log.gpus)))) == [1, 2, 3]
    assert log.gpus.read_bytes().count(b"timestamp") == 1
    assert log.processes.read_bytes().count(b"timestamp") == 1


@pytest.mark.slow
def test_a_sample_cut_short_anywhere_is_cut_off_when_the_log_is_continued(log: Log) -> None:
    log.written(1, 2)
    lists, cards = log.processes.read_bytes(), log.gpus.read_bytes()
    log.written(3)
    more_lists, more_cards = log.processes.read_bytes(), log.gpus.read_bytes()

    def continued(processes: bytes, gpus: bytes) -> tuple[bytes, bytes]:
        log.processes.write_bytes(processes)
        log.gpus.write_bytes(gpus)
        log.written()
        return log.processes.read_bytes(), log.gpus.read_bytes()

    for end in (*cuts(more_lists, len(lists)), len(more_lists)):
        assert continued(more_lists[:end], cards) == (lists, cards)
    for end in cuts(more_cards, len(cards)):
        # Between two lines the cut shows only at the end of a page; see below.
        if more_cards[end - 1 : end] != b"\n" or end == len(cards):
            assert continued(more_lists, more_cards[:end]) == (lists, cards), end
    assert continued(more_lists, more_cards) == (more_lists, more_cards)


def test_a_sample_cut_short_between_two_lines_at_a_page_is_cut_off(log: Log) -> None:
    log.written(1, 2)
    whole = log.gpus.read_bytes()
    log.written(3)
    lines = log.gpus.read_bytes()[len(whole) :].splitlines(keepends=True)
    # So that the page ends where the third line of the last sample does.
    short = sum(map(len, lines[:3]))
    padding = b"x" * (-(len(whole) + short) % 4096)
    whole = whole.replace(b"ada-07", b"ada-07" + padding, 1)
    log.gpus.write_bytes(whole + b"".join(lines[:3]))
    assert log.gpus.stat().st_size % 4096 == 0

    log.written()

    assert log.gpus.read_bytes() == whole


def test_fewer_cards_than_before_are_no_cut(log: Log) -> None:
    log.written(1, 2)
    whole = log.gpus.read_bytes()
    one = sample(3, cards=CARDS - 1)
    writer = log.writer()
    writer.ready()
    writer.write(GpuRows().of(one, 3), ProcessRows().of(one, 3))
    writer.close()
    fewer = log.gpus.read_bytes()

    log.written()

    assert log.gpus.read_bytes() == fewer != whole


def test_zeros_that_a_crash_left_are_cut_off(log: Log) -> None:
    log.written(1, 2)
    lists, cards = log.processes.read_bytes(), log.gpus.read_bytes()
    log.processes.write_bytes(lists + bytes(300_000))
    log.gpus.write_bytes(cards + bytes(300_000))

    log.written()

    assert (log.processes.read_bytes(), log.gpus.read_bytes()) == (lists, cards)


@pytest.mark.parametrize("size", [0, 1, 100, len(GPU_HEADER) - 1])
def test_a_header_cut_short_is_begun_again(log: Log, size: int) -> None:
    log.gpus.write_bytes(GPU_HEADER[:size])
    log.processes.write_bytes(PROCESS_HEADER[: size // 4])

    log.written(1)

    assert numbers(rows(log.gpus)) == [1] * CARDS
    assert len(rows(log.processes)) == 3


def test_a_log_with_other_columns_is_rotated_away_whole(log: Log) -> None:
    old = b"timestamp,index,gpumon_log\n2024-01-01T00:00:00.000+00:00,0,0\n"
    log.gpus.write_bytes(old)
    log.processes.write_bytes(PROCESS_HEADER)

    log.written(1)

    assert log.gpus.with_name("run.part0001.csv").read_bytes() == old
    assert log.gpus.with_name("run.part0001.processes.csv").read_bytes() == PROCESS_HEADER
    assert numbers(rows(log.gpus)) == [1] * CARDS


@pytest.mark.parametrize("name", ["run.csv", "run.processes.csv"])
@pytest.mark.parametrize(
    "content",
    [
        b"Dear diary\n",
        b"timestamp, index, name\n2024/01/01 00:00:00.000, 0, NVIDIA H100\n",
        b"\n",
        b"\xff\xfe\0t\0i",
        b"x" * 200_000,
    ],
)
def test_a_file_that_is_no_log_is_refused_and_left_as_it_is(
    log: Log, name: str, content: bytes
) -> None:
    file = log.gpus.with_name(name)
    file.write_bytes(content)
    before = file.stat()

    assert f"{name} is not a log of gpumon" in log.refusal()

    assert file.read_bytes() == content
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert [path.name for path in file.parent.iterdir()] == [name]


@pytest.mark.parametrize("name", ["run.csv", "run.processes.csv"])
def test_what_is_no_file_is_refused_by_what_it_is(log: Log, name: str) -> None:
    place = log.gpus.with_name(name)

    place.mkdir()
    assert "is a directory" in log.refusal()
    place.rmdir()

    os.mkfifo(place)
    assert "is a pipe" in log.refusal()
    place.unlink()

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        assert "is a socket" in log.refusal()
    place.unlink()

    place.symlink_to("/dev/null")
    assert f"{name} is a device" in log.refusal()


@pytest.mark.root
@pytest.mark.parametrize("name", ["run.csv", "run.processes.csv"])
def test_a_file_of_another_user_is_refused_by_name(log: Log, name: str) -> None:
    theirs = log.gpus.with_name(name)
    theirs.touch()
    os.chown(theirs, STRANGER, -1)

    assert f"{name} belongs to user {STRANGER}" in log.refusal()
    assert theirs.read_bytes() == b""


def test_our_own_symbolic_links_are_followed(log: Log) -> None:
    target = log.gpus.with_name("elsewhere")
    target.mkdir()
    log.gpus.symlink_to("second")
    log.gpus.with_name("second").symlink_to(target / "cards")

    log.written(1)
    log.written(2)

    assert sorted(set(numbers(rows(target / "cards")))) == [1, 2]


def test_links_that_lead_nowhere_end(log: Log) -> None:
    log.gpus.symlink_to(log.gpus)

    assert "is a link to another link" in log.refusal()


@pytest.mark.root
def test_a_symbolic_link_that_another_user_made_is_refused_by_name(log: Log) -> None:
    target = log.gpus.with_name("precious")
    log.gpus.symlink_to(target)
    os.chown(log.gpus, STRANGER, -1, follow_symlinks=False)

    sentence = log.refusal()

    assert f"run.csv is a symbolic link that user {STRANGER} made" in sentence
    assert not target.exists()


def test_a_refusal_leaves_no_new_file(log: Log) -> None:
    os.mkfifo(log.processes)

    log.refusal()

    assert not log.gpus.exists()


def test_a_second_writer_is_refused_and_told_whose_log_it_is(log: Log) -> None:
    log.write(log.writer(), 1)

    sentence = log.refusal()

    assert "run.csv is already being written by" in sentence
    # Some sandboxes show no locks.
    if f":{log.gpus.stat().st_ino} " in Path("/proc/locks").read_text():
        assert f"(PID {os.getpid()})" in sentence


def test_a_log_being_rotated_has_no_moment_for_another_writer(log: Log) -> None:
    writer = log.writer()
    log.write(writer, 1)
    part = log.gpus.with_name("run.part0001.csv")
    log.gpus.rename(part)

    assert "run.part0001.csv is already being written by" in log.refusal()
    assert not log.gpus.exists()
    log.write(writer, 2)

    assert numbers(rows(log.gpus)) == [2] * CARDS
    assert len(rows(log.gpus.with_name("run.part0001.processes.csv"))) == 3


def test_rotation_keeps_whole_samples_and_repeats_the_header(log: Log) -> None:
    size = len(GpuRows().of(sample(1), 1))
    log.write(log.writer(rotate=len(GPU_HEADER) + 2 * size), *range(10))

    found = sorted(log.gpus.parent.glob("run.part????.csv"))
    assert [path.name for path in found] == [
        "run.part0001.csv",
        "run.part0002.csv",
        "run.part0003.csv",
    ]
    each = [numbers(rows(path)) for path in (*found, log.gpus)]
    assert [*chain(*each)] == [number for number in range(10) for _ in range(CARDS)]
    assert all(len(part) % CARDS == 0 for part in each)
    lists = [numbers(rows(path.with_suffix(".processes.csv"))) for path in found]
    assert [set(part) for part in lists] == [set(part) for part in each[:-1]]


def part_names(*numbers: int) -> set[str]:
    return {f"run.part{n:04}{end}" for n in numbers for end in (".csv", ".processes.csv")}


def test_only_the_oldest_parts_are_removed_and_nothing_else(log: Log) -> None:
    folder = log.gpus.parent
    log.write(log.writer(rotate=1), *range(3))
    first = folder / "run.part0001.csv"
    packed = first.with_name("run.part0001.csv.gz")
    packed.write_bytes(gzip.compress(first.read_bytes()))
    first.unlink()
    # What people call the logs of their jobs, and others that are none of this log's parts.
    whole = (folder / "run.part0002.csv").read_bytes()
    others = (
        *("run.88123.csv", "run.1.csv", "run.2.csv", "run.2.processes.csv", "run.20250101.csv"),
        *("run.part0001.csv.bak", "run.part001.csv", "run.part00001.csv", "runs.part0001.csv"),
    )
    for name in others:
        (folder / name).write_bytes(whole)
    log.close()

    log.write(log.writer(rotate=1, keep=2), 4)

    assert {path.name for path in folder.iterdir()} == {
        *others,
        *part_names(3, 4),
        "run.csv",
        "run.processes.csv",
    }


@pytest.mark.parametrize("kind", ["text", "packed text", "folder", "link", "locked", "gap", "user"])
def test_what_may_be_somebody_elses_is_not_removed_nor_what_lies_below_it(
    log: Log, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = log.gpus.parent
    log.write(log.writer(rotate=1), *range(3))
    log.close()
    second = folder / "run.part0002.csv"
    spared = part_names(1, 2)
    descriptor = os.open(second, os.O_RDONLY)
    if kind == "locked":
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    elif kind == "user":
        asked = Path.lstat

        def lstat(path: Path) -> os.stat_result:
            status = list(asked(path))
            status[stat.ST_UID] += path == second
            return os.stat_result(status)

        monkeypatch.setattr(Path, "lstat", lstat)
    else:
        moved = second.rename(folder / "moved")
        spared.add("moved")
        if kind == "text":
            second.write_text("my own measurements\n")
        elif kind == "packed text":
            spared = spared - {"run.part0002.csv"} | {"run.part0002.csv.gz"}
            second.with_name("run.part0002.csv.gz").write_bytes(gzip.compress(b"timestamp\n1\n"))
        elif kind == "folder":
            second.mkdir()
        elif kind == "link":
            second.symlink_to(moved)
        else:
            second.with_suffix(".processes.csv").unlink()
            spared -= part_names(2)

    log.write(log.writer(rotate=1, keep=1), *range(4, 7))
    os.close(descriptor)

    assert {path.name for path in folder.iterdir()} == {
        *spared,
        *part_names(6),
        "run.csv",
        "run.processes.csv",
    }


def test_rotation_takes_no_name_that_something_has(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = log.gpus.with_name("run.part0001.csv")
    writer = log.writer(rotate=1)
    with monkeypatch.context() as patch:
        # It comes there after the numbers have been looked at.
        patch.setattr("gpumon.recording.csv.writer.part_numbers", lambda _: [])
        other.write_text("mine\n")
        log.write(writer, 1, 2)

    assert other.read_text() == "mine\n"
    assert writer.trouble is not None
    assert "cannot be rotated (File exists)" in writer.trouble
    assert numbers(rows(log.gpus)) == [1] * CARDS + [2] * CARDS
    log.write(writer, 3)

    assert other.read_text() == "mine\n"
    assert numbers(rows(log.gpus.with_name("run.part0002.csv"))) == [
        number for number in (1, 2, 3) for _ in range(CARDS)
    ]


def test_where_files_have_one_name_only_rotation_overwrites_nothing_either(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def linkless(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", linkless)
    writer = log.writer(rotate=1)
    log.write(writer, 1)
    assert numbers(rows(log.gpus.with_name("run.part0001.csv"))) == [1] * CARDS
    monkeypatch.setattr("gpumon.recording.csv.writer.part_numbers", lambda _: [])

    log.write(writer, 2)

    assert writer.trouble is not None
    assert "cannot be rotated (File exists)" in writer.trouble
    assert numbers(rows(log.gpus.with_name("run.part0001.csv"))) == [1] * CARDS


def test_after_the_highest_number_a_log_grows_on(log: Log) -> None:
    for name in ("run.part999999999.csv", "run.part1000000000.csv"):
        log.gpus.with_name(name).write_text("mine\n")
    writer = log.writer(rotate=1, keep=1)

    log.write(writer, 1, 2)

    assert writer.trouble is not None
    assert "cannot be rotated (no number follows 999999999)" in writer.trouble
    assert numbers(rows(log.gpus)) == [1] * CARDS + [2] * CARDS
    assert log.gpus.with_name("run.part1000000000.csv").read_text() == "mine\n"


def test_a_log_is_not_refused_for_another_whose_name_has_a_number(log: Log) -> None:
    other = log.gpus.with_name("run.5.csv")
    other.write_bytes(GPU_HEADER)
    descriptor = os.open(other, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    log.write(log.writer(), 1)

    os.close(descriptor)
    assert numbers(rows(log.gpus)) == [1] * CARDS


@pytest.mark.parametrize("name", ["run.csv", "run.processes.csv"])
def test_an_end_between_the_two_names_of_a_rotation_is_made_good(log: Log, name: str) -> None:
    log.written(1)
    for moved in ("run.csv", "run.processes.csv"):
        at = log.gpus.with_name(moved)
        to = at.with_name(moved.replace("run", "run.part0001"))
        to.hardlink_to(at)
        if moved == name:
            break
        at.unlink()

    log.written(2)

    part = log.gpus.with_name("run.part0001.csv")
    if name == "run.csv":
        assert not part.exists()
        assert numbers(rows(log.gpus)) == [1] * CARDS + [2] * CARDS
    else:
        assert numbers(rows(part)) == [1] * CARDS
        assert numbers(rows(log.gpus)) == [2] * CARDS
        assert numbers(rows(part.with_suffix(".processes.csv"))) == [1] * 3
        assert numbers(rows(log.processes)) == [2] * 3


def test_an_end_between_the_two_moves_of_a_rotation_is_made_good(log: Log) -> None:
    log.written(1)
    log.gpus.rename(log.gpus.with_name("run.part0001.csv"))

    log.written(2)

    assert numbers(rows(log.gpus.with_name("run.part0001.processes.csv"))) == [1] * 3
    assert numbers(rows(log.processes)) == [2] * 3


def test_a_log_that_cannot_be_rotated_grows_on(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = log.writer(rotate=1)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        log.write(writer, 1, 2)
        assert writer.trouble is not None
        assert "cannot be rotated (Permission denied)" in writer.trouble
    assert numbers(rows(log.gpus)) == [1] * CARDS + [2] * CARDS

    log.write(writer, 3)

    assert writer.trouble is None
    assert numbers(rows(log.gpus)) == []


@pytest.mark.parametrize("name", ["run.csv", "run.processes.csv"])
def test_a_file_that_is_taken_away_is_begun_anew(log: Log, name: str) -> None:
    writer = log.writer()
    log.write(writer, 1)

    log.gpus.with_name(name).unlink()

    assert writer.ready()
    log.write(writer, 2)
    assert 2 in numbers(rows(log.gpus))
    assert 2 in numbers(rows(log.processes))
    assert "already being written" in log.refusal()


def test_a_file_that_another_was_put_in_place_of_is_left_to_whoever_did(log: Log) -> None:
    writer = log.writer()
    log.write(writer, 1)
    # As logrotate does with `create`.
    aside = log.gpus.with_name("yesterday")
    log.gpus.rename(aside)
    log.gpus.touch()

    log.write(writer, 2)

    assert numbers(rows(aside)) == [1] * CARDS
    assert numbers(rows(log.gpus)) == [2] * CARDS


def test_a_file_that_is_emptied_gets_its_header_again(log: Log) -> None:
    writer = log.writer()
    log.write(writer, 1, 2)

    os.truncate(log.gpus, 0)
    log.write(writer, 3)

    assert numbers(rows(log.gpus)) == [3] * CARDS


def test_a_failed_write_leaves_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = log.writer()
    log.write(writer, 1)
    before = log.gpus.read_bytes(), log.processes.read_bytes()
    write = os.write
    descriptors: list[int] = []

    def fail_at_the_second_file(descriptor: int, data: bytes) -> int:
        descriptors.append(descriptor)
        if len(set(descriptors)) == 1:
            return write(descriptor, data)
        if len(descriptors) == 2:
            return write(descriptor, data[:700])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail_at_the_second_file)
        with pytest.raises(OSError, match="No space"):
            log.write(writer, 2)

    assert (log.gpus.read_bytes(), log.processes.read_bytes()) == before
    log.write(writer, 3)
    assert sorted(set(numbers(rows(log.processes)))) == [1, 3]
