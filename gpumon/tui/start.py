"""From an opened collector to the dashboard: what happens before the first frame."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gpumon.history import History
from gpumon.tui.app import run

if TYPE_CHECKING:
    from gpumon.collector import Collector
    from gpumon.sources import Source

_OPENING = 1.0
"""Seconds to wait for the driver before the screen says that it is being waited for."""


def show(source: Source, collector: Collector, user: str | None) -> int:
    """Show the dashboard until it is left.

    Args:
        source: What the collector samples; one that knows its past gives it to the history.
        collector: Started.
        user: The one user whose processes to show.

    Returns:
        The exit status.

    Raises:
        SourceError: The source cannot be opened.
    """
    collector.wait_open(_OPENING)
    history = History()
    warm_up = getattr(source, "warm_up", None)
    if warm_up is not None:
        for snapshot in warm_up():
            history.add(snapshot)
    _draw_on_standard_output()
    return run(collector, history, user)


def _draw_on_standard_output() -> None:
    """Textual draws on standard error: make that the terminal where it was sent elsewhere."""
    if not os.isatty(2):
        sys.stderr.flush()
        os.dup2(1, 2)
