"""Pictures of the screens after each key of a long sequence, in the whole application.

The machines are simulated, time passes only with a sample of the sequence, and nothing of this
machine is read, so that a sequence gives the same pictures everywhere.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from textual.app import App
from textual.screen import Screen
from textual.widgets import Input

from gpumon import __version__
from gpumon.alerts.alert import Alert
from gpumon.fleet.demo import DemoFleet
from gpumon.fleet.summary import FleetSummaries
from gpumon.kill.audit_log import NoAuditLog
from gpumon.makers.demo import DemoSource
from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.memory.recording import MemoryRecording
from gpumon.sampling.collector import Collector
from gpumon.sampling.enrichment import Lookup
from gpumon.ui.app import GpumonApp
from gpumon.ui.fleet_app import FleetApp
from gpumon.ui.screens.painted import CellView
from gpumon.ui.session import Logbook, Session, SessionAlerts
from gpumon.ui.view.dashboard_view import StartupOptions
from tests.absent import ABSENT
from tests.build import NOON, GivenMachine
from tests.clock import HandClock, ThreadedClock
from tests.fuzz.hand import Press
from tests.fuzz.test_screen import settled
from tests.known import known
from tests.screen import PATIENCE
from tests.ui.view.drawing import history_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from textual.dom import DOMNode
    from textual.timer import Timer

    from gpumon.host.process_host import ProcessHost, RelatedProcess
    from gpumon.model.processes import ProcessId
    from gpumon.model.snapshot import Snapshot
    from gpumon.system.system import Clock
    from gpumon.text.cells import Row

    Part: TypeAlias = tuple[str, str | list[str] | list[Row]]
    """The name of a part of a screen, and its text or rows."""

_DASHBOARD, _FLEET = (120, 40), (80, 24)
"""The sizes of the terminals: what fits where is what the pictures of views compare."""
_SAMPLE = "a sample"
"""In a sequence: time passes, and the next sample is taken."""
_SECONDS = 90.0
"""How much time passes: some processes of the demo exit, and others start."""
_LAYOUTS = 4
"""Layouts after a key: Textual scrolls after a layout, and that needs another one."""

DASHBOARD = (
    # Movement in the table and among the GPUs.
    *("down", "down", "pagedown", "end", "up", "pageup", "home", "right", "right", "left"),
    *("tab", "down", "right", "left", "end", "up", "home", "shift+down", "shift+up", "tab"),
    *("end", _SAMPLE, "home", "escape"),
    # Sort.
    *("M", "M", "r", "P", "U", "S", "R", "<", "<", ">", ">", ">", "r", "+", "-"),
    # Listings.
    *("u", "down", "down", "r", ">", "enter", "escape", "u", "g", "home", "down", "left", "right"),
    *("end", "enter", "down", "pagedown", "escape", "g", "t", "down", "left", "right", "end"),
    *("home", "t"),
    # What is listed.
    *("m", "down", "m", "v", "v", "v", "down", "f", "f", "tab", "d", "down", "d", "tab"),
    *("/", *"mem>1", "backspace", *"0G", "enter", "down", "/", *"(", "enter", "escape", "escape"),
    *("space", "space", "up", "space", "a", "a", "escape", "y", "k", "escape"),
    # What is shown beside the processes.
    *("c", "c", "c", "c", "c", "c", "h", "h", "h", "p", _SAMPLE, "p"),
    *("e", "down", "down", "space", "shift+down", "end", "space", "d", "d", "escape"),
    *("e", "down", "space", "shift+down", "enter", "e", "d", "enter"),
    # Pages.
    *("?", "down", "pagedown", *"mem", "escape", "escape", "tab", "?", "escape"),
    *("enter", "1", "3", "4", "2", "down", "down", "pagedown", "end", "up", "home", _SAMPLE),
    *("w", "y", "escape", "tab", "home", "enter", "down", "s", "end", "home", "y", "?", "escape"),
    *("w", _SAMPLE, "escape", "!", "down", "end", "?", "escape", "escape", "T", "down", "escape"),
)
"""The keys on the dashboard and on what is opened from it."""
FLEET = (
    *("down", "down", "pagedown", "end", "up", "pageup", "home", "right", "right", "left"),
    *("F", "F", "D", "Z", "r", ">", ">", "<", "/", *"free>2", "enter", "down", "escape"),
    *("tab", "down", "end", "home", "right", "M", "r", "P", ">", "<", "/", *"user:ann", "escape"),
    *("tab", "u", "down", "r", ">", "enter", "down", "escape", "u", "?", "pagedown", "escape"),
    *("/", *"(", "enter", "escape", "escape"),
)
"""The keys on the screen of many hosts."""


class _KnownRelatives(Lookup):
    """Knows the process trees without the thread that reads them."""

    def __init__(self, host: ProcessHost, clock: Clock) -> None:
        super().__init__(host, clock)
        self.relatives_of, self.wanted = host.relatives, False
        self.listed: list[ProcessId] = []

    def annotate(self, snapshot: Snapshot) -> Snapshot:
        self.listed = [process.id for process in snapshot.processes]
        return super().annotate(snapshot)

    def want_relatives(self, wanted: bool) -> None:
        self.wanted = wanted

    @property
    def relatives(self) -> tuple[RelatedProcess, ...]:
        return self.relatives_of(self.listed) if self.wanted else ()


class _Repeated:
    """What screens do at intervals, done only after each sample."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        # Nothing else holds a timer that is paused.
        self._made: list[tuple[Screen[Any], Callable[[], object], Timer]] = []
        made, set_interval = self._made, Screen.set_interval

        def set_paused(screen: Screen[Any], seconds: float, call: Any, **named: Any) -> Timer:
            # Textual's own timer has a name.
            if named:
                return set_interval(screen, seconds, call, **named)
            timer = set_interval(screen, seconds, call, pause=True)
            made.append((screen, call, timer))
            return timer

        patch.setattr(Screen, "set_interval", set_paused)

    def repeat(self) -> None:
        """Do it on the screens that are open."""
        for screen, call, _ in self._made:
            if screen.is_attached:
                screen.call_later(call)


