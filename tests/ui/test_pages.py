"""The pages on screen: open at once, kept fresh beside the screen, and a way back."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen as TextualScreen

from gpumon.config.keymap import DEFAULT_WINDOW
from gpumon.config.themes import ThemeLibrary, resolve_styles
from gpumon.findings.groups import JobGroup, jobs
from gpumon.host.details import read_details
from gpumon.host.process_host import Details, Target
from gpumon.host.processes import ProcessReader
from gpumon.model.processes import (
    GpuProcess,
    GpuUse,
    HolderScan,
    HoldReason,
    ProcessId,
    UnlistedHolder,
    Workload,
)
from gpumon.model.snapshot import Snapshot
from gpumon.recording.history import History
from gpumon.recording.recording import Event, EventKind
from gpumon.remote.client import RemoteHost
from gpumon.text.cells import Row
from gpumon.ui.screens import page, subjects
from gpumon.ui.screens.compare import CompareScreen
from gpumon.ui.screens.page import PageScreen
from gpumon.ui.screens.painted import CellView
from gpumon.ui.screens.subjects import GpuScreen, JobScreen, ProcessScreen
from gpumon.ui.terminal.renderer import TerminalRenderer
from gpumon.ui.terminal.styles import TRUE_COLOUR, sgr_styles
from gpumon.ui.theme_controller import to_textual
from gpumon.ui.view.key_names import FooterKey
from gpumon.ui.workspace import Workspace
from tests.build import GIB, NOON, device_files, gpu, process, snapshot
from tests.known import known
from tests.lives import Family
from tests.screen import Screen
from tests.ui.view import drawing
from tests.ui.waiting import gone, press, shown, text, until

ANN = process(pid=41233, start_time=7, memory_used=74 * GIB)
UPDATE_SECONDS = 0.01
MANY_UPDATES = 20 * UPDATE_SECONDS


class Pages(App[int]):
    """What the pages need of the application."""

    def __init__(self) -> None:
        super().__init__()
        self.register_theme(to_textual(ThemeLibrary().read("gpumon")))
        self.theme = "gpumon"
        styles = sgr_styles(resolve_styles(self.get_css_variables()), TRUE_COLOUR)
        self.renderer = TerminalRenderer(self, styles)
        self.workspace: Any = None
        self.asked: list[Target] = []
        self.asked_name = ""

    def ask(self, targets: Sequence[Target], name: str = "") -> None:
        """Keep what a page asks to end."""
        self.asked.extend(targets)
        self.asked_name = name


class Present:
    """A viewed time at which it is always now."""

    is_past = False
    is_live = True
    settled = True
    timeline = None

    def __init__(self, history: History, host: Any) -> None:
        self.history = history
        self.happened: list[Event] = []
        recording = SimpleNamespace(events=lambda _, __: self.happened)
        self.session = SimpleNamespace(
            machine=SimpleNamespace(processes=host, name=None), recording=recording
        )


class Told:
    """Answers what it is told to, when it is told to."""

    uid, user = 0, "root"

    def __init__(self, answer: Details | None = None, *, readonly: bool = False) -> None:
        self.answer = answer
        self.readonly = readonly
        self.looks = 0
        self.go = threading.Event()
        self.go.set()

    def details(self, _: ProcessId) -> Details | None:
        self.looks += 1
        self.go.wait()
        return self.answer


def looked(*lines: str) -> Details:
    environment = (("HF_TOKEN", "hf_secret"), *((f"V{n:03}", line) for n, line in enumerate(lines)))
    return Details(ANN.id, command=("python", "x.py"), cwd="/home/ann", environment=environment)


def history_of(*processes: GpuProcess, holders: tuple[UnlistedHolder, ...] = ()) -> History:
    scan = HolderScan(NOON, holders) if holders else None
    return drawing.history_of(msgspec.structs.replace(at(0, *processes), holders=scan))


def at(seconds: float, *processes: GpuProcess) -> Snapshot:
    return snapshot(NOON + seconds, gpu(), gpu(index=1), processes=processes)


class PageWorkspace(SimpleNamespace):
    """What the pages need of a workspace."""

    window = DEFAULT_WINDOW
    show_window = Workspace.show_window


def workspace_of(app: Pages, history: History, host: Any = None) -> Any:
    """A workspace that keeps which processes a page asks to end."""
    app.workspace = PageWorkspace(
        viewed_time=Present(history, host or Told(looked())),
        renderer=app.renderer,
        kill_controller=SimpleNamespace(ask=app.ask),
        dashboard=SimpleNamespace(follow_gpu=lambda _: None),
    )
    return app.workspace


@asynccontextmanager
async def opened(size: tuple[int, int] = (80, 24)) -> AsyncIterator[tuple[Pages, Pilot[int]]]:
    app = Pages()
    async with app.run_test(size=size) as pilot:
        yield app, pilot


@asynccontextmanager
async def page_of(
    subject: ProcessId | JobGroup | str | tuple[str, ...] = ANN.id,
    words: str = "74.0 GiB",
    history: History | None = None,
    host: Any = None,
    size: tuple[int, int] = (100, 24),
) -> AsyncIterator[tuple[Pages, Pilot[int], Any]]:
    """The page of a process, a job, a GPU or of several, once these words stand on it."""
    async with opened(size) as (app, pilot):
        workspace = workspace_of(app, history or history_of(ANN), host)
        screen = PAGES[type(subject)](workspace, subject)
        app.push_screen(screen)
        await shown(pilot, words)
        yield app, pilot, screen


PAGES: dict[type, Callable[[Any, Any], PageScreen]] = {
    ProcessId: ProcessScreen,
    JobGroup: JobScreen,
    str: GpuScreen,
    tuple: CompareScreen,
}


@pytest.fixture
def often_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that look for new data and read details a hundred times a second."""
    monkeypatch.setattr(page, "REBUILD_SECONDS", UPDATE_SECONDS)
    monkeypatch.setattr(subjects, "READ_SECONDS", UPDATE_SECONDS)


