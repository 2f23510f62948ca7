"""The archive keeps every field of every sample, whatever happens to its writer and its files."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import defstruct
from msgspec.structs import replace

from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.codec import encode
from gpumon.model.snapshot import Host, Snapshot
from gpumon.model.thresholds import Thresholds
from gpumon.recording.archive import Archive, ArchiveLog, Bounds, find_archive
from gpumon.recording.archive.segment_format import (
    FRAME,
    FRAME_SAMPLES,
    MOST_CONTENT,
    MOST_WINDOW_LOG,
    RecordHead,
    SampleContent,
)
from gpumon.recording.csv.opening import LogError
from gpumon.recording.encoded import SnapshotEncoder
from gpumon.recording.recording import RecordingError
from gpumon.system.zstandard import zstd
from tests.build import NOON, gpu, process, snapshot
from tests.known import known
from tests.recording.archive.archives import (
    archived,
    demo_samples,
    events_of,
    every,
    intervals,
    plain,
    samples_of,
    segments,
    states,
    writer,
)
from tests.screen import PATIENCE

DEMO = demo_samples(200)
HOUR = 3600
SEGMENT = "000002-20231114-120000.gpumon"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The archive of the demo."""
    return Archive(archived(tmp_path_factory.mktemp("demo"), DEMO))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ArchiveLog]:
    """A writer that has begun."""
    log = writer(tmp_path)
    yield log
    log.close()


def test_every_field_of_every_sample_comes_back(demo: Archive) -> None:
    places = list(range(len(DEMO)))
    random.Random(1).shuffle(places)
    for place in places:
        assert demo.at(DEMO[place].time + 0.5) == DEMO[place]
    assert list(demo.between(DEMO[50].time, DEMO[130].time, 1000)) == list(DEMO[50:131])


def test_a_week_of_eight_gpus_fits_into_its_bound(demo: Archive) -> None:
    size = sum(path.stat().st_size for path in demo.folder.iterdir()) / len(DEMO)
    assert size * 7 * 86400 < 500e6


def header_of(path: Path) -> bytes:
    return path.read_bytes().partition(b"\n")[0] + b"\n"


