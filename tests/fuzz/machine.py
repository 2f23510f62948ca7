"""A machine to which anything may happen, by a clock in hand, and a guard before its processes."""

from __future__ import annotations

import gc
import signal
import threading
import time
import warnings
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from gpumon.findings import conditions
from gpumon.kill import signals
from gpumon.kill.audit_log import AuditLog
from gpumon.kill.local_host import LocalHost
from gpumon.makers.nvidia import MAKER
from gpumon.model.snapshot import ReservationHolder
from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.csv.recording import open_log
from gpumon.recording.history import History
from gpumon.recording.memory.recording import MemoryRecording
from gpumon.recording.playback import Player, ReplayedMachine
from gpumon.sampling.collector import Collector
from gpumon.sampling.enrichment import Lookup
from gpumon.system.system import System
from gpumon.ui.dialogs.end import EndDialog
from gpumon.ui.session import Logbook, Session
from tests.build import GivenMachine
from tests.clock import HandClock
from tests.driver import GIB, Card, Driver, Owner, Wave, h100, owners
from tests.makers.nvml_room import join_watchers
from tests.nvml_source import NvmlSource
from tests.screen import PATIENCE

if TYPE_CHECKING:
    import random
    import subprocess
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pytest

    from gpumon.host.process_host import Target
    from gpumon.model.snapshot import Snapshot
    from gpumon.system.system import Clock
    from gpumon.ui.dialogs.end import SignalChoice

_HANGING = "nvmlDeviceGetMemoryInfo_v2"
"""What a card that hangs does not answer."""
_PASSING = (0.1, 0.5, 2.0, 10.0, 60.0)
_LOGGED = 20
_GLANCE = 0.001


class Guard:
    """Stands where a signal leaves: nobody gets one, and it is compared with what was asked for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: dict[int, set[int]] = {}
        self.sent: list[tuple[int, int]] = []
        self.wrong: list[str] = []
        dismiss = EndDialog.dismiss
        guard = self

        def spied(dialog: EndDialog, choice: SignalChoice | None = None) -> object:
            if choice is not None:
                for target in choice.targets:
                    guard.asked.setdefault(target.id.pid, set()).update(_selected(choice))
            return dismiss(dialog, choice)

        def deliver(grip: signals.TargetHandle, number: int) -> None:
            guard.take(grip.target, number)

        patch.setattr(EndDialog, "dismiss", spied)
        patch.setattr(signals.TargetHandle, "deliver", deliver)

    def take(self, target: Target, number: int) -> None:
        """A signal is about to leave."""
        self.sent.append((target.id.pid, number))
        if number not in self.asked.get(target.id.pid, ()):
            self.wrong.append(f"{number} to {target.id.pid}, asked for: {self.asked}")


def _selected(choice: SignalChoice) -> set[int]:
    """What may be sent for an answer: a tree is held still for the moment in which it is killed."""
    number = choice.number
    held = choice.whole_tree and number == signal.SIGKILL
    return {number, *((signal.SIGSTOP, signal.SIGCONT) if held else ())}


class _Clock(HandClock):
    """Stands still: whoever waits by it goes on when there is a reason to look at it again."""

    def __init__(self) -> None:
        super().__init__()
        self._waits: dict[threading.Thread, threading.Event] = {}

    def wait(self, event: threading.Event, timeout: float) -> bool:  # noqa: ARG002 - the signature of clocks
        """See ``Clock.wait``."""
        thread = threading.current_thread()
        self._waits[thread] = event
        event.wait()
        del self._waits[thread]
        return True

    def is_waiting(self, thread: threading.Thread) -> bool:
        """Whether a thread waits, and nothing has woken it."""
        event = self._waits.get(thread)
        return event is not None and not event.is_set()


class _Source(NvmlSource):
    """Knows the threads that have sampled it, the newest last: all others were given up."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(system=System(clock=clock))
        self.samplers: list[threading.Thread] = []

    def sample(self, *, full: bool = True) -> Snapshot:
        """See ``Source.sample``."""
        thread = threading.current_thread()
        if thread not in self.samplers:
            self.samplers.append(thread)
        return super().sample(full=full)


