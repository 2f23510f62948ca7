"""Opens the dashboard: a first picture at once, then Textual, in the end the terminal as it was.

Textual is imported here only once the first picture stands.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from gpumon.folders import state_folder
from gpumon.lack import lack_behind, require_files
from gpumon.layout.key_names import use_key_names
from gpumon.lean import import_asyncio
from gpumon.remembered import load
from gpumon.sources import SourceError
from gpumon.tui.chosen import first_view
from gpumon.tui.picture import FirstPicture, first_inks
from gpumon.tui.terminal import EndedEarly, Ending, Terminal, mouse_is_free, read_leniently

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.collector import Collector
    from gpumon.history import History
    from gpumon.layout.listing import Narrowing
    from gpumon.tui.app import GpumonApp
    from gpumon.tui.chosen import Chosen
    from gpumon.tui.session import Session

_OPENING = 1.0
"""Seconds to wait for the driver before the screen says that it is being waited for."""
_FIRST = 0.3
"""... and for a first picture, before Textual is imported while it is waited for."""
_FILES = 16
"""The screen opens ten at most, and modules and ``/proc`` are read from files meanwhile."""
_YOUNG = 5000
"""So many objects more than at the last look are looked through for garbage. What a sample leaves
is none, and with Python's own 700 that would be every second."""


def run(
    collector: Collector,
    furnish: Callable[[], Session],
    picture: FirstPicture,
    narrowing: Narrowing,
    chosen: Chosen,
) -> int:
    """Show the dashboard until it is left.

    Args:
        collector: Whose snapshots the first picture shows; it has been started.
        furnish: Gives what the screens work with; called once the first picture stands.
        picture: It is painted until Textual draws.
        narrowing: Which of the processes are shown.
        chosen: What is settled.

    Returns:
        The exit status. A signal that ends it is delivered again once the terminal is restored, so
        that whoever waits for the program sees what ended it.

    Raises:
        SourceError: The source does not open.
        Exception: The machine has run out of something; see ``lack``.
    """
    collector.wait_open(_OPENING)
    # Textual, asyncio and the threads that read keys and signals fail in as many ways.
    require_files(_FILES)
    app: GpumonApp | None = None
    session: Session | None = None

    def leave_soon(status: int) -> bool:
        # Before there is an application the main thread is interrupted.
        return app is None or app.leave_soon(status)

    with Terminal() as terminal, Ending(terminal, leave_soon) as ending:
        unsubscribe = collector.subscribe(picture.take, newest=True, closely=False)
        try:
            with picture, suppress(EndedEarly):
                with ending.interrupting():
                    picture.wait(_FIRST)
                    session = furnish()
                    ending.check()
                    import_asyncio()
                    ending.check()
                    from gpumon.tui import app as application
                    from gpumon.tui.handover import driver_after

                    read_leniently()
                    driver = driver_after(picture)
                    app = application.GpumonApp(session, narrowing, chosen, driver)
                    app.dashboard.remember_in(state_folder())
                    app.ending = ending
                # Collecting was put off. Modules are no garbage: nobody need look at them again.
                gc.freeze()
                gc.set_threshold(_YOUNG)
                gc.enable()
                app.run(mouse=mouse_is_free(os.environ))
                if app.starved_by is not None:
                    raise app.starved_by
        except Exception as error:
            # To put the terminal back, Textual may have lacked something too.
            starved_by = error if app is None else app.starved_by or error
            if lack_behind(starved_by) is None:
                raise
            terminal.restore()
            raise starved_by from None
        finally:
            unsubscribe()
            collector.stop()
            if session is not None:
                session.lookup.stop()
    if isinstance(collector.failure, SourceError):
        raise collector.failure
    if ending.received is not None:
        os.kill(os.getpid(), ending.received)
    return 0 if app is None else app.return_code or 0


def first_picture(
    history: History, interval: float, narrowing: Narrowing, chosen: Chosen, *, readonly: bool
) -> FirstPicture:
    """The picture that stands until Textual draws, if this terminal can have one.

    Args:
        history: Where graphs come from; it has every snapshot before the picture gets it.
        interval: Seconds between samples.
        narrowing: Which of the processes are shown.
        chosen: What is settled.
        readonly: Whether every signal is refused.
    """
    inks = None
    if chosen.theme is not None:
        inks = first_inks(chosen.theme.file, os.environ)
    if chosen.keys:
        from gpumon.config.actions import footer_names

        use_key_names(footer_names(chosen.keys))
    view = first_view(interval, narrowing, chosen, readonly=readonly)
    remembered = load(state_folder()).host_strip
    if remembered is not None:
        view.host_strip = remembered
    return FirstPicture(history, view, inks)
