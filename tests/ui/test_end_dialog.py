"""The question before a signal: all of it is on screen, and nothing in it is promised falsely."""

from __future__ import annotations

import re
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest
from textual.app import App
from textual.widgets import Button

from gpumon.host.process_host import Target
from gpumon.model.processes import GpuUse, ProcessId
from gpumon.ui.dialogs import end
from gpumon.ui.dialogs.end import EndDialog, SignalChoice
from tests.build import GIB
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from textual.pilot import Pilot

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


@asynccontextmanager
async def asked(
    *targets: Target, uid: int | None = ANN, size: tuple[int, int] = (100, 30)
) -> AsyncIterator[tuple[EndDialog, Pilot[None], list[SignalChoice | None]]]:
    """The dialog before somebody, and their answers."""
    answers: list[SignalChoice | None] = []
    dialog = EndDialog(targets, uid)
    app: App[None] = App()
    async with app.run_test(size=size) as pilot:
        app.push_screen(dialog, answers.append)
        await until(pilot, lambda: bool(dialog.query("#send")), "the dialog")
        yield dialog, pilot, answers


async def until(pilot: Pilot[None], holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}\n{text(pilot)}"
        await pilot.pause(0.03)


async def answered(pilot: Pilot[None], answers: list[SignalChoice | None]) -> SignalChoice | None:
    """The answer to the question, once there is one."""
    await until(pilot, lambda: answers, "the answer")
    (answer,) = answers
    return answer


def send_button(dialog: EndDialog) -> Button:
    return dialog.query_one("#send", Button)


def lines(pilot: Pilot[None]) -> list[str]:
    """What stands on the screen."""
    strips = pilot.app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).strip(" │") for strip in strips]


def text(pilot: Pilot[None]) -> str:
    """The same, line breaks made blanks."""
    return " ".join(" ".join(lines(pilot)).split())


async def look(
    pilot: Pilot[None],
    dialog: EndDialog,
    children: Sequence[Target] | None = (),
    protected: Sequence[ProcessId] = (),
) -> str:
    """What stands there once the children are known."""
    dialog.add_children(children, protected)
    await pilot.pause()
    await until(pilot, lambda: "looking for children" not in text(pilot), "the children")
    return text(pilot)


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
    async with asked(*targets, size=size) as (dialog, pilot, _):
        seen = await look(pilot, dialog, children)
        assert "Cancel" in seen
        assert str(send_button(dialog).label) in seen
        assert str(targets[0].id.pid) in seen


async def test_processes_out_of_sight_can_be_scrolled_to() -> None:
    targets = [another(pid) for pid in range(500, 530)]
    async with asked(*targets, size=(80, 24)) as (dialog, pilot, _):
        seen = await look(pilot, dialog)
        assert "500 ann" in seen
        await pilot.press("end")
        await until(pilot, lambda: "529 ann" in text(pilot), "the last")
        await pilot.press("home")
        await until(pilot, lambda: "500 ann" in text(pilot), "the first")
        await pilot.press("pagedown")
        await until(pilot, lambda: "500 ann" not in text(pilot), "others")
        await pilot.press("pageup")
        await until(pilot, lambda: "500 ann" in text(pilot), "the first again")


async def test_a_long_command_leaves_room_for_the_others() -> None:
    long = another(1, command=("python", *["--option"] * 200))
    async with asked(long, another(2), size=(80, 24)) as (dialog, pilot, _):
        assert "2 ann" in await look(pilot, dialog)


async def test_children_read_after_the_answer_change_nothing() -> None:
    async with asked(TRAINING) as (dialog, pilot, answers):
        await pilot.press("escape")
        await until(pilot, lambda: answers, "the answer")
        dialog.add_children([another(5)])
        assert answers == [None]


async def test_before_the_children_are_known_no_key_sends() -> None:
    async with asked(TRAINING) as (dialog, pilot, answers):
        assert send_button(dialog).disabled
        await pilot.press("right", "enter")
        assert await answered(pilot, answers) is None


