"""What every recording promises, whatever keeps its samples."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from gpumon.model.snapshot import Snapshot
from gpumon.recording.archive import Archive, FoundArchive
from gpumon.recording.csv import file_lines, index
from gpumon.recording.csv.csv_log import CsvLog
from gpumon.recording.csv.recording import CsvRecording, open_log
from gpumon.recording.history import History
from gpumon.recording.joined import JoinedRecording
from gpumon.recording.memory.recording import MOST_BYTES, MemoryRecording
from gpumon.recording.recording import Event, EventKind, Recording
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known
from tests.recording.archive.archives import every, states, writer
from tests.recording.csv.reading import wait_until

MIB = 2**20
BORDER = 40
"""The second from which on samples are in memory, where an archive has the older ones."""


class Keeper(NamedTuple):
    # Keeps a sample that is so many seconds younger than the first one.
    add: Callable[[Snapshot, float], None]
    # Of a log of several hosts there is a recording once it has a sample.
    opened: Callable[[], Recording]


def memory(_folder: Path, _stack: ExitStack, most_bytes: int = MOST_BYTES) -> Keeper:
    kept = MemoryRecording(0.05, most_bytes)
    return Keeper(lambda sample, _: kept.add(sample), lambda: kept)


def log(
    folder: Path, stack: ExitStack, *, several: bool = False, rotate: int | None = None
) -> Keeper:
    path = folder / "run.csv"
    written = stack.enter_context(closing(CsvLog(path, several=several, rotate=rotate)))
    written.begin()
    host = "gpu-01" if several else None

    def add(sample: Snapshot, elapsed: float) -> None:
        samples: dict[str | None, Snapshot] = {host: sample}
        if several:
            samples["gpu-02"] = snapshot(sample.time, gpu(index=7))
        written.write(samples, elapsed)

    return Keeper(add, lambda: stack.enter_context(closing(open_log(path, host))))


def archive(folder: Path, stack: ExitStack) -> Keeper:
    written, kept = writer(folder), Archive(folder, refresh_seconds=0.0)
    stack.callback(written.close)
    return Keeper(lambda sample, elapsed: written.write({None: sample}, elapsed), lambda: kept)


def joined(folder: Path, stack: ExitStack, *, archived_until: float = BORDER) -> Keeper:
    older, newer = archive(folder, stack), memory(folder, stack)
    found = FoundArchive(Archive(folder, refresh_seconds=0.0))

    def add(sample: Snapshot, elapsed: float) -> None:
        if elapsed < archived_until:
            older.add(sample, elapsed)
        if elapsed >= BORDER:
            newer.add(sample, elapsed)

    return Keeper(add, lambda: JoinedRecording(newer.opened(), lambda: found, states, 60.0))


Kind: TypeAlias = "tuple[Callable[[Path, ExitStack], Keeper], tuple[tuple[object, str, int], ...]]"
"""What makes a recording, and sizes of a log's index that make a short log a long one."""
CHUNKS = ((index, "CHUNK", 3000), (index, "STRIDE", 15_000), (file_lines, "PROBE", 500))
ALONE: dict[str, Kind] = {
    "memory": (memory, ()),
    "log": (log, ()),
    "log in chunks": (log, CHUNKS),
    "long log in chunks": (log, (*CHUNKS, (index, "HEADINGS_SOUGHT", 20_000))),
    "log of hosts": (partial(log, several=True), ()),
    "archive": (archive, ()),
}
ALL: dict[str, Kind] = {
    **ALONE,
    "log in many parts": (partial(log, rotate=8000), ()),
    "joined": (joined, ()),
    "joined to an archive that grows": (partial(joined, archived_until=math.inf), ()),
}
FULL: dict[str, Kind] = {"memory that is full": (partial(memory, most_bytes=2**16), ())}


@pytest.fixture(params=ALL)
def keeper(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Keeper]:
    make, sizes = {**ALL, **FULL}[request.param]
    for size in sizes:
        monkeypatch.setattr(*size)
    with ExitStack() as stack:
        yield make(tmp_path, stack)


def fill(
    keeper: Keeper, seconds: Iterable[float], *, behind: float = 0.0, begin: int = 0
) -> Recording:
    """Numbered samples of these seconds after noon, by a clock that is so far behind."""
    for number, second in enumerate(seconds, begin):
        used = gpu(memory_used=number * MIB)
        keeper.add(snapshot(NOON + second - behind, used, processes=(process(),)), second)
    return keeper.opened()


def events_of(recording: Recording) -> list[Event]:
    """All events, once they were found."""
    if isinstance(recording, CsvRecording):
        recording.read_into(History({}), delay=0.0)
    wait_until(lambda: recording.events_complete)
    return [*recording.events(0, 2 * NOON)]


def number(found: Snapshot | None) -> int:
    return (known(found).gpus[0].memory_used or 0) // MIB


@pytest.mark.parametrize("keeper", [kind for kind in ALL if kind != "log of hosts"], indirect=True)
def test_without_a_sample_it_knows_nothing(keeper: Keeper) -> None:
    recording = keeper.opened()
    assert (recording.first, recording.last, recording.at(NOON)) == (None, None, None)
    assert [*recording.between(0, 2 * NOON, 10), *events_of(recording)] == []
    assert recording.step(NOON, -3) == NOON
    assert [recording.next_event(NOON, forward=forward) for forward in (False, True)] == [None] * 2


SECONDS = [0, 1, 2, 3.5, 3.6, 10, *range(38, 110), 400, 3700, 3701, 8000]