@pytest.mark.slow
@given(st.data())
def test_a_file_that_is_cut_anywhere_keeps_what_is_before(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = archived(tmp_path_factory.mktemp("cut"), DEMO[:70])
    (path,) = segments(folder)
    whole = path.read_bytes()
    header = len(header_of(path))
    cut = data.draw(st.integers(header, len(whole)))
    path.write_bytes(whole[:cut])
    archive = Archive(folder)
    left = [] if archive.first is None else every(archive)
    assert left == [sample.time for sample in DEMO[: len(left)]]
    assert [archive.at(time) for time in left] == list(DEMO[: len(left)])
    # Not more is lost than what is behind the cut.
    assert len(left) >= int(70 * (cut - header) / (len(whole) - header)) - 25


@pytest.mark.slow
@given(st.data())
def test_a_damaged_byte_costs_a_frame_at_most(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = archived(tmp_path_factory.mktemp("damage"), DEMO[:130])
    (path,) = segments(folder)
    whole = bytearray(path.read_bytes())
    header = len(header_of(path))
    place = data.draw(st.integers(header, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    archive = Archive(folder)
    shown = [archive.at(sample.time) for sample in DEMO[:130]]
    same = sum(one == sample for one, sample in zip(shown, DEMO, strict=False))
    assert same >= 130 - 60
    assert all(one is None or one in DEMO for one in shown)


def test_what_is_no_part_of_it_is_left_out(tmp_path: Path) -> None:
    archived(tmp_path, DEMO[:5])
    (tmp_path / "000002-20260101-000000.gpumon").write_bytes(b"\x00" * 5000)
    (tmp_path / "000003-20260101-000000.gpumon").write_text('{"schema":"gpumon.history/99"}\n')
    (tmp_path / "000004-20260101-000000.gpumon").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    archive = Archive(tmp_path)
    assert archive.last == DEMO[4].time
    assert archive.is_damaged


def record(time: float, packed: bytes, *, is_first: bool = True) -> bytes:
    """A record with these compressed bytes, whose checksums are right."""
    return RecordHead(is_first, time, len(packed), zlib.crc32(packed)).packed() + packed


def bomb() -> bytes:
    """A frame of a few kilobytes that would be unpacked to half a gigabyte."""
    packer = zstd.ZstdCompressor(
        options={zstd.CompressionParameter.window_log: MOST_WINDOW_LOG - 1}
    )
    large = Snapshot(NOON, Host("x" * (MOST_CONTENT - 2000)), ())
    frame = b""
    for second in range(FRAME_SAMPLES):
        head, processes, holders = SnapshotEncoder().encode(large).after(None)
        content = encode(SampleContent(head, processes, holders))
        packed = packer.compress(content, zstd.ZstdCompressor.FLUSH_BLOCK)
        frame += record(NOON + second, packed, is_first=not second)
    return frame


@pytest.mark.slow
@pytest.mark.parametrize(
    "forge",
    [
        lambda: record(NOON, record(NOON + 1, b"") + b"."),
        lambda: record(NOON, b""),
        lambda: record(math.inf, b"") + record(1e300, b""),
        lambda: record(-math.nan, b"") + record(-1e300, b""),
        lambda: record(NOON, b"") + b"".join(record(NOON, b"", is_first=False) for _ in range(99)),
        bomb,
    ],
    ids=["nested", "empty", "beyond", "nan", "many", "bomb"],
)
def test_a_forged_file_is_left_out_in_bounded_memory(
    tmp_path: Path, forge: Callable[[], bytes]
) -> None:
    (path,) = segments(archived(tmp_path, DEMO[:2]))
    path.write_bytes(header_of(path) + forge())
    tracemalloc.start()
    try:
        archive = Archive(tmp_path)
        times = [archive.first, archive.last, archive.step(NOON, 5), archive.step(NOON, -5)]
        assert all(time is None or abs(time - NOON) < HOUR for time in times)
        assert archive.resume(states(), NOON + 59) is False
        assert archive.at(NOON + 59) is None or forge is bomb
        assert len([*archive.samples(-math.inf, math.inf)]) <= 2
        assert len([*archive.between(0, 2 * NOON, 1000)]) <= 2
        assert tracemalloc.get_traced_memory()[1] < 200 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_thousands_of_files_without_a_sample(tmp_path: Path) -> None:
    archived(tmp_path, [plain(0)])
    header = header_of(*segments(tmp_path))
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
    samples = DEMO[:20]
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
    tmp_path: Path, log: ArchiveLog, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert list(Archive(tmp_path).samples(0, NOON * 2)) == [plain(0), plain(2)]


def test_millions_of_marks_are_not_looked_at(tmp_path: Path) -> None:
    archived(tmp_path, [plain(0)])
    (tmp_path / SEGMENT).write_bytes(header_of(*segments(tmp_path)) + FRAME * 2**21)
    archive = Archive(tmp_path)
    began = time.process_time()
    assert archive.last == NOON
    assert time.process_time() - began < 1


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "none")
    with pytest.raises(RecordingError, match="cannot be read"):
        _ = archive.first


def test_it_follows_its_writer_after_its_newest_file_was_removed(
    tmp_path: Path, log: ArchiveLog
) -> None:
    archive = Archive(tmp_path, refresh_seconds=0.0)
    for number in (0, 1, HOUR + 5, HOUR + 6):
        log.write({None: plain(number)}, number)
    assert archive.last == NOON + HOUR + 6
    segments(tmp_path)[-1].unlink()
    assert archive.last == NOON + 1
    log.write({None: plain(HOUR + 7)}, HOUR + 7)
    assert archive.last == NOON + HOUR + 7


def test_a_file_whose_header_is_written_after_a_look_is_used(tmp_path: Path) -> None:
    (path,) = segments(archived(tmp_path, DEMO[:2]))
    content = path.read_bytes()
    path.write_bytes(b"")
    archive = Archive(tmp_path, refresh_seconds=0.0)
    assert archive.first is None
    path.write_bytes(content)
    assert archive.first == DEMO[0].time


def test_accidents_of_events_move_with_the_clock(tmp_path: Path, log: ArchiveLog) -> None:
    accident = Accident(NOON + 1, AccidentKind.RESET, "GPU-0")
    for number in range(4):
        seen = replace(plain(number), accidents=(accident,) if number > 1 else ())
        log.write({None: seen}, number)
    log.write({None: plain(4 - 7200)}, 4)
    archive = Archive(tmp_path)
    (event,) = events_of(archive)
    accident = known(event.accident)
    assert [accident] == list(known(archive.at(event.time)).accidents)
    assert accident.time == pytest.approx(NOON + 1 - 7200)


def test_a_killed_writer_leaves_all_it_wrote(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from tests.recording.archive.archives import writer, demo_samples\n"
        "log = writer(Path(sys.argv[1]))\n"
        "for number, sample in enumerate(demo_samples(30)): log.write({None: sample}, number)\n"
        "print('written', flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"written\n"
        with pytest.raises(LogError, match=r"is kept by .* already"):
            writer(tmp_path)
        running.kill()
    assert running.wait(PATIENCE) == -9
    archived(tmp_path, DEMO[30:40])
    assert samples_of(Archive(tmp_path)) == list(DEMO[:40])


def test_a_clock_that_is_set_back_between_runs_moves_what_was_before(tmp_path: Path) -> None:
    for run in (range(10), range(10, 20)):
        log = writer(tmp_path)
        for number in run:
            log.write({None: plain(number - 7200 * (run.start > 0), number)}, number)
        log.close()
    archive = Archive(tmp_path)
    times = every(archive)
    assert [known(archive.at(time)).gpus[0].memory_used for time in times] == list(range(20))
    assert times[-1] == NOON + 19 - 7200
    assert times == pytest.approx([NOON + number - 7200 for number in range(20)])


@pytest.mark.slow
def test_the_oldest_hours_go_first(tmp_path: Path) -> None:
    samples = [replace(DEMO[place % 200], time=NOON + 30 * place) for place in range(1200)]
    bound = Bounds(bytes=200_000)
    folder = archived(tmp_path, samples, bound)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= bound.bytes
    archive = Archive(folder)
    assert archive.last == samples[-1].time
    assert NOON < (archive.first or 0) < samples[-1].time - HOUR


def test_days_that_are_over_go(tmp_path: Path) -> None:
    archived(tmp_path, [plain(0)])
    (old,) = segments(tmp_path)
    os.utime(old, (NOON, NOON))
    archived(tmp_path, [plain(86400 * 2.5)], Bounds(days=2))
    archived(tmp_path, [plain(86400 * 2.6)], Bounds(days=2))
    assert old not in segments(tmp_path)
    assert Archive(tmp_path).first == NOON + 86400 * 2.5


def test_a_full_disk_loses_whole_samples_only(
    tmp_path: Path, log: ArchiveLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, full = os.write, False

    def write(descriptor: int, data: bytes) -> int:
        if full and len(data) > 40:
            return real(descriptor, data[:40])
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    monkeypatch.setattr("gpumon.recording.archive.writer.os.write", write)
    kept = []
    for number, sample in enumerate(DEMO[:40]):
        full = 10 <= number < 20
        try:
            log.write({None: sample}, number)
        except OSError:
            assert full
        else:
            kept.append(sample)
    archive = Archive(tmp_path)
    assert kept == [*DEMO[:10], *DEMO[20:40]]
    assert samples_of(archive) == kept


def test_command_lines_can_be_left_out(tmp_path: Path) -> None:
    log = writer(tmp_path, commands=False)
    log.write({None: DEMO[0]}, 0)
    log.close()
    found = known(Archive(tmp_path).at(DEMO[0].time))
    assert found.processes
    assert not any(process.command for process in found.processes)
    assert all(not suspect.command for suspect in (found.holders and found.holders.suspects) or ())


def test_names_that_are_not_utf_8_do_no_harm(tmp_path: Path) -> None:
    hostile = snapshot(0, gpu(), processes=(replace(process(1), command=("\udce4", "\x1b[2J")),))
    found = known(Archive(archived(tmp_path, [hostile])).at(hostile.time))
    assert found.processes[0].command == ("\ufffd", "\x1b[2J")


def test_only_its_user_may_read_it(tmp_path: Path) -> None:
    folder = archived(tmp_path / "history", DEMO[:2])
    modes = {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert (folder.stat().st_mode & 0o777, modes) == (0o700, {0o600})


# States


def test_states_go_on_as_if_there_had_been_no_restart(demo: Archive) -> None:
    for place in (0, 61, 69, 70, 119, 199):
        expected, resumed = states(DEMO[: place + 1]), states()
        assert demo.resume(resumed, DEMO[place].time)
        assert intervals(resumed) == intervals(expected)
        for listed in DEMO[place].processes:
            assert resumed.process_idle(listed.id) == expected.process_idle(listed.id)


def test_states_by_other_thresholds_are_not_used(demo: Archive) -> None:
    history = states(thresholds=Thresholds(idle_after=5.0))
    assert not demo.resume(history, DEMO[100].time)
    assert history.latest == DEMO[100]


def test_a_moment_late_in_a_minute_is_reached_from_near(demo: Archive) -> None:
    for place in (9, 10, 59, 119):
        history = states()
        with patch.object(history.observed, "add", wraps=history.observed.add) as add:
            assert demo.resume(history, DEMO[place].time)
        assert len(add.mock_calls) <= 10
        assert history.latest == DEMO[place]


def test_hours_of_another_version_share_what_reads_them(tmp_path: Path) -> None:
    hours = [replace(it, time=it.time + hour * HOUR) for hour in range(3) for it in DEMO[:3]]
    for path in segments(archived(tmp_path, hours)):
        line, _, content = path.read_bytes().partition(b"\n")
        header = json.loads(line)
        header["fields"]["Gpu"][-1] = "of_a_later_version"
        path.write_bytes(json.dumps(header).encode() + b"\n" + content)
    with patch("gpumon.model.codec.defstruct", wraps=defstruct) as made:
        found = [*Archive(tmp_path).samples(-math.inf, math.inf)]
    assert [it.time for it in found] == [it.time for it in hours]
    assert [call.args[0] for call in made.mock_calls].count("Gpu") == 1


# Events


def test_no_number_of_processes_crowds_accidents_out(tmp_path: Path, log: ArchiveLog) -> None:
    """2000 events of an hour are written, and the newest 5000 are known."""
    accidents = [Accident(NOON + at, AccidentKind.RESET, "GPU-0") for at in (1, 30, HOUR + 5)]
    for second in (hour + at for hour in range(0, 4 * HOUR, HOUR) for at in (0, 1, 5, 30)):
        seen = tuple([accident for accident in accidents if accident.time <= NOON + second])
        crowd = tuple([process(2000 * second + number) for number in range(1100)])
        listed = snapshot(NOON, processes=crowd, processes_at=NOON + second)
        log.write({None: replace(listed, time=NOON + second, accidents=seen)}, second)
    found = events_of(Archive(tmp_path))
    assert [event.accident for event in found if event.accident] == accidents
    assert 5000 <= len(found) <= 5000 + len(accidents)


def test_damaged_events_are_left_out(tmp_path: Path) -> None:
    archived(tmp_path, DEMO)
    (path,) = tmp_path.glob("*.events")
    whole = path.read_bytes()
    path.write_bytes(b"\x00\n{}\n[" + b"[" * 5000 + b"\n" + whole[:-3])
    assert len(events_of(Archive(tmp_path))) == whole.count(b"\n") - 1


@pytest.mark.root
def test_who_may_not_read_it_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = archived(tmp_path / "history", DEMO[:2])
    for parent in (tmp_path, *tmp_path.parents):
        if parent.is_relative_to(tmp_path.parents[1]):
            parent.chmod(0o755)
    monkeypatch.setattr("gpumon.recording.archive.places.SERVICE_FOLDER", folder)
    monkeypatch.setenv("XDG_STATE_HOME", "/nonexistent")
    os.seteuid(65534)
    try:
        note = find_archive("ada").note
    finally:
        os.seteuid(0)
    assert note == f"You may not read the history in {folder}: only members of its group may."


@pytest.mark.parametrize("folder", ["history", "var/lib/gpumon/history"])
def test_the_folder_of_a_history_is_made_with_those_above_it(tmp_path: Path, folder: str) -> None:
    for _ in range(2):
        writer(tmp_path / folder).close()
    assert (tmp_path / folder).is_dir()


def test_others_cannot_write_where_a_history_is_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        writer(tmp_path / "gpumon/history").close()
    finally:
        os.umask(before)
    for folder in (tmp_path / "gpumon", tmp_path / "gpumon/history"):
        assert folder.stat().st_mode & 0o022 == 0
    assert (tmp_path / "gpumon").stat().st_mode & 0o777 == 0o755
