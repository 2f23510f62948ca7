"""The charts below the list of GPUs on the dashboard: which GPUs have one, and where it stands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from gpumon.ui.view.chart_series import LOAD_AND_MEMORY, ChartEnd, end_of_second, highest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History
    from gpumon.ui.view.frame import Memo


_LEAST_TILE_WIDTH, _LEAST_TILE_HEIGHT = 36, 6
_LEAST_WIDTH = 100
"""A narrower terminal has only the small graphs in the table."""
_TALL_TILE = 3
"""A tile that is not as many times wider than high leaves its line to fewer others."""
_BUSY_SHARE, _BUSY_PERCENT = 0.02, 5.0
"""Less memory is the driver's on a free GPU, and a lower load that of a tool that reads it."""
_BUSY_BUCKETS = 30
_BUSY_SECONDS = 300.0
"""A chart stays for this time after the last load, or for all that it shows: the screen is calm."""
_REREAD_SECONDS = 10
"""The newest values of a GPU without load are read again after this time."""


class Tiles(NamedTuple):
    """How the charts of the GPUs stand below their list."""

    height: int  # Of each chart with its title; 0 shows none.
    lines: int  # Lines of charts.

    @property
    def rows(self) -> int:
        """Height of all of them."""
        return self.height * self.lines


NO_TILES = Tiles(0, 0)


def tiles_of(count: int, width: int, room: int) -> Tiles:
    """The arrangement of a number of charts in that many rows, if they fit."""
    across = (width + 1) // (_LEAST_TILE_WIDTH + 1)
    if not count or width < _LEAST_WIDTH or not across:
        return NO_TILES
    lines = -(-count // across)
    if room // lines < _LEAST_TILE_HEIGHT:
        return NO_TILES
    while lines < count and room // (lines + 1) >= _LEAST_TILE_HEIGHT:
        each = width // -(-count // lines)
        if each >= _TALL_TILE * (room // lines):
            break
        lines += 1
    return Tiles(room // lines, lines)


def least_tiles(count: int, width: int) -> Tiles:
    """The lowest arrangement of a number of charts."""
    across = max(1, (width + 1) // (_LEAST_TILE_WIDTH + 1))
    return tiles_of(count, width, -(-count // across) * _LEAST_TILE_HEIGHT)


def parts_of(whole: int, count: int) -> list[int]:
    """A number of cells in equal parts; the remainder goes to the first ones."""
    return [whole // count + (part < whole % count) for part in range(count)]


def tiles_beside(
    gpus: Sequence[Gpu], tiles: Tiles, line: int, width: int
) -> Iterator[tuple[Gpu, int]]:
    """The GPUs with their charts in one line, and the width of each chart."""
    count = len(gpus)
    beside = gpus[line * count // tiles.lines : (line + 1) * count // tiles.lines]
    return zip(beside, parts_of(width, len(beside)), strict=True)


def tile_at(gpus: Sequence[Gpu], tiles: Tiles, width: int, x: int, y: int) -> Gpu | None:
    """The GPU whose chart is drawn at a cell; ``None`` if there is none."""
    if not tiles.height or y >= tiles.rows:
        return None
    for gpu, each in tiles_beside(gpus, tiles, y // tiles.height, width):
        if x < each:
            return gpu
        x -= each
    return None


def charted_gpus(
    memo: Memo, history: History, snapshot: Snapshot, seconds: float, width: int
) -> tuple[Gpu, ...]:
    """The GPUs that had something to show in this time: load, or more memory than a free GPU.

    There are none on a terminal that is too narrow for charts.
    """
    if width < _LEAST_WIDTH:
        return ()
    seconds = max(seconds, _BUSY_SECONDS)
    shown: list[Gpu] = []
    for gpu in snapshot.gpus:
        part = memo.part(gpu.uuid)
        if _has_load(gpu.utilization_gpu, gpu.memory_used, gpu.memory_total):
            part(_loaded_at, snapshot.time)
        elif not _had_load(part, history, gpu, seconds, snapshot.time):
            continue
        shown.append(gpu)
    return tuple(shown)


def _loaded_at(time: float) -> float:
    """A time at which a GPU had load: a memo keeps the newest."""
    return time


def _has_load(load: float | None, memory: float | None, total: float | None) -> bool:
    is_busy = (load or 0.0) >= _BUSY_PERCENT
    return is_busy or (memory or 0.0) > _BUSY_SHARE * (total or math.inf)


def _had_load(memo: Memo, history: History, gpu: Gpu, seconds: float, now: float) -> bool:
    """Whether a GPU without load had some in this time.

    Its complete parts are read once. The newest ones are known from the frames before, and read
    from time to time for what happened while another screen was drawn.
    """
    step, total = seconds / _BUSY_BUCKETS, gpu.memory_total
    loaded_at = memo.newest(_loaded_at)
    if loaded_at is not None and 0 <= now - loaded_at < 2 * step:
        return True
    second, whole = int(now), math.floor(now / step)
    key, end = (seconds, whole, total), ChartEnd((whole - 0.001) * step, is_complete=True)
    if memo.by(key, _had_load_until, history, gpu, seconds, _BUSY_BUCKETS, end):
        return True
    key, end = (seconds, second // _REREAD_SECONDS, total), end_of_second(second)
    return memo.part("newest").by(key, _had_load_until, history, gpu, 2 * step, 2, end)


def _had_load_until(history: History, gpu: Gpu, seconds: float, count: int, end: ChartEnd) -> bool:
    """Whether a GPU had load in one of so many parts of the time that ends there."""
    load, memory = (
        highest(series.values(history, gpu, series.fields[0], seconds, count, end, peak=True))
        for series in LOAD_AND_MEMORY
    )
    return _has_load(load, memory, gpu.memory_total)
