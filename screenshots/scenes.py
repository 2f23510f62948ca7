"""What the pictures show: the demo with a clock that stands still, after some keys."""

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
from screenshots.callouts import annotated
from screenshots.cells import cells_of
from screenshots.drawing import svg_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import App
    from textual.pilot import Pilot

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.playback import Player
    from gpumon.system.system import Clock
    from gpumon.ui.fleet_app import OpenHost

MOMENT = 1_800_000_000.0

_A_MOMENT, _AN_HOUR = 0.02, 3600.0
_SAMPLES = 3
_ALL_GPUS = "0-7"


class Scene(Struct, frozen=True):
    """One picture."""

    name: str  # Of its files.
    shows: str  # Its title, for readers who do not see it.
    size: tuple[int, int] = (120, 30)  # Columns and lines.
    keys: tuple[str, ...] = ()  # Pressed before the picture is taken.
    theme: str = "gpumon"
    gpus: str = _ALL_GPUS  # The indices of the GPUs of the machine.
    hosts: int = 0  # The number of machines; 0 is the dashboard of one machine.
    callouts: bool = False  # Whether ``screenshots.callouts`` explains the parts of the screen.


_MACHINE = "eight GPUs and the processes on them"
_SECOND_LINE = ("down", "down")
_SECOND_GPU = ("tab", "down", "down")
SCENES = (
    Scene("dashboard", _MACHINE, keys=_SECOND_LINE),
    Scene("reading", "how to read the dashboard", (100, 24), callouts=True),
    Scene(
        "dashboard-light",
        f"{_MACHINE}, theme gpumon-light",
        keys=_SECOND_LINE,
        theme="gpumon-light",
    ),
    Scene("dashboard-amber", f"{_MACHINE}, theme amber", keys=_SECOND_LINE, theme="amber"),
    Scene("dashboard-dusk", f"{_MACHINE}, theme dusk", keys=_SECOND_LINE, theme="dusk"),
    Scene(
        "gpu",
        "the page of a GPU: its findings, the holders of its memory, and charts",
        (120, 48),
        ("tab", *["down"] * 7, "enter"),
    ),
    Scene(
        "compare",
        "two GPUs compared: their values side by side and their charts",
        keys=("tab", "space", "space", "enter"),
    ),
    Scene(
        "explanation",
        "the help page explains the state of the GPU under the cursor",
        keys=(*_SECOND_GPU, "question_mark"),
    ),
    Scene("end", "the dialog before a signal is sent to a job", keys=("down", "k")),
    Scene("users", "the users and their totals", keys=("u",)),
    Scene(
        "rewind",
        "the same machine half an hour earlier",
        keys=("left_square_bracket", *["shift+left"] * 3),
    ),
    Scene("eight-gpus-100x24", _MACHINE, (100, 24)),
    Scene("one-gpu-80x24", "one GPU and the processes on it", (80, 24), gpus="0"),
    Scene(
        "fleet",
        "sixteen machines: their free GPUs, their worst states, and who holds the most memory",
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

    def wait(self, event: threading.Event, timeout: float) -> bool:  # noqa: ARG002 - it never passes
        """See ``gpumon.system.clock.Clock``."""
        return event.wait()


@contextmanager
def machine(gpus: str, clock: Clock | None = None) -> Iterator[Session]:
    """The demo with some of its GPUs, as after hours of use."""
    clock = clock or Frozen()
    shown = SimulatedMachine(parse_selection(gpus), readonly=False, clock=clock)
    source = shown.source
    history, recording = History(conditions()), MemoryRecording(DEFAULTS.full_share)
    for snapshot in source.past():
        history.add(snapshot)
        recording.add(snapshot)
    lookup = Lookup(shown.processes)
    collector = Collector(source, clock=clock, annotate=lookup.annotate)
    sampled = threading.Event()
    collector.subscribe(history.add)
    collector.subscribe(recording.add)
    collector.subscribe(lambda _: sampled.set())
    collector.start()
    sampled.wait()
    try:
        yield Session(
            *(shown, collector, history, lookup, AuditLog(), recording, Logbook(collector)),
        )
    finally:
        collector.stop()


async def svg_of_scene(scene: Scene, session: Session) -> str:
    """The picture of a scene of one machine."""
    app = new_app(session, scene.theme)
    async with app.run_test(size=scene.size) as pilot:
        await pilot.press(*scene.keys)
        await settle(app, pilot)
        lines, title = cells_of(app), f"gpumon --demo: {scene.shows}"
        ground = ground_of(app)
        return (annotated if scene.callouts else svg_of)(lines, ground, title)


def new_app(session: Session, theme: str) -> GpumonApp:
    """The dashboard in a theme."""
    # The dialog waits for the children of the processes, however slow the machine is.
    end.LOOK_SECONDS = _AN_HOUR
    return GpumonApp(session, options=StartupOptions(theme=choose_theme(theme)))


async def settle(app: GpumonApp, pilot: Pilot[int]) -> None:
    """Wait until the screen shows all that other threads read for it."""
    # A button waits for what is looked up on another thread.
    while any(button.disabled for button in app.screen.query(Button)):
        await pilot.pause(_A_MOMENT)
    player = app.workspace.viewed_time.player
    if player is not None:
        await _settle_past(player, pilot)
    app.workspace.dashboard.show_newest()
    await pilot.pause()


def ground_of(app: App[int]) -> str:
    """The background of the terminal in the theme of an application."""
    return app.current_theme.background or "#000000"


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
        hosts = f"gpu-[01-{scene.hosts}]"
        title = f"gpumon --demo --hosts {hosts}: {scene.shows}"
        return svg_of(cells_of(app), ground_of(app), title)


def _no_host(name: str) -> OpenHost:
    raise AssertionError(f"no scene opens {name}")


async def _settle_past(player: Player, pilot: Pilot[int]) -> None:
    """Wait until the samples of the past are complete, and stay complete.

    The player may have begun the first of them before the last key.
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
