"""The history as of the displayed moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.recording.history import HistoryAsOf
from gpumon.recording.playback.drafts import Draft
from gpumon.recording.series import RECENT_SPAN

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.history import History
    from gpumon.recording.recording import Recording


class Moments:
    """Asks a history as of one displayed moment after the other.

    Args:
        recording: The recording.
        history: The history of its snapshots, which may receive more.

    Attributes:
        settled: Whether the history had reached the moment when it was last shown.
    """

    def __init__(self, recording: Recording, history: History) -> None:
        self._recording = recording
        self._whole = history
        self._draft = Draft(recording)
        self._shown: HistoryAsOf | None = None
        self._is_complete = False
        self.settled = True

    @property
    def history(self) -> History:
        """The history as of the moment; before the first moment the whole one.

        Another object after a jump, and when more has become known of the moment.
        """
        return self._shown or self._whole

    def show(self, snapshot: Snapshot) -> None:
        """Move to the next moment; the same moment may be repeated."""
        shown, is_complete = self._shown, self._whole.now >= snapshot.time
        is_new = is_complete and not self._is_complete
        if shown is not None and shown.latest is snapshot and not is_new:
            return
        follows = shown is not None and 0 <= snapshot.time - shown.now <= RECENT_SPAN
        # At the end of a log that grows, the history is a moment behind.
        is_near = self._recording.events_complete and self._whole.reaches(snapshot.time)
        self._is_complete, self.settled = is_complete, is_complete or is_near
        if shown is None or is_new or not follows:
            shown = self._shown = HistoryAsOf(self._whole, snapshot)
        else:
            shown.show(snapshot)
        if shown.lacks_values():
            shown.drawn = self._draft.of(snapshot)
