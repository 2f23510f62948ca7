"""The recording of a running gpumon with the archive of the machine before it."""

from __future__ import annotations

import math
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpumon.recording.recording import RecordingError
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.archive import Archive, ArchiveHistory, FoundArchive
    from gpumon.recording.history import History
    from gpumon.recording.recording import Event, Recording

_OPENING_SECONDS = 0.3


class JoinedRecording:
    """A ``Recording`` whose beginning is in an archive, and its end in memory.

    Nothing is read before somebody asks for the past. If the archive cannot be read then, or any
    more, the recording begins where memory does.

    Args:
        recent: The recording in memory.
        find: Finds the archive; called once, on a thread of its own.
        make: Makes an empty history, for the states at moments of the archive.
        patience: So many seconds a caller waits for the archive at most: its disk may hang.
    """

    def __init__(
        self,
        recent: Recording,
        find: Callable[[], FoundArchive],
        make: Callable[[], History],
        patience: float = _OPENING_SECONDS,
    ) -> None:
        self._recent = recent
        self._find, self._make = find, make
        self._patience = patience
        self._states: ArchiveHistory | None = None
        self._found: FoundArchive | None = None
        self._oldest: float | None = None
        self._newest: float | None = None
        self._opening: threading.Thread | None = None
        self._starting = threading.Lock()

    @property
    def archive(self) -> Archive | None:
        """The archive, once it has been opened; ``None`` if there is none."""
        self._open()
        return None if self._found is None else self._found.archive

    @property
    def beginning(self) -> str:
        """See ``Recording.beginning``."""
        return "" if self._found is None else self._found.note

    def _open(self) -> None:
        """Open the archive, or begin to."""
        if self._found is not None:
            return
        with self._starting:
            if self._opening is None:
                self._opening = threading.Thread(
                    target=self._open_now, name="gpumon-history", daemon=True
                )
                self._opening.start()
                self._opening.join(self._patience)

    def _open_now(self) -> None:
        found = self._find()
        with self._reading():
            if found.archive is not None:
                self._look_at_ends(found.archive)
            self._found = found

    def _look_at_ends(self, archive: Archive) -> None:
        """Follow an archive that grows and loses its oldest hours; it may be on a slow disk."""
        self._oldest, self._newest = archive.first, archive.last

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Do without the archive from now on if it cannot be read in the block."""
        try:
            yield
        except RecordingError as error:
            from gpumon.recording.archive import FoundArchive

            self._found, self._oldest = FoundArchive(note=error.sentence), None

    def _older(self) -> Archive | None:
        """The archive, if it goes back further than memory does. Reads nothing."""
        archive = self.archive
        if archive is None or self._oldest is None:
            return None
        return archive if self._oldest < self._border() else None

    def _border(self) -> float:
        """The time of the first sample in memory."""
        first = self._recent.first
        return math.inf if first is None else first

    def history_of(self, snapshot: Snapshot) -> History | None:
        """The history up to a snapshot of the archive; ``None`` for one of memory."""
        archive = self._older() if snapshot.time < self._border() else None
        if archive is None:
            return None
        if self._states is None:
            from gpumon.recording.archive import ArchiveHistory

            self._states = ArchiveHistory(archive, self._make)
        with self._reading():
            return self._states.of(snapshot)
        return None

    @property
    def first(self) -> float | None:
        """See ``Recording.first``."""
        return self._recent.first if self._older() is None else self._oldest

    @property
    def last(self) -> float | None:
        """See ``Recording.last``."""
        return self._recent.last

    def at(self, time: float) -> Snapshot | None:
        """See ``Recording.at``."""
        border = self._border()
        archive = self._older() if time < border else None
        if archive is not None:
            with self._reading():
                self._look_at_ends(archive)
                found = archive.at(min(time, _before(border)))
                if found is not None:
                    return found
        return self._recent.at(time)

    def between(self, first: float, last: float, most: int) -> Iterator[Snapshot]:
        """See ``Recording.between``."""
        border = self._border()
        archive = self._older() if first < border else None
        if archive is None:
            yield from self._recent.between(first, last, most)
            return
        end = min(last, _before(border))
        older = round(most * (end - first) / (last - first)) if last > border else most
        with self._reading():
            yield from archive.between(first, end, max(1, older))
        if last >= border:
            yield from self._recent.between(border, last, max(1, most - older))

    def step(self, time: float, samples: int) -> float:
        """See ``Recording.step``."""
        border = self._border()
        archive = self._older()
        if archive is not None:
            with self._reading():
                return self._step_across(archive, time, samples, border)
        return self._recent.step(time, samples)

    def _step_across(self, archive: Archive, time: float, samples: int, border: float) -> float:
        if time < border:
            return self._step_on(archive, time, samples, border)
        reached = self._recent.step(time, samples)
        if samples >= 0 or reached > border:
            return reached
        # It may lead beyond the first sample in memory.
        own = 0
        while own < -samples and self._recent.step(time, -own) > border:
            own += 1
        return archive.step(_before(border), samples + own + 1) if -samples > own else border

    def _step_on(self, archive: Archive, time: float, samples: int, border: float) -> float:
        """A step from a time in the archive, which may lead into memory."""
        reached = archive.step(time, samples)
        if samples <= 0 or (reached < border and reached > archive.step(time, samples - 1)):
            return reached
        own, here = 0, archive.step(time, 0)
        while here < (following := archive.step(time, own + 1)) < border:
            own, here = own + 1, following
        return here if border == math.inf else self._recent.step(border, samples - own - 1)

    def events(self, first: float, last: float) -> Sequence[Event]:
        """See ``Recording.events``."""
        border = self._border()
        archive = self._older() if first < border else None
        older = () if archive is None else archive.events(first, min(last, _before(border)))
        return [*older, *self._recent.events(first, last)]

    @property
    def events_complete(self) -> bool:
        """See ``Recording.events_complete``."""
        archive = self._older()
        return archive is None or archive.events_complete

    def next_event(self, time: float, *, forward: bool) -> Event | None:
        """See ``Recording.next_event``."""
        border, archive = self._border(), self._older()
        if forward:
            older = None if archive is None else archive.next_event(time, forward=True)
            if older is not None and older.time < border:
                return older
            return self._recent.next_event(time, forward=True)
        found = self._recent.next_event(time, forward=False)
        if found is not None or archive is None:
            return found
        return archive.next_event(min(time, border), forward=False)

    @property
    def gaps(self) -> Sequence[tuple[float, float]]:
        """See ``Recording.gaps``."""
        archive = self._older()
        if archive is None:
            return ()
        from gpumon.recording.archive import GAP_SECONDS

        border = self._border()
        gaps = [(begin, min(end, border)) for begin, end in archive.gaps]
        if self._newest is not None:
            gaps.append((self._newest, border))
        return [(begin, end) for begin, end in gaps if begin < end - GAP_SECONDS]

    def origin(self, time: float) -> str:
        """See ``Recording.origin``."""
        archive = self._older() if time < self._border() else None
        return "" if archive is None else f"history in {printable(str(archive.folder))}"

    def close(self) -> None:
        """Close the archive, if it was opened."""
        if self._found is not None and self._found.archive is not None:
            self._found.archive.close()


def _before(time: float) -> float:
    return math.nextafter(time, -math.inf)