@contextmanager
def _still(clock: HandClock) -> Iterator[_Repeated]:
    """Time of day is that of the clock, messages stay, and no file of the user is read."""
    set_timer = Screen.set_timer

    def set_late_timer(screen: Screen[Any], delay: float, *args: Any, **named: Any) -> object:
        return set_timer(screen, delay + 3600.0, *args, **named)

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr("time.time", clock.time)
        patch.setattr(Screen, "set_timer", set_late_timer)
        # Textual would draw each picture for a terminal that does not exist: half of the time.
        patch.setattr(Screen, "_compositor_refresh", lambda _: None)
        for name in ("XDG_STATE_HOME", "GPUMON_LOCK_DIR"):
            patch.setenv(name, folder)
        patch.setenv("XDG_CONFIG_HOME", ABSENT)
        patch.setenv("TERM", "xterm-256color")
        for name in {"NO_COLOR", "GPUMON_ASCII"} & {*os.environ}:
            patch.delenv(name)
        yield _Repeated(patch)


@contextmanager
def _session(clock: ThreadedClock) -> Iterator[tuple[Session, Callable[[], None]]]:
    """The demo with a coarse past, and what takes its next sample."""
    with pytest.MonkeyPatch.context() as patch:
        from gpumon.makers.demo import source as demo

        steps = tuple((before, 24 * step) for before, step in demo.PAST_STEPS)
        patch.setattr(demo, "PAST_STEPS", steps)
        source = DemoSource(clock=clock)
        past = tuple(source.past())
    machine, history = GivenMachine(source, source.host()), history_of(*past)
    recording = MemoryRecording(DEFAULTS.full_share)
    recording.begin_with(past)
    recording.settle()
    lookup = _KnownRelatives(machine.processes, clock)
    collector = Collector(source, 0.5, clock, annotate=lookup.annotate)
    collector.subscribe(lambda snapshot: history.add(_at_no_cost(snapshot)))
    collector.subscribe(lambda snapshot: recording.add(_at_no_cost(snapshot)))

    def sample() -> None:
        clock.now += _SECONDS
        collector.sample_now()
        clock.settle()

    clock.start(collector)
    try:
        conditions = ("hot", "idle", "ends user:dara", "ends user:hugo")
        alerts = tuple(Alert(name=when, when=when) for when in conditions)
        session = Session(
            *(machine, collector, history, lookup, NoAuditLog(), recording),
            Logbook(collector, commands=False),
            alerts=SessionAlerts(alerts, "This is a demo: nothing leaves this terminal."),
        )
        yield session, sample
    finally:
        collector.stop()


