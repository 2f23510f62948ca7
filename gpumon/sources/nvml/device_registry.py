"""Finds the GPUs: by index, identified by UUID, also those that are asleep, lost or new."""

from __future__ import annotations

import ctypes
import math
from ctypes import byref, c_uint
from typing import TYPE_CHECKING

from gpumon.model.snapshot import CardStatus, Unknown
from gpumon.sources.nvml.card import (
    STATUS_OF_CODE,
    CardGoneError,
    DriverGoneError,
    NvmlCard,
    StaleHandleError,
)
from gpumon.sources.nvml.gpm import METRICS, GpmSampler
from gpumon.sources.nvml.metric_readers import metric_queries
from gpumon.sources.nvml.processes import process_queries
from gpumon.sources.nvml.queries import REACTIONS, Reaction
from gpumon.sources.nvml.sleep import is_asleep, may_sleep, sleeping_cards

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.selection import GpuSelection
    from gpumon.sources.nvml.library import Library
    from gpumon.sources.nvml.slow_call_budget import SlowCallBudget
    from gpumon.system.clock import Clock

_NOT_WAITED_FOR = (CardStatus.ASLEEP, CardStatus.NO_ANSWER)
"""GPUs that are not retried: another event says when they respond again."""

RETRY_SECONDS = 5.0
"""Seconds after which a GPU that could not be opened is retried."""


