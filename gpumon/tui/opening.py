"""Opens the dashboard: a first picture at once, then Textual, in the end the terminal as it was.

Textual is imported here only once the first picture stands.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from gpumon.config.actions import footer_names
from gpumon.folders import state_folder
from gpumon.layout.key_names import use_key_names
from gpumon.layout.listing import Narrowing
from gpumon.lean import import_asyncio
from gpumon.remembered import load
from gpumon.sources import SourceError
from gpumon.tui.chosen import USUAL, first_view
from gpumon.tui.picture import FirstPicture, first_inks
from gpumon.tui.terminal import EndedEarly, Ending, Terminal, mouse_is_free, read_leniently

if TYPE_CHECKING:
    from gpumon.tui.app import GpumonApp
    from gpumon.tui.chosen import Chosen
    from gpumon.tui.session import Session

_OPENING = 1.0
"""Seconds to wait for the driver before the screen says that it is being waited for."""
_FIRST = 0.3
"""... and for a first picture, before Textual is imported while it is waited for."""


def run(session: Session, narrowing: Narrowing | None = None, chosen: Chosen = USUAL) -> int:
    """Show the dashboard until it is left.

    Returns:
        The exit status. A signal that ends it is delivered again once the terminal is restored, so
        that whoever waits for the program sees what ended it.

    Raises:
        SourceError: The source does not open.
        MemoryError: There was none left.
    """
    narrowing = narrowing or Narrowing()
    collector = session.collector
    collector.wait_open(_OPENING)
    app: GpumonApp | None = None

    def leave_soon(status: int) -> bool:
        # Before there is an application the main thread is interrupted.
        return app is None or app.leave_soon(status)

    picture = _first_picture(session, narrowing, chosen)
    with Terminal() as terminal, Ending(terminal, leave_soon) as ending:
        unsubscribe = collector.subscribe(picture.take)
        try:
            with picture, suppress(EndedEarly):
                ending.interrupts = True
                if collector.latest is not None:
                    picture.take(collector.latest)
                picture.wait(_FIRST)
                import_asyncio()
                from gpumon.tui import app as application
                from gpumon.tui.handover import driver_after

                read_leniently()
                driver = driver_after(picture)
                app = application.GpumonApp(session, narrowing, chosen, driver)
                app.dashboard.remember_in(state_folder())
                app.ending = ending
                ending.interrupts = False
                app.run(mouse=mouse_is_free(os.environ))
        finally:
            unsubscribe()
            collector.stop()
            session.lookup.stop()
    if isinstance(collector.failure, SourceError):
        raise collector.failure
    if app is not None and app.starved:
        raise MemoryError
    if ending.received is not None:
        os.kill(os.getpid(), ending.received)
    return 0 if app is None else app.return_code or 0


def _first_picture(session: Session, narrowing: Narrowing, chosen: Chosen) -> FirstPicture:
    inks = None
    if session.player is None and chosen.theme is not None:
        inks = first_inks(chosen.theme.file, os.environ)
    use_key_names(footer_names(chosen.keys))
    view = first_view(session, narrowing, chosen)
    remembered = load(state_folder()).host_strip
    if remembered is not None:
        view.host_strip = remembered
    return FirstPicture(session.history, view, inks)
