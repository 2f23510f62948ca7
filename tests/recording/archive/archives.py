"""Archives for tests: of the demo, whose values all change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.findings import conditions
from gpumon.makers.demo import DemoSource
from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.archive import Archive, ArchiveLog, ArchivePlace, Bounds
from gpumon.recording.history import STATE_GPU_DEPTH, History
from tests.build import NOON, gpu, snapshot
from tests.clock import HandClock
from tests.known import known
from tests.recording.csv.recording import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.recording import Event, Recording


def states(samples: Iterable[Snapshot] = (), thresholds: Thresholds = DEFAULTS) -> History:
    """A history of some samples that judges states only."""
    history = History(conditions(thresholds), thresholds, STATE_GPU_DEPTH, charted=False)
    for sample in samples:
        history.add(sample)
    return history


def intervals(history: History) -> dict[tuple[str, str], tuple[float, float]]:
    """Since when, and until when, each condition of each GPU has held."""
    return {
        (gpu.uuid, name): (interval.since, interval.last)
        for gpu in known(history.latest).gpus
        for name in history.observed.place
        if (interval := history.interval(gpu.uuid, name)) is not None
    }


def demo_samples(count: int, *, step: float = 1.0) -> Sequence[Snapshot]:
    """Samples of the demo, one a second."""
    clock = HandClock()
    source = DemoSource(1, clock)
    source.open()
    samples = []
    for _ in range(count):
        samples.append(source.sample())
        clock.now += step
    return samples


def writer(
    folder: Path, bounds: Bounds | None = None, *, interval: float = 1.0, commands: bool = True
) -> ArchiveLog:
    """A writer that has begun."""
    place = ArchivePlace(folder, is_shared=False)
    log = ArchiveLog(place, interval, bounds or Bounds(), states(), commands=commands)
    log.begin()
    return log


def archived(
    folder: Path,
    samples: Iterable[Snapshot],
    bounds: Bounds | None = None,
    *,
    interval: float = 1.0,
) -> Path:
    """A folder with these samples, which come when their times say."""
    log = writer(folder, bounds, interval=interval)
    first: float | None = None
    for sample in samples:
        first = sample.time if first is None else first
        log.write({None: sample}, sample.time - first)
    log.close()
    return folder


def segments(folder: Path) -> list[Path]:
    """The files of samples, oldest first."""
    return sorted(folder.glob("*.gpumon"))


def every(recording: Recording) -> list[float]:
    """The times of all samples, by steps."""
    times = [recording.first or 0.0]
    while (following := recording.step(times[-1], 1)) > times[-1]:
        times.append(following)
    return times


def samples_of(archive: Archive) -> list[Snapshot]:
    """All samples, one by one."""
    return [known(archive.at(time)) for time in every(archive)]


def events_of(archive: Archive) -> list[Event]:
    """All events, once they were read."""
    wait_until(lambda: archive.events_complete, "the events")
    return list(archive.events(0, 1e12))


def plain(second: float, used: int = 0) -> Snapshot:
    """A sample so many seconds after noon."""
    return replace(snapshot(0, gpu(memory_used=used)), time=NOON + second)
