"""Follows the accidents of a machine from snapshot to snapshot.

It keeps the newest process lists, for accidents that are reported after a list without the process.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpumon.accidents.join import AccidentReport, report_of
from gpumon.accidents.lines import first_lines
from gpumon.model.accidents import ACCIDENT_SECONDS, ACCIDENTS_KEPT, SAME_SECONDS
from gpumon.model.codec import encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.model.accidents import Accident
    from gpumon.model.snapshot import Snapshot

_LISTS_KEPT = 8
"""The kernel log is read soon after a line is written; lists are read every second or later."""
LISTS_BYTES = 2**20
"""What the older lists take at most, encoded. As objects they take several times as much."""


class _LatestLists:
    """Keeps the snapshots with the newest process lists.

    Args:
        most_bytes: What all but the newest take at most, encoded.
    """

    def __init__(self, most_bytes: int = LISTS_BYTES) -> None:
        self._most_bytes = most_bytes
        # With the sizes of the encoded snapshots.
        self._kept: deque[tuple[Snapshot, int]] = deque(maxlen=_LISTS_KEPT)

    def see(self, snapshot: Snapshot) -> None:
        """Add the next snapshot."""
        if snapshot.processes_at is None:
            return
        if self._kept and self._kept[-1][0].processes_at == snapshot.processes_at:
            return
        while self._kept and sum(size for _, size in self._kept) > self._most_bytes:
            self._kept.popleft()
        self._kept.append((snapshot, len(encode(snapshot))))

    def before(self, time: float) -> Snapshot | None:
        """The newest snapshot whose lists are not newer than a time."""
        for snapshot, _ in reversed(self._kept):
            if snapshot.processes_at is not None and snapshot.processes_at <= time:
                return snapshot
        return None


class NewAccident(NamedTuple):
    """An accident that was not seen before, or lines that follow from one that was.

    Attributes:
        report: The accident from its first new line on.
        before: The newest snapshot whose lists are older; if none is kept, the previous one.
        follows: Whether its first line was seen before. The new lines then say something else, such
            as the reset after a time-out, or another XID.
    """

    report: AccidentReport
    before: Snapshot | None
    follows: bool


class AccidentFollower:
    """Finds the accidents that are new in a snapshot, and what is known of them.

    Args:
        most_bytes: What older process lists take at most, encoded.
    """

    def __init__(self, most_bytes: int = LISTS_BYTES) -> None:
        self._lists = _LatestLists(most_bytes)
        self._newest: Snapshot | None = None
        # A machine that is connected again reads its kernel log again, a few samples later.
        self._seen: tuple[Accident, ...] = ()

    def see(self, snapshot: Snapshot) -> list[NewAccident]:
        """The new accidents of the next snapshot; the first may have some from long before it."""
        found = []
        for (first, *further), follows in _new(self._seen, snapshot.accidents):
            before = self._lists.before(first.time) or self._newest
            report = report_of(first, before, snapshot, tuple(further))
            found.append(NewAccident(report, before, follows))
        self._remember(snapshot)
        self._lists.see(snapshot)
        self._newest = snapshot
        return found

    def _remember(self, snapshot: Snapshot) -> None:
        now = snapshot.accidents
        if now == self._seen:
            return
        earlier = [
            accident
            for accident in self._seen
            if accident not in now and abs(snapshot.time - accident.time) < ACCIDENT_SECONDS
        ]
        self._seen = (*earlier[-ACCIDENTS_KEPT:], *now)


def _new(
    seen: Sequence[Accident], accidents: Sequence[Accident]
) -> Iterator[tuple[list[Accident], bool]]:
    """The new lines of each accident, and whether they follow from a line that was seen."""
    if not accidents or seen == accidents:
        return
    known: dict[Accident, list[float]] = {}
    for accident in seen:
        known.setdefault(replace(accident, time=0.0), []).append(accident.time)
    for first, further in first_lines(accidents).items():
        lines = (first, *further)
        told = {(line.kind, line.number) for line in lines if _is_known(line, known)}
        if new := [line for line in lines if (line.kind, line.number) not in told]:
            yield new, bool(told)


def _is_known(accident: Accident, known: dict[Accident, list[float]]) -> bool:
    # The clock of a log, or of another machine, is known to some milliseconds. What an event of the
    # driver reported may get the text of its line in the kernel log later.
    return any(
        abs(accident.time - time) < SAME_SECONDS
        for each in (accident, accident.bare())
        for time in known.get(replace(each, time=0.0), ())
    )