async def test_a_button_press_before_the_children_are_known_sends_nothing() -> None:
    async with asked(TRAINING) as (dialog, pilot, answers):
        send = send_button(dialog)
        send.disabled = False
        send.press()
        assert await answered(pilot, answers) is None


async def test_a_read_that_hangs_does_not_prevent_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end, "LOOK_SECONDS", 0.05)
    async with asked(TRAINING) as (dialog, pilot, answers):
        await until(pilot, lambda: "could not be looked up" in text(pilot), "the end of patience")
        dialog.add_children([another(5)])
        await pilot.press("right", "enter")
        assert await answered(pilot, answers) == SignalChoice((TRAINING,), 15, whole_tree=False), (
            "those that were named"
        )


async def test_a_process_of_unknown_owner_is_not_called_anothers() -> None:
    async with asked(another(5, uid=None, user=None)) as (dialog, pilot, _):
        seen = await look(pilot, dialog)
        assert "not yours" not in seen
        assert "will free about 40.0 GiB on GPU 0" in seen


async def test_an_invisible_process_is_announced_as_refused() -> None:
    hidden = another(5, None, uid=None, user=None)
    async with asked(hidden) as (dialog, pilot, _):
        seen = await look(pilot, dialog)
        assert "not visible here: it gets no signal" in seen
        assert "frees no memory" in seen


async def test_memory_of_processes_without_permission_is_not_promised() -> None:
    async with asked(TRAINING, another(5, uid=BO, user="bo")) as (dialog, pilot, _):
        seen = await look(pilot, dialog)
        assert "it belongs to bo: you may not signal it" in seen
        assert "will free about 40.0 GiB on GPU 0" in seen


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 20])
async def test_children_of_another_are_marked(count: int) -> None:
    children = [another(pid, uid=BO, user="bo") for pid in range(count)]
    async with asked(TRAINING, size=(100, 60)) as (dialog, pilot, _):
        seen = await look(pilot, dialog, children)
        assert seen.count("bo's, not yours") == count
        assert f"{count} of these get no signal" in seen
    async with asked(TRAINING, uid=0, size=(100, 60)) as (dialog, pilot, _):
        assert "not yours" not in await look(pilot, dialog, children)


@pytest.mark.slow
async def test_the_button_counts_reachable_processes() -> None:
    others = [another(pid, uid=BO, user="bo") for pid in range(50, 54)]
    hidden = another(60, None, uid=None, user=None)
    async with asked(TRAINING, another(5), hidden, size=(100, 60)) as (dialog, pilot, answers):
        await look(pilot, dialog, [another(6), *others])
        assert str(send_button(dialog).label) == "Send TERM to 3"
        await pilot.press("right", "enter")
        assert await answered(pilot, answers) == SignalChoice(
            (TRAINING, another(5), another(6)), 15, whole_tree=True
        )
    async with asked(hidden) as (dialog, pilot, _):
        await look(pilot, dialog)
        assert send_button(dialog).disabled


async def test_a_child_takes_a_line_and_keeps_its_script() -> None:
    command = ("/usr/bin/python3.11", *["-X", "dev"] * 20, "/home/ann/runs/llm/loader.py", "--n")
    children = [another(pid, command=command) for pid in range(700, 704)]
    async with asked(TRAINING, size=(80, 40)) as (dialog, pilot, _):
        await look(pilot, dialog, children)
        shown = [line for line in lines(pilot) if "loader.py" in line]
        assert [line.split()[0] for line in shown] == ["700", "701", "702", "703"]


@pytest.mark.slow
async def test_the_dialog_says_how_many_lines_are_out_of_sight() -> None:
    children = [another(pid) for pid in range(700, 730)]
    async with asked(TRAINING, size=(80, 24)) as (dialog, pilot, _):
        await look(pilot, dialog, children)
        await until(pilot, lambda: re.search(r"lines 1–\d+ of 3\d", text(pilot)), "the count")
        assert "PgUp PgDn" in text(pilot)
        await pilot.press("end")
        await until(pilot, lambda: re.search(r"–(3\d) of \1 ", text(pilot)), "the end of the count")
    async with asked(TRAINING, size=(80, 24)) as (dialog, pilot, _):
        seen = await look(pilot, dialog)
        assert " of " not in seen
        assert "Esc cancel" in seen
        assert "PgUp" not in seen