@pytest.fixture
def busy_host() -> Iterator[Told]:
    """A host that answers when the test says so."""
    host = Told(looked())
    host.go.clear()
    yield host
    host.go.set()


async def test_a_page_opens_at_once_and_shows_the_details_later(busy_host: Told) -> None:
    async with page_of(host=busy_host) as (_, pilot, _):
        await shown(pilot, "being looked up")
        busy_host.go.set()
        await shown(pilot, "/home/ann")


async def test_a_past_moment_is_redrawn_when_more_data_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    viewed_time = Present(history_of(ANN), Told())
    viewed_time.settled = False
    made: list[bool] = []
    page = GpuScreen.page

    def counted(screen: GpuScreen, width: int) -> list[Row]:
        made.append(viewed_time.settled)
        return page(screen, width)

    monkeypatch.setattr(GpuScreen, "page", counted)
    async with opened() as (app, pilot):
        workspace = workspace_of(app, viewed_time.history)
        workspace.viewed_time = viewed_time
        app.push_screen(GpuScreen(workspace, "GPU-0"))
        await shown(pilot, "H100")
        viewed_time.settled = True
        await until(pilot, lambda: made[-1], "the page anew")
        viewed_time.history = history_of(ANN)
        known = len(made)
        await until(pilot, lambda: len(made) > known, "the page of another history")


@pytest.mark.usefixtures("often_updated")
async def test_no_second_read_starts_while_one_hangs(busy_host: Told) -> None:
    async with page_of(host=busy_host) as (_, pilot, _):
        await until(pilot, lambda: busy_host.looks == 1, "waiting for the look")
        await pilot.pause(MANY_UPDATES)
        await pilot.press("down")
        assert busy_host.looks == 1
        busy_host.go.set()
        await shown(pilot, "/home/ann")
        await until(pilot, lambda: busy_host.looks > 1, "waiting for the next look")


