"""The page that compares several GPUs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from gpumon.findings import gpu_findings
from gpumon.makers.visible_devices import assignment_line
from gpumon.model.makers import maker_of
from gpumon.text.formatting import index_list
from gpumon.ui.keys import bindings_of
from gpumon.ui.screens.page import SCROLL, PageScreen
from gpumon.ui.terminal.desktop import copy
from gpumon.ui.view.compare_page import compare_rows
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.help_page import state_sections
from gpumon.ui.view.key_names import FooterKey, footer_key, window_keys
from gpumon.ui.view.page_layout import moment_text, text_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from gpumon.config.keymap import KeyScope
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.text.cells import Row
    from gpumon.ui.view.help_page import HelpSection
    from gpumon.ui.workspace import Workspace


class CompareScreen(PageScreen):
    """The values and charts of several GPUs, on the same scales."""

    scope: ClassVar[KeyScope] = "compare"
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(scope)

    def __init__(self, workspace: Workspace, uuids: Sequence[str]) -> None:
        super().__init__(workspace)
        self._uuids = tuple(uuids)
        self._memo = Memo()
        self._gpus: dict[str, Gpu] = {}
        self._missing_since: dict[str, float] = {}
        self._seen_at = -math.inf

    @property
    def _known(self) -> list[Gpu]:
        """The GPUs that have been in a snapshot, with their last values."""
        return [self._gpus[uuid] for uuid in self._uuids if uuid in self._gpus]

    @property
    def heading(self) -> str:
        """The GPUs' indices."""
        return f"GPU {index_list(gpu.index for gpu in self._known)} compared"

    @property
    def footer_keys(self) -> Sequence[FooterKey]:
        """See ``PaintedScreen.footer_keys``."""
        windows = window_keys(self._workspace.window)
        maker = maker_of(self._known[0].name if self._known else None)
        copied = footer_key("copy", label=f"copy {maker.main_variable}")
        return (footer_key("back"), footer_key("help", label="why"), *windows, SCROLL, copied)

    def find(self, snapshot: Snapshot) -> bool:
        """See ``PageScreen.find``; each GPU may be missing."""
        if snapshot.time < self._seen_at:
            # After a jump back, what was known is of the future.
            self._gpus.clear()
            self._missing_since.clear()
        self._seen_at = snapshot.time
        listed = {gpu.uuid: gpu for gpu in snapshot.gpus}
        for uuid in self._uuids:
            if uuid in listed:
                self._gpus[uuid] = listed[uuid]
                self._missing_since.pop(uuid, None)
            else:
                self._missing_since.setdefault(uuid, snapshot.time)
        return True

    def page(self, width: int) -> list[Row]:
        """The page from the newest snapshot that has each GPU."""
        history, latest = self._history, self._history.latest
        if not self._known:
            return text_rows("  None of these GPUs is in the driver's list.", width)
        now = history.now if latest is None else latest.time
        gone = {
            uuid: f"not listed since {moment_text(since, now)}"
            for uuid, since in self._missing_since.items()
        }
        return compare_rows(
            *(self._memo, self._known, gone, history, latest, self._workspace.window),
            *(width, self.body_height),
            is_past=self._viewed_time.is_past,
        )

    def state_help(self) -> list[HelpSection]:
        """See ``PaintedScreen.state_help``."""
        return [
            section
            for gpu in self._known
            if gpu.uuid not in self._missing_since
            for section in state_sections(
                f"GPU {gpu.index}", self._history, gpu_findings(self._history, gpu)
            )
        ]

    def action_copy(self) -> None:
        """Copy the assignment with which a program sees these GPUs, and show it."""
        if not self._known:
            self.say("none of these GPUs is known: nothing to copy")
            return
        latest = self._history.latest
        listed = () if latest is None else latest.gpus
        missing = [gpu for gpu in self._known if gpu.uuid in self._missing_since]
        uuids = [gpu.uuid for gpu in self._known]
        self.say(copy(self.app, assignment_line(uuids, (*listed, *missing))), lasting=True)
