"""The page of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpumon.config.keymap import DEFAULT_WINDOW, WINDOWS
from gpumon.findings import gpu_findings, memory_account
from gpumon.host.process_host import target_of_holder
from gpumon.makers.visible_devices import assignment_line
from gpumon.model.makers import maker_of
from gpumon.model.processes import GpuUse, blamed
from gpumon.ui.clipboard import copy
from gpumon.ui.keys import bindings_of
from gpumon.ui.screens.page import SCROLL, PageScreen
from gpumon.ui.view.gpu_page import gpu_rows
from gpumon.ui.view.key_names import FooterKey, footer_key
from gpumon.ui.view.memo import Memo
from gpumon.ui.view.page_layout import text_rows
from gpumon.ui.view.state_help import state_sections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from gpumon.config.keymap import KeyScope
    from gpumon.host.process_host import Target
    from gpumon.model.processes import UnlistedHolder
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.text.cells import Row
    from gpumon.ui.view.help_page import HelpSection
    from gpumon.ui.workspace import Workspace


class GpuScreen(PageScreen):
    """All details of one GPU, with charts."""

    place: ClassVar[KeyScope] = "gpu"
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(place)

    def __init__(self, workspace: Workspace, uuid: str) -> None:
        super().__init__(workspace)
        self._uuid = uuid
        self._window = DEFAULT_WINDOW
        self._memo = Memo()
        self._gpu: Gpu | None = None

    @property
    def heading(self) -> str:
        """The GPU's name."""
        return "GPU" if self._gpu is None else f"GPU {self._gpu.index}"

    @property
    def keys(self) -> Sequence[FooterKey]:
        """See ``PageScreen.keys``."""
        offered = self._can_end and self._blamed()
        end = [footer_key("end", label="end unlisted holders…")] if offered else []
        windows = [footer_key(f"chart_{one.label}", on=one is self._window) for one in WINDOWS]
        maker = maker_of(None if self._gpu is None else self._gpu.name)
        copied = footer_key("copy", label=f"copy {maker.main_variable}")
        why = footer_key("help", label="why")
        return (footer_key("back"), why, *windows, *end, SCROLL, copied, footer_key("notify"))

    def find(self, snapshot: Snapshot) -> bool:
        """See ``PageScreen.find``."""
        found = next((gpu for gpu in snapshot.gpus if gpu.uuid == self._uuid), None)
        self._gpu = found or self._gpu
        return found is not None

    def page(self, width: int) -> list[Row]:
        """The page from the newest snapshot that has the GPU."""
        gone = self.gone_words("Not in the driver's list since {since}; these are its last values.")
        if self._gpu is None:
            return text_rows(f"  {self._uuid}: {gone}", width)
        return gpu_rows(
            self._memo,
            self._gpu,
            self._history,
            self._history.latest,
            self._window,
            self._viewed_time.session.recording,
            width,
            self.body_height,
            gone,
        )

    def state_help(self) -> list[HelpSection]:
        """See ``PaintedScreen.state_help``."""
        if self._gpu is None or self._gone_at is not None:
            return []
        found = gpu_findings(self._history, self._gpu)
        return state_sections(f"GPU {self._gpu.index}", self._history, found)

    def action_window(self, key: str) -> None:
        """Show another time window."""
        self._window = next(one for one in WINDOWS if one.key == key)
        self.renew()

    def _blamed(self) -> tuple[UnlistedHolder, ...]:
        """The unlisted processes that may hold this GPU's missing memory."""
        if self._gpu is None or self._viewed_time.is_past:
            return ()
        return blamed(memory_account(self._history, self._gpu).suspects)

    def action_end(self) -> None:
        """Request the end of the unlisted holders."""
        holders = self._blamed()
        if not holders:
            self.say("no unlisted process was found that holds this GPU")
            return
        self._workspace.kill_controller.ask([self._target_of(suspect) for suspect in holders])

    def _target_of(self, suspect: UnlistedHolder) -> Target:
        snapshot = self._history.latest
        gpus = () if snapshot is None else snapshot.gpus
        # The driver does not report how much memory it has on these GPUs.
        uses = tuple(
            GpuUse(gpu.uuid, gpu.index, memory_used=None)
            for gpu in gpus
            if gpu.uuid in suspect.gpu_uuids
        )
        return target_of_holder(suspect, uses)

    def action_watch(self) -> None:
        """Notify when it is free (toggle)."""
        self.notify_of(self._gpu, "becomes free")

    def action_copy(self) -> None:
        """Copy the assignment with which a program sees this GPU, and show it."""
        snapshot = self._history.latest
        gpus = () if snapshot is None else snapshot.gpus
        if self._gpu is not None and all(gpu.uuid != self._uuid for gpu in gpus):
            gpus = (*gpus, self._gpu)
        self.say(copy(self.app, assignment_line([self._uuid], gpus)), lasting=True)
