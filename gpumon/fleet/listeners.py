"""Who wants to know when a host of a fleet has changed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Listeners:
    """Functions without arguments; see ``Fleet.subscribe``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()

    def add(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Add one.

        Returns:
            A function that removes it again.
        """

        def end() -> None:
            with self._lock:
                self._listeners = tuple(one for one in self._listeners if one is not entry)

        # A function of its own, so that one that subscribes twice ends one subscription at a time.
        def entry() -> None:
            listener()

        with self._lock:
            self._listeners = (*self._listeners, entry)
        return end

    def tell(self) -> None:
        """Call all of them."""
        for listener in self._listeners:
            listener()
