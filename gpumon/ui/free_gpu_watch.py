"""GPUs that the user wants to be notified about when they are free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings import not_free
from gpumon.ui.view.key_names import keycap

if TYPE_CHECKING:
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History


class FreeGpuWatch:
    """Keeps the watched GPUs, and detects when one of them is free.

    Attributes:
        cards: Their UUIDs. Replaced, never changed.
    """

    def __init__(self) -> None:
        self.cards: frozenset[str] = frozenset()

    def toggle(self, gpu: Gpu, history: History) -> str:
        """Start or stop watching a GPU; returns the message for the user."""
        if gpu.uuid in self.cards:
            self.cards -= {gpu.uuid}
            return f"GPU {gpu.index} is no longer watched"
        if _is_free(gpu, history):
            return f"GPU {gpu.index} is free"
        self.cards |= {gpu.uuid}
        key = keycap("tell_when_free")
        return f"will notify when GPU {gpu.index} is free ({key} cancels)"

    def check(self, history: History) -> list[str]:
        """Check the newest snapshot; returns a message for each GPU that has become free."""
        latest = history.latest
        if not self.cards or latest is None:
            return []
        free = [gpu for gpu in latest.gpus if gpu.uuid in self.cards and _is_free(gpu, history)]
        self.cards -= {gpu.uuid for gpu in free}
        return [f"GPU {gpu.index} is free" for gpu in free]


def _is_free(gpu: Gpu, history: History) -> bool:
    # Its first finding may be another one, such as heat, and hide that it is free.
    return not_free(history, gpu, history.thresholds) is None
