"""A running gpumon shows the archive as its own past."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.model.snapshot import Snapshot
from gpumon.recording.archive import (
    Archive,
    FoundArchive,
    find_archive,
    own_place,
)
from gpumon.recording.joined import JoinedRecording
from gpumon.recording.memory.recording import MemoryRecording
from gpumon.recording.playback import Player
from tests.build import NOON
from tests.known import known
from tests.recording.archive.archives import (
    archived,
    demo_samples,
    intervals,
    segments,
    states,
)
from tests.recording.deck import Deck, recorded

DEMO = demo_samples(150)
BORDER = 100
"""Up to here samples are in the archive only."""


def joined(recent: MemoryRecording, find: Callable[[], FoundArchive]) -> JoinedRecording:
    return JoinedRecording(recent, find, states, patience=60.0)


@pytest.fixture
def recording(tmp_path: Path) -> JoinedRecording:
    """An archive that ends where memory begins, and that memory."""
    archive = Archive(archived(tmp_path / "history", DEMO[:BORDER]), refresh_seconds=0.0)
    return joined(recorded(DEMO[BORDER:]), lambda: FoundArchive(archive))


def test_its_origin_is_said(recording: JoinedRecording, tmp_path: Path) -> None:
    _ = recording.first
    assert recording.origin(DEMO[BORDER].time) == ""
    assert recording.origin(DEMO[BORDER - 1].time) == f"history in {tmp_path / 'history'}"
    assert not recording.gaps


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("remove", "beginning"),
    [(empty, ""), (shutil.rmtree, "{} cannot be read: No such file or directory.")],
    ids=["files", "folder"],
)
def test_it_begins_where_memory_does_once_the_archive_is_gone(
    tmp_path: Path,
    recording: JoinedRecording,
    remove: Callable[[Path], None],
    beginning: str,
) -> None:
    player = Player(recording, states())
    player.source.open()
    player.source.seek(DEMO[50].time)
    before = player.source.sample()
    assert before.time == DEMO[50].time
    remove(tmp_path / "history")
    # It raises nothing.
    recording.history_of(before)
    player.source.seek(DEMO[10].time)
    assert player.source.sample().time == DEMO[BORDER].time
    assert player.source.to_event(forward=False) is None
    assert recording.at(DEMO[50].time) == DEMO[BORDER]
    assert list(recording.between(0, NOON * 2, 1000)) == list(DEMO[BORDER:])
    assert recording.step(DEMO[BORDER].time, -5) == recording.first == DEMO[BORDER].time
    assert recording.gaps == ()
    assert recording.beginning == beginning.format(tmp_path / "history")


LATER = [replace(sample, time=sample.time + 3600) for sample in DEMO[BORDER:]]


@pytest.mark.parametrize("kept", [[], LATER[5:]], ids=["no more", "from a moment later on"])
def test_a_gap_before_the_start_is_known(tmp_path: Path, kept: list[Snapshot]) -> None:
    folder = archived(tmp_path, DEMO[:30])
    (segment,) = segments(folder)
    os.utime(segment, (DEMO[29].time, DEMO[29].time))
    archived(folder, kept)
    recording = joined(recorded(LATER), lambda: FoundArchive(Archive(folder)))
    _ = recording.first
    assert recording.gaps == [(DEMO[29].time, LATER[0].time)]
    assert recording.step(DEMO[29].time, 1) == LATER[0].time


def test_without_an_archive_it_is_the_recording_of_this_run() -> None:
    recent = recorded(DEMO[:10])
    recording = joined(recent, lambda: FoundArchive(note="No history is kept."))
    assert (recording.first, recording.last) == (recent.first, recent.last)
    assert recording.step(DEMO[5].time, -20) == DEMO[0].time
    assert recording.at(0.0) == DEMO[0]
    assert recording.beginning == "No history is kept."
    assert recording.history_of(DEMO[0]) is None


def test_an_archive_on_a_disk_that_hangs_holds_nobody_up() -> None:
    hanging = threading.Event()

    def find() -> FoundArchive:
        hanging.wait()
        return FoundArchive()

    recording = JoinedRecording(recorded(DEMO[:10]), find, states)
    try:
        assert recording.first == DEMO[0].time
        assert recording.at(0.0) == DEMO[0]
        assert recording.beginning == ""
    finally:
        hanging.set()


def test_nothing_is_read_before_somebody_goes_back() -> None:
    recent = recorded(DEMO[:10])
    asked: list[int] = []

    def find() -> FoundArchive:
        asked.append(1)
        return FoundArchive()

    recording = joined(recent, find)
    assert recording.last == DEMO[9].time
    assert not asked


def test_the_past_has_the_states_of_that_time(recording: JoinedRecording) -> None:
    shown, history = Deck(recording, states(DEMO[BORDER:]), DEMO[80].time).settle()
    assert shown.time == DEMO[80].time
    assert intervals(history) == intervals(states(DEMO[:81]))


# Where it is


def test_of_two_the_one_that_is_kept_now_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("gpumon.recording.archive.places.SERVICE_FOLDER", tmp_path / "service")
    (own := tmp_path / "state/gpumon/history/ada").mkdir(parents=True)
    archived(own, DEMO[:50])
    (tmp_path / "service").mkdir()
    assert found_in("ada") == own
    old = [replace(sample, time=sample.time - 86400) for sample in DEMO[:50]]
    archived(tmp_path / "service", old)
    assert found_in("ada") == own
    archived(tmp_path / "service", [replace(DEMO[0], time=DEMO[60].time)])
    assert found_in("ada") == tmp_path / "service"
    assert find_archive("ada", str(tmp_path / "none")).archive is None
    assert found_in("ada", str(own)) == own


def found_in(host: str, folder: str | None = None) -> Path | None:
    archive = find_archive(host, folder).archive
    return None if archive is None else archive.folder


@pytest.mark.parametrize("host", ["..", "a/../../b", "", "\x1b[2J", "x" * 300])
def test_the_name_of_a_machine_never_leads_out(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("gpumon.recording.archive.places.os.geteuid", lambda: 1000)
    folder = own_place(host).folder
    assert folder.resolve().parent == (tmp_path / "gpumon/history").resolve()


@pytest.mark.parametrize(
    ("named", "folder"), [("~/history", "home/history"), ("../kept", "config/kept")]
)
def test_a_folder_of_the_configuration_is_below_that_of_the_user_or_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, folder: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir("/")
    archived(own_place("ada", named).folder, DEMO[:10])
    assert known(found_in("ada", named)).resolve() == tmp_path / folder


def test_a_service_keeps_it_in_its_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGS_DIRECTORY", "/var/log/gpumon")
    assert own_place("ada").folder.as_posix() == "/var/log/gpumon/history"
    assert own_place("ada").is_shared
    assert not own_place("ada", "/data/history").is_shared


def test_a_history_without_samples_is_said(tmp_path: Path) -> None:
    archived(tmp_path, DEMO[:1])
    (path,) = segments(tmp_path)
    path.write_bytes(b"\x00" * 100)
    assert "No sample" in find_archive("ada", str(tmp_path)).note
