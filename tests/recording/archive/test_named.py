"""A history that a user names instead of a log."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.model.snapshot import Snapshot
from gpumon.model.time_shift import TimeShift
from gpumon.recording.opening import open_recording
from gpumon.recording.recording import RecordingError
from gpumon.report.output import print_report
from tests.known import known
from tests.recording.archive.archives import archived, demo_samples, intervals, segments, states
from tests.recording.deck import Deck


@pytest.fixture(scope="module")
def samples() -> Sequence[Snapshot]:
    """Two hours with a gap between them."""
    taken = demo_samples(90)
    return [*taken[:60], *map(TimeShift(7200).snapshot, taken[60:])]


@pytest.fixture(scope="module")
def folder(samples: Sequence[Snapshot], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archived(tmp_path_factory.mktemp("kept") / "history", samples)


def span(path: Path, host: str | None = None) -> tuple[float | None, float | None]:
    with closing(open_recording(path, host)) as recording:
        return recording.first, recording.last


def test_the_folder_and_each_segment_mean_the_whole_history(
    folder: Path, samples: Sequence[Snapshot]
) -> None:
    whole = samples[0].time, samples[-1].time
    assert [span(path) for path in (folder, *segments(folder))] == [whole] * 3


def test_a_copy_of_a_segment_means_itself(
    tmp_path: Path, folder: Path, samples: Sequence[Snapshot]
) -> None:
    copy = tmp_path / "three at night"
    shutil.copy(segments(folder)[1], copy)
    assert span(copy) == (samples[60].time, samples[-1].time)


def test_it_is_played_with_its_states(folder: Path, samples: Sequence[Snapshot]) -> None:
    with closing(open_recording(folder)) as recording:
        history = states()
        recording.read_into(history)
        shown, seen = Deck(recording, history).go(samples[40].time)
    assert shown.time == samples[40].time
    found = intervals(seen)
    assert found
    assert found == intervals(states(samples[:41]))


def test_its_gaps_are_known(folder: Path, samples: Sequence[Snapshot]) -> None:
    with closing(open_recording(folder)) as recording:
        _ = recording.first
        [(begin, end)] = recording.gaps
        assert end == samples[60].time
        assert begin < end - 3600


def test_a_host_that_it_does_not_have_is_said(folder: Path, samples: Sequence[Snapshot]) -> None:
    assert span(folder, "ada-07") == (samples[0].time, samples[-1].time)
    with pytest.raises(RecordingError, match=r"history has no sample of box: it has ada-07\.$"):
        open_recording(folder, "box")


def test_what_is_damaged_is_said(tmp_path: Path, folder: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "history")
    path = segments(copy)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with closing(open_recording(copy)) as recording:
        assert recording.damage == ""
        assert recording.at(known(recording.first) + 50) is not None
        assert recording.damage == "A part of the history is damaged, and left out."


def _newer(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"gpumon.history/1", b"gpumon.history/2", 1))


def _forged(path: Path) -> None:
    path.write_bytes(b'{"schema":"gpumon.history/1","begins":"\x1b[2J"}\n')


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n\xa7gpumonF")


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_newer, r"gpumon is of another version of gpumon \(\S+\)\.$"),
        (_forged, r"gpumon is no part of a history of gpumon\.$"),
        (_cut, r"No sample in \S+ can be read\.$"),
    ],
)
def test_a_history_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, harm: Callable[[Path], None], said: str, as_file: bool
) -> None:
    folder = archived(tmp_path / "history", demo_samples(3))
    (path,) = segments(folder)
    harm(path)
    named = path if as_file else folder
    with pytest.raises(RecordingError, match=said):
        open_recording(named)
    assert print_report([str(named)], out=io.StringIO()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_one_sentence(tmp_path: Path) -> None:
    folder = archived(tmp_path / "history", demo_samples(3))
    folder.chmod(0o100)
    try:
        with pytest.raises(RecordingError, match=r"history cannot be read: Permission denied\.$"):
            open_recording(folder)
    finally:
        folder.chmod(0o700)


def test_what_is_no_history_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    os.mkfifo(tmp_path / "pipe.gpumon")
    with pytest.raises(RecordingError, match="is a directory without a history: name"):
        open_recording(tmp_path)
    with pytest.raises(RecordingError, match="is no ordinary file"):
        open_recording(tmp_path / "pipe.gpumon")


def test_a_report_sums_it_up_once(folder: Path) -> None:
    out = io.StringIO()
    paths = [str(folder), *map(str, segments(folder))]
    assert print_report(paths, form="json", out=out) == 0
    told = json.loads(out.getvalue())
    assert told["lines"][0]["covered_hours"] == pytest.approx(88 / 3600, rel=0.1)
