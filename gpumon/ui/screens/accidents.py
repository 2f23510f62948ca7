"""The page of accidents: what the kernel reported, whose it was, and what left its GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpumon.accidents import LEFT_SECONDS, report_of
from gpumon.recording.accidents import recorded_accidents, recorded_report
from gpumon.recording.recording import RecordingError
from gpumon.ui.keys import bindings_of
from gpumon.ui.screens.cursor_page import CursorPage
from gpumon.ui.screens.page import SCROLL
from gpumon.ui.view.accidents_page import accident_rows
from gpumon.ui.view.key_names import FooterKey, footer_key
from gpumon.ui.view.page_layout import text_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from gpumon.accidents import AccidentReport
    from gpumon.config.keymap import KeyScope
    from gpumon.model.accidents import Accident
    from gpumon.text.cells import Row
    from gpumon.ui.workspace import Workspace

_LISTED = 100
_JOINED_AT_ONCE = 3
"""A log is read for each of them, so that more would hold up the keys."""


class AccidentsScreen(CursorPage["Accident"]):
    """The accidents of the recording, newest first; the cursor shows all that is known of one."""

    scope: ClassVar[KeyScope] = "accidents"
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(scope)

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._recording = workspace.viewed_time.session.recording
        self._reports: dict[Accident, AccidentReport] = {}
        self._shown: list[AccidentReport] = []
        self._is_joined = True
        self._trouble = ""

    @property
    def heading(self) -> str:
        """See ``PageScreen.heading``."""
        return "accidents"

    @property
    def footer_keys(self) -> Sequence[FooterKey]:
        """See ``PaintedScreen.footer_keys``."""
        opened = [footer_key("open moment", label="go there")] if self._items else []
        return (footer_key("back"), footer_key("help"), *opened, SCROLL)

    def follow(self) -> None:
        """List the accidents that are known now, and join a few more of them."""
        known = {accident: accident for accident in self._items}
        try:
            found = recorded_accidents(self._recording, _LISTED)
        except RecordingError as error:
            self._list([])
            self._shown, self._trouble = [], error.sentence
            return
        self._trouble = ""
        # The same objects: the cursor stays on its own.
        self._list([known.get(accident, accident) for accident in found])
        last = self._recording.last or 0.0
        missing = [accident for accident in self._items if accident not in self._reports]
        for accident in missing[:_JOINED_AT_ONCE]:
            self._reports[accident] = self._joined(accident)
        self._is_joined = len(missing) <= _JOINED_AT_ONCE
        self._shown = [
            self._reports.get(accident) or report_of(accident, None, None)
            for accident in self._items
        ]
        # What left is known later.
        self._reports = {
            accident: self._reports[accident]
            for accident in self._items
            if accident in self._reports and last > accident.time + LEFT_SECONDS
        }

    def _joined(self, accident: Accident) -> AccidentReport:
        try:
            return recorded_report(self._recording, accident)
        except RecordingError:
            return report_of(accident, None, None)

    def _row_data(self) -> tuple[object, object, object]:
        """See ``PageScreen``: also changed while accidents are not joined."""
        history, latest, settled = super()._row_data()
        return history, latest, settled if self._is_joined else object()

    def page(self, width: int) -> list[Row]:
        """See ``PageScreen.page``."""
        recording = self._recording
        if self._trouble:
            self._owners = []
            return text_rows(self._trouble, width, "state.warning")
        rows, self._owners = accident_rows(
            self._shown,
            self._chosen,
            recording.first,
            self._history.now,
            width,
            is_complete=recording.events_complete,
        )
        return rows

    def action_open(self) -> None:
        """Go back to the moment before the accident under the cursor."""
        accident, player = self._cursor, self._viewed_time.rewind()
        if accident is None or player is None:
            self.say("there are no accidents")
            return
        player.source.seek(max(accident.time, player.playing.first))
        self.dismiss()
