"""One attempt to tell a notice: it fails with a sentence, and another thread can cut it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CUT = "gpumon ended before it was told"


class DeliveryError(Exception):
    """A notice was not told.

    Attributes:
        sentence: Why, without a full stop. Safe to print; without any secret.
        again: Whether another attempt may succeed soon.
    """

    def __init__(self, sentence: str, *, again: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.again = again


class Attempt:
    """Lets another thread cut what an attempt waits for.

    Attributes:
        is_cut: Whether it was cut.
    """

    def __init__(self) -> None:
        self.is_cut = False
        self._lock = threading.Lock()
        self._cut: Callable[[], None] | None = None

    @contextmanager
    def cut_by(self, cut: Callable[[], None]) -> Iterator[None]:
        """Until the end of the block, ``cut`` ends what is waited for; it must not block.

        Raises:
            DeliveryError: The attempt was cut before.
        """
        with self._lock:
            if self.is_cut:
                raise DeliveryError(CUT)
            self._cut = cut
        try:
            yield
        finally:
            with self._lock:
                self._cut = None

    def cut(self) -> None:
        """End what the attempt waits for. Any thread may call this."""
        with self._lock:
            self.is_cut = True
            if self._cut is not None:
                self._cut()
