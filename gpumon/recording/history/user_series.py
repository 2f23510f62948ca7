"""The GPU memory and the number of GPUs of each user over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.recording.series import Depth, Series

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.processes import GpuProcess

USER_CHARTED = ("memory_used", "gpus")
"""Values of a user that are kept over time, over all processes."""
USER_DEPTH = Depth(fields=len(USER_CHARTED), peaks=0, seconds=901, tens=8641)
"""A quarter of an hour in seconds, because process lists are read no faster; a day in tens."""
USERS_CHARTED = 64
"""Number of users with values over time: those with the most memory, then those seen last."""


class UserSeries:
    """The series of the users, from the process lists."""

    __slots__ = ("_series",)

    def __init__(self) -> None:
        # Users of the newest list are the last.
        self._series: dict[str | None, Series] = {}

    def add(self, processes: Iterable[GpuProcess], time: float) -> None:
        """Add a process list. A user without a process in it has nothing."""
        memory: dict[str | None, int | None] = {}
        gpus: dict[str | None, set[str]] = {}
        for process in processes:
            user, held = process.user, process.memory_used
            sum_ = memory.get(user, 0)
            memory[user] = None if sum_ is None or held is None else sum_ + held
            gpus.setdefault(user, set()).update([use.gpu_uuid for use in process.uses])
        users = sorted(memory, key=lambda user: memory[user] or 0)[-USERS_CHARTED:]
        for user in users:
            series = self._series.pop(user, None)
            self._series[user] = Series(USER_DEPTH, time) if series is None else series
        for user in list(self._series)[:-USERS_CHARTED]:
            del self._series[user]
        for user, series in self._series.items():
            series.add(time, (memory.get(user, 0), len(gpus.get(user, ()))))

    def get(self, user: str | None) -> Series | None:
        """The series of a user."""
        return self._series.get(user)

    def shift(self, seconds: int) -> None:
        """Move all times into the past, by a multiple of ten seconds."""
        for series in self._series.values():
            series.shift(seconds)
