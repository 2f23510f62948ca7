"""What reading a whole log promises: the history of its samples, and what is told before that."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.findings import conditions
from gpumon.model.allocations import Allocation
from gpumon.model.snapshot import Snapshot, Unknown
from gpumon.recording.csv import index
from gpumon.recording.csv.columns import GPU_COLUMNS
from gpumon.recording.csv.files import log_files
from gpumon.recording.csv.gpu_changes import SequentialGpuReader
from gpumon.recording.csv.gpus import GpuReader
from gpumon.recording.csv.headings import first_header
from gpumon.recording.csv.recording import CsvRecording
from gpumon.recording.history import History
from gpumon.recording.recording import EventKind
from tests.build import NOON, gpu, process, snapshot
from tests.known import known
from tests.log_headers import GPU_HEADER
from tests.recording.archive.archives import demo_samples
from tests.recording.csv.reading import (
    drop_columns,
    lines_of,
    opened,
    pack,
    read_whole,
    sample_at,
    times_of,
    wait_until,
    write_log,
)
from tests.recording.deck import Deck
from tests.recording.test_as_of import ask
from tests.recordings import ListTape

pytestmark = pytest.mark.slow


def samples_of(log: CsvRecording) -> list[Snapshot]:
    return [known(log.at(time)) for time in times_of(log)]


def history_of(samples: list[Snapshot]) -> History:
    history = History(conditions())
    for one in samples:
        history.add(one)
    return history


def test_cells_that_change_in_any_way_are_read_as_in_a_row_of_its_own() -> None:
    chance = random.Random(7)
    _, header = first_header(GPU_HEADER, "run.csv", processes=False)
    reader = SequentialGpuReader(header)
    changed = flawed = 0
    for number, taken in enumerate(demo_samples(200)):
        jobs = (Allocation("slurm", "7", f"user {number // 20}", ("GPU-0",), 1),)
        sample = replace(taken, allocations=jobs if number % 40 else None)
        lines = lines_of([sample])[0].splitlines()
        if number % 3 == 0:
            place = chance.randrange(len(lines))
            cells = lines[place].split(b",")
            # The first cell is the timestamp.
            shared = header.places["host.cpu [%]"]
            cell = chance.choice([1 + chance.randrange(len(cells) - 1)] * 3 + [shared])
            cells[cell] = chance.choice([b"", b"7", b"99999999", b"x", b"[N/A]", cells[cell]])
            lines[place] = b",".join(cells[: chance.choice([cell + 1, None, None])])
        wall = sample.time - chance.choice([0.0, 0.0, 0.0, 3.0])
        listed = chance.random() < 0.9
        alone = GpuReader(header)
        rows, host = reader.read(lines, sample.time, wall)
        expected, its_host = alone.read(lines, sample.time, wall)
        assert host == its_host
        assert [row.flaw for row in rows] == [row.flaw for row in expected]
        assert [row.allocated for row in rows] == [row.allocated for row in expected]
        flawed += sum(row.flaw is not None for row in rows)
        changed += sum(getattr(row, "changes", None) is not None for row in rows)
        # Some are not made, as of a list that nobody asks for.
        if chance.random() < 0.9:
            assert [reader.gpu(row, listed=listed) for row in rows] == [
                alone.gpu(row, listed=listed) for row in expected
            ]
    assert changed > 400
    assert flawed > 5


def test_an_older_log_has_nothing_of_later_columns(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [snapshot(NOON, gpu(sm_active=8.4))])
    drop_columns(path, *(each.name for each in GPU_COLUMNS if ".active [%]" in each.name))
    (card,) = sample_at(path).gpus
    assert card.memory_total is not None
    assert (card.sm_active, card.unknown["sm_active"]) == (None, Unknown.NOT_RECORDED)


def test_the_history_of_a_log_is_that_of_its_samples(tmp_path: Path) -> None:
    with opened(write_log(tmp_path / "run.csv", demo_samples(400))) as log:
        history = read_whole(log)
        samples = samples_of(log)
        fed = history_of(samples)
        for one in (samples[0], samples[100], samples[241], samples[-1]):
            assert ask(history.as_of(one), one) == ask(fed.as_of(one), one)
        events = ListTape(samples).events(0, NOON * 2)
        assert list(log.events(0, NOON * 2)) == events != []


def test_charts_of_hours_before_the_end_of_a_log_are_as_fine_as_they_were(tmp_path: Path) -> None:
    sampled = [
        snapshot(NOON + second, gpu(utilization_gpu=second % 97, sampled_at=NOON + second))
        for second in range(0, 9000, 2)
    ]
    live = history_of(sampled[:500])
    with opened(write_log(tmp_path / "run.csv", sampled)) as log:
        shown, then = Deck(log, read_whole(log)).go(sampled[499].time)
        for seconds, count in ((120, 120), (120, 60), (600, 100)):
            past, seen = (one.gpu_series("GPU-0") for one in (then, live))
            asked = ("utilization_gpu", seconds, count, shown.time)
            assert past.buckets(*asked) == seen.buckets(*asked)


def resting(seconds: range, at: float = NOON, came: int = 20) -> list[Snapshot]:
    """A GPU that rests, to which another process comes at a second."""
    return [
        snapshot(
            at + second,
            gpu(sampled_at=at + second),
            processes=(process(), process(2))[: 1 + (second >= came)],
        )
        for second in seconds
    ]


def append(path: Path, samples: list[Snapshot], began: float) -> None:
    """Write on, the lists first, as the recorder does."""
    cards, lists = lines_of(samples, began)
    for file, rows in ((path.with_suffix(".processes.csv"), lists), (path, cards)):
        with file.open("ab") as end:
            end.write(rows)


def test_a_clock_that_is_set_back_moves_the_history_and_the_events(tmp_path: Path) -> None:
    write_log(tmp_path / "run.part0001.csv", resting(range(40)))
    path = write_log(tmp_path / "run.csv", resting(range(40, 80)), began=NOON)
    with opened(path) as log:
        history = read_whole(log)
        append(path, resting(range(80, 120), NOON - 1000), NOON - 1000)
        wait_until(lambda: history.now == NOON - 881)
        samples = samples_of(log)
        assert len(samples) == 120
        began = known(history.as_of(samples[-1]).interval("GPU-0", "idle"))
        assert began.since == pytest.approx(samples[0].time, abs=0.01)
        (came,) = log.events(0, NOON * 2)
        assert came.time == pytest.approx(samples[20].time, abs=0.01)


def test_what_is_written_later_is_read_too(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", resting(range(10)))
    with opened(path) as log:
        history = read_whole(log)
        append(path, resting(range(10, 30)), NOON)
        wait_until(lambda: history.now == NOON + 29)
        assert [mark.kind for mark in log.events(0, NOON * 2)] == [EventKind.CAME]
        deck = Deck(log, history)
        _, then = deck.go(NOON + 29)
        idle = known(then.interval("GPU-0", "idle"))
        assert (idle.since, idle.last) == (NOON, NOON + 29)


@pytest.mark.parametrize("chunk", [index.CHUNK, 2000])
def test_damage_that_is_written_later_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(index, "CHUNK", chunk)
    path = write_log(tmp_path / "run.csv", resting(range(10)))
    with opened(path) as log:
        read_whole(log)
        assert log.damage == ""
        with path.open("ab") as end:
            # Behind the newest sample, which was read before.
            end.write(b"garbage\n")
        append(path, resting(range(10, 20)), NOON)
        wait_until(lambda: log.damage != "")
        lines = len(path.read_bytes().splitlines())
        assert f"run.csv has 1 damaged line, line {lines - 10};" in log.damage
        with log_files(path).processes.open("ab") as end:
            end.write(b"garbage\n" * 2)
        append(path, resting(range(20, 30)), NOON)
        wait_until(lambda: "1 more file" in log.damage)


def test_the_damage_of_a_part_stays_with_it_when_rotated_and_compressed(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", resting(range(10)))
    with opened(path) as log:
        read_whole(log)
        with path.open("ab") as end:
            end.write(b"garbage\n")
        old = tmp_path / "run.part0001.csv"
        log_files(path).processes.rename(log_files(old).processes)
        path.rename(old)
        write_log(path, resting(range(10, 20)), began=NOON)
        said = "has 1 damaged line, line 12;"
        wait_until(lambda: f"{old.name} {said}" in log.damage)
        packed = pack(old)
        append(path, resting(range(20, 30)), NOON)
        wait_until(lambda: f"{packed.name} {said}" in log.damage)


def test_a_moment_that_is_not_read_yet_is_shown_at_once_as_far_as_known(tmp_path: Path) -> None:
    with opened(write_log(tmp_path / "run.csv", resting(range(3000)))) as log:
        history = History(conditions())
        log.read_into(history, delay=1e6)
        deck = Deck(log, history)
        deck.player.source.seek(NOON + 2000)
        shown = deck.sample()
        then = deck.player.history
        assert shown.time == then.now == NOON + 2000
        assert not deck.player.settled
        for began in (then.interval("GPU-0", "idle"), then.process_idle(process().id)):
            assert not known(began).start_observed
        assert then.gpu_seconds("ann") is None
        assert None not in then.gpu_series("GPU-0").buckets("memory_used", 60, 20, then.now)

        for one in resting(range(2001)):
            history.add(one)
        deck.sample()
        assert deck.player.settled
        assert deck.player.history is not then
        assert known(deck.player.history.interval("GPU-0", "idle")).since == NOON
        assert deck.player.history.gpu_seconds("ann") == 2000
