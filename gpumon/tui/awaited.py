"""Cards that somebody wants to be told of once they are free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings import not_free

if TYPE_CHECKING:
    from gpumon.history import History
    from gpumon.model import Gpu


class Awaited:
    """Knows which cards are waited for, and sees when one of them is free.

    Attributes:
        cards: Their UUIDs. Replaced, never changed.
    """

    def __init__(self) -> None:
        self.cards: frozenset[str] = frozenset()

    def turn(self, gpu: Gpu, history: History) -> str:
        """Begin to wait for a card, or wait no longer; what to tell of it."""
        if gpu.uuid in self.cards:
            self.cards -= {gpu.uuid}
            return f"GPU {gpu.index} is waited for no longer"
        if _is_free(gpu, history):
            return f"GPU {gpu.index} is free"
        self.cards |= {gpu.uuid}
        return f"you are told when GPU {gpu.index} is free; the same key again: not"

    def take(self, history: History) -> list[str]:
        """Look at the newest snapshot; a sentence for each card that is free by now."""
        latest = history.latest
        if not self.cards or latest is None:
            return []
        free = [gpu for gpu in latest.gpus if gpu.uuid in self.cards and _is_free(gpu, history)]
        self.cards -= {gpu.uuid for gpu in free}
        return [f"GPU {gpu.index} is free" for gpu in free]


def _is_free(gpu: Gpu, history: History) -> bool:
    # What else is to be said of it, such as that it is warm, may hide this in its state.
    return not_free(history, gpu, history.thresholds) is None
