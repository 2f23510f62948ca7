"""The question before a signal: all of it is on screen, and nothing in it is promised falsely."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Button

from gpumon.host.process_host import Target
from gpumon.model.processes import GpuUse, ProcessId
from gpumon.ui.dialogs import end
from gpumon.ui.dialogs.end import EndDialog, SignalChoice
from tests.build import GIB
from tests.screen import PATIENCE

ANN, BO = 1001, 1002
TRAINING = Target(
    ProcessId(41233, 7),
    ANN,
    user="ann",
    command=("python", "train.py"),
    uses=(GpuUse("GPU-0", 0, memory_used=40 * GIB),),
)


def another(pid: int, start_time: int | None = 7, **changes: object) -> Target:
    return msgspec.structs.replace(TRAINING, id=ProcessId(pid, start_time), **changes)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer to come to the children than the dialog waits for them."""
    monkeypatch.setattr(end, "LOOK_SECONDS", PATIENCE)


class Question:
    """The dialog before somebody, and their answers."""

    def __init__(self, dialog: EndDialog, pilot: Pilot[None]) -> None:
        self.dialog = dialog
        self.pilot = pilot
        self.answers: list[SignalChoice | None] = []

    def lines(self) -> list[str]:
        """What stands on the screen."""
        strips = self.pilot.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).strip(" │") for strip in strips]

    def text(self) -> str:
        """The same, line breaks made blanks."""
        return " ".join(" ".join(self.lines()).split())

    async def until(self, holds: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, f"never: {what}\n{self.text()}"
            await self.pilot.pause(0.03)

    async def shown(self, pattern: str, *keys: str) -> str:
        """Press keys, and wait until this stands on the screen; returns all that does."""
        await self.pilot.press(*keys)
        await self.until(lambda: re.search(pattern, self.text()), pattern)
        return self.text()

    async def answered(self, *keys: str) -> SignalChoice | None:
        """Press keys; returns the answer to the question, once there is one."""
        await self.pilot.press(*keys)
        await self.until(lambda: self.answers, "the answer")
        (answer,) = self.answers
        return answer

    @property
    def send(self) -> Button:
        return self.dialog.query_one("#send", Button)

    @property
    def label(self) -> str:
        return str(self.send.label)

    async def look(
        self, children: Sequence[Target] | None = (), protected: Sequence[ProcessId] = ()
    ) -> str:
        """What stands there once the children are known."""
        self.dialog.add_children(children, protected)
        await self.pilot.pause()
        await self.until(lambda: "looking for children" not in self.text(), "the children")
        return self.text()


@asynccontextmanager
async def asked(
    *targets: Target, uid: int | None = ANN, size: tuple[int, int] = (100, 30), name: str = ""
) -> AsyncIterator[Question]:
    app: App[None] = App()
    async with app.run_test(size=size) as pilot:
        asked = Question(EndDialog(targets, uid, name=name), pilot)
        app.push_screen(asked.dialog, asked.answers.append)
        await asked.until(lambda: bool(asked.dialog.query("#send")), "the dialog")
        yield asked


async def told_of(
    *targets: Target,
    children: Sequence[Target] = (),
    uid: int | None = ANN,
    size: tuple[int, int] = (100, 30),
) -> str:
    """What the dialog says of these, once their children are known."""
    async with asked(*targets, uid=uid, size=size) as it:
        return await it.look(children)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 15), (80, 24), (200, 50)])
@pytest.mark.parametrize(
    ("targets", "children"),
    [
        ([another(pid) for pid in range(6)], []),
        ([TRAINING], [another(pid) for pid in range(12)]),
        ([another(1, command=("python", *["--option"] * 200))], []),
        ([TRAINING], []),
    ],
    ids=["many", "loaders", "a long command", "one"],
)
async def test_the_buttons_are_on_screen(
    size: tuple[int, int], targets: list[Target], children: list[Target]
) -> None:
    async with asked(*targets, size=size) as it:
        seen = await it.look(children)
        for words in ("Cancel", it.label, str(targets[0].id.pid)):
            assert words in seen


async def test_processes_out_of_sight_can_be_scrolled_to() -> None:
    targets = [another(pid) for pid in range(500, 530)]
    async with asked(*targets, size=(80, 24)) as it:
        assert "500 ann" in await it.look()
        await it.shown("529 ann", "end")
        await it.shown("500 ann", "home")
        await it.shown("^(?!.*500 ann)", "pagedown")
        await it.shown("500 ann", "pageup")


async def test_a_long_command_leaves_room_for_the_others() -> None:
    long = another(1, command=("python", *["--option"] * 200))
    assert "2 ann" in await told_of(long, another(2), size=(80, 24))


async def test_children_read_after_the_answer_change_nothing() -> None:
    async with asked(TRAINING) as it:
        assert await it.answered("escape") is None
        it.dialog.add_children([another(5)])
        assert it.answers == [None]


async def test_before_the_children_are_known_no_key_sends() -> None:
    async with asked(TRAINING) as it:
        assert it.send.disabled
        assert await it.answered("right", "enter") is None


async def test_a_button_press_before_the_children_are_known_sends_nothing() -> None:
    async with asked(TRAINING) as it:
        it.send.disabled = False
        it.send.press()
        assert await it.answered() is None


async def test_a_read_that_hangs_does_not_prevent_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end, "LOOK_SECONDS", 0.05)
    async with asked(TRAINING) as it:
        await it.shown("could not be looked up")
        it.dialog.add_children([another(5)])
        answer = await it.answered("right", "enter")
        assert answer == SignalChoice((TRAINING,), 15, whole_tree=False), "those that were named"


