"""Stability: GPUs that are eligible now and were so for the whole required time.

The time is observed, or read from a log that covers it without a gap.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.scheduling.eligibility import Ineligibility
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.recording import Recording
    from gpumon.scheduling.eligibility import Eligibility

GAP_SECONDS = 10.0
"""The state between two samples further apart than this is unknown."""
_MOST_LOOKS = 2000

_Verdicts = tuple["Eligibility", ...]


class StabilityWindow:
    """Keeps the results of past samples for as long as they matter.

    Args:
        seconds: Seconds for which a GPU must have been eligible.

    Attributes:
        seconds: The same.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._looks: deque[tuple[float, _Verdicts]] = deque()

    @property
    def left(self) -> float:
        """Seconds that must still be observed."""
        watched = self._looks[-1][0] - self._looks[0][0] if self._looks else 0.0
        return max(0.0, self.seconds - watched)

    def add(self, time: float, verdicts: _Verdicts) -> None:
        """Add the next sample's results."""
        looks = self._looks
        if looks and not 0 <= time - looks[-1][0] <= GAP_SECONDS:
            looks.clear()
        # A result equal to both its neighbours carries no information.
        if len(looks) > 1 and _said(looks[-2][1]) == _said(looks[-1][1]) == _said(verdicts):
            looks.pop()
        looks.append((time, verdicts))
        # Keep the sample that reaches back over the whole time.
        while len(looks) > 1 and looks[1][0] <= time - self.seconds:
            looks.popleft()

    def verdicts(self) -> _Verdicts:
        """The current eligibility of each GPU."""
        judged = judge_over_time(tuple(self._looks))
        left = self.left
        return judged if not left else tuple(self._unsettled(one, left) for one in judged)

    def _unsettled(self, verdict: Eligibility, left: float) -> Eligibility:
        if verdict.refusal is not None:
            return verdict
        asked, watched = duration(self.seconds), duration(self.seconds - left)
        return replace(
            verdict, refusal=Ineligibility("watching", f"it fits, watched for {watched} of {asked}")
        )


def _said(verdicts: _Verdicts) -> dict[str, str | None]:
    """Why each GPU is not eligible, by UUID; ``None`` if it is."""
    refusals = {one.candidate.uuid: one.refusal for one in verdicts}
    return {uuid: None if why is None else why.kind for uuid, why in refusals.items()}


def look_back(
    stability: StabilityWindow, tape: Recording, now: float, judge: Callable[[Snapshot], _Verdicts]
) -> None:
    """Add the samples of a log, if they reach up to now.

    Args:
        stability: Receives the results.
        tape: The log.
        now: Seconds since the epoch.
        judge: Returns the eligibility of the GPUs for one snapshot.
    """
    for snapshot in tape.between(now - stability.seconds - GAP_SECONDS, now, _MOST_LOOKS):
        stability.add(snapshot.time, judge(snapshot))


def judge_over_time(
    looks: Sequence[tuple[float, tuple[Eligibility, ...]]],
) -> tuple[Eligibility, ...]:
    """The last of several evaluations, where a GPU must have been eligible in all of them.

    Args:
        looks: Time and results of each, oldest first, at least one.
    """
    now = looks[-1][0]
    earlier: dict[str, tuple[float, Ineligibility]] = {}
    always = set.intersection(*({one.candidate.uuid for one in each} for _, each in looks))
    for at, verdicts in looks[:-1]:
        for verdict in verdicts:
            # A GPU whose reservation ended was in use, or its result would show it.
            if verdict.refusal is not None and verdict.refusal.kind not in ("reserved", "queue"):
                earlier[verdict.candidate.uuid] = at, verdict.refusal
    told = []
    for verdict in looks[-1][1]:
        uuid = verdict.candidate.uuid
        sentence = ""
        if uuid in earlier:
            at, refusal = earlier[uuid]
            sentence = f"it fits now, but {duration(now - at)} ago: {refusal.sentence}"
        elif uuid not in always:
            sentence = "it fits now, but was not there all the time"
        unsteady = sentence and verdict.refusal is None
        told.append(
            replace(verdict, refusal=Ineligibility("stable", sentence)) if unsteady else verdict
        )
    return tuple(told)