@pytest.mark.usefixtures("often_updated")
async def test_what_an_ending_process_had_stays_on_its_page() -> None:
    host = Told(looked())
    async with page_of(words="/home/ann", host=host) as (app, pilot, _):
        host.answer = Details(ANN.id, unreadable=("It is ending.",))
        await shown(pilot, "What it had before is shown.")
        assert "/home/ann" in text(app)
        host.answer = None
        await shown(pilot, "Ended at")
        assert "/home/ann" in text(app)


@pytest.mark.usefixtures("often_updated")
async def test_the_page_shows_the_details_of_a_real_process(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "hush")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    host = Told(readonly=True)
    monkeypatch.setattr(host, "details", lambda process: read_details(process, device_files()))
    program = "import time; print(flush=True); time.sleep(1000)"
    child = family.python(program, "--lr", "3e-4", cwd="/")
    facts = known(ProcessReader().read(child.pid, 0.0))
    mine = msgspec.structs.replace(ANN, id=facts.id, command=facts.command, user=facts.user)
    opens = page_of(mine.id, "cuda:0 is GPU 1", history_of(mine), host, (120, 200))
    async with opens as (app, pilot, _):
        assert f"{child.pid} " in text(app).split("Family")[1]
        assert "hush" not in text(app)
        child.terminate()
        child.wait()
        await shown(pilot, "Ended at")
        assert "cuda:0 is GPU 1" in text(app)


async def test_the_page_of_a_process_out_of_reach_says_why_and_guesses_nothing() -> None:
    host = RemoteHost("gpu-04", ["sh", "-c", "echo Network is unreachable >&2; exit 255"])
    history = history_of(ANN)
    async with page_of(history=history, host=host, size=(120, 60)) as (app, pilot, screen):
        await shown(pilot, "the connection to gpu-04 ended (Network is unreachable).")
        history.add(at(1))
        screen.follow()
        screen.rebuild()
        await shown(pilot, "it may have ended")
        assert "Ended at" not in text(app)


async def test_secrets_are_hidden_whenever_it_opens_and_shown_by_a_key() -> None:
    async with page_of(words="HF_TOKEN", size=(100, 90)) as (app, pilot, _):
        for _ in range(2):
            assert "hf_secret" not in text(app)
            await press(pilot, "s", shows="hf_secret")
            await pilot.press("escape")
            app.push_screen(ProcessScreen(app.workspace, ANN.id))
            await shown(pilot, "HF_TOKEN")
        await pilot.press("s", "s")
        await gone(pilot, "hf_secret")


@pytest.mark.parametrize("key", ["escape", "q"])
async def test_a_page_closes_only_itself(key: str) -> None:
    async with page_of() as (app, pilot, screen):
        below = app.screen_stack[-2]
        await pilot.press(key)
        assert app.screen is below is not screen
        assert app.is_running


async def test_the_kill_command_is_copied_and_shown_until_the_next_key() -> None:
    async with page_of() as (app, pilot, _):
        await press(pilot, "y", shows="kill 41233")
        assert app.clipboard == "kill 41233"
        await pilot.press("down")
        assert "kill 41233" not in text(app)
        await press(pilot, "y", "y", shows="kill 41233")


@pytest.mark.parametrize("key", ["k", "f9", "delete"])
async def test_the_end_is_requested_for_the_process_on_screen(key: str) -> None:
    async with page_of(words="k end…") as (app, pilot, _):
        await pilot.press(key)
        await until(pilot, lambda: bool(app.asked), "waiting for the request")
        (target,) = app.asked
        assert (target.id, target.user, target.uses) == (ANN.id, ANN.user, ANN.uses)


