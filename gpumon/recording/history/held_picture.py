"""What a history told at one moment, though it goes on."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.snapshot import GpuProcess
    from gpumon.recording.history.history import History


class HeldPicture:
    """What a history tells of processes and users, which stays what it was when first told.

    Args:
        history: The history.

    Attributes:
        process_idle: See ``History.process_idle``.
        gpu_seconds: See ``History.gpu_seconds``.
        thresholds: See ``History``.
    """

    def __init__(self, history: History) -> None:
        self.process_idle = cache(history.process_idle)
        self.gpu_seconds = cache(history.gpu_seconds)
        self.thresholds = history.thresholds

    def hold(self, processes: Iterable[GpuProcess]) -> None:
        """Be told all that may be asked of these processes later."""
        for process in processes:
            self.process_idle(process.id)
            self.gpu_seconds(process.user)
