"""Which cards there are: found index by index, known by UUID, asleep, lost, come and gone."""

from __future__ import annotations

import ctypes
import math
from ctypes import byref, c_uint
from typing import TYPE_CHECKING

from gpumon.model import CardStatus
from gpumon.sources.nvml.card import (
    STATUS_OF_CODE,
    Card,
    CardGoneError,
    DriverGoneError,
    StaleHandleError,
)
from gpumon.sources.nvml.processes import process_questions
from gpumon.sources.nvml.questions import questions
from gpumon.sources.nvml.reading import REACTIONS, Reaction
from gpumon.sources.nvml.sleep import is_asleep, may_sleep, sleeping_cards

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.clock import Clock
    from gpumon.selection import GpuSelection
    from gpumon.sources.nvml.library import Library
    from gpumon.sources.nvml.turns import Turns

_NOT_WAITED_FOR = (CardStatus.ASLEEP, CardStatus.NO_ANSWER)
"""The cards of which it is known when they can be asked again."""

RETRY_SECONDS = 5.0
"""After how long a card that could not be had is tried again."""


class Roster:
    """The cards that were chosen.

    Attributes:
        cards: In the order of their indices.
        count: How many there are, chosen or not.
        asked_anew: A card is asked anew, and nobody took note of it yet.
    """

    def __init__(
        self, library: Library, clock: Clock, turns: Turns, selection: GpuSelection, sys: str
    ) -> None:
        self._library = library
        self._clock = clock
        self._turns = turns
        self._selection = selection
        self._sys = sys
        self.count = 0
        self._again_at = math.inf
        self._changed = False
        self.asked_anew = False
        self.cards: list[Card] = []
        self._known: list[Card] = []
        self._uuids: list[str] = []
        self._left_alone: set[str] = set()

    def forget_handles(self) -> None:
        """The driver is gone, or was initialised: nothing is asked until ``find``."""
        for card in self._known:
            card.stop_asking()

    def guard(self, card: Card, ask: Callable[[], object]) -> None:
        """Ask a card something; what it does not survive is its own affair.

        Raises:
            DriverGoneError: When the driver is.
        """
        try:
            ask()
        except CardGoneError as gone:
            card.silence(STATUS_OF_CODE[gone.code])
            self._again_at = min(self._again_at, self._clock.monotonic() + RETRY_SECONDS)
        except StaleHandleError:
            card.stop_asking()
            self._changed = True

    def look(self, now: float) -> None:
        """Before a sample: leave those alone that fell asleep, find those that may be back.

        Raises:
            DriverGoneError: When the driver is.
        """
        if self._library.hanging.keys() != self._left_alone:
            self._changed = True
        for card in self.cards:
            if card.mig_changed:
                self._question(card)
            elif now >= card.wake_at:
                card.wake(now)
            if card.may_sleep and card.bus_id is not None:
                asleep = is_asleep(card.bus_id, self._sys)
                if asleep and card.fast:
                    card.silence(CardStatus.ASLEEP)
                elif not asleep and card.status is CardStatus.ASLEEP and not card.fast:
                    self._changed = True
        if self._changed or now >= self._again_at:
            self.find(now)

    def look_around(self, now: float) -> None:
        """Every few seconds: see whether cards came or went. Raises as ``find`` does."""
        if self._count_cards() != self.count:
            self.find(now)
        for card in self.cards:
            card.may_sleep = card.bus_id is not None and may_sleep(card.bus_id, self._sys)

    def find(self, now: float) -> None:
        """Find every card, each index on its own; what is known stays with its UUID.

        Raises:
            DriverGoneError: When the driver is.
        """
        # Until the end: a thread that hangs here leaves it to be done again by another.
        self._changed = True
        self._left_alone = set(self._library.hanging)
        count, known = self._count_cards(), self._known
        recounted = count != self.count
        asleep = sleeping_cards(count, self._sys)
        cards: list[Card] = []
        uuids: list[str] = []
        for index in range(count):
            # Asking for a handle wakes the card: one that was not chosen is left alone.
            if not self._selection.prefixes and not self._selection.includes(index, None):
                continue
            others = [card for card in known if card not in cards]
            if index in asleep:
                card = self._sleeping(index, asleep[index], others)
            else:
                last = _card_at(index, others, recounted)
                card = self._waking(index, others, last)
            if card.uuid != _nameless(index):
                uuids.append(card.uuid)
            if self._selection.includes(index, card.uuid):
                cards.append(card)
            else:
                card.stop_asking()
        for card in known:
            if card not in cards:
                card.stop_asking()
        self.cards = self._known = cards
        self.count, self._uuids, self._changed = count, uuids, False
        waits = any(not card.fast and card.status not in _NOT_WAITED_FOR for card in cards)
        self._again_at = now + RETRY_SECONDS if waits else math.inf

    def missing(self) -> list[str]:
        """What was chosen and is no card of the machine."""
        return self._selection.missing(self.count, self._uuids)

    def handles(self) -> dict[int, str]:
        """UUIDs of the cards that answer, by what NVML calls them."""
        return {card.handle.value or 0: card.uuid for card in self.cards if card.fast}

    def _count_cards(self) -> int:
        count = c_uint()
        code = self._library.call(None, "nvmlDeviceGetCount_v2", byref(count))
        if not code:
            return count.value
        if REACTIONS.get(code) is Reaction.DRIVER or not self.count:
            raise DriverGoneError(code)
        return self.count

    def _sleeping(self, index: int, bus_id: str, known: list[Card]) -> Card:
        card = next((card for card in known if card.bus_id == bus_id), None)
        if card is None:
            card = self._new(_nameless(index), index)
            card.bus_id = card.facts.values["pci_bus_id"] = bus_id
        card.index = index
        card.may_sleep = True
        card.silence(CardStatus.ASLEEP)
        return card

    def _waking(self, index: int, known: list[Card], last: Card | None) -> Card:
        """The card at an index whose handle may be asked for; ``last`` was there until now."""
        handle = ctypes.c_void_p()
        # Where this hangs, it is the card that was there.
        blamed = _nameless(index) if last is None else last.uuid
        if blamed in self._library.hanging:
            return self._unanswering(last or self._new(blamed, index))
        code = self._library.call(
            blamed, "nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle)
        )
        uuid = ""
        if not code:
            code, uuid = self._library.text(blamed, "nvmlDeviceGetUUID", handle)
        if REACTIONS.get(code) is Reaction.DRIVER:
            raise DriverGoneError(code)
        if code:
            return self._without_handle(index, code, last)
        card = next((card for card in known if card.uuid == uuid), None) or self._new(uuid, index)
        card.index = index
        if uuid in self._library.hanging:
            return self._unanswering(card)
        if not card.fast or card.handle.value != handle.value:
            card.handle.value = handle.value
            self._question(card)
        return card

    def _unanswering(self, card: Card) -> Card:
        """A card with a call that was given up: what was known of it stands still."""
        card.stop_asking()
        if card.status is not CardStatus.NO_ANSWER:
            began = self._library.hanging.get(card.uuid, self._clock.monotonic())
            card.set_status(CardStatus.NO_ANSWER)
            card.status_since = self._clock.time() - (self._clock.monotonic() - began)
        return card

    def _without_handle(self, index: int, code: int, last: Card | None) -> Card:
        card = last or self._new(_nameless(index), index)
        gone = REACTIONS.get(code) in {Reaction.CARD, Reaction.REFUSED}
        if card.fast and not gone:
            # It answers under the handle it has.
            return card
        card.silence(STATUS_OF_CODE.get(code, CardStatus.FAILING))
        return card

    def _new(self, uuid: str, index: int) -> Card:
        card = Card(self._library, self._clock, uuid, index, self._turns.add)
        # At once: were this thread given up, its questions would be asked beside another card's.
        self._known.append(card)
        return card

    def _question(self, card: Card) -> None:
        """Begin to ask: everything, whatever was learned of it before."""
        self.asked_anew = True
        card.begin()
        for reading in (*questions(card), *process_questions(card)):
            card.ask_for(reading)


def _nameless(index: int) -> str:
    """What stands for the UUID of a card that never told it."""
    return f"index-{index}"


def _card_at(index: int, known: list[Card], recounted: bool) -> Card | None:
    """The card that was at this index; after cards came or went it may be at another."""
    return next(
        (
            card
            for card in known
            if card.index == index and (not recounted or card.uuid == _nameless(index))
        ),
        None,
    )
