"""What the pictures show: the demo, with a clock that stands still, and keys that are pressed."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from textual.widgets import Button

from gpumon.api.local import SimulatedMachine
from gpumon.config.themes import choose_theme
from gpumon.findings import DEFAULTS, conditions
from gpumon.fleet.demo import DemoFleet
from gpumon.fleet.summary import FleetSummaries
from gpumon.kill.audit_log import AuditLog
from gpumon.model.selection import parse_selection
from gpumon.recording.history import History
from gpumon.recording.memory.recording import MemoryRecording
from gpumon.sampling.collector import Collector
from gpumon.sampling.enrichment import Lookup
from gpumon.ui.app import GpumonApp
from gpumon.ui.dialogs import end
from gpumon.ui.fleet_app import FleetApp
from gpumon.ui.session import Logbook, Session
from gpumon.ui.view.dashboard_view import StartupOptions
from screenshots.cells import cells_of
from screenshots.drawing import svg_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.pilot import Pilot

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.playback import Player
    from gpumon.ui.fleet_app import OpenHost

MOMENT = 1_800_000_000.0

_A_MOMENT, _AN_HOUR = 0.02, 3600.0
_SAMPLES = 3
_EVERY_CARD = "0-7"


class Scene(Struct, frozen=True):
    """One picture.

    Attributes:
        name: Of its files.
        shows: What is seen on it, for those who do not see it.
        size: Columns and lines.
        keys: What is pressed first.
        theme: Its colours.
        cards: Which cards the machine has.
        hosts: The number of machines, if there are many.
    """

    name: str
    shows: str
    size: tuple[int, int] = (120, 30)
    keys: tuple[str, ...] = ()
    theme: str = "gpumon"
    cards: str = _EVERY_CARD
    hosts: int = 0


_MACHINE = "eight cards and the processes on them"
_SECOND_LINE = ("down", "down")
SCENES = (
    Scene("dashboard", _MACHINE, keys=_SECOND_LINE),
    Scene(
        "dashboard-light", f"{_MACHINE}, on a light ground", keys=_SECOND_LINE, theme="gpumon-light"
    ),
    Scene("dashboard-amber", f"{_MACHINE}, in amber", keys=_SECOND_LINE, theme="amber"),
    Scene("dashboard-dusk", f"{_MACHINE}, at dusk", keys=_SECOND_LINE, theme="dusk"),
    Scene(
        "card",
        "the page of a card, with what is wrong and charts",
        (120, 48),
        ("tab", *["down"] * 7, "enter"),
    ),
    Scene("end", "a job and its children are about to be ended", keys=("down", "k")),
    Scene("users", "who has how much of the machine", keys=("u",)),
    Scene(
        "rewind",
        "the same machine half an hour earlier",
        keys=("left_square_bracket", *["shift+left"] * 3),
    ),
    Scene("eight-cards-100x24", _MACHINE, (100, 24)),
    Scene("one-card-80x24", "one card and the processes on it", (80, 24), cards="0"),
    Scene(
        "fleet",
        "sixteen machines: which has free cards, which is sick, and who holds most",
        (120, 22),
        ("down",) * 4,
        hosts=16,
    ),
)


class Frozen:
    """A clock that stands still."""

    def time(self) -> float:
        """See ``gpumon.system.clock.Clock``."""
        return MOMENT

    def monotonic(self) -> float:
        """See ``gpumon.system.clock.Clock``."""
        return MOMENT

    def wait(self, event: threading.Event, timeout: float) -> bool:  # noqa: ARG002 - it never comes
        """See ``gpumon.system.clock.Clock``."""
        return event.wait()


@contextmanager
def machine(cards: str) -> Iterator[Session]:
    """The demo after hours of looking at it, with some of its cards."""
    shown = SimulatedMachine(parse_selection(cards), readonly=False, clock=Frozen())
    source = shown.source
    history, tape = History(conditions()), MemoryRecording(DEFAULTS.full_share)
    for snapshot in source.past():
        history.add(snapshot)
        tape.add(snapshot)
    lookup = Lookup(shown.processes)
    collector = Collector(source, clock=Frozen(), annotate=lookup.annotate)
    taken = threading.Event()
    collector.subscribe(history.add)
    collector.subscribe(lambda _: taken.set())
    collector.start()
    taken.wait()
    try:
        yield Session(
            *(shown, collector, history, lookup, AuditLog(), tape, Logbook(collector)),
        )
    finally:
        collector.stop()


async def svg_of_scene(scene: Scene, session: Session) -> str:
    """The picture of a scene on a machine."""
    # However busy the machine that takes the picture, the dialog is shown with all that it names.
    end.LOOK_SECONDS = _AN_HOUR
    app = GpumonApp(session, options=StartupOptions(theme=choose_theme(scene.theme)))
    async with app.run_test(size=scene.size) as pilot:
        await pilot.press(*scene.keys)
        # A button waits for what is looked up on another thread.
        while any(button.disabled for button in app.screen.query(Button)):
            await pilot.pause(_A_MOMENT)
        if app.workspace.viewed_time.player is not None:
            await _settle(app.workspace.viewed_time.player, pilot)
        app.workspace.dashboard.show_newest()
        await pilot.pause()
        ground = app.current_theme.background or "#000000"
        return svg_of(cells_of(app), ground, f"gpumon --demo: {scene.shows}")


async def svg_of_fleet(scene: Scene) -> str:
    """The picture of a scene of many machines."""
    clock = Frozen()
    fleet = DemoFleet([f"gpu-{number:02}" for number in range(1, scene.hosts + 1)], clock=clock)
    for host in fleet.latest().hosts:
        fleet.sample(host.name)
    summaries = FleetSummaries(fleet)
    options = StartupOptions(theme=choose_theme(scene.theme))
    app = FleetApp(fleet, summaries, _no_host, options, source="DEMO", clock=clock)
    async with app.run_test(size=scene.size) as pilot:
        while not summaries.latest:
            await pilot.pause(_A_MOMENT)
        app.fleet_screen.draw()
        await pilot.press(*scene.keys)
        await pilot.pause()
        ground = app.current_theme.background or "#000000"
        hosts = f"gpu-[01-{scene.hosts}]"
        return svg_of(cells_of(app), ground, f"gpumon --demo --hosts {hosts}: {scene.shows}")


def _no_host(name: str) -> OpenHost:
    raise AssertionError(f"no picture opens {name}")


async def _settle(player: Player, pilot: Pilot[int]) -> None:
    """Wait until samples of the past are as complete as they get, and stay so.

    The first that comes may have been under way before the last key.
    """
    samples = settled = 0

    def count(_: Snapshot) -> None:
        nonlocal samples
        samples += 1

    unsubscribe = player.collector.subscribe(count)
    while settled < _SAMPLES:
        before = samples
        while samples == before:
            await pilot.pause(_A_MOMENT)
        settled = settled + 1 if player.settled else 0
    unsubscribe()
