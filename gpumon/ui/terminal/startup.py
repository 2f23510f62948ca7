"""Opens the dashboard: a first picture at once, then Textual; restores the terminal at the end.

Textual is imported here only after the first picture was painted.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.config.ui_state import load
from gpumon.sources import SourceError
from gpumon.system.folders import state_folder
from gpumon.system.resource_errors import lack_behind, require_files
from gpumon.system.startup_imports import import_asyncio
from gpumon.ui.startup_options import first_view
from gpumon.ui.terminal.first_picture import FirstPicture, first_inks
from gpumon.ui.terminal.terminal import EndedEarly, Ending, Terminal, mouse_is_free, read_leniently
from gpumon.ui.view.key_names import use_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.recording.history import History
    from gpumon.sampling.collector import Collector
    from gpumon.ui.app import GpumonApp
    from gpumon.ui.session import Session
    from gpumon.ui.startup_options import StartupOptions
    from gpumon.ui.view.listing import ProcessFilter

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
    narrowing: ProcessFilter,
    chosen: StartupOptions,
) -> int:
    """Show the dashboard until the user quits.

    Args:
        collector: The started collector of the first picture's snapshots.
        furnish: Gives what the screens work with; called once the first picture stands.
        picture: The first picture, painted until Textual draws.
        narrowing: The process filter.
        chosen: The options.

    Returns:
        The exit status. A signal that ends it is delivered again once the terminal is restored, so
        that whoever waits for the program sees what ended it.

    Raises:
        SourceError: The source cannot be opened.
        Exception: The machine has run out of something; see ``lack``.
    """
    collector.wait_open(_OPENING)
    # Textual, asyncio and the threads that read keys and signals fail in many different ways.
    require_files(_FILES)
    app: GpumonApp | None = None
    session: Session | None = None

    def leave_soon(status: int) -> bool:
        # Before the application exists, the main thread is interrupted.
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
                    from gpumon.ui import app as application
                    from gpumon.ui.terminal.handover import driver_after

                    read_leniently()
                    driver = driver_after(picture)
                    app = application.GpumonApp(session, narrowing, chosen, driver)
                    app.dashboard.remember_in(state_folder())
                    app.ending = ending
                # Garbage collection was delayed. Modules are never garbage: exclude them from
                # collection.
                gc.freeze()
                gc.set_threshold(_YOUNG)
                gc.enable()
                app.run(mouse=mouse_is_free(os.environ))
                if app.starved_by is not None:
                    raise app.starved_by
        except Exception as error:
            # Textual may also have lacked a resource when it restored the terminal.
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
    history: History,
    interval: float,
    narrowing: ProcessFilter,
    chosen: StartupOptions,
    *,
    readonly: bool,
) -> FirstPicture:
    """The picture that is shown until Textual draws, if this terminal supports one.

    Args:
        history: The source of the graphs; it gets every snapshot before the picture does.
        interval: Seconds between samples.
        narrowing: The process filter.
        chosen: The options.
        readonly: Whether every signal is refused.
    """
    inks = None
    if chosen.theme is not None:
        inks = first_inks(chosen.theme.file, os.environ)
    use_keys(chosen.keys)
    view = first_view(interval, narrowing, chosen, readonly=readonly)
    remembered = load(state_folder()).host_strip
    if remembered is not None:
        view = replace(view, host_strip=remembered)
    return FirstPicture(history, view, inks)