async def test_the_end_of_a_job_is_requested_as_a_whole() -> None:
    history = history_of(ANN)
    (job,) = jobs([ANN])
    async with page_of(job, "k end…", history) as (app, pilot, _):
        await pilot.press("k")
        await until(pilot, lambda: bool(app.asked), "waiting for the request")
        assert [target.id for target in app.asked] == [ANN.id]
        assert app.asked_name == f"job {job.label}"
        app.asked.clear()
        history.add(at(60))
        await shown(pilot, "None of its processes has been on a GPU since 12:01")
        await press(pilot, "k", shows="is no longer on a GPU")
        assert app.asked == []


async def test_readonly_disables_the_key_end() -> None:
    async with page_of(words="copy kill", host=Told(looked(), readonly=True)) as (app, pilot, _):
        assert "end…" not in text(app)
        await pilot.press("k", "f9", "delete")
        await pilot.pause()
        assert app.asked == []


@pytest.mark.usefixtures("often_updated")
async def test_no_end_is_requested_for_an_ended_process() -> None:
    history, host = history_of(ANN), Told(looked())
    async with page_of(words="/home/ann", history=history, host=host) as (app, pilot, _):
        history.add(at(180))
        host.answer = None
        await shown(pilot, "these are its last values", "/home/ann", "74.0 GiB")
        looks = host.looks
        await pilot.pause(MANY_UPDATES)
        await pilot.press("k")
        assert host.looks == looks
        assert app.asked == []
        await shown(pilot, "41233 has ended already")


@pytest.mark.usefixtures("often_updated")
@pytest.mark.parametrize(
    ("threads", "said"), [(1, "it has ended."), (2, "it is still running, on no GPU.")]
)
async def test_a_process_is_called_ended_once_all_its_threads_are(threads: int, said: str) -> None:
    history, host = history_of(ANN), Told(looked())
    async with page_of(words="/home/ann", history=history, host=host) as (_, pilot, screen):
        history.add(at(1))
        screen.rebuild()
        await shown(pilot, "it is still running, on no GPU.")
        host.answer = Details(ANN.id, state="Z", threads=threads, unreadable=("A zombie.",))
        await shown(pilot, "A zombie.", said)


@pytest.mark.usefixtures("often_updated")
async def test_a_living_process_that_left_the_gpus_is_not_called_ended() -> None:
    history = history_of(ANN)
    async with page_of(words="/home/ann", history=history, size=(100, 40)) as (app, pilot, screen):
        history.add(at(1))
        screen.rebuild()
        assert "it may have ended" in text(app)
        await shown(pilot, "it is still running, on no GPU")
        history.add(at(2, ANN))
        await gone(pilot, "holds none")


async def test_an_unlisted_process_has_a_page_too() -> None:
    words = "The driver lists it on no GPU"
    async with page_of(words=words, history=history_of(), size=(100, 40)) as (_, pilot, _):
        await shown(pilot, "/home/ann")


async def test_details_of_an_invisible_process_are_not_read() -> None:
    hidden = process(visible=False, user=None, start_time=None, started_at=None)
    host = Told(None)
    opens = page_of(hidden.id, "Not visible here", history_of(hidden), host, (100, 40))
    async with opens as (app, pilot, _):
        assert host.looks == 0
        await press(pilot, "y", shows="another process may have this number")
        assert app.clipboard == ""


async def test_the_page_scrolls_from_end_to_end_and_no_further() -> None:
    async with page_of(words="/home/ann", host=Told(looked(*("x",) * 50))) as (app, pilot, _):
        for keys, lines in (
            *(([], "1–22 of "), (["up"], "1–22 of "), (["down", "down"], "3–24 of ")),
            *((["pagedown"], "24–45 of "), (["end"], "V049")),
        ):
            await pilot.press(*keys)
            assert lines in text(app)
        last = text(app)
        await pilot.press("down", "pagedown")
        assert text(app) == last
        await pilot.press("home")
        assert "1–22 of " in text(app)


