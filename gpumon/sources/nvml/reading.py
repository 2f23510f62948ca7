"""What a question to the driver is, what it taught so far, and how each answer is taken.

The table of reactions is that of NVML's errors; a card reads by it (``card``).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from gpumon.sources.nvml.library import Code

if TYPE_CHECKING:
    from gpumon.model import Unknown


class Reaction(Enum):
    """What an error means for whoever asked."""

    DRIVER = "the driver as a whole is gone, or was exchanged"
    STALE = "the handle may be stale; if it is not, the card does not do this"
    OTHER = "not this way on this card: ask the older way, and this one again after a pause"
    REFUSED = "not for this user: ask again after a pause"
    EMPTY = "no error: there is nothing"
    CARD = "the card is gone"
    PASSING = "it will do again: keep the last answer for a while, ask less often"
    FAILING = "passing at first, then a sign that something is broken"


REACTIONS: dict[int, Reaction] = {
    Code.UNINITIALIZED: Reaction.DRIVER,
    Code.INVALID_ARGUMENT: Reaction.STALE,
    Code.NOT_SUPPORTED: Reaction.OTHER,
    Code.NO_PERMISSION: Reaction.REFUSED,
    Code.NOT_FOUND: Reaction.EMPTY,
    Code.INSUFFICIENT_SIZE: Reaction.PASSING,
    Code.DRIVER_NOT_LOADED: Reaction.DRIVER,
    Code.LIBRARY_NOT_FOUND: Reaction.DRIVER,
    Code.FUNCTION_NOT_FOUND: Reaction.OTHER,
    Code.GPU_IS_LOST: Reaction.CARD,
    Code.RESET_REQUIRED: Reaction.CARD,
    Code.OPERATING_SYSTEM: Reaction.REFUSED,
    Code.LIB_RM_VERSION_MISMATCH: Reaction.DRIVER,
    Code.IN_USE: Reaction.PASSING,
    Code.MEMORY: Reaction.PASSING,
    Code.NO_DATA: Reaction.EMPTY,
    Code.VGPU_ECC_NOT_SUPPORTED: Reaction.OTHER,
    Code.INSUFFICIENT_RESOURCES: Reaction.PASSING,
    Code.ARGUMENT_VERSION_MISMATCH: Reaction.OTHER,
    Code.DEPRECATED: Reaction.OTHER,
    Code.NOT_READY: Reaction.PASSING,
}
"""By NVML's code. Those not named here are taken as UNKNOWN (999): ``FAILING``."""

PASSES = 3
"""How many answers of UNKNOWN in a row are still a mishap."""

KEPT_SECONDS = 10.0
"""How long the last answer stands in for one that cannot be had."""

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0

_PAUSES_AFTER_ANSWERS = (1.0, 5.0, 30.0, 60.0)
"""Seconds after which something that was answered before is asked again, refusal by refusal."""
_PAUSES_WITHOUT_ANSWER = (10.0, 60.0, 300.0)
"""... and something that never was. A card refuses about a dozen things for life: at the last of
these pauses asking for them again stays below one percent of the calls."""


def pause_after(refusals: int, *, answered: bool) -> float:
    """Seconds to wait before something that was refused is asked again.

    Args:
        refusals: How often in a row it was refused, at least once.
        answered: Whether it was ever answered.
    """
    pauses = _PAUSES_AFTER_ANSWERS if answered else _PAUSES_WITHOUT_ANSWER
    return pauses[min(refusals, len(pauses)) - 1]


class Pace(Enum):
    """How often a question is asked."""

    ONCE = "until it is answered"
    FAST = "every sample"
    SPOT = "every sample for whoever keeps all values, else every second"
    SLOW = "every few seconds"
    RARE = "several times a minute"
    """What people, resets and repairs change, or what moves slowly."""
    PROCESSES = "with the process lists"