def test_each_sample_is_found_by_its_time_and_by_steps(keeper: Keeper) -> None:
    recording = fill(keeper, SECONDS)
    assert (recording.first, recording.last) == (NOON, NOON + 8000)
    for place, second in enumerate(SECONDS):
        assert number(recording.at(NOON + second)) == place
        assert number(recording.at(NOON + second + 0.05)) == place
        for steps in (-1000, -60, -3, -1, 0, 1):
            wanted = SECONDS[min(len(SECONDS) - 1, max(0, place + steps))]
            assert recording.step(NOON + second, steps) - NOON == pytest.approx(wanted, abs=1e-3)
    assert recording.step(0, -5) == recording.first
    assert [number(recording.at(NOON + at)) for at in (-NOON, 20, 1e6)] == [0, 5, len(SECONDS) - 1]


def test_what_lies_between_is_thinned_evenly(keeper: Keeper) -> None:
    recording = fill(keeper, range(600))

    def seconds(first: float, last: float) -> list[float]:
        found = recording.between(NOON + first, NOON + last, 100)
        return [sample.time - NOON for sample in found]

    some = seconds(10, 590)
    assert len(some) in (100, 101)
    assert 10 <= some[0] <= 16
    assert some[-1] == 590
    assert max(later - earlier for earlier, later in pairwise(some)) <= 8
    assert seconds(9.5, 13) == [10, 11, 12, 13]
    assert seconds(35, 45) == [*range(35, 46)]
    assert seconds(9.2, 9.8) == seconds(700, 800) == []


def test_what_happened_is_known_with_its_time(keeper: Keeper) -> None:
    for second in range(120):
        broken = {"xid": 79, "xid_at": NOON + 50} if second >= 50 else {}
        sampled = gpu(
            **broken,
            memory_free=GIB if second >= 70 else 79 * GIB,
            clock_event_reasons=0x40 if 90 <= second < 95 else 0x4,
        )
        first, second_ = process(1), process(2, user="bo")
        listed = [first] * (second < 110) + [second_] * (second >= 30)
        keeper.add(snapshot(NOON + second, sampled, processes=tuple(listed)), second)
    recording = keeper.opened()
    kinds = [EventKind.CAME, EventKind.ERROR, EventKind.FULL, EventKind.THROTTLED, EventKind.WENT]
    found = events_of(recording)
    assert [event.kind for event in found] == kinds
    assert [round(event.time - NOON, 3) for event in found] == [30, 50, 70, 90, 110]
    assert found[0].sentence == "2 of bo came to GPU 0"
    assert [*recording.events(found[1].time, found[2].time)] == found[1:3]
    for place, event in enumerate(found):
        beside = [recording.next_event(event.time, forward=forward) for forward in (False, True)]
        assert beside == [None, *found, None][place : place + 3 : 2]


def test_it_grows(keeper: Keeper) -> None:
    recording = fill(keeper, range(50))
    for second in (*range(50, 80), 3700, 3701):
        assert known(recording.last) < NOON + second
        keeper.add(snapshot(NOON + second, gpu(memory_used=second * MIB)), second)
        assert recording.last == NOON + second
        assert number(recording.at(NOON + second)) == second


def test_a_step_forward_by_several_samples_leads_as_far(keeper: Keeper) -> None:
    recording = fill(keeper, SECONDS)
    for place, second in enumerate(SECONDS):
        for steps in (2, 30, 1000):
            wanted = SECONDS[min(len(SECONDS) - 1, place + steps)]
            assert recording.step(NOON + second, steps) - NOON == pytest.approx(wanted, abs=1e-3)


# A joined recording leaves that to memory and to the archive.
@pytest.mark.parametrize("keeper", ALONE, indirect=True)
@pytest.mark.parametrize(("back", "moved"), [(0.3, 0), (5, 5), (7200, 7200)])
def test_what_was_before_a_clock_was_set_back_moves_with_it(
    keeper: Keeper, back: float, moved: float
) -> None:
    fill(keeper, range(40))
    recording = fill(keeper, range(40, 80), behind=back)
    times = every(recording)
    expected = [*(second - moved for second in range(40)), *(at - back for at in range(40, 80))]
    assert [time - NOON for time in times] == pytest.approx(expected, abs=0.01)
    found = [known(recording.at(time)) for time in times]
    assert [number(sample) for sample in found] == [*range(40)] * 2
    started = [known(sample.processes[0].started_at) - NOON for sample in found]
    assert started == pytest.approx([-86400 - moved] * 40 + [-86400] * 40, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("keeper", [*ALL, *FULL], indirect=True)
def test_it_may_be_asked_while_it_grows(keeper: Keeper) -> None:
    recording = fill(keeper, range(50))
    grown = threading.Event()

    def ask() -> None:
        while not grown.is_set():
            first, last = known(recording.first), known(recording.last)
            shown = known(recording.at((first + last) / 2))
            assert number(shown) == round(shown.time - NOON)
            times = [sample.time for sample in recording.between(first, last, 20)]
            assert times == sorted(set(times))
            assert first <= recording.step(last, -5) <= last
            assert recording.next_event(last, forward=False) is None

    interval = sys.getswitchinterval()
    # With Python's own 5 ms the threads hardly ever meet in the middle of a change.
    sys.setswitchinterval(1e-5)
    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        try:
            fill(keeper, range(50, 1000), begin=50)
        finally:
            sys.setswitchinterval(interval)
            grown.set()
    assert [future.result() for future in asking] == [None, None]
