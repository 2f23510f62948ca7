"""The page of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpumon.findings.groups import job_with_key
from gpumon.text.process_columns import RowContext
from gpumon.ui.job_targets import targets_of_job
from gpumon.ui.keys import bindings_of
from gpumon.ui.screens.page import SCROLL, PageScreen
from gpumon.ui.view.gpu_text import mig_indices
from gpumon.ui.view.job_page import job_rows
from gpumon.ui.view.key_names import FooterKey, footer_key
from gpumon.ui.view.state_help import process_sections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from gpumon.config.keymap import KeyScope
    from gpumon.findings.groups import JobGroup
    from gpumon.model.snapshot import Snapshot
    from gpumon.text.cells import Row
    from gpumon.ui.view.help_page import HelpSection
    from gpumon.ui.workspace import Workspace


class JobScreen(PageScreen):
    """All that is known about one job as a whole."""

    place: ClassVar[KeyScope] = "job"
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(place)

    def __init__(self, workspace: Workspace, job: JobGroup) -> None:
        super().__init__(workspace)
        self._job = job

    @property
    def heading(self) -> str:
        """The job's name."""
        return f"job {self._job.label}"

    @property
    def keys(self) -> Sequence[FooterKey]:
        """See ``PageScreen.keys``."""
        end = [footer_key("end")] if self._can_end and self._gone_at is None else []
        return (footer_key("back"), *end, footer_key("notify", label="notify when ended"), SCROLL)

    def page(self, width: int) -> list[Row]:
        """The page from the newest snapshot."""
        history, latest = self._history, self._history.latest
        gpus = () if latest is None else latest.gpus
        now = history.now if latest is None else latest.time
        context = RowContext(
            now, history.process_idle, history.thresholds.idle_after, mig=mig_indices(gpus)
        )
        gone = self.gone_words(
            "None of its processes is on a GPU since {since}; these are its last values."
        )
        return job_rows(self._job, gone, gpus, context, width)

    def find(self, snapshot: Snapshot) -> bool:
        """See ``PageScreen.find``."""
        found = job_with_key(snapshot.processes, self._job.key)
        self._job = found or self._job
        return found is not None

    def state_help(self) -> list[HelpSection]:
        """See ``PaintedScreen.state_help``."""
        return process_sections(self._history, self._job.processes)

    def action_watch(self) -> None:
        """Notify when it ends (toggle)."""
        self.notify_of(self._job, "ends")

    def action_end(self) -> None:
        """Request its end."""
        job = self._job
        if self._gone_at is not None:
            self.say(f"{job.label} is on no GPU any more")
        else:
            self._workspace.kill_controller.ask(targets_of_job(job), f"job {job.label}")
