"""One card: its handle, what is known of it, and how it takes the driver's errors."""

from __future__ import annotations

import ctypes
import math
from functools import partial
from typing import TYPE_CHECKING

from gpumon.metrics import GPU_METRICS, Tier
from gpumon.model import CardStatus, Gpu, MigInstance, Unknown
from gpumon.sources.nvml.fields import FieldBatch
from gpumon.sources.nvml.library import Code
from gpumon.sources.nvml.reading import (
    PASSES,
    REACTIONS,
    Answers,
    FieldReading,
    Pace,
    Reaction,
    Reading,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.clock import Clock
    from gpumon.sources.nvml.library import Library

STATUS_OF_CODE: dict[int, CardStatus] = {
    Code.GPU_IS_LOST: CardStatus.LOST,
    Code.RESET_REQUIRED: CardStatus.RESET_REQUIRED,
    Code.NO_PERMISSION: CardStatus.NO_PERMISSION,
    Code.OPERATING_SYSTEM: CardStatus.NO_PERMISSION,
}
"""What becomes of a card whose handle cannot be had; any other code makes it ``FAILING``."""

REASON_OF_STATUS: dict[CardStatus, Unknown] = {
    CardStatus.LOST: Unknown.CARD_LOST,
    CardStatus.RESET_REQUIRED: Unknown.CARD_LOST,
    CardStatus.NO_PERMISSION: Unknown.NO_PERMISSION,
    CardStatus.ASLEEP: Unknown.ASLEEP,
    CardStatus.FAILING: Unknown.NO_ANSWER,
}


COMPUTE, GRAPHICS, MPS = "C", "G", "M"
"""The process lists of a card, in nvidia-smi's letters."""

_MOVES = (Pace.FAST, Pace.SPOT)
"""The paces of what tells whether a card is failing."""

_ANSWERED = Gpu.__struct_fields__[Gpu.__struct_fields__.index("mig") + 1 :]
"""The fields of ``Gpu`` that are answers of the driver, in their order; the others come first."""

MOVING: tuple[str, ...] = (
    *(
        metric.field
        for metric in GPU_METRICS
        if metric.tier is not Tier.STATIC and metric.field not in {"xid", "xid_at"}
    ),
    "fan_speeds",
)
"""What can no longer be known of a card that does not answer."""


class DriverGoneError(Exception):
    """The driver as a whole does not answer any more.

    Attributes:
        code: NVML's.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class CardGoneError(Exception):
    """A card does not answer any more.

    Attributes:
        code: NVML's.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class StaleHandleError(Exception):
    """A handle no longer stands for its card: the cards must be enumerated again."""


class Card:
    """A card, under its UUID.

    Attributes:
        uuid: Its UUID; ``index-N`` for one whose handle could never be had.
        index: Its index in nvidia-smi's order.
        handle: What NVML calls it; kept, so that readings may hold it.
        bus_id: Where it is on the PCI bus, as NVML or the kernel writes it.
        status: Whether it answers.
        facts: What is known of it: the fields of ``Gpu``.
        lists: What is known of its processes; see ``processes``.
        may_sleep: The kernel may power it down.
        integrated: It is of a kind that has no memory of its own.
        mig: Its MIG devices.
        mig_handles: What NVML calls them, in the same order.
        mig_changed: MIG was switched on or off: what was learned of the card is void.
        sampled_at: When values were last read, since the epoch.
        wake_at: When something that was refused is to be asked again.
        fast: What is asked at every sample.
        spots: What is asked then too where somebody keeps all values.
        slow: What is asked in turn with the other cards' slow questions.
        medium: What is asked about its processes.
    """

    def __init__(
        self,
        library: Library,
        clock: Clock,
        uuid: str,
        index: int,
        ask_in_turn: Callable[[Card, Reading], None],
    ) -> None:
        self.uuid = uuid
        self.index = index
        self.handle = ctypes.c_void_p()
        self.bus_id: str | None = None
        self.status = CardStatus.OK
        self.status_since = clock.time()
        self.sampled_at: float | None = None
        self.facts = Answers(_ANSWERED)
        self.lists = Answers()
        self.may_sleep = False
        self.integrated = False
        self.mig: tuple[MigInstance, ...] = ()
        self.mig_handles: tuple[ctypes.c_void_p, ...] = ()
        self.mig_changed = False
        self.clock = clock
        self.call = partial(library.call, uuid)
        self.prepared = partial(library.prepared, uuid)
        self.text = partial(library.text, uuid)
        self.has = library.has
        self.fast: list[Reading] = []
        self.spots: list[Reading] = []
        self.slow: list[Reading] = []
        self.medium: list[Reading] = []
        self.wake_at = math.inf
        self._resting: list[Reading] = []
        self._ask_in_turn = ask_in_turn
        self._batches: dict[Pace, FieldBatch] = {}
        self._broken: set[Reading] = set()
        self._spotted = False

    # What is asked

    def begin(self) -> None:
        """As with a card just found: nothing asked, nothing learned, no value believed."""
        self.stop_asking()
        self.facts.unknown = {}
        self.facts.miss(MOVING, None)
        self.lists = Answers()
        self.mig, self.mig_handles = (), ()
        self.mig_changed = False
        self._spotted = False

    def stop_asking(self) -> None:
        """Drop every question, and what was learned with them."""
        fields = [reading for batch in self._batches.values() for reading in batch.readings]
        for reading in (*self.fast, *self.spots, *self.slow, *self.medium, *fields):
            reading.live = False
        self.fast, self.spots, self.slow, self.medium = [], [], [], []
        self._resting, self.wake_at = [], math.inf
        self._batches = {}
        self._broken = set()

    def ask_for(self, reading: Reading) -> None:
        """Put a question from now on, at its pace."""
        reading.live = True
        if isinstance(reading, FieldReading):
            self._batch(reading.pace).add(reading)
        elif reading.pace is Pace.FAST:
            self.fast.append(reading)
        elif reading.pace is Pace.SPOT:
            self.spots.append(reading)
        elif reading.pace is Pace.PROCESSES:
            self.medium.append(reading)
        else:
            self.slow.append(reading)
            self._ask_in_turn(self, reading)

    def _batch(self, pace: Pace) -> FieldBatch:
        batch = self._batches.get(pace)
        if batch is None:
            prepared = partial(self.prepared, "nvmlDeviceGetFieldValues", self.handle)
            batch = FieldBatch(prepared, self.settle)
            self._batches[pace] = batch
            self.ask_for(Reading((), batch.ask, pace))
        return batch

    def ask_about_processes_again(self) -> None:
        """There is another way now to ask about its processes: by its MIG devices."""
        for reading in self._resting:
            if reading.pace is Pace.PROCESSES:
                reading.retry_at = self.wake_at = -math.inf

    def wake(self, now: float) -> None:
        """Ask what was refused again, once it has rested."""
        rested = [reading for reading in self._resting if reading.retry_at <= now]
        self._resting = [reading for reading in self._resting if reading.retry_at > now]
        self._set_alarm()
        for reading in rested:
            self.ask_for(reading)

    def _set_alarm(self) -> None:
        self.wake_at = min((reading.retry_at for reading in self._resting), default=math.inf)

    def _drop(self, reading: Reading) -> None:
        """Do not ask this any more."""
        reading.live = False
        self._broken.discard(reading)
        if isinstance(reading, FieldReading) and reading in self._batches[reading.pace].readings:
            self._batches[reading.pace].drop(reading)
        for readings in (self.fast, self.spots, self.slow, self.medium, self._resting):
            if reading in readings:
                readings.remove(reading)

    # Asking

    def ask(self, reading: Reading, now: float) -> Reading | None:
        """Put a question, unless its time has not come.

        Returns:
            The older question that takes its place from now on, if one does.

        Raises:
            DriverGoneError: When the driver is.
            CardGoneError: When this card is.
            StaleHandleError: When the handle stands for nothing any more.
        """
        if reading.retry_at > now:
            return None
        code = reading.ask()
        return self.settle(reading, code) if code or reading.failures else None

    def ask_all(self, readings: list[Reading], now: float) -> None:
        """Put these questions, and the older ones that replace them. Raises as ``ask`` does."""
        pending = list(readings)
        for reading in pending:
            # As ``ask`` does, without the call: a thousand times a second that is felt.
            if reading.retry_at > now:
                continue
            code = reading.ask()
            if not code and not reading.failures:
                continue
            older = self.settle(reading, code)
            # A field is asked with the next batch.
            if older is not None and not isinstance(older, FieldReading):
                pending.append(older)

    def read_fast(self, now: float, *, spots: bool) -> None:
        """Read what moves quickly, with ``spots`` or without. Raises as ``ask`` does."""
        # Of a card that is asked anew nothing is known.
        spots = spots or not self._spotted
        self.ask_all(self.fast + self.spots if spots else self.fast, now)
        self._spotted = True
        self.sampled_at = self.clock.time()
        self._judge()

    def settle(self, reading: Reading, code: int) -> Reading | None:
        """Draw the consequence of an answer. Returns and raises as ``ask`` does."""
        answers = self.lists if reading.pace is Pace.PROCESSES else self.facts
        if not code:
            self._recover(reading, answers)
            return None
        if not reading.failures and not reading.answered:
            reading.answered = any(answers.values.get(name) is not None for name in reading.names)
        reaction = REACTIONS.get(code, Reaction.FAILING)
        if reaction is Reaction.DRIVER:
            raise DriverGoneError(code)
        if reaction is Reaction.CARD:
            raise CardGoneError(code)
        if reaction is Reaction.STALE:
            if self.handle_is_stale():
                raise StaleHandleError
            reaction = Reaction.OTHER
        if reaction is Reaction.OTHER:
            return self._rest(reading, answers, Unknown.NOT_SUPPORTED)
        if reaction is Reaction.REFUSED:
            return self._rest(reading, answers, Unknown.NO_PERMISSION)
        if reading.refused is not None and reaction is not Reaction.EMPTY:
            return self._rest(reading, answers, reading.refused)
        if reaction is Reaction.EMPTY:
            self._recover(reading, answers)
            answers.miss(reading.names, None)
        else:
            self._fail(reading, answers, passing=reaction is Reaction.PASSING)
        return None

    def _rest(self, reading: Reading, answers: Answers, reason: Unknown) -> Reading | None:
        """The card refuses this: leave it alone for a while, and go by the older way meanwhile."""
        known, older = reading.refused is reason, reading.otherwise
        self._drop(reading)
        reading.refuse(self.clock.monotonic(), reason)
        self._resting.append(reading)
        self._set_alarm()
        if known:
            # The answers of the older way stay as they are.
            return None
        answers.miss(reading.names, reason)
        if reason is not Unknown.NOT_SUPPORTED:
            self._drop_older(reading)
            return None
        if older is None:
            return None
        # Why the newer way had no answer is not why the older one has none.
        answers.found(older.names)
        self.ask_for(older)
        return older

    def _fail(self, reading: Reading, answers: Answers, *, passing: bool) -> None:
        now = self.clock.monotonic()
        reading.fail(now, forgiven=0 if passing else PASSES)
        nothing_kept = all(answers.values.get(name) is None for name in reading.names)
        given_up = reading.failures >= PASSES
        if (nothing_kept or reading.is_too_old(now)) if passing else given_up:
            answers.miss(reading.names, Unknown.NO_ANSWER)
            self._broken.add(reading)

    def _recover(self, reading: Reading, answers: Answers) -> None:
        if reading in self._broken or reading.refused is not None:
            self._broken.discard(reading)
            answers.found(reading.names)
        reading.recover()
        self._drop_older(reading)

    def _drop_older(self, reading: Reading) -> None:
        while (older := reading.otherwise) is not None:
            self._drop(older)
            older.recover()
            reading = older

    def handle_is_stale(self) -> bool:
        """Whether the handle no longer stands for this card."""
        code, uuid = self.text("nvmlDeviceGetUUID", self.handle)
        return code == Code.INVALID_ARGUMENT or (not code and uuid != self.uuid)

    # How it is

    def _judge(self) -> None:
        """A card that leaves most of what is asked of it unanswered is failing."""
        if not self._broken and self.status is CardStatus.OK:
            return
        batches = [self._batches[pace] for pace in _MOVES if pace in self._batches]
        fields = [reading for batch in batches for reading in batch.readings]
        asked = {*self.fast, *self.spots, *fields}
        failing = 2 * len(self._broken & asked) > len(asked)
        self.set_status(CardStatus.FAILING if failing else CardStatus.OK)

    def set_status(self, status: CardStatus) -> None:
        """From now on this is how it is; the moment is kept when it has changed."""
        if status is not self.status:
            self.status = status
            self.status_since = self.clock.time()

    def silence(self, status: CardStatus) -> None:
        """It is not asked any more: what moves is unknown, what it is stays known."""
        self.set_status(status)
        self.stop_asking()
        reason = REASON_OF_STATUS[status]
        moving = tuple(name for name in MOVING if self.facts.unknown.get(name) != reason)
        if moving:
            self.facts.miss(moving, reason)
        self.lists = Answers()
        self.lists.miss((COMPUTE,), reason)
        self.mig, self.mig_handles = (), ()

    @property
    def processes_unknown(self) -> Unknown | None:
        """Why it is not known who uses it: the list without which nobody can be named is not."""
        if self.lists.values.get(COMPUTE) is not None:
            return None
        return self.lists.unknown.get(COMPUTE, Unknown.NOT_READ)

    def _unknown(self) -> dict[str, Unknown]:
        """Why what is unknown is."""
        why = self.processes_unknown
        return self.facts.unknown if why is None else {**self.facts.unknown, "processes": why}

    def snapshot(self) -> Gpu:
        """The card as it is known now."""
        # By place: seventy names took twice as long.
        return Gpu(
            self.index,
            self.uuid,
            self.status,
            self.status_since,
            self.sampled_at,
            self._unknown(),
            self.mig,
            *self.facts.values.values(),
        )
