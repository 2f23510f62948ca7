"""The cards of this machine, from NVIDIA's driver.

One thread asks (the driver serialises its callers anyway), each question at its own pace:

- every sample: memory, utilisation, power, temperature, clocks (``Card.read_fast``);
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

import msgspec

from gpumon.clock import SystemClock
from gpumon.host.machine import MachineReader
from gpumon.host.namespaces import PidTrust, in_initial_pid_namespace, pid_trust
from gpumon.host.processes import ProcessReader
from gpumon.lack import lack_behind
from gpumon.model import CardStatus, GpuProcess, Host, Snapshot, Trouble, Unknown
from gpumon.selection import ALL, GpuSelection
from gpumon.sources import Call, NoSuchCardError, SourceError, cards_there
from gpumon.sources.nvml.card import Card, DriverGoneError
from gpumon.sources.nvml.events import XidWatcher
from gpumon.sources.nvml.library import Code, Library, load_library
from gpumon.sources.nvml.processes import Joined
from gpumon.sources.nvml.reading import pause_after
from gpumon.sources.nvml.roster import RETRY_SECONDS, Roster
from gpumon.sources.nvml.trouble import NO_CARDS, NO_LIBRARY, NO_PERMISSION, NONE_CHOSEN, trouble_of
from gpumon.sources.nvml.turns import PERIOD, SHARE, Turns

if TYPE_CHECKING:
    from gpumon.clock import Clock

_SPOT_SECONDS = _MEDIUM_SECONDS = 0.95
"""A second, less what a tick may come too early."""

_LONGEST_MEDIUM_SECONDS = 4.0
"""Lists are believed for five seconds: also those that take long are read before that."""

_PATIENCE = 1.0
"""Before NVML is initialised anew its other user has to be gone, or would take the new one down."""


class NvmlSource:
    """The cards of this machine. See ``Source``.

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

    def sample(self, *, closely: bool = True) -> Snapshot:
        """See ``Source.sample``."""
        if self._driver is None:
            raise RuntimeError("a source is opened before it is sampled")
        return self._driver.sample(closely=closely)

    def past(self) -> tuple[Snapshot, ...]:
        """Nothing: a driver does not remember."""
        return ()

    def close(self) -> None:
        """See ``Source.close``."""
        if self._driver is not None:
            self._driver.stop()

    def give_up(self, call: Call) -> bool:
        """See ``Source.give_up``."""
        return self._driver is not None and self._driver.library.give_up(call)

    @property
    def hostname(self) -> str:
        """See ``Source.hostname``."""
        return os.uname().nodename

    @property
    def current_call(self) -> Call | None:
        """See ``Source.current_call``."""
        return None if self._driver is None else self._driver.library.current_call

    @property
    def driver_seconds(self) -> float:
        """See ``Source.driver_seconds``."""
        return 0.0 if self._driver is None else self._driver.library.driver_seconds


class _Driver:
    """The driver behind a loaded library, there or not."""

    def __init__(
        self, library: Library, selection: GpuSelection, clock: Clock, proc: str, sys: str
    ) -> None:
        self.library = library
        self._selection = selection
        self._clock = clock
        self._proc = proc
        self._turns = Turns()
        self._roster = Roster(library, clock, self._turns, selection, sys)
        self._machine = MachineReader()
        self._joined = Joined(ProcessReader(proc))
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
        self._processes: tuple[GpuProcess, ...] = ()
        self._processes_at: float | None = None
        self._host = Host(name=os.uname().nodename)

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

    def sample(self, *, closely: bool) -> Snapshot:
        """One snapshot, now; see ``Source.sample``."""
        now = self._clock.monotonic()
        self._closely = closely
        if self._running or now >= self._retry_at:
            self._try_to_read(now)
        return Snapshot(
            time=self._clock.time(),
            host=self._host,
            gpus=tuple(card.snapshot() for card in self._roster.cards) if self._running else (),
            processes=self._processes,
            processes_at=self._processes_at,
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
        self._processes, self._processes_at = (), None
        self._joined.forget()
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
                if gone.code == Code.UNINITIALIZED:
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
            self._host = msgspec.structs.replace(self._host, driver_since=self._clock.time())
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
        self._host = msgspec.structs.replace(
            self._host,
            driver_version=None if no_driver else driver,
            nvml_version=None if no_nvml else nvml,
            cuda_version=None if no_cuda else f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
            in_container=not initial_namespace,
        )
        self._descriptions += 1
        pause = pause_after(self._descriptions, answered=True)
        self._describe_at = now + pause if no_driver or no_nvml or no_cuda else math.inf
        self._trust = pid_trust(self._host.driver_version, initial_namespace)

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
        since = self._host.driver_since
        self.stop(_PATIENCE)
        self._start(now)
        self._host = msgspec.structs.replace(self._host, driver_since=since)

    def _read_processes(self, now: float) -> None:
        self._roster.asked_anew = False
        spent = self.library.driver_seconds
        for card in self._roster.cards:
            if card.fast:
                self._roster.guard(card, partial(card.ask_all, card.medium, now))
        self._processes = self._joined.processes(self._roster.cards, self._trust, now)
        self._processes_at = self._clock.time()
        # Lists that take long, as on some laptops, are read less often.
        spent = self.library.driver_seconds - spent
        pause = min(max(_MEDIUM_SECONDS, spent / SHARE), _LONGEST_MEDIUM_SECONDS)
        self._processes_due = now + pause
        self._measure_host()
        for card in self._roster.cards:
            _share_host_memory(card, self._host, self._processes)

    def _measure_host(self) -> None:
        facts = self._machine.read()
        self._host = msgspec.structs.replace(
            self._host,
            name=facts.name,
            cpu_percent=facts.cpu_percent,
            cpu_count=facts.cpu_count,
            load=facts.load,
            memory_total=facts.memory_total,
            memory_used=facts.memory_used,
        )

    def _take_xids(self, xids: dict[str, tuple[int, float]]) -> None:
        if xids is self._xids:
            return
        self._xids = xids
        for card in self._roster.cards:
            if card.uuid in xids:
                card.facts.values["xid"], card.facts.values["xid_at"] = xids[card.uuid]


def _share_host_memory(card: Card, host: Host, processes: tuple[GpuProcess, ...]) -> None:
    """A chip without memory of its own uses the host's.

    The evidence is both that the driver tells no memory and that chips of this compute capability
    have none: a card of its own that does not tell stays unknown. What the chip uses is what its
    processes do; what the host uses is not the chip's (nvtop#511).
    """
    facts = card.facts
    if card.fast and facts.values.get("memory_unified") is None:
        tells_none = facts.unknown.get("memory_total") is Unknown.NOT_SUPPORTED
        if tells_none and facts.values.get("compute_capability") is not None:
            facts.values["memory_unified"] = card.integrated
    if not facts.values.get("memory_unified") or card.status is not CardStatus.OK:
        return
    facts.found(("memory_total", "memory_free", "memory_used"))
    facts.values["memory_total"] = host.memory_total
    facts.values["memory_free"] = (
        None
        if host.memory_total is None or host.memory_used is None
        else host.memory_total - host.memory_used
    )
    if card.processes_unknown is not None:
        facts.miss(("memory_used",), card.processes_unknown)
        return
    uses = [use for process in processes for use in process.uses if use.gpu_uuid == card.uuid]
    known = [use.memory_used for use in uses if use.memory_used is not None]
    facts.values["memory_used"] = sum(known) if len(known) == len(uses) else None