async def test_a_resize_rebuilds_the_rows() -> None:
    async with page_of(words="/home/ann", size=(60, 15)) as (app, pilot, _):
        await pilot.press("end")
        for width, height in ((160, 50), (59, 10), (100, 3), (100, 2), (100, 24)):
            await pilot.resize_terminal(width, height)
            await until(
                pilot,
                lambda size=[width] * height: list(map(len, text(app).splitlines())) == size,  # type: ignore[misc]  # a default binds the value
                f"waiting for {width}x{height}",
            )


class Counted(PageScreen):
    """A page that counts how often it is made."""

    made = 0

    @property
    def heading(self) -> str:
        return "counted"

    @property
    def footer_keys(self) -> list[FooterKey]:
        return []

    def follow(self) -> None:
        pass

    def page(self, width: int) -> list[Any]:
        self.made += 1
        return [((" " * width, ""),)]


@pytest.mark.usefixtures("often_updated")
async def test_a_page_is_rebuilt_for_new_data_and_never_while_hidden() -> None:
    async with opened() as (app, pilot):
        history = history_of(ANN)
        screen = Counted(workspace_of(app, history))
        app.push_screen(screen)
        await until(pilot, lambda: screen.made > 0, "waiting for the page")
        await pilot.pause()
        made = screen.made
        await pilot.pause(MANY_UPDATES)
        assert screen.made == made
        history.add(at(1, ANN))
        await until(pilot, lambda: screen.made > made, "waiting for the new data")
        await pilot.pause(MANY_UPDATES)
        assert screen.made == made + 1
        app.push_screen(TextualScreen())
        await until(pilot, lambda: not screen.in_sight, "waiting for the other screen")
        history.add(at(2, ANN))
        screen.rebuild()
        await pilot.pause(MANY_UPDATES)
        assert screen.made == made + 1
        app.pop_screen()
        # Twice, where the next look for new data comes before the screen hears of its return.
        await until(pilot, lambda: screen.made >= made + 2, "waiting for its return")


async def test_a_card_that_vanishes_is_shown_as_it_was_and_comes_back() -> None:
    history = history_of(ANN)
    async with page_of("GPU-1", "Memory ─", history, size=(100, 60)) as (app, pilot, _):
        await press(pilot, "y", shows="CUDA_VISIBLE_DEVICES=GPU-1   copied")
        assert app.clipboard == "CUDA_VISIBLE_DEVICES=GPU-1"
        history.add(snapshot(NOON + 60, gpu(), processes=(ANN,)))
        await shown(pilot, "Not in the driver's list since")
        assert "H100" in text(app)
        history.add(at(61, ANN))
        await gone(pilot, "list since")


def holder(pid: int, reason: HoldReason = HoldReason.ORPHAN) -> UnlistedHolder:
    return UnlistedHolder(
        *(ProcessId(pid, 7), ("GPU-1",), reason, "it holds it"),
        user="ann",
        uid=1001,
        started_at=NOON - 60,
        place=Workload(slurm_job="88123"),
    )


async def asked_to_end(*holders: UnlistedHolder, readonly: bool = False) -> list[Target]:
    """Whom the key offers to end on the page of a card that these hold."""
    history, host = history_of(ANN, holders=holders), Told(readonly=readonly)
    async with page_of("GPU-1", "Memory ─", history, host, (100, 60)) as (app, pilot, _):
        await pilot.press("k")
        await pilot.pause()
        assert ("k end unlisted holders…" in text(app)) == bool(app.asked)
        return app.asked


async def test_weak_suspects_are_offered_only_without_better_ones() -> None:
    weak = holder(1, HoldReason.HOLDS)
    child, monitor = holder(2, HoldReason.CHILD), holder(3, HoldReason.OBSERVER)
    assert [one.id.pid for one in await asked_to_end(holder(4), weak, child, monitor)] == [4]
    assert [one.id.pid for one in await asked_to_end(weak, child, monitor)] == [1]
    assert await asked_to_end(child, monitor) == []


