"""The cards of NVIDIA's driver: the backend ``nvml``.

One thread asks (the driver serialises its callers anyway), each question at its own pace:

- every sample: memory, utilisation, power, temperature, clocks (``NvmlCard.read_fast``);
- every second: what moves as fast but stands on a card's page at most, unless somebody keeps all
  values;
- every second: process lists and their utilisation (``processes``);
- every two seconds, in turn and on a budget: nearly all else (``questions``, ``turns``);
- every ten: modes, links, BAR1, errors of the card's life and repairs.

A card that is lost, asleep or out of bounds is one card; the others go on. A driver that goes
away is a snapshot with ``trouble``, until it is back.
"""

from __future__ import annotations

import ctypes
import math
import os
from ctypes import byref
from functools import partial
from typing import TYPE_CHECKING

import pynvml
from msgspec.structs import replace

from gpumon.host.device_files import DeviceFiles
from gpumon.host.machine import MachineReader
from gpumon.host.namespaces import PidTrust, in_initial_pid_namespace, pid_trust
from gpumon.host.processes import ProcessReader
from gpumon.model.selection import ALL, GpuSelection
from gpumon.model.snapshot import CardStatus, Trouble, Unknown
from gpumon.sources import Call, NoSuchCardError, SourceError, cards_there
from gpumon.sources.backend import DriverFacts, Reading
from gpumon.sources.nvml.card import DriverGoneError, NvmlCard
from gpumon.sources.nvml.device_registry import RETRY_SECONDS, DeviceRegistry
from gpumon.sources.nvml.driver_errors import (
    NO_CARDS,
    NO_LIBRARY,
    NO_PERMISSION,
    NONE_CHOSEN,
    trouble_of,
)
from gpumon.sources.nvml.events import XidWatcher
from gpumon.sources.nvml.library import Library, load_library
from gpumon.sources.nvml.processes import list_processes
from gpumon.sources.nvml.queries import pause_after
from gpumon.sources.nvml.slow_call_budget import PERIOD, SHARE, SlowCallBudget
from gpumon.sources.sampler import Sampler
from gpumon.system.clock import SystemClock
from gpumon.system.resource_errors import lack_behind

if TYPE_CHECKING:
    from gpumon.sources.backend import ListedProcess
    from gpumon.sources.links import Links
    from gpumon.system.clock import Clock

DEVICE_FILES = DeviceFiles(card="/dev/nvidia{minor}", prefix="/dev/nvidia")

_SPOT_SECONDS = _MEDIUM_SECONDS = 0.95
"""A second, less what a tick may come too early."""

_LONGEST_MEDIUM_SECONDS = 4.0
"""Lists are believed for five seconds: also those that take long are read before that."""

_PATIENCE = 1.0
"""Before NVML is initialised anew its other user has to be gone, or would take the new one down."""


class NvmlBackend:
    """The cards of NVIDIA's driver. See ``GpuBackend``.

    ``open`` may be called again after it failed.

    Args:
        selection: Which of them.
        clock: Where its time comes from.
        proc: Where the process file system is mounted.
        sys: Where the system file system is mounted.
    """

    def __init__(
        self,
        selection: GpuSelection = ALL,
        clock: Clock | None = None,
        proc: str = "/proc",
        sys: str = "/sys",
    ) -> None:
        self._selection = selection
        self._clock: Clock = clock or SystemClock()
        self._proc = proc
        self._sys = sys
        self._driver: _Driver | None = None

    @property
    def name(self) -> str:
        """See ``GpuBackend.name``."""
        return "nvml"

    @property
    def device_files(self) -> DeviceFiles:
        """See ``GpuBackend.device_files``."""
        return DEVICE_FILES

    def open(self) -> None:
        """See ``Source.open``."""
        if self._driver is None:
            try:
                library = load_library(self._clock)
            except OSError as error:
                if lack_behind(error) is not None:
                    raise
                raise SourceError(NO_LIBRARY.sentence, NO_LIBRARY.advice) from None
            self._driver = _Driver(library, self._selection, self._clock, self._proc, self._sys)
        try:
            trouble = self._driver.open()
        except NoSuchCardError:
            self._driver.stop()
            raise
        if trouble is not None:
            self._driver.stop()
            raise SourceError(trouble.sentence, trouble.advice)

    def read(self, *, closely: bool = True) -> Reading:
        """See ``GpuBackend.read``."""
        if self._driver is None:
            raise RuntimeError("a source is opened before it is sampled")
        return self._driver.read(closely=closely)

    def past(self) -> tuple[Reading, ...]:
        """Nothing: a driver does not remember."""
        return ()

    def links(self) -> Links:
        """See ``GpuBackend.links``."""
        from gpumon.sources.nvml.topology import read_links

        return read_links()

    def close(self) -> None:
        """See ``Source.close``."""
        if self._driver is not None:
            self._driver.stop()

    def give_up(self, call: Call) -> bool:
        """See ``Source.give_up``."""
        return self._driver is not None and self._driver.library.give_up(call)

    @property
    def current_call(self) -> Call | None:
        """See ``Source.current_call``."""
        return None if self._driver is None else self._driver.library.current_call

    @property
    def driver_seconds(self) -> float:
        """See ``Source.driver_seconds``."""
        return 0.0 if self._driver is None else self._driver.library.driver_seconds


