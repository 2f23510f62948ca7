"""The effects of signals on the demo's processes.

Effects are never removed or changed for the past, so that one time always gives one snapshot. Times
are in seconds after the demo's start.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time

from msgspec import Struct

from gpumon.makers.demo.instances import ProcessInstance  # noqa: TC001 - msgspec resolves annotations at run time
from gpumon.model.processes import ProcessId  # noqa: TC001 - msgspec resolves annotations at run time


class Effect(Struct, frozen=True):
    """The effect of signals on one process.

    Attributes:
        being: The process.
        end: When it ends because of them.
        turns: When it was stopped and continued, alternately.
        pending: Whether it received a signal to end while stopped, and ends once continued.
    """

    being: ProcessInstance
    end: float = math.inf
    turns: tuple[float, ...] = ()
    pending: bool = False

    def stopped(self, now: float) -> bool:
        """Whether it is stopped at a time."""
        return bisect_right(self.turns, now) % 2 == 1

    @property
    def silences(self) -> list[tuple[float, float]]:
        """The intervals in which it does not do the work of the scenario."""
        last = min(self.end, self.being.until)
        turns = [turn for turn in self.turns if turn < last]
        # It does no work after its end, stopped or not.
        if len(turns) % 2 == 0:
            turns.append(last)
        return list(zip(turns[::2], [*turns[1::2], self.being.until], strict=True))


class SignalEffects(Struct, frozen=True):
    """The effects of all signals.

    Attributes:
        lots: The effects by process.
        moments: When any of them starts to show, ascending.
    """

    lots: Mapping[ProcessId, Effect] = {}
    moments: tuple[float, ...] = ()

    def end(self, process: ProcessId) -> float:
        """When a process ends because of a signal; infinite without one."""
        lot = self.lots.get(process)
        return math.inf if lot is None else lot.end

    def stopped(self, process: ProcessId, now: float) -> bool:
        """Whether a process is stopped at a time."""
        lot = self.lots.get(process)
        return lot is not None and lot.stopped(now)

    def newest(self, now: float) -> float:
        """The last time before ``now`` at which an effect started to show."""
        place = bisect_right(self.moments, now)
        return self.moments[place - 1] if place else -math.inf

    def with_lots(self, *lots: Effect) -> SignalEffects:
        """These effects with more of them."""
        known = {**self.lots, **{lot.being.id: lot for lot in lots}}
        moments = {moment for lot in known.values() for moment in (lot.end, *lot.turns)}
        return SignalEffects(known, tuple(sorted(moments - {math.inf})))
