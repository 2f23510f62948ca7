"""When that began which goes on at a moment of a tape, sample by sample.

A history of long ago is made of few samples, and takes the first in which something is so for its
beginning. That lies after a sample in which it was not so; between the two the very first is looked
for on the tape, by halves.
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
    """When something began.

    Attributes:
        time: Of the first sample in which it was so.
        seen: Whether it was not so just before.
    """

    time: float
    seen: bool


class Beginnings(Struct, frozen=True):
    """When everything began that goes on.

    Attributes:
        until: The moment at which it goes on.
        of: What it is -> when it began.
    """

    until: float = 0.0
    of: Mapping[Subject, Beginning] = {}

    def by(self, time: float) -> Beginnings:
        """Those that are known to have gone on at an earlier moment too."""
        if time > self.until:
            return Beginnings()
        begun = {what: beginning for what, beginning in self.of.items() if beginning.time <= time}
        return Beginnings(time, begun)


class PastHistory(History):
    """A history that is told when that began which went on at one moment, and keeps to it.

    Attributes:
        beginnings: What it was told.
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
        """See ``History.as_of``: it is of one moment itself."""
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
        """What it was told of something, if that is not what began only after the moment."""
        return self.beginnings.of.get(what) if since <= self.beginnings.until else None


def find_beginnings(
    tape: Recording, conditions: Mapping[str, Condition], history: History, fed: Sequence[float]
) -> Generator[None, None, Beginnings]:
    """Look up on the tape when that began which goes on in a history, a look with every ``next``.

    Args:
        tape: The tape.
        conditions: What the history watches on every card.
        history: The history; what is asked is how it stands at the first ``next``.
        fed: The times of the samples of the tape that it was made of, in order.
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
    """What goes on in a history, and since when by what it was fed."""
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
    """The time of the first sample in which something is so, after one in which it is not."""
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
    """Whether something is so in a snapshot, for all that is known."""
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
