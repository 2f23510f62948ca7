"""The page of a process on screen: details looked up beside it, keys to copy and to end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

import msgspec
from textual.binding import Binding, BindingType

from gpumon.host import target_of
from gpumon.layout.pages import moment_text
from gpumon.layout.process_page import ProcessView, process_rows
from gpumon.model import ENDED, GpuProcess
from gpumon.tui.clipboard import PAST_NUMBER, copy_kill
from gpumon.tui.errand import run_errand
from gpumon.tui.keys import with_names
from gpumon.tui.screens.page import EndRequested, PageScreen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.host import Details, ProcessHost
    from gpumon.layout.cells import Row
    from gpumon.model import ProcessId
    from gpumon.tui.pen import Pen
    from gpumon.tui.stage import Stage
    from gpumon.tui.theme import Palette

LOOK_SECONDS = 2.0
"""The details are looked up this often while the page is seen."""


class ProcessScreen(PageScreen):
    """All that can be said of one process."""

    BINDINGS: ClassVar[list[BindingType]] = with_names(
        Binding("k,f9,delete", "end", "End the process …", key_display="k"),
        Binding("y", "copy", "Copy the kill command"),
        Binding("s", "reveal", "Show what looks like secrets; again: hide it"),
    )

    def __init__(
        self, stage: Stage, host: ProcessHost, pen: Pen, palette: Palette, process: ProcessId
    ) -> None:
        """Make the screen.

        Args:
            stage: Where all that is shown at once comes from.
            host: Looks up the details.
            pen: Writes changed cells.
            palette: Colours.
            process: Which.
        """
        super().__init__(stage, pen, palette)
        self._host = host
        self._who = process
        self._view = ProcessView(GpuProcess(id=process, type="", uses=()))
        self._looking = False
        self._alive_at: float | None = None
        self._listed = False
        self._left_at: float | None = None
        self._ended_at: float | None = None

    def on_mount(self) -> None:
        """Look now, and again and again."""
        self._look()
        self.set_interval(LOOK_SECONDS, self._look)

    # -- what is shown ---------------------------------------------------------------------------

    @property
    def heading(self) -> str:
        """Which process."""
        return f"process {self._who.pid}"

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        """What can be done here."""
        cannot = self._host.readonly or self._stage.is_past or self._ended_at is not None
        end = [] if cannot else [("k", "end…")]
        reveal = ("s", "hide secrets" if self._view.revealed else "show secrets")
        return (("Esc", "back"), *end, ("y", "copy kill"), reveal, ("↑↓", "scroll"))

    def page(self, width: int) -> list[Row]:
        """The page as it stands in the newest snapshot."""
        self._follow()
        return process_rows(self._view, self._history, self._history.latest, width)

    def _follow(self) -> None:
        """Take the process from the newest snapshot, or notice that it is no longer there."""
        snapshot = self._history.latest
        if snapshot is None:
            return
        found = next((one for one in snapshot.processes if one.id == self._who), None)
        if found is not None:
            self._listed, self._left_at = True, None
            self._view = msgspec.structs.replace(self._view, process=found)
        elif self._left_at is None and self._listed:
            self._left_at = snapshot.time
        self._view = msgspec.structs.replace(
            self._view,
            gone=self._gone(snapshot.time),
            ended=self._ended_at is not None or self._view.process.state == ENDED,
            past=self._stage.is_past,
        )

    def _gone(self, now: float) -> str:
        """What became of it, when it is no longer where it was."""
        if self._view.process.state == ENDED:
            return "Ended; the driver still lists it, with the memory below."
        if self._ended_at is not None:
            at = moment_text(self._ended_at, now)
            return f"Ended at {at}; what is shown is the last that was seen of it."
        if self._left_at is not None:
            at = moment_text(self._left_at, now)
            alive = self._alive_at is not None and self._alive_at >= self._left_at
            still = "it still runs, and holds none" if alive else "it may have ended"
            return f"In no card's list since {at}: {still}."
        return ""

    # -- looking up ------------------------------------------------------------------------------

    def _look(self) -> None:
        """Look up the details beside the screen; a look that hangs is never joined by another."""
        # What runs now tells nothing of the past.
        if self._stage.is_past or self._looking or self._ended_at is not None or not self.in_sight:
            return
        if self._who.start_time is None:
            # Its number names somebody else here, or nobody.
            return
        self._looking = True
        run_errand(
            self.app, lambda: self._host.details(self._who), self._take, name="gpumon-details"
        )

    def _take(self, details: Details | None) -> None:
        self._looking = False
        if not self.is_attached:
            return
        latest = self._history.latest
        now = time.time() if latest is None else latest.time
        if details is None:
            self._ended_at = now
        else:
            self._alive_at = now
            process = self._view.process if self._listed else _unlisted(details)
            self._view = msgspec.structs.replace(self._view, details=details, process=process)
        self.renew()

    # -- keys ------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """No key leads to a signal where none may be sent."""
        return not (action == "end" and (self._host.readonly or self._stage.is_past))

    def action_end(self) -> None:
        """Ask for it to be ended."""
        if self._ended_at is not None:
            self.say(f"{self._who.pid} has ended already")
            return
        self.post_message(EndRequested((target_of(self._view.process),)))

    def action_copy(self) -> None:
        """Put the kill command on the clipboard, and on the screen."""
        said = PAST_NUMBER if self._stage.is_past else copy_kill(self.app, self._who)
        self.say(said, lasting=True)

    def action_reveal(self) -> None:
        """Show or hide what looks like secrets."""
        self._view = msgspec.structs.replace(self._view, revealed=not self._view.revealed)
        self.renew()


def _unlisted(details: Details) -> GpuProcess:
    """A process that no driver lists, an ancestor or a child of one, from what was looked up."""
    itself = next((kin for kin in details.family if kin.id == details.id), None)
    if itself is None:
        return GpuProcess(id=details.id, type="", uses=(), command=details.command)
    return GpuProcess(
        id=details.id,
        type="",
        uses=(),
        user=itself.user,
        uid=itself.uid,
        name=itself.name,
        command=itself.command,
        state=itself.state,
        rss=itself.rss,
        started_at=itself.started_at,
        place=details.place,
    )