class Answers:
    """Values by name, and why those that are missing are.

    Attributes:
        values: What was answered; ``None`` is unknown.
        unknown: Why, for those that are ``None``; replaced, never changed, so that a snapshot may
            hold it.
    """

    __slots__ = ("unknown", "values")

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        """Begin with nothing known.

        Args:
            names: Those that ``values`` holds from the beginning on, in this order.
        """
        self.values: dict[str, Any] = dict.fromkeys(names)
        self.unknown: dict[str, Unknown] = {}

    def miss(self, names: tuple[str, ...], reason: Unknown | None) -> None:
        """These are unknown now, for this reason, or for none where there simply is nothing."""
        unknown = {name: why for name, why in self.unknown.items() if name not in names}
        for name in names:
            self.values[name] = None
            if reason is not None:
                unknown[name] = reason
        self.unknown = unknown

    def found(self, names: tuple[str, ...]) -> None:
        """These are known again."""
        if not self.unknown.keys().isdisjoint(names):
            self.unknown = {name: why for name, why in self.unknown.items() if name not in names}


Ask = Callable[[], int]
"""Asks the driver, keeps the answer where all went well, and returns NVML's code."""


class Reading:
    """A question to one card.

    Attributes:
        names: Which answers it gives.
        ask: Puts it.
        pace: How often.
        otherwise: What to ask in its place while the card or the driver does not do this.
        cost: Seconds inside the driver the last time, or what is known before the first.
        failures: Errors in a row.
        refused: Why the card refuses it; ``None`` while it does not.
        refusals: Refusals in a row.
        answered: It was answered before the errors.
        retry_at: Not to be asked before, on the monotonic clock.
        live: False while it is not asked.
    """

    __slots__ = (
        "answered",
        "ask",
        "cost",
        "failing_since",
        "failures",
        "live",
        "names",
        "otherwise",
        "pace",
        "refusals",
        "refused",
        "retry_at",
    )

    def __init__(
        self,
        names: tuple[str, ...],
        ask: Ask,
        pace: Pace,
        otherwise: Reading | None = None,
        cost: float = 0.0,
    ) -> None:
        self.names = names
        self.ask = ask
        self.pace = pace
        self.otherwise = otherwise
        self.cost = cost
        self.failures = 0
        self.failing_since = 0.0
        self.refused: Unknown | None = None
        self.refusals = 0
        self.answered = False
        self.retry_at = 0.0
        self.live = True
        if otherwise is not None:
            otherwise.live = False

    def fail(self, now: float, forgiven: int) -> None:
        """Count an error; after the first ``forgiven`` of them it is asked less and less often."""
        if self.failures == 0:
            self.failing_since = now
        self.failures += 1
        if self.failures > forgiven:
            longer = 2 ** min(self.failures - forgiven - 1, 8)
            self.retry_at = now + min(_LONGEST_PAUSE, _FIRST_PAUSE * longer)

    def refuse(self, now: float, reason: Unknown) -> None:
        """The card does not do this, or not for this user: it rests, longer each time."""
        self.failures += 1
        self.refusals += 1
        self.refused = reason
        self.retry_at = now + pause_after(self.refusals, answered=self.answered)

    def recover(self) -> None:
        """It was answered."""
        self.failures = self.refusals = 0
        self.refused = None

    def is_too_old(self, now: float) -> bool:
        """Whether the answer from before the errors can no longer stand in."""
        return now - self.failing_since >= KEPT_SECONDS


class FieldReading(Reading):
    """A question that is asked with others, by ``nvmlDeviceGetFieldValues``.

    Attributes:
        field: The field's number in nvml.h. Numbers above 250 were given away anew between two
            generations of the driver, and are never asked.
        scope: The field's scope: a link, or all of them.
        keep: Takes the value; returns a code, ``SUCCESS`` or why it is of no use.
    """

    __slots__ = ("field", "keep", "scope")

    ALL_LINKS = 0xFFFFFFFF

    def __init__(
        self,
        names: tuple[str, ...],
        field: int,
        keep: Callable[[int, float], int],
        pace: Pace,
        otherwise: Reading | None = None,
        scope: int = 0,
    ) -> None:
        super().__init__(names, lambda: Code.SUCCESS, pace, otherwise)
        self.field = field
        self.scope = scope
        self.keep = keep
