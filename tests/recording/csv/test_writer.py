"""What the files of a log may be, and what is made of what an ended writer left in them."""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import socket
import stat
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from gpumon.recording.csv.files import log_files
from gpumon.recording.csv.opening import LogError
from gpumon.recording.csv.rows import ONE_MACHINE, GpuRows, ProcessRows
from gpumon.recording.csv.writer import LogWriter
from tests.known import known
from tests.log_headers import GPU_HEADER, PROCESS_HEADER
from tests.recording.csv.reading import cuts, pack
from tests.recording.csv.recording import CARDS, numbers, rows, sample

STRANGER = 12345
"""The number of a user who is not us."""


of_either_file = pytest.mark.parametrize("name", ["run.csv", "run.processes.csv"])


class Log:
    """A log in a folder, written without a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = log_files(folder / "run")
        self.gpus, self.processes = self.files.gpus, self.files.processes
        self._writers: list[LogWriter] = []

    def part(self, number: int) -> Path:
        return self.folder / f"run.part{number:04}.csv"

    @property
    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}

    @property
    def contents(self) -> tuple[bytes, bytes]:
        """Those of the processes' file and of the GPUs' file, in the order of writing."""
        return self.processes.read_bytes(), self.gpus.read_bytes()

    def writer(self, rotate: int | None = None, keep: int | None = None) -> LogWriter:
        writer = LogWriter(self.files, rotate, keep, ONE_MACHINE)
        self._writers.append(writer)
        return writer

    def write(self, writer: LogWriter, *which: int, cards: int = CARDS) -> None:
        for number in which:
            writer.ready()
            one = sample(number, cards)
            writer.write(GpuRows().of(one, number), ProcessRows().of(one, number))

    def written(self, *which: int, cards: int = CARDS) -> tuple[bytes, bytes]:
        """Continue, write samples and let go; returns what the files then have."""
        writer = self.writer()
        writer.ready()
        self.write(writer, *which, cards=cards)
        writer.close()
        return self.contents

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
    assert {file.stat().st_mode & 0o777 for file in (log.gpus, log.processes)} == {0o600}


def test_a_log_is_continued_after_its_last_sample(log: Log) -> None:
    log.written(1, 2)
    contents = log.written(3)
    assert sorted(set(numbers(rows(log.gpus)))) == [1, 2, 3]
    assert [content.count(b"timestamp") for content in contents] == [1, 1]


@pytest.mark.slow
def test_a_sample_cut_short_anywhere_is_cut_off_when_the_log_is_continued(log: Log) -> None:
    lists, cards = whole = log.written(1, 2)
    more_lists, more_cards = more = log.written(3)

    def continued(processes: bytes, gpus: bytes) -> tuple[bytes, bytes]:
        log.processes.write_bytes(processes)
        log.gpus.write_bytes(gpus)
        return log.written()

    for end in (*cuts(more_lists, len(lists)), len(more_lists)):
        assert continued(more_lists[:end], cards) == whole
    for end in cuts(more_cards, len(cards)):
        # Between two lines the cut shows only at the end of a page; see below.
        if more_cards[end - 1 : end] != b"\n" or end == len(cards):
            assert continued(more_lists, more_cards[:end]) == whole, end
    assert continued(*more) == more


def test_a_sample_cut_short_between_two_lines_at_a_page_is_cut_off(log: Log) -> None:
    _, whole = log.written(1, 2)
    _, more = log.written(3)
    lines = more[len(whole) :].splitlines(keepends=True)
    # So that the page ends where the third line of the last sample does.
    short = sum(map(len, lines[:3]))
    padding = b"x" * (-(len(whole) + short) % 4096)
    whole = whole.replace(b"ada-07", b"ada-07" + padding, 1)
    log.gpus.write_bytes(whole + b"".join(lines[:3]))
    assert log.gpus.stat().st_size % 4096 == 0
    _, continued = log.written()
    assert continued == whole


def test_fewer_cards_than_before_are_no_cut(log: Log) -> None:
    whole = log.written(1, 2)
    fewer = log.written(3, cards=CARDS - 1)
    assert log.written() == fewer != whole


def test_zeros_that_a_crash_left_are_cut_off(log: Log) -> None:
    whole = log.written(1, 2)
    for file in (log.processes, log.gpus):
        with file.open("ab") as end:
            end.write(bytes(300_000))
    assert log.written() == whole


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
    assert log.part(1).read_bytes() == old
    assert log.part(1).with_suffix(".processes.csv").read_bytes() == PROCESS_HEADER
    assert numbers(rows(log.gpus)) == [1] * CARDS


@of_either_file
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
def test_what_is_no_log_is_refused_and_left_as_it_is(log: Log, name: str, content: bytes) -> None:
    file = log.folder / name
    file.write_bytes(content)
    before = file.stat()
    assert f"{name} is not a log of gpumon" in log.refusal()
    assert file.read_bytes() == content
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert log.names == {name}


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


NO_FILES: dict[str, Callable[[Path], None]] = {
    "directory": Path.mkdir,
    "pipe": os.mkfifo,
    "socket": bind,
    "device": lambda path: path.symlink_to("/dev/null"),
}


@of_either_file
@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_refused_by_what_it_is(log: Log, name: str, kind: str) -> None:
    NO_FILES[kind](log.folder / name)
    assert f"{name} is a {kind}" in log.refusal()
    assert log.names == {name}


@pytest.mark.root
@of_either_file
def test_a_file_of_another_user_is_refused_by_name(log: Log, name: str) -> None:
    theirs = log.folder / name
    theirs.touch()
    os.chown(theirs, STRANGER, -1)
    assert f"{name} belongs to user {STRANGER}" in log.refusal()
    assert theirs.read_bytes() == b""


def test_our_own_symbolic_links_are_followed(log: Log) -> None:
    target = log.folder / "elsewhere"
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
    log.gpus.symlink_to(log.folder / "precious")
    os.chown(log.gpus, STRANGER, -1, follow_symlinks=False)
    assert f"run.csv is a symbolic link that user {STRANGER} made" in log.refusal()
    assert "precious" not in log.names


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
    log.gpus.rename(log.part(1))
    assert "run.part0001.csv is already being written by" in log.refusal()
    assert not log.gpus.exists()
    log.write(writer, 2)
    assert numbers(rows(log.gpus)) == [2] * CARDS
    assert len(rows(log.part(1).with_suffix(".processes.csv"))) == 3


def test_rotation_keeps_whole_samples_and_repeats_the_header(log: Log) -> None:
    size = len(GpuRows().of(sample(1), 1))
    log.write(log.writer(rotate=len(GPU_HEADER) + 2 * size), *range(10))
    found = sorted(log.folder.glob("run.part????.csv"))
    assert found == [log.part(number) for number in (1, 2, 3)]
    each = [numbers(rows(path)) for path in (*found, log.gpus)]
    assert [*chain(*each)] == [number for number in range(10) for _ in range(CARDS)]
    assert all(len(part) % CARDS == 0 for part in each)
    lists = [numbers(rows(path.with_suffix(".processes.csv"))) for path in found]
    assert [set(part) for part in lists] == [set(part) for part in each[:-1]]


def part_names(*numbers: int) -> set[str]:
    return {f"run.part{n:04}{end}" for n in numbers for end in (".csv", ".processes.csv")}


def test_only_the_oldest_parts_are_removed_and_nothing_else(log: Log) -> None:
    log.write(log.writer(rotate=1), *range(3))
    pack(log.part(1))
    # What people call the logs of their jobs, and others that are none of this log's parts.
    others = (
        *("run.88123.csv", "run.1.csv", "run.2.csv", "run.2.processes.csv", "run.20250101.csv"),
        *("run.part0001.csv.bak", "run.part001.csv", "run.part00001.csv", "runs.part0001.csv"),
    )
    for name in others:
        (log.folder / name).write_bytes(log.part(2).read_bytes())
    log.close()
    log.write(log.writer(rotate=1, keep=2), 4)
    assert log.names == {*others, *part_names(3, 4), "run.csv", "run.processes.csv"}


@pytest.fixture
def second(log: Log) -> Path:
    """The second part of a log of three."""
    log.write(log.writer(rotate=1), *range(3))
    log.close()
    return log.part(2)


def assert_no_part_is_removed(log: Log) -> None:
    before = log.names
    log.write(log.writer(rotate=1, keep=1), *range(4, 7))
    assert log.names == (before - part_names(3)) | part_names(6)


MAYBE_OF_OTHERS: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("my own measurements\n"),
    "packed text": lambda path: path.with_name(f"{path.name}.gz").write_bytes(
        gzip.compress(b"timestamp\n1\n")
    ),
    "folder": Path.mkdir,
    "link": lambda path: path.symlink_to("moved"),
    "gap": lambda path: path.with_suffix(".processes.csv").unlink(),
}


@pytest.mark.parametrize("put", MAYBE_OF_OTHERS.values(), ids=MAYBE_OF_OTHERS)
def test_what_may_be_somebody_elses_is_not_removed_nor_what_lies_below_it(
    log: Log, second: Path, put: Callable[[Path], object]
) -> None:
    second.rename(log.folder / "moved")
    put(second)
    assert_no_part_is_removed(log)


def test_a_locked_part_is_not_removed_nor_what_lies_below_it(log: Log, second: Path) -> None:
    with second.open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        assert_no_part_is_removed(log)


def test_a_part_of_another_user_is_not_removed_nor_what_lies_below_it(
    log: Log, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        status = list(asked(path))
        status[stat.ST_UID] += path == second
        return os.stat_result(status)

    monkeypatch.setattr(Path, "lstat", lstat)
    assert_no_part_is_removed(log)


MINE = "mine\n"
PART_NUMBERS = "gpumon.recording.csv.writer.part_numbers"


def take_the_name(log: Log, patch: pytest.MonkeyPatch) -> None:
    """As of a file that comes after the numbers have been looked at."""
    log.part(1).write_text(MINE)
    patch.setattr(PART_NUMBERS, lambda _: [])


def refuse_links(_: Log, patch: pytest.MonkeyPatch, number: int = errno.EACCES) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise PermissionError(number, os.strerror(number))

    patch.setattr(os, "link", refuse)


def take_the_name_where_files_have_one_name_only(log: Log, patch: pytest.MonkeyPatch) -> None:
    refuse_links(log, patch, errno.EPERM)
    take_the_name(log, patch)


def take_the_highest_number(log: Log, _: pytest.MonkeyPatch) -> None:
    for number in (999999999, 1000000000):
        log.part(number).write_text(MINE)


@pytest.mark.parametrize(
    ("obstruct", "why", "part"),
    [
        (take_the_name, "File exists", 2),
        (take_the_name_where_files_have_one_name_only, "File exists", 2),
        (take_the_highest_number, "no number follows 999999999", None),
        (refuse_links, "Permission denied", 1),
    ],
)
def test_a_log_that_cannot_be_rotated_grows_on(
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
    obstruct: Callable[[Log, pytest.MonkeyPatch], None],
    why: str,
    part: int | None,
) -> None:
    writer = log.writer(rotate=1)
    with monkeypatch.context() as patch:
        obstruct(log, patch)
        others = set(log.folder.glob("run.part*"))
        log.write(writer, 1, 2)
        assert f"cannot be rotated ({why})" in known(writer.trouble)
    assert numbers(rows(log.gpus)) == [1] * CARDS + [2] * CARDS
    # It is rotated once nothing is in its way.
    log.write(writer, 3)
    assert (writer.trouble is None) == (part is not None)
    grown = log.gpus if part is None else log.part(part)
    assert numbers(rows(grown)) == [number for number in (1, 2, 3) for _ in range(CARDS)]
    assert {other.read_text() for other in others} <= {MINE}


def test_a_log_is_rotated_where_files_have_one_name_only(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(log, monkeypatch, errno.EPERM)
    log.write(log.writer(rotate=1), 1)
    assert numbers(rows(log.part(1))) == [1] * CARDS


def test_a_log_is_not_refused_for_another_whose_name_has_a_number(log: Log) -> None:
    other = log.folder / "run.5.csv"
    other.write_bytes(GPU_HEADER)
    with other.open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        log.write(log.writer(), 1)
    assert numbers(rows(log.gpus)) == [1] * CARDS


def name_anew(log: Log, name: str) -> None:
    (log.folder / name.replace("run", "run.part0001")).hardlink_to(log.folder / name)


def test_an_end_before_the_old_name_of_a_rotation_is_gone_is_made_good(log: Log) -> None:
    log.written(1)
    name_anew(log, "run.csv")
    log.written(2)
    assert not log.part(1).exists()
    assert numbers(rows(log.gpus)) == [1] * CARDS + [2] * CARDS


@pytest.mark.parametrize("lists_have_both_names", [False, True])
def test_an_end_between_the_two_moves_of_a_rotation_is_made_good(
    log: Log, lists_have_both_names: bool
) -> None:
    log.written(1)
    log.gpus.rename(log.part(1))
    if lists_have_both_names:
        name_anew(log, "run.processes.csv")
    log.written(2)
    assert numbers(rows(log.part(1))) == [1] * CARDS
    assert numbers(rows(log.gpus)) == [2] * CARDS
    assert numbers(rows(log.part(1).with_suffix(".processes.csv"))) == [1] * 3
    assert numbers(rows(log.processes)) == [2] * 3


@of_either_file
def test_a_file_that_is_taken_away_is_begun_anew(log: Log, name: str) -> None:
    writer = log.writer()
    log.write(writer, 1)
    (log.folder / name).unlink()
    assert writer.ready()
    log.write(writer, 2)
    assert 2 in numbers(rows(log.gpus))
    assert 2 in numbers(rows(log.processes))
    assert "already being written" in log.refusal()


def test_a_file_that_another_was_put_in_place_of_is_left_to_whoever_did(log: Log) -> None:
    writer = log.writer()
    log.write(writer, 1)
    # As logrotate does with `create`.
    aside = log.gpus.rename(log.folder / "yesterday")
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
    before, write = log.contents, os.write
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
    assert log.contents == before
    log.write(writer, 3)
    assert sorted(set(numbers(rows(log.processes)))) == [1, 3]
