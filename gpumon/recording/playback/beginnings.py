"""Finds when ongoing conditions began, by a search over the samples of a recording.

A history of long ago is built from few samples, and takes the first one in which a condition holds
for its start. The real start is after the previous one; a binary search between the two finds the
first sample in which the condition holds.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.model.snapshot import ProcessId
from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.history import History, Interval
from gpumon.recording.history.holdings import Holding, holdings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from typing import TypeAlias

    from gpumon.model.snapshot import Gpu, GpuProcess, Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording import Recording
    from gpumon.recording.history import Condition

    Subject: TypeAlias = "tuple[str, str] | tuple[str, str | None, None] | ProcessId"
    """A condition of a card, a user's being there on a card, or a process's rest."""


class Beginning(Struct, frozen=True):
    """The start of a condition.

    Attributes:
        time: The time of the first sample in which it held.
        seen: Whether it did not hold in the sample before.
    """

    time: float
    seen: bool


class Beginnings(Struct, frozen=True):
    """The starts of all ongoing conditions.

    Attributes:
        until: The moment at which they are ongoing.
        of: Condition -> start.
    """

    until: float = 0.0
    of: Mapping[Subject, Beginning] = {}

    def by(self, time: float) -> Beginnings:
        """The starts of the conditions that were also ongoing at an earlier moment."""
        if time > self.until:
            return Beginnings()
        begun = {what: beginning for what, beginning in self.of.items() if beginning.time <= time}
        return Beginnings(time, begun)


class PastHistory(History):
    """A history that uses known starts of the conditions that were ongoing at one moment.

    Attributes:
        beginnings: The known starts.
    """

    def __init__(
        self,
        conditions: Mapping[str, Condition],
        beginnings: Beginnings,
        thresholds: Thresholds = DEFAULTS,
    ) -> None:
        super().__init__(conditions, thresholds)
        self.beginnings = beginnings

    def as_of(self, snapshot: Snapshot) -> History:  # noqa: ARG002 - the signature of History
        """See ``History.as_of``; it already is as of one moment."""
        return self

    def spell(self, uuid: str, name: str) -> Interval | None:
        """See ``History.spell``."""
        return self._exactly(super().spell(uuid, name), (uuid, name))

    def process_idle(self, process: ProcessId) -> Interval | None:
        """See ``History.process_idle``."""
        return self._exactly(super().process_idle(process), process)

    def holding(self, gpu: Gpu) -> Holding | None:
        """See ``History.holding``."""
        holding = super().holding(gpu)
        if holding is None or holding.owner_since is None:
            return holding
        known = self._beginning((gpu.uuid, holding.owners[0], None), holding.owner_since)
        return holding if known is None else replace(holding, owner_since=known.time)

    def _exactly(self, spell: Interval | None, what: Subject) -> Interval | None:
        known = None if spell is None else self._beginning(what, spell.since)
        if spell is None or known is None:
            return spell
        return replace(spell, since=known.time, begin_seen=known.seen)

    def _beginning(self, what: Subject, since: float) -> Beginning | None:
        """The known start of a condition, unless it is after the moment."""
        return self.beginnings.of.get(what) if since <= self.beginnings.until else None


def find_beginnings(
    tape: Recording, conditions: Mapping[str, Condition], history: History, fed: Sequence[float]
) -> Generator[None, None, Beginnings]:
    """Search the recording for the starts of a history's ongoing conditions; one step per ``next``.

    Args:
        tape: The tape.
        conditions: The conditions that the history tracks for every GPU.
        history: The history; its state at the first ``next`` is used.
        fed: The times of the samples that it was built from, in order.
    """
    until = history.now
    found: dict[Subject, Beginning] = {}
    for what, beginning in _going(history, conditions).items():
        place = bisect_left(fed, beginning.time)
        if beginning.seen and place > 0:
            is_so = _question(what, conditions)
            first = yield from _first_so(tape, fed[place - 1], beginning.time, is_so)
            found[what] = Beginning(first, seen=True)
        else:
            found[what] = beginning
    return Beginnings(until, found)


def _going(history: History, conditions: Mapping[str, Condition]) -> dict[Subject, Beginning]:
    """The ongoing conditions of a history, with their starts in the samples fed."""
    going: dict[Subject, Beginning] = {}
    latest = history.latest
    if latest is None:
        return going
    for gpu in latest.gpus:
        for name in conditions:
            spell = history.spell(gpu.uuid, name)
            if spell is not None:
                going[gpu.uuid, name] = Beginning(spell.since, spell.begin_seen)
        holding = history.holding(gpu)
        if holding is not None and holding.owner_since is not None:
            going[gpu.uuid, holding.owners[0], None] = Beginning(holding.owner_since, seen=True)
    for process in latest.processes:
        spell = history.process_idle(process.id)
        if spell is not None:
            going[process.id] = Beginning(spell.since, spell.begin_seen)
    return going


def _first_so(
    tape: Recording, without: float, with_: float, is_so: Callable[[Snapshot], bool]
) -> Generator[None, None, float]:
    """The time of the first sample in which a condition holds, after one in which it does not."""
    while (after := tape.step(without, 1)) < with_:
        middle = tape.at((without + with_) / 2)
        if middle is None or middle.time <= without:
            middle = tape.at(after)
        if middle is None or not without < middle.time < with_:
            break
        if is_so(middle):
            with_ = middle.time
        else:
            without = middle.time
        yield
    return with_


def _question(what: Subject, conditions: Mapping[str, Condition]) -> Callable[[Snapshot], bool]:
    """A function that tells whether a condition holds in a snapshot."""
    if isinstance(what, ProcessId):
        return lambda snapshot: any(
            process.id == what and not process.sm for process in snapshot.processes
        )
    if len(what) == 3:
        uuid, user, _ = what
        return lambda snapshot: any(
            process.user == user and process.type != "G" and _is_on(process, uuid)
            for process in snapshot.processes
        )
    uuid, name = what
    condition = conditions[name]

    def holds(snapshot: Snapshot) -> bool:
        held = holdings((process, snapshot.time) for process in snapshot.processes)
        return any(
            gpu.uuid == uuid and condition.of(gpu, held.get(uuid, _EMPTY)) is not False
            for gpu in snapshot.gpus
        )

    return holds


def _is_on(process: GpuProcess, uuid: str) -> bool:
    return any(use.gpu_uuid == uuid for use in process.uses)


_EMPTY = Holding()