def _at_no_cost(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the CPU time that gpumon takes, which the help page shows."""
    cost = snapshot.cost
    if cost is None or cost.cpu_percent is None:
        return snapshot
    return replace(snapshot, cost=replace(cost, cpu_percent=0.0))


def dashboard_keys() -> Iterator[tuple[str, list[Part]]]:
    """The parts of the screen on top after each key on the dashboard of one machine."""
    clock = ThreadedClock(epoch=NOON - 1000)
    with _still(clock) as repeated, _session(clock) as (session, sample):

        def pass_by() -> None:
            sample()
            repeated.repeat()

        found = asyncio.run(_pressed(GpumonApp(session), DASHBOARD, _DASHBOARD, pass_by))
    yield from _named("keys on the dashboard", _DASHBOARD, DASHBOARD, found)


def fleet_keys() -> Iterator[tuple[str, list[Part]]]:
    """The parts of the screen on top after each key on the screen of many hosts."""
    clock = HandClock(epoch=NOON - 1000)
    with _still(clock):
        names = [f"gpu-{number:02}" for number in range(1, 17)]
        fleet = DemoFleet(names, clock=clock)
        for name in names:
            fleet.sample(name)
        summaries = FleetSummaries(fleet)

        def open_host(name: str) -> Any:
            raise AssertionError(name)

        app = FleetApp(fleet, summaries, open_host, StartupOptions(), None, "DEMO", clock)
        found = asyncio.run(_pressed(app, FLEET, _FLEET, lambda: None, shows=names[0]))
    yield from _named("keys on many hosts", _FLEET, FLEET, found)


def _named(
    group: str, size: tuple[int, int], keys: tuple[str, ...], found: list[list[Part]]
) -> Iterator[tuple[str, list[Part]]]:
    group = f"{group}, {size[0]}x{size[1]}"
    for number, (key, parts) in enumerate(zip(("nothing", *keys), found, strict=True)):
        yield f"{group}: {number} {key}", parts


async def _pressed(
    app: App[int],
    keys: tuple[str, ...],
    size: tuple[int, int],
    sample: Callable[[], None],
    shows: str = "",
) -> list[list[Part]]:
    """The parts of the screen on top, once it shows a text, before the first key and after each."""
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        deadline = time.monotonic() + PATIENCE
        while shows not in str(_parts(app)):
            assert time.monotonic() < deadline
            await settled(pilot)
        found = [_parts(app)]
        for key in keys:
            if key == _SAMPLE:
                sample()
            else:
                for event in Press(key).events(app.size):
                    known(app._driver).process_message(event)
            await settled(pilot)
            if not app.screen.query(CellView):
                for _ in range(_LAYOUTS):
                    app.screen._on_timer_update()
                    await settled(pilot)
            found.append(_parts(app))
        app.exit()
    return found


def _parts(app: App[int]) -> list[Part]:
    """The names of the parts of the screen on top, with their rows."""
    screen = app.screen
    parts: list[Part] = [("screen", type(screen).__name__)]
    typed = screen.query(Input)
    parts += [("typed", line.value) for line in typed if all(it.display for it in _around(line))]
    views = [view for view in screen.query(CellView) if view.display]
    parts += [(str(view.id), list(view.rows)) for view in views]
    if not views:
        text = [strip.text for strip in screen._compositor.render_strips()]
        parts.append(("text", [line.replace(__version__, "VERSION") for line in text]))
    return parts


def _around(widget: DOMNode) -> Iterator[DOMNode]:
    """A widget and what it is in, on its screen."""
    return (node for node in widget.ancestors_with_self if not isinstance(node, App))