async def test_readonly_offers_no_unlisted_holder() -> None:
    assert await asked_to_end(holder(4), readonly=True) == []


async def test_a_listed_process_is_no_unlisted_holder() -> None:
    came = msgspec.structs.replace(holder(ANN.id.pid), id=ANN.id, gpu_uuids=("GPU-0",))
    history = history_of(ANN, holders=(came,))
    async with page_of("GPU-0", "Memory ─", history, size=(100, 60)) as (app, _, _):
        assert "unlisted holders" not in text(app)


async def test_an_unlisted_holder_is_offered_with_its_cards_and_where_it_runs() -> None:
    (target,) = await asked_to_end(holder(4))
    assert target.uses == (GpuUse("GPU-1", 1, memory_used=None),)
    assert target.started_at == NOON - 60
    assert target.place == Workload(slurm_job="88123")


async def test_new_colours_are_applied() -> None:
    async with page_of() as (app, _, screen):
        app.renderer.use(sgr_styles(resolve_styles(app.get_css_variables()), None))
        screen.repaint()
        strip = screen.query_one("#header", CellView).render_line(0)
        assert all(segment.style.color is None for segment in strip if segment.style)


PROGRAM = """
import threading
from gpumon.ui.background import run_in_thread
from gpumon.ui.screens.subjects import ProcessScreen
from tests.ui.test_pages import ANN, Pages, Told, at, history_of, looked, workspace_of
from textual.binding import Binding

class Program(Pages):
    BINDINGS = [Binding("f6", "whole"), Binding("f7", "tick"), Binding("ctrl+x", "exit")]

    def on_mount(self):
        self.history, self.ticks = history_of(ANN), 0
        host = Told(looked(*("value",) * 60))
        self.push_screen(ProcessScreen(workspace_of(self, self.history, host), ANN.id))
        run_in_thread(self, threading.Event().wait, print)

    def action_whole(self):
        for view in self.screen.query("CellView"):
            view.refresh()

    def action_tick(self):
        self.ticks += 1
        self.history.add(at(self.ticks, ANN))

    def action_exit(self):
        self.exit(0)

Program().run()
"""
F6, F7 = "\x1b[17~", "\x1b[18~"


@pytest.fixture
def terminal() -> Iterator[Screen]:
    with Screen([sys.executable, "-c", PROGRAM], columns=100, lines=24) as screen:
        screen.wait_for("/home/ann")
        yield screen


@pytest.mark.slow
def test_in_a_terminal_cells_are_changed_and_background_work_does_not_prevent_the_exit(
    terminal: Screen,
) -> None:
    # A second costs the cells that changed.
    terminal.press(F7, "12:00:01")
    before = len(terminal.output)
    terminal.press(F7, "12:00:02")
    assert len(terminal.output) - before < 600
    # The wheel scrolls.
    for y, down, lines in ((10, True, "4–25 of"), (0, True, "7–28 of"), (10, False, "4–25 of")):
        terminal.wheel(50, y, down=down)
        terminal.wait_for(lines)
    # Changed cells give the same screen as a repaint.
    for keys, words in (("\x1b[B" * 3, "7–28 of"), ("\x1b[F", "V059"), ("y", "kill 41233")):
        terminal.press(keys, words)
    terminal.press("\x1b[H" + F7, "1–22 of .*12:00:03")
    patched, written = terminal.cells(), len(terminal.output)
    terminal.type(F6)
    terminal.wait(lambda it: len(it.output) > written + 1000, "waiting for the repaint")
    terminal.wait(lambda it: it.cells() == patched, "waiting for the same picture")
    # Background work that hangs does not prevent the exit.
    terminal.type("\x18")
    assert terminal.wait_end() == 0


