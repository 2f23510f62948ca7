"""The page of a card on screen."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from gpumon.config.chart_windows import USUAL_WINDOW, WINDOWS
from gpumon.findings import memory_account
from gpumon.host import Target
from gpumon.model.snapshot import GpuUse, blamed
from gpumon.ui.clipboard import copy, cuda_line
from gpumon.ui.keys import bindings_of
from gpumon.ui.screens.page import SCROLL, EndRequested, PageScreen
from gpumon.ui.view.card_page import CardView, card_rows
from gpumon.ui.view.charts import chart_rows, window_title
from gpumon.ui.view.key_names import FooterKey, footer_key
from gpumon.ui.view.memo import Memo
from gpumon.ui.view.pages import Section, Side, moment_text, text_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from gpumon.config.keymap import Place
    from gpumon.model.snapshot import Gpu, Suspect
    from gpumon.recording import Event
    from gpumon.text.cells import Row
    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.theme import Palette
    from gpumon.ui.viewed_time import ViewedTime


class CardScreen(PageScreen):
    """All that can be said of one card."""

    place: ClassVar[Place] = "card"
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(place)

    def __init__(
        self,
        stage: ViewedTime,
        pen: TerminalRenderer,
        palette: Palette,
        uuid: str,
        *,
        readonly: bool = False,
    ) -> None:
        """Make the screen.

        Args:
            stage: Where all that is shown comes from.
            pen: Writes changed cells.
            palette: Colours.
            uuid: Which card.
            readonly: Whether no signal is sent.
        """
        super().__init__(stage, pen, palette)
        self._uuid = uuid
        self._readonly = readonly
        self._window = USUAL_WINDOW
        self._charts = Memo()
        self._gpu: Gpu | None = None
        self._gone_at: float | None = None

    @property
    def heading(self) -> str:
        """Which card."""
        return "card" if self._gpu is None else f"GPU {self._gpu.index}"

    @property
    def keys(self) -> Sequence[FooterKey]:
        """What can be done here."""
        offered = not self._readonly and self._blamed()
        end = [footer_key("end", label="end unlisted holders…")] if offered else []
        windows = [
            footer_key(
                f"chart_{one.label}", label=f"[{one.label}]" if one is self._window else one.label
            )
            for one in WINDOWS
        ]
        copied = footer_key("copy", label="copy CUDA_VISIBLE_DEVICES")
        return (footer_key("back"), *windows, *end, SCROLL, copied)

    def follow(self) -> None:
        """Take the card from the newest snapshot, or notice that it is no longer there."""
        snapshot = self._history.latest
        if snapshot is None:
            return
        found = next((gpu for gpu in snapshot.gpus if gpu.uuid == self._uuid), None)
        if found is not None:
            self._gpu, self._gone_at = found, None
        elif self._gone_at is None:
            self._gone_at = snapshot.time

    def page(self, width: int) -> list[Row]:
        """The page as the card stands in the newest snapshot, or as it was last seen."""
        snapshot = self._history.latest
        gone = ""
        if snapshot is not None and self._gone_at is not None:
            at = moment_text(self._gone_at, snapshot.time)
            gone = f"Not in the driver's list since {at}; what is shown is the last seen of it."
        if self._gpu is None:
            return text_rows(f"  {self._uuid}: {gone}", width)
        view = CardView(self._gpu, gone)
        title = window_title(self._window, self._history)
        charts = Section(title, partial(self._chart_rows, self._gpu), Side.BOTH)
        return card_rows(view, self._history, snapshot, width, charts)

    def _chart_rows(self, gpu: Gpu, width: int) -> list[Row]:
        room = self.body_height
        history, window = self._history, self._window
        return chart_rows(self._charts, gpu, history, window, self._marks, width, room)

    def _marks(self, first: float, last: float) -> list[Event]:
        """What happened on this card."""
        return [mark for mark in self._stage.marks(first, last) if self._uuid in mark.cards]

    def action_window(self, key: str) -> None:
        """Show another stretch of time."""
        self._window = next(one for one in WINDOWS if one.key == key)
        self.renew()

    def _blamed(self) -> tuple[Suspect, ...]:
        """Who holds this card's device file and may be why its memory is gone."""
        if self._gpu is None or self._stage.is_past:
            return ()
        return blamed(memory_account(self._history, self._gpu).suspects)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """No key leads to a signal where none may be sent."""
        return not (action == "end" and (self._readonly or self._stage.is_past))

    def action_end(self) -> None:
        """Ask for the end of those who hold the card without being listed."""
        holders = self._blamed()
        if not holders:
            self.say("nobody was found who holds this card unlisted")
            return
        self.post_message(EndRequested(tuple(self._target_of(suspect) for suspect in holders)))

    def _target_of(self, suspect: Suspect) -> Target:
        snapshot = self._history.latest
        gpus = () if snapshot is None else snapshot.gpus
        return Target(
            suspect.id,
            suspect.uid,
            user=suspect.user,
            name=suspect.name,
            command=suspect.command,
            # It has memory on these cards, or had: how much, the driver does not tell.
            uses=tuple(
                GpuUse(gpu.uuid, gpu.index, memory_used=None)
                for gpu in gpus
                if gpu.uuid in suspect.gpu_uuids
            ),
            started_at=suspect.started_at,
            place=suspect.place,
            parent=None if suspect.parent is None else suspect.parent.pid,
        )

    def action_copy(self) -> None:
        """Put the line that selects this card on the clipboard, and on the screen."""
        self.say(copy(self.app, cuda_line([self._uuid])), lasting=True)