def signal_of(dialog: EndDialog) -> str:
    return str(send_button(dialog).label).split()[1]


@pytest.mark.slow
async def test_moving_the_focus_never_chooses_a_signal() -> None:
    async with asked(TRAINING) as (dialog, pilot, answers):
        await look(pilot, dialog, [another(5)])
        for key in ("left", "left", "up", "up", "down", "right", "right", "left", "up", "down"):
            await pilot.press(key)
            assert isinstance(dialog.focused, Button)
        for _ in range(9):
            await pilot.press("tab")
            assert signal_of(dialog) == "TERM"
        for _ in range(9):
            await pilot.press("shift+tab")
            assert signal_of(dialog) == "TERM"
        assert not answers


async def test_arrows_choose_a_signal_and_enter_moves_to_the_buttons() -> None:
    async with asked(TRAINING) as (dialog, pilot, answers):
        await look(pilot, dialog)
        await pilot.press("tab")
        await pilot.press("tab")
        assert dialog.focused is dialog.query_one("#signals")
        await pilot.press("down")
        assert signal_of(dialog) == "KILL"
        await pilot.press("up", "up")
        assert signal_of(dialog) == "INT"
        await pilot.press("enter")
        assert dialog.focused is dialog.query_one("#cancel")
        assert signal_of(dialog) == "INT"
        assert not answers


@pytest.mark.slow
async def test_without_a_permitted_target_nothing_can_be_sent() -> None:
    others = [another(pid, uid=BO, user="bo") for pid in range(5)]
    async with asked(*others, size=(100, 40)) as (dialog, pilot, answers):
        seen = await look(pilot, dialog)
        assert send_button(dialog).disabled
        assert "no signal can be sent: owned by bo" in seen
        await pilot.press("right", "enter")
        assert await answered(pilot, answers) is None
    for mine, uid in (([TRAINING], ANN), ([another(9, uid=None, user=None)], ANN), ([], 0)):
        async with asked(*others, *mine, uid=uid, size=(100, 40)) as (dialog, pilot, _):
            await look(pilot, dialog)
            assert not send_button(dialog).disabled


@pytest.mark.slow
async def test_ancestors_of_gpumon_are_named_and_excluded() -> None:
    async with asked(another(5), TRAINING) as (dialog, pilot, answers):
        assert "it and its children get no signal" in await look(
            pilot, dialog, protected=[ProcessId(5, 7)]
        )
        await pilot.press("right", "enter")
        assert await answered(pilot, answers) == SignalChoice((TRAINING,), 15, whole_tree=False)
    async with asked(another(5)) as (dialog, pilot, answers):
        await look(pilot, dialog, protected=[ProcessId(5, 7)])
        assert send_button(dialog).disabled


@pytest.mark.slow
async def test_an_unlisted_holder_says_what_it_still_holds_and_why() -> None:
    uses = (GpuUse("GPU-7", 7, memory_used=None),)
    orphan = another(44817, uses=uses, unlisted="its parent 41233 ended 22m ago")
    async with asked(orphan) as (dialog, pilot, _):
        seen = await look(pilot, dialog)
        assert (
            "still holds the device file of GPU 7, unlisted by the driver: its parent 41233 ended"
        ) in seen
    async with asked(TRAINING) as (dialog, pilot, _):
        assert "device file" not in await look(pilot, dialog)


async def test_the_title_of_a_job_counts_its_processes() -> None:
    dialog = EndDialog([TRAINING], ANN, name="job 88123")
    app: App[None] = App()
    async with app.run_test(size=(100, 30)) as pilot:
        app.push_screen(dialog)
        await until(pilot, lambda: "End job 88123: 1 process " in text(pilot), "the title")