class Machine:
    """Four cards, some processes, a log of an hour ago, and what looks at all that.

    Attributes:
        processes: Those that are on the cards now and then; its own, so that it may end them.
        spent: Seconds that have passed by the clock in hand.
    """

    def __init__(
        self, driver: Driver, processes: list[subprocess.Popen[bytes]], folder: Path
    ) -> None:
        self.driver, self.processes, self._folder = driver, processes, folder
        self.clock = _Clock()
        self.spent = 0.0
        self.source = _Source(self.clock)
        self._host = LocalHost(lambda: MAKER.device_files)
        self.history, self._tape = History(conditions()), MemoryRecording(DEFAULTS.full_share)
        self._reserved: dict[str, ReservationHolder] = {}
        self.lookup = Lookup(self._host, reservations=self._who_reserved)
        self.collector = Collector(self.source, 0.5, self.clock, annotate=self.lookup.annotate)
        self.collector.subscribe(self.history.add)
        self.collector.subscribe(self._tape.add)
        self._audit_log = AuditLog(folder / "state")
        self.state = folder / "state"
        self.logbook = Logbook(self.collector, str(folder / "fuzz.csv"))
        self._hanging: set[str] = set()
        for card in driver.cards:
            self._heal(card)

    @contextmanager
    def session(self, *, replay: bool) -> Iterator[Session]:
        """What a screen works with: the present, or the log."""
        if not replay:
            yield Session(
                GivenMachine(self.source, self._host),
                *(self.collector, self.history, self.lookup),
                *(self._audit_log, self._tape, self.logbook),
            )
            return
        with ExitStack() as stack:
            tape = open_log(self._folder / "before.csv")
            stack.callback(tape.close)
            history = History(conditions())
            tape.read_into(history)
            player = Player(tape, history, position=tape.first, playing=True)
            player.collector.start()
            stack.callback(player.collector.stop)
            machine = ReplayedMachine(player.source)
            yield Session(
                *(machine, player.collector, player.history, Lookup(machine.processes)),
                *(self._audit_log, tape, Logbook(None), player),
            )

    def write_log(self) -> None:
        """A while ago somebody logged this machine."""
        log = Logbook(self.collector, str(self._folder / "before.csv"))
        log.start()
        for number in range(_LOGGED):
            self.driver.cards[number % 3].processes = self._owners(number % len(self.processes))
            self._pass(20.0)
            self.sample()
        log.close()
        self._pass(3600.0)

    def tick(self, chance: random.Random) -> float:
        """Time passes, and something may happen. Returns the seconds."""
        seconds = chance.choice(_PASSING)
        self._pass(seconds)
        card = chance.choice(self.driver.cards)
        happens = chance.random()
        if happens < 0.04:
            card.lost = not card.lost
        elif happens < 0.2:
            card.processes = self._owners(chance.randint(0, len(self.processes)), chance)
        elif happens < 0.23:
            card.fail(None, chance.choice((0, 3, 4, 15, 999)))
        elif happens < 0.26:
            self._heal(card)
        elif happens < 0.28:
            card.hang(_HANGING)
            self._hanging.add(card.uuid)
        elif happens < 0.3:
            card.xid(chance.choice((13, 31, 48, 79)))
        elif happens < 0.34:
            self.clock.epoch += chance.choice((-86400.0, -600.0, -1.5, 0.3, 3600.0))
        elif happens < 0.37:
            uuids = [one.uuid for one in self.driver.cards]
            who, pid = chance.choice((None, "ann", "[b]")), self.processes[0].pid
            held = ReservationHolder(who, pid, 5.0, "\x1b[2J[red]")
            self._reserved = dict.fromkeys(chance.sample(uuids, chance.randint(0, 4)), held)
        elif happens < 0.39:
            # It is ours, so there is nothing that a wrong number could reach.
            chance.choice(self.processes).kill()
        elif happens < 0.4:
            self.driver.unload()
        elif happens < 0.45:
            self.driver.reload()
        self.sample()
        return seconds

    def start(self) -> None:
        """Take the first sample."""
        before = {*threading.enumerate()}
        self.collector.start()
        (self._watcher,) = (
            thread for thread in {*threading.enumerate()} - before if thread.name == "gpumon-watch"
        )
        self._settle()

    def sample(self) -> None:
        """Take a sample, or let the collector look at the one that hangs."""
        if not self._hangs():
            self.collector.sample_now()
            self._settle()
        if self._hangs():
            # Whoever waits for the interval to pass looks at the clock again.
            self.collector.interval = self.collector.interval
            self._settle()

    def _settle(self) -> None:
        """Wait until the collector waits, but for a sample that hangs."""
        deadline = time.monotonic() + PATIENCE
        while not (self._is_idle(self._watcher) and (self._is_sampled() or self._hangs())):
            assert time.monotonic() < deadline
            time.sleep(_GLANCE)

    def _is_sampled(self) -> bool:
        return bool(self.source.samplers) and self._is_idle(self.source.samplers[-1])

    def _is_idle(self, thread: threading.Thread) -> bool:
        return self.clock.is_waiting(thread) or not thread.is_alive()

    def _hangs(self) -> bool:
        """Whether the sample under way waits for a card that does not answer."""
        call = self.source.current_call
        return call is not None and call.function == _HANGING and call.gpu_uuid in self._hanging

    def release(self) -> None:
        """Every card answers again."""
        for card in self.driver.cards:
            self._heal(card)
        self._settle()
        for thread in self.source.samplers[:-1]:
            thread.join(PATIENCE)

    def _pass(self, seconds: float) -> None:
        self.clock.now += seconds
        self.spent += seconds
        self.driver.set_clock(self.clock.now)

    def _owners(self, count: int, chance: random.Random | None = None) -> list[Owner]:
        some = chance.sample(self.processes, count) if chance else self.processes[:count]
        return [Owner(one.pid, memory=(3 * one.pid) % 40 * GIB, sm=one.pid % 90) for one in some]

    def _who_reserved(self, cards: Iterable[str]) -> dict[str, ReservationHolder]:
        return {uuid: self._reserved[uuid] for uuid in cards if uuid in self._reserved}

    def _heal(self, card: Card) -> None:
        self._hanging.discard(card.uuid)
        card.heal()
        # The time for which it blocks would be this machine's own.
        card.latency("nvmlDeviceGetPcieThroughput", 0.0)


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """The machine, sampled from the beginning on; in the end nothing of it is left."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        # What Textual's palette was about to do when it was closed, it never does, and says so.
        warnings.filterwarnings("ignore", "coroutine 'CommandPalette", RuntimeWarning)
        stack.callback(gc.collect)
        command = ["python", "[red]train[/].py", "\x1b[2J", "名前"]
        # One job in every environment: in a PID namespace of their own they have no session.
        started = stack.enter_context(owners(6, command, environ={"SLURM_JOB_ID": "7"}))
        # Once its driver is gone it waits no longer for an event.
        stack.callback(join_watchers)
        cards = [h100(utilization_gpu=Wave(50, 40, 3)) for _ in range(4)]
        driver = stack.enter_context(Driver(cards))
        driver.attach()
        made = Machine(driver, started, folder)
        stack.callback(made.collector.stop, PATIENCE)
        made.start()
        made.write_log()
        stack.callback(made.logbook.close)
        made.lookup.start()
        stack.callback(made.lookup.stop)
        stack.callback(made.release)
        yield made
