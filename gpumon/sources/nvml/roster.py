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
from gpumon.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.clock import Clock
    from gpumon.selection import GpuSelection
    from gpumon.sources.nvml.library import Library
    from gpumon.sources.nvml.turns import Turns

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
        self._uuids: list[str] = []

    def start(self, now: float) -> None:
        """The driver was initialised: every handle is new. Raises as ``find`` does."""
        for card in self.cards:
            card.stop_asking()
        self.find(now)

    def stop(self) -> None:
        """The driver is gone: nothing is asked any more."""
        for card in self.cards:
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
        counted, self.count = self.count, self._count_cards()
        recounted = counted != self.count
        self._changed = False
        asleep = sleeping_cards(self.count, self._sys)
        known, self.cards, self._uuids = self.cards, [], []
        for index in range(self.count):
            # Asking for a handle wakes the card: one that was not chosen is left alone.
            if not self._selection.prefixes and not self._selection.includes(index, None):
                continue
            others = [card for card in known if card not in self.cards]
            if index in asleep:
                card = self._sleeping(index, asleep[index], others)
            else:
                last = _card_at(index, others, recounted)
                card = self._waking(index, others, last)
            self._uuids += [] if card.uuid is None else [card.uuid]
            if self._selection.includes(index, card.uuid):
                self.cards.append(card)
            else:
                card.stop_asking()
        for card in known:
            if card not in self.cards:
                card.stop_asking()
        waits = any(not card.fast and card.status is not CardStatus.ASLEEP for card in self.cards)
        self._again_at = now + RETRY_SECONDS if waits else math.inf

    def missing(self) -> list[str]:
        """What was chosen and is no card of the machine."""
        return self._selection.missing(self.count, self._uuids)

    def describe_all(self) -> list[str]:
        """All cards of the machine, chosen or not, for a person."""
        words = []
        for index in range(self.count):
            handle = ctypes.c_void_p()
            code = self._library.call(
                None, "nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle)
            )
            name, uuid = "a card that does not answer", ""
            if not code:
                _, name = self._library.text(None, "nvmlDeviceGetName", handle)
                _, uuid = self._library.text(None, "nvmlDeviceGetUUID", handle)
            words.append(f"{index}: {printable(name)} {printable(uuid)}".rstrip())
        return words

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
        blamed = None if last is None else last.uuid
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
        if not card.fast or card.handle.value != handle.value:
            card.handle.value = handle.value
            self._question(card)
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
        return Card(self._library, self._clock, uuid, index, self._turns.add)

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
