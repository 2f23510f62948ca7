"""Free, and stayed free: what fits now and did so all the time that is asked for.

The time is watched, or known from a log that covers it without a gap.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.choosing.judging import Refusal, judge_over_time
from gpumon.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.choosing.judging import Verdict
    from gpumon.model import Snapshot
    from gpumon.tape import Tape

GAP_SECONDS = 10.0
"""Between two looks that are further apart nobody knows what was."""
_MOST_LOOKS = 2000

_Verdicts = tuple["Verdict", ...]


class Steady:
    """Keeps what was thought of the cards for as long as that counts.

    Args:
        seconds: For how long a card must have fitted.

    Attributes:
        seconds: The same.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._looks: deque[tuple[float, _Verdicts]] = deque()

    @property
    def left(self) -> float:
        """How many seconds are still to be watched."""
        watched = self._looks[-1][0] - self._looks[0][0] if self._looks else 0.0
        return max(0.0, self.seconds - watched)

    def add(self, time: float, verdicts: _Verdicts) -> None:
        """Take the next look."""
        looks = self._looks
        if looks and not 0 <= time - looks[-1][0] <= GAP_SECONDS:
            looks.clear()
        # Between two looks that say the same of every card one that does too tells nothing.
        if len(looks) > 1 and _said(looks[-2][1]) == _said(looks[-1][1]) == _said(verdicts):
            looks.pop()
        looks.append((time, verdicts))
        # The one that reaches back over the whole time stays.
        while len(looks) > 1 and looks[1][0] <= time - self.seconds:
            looks.popleft()

    def verdicts(self) -> _Verdicts:
        """What is thought of each card by now."""
        judged = judge_over_time(tuple(self._looks))
        left = self.left
        return judged if not left else tuple(self._unsettled(one, left) for one in judged)

    def _unsettled(self, verdict: Verdict, left: float) -> Verdict:
        if verdict.refusal is not None:
            return verdict
        asked, watched = duration(self.seconds), duration(self.seconds - left)
        return replace(
            verdict, refusal=Refusal("watching", f"it fits, watched for {watched} of {asked}")
        )


def _said(verdicts: _Verdicts) -> dict[str, str | None]:
    """Why each card does not fit, by its UUID; ``None`` for one that does."""
    refusals = {one.candidate.uuid: one.refusal for one in verdicts}
    return {uuid: None if why is None else why.kind for uuid, why in refusals.items()}


def look_back(
    steady: Steady, tape: Tape, now: float, judge: Callable[[Snapshot], _Verdicts]
) -> None:
    """Take the looks of a log, where they reach up to now.

    Args:
        steady: Keeps them.
        tape: The log.
        now: Seconds since the epoch.
        judge: Says what is thought of the cards at one look.
    """
    for snapshot in tape.between(now - steady.seconds - GAP_SECONDS, now, _MOST_LOOKS):
        steady.add(snapshot.time, judge(snapshot))