async def test_the_keys_of_a_gpu_s_page_go_round_the_gpus_in_the_same_window() -> None:
    async with page_of("GPU-0", "other GPU") as (app, pilot, _):
        await press(pilot, "1", "down", shows="1[1m]")
        for key, index in ((".", 1), (".", 0), (",", 1), ("right", 0), ("left", 1)):
            await press(pilot, key, shows=f" GPU {index} ")
            assert "1[1m]" in text(app), "the window stays"
            assert " 2–" in text(app).splitlines()[0], "so does the scroll position"


async def test_each_gpu_has_its_own_charts() -> None:
    gpus = gpu(utilization_gpu=91), gpu(index=1, utilization_gpu=13)
    history = drawing.history_of(*(snapshot(NOON + second, *gpus) for second in range(3)))
    async with page_of("GPU-0", "peak 91", history, size=(100, 40)) as (app, pilot, _):
        await press(pilot, ".", shows="peak 13")
        assert "peak 91" not in text(app)


async def test_one_gpu_alone_offers_no_other() -> None:
    history = drawing.history_of(snapshot(NOON, gpu()))
    async with page_of("GPU-0", "Esc back", history) as (app, pilot, _):
        assert "other GPU" not in text(app)
        await press(pilot, ".", shows=" GPU 0 ")


async def test_after_a_jump_back_nothing_compared_is_of_the_future() -> None:
    history = history_of(ANN)
    async with page_of(("GPU-0", "GPU-1"), "GPU 0-1 compared", history) as (app, pilot, screen):
        history.add(snapshot(NOON + 7200, gpu()))
        screen.rebuild()
        await shown(pilot, "not listed since 14:00")
        app.workspace.viewed_time.history = drawing.history_of(snapshot(NOON - 60, gpu(index=1)))
        screen.rebuild()
        await shown(pilot, "GPU 1 compared")
        assert "not listed" not in text(app)


async def test_without_a_known_gpu_nothing_is_copied() -> None:
    async with page_of(("GPU-8", "GPU-9"), "None of these GPUs") as (app, pilot, _):
        await press(pilot, "y", shows="none of these GPUs is known: nothing to copy")
        assert app.clipboard == ""


async def test_gpus_are_compared_in_a_window_and_a_gone_one_is_named() -> None:
    history = history_of(ANN)
    async with page_of(("GPU-0", "GPU-1"), "GPU 0-1 compared", history) as (app, pilot, screen):
        await press(pilot, "1", shows="The last minute")
        await press(pilot, "y", shows="CUDA_VISIBLE_DEVICES=GPU-0,GPU-1")
        history.add(snapshot(NOON + 5, gpu()))
        screen.rebuild()
        await shown(pilot, "not listed since 12:00")
        titles = [section.title for section in screen.state_help()]
        assert any("GPU 0" in title for title in titles)
        assert not any("GPU 1" in title for title in titles), "its state is unknown"
        history.add(at(6, ANN))
        screen.rebuild()
        await gone(pilot, "not listed")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is not screen, "the page closes")


async def test_the_keys_choose_how_much_of_the_past_the_charts_show() -> None:
    async with page_of("GPU-1", "The last 5 minutes", size=(100, 30)) as (_, pilot, _):
        await shown(pilot, "2[5m] 3 30m  4 all")
        for key, title in (
            ("1", "The last minute"),
            ("3", "The last 30 minutes"),
            ("4", "All that was seen: 0s"),
        ):
            await press(pilot, key, shows=title)


async def test_only_events_of_the_gpu_are_marked() -> None:
    history = history_of()
    history.add(at(60))
    here = Event(NOON + 30, EventKind.CAME, "x", "one came", ("GPU-0", "GPU-1"))
    there = Event(NOON + 40, EventKind.ERROR, "GPU-0", "broken", ("GPU-0",))
    async with page_of("GPU-1", "Memory ─", history, size=(100, 30)) as (app, pilot, _):
        app.workspace.viewed_time.happened += here, there
        await press(pilot, "1", shows="─+─")
        assert "✖" not in text(app)