class NvmlSource(Sampler):
    """The cards of NVIDIA's driver on this machine. See ``NvmlBackend`` for the arguments."""

    backend: NvmlBackend

    def __init__(
        self,
        selection: GpuSelection = ALL,
        clock: Clock | None = None,
        proc: str = "/proc",
        sys: str = "/sys",
    ) -> None:
        backend = NvmlBackend(selection, clock, proc, sys)
        super().__init__(backend, clock, MachineReader(proc), ProcessReader(proc))


class _Driver:
    """The driver behind a loaded library, there or not."""

    def __init__(
        self, library: Library, selection: GpuSelection, clock: Clock, proc: str, sys: str
    ) -> None:
        self.library = library
        self._selection = selection
        self._clock = clock
        self._proc = proc
        self._turns = SlowCallBudget()
        self._roster = DeviceRegistry(library, clock, self._turns, selection, sys)
        self._trust = PidTrust(processes=False, utilization=False)
        self._watcher: XidWatcher | None = None
        self._xids: dict[str, tuple[int, float]] = {}
        self._slots: list[str] = []
        self._initialised = False
        self._running = False
        self._trouble: Trouble | None = None
        self._retry_at = -math.inf
        self._look_around_at = -math.inf
        self._describe_at = math.inf
        self._descriptions = 0
        self._closely = True
        self._spots_due = -math.inf
        self._processes_due = -math.inf
        self._listed: dict[int, ListedProcess] | None = None
        self._listed_at: float | None = None
        self._facts = DriverFacts()

    def open(self) -> Trouble | None:
        """Initialise it and find the cards.

        Returns:
            Why there is nothing to sample; ``None`` when there is.

        Raises:
            NoSuchCardError: Cards were chosen that are not there.
        """
        try:
            if not self._running:
                self._start(self._clock.monotonic())
        except DriverGoneError as gone:
            return trouble_of(gone.code, self.library, self._proc)
        trouble = self._emptiness()
        missing = self._roster.missing()
        if trouble is NO_CARDS or (trouble is not NONE_CHOSEN and not missing):
            return trouble
        if missing:
            raise NoSuchCardError(missing, self._roster.count)
        return Trouble(NONE_CHOSEN.sentence, cards_there(self._roster.count))

    def read(self, *, closely: bool) -> Reading:
        """Ask what is due; see ``GpuBackend.read``."""
        now = self._clock.monotonic()
        self._closely = closely
        if self._running or now >= self._retry_at:
            self._try_to_read(now)
        return Reading(
            time=self._clock.time(),
            gpus=tuple(card.snapshot() for card in self._roster.cards) if self._running else (),
            driver=self._facts,
            listed=self._listed,
            listed_at=self._listed_at,
            trouble=self._trouble if not self._running else self._emptiness(),
        )

    def stop(self, patience: float = 0.0) -> None:
        """Give back what was taken of it.

        Args:
            patience: Seconds to wait for the thread that waits for XIDs.
        """
        if self._watcher is not None:
            self._watcher.stop(patience)
            self._take_xids(self._watcher.latest)
            self._watcher = None
        self._roster.forget_handles()
        self._listed, self._listed_at = None, None
        self._running = False
        if self._initialised:
            self._initialised = False
            # A thread that hangs in the driver needs the library for as long as it does.
            if not self.library.hanging:
                self.library.call(None, "nvmlShutdown")

    # There or not

    def _try_to_read(self, now: float) -> None:
        # A driver that was loaded anew is initialised anew at once, and must answer then.
        for _ in range(2):
            try:
                if not self._running:
                    self._start(now)
                self._read(now)
            except DriverGoneError as gone:
                self._trouble = trouble_of(gone.code, self.library, self._proc)
                self._retry_at = now + RETRY_SECONDS
                self.stop(_PATIENCE)
                if gone.code == pynvml.NVML_ERROR_UNINITIALIZED:
                    continue
            return

    def _start(self, now: float) -> None:
        """Initialise NVML and find the cards, from where a thread that was given up left it.

        Raises:
            DriverGoneError: When that cannot be done now.
        """
        if not self._initialised:
            code = self.library.call(None, "nvmlInit_v2")
            if code:
                raise DriverGoneError(code)
            self._initialised = True
            self._roster.forget_handles()
            self._descriptions = 0
            self._facts = replace(self._facts, since=self._clock.time())
            self._describe(now)
            self._slots = self._list_slots()
        self._look_around_at = now + PERIOD
        self._processes_due = now
        self._roster.find(now)
        self._running = True
        self._watcher = XidWatcher(self.library, self._clock, self._xids)
        self._watcher.start(self._roster.handles())

    def _describe(self, now: float) -> None:
        """Ask for the versions; again later while the driver does not tell one of them."""
        no_driver, driver = self.library.text(None, "nvmlSystemGetDriverVersion")
        no_nvml, nvml = self.library.text(None, "nvmlSystemGetNVMLVersion")
        initial_namespace = in_initial_pid_namespace(self._proc)
        cuda = ctypes.c_int()
        no_cuda = self.library.call(None, "nvmlSystemGetCudaDriverVersion_v2", byref(cuda))
        version = None if no_driver else driver
        self._trust = pid_trust(version, initial_namespace)
        self._facts = DriverFacts(
            version=version,
            library_version=None if no_nvml else nvml,
            cuda_version=None if no_cuda else f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
            since=self._facts.since,
            pids_are_ours=self._trust.processes,
        )
        self._descriptions += 1
        pause = pause_after(self._descriptions, answered=True)
        self._describe_at = now + pause if no_driver or no_nvml or no_cuda else math.inf

    def _list_slots(self) -> list[str]:
        """The cards the kernel module has, which NVML sees when it is initialised."""
        try:
            return sorted(os.listdir(f"{self._proc}/driver/nvidia/gpus"))  # noqa: PTH208 - no import
        except OSError:
            return []

    def _emptiness(self) -> Trouble | None:
        """Why there is nothing to read, when there is nothing."""
        cards = self._roster.cards
        if cards:
            barred = all(card.status is CardStatus.NO_PERMISSION for card in cards)
            return NO_PERMISSION if barred else None
        return NONE_CHOSEN if self._roster.count else NO_CARDS

    # Reading

    def _read(self, now: float) -> None:
        """Ask what is due. Raises ``DriverGoneError`` when the driver is."""
        if now >= self._look_around_at:
            self._look_around(now)
        self._roster.look(now)
        spots = self._closely or now >= self._spots_due
        if spots:
            self._spots_due = now + _SPOT_SECONDS
        for card in self._roster.cards:
            if card.fast:
                self._roster.guard(card, partial(card.read_fast, now, spots=spots))
        for turn in self._turns.take(now):
            spent = self.library.driver_seconds
            self._roster.guard(turn.card, partial(turn.card.ask, turn.reading, now))
            self._turns.done(turn, now, self.library.driver_seconds - spent)
        if now >= self._processes_due or self._roster.asked_anew:
            self._read_processes(now)
        if self._watcher is not None:
            self._watcher.watch(self._roster.handles())
            self._take_xids(self._watcher.latest)

    def _look_around(self, now: float) -> None:
        self._look_around_at = now + PERIOD
        if now >= self._describe_at:
            self._describe(now)
        slots = self._list_slots()
        if slots == self._slots:
            self._roster.look_around(now)
            return
        # NVML counts its cards when its first user comes, so its last user has to go before.
        since = self._facts.since
        self.stop(_PATIENCE)
        self._start(now)
        self._facts = replace(self._facts, since=since)

    def _read_processes(self, now: float) -> None:
        self._roster.asked_anew = False
        spent = self.library.driver_seconds
        for card in self._roster.cards:
            if card.fast:
                self._roster.guard(card, partial(card.ask_all, card.medium, now))
        self._listed = list_processes(self._roster.cards, with_utilization=self._trust.utilization)
        self._listed_at = self._clock.time()
        # Lists that take long, as on some laptops, are read less often.
        spent = self.library.driver_seconds - spent
        pause = min(max(_MEDIUM_SECONDS, spent / SHARE), _LONGEST_MEDIUM_SECONDS)
        self._processes_due = now + pause
        for card in self._roster.cards:
            _judge_memory(card)

    def _take_xids(self, xids: dict[str, tuple[int, float]]) -> None:
        if xids is self._xids:
            return
        self._xids = xids
        for card in self._roster.cards:
            if card.uuid in xids:
                card.facts.values["xid"], card.facts.values["xid_at"] = xids[card.uuid]


def _judge_memory(card: NvmlCard) -> None:
    """Whether a chip has memory of its own.

    The evidence that it has none is both that the driver tells no memory and that chips of this
    compute capability have none: a card of its own that does not tell stays unknown.
    """
    facts = card.facts
    if card.fast and facts.values.get("memory_unified") is None:
        tells_none = facts.unknown.get("memory_total") is Unknown.NOT_SUPPORTED
        if tells_none and facts.values.get("compute_capability") is not None:
            facts.values["memory_unified"] = card.integrated
