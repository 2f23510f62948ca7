"""What signals have changed of the demo's story.

Nothing of it is forgotten and nothing is changed after the fact, so that one time still gives one
snapshot: each lot says from when on it holds. Times are in seconds after the demo's start.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time

from msgspec import Struct

from gpumon.model.snapshot import ProcessId  # noqa: TC001 - msgspec resolves annotations at run time
from gpumon.sources.demo.instances import ProcessInstance  # noqa: TC001 - msgspec resolves annotations at run time


class Effect(Struct, frozen=True):
    """What signals have brought to one process.

    Attributes:
        being: Which.
        end: When it ends by them.
        turns: When it was stopped and continued, in turn.
        pending: Whether it was told to end while stopped, and will once continued.
    """

    being: ProcessInstance
    end: float = math.inf
    turns: tuple[float, ...] = ()
    pending: bool = False

    def stopped(self, now: float) -> bool:
        """Whether it stands still."""
        return bisect_right(self.turns, now) % 2 == 1

    @property
    def silences(self) -> list[tuple[float, float]]:
        """From when till when it does not do what it would do in the story."""
        last = min(self.end, self.being.until)
        turns = [turn for turn in self.turns if turn < last]
        # Stopped or not: from its end on it is silent.
        if len(turns) % 2 == 0:
            turns.append(last)
        return list(zip(turns[::2], [*turns[1::2], self.being.until], strict=True))


class SignalEffects(Struct, frozen=True):
    """Everything that signals have changed.

    Attributes:
        lots: By process.
        moments: When anything of it begins to show, ascending.
    """

    lots: Mapping[ProcessId, Effect] = {}
    moments: tuple[float, ...] = ()

    def end(self, process: ProcessId) -> float:
        """When a process ends by a signal; infinite where none ended it."""
        lot = self.lots.get(process)
        return math.inf if lot is None else lot.end

    def stopped(self, process: ProcessId, now: float) -> bool:
        """Whether it was stopped and not continued."""
        lot = self.lots.get(process)
        return lot is not None and lot.stopped(now)

    def newest(self, now: float) -> float:
        """The last moment at which something began to show."""
        place = bisect_right(self.moments, now)
        return self.moments[place - 1] if place else -math.inf

    def with_lots(self, *lots: Effect) -> SignalEffects:
        """The same with what happened to some more."""
        known = {**self.lots, **{lot.being.id: lot for lot in lots}}
        moments = {moment for lot in known.values() for moment in (lot.end, *lot.turns)}
        return SignalEffects(known, tuple(sorted(moments - {math.inf})))