class DeviceRegistry:
    """The selected GPUs.

    Attributes:
        cards: The GPUs in index order.
        count: Number of all GPUs, selected or not.
        restarted: Queries of a GPU were restarted, so its process lists must be read.
    """

    def __init__(
        self,
        library: Library,
        clock: Clock,
        turns: SlowCallBudget,
        selection: GpuSelection,
        sys: str,
        *,
        profiled: bool,
    ) -> None:
        self._library = library
        self._clock = clock
        self._slow_calls = turns
        self._selection = selection
        self._sys = sys
        self._profiled = profiled
        self.count = 0
        self._again_at = math.inf
        self._changed = False
        self.restarted = False
        self.cards: list[NvmlCard] = []
        self._known: list[NvmlCard] = []
        self._uuids: list[str] = []
        self._hanging: set[str] = set()

    def forget_handles(self) -> None:
        """Stop all queries until ``find``, because the driver is gone or was initialised."""
        for card in self._known:
            card.stop_asking()

    def guard(self, card: NvmlCard, ask: Callable[[], object]) -> None:
        """Call a function that reads one GPU, and handle the loss of that GPU.

        Raises:
            DriverGoneError: The driver is gone.
        """
        try:
            ask()
        except CardGoneError as gone:
            card.stop_responding(STATUS_OF_CODE[gone.code])
            self._again_at = min(self._again_at, self._clock.monotonic() + RETRY_SECONDS)
        except StaleHandleError:
            card.stop_asking()
            self._changed = True

    def prepare_sample(self, now: float) -> None:
        """Before a sample: stop queries to GPUs that fell asleep, find those that may be back.

        Raises:
            DriverGoneError: The driver is gone.
        """
        if self._library.hanging.keys() != self._hanging:
            self._changed = True
        for card in self.cards:
            if card.mig_changed:
                self._start_queries(card)
            elif now >= card.resume_at:
                card.resume(now)
            if card.may_sleep and card.bus_id is not None:
                asleep = is_asleep(card.bus_id, self._sys)
                if asleep and card.fast:
                    card.stop_responding(CardStatus.ASLEEP)
                elif not asleep and card.status is CardStatus.ASLEEP and not card.fast:
                    self._changed = True
        if self._changed or now >= self._again_at:
            self.find(now)

    def check_count(self, now: float) -> None:
        """Check whether GPUs were added or removed. Raises as ``find`` does."""
        if self._count_cards() != self.count:
            self.find(now)
        for card in self.cards:
            card.may_sleep = card.bus_id is not None and may_sleep(card.bus_id, self._sys)

    def find(self, now: float) -> None:
        """Find all GPUs. Known values stay with their UUID.

        Raises:
            DriverGoneError: The driver is gone.
        """
        # Until the end: if this thread hangs here, another one repeats it.
        self._changed = True
        self._hanging = set(self._library.hanging)
        count, known = self._count_cards(), self._known
        recounted = count != self.count
        asleep = sleeping_cards(count, self._sys)
        cards: list[NvmlCard] = []
        uuids: list[str] = []
        for index in range(count):
            # A call for a handle wakes the GPU, so those not selected are skipped.
            if not self._selection.prefixes and not self._selection.includes(index, None):
                continue
            others = [card for card in known if card not in cards]
            if index in asleep:
                card = self._sleeping_card(index, asleep[index], others)
            else:
                last = _card_at(index, others, recounted)
                card = self._awake_card(index, others, last)
            if card.uuid != _placeholder_uuid(index):
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
        """The parts of the selection that match no GPU."""
        return self._selection.missing(self.count, self._uuids)

    def handles(self) -> dict[int, str]:
        """UUIDs of the GPUs that respond, by handle."""
        return {card.handle.value or 0: card.uuid for card in self.cards if card.fast}

    def _count_cards(self) -> int:
        count = c_uint()
        code = self._library.call(None, "nvmlDeviceGetCount_v2", byref(count))
        if not code:
            return count.value
        if REACTIONS.get(code) is Reaction.DRIVER or not self.count:
            raise DriverGoneError(code)
        return self.count

    def _sleeping_card(self, index: int, bus_id: str, known: list[NvmlCard]) -> NvmlCard:
        card = next((card for card in known if card.bus_id == bus_id), None)
        if card is None:
            card = self._new(_placeholder_uuid(index), index)
            card.bus_id = card.facts.values["pci_bus_id"] = bus_id
        card.index = index
        card.may_sleep = True
        card.stop_responding(CardStatus.ASLEEP)
        return card

    def _awake_card(self, index: int, known: list[NvmlCard], last: NvmlCard | None) -> NvmlCard:
        """The GPU at an index whose handle may be requested; ``last`` was there before."""
        handle = ctypes.c_void_p()
        # If this hangs, the GPU that was there before is the one that hangs.
        blamed = _placeholder_uuid(index) if last is None else last.uuid
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
            self._start_queries(card)
        return card

    def _unanswering(self, card: NvmlCard) -> NvmlCard:
        """A GPU whose call was given up keeps its last values."""
        card.stop_asking()
        if card.status is not CardStatus.NO_ANSWER:
            began = self._library.hanging.get(card.uuid, self._clock.monotonic())
            card.set_status(CardStatus.NO_ANSWER)
            card.status_since = self._clock.time() - (self._clock.monotonic() - began)
        return card

    def _without_handle(self, index: int, code: int, last: NvmlCard | None) -> NvmlCard:
        card = last or self._new(_placeholder_uuid(index), index)
        gone = REACTIONS.get(code) in {Reaction.CARD, Reaction.REFUSED}
        if card.fast and not gone:
            # It responds with the handle it has.
            return card
        card.stop_responding(STATUS_OF_CODE.get(code, CardStatus.FAILING))
        return card

    def _new(self, uuid: str, index: int) -> NvmlCard:
        card = NvmlCard(self._library, self._clock, uuid, index, self._slow_calls.add)
        # Before any call: if this thread is given up, the next one must find this object.
        self._known.append(card)
        return card

    def _start_queries(self, card: NvmlCard) -> None:
        """Start all queries from the beginning."""
        self.restarted = True
        card.begin()
        for query in (*metric_queries(card), *process_queries(card)):
            card.add_query(query)
        if self._profiled:
            card.profile_with(GpmSampler(card))
        else:
            card.facts.miss(tuple(METRICS), Unknown.NOT_READ)


def _placeholder_uuid(index: int) -> str:
    """The placeholder for the UUID of a GPU that has not reported one."""
    return f"index-{index}"


def _card_at(index: int, known: list[NvmlCard], recounted: bool) -> NvmlCard | None:
    """The GPU that was at this index; unknown if the number of GPUs changed."""
    return next(
        (
            card
            for card in known
            if card.index == index and (not recounted or card.uuid == _placeholder_uuid(index))
        ),
        None,
    )