@pytest.mark.parametrize(
    ("targets", "words", "absent"),
    [
        (
            [another(5, uid=None, user=None)],
            ["will free about 40.0 GiB on GPU 0"],
            "not yours",
        ),
        (
            [another(5, None, uid=None, user=None)],
            ["not visible here: it gets no signal", "frees no memory"],
            "will free",
        ),
        (
            [TRAINING, another(5, uid=BO, user="bo")],
            ["it belongs to bo: you may not signal it", "will free about 40.0 GiB on GPU 0"],
            "80.0 GiB",
        ),
    ],
    ids=["of an unknown owner", "invisible", "of another"],
)
async def test_memory_is_promised_of_those_that_may_get_a_signal_alone(
    targets: list[Target], words: list[str], absent: str
) -> None:
    seen = await told_of(*targets)
    assert [each for each in words if each not in seen] == []
    assert absent not in seen


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 20])
async def test_children_of_another_are_marked(count: int) -> None:
    children = [another(pid, uid=BO, user="bo") for pid in range(count)]
    seen = await told_of(TRAINING, children=children, size=(100, 60))
    assert seen.count("bo's, not yours") == count
    assert f"{count} of these get no signal" in seen
    of_root = await told_of(TRAINING, children=children, uid=0, size=(100, 60))
    assert "not yours" not in of_root


@pytest.mark.slow
async def test_the_button_counts_reachable_processes() -> None:
    others = [another(pid, uid=BO, user="bo") for pid in range(50, 54)]
    hidden = another(60, None, uid=None, user=None)
    async with asked(TRAINING, another(5), hidden, size=(100, 60)) as it:
        await it.look([another(6), *others])
        assert it.label == "Send TERM to 3"
        reachable = (TRAINING, another(5), another(6))
        assert await it.answered("right", "enter") == SignalChoice(reachable, 15, whole_tree=True)
    async with asked(hidden) as it:
        await it.look()
        assert it.send.disabled


async def test_a_child_takes_a_line_and_keeps_its_script() -> None:
    command = ("/usr/bin/python3.11", *["-X", "dev"] * 20, "/home/ann/runs/llm/loader.py", "--n")
    async with asked(TRAINING, size=(80, 40)) as it:
        await it.look([another(pid, command=command) for pid in range(700, 704)])
        shown = [line for line in it.lines() if "loader.py" in line]
        assert [line.split()[0] for line in shown] == ["700", "701", "702", "703"]


@pytest.mark.slow
async def test_the_dialog_says_how_many_lines_are_out_of_sight() -> None:
    async with asked(TRAINING, size=(80, 24)) as it:
        await it.look([another(pid) for pid in range(700, 730)])
        assert "PgUp PgDn" in await it.shown(r"lines 1–\d+ of 3\d")
        await it.shown(r"–(3\d) of \1 ", "end")
    seen = await told_of(TRAINING, size=(80, 24))
    assert "Esc cancel" in seen
    assert not re.search(" of |PgUp", seen)


@pytest.mark.slow
async def test_moving_the_focus_never_chooses_a_signal() -> None:
    async with asked(TRAINING) as it:
        await it.look([another(5)])
        for key in ("left", "left", "up", "up", "down", "right", "right", "left", "up", "down"):
            await it.pilot.press(key)
            assert isinstance(it.dialog.focused, Button)
        for key in [*["tab"] * 9, *["shift+tab"] * 9]:
            await it.pilot.press(key)
            assert it.label.startswith("Send TERM")
        assert not it.answers


async def test_arrows_choose_a_signal_and_enter_moves_to_the_buttons() -> None:
    async with asked(TRAINING) as it:
        await it.look()
        await it.pilot.press("tab", "tab")
        for keys, focused, label in (
            ((), "signals", "Send TERM"),
            (("down",), "signals", "Send KILL"),
            (("up", "up"), "signals", "Send INT"),
            (("enter",), "cancel", "Send INT"),
        ):
            await it.pilot.press(*keys)
            assert it.dialog.focused is it.dialog.query_one(f"#{focused}")
            assert it.label == label
        assert not it.answers


@pytest.mark.slow
async def test_without_a_permitted_target_nothing_can_be_sent() -> None:
    others = [another(pid, uid=BO, user="bo") for pid in range(5)]
    async with asked(*others, size=(100, 40)) as it:
        seen = await it.look()
        assert it.send.disabled
        assert "no signal can be sent: owned by bo" in seen
        assert await it.answered("right", "enter") is None
    for mine, uid in (([TRAINING], ANN), ([another(9, uid=None, user=None)], ANN), ([], 0)):
        async with asked(*others, *mine, uid=uid, size=(100, 40)) as it:
            await it.look()
            assert not it.send.disabled


@pytest.mark.slow
async def test_ancestors_of_gpumon_are_named_and_excluded() -> None:
    above = ProcessId(5, 7)
    async with asked(another(5), TRAINING) as it:
        assert "it and its children get no signal" in await it.look(protected=[above])
        answer = await it.answered("right", "enter")
        assert answer == SignalChoice((TRAINING,), 15, whole_tree=False)
    async with asked(another(5)) as it:
        await it.look(protected=[above])
        assert it.send.disabled


@pytest.mark.slow
async def test_an_unlisted_holder_says_what_it_still_holds_and_why() -> None:
    uses = (GpuUse("GPU-7", 7, memory_used=None),)
    orphan = another(44817, uses=uses, unlisted="its parent 41233 ended 22m ago")
    assert (
        "still holds the device file of GPU 7, unlisted by the driver: its parent 41233 ended"
    ) in await told_of(orphan)
    assert "device file" not in await told_of(TRAINING)


async def test_the_title_of_a_job_counts_its_processes() -> None:
    async with asked(TRAINING, name="job 88123") as it:
        await it.shown("End job 88123: 1 process ")
