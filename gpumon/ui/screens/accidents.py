"""The page of accidents: what the kernel reported, whose it was, and what left its GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from gpumon.accidents import LEFT_SECONDS, report_of
from gpumon.recording.accidents import recorded_accidents, recorded_report
from gpumon.recording.recording import RecordingError
from gpumon.ui.background import run_in_thread
from gpumon.ui.keys import bindings_of
from gpumon.ui.screens.cursor_page import CursorPage
from gpumon.ui.screens.page import SCROLL
from gpumon.ui.view.accidents_page import accident_rows
from gpumon.ui.view.key_names import FooterKey, footer_key
from gpumon.ui.view.page_layout import text_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.binding import BindingType

    from gpumon.accidents import AccidentReport
    from gpumon.config.keymap import KeyScope
    from gpumon.model.accidents import Accident
    from gpumon.recording.recording import Recording
    from gpumon.text.cells import Row
    from gpumon.ui.workspace import Workspace

_LISTED = 100
_JOINED_AT_ONCE = 3
"""A log is read for each of them: the others follow once these are shown."""
_READING = "reading …"


class _Found(NamedTuple):
    """The accidents of a recording, as far as they have been read."""

    # By the accident as it is recorded, newest first: its report may have a line that came later.
    reports: Mapping[Accident, AccidentReport] = {}
    joined: frozenset[Accident] = frozenset()
    # Those among them whose report may change: what leaves the GPU soon is not known yet.
    unsettled: frozenset[Accident] = frozenset()
    first: float | None = None  # when the recording begins
    is_searched: bool = False  # the whole recording
    is_joined: bool = False  # every report
    trouble: str = ""  # why it cannot be read


class AccidentsScreen(CursorPage["Accident"]):
    """The accidents of the recording, newest first; the cursor shows all that is known of one.

    They are read on another thread: the recording may be on a disk that hangs.
    """

    scope: ClassVar[KeyScope] = "accidents"
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(scope)

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._recording = workspace.viewed_time.session.recording
        self._found = _Found()
        self._was_read = self._reading = False

    @property
    def heading(self) -> str:
        """See ``PageScreen.heading``."""
        return "accidents"

    @property
    def footer_keys(self) -> Sequence[FooterKey]:
        """See ``PaintedScreen.footer_keys``."""
        opened = [footer_key("open moment", label="go to this time")] if self._items else []
        return (footer_key("back"), footer_key("help"), *opened, SCROLL)

    def follow(self) -> None:
        """Read the accidents that are known now, unless the previous read hangs."""
        if not self._reading:
            self._read(self._found.joined - self._found.unsettled)

    def _read(self, joined: frozenset[Accident]) -> None:
        self._reading = True
        run_in_thread(
            self.app,
            lambda: _read(self._recording, self._found, joined),
            self._show_found,
            name="gpumon-accidents",
        )

    def _show_found(self, found: _Found) -> None:
        self._reading = False
        if not self.is_attached:
            return
        # The same objects: the cursor stays on its own.
        known = {accident: accident for accident in self._items}
        self._list([known.get(accident, accident) for accident in found.reports])
        self._found, self._was_read = found, True
        self._rows = self.page(self._rows_width)
        self.draw()
        if not found.is_joined:
            self._read(found.joined)

    def _row_data(self) -> tuple[object, object, object]:
        """See ``PageScreen``: also changed while the recording is still searched."""
        history, latest, settled = super()._row_data()
        return history, latest, settled if self._found.is_searched else object()

    def page(self, width: int) -> list[Row]:
        """See ``PageScreen.page``."""
        found = self._found
        self._owners = []
        if not self._was_read:
            return text_rows(_READING, width, "dim")
        if found.trouble:
            return text_rows(found.trouble, width, "state.warning")
        rows, self._owners = accident_rows(
            list(found.reports.values()),
            self._chosen,
            found.first,
            self._history.now,
            width,
            is_complete=found.is_searched,
        )
        return rows

    def action_open(self) -> None:
        """Go back to the moment before the accident under the cursor."""
        accident = self._cursor
        # Not before: it leaves the present.
        player = None if accident is None else self._viewed_time.rewind()
        if accident is None or player is None:
            self.say("there are no accidents" if self._was_read else _READING)
            return
        player.source.seek(max(accident.time, player.playing.first))
        self.dismiss()


def _read(recording: Recording, before: _Found, joined: frozenset[Accident]) -> _Found:
    """The accidents of a recording, a few more of them joined.

    Args:
        recording: The recording.
        before: What was found before.
        joined: The accidents whose reports in it need not be joined again.
    """
    try:
        # Asked first: more may be found meanwhile.
        is_searched, last = recording.events_complete, recording.last or 0.0
        accidents = recorded_accidents(recording, _LISTED)
        first = recording.first
    except RecordingError as error:
        return _Found(is_searched=True, is_joined=True, trouble=error.sentence)
    missing = [accident for accident in accidents if accident not in joined]
    newly = {accident: _joined(recording, accident) for accident in missing[:_JOINED_AT_ONCE]}
    shown = {**before.reports, **newly}
    recent = [accident for accident in newly if last <= accident.time + LEFT_SECONDS]
    return _Found(
        {each: shown.get(each) or report_of(each, None, None) for each in accidents},
        joined.intersection(accidents).union(newly),
        before.unsettled.intersection(joined, accidents).union(recent),
        first,
        is_searched,
        is_joined=len(newly) == len(missing),
    )


def _joined(recording: Recording, accident: Accident) -> AccidentReport:
    try:
        return recorded_report(recording, accident)
    except RecordingError:
        return report_of(accident, None, None)
