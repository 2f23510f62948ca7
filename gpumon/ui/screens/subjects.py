"""The pages of a GPU, of a process, whose details are read on another thread, and of a job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

import msgspec

from gpumon.findings import gpu_findings, memory_account
from gpumon.findings.groups import allocated_jobs, job_with_key
from gpumon.host.process_host import Details, Refused, target_of, target_of_holder
from gpumon.makers.visible_devices import assignment_line
from gpumon.model.makers import maker_of
from gpumon.model.process_states import ENDED
from gpumon.model.processes import GpuProcess, GpuUse, blamed
from gpumon.text.process_columns import RowContext
from gpumon.ui.background import run_in_thread
from gpumon.ui.keys import bindings_of
from gpumon.ui.kill_controller import targets_of_job
from gpumon.ui.screens.page import SCROLL, PageScreen
from gpumon.ui.terminal.desktop import NO_PID_OF_THE_PAST, copy, copy_kill
from gpumon.ui.view.dashboard_view import no_process_of
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.gpu_page import gpu_rows
from gpumon.ui.view.gpu_text import mig_indices
from gpumon.ui.view.help_page import process_sections, state_sections
from gpumon.ui.view.key_names import FooterKey, footer_key, window_keys
from gpumon.ui.view.page_layout import moment_text, text_rows
from gpumon.ui.view.process_page import job_rows, process_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from gpumon.config.keymap import KeyScope
    from gpumon.findings.groups import JobGroup
    from gpumon.host.process_host import Target
    from gpumon.model.processes import ProcessId, UnlistedHolder
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.text.cells import Row
    from gpumon.ui.view.help_page import HelpSection
    from gpumon.ui.workspace import Workspace


class GpuScreen(PageScreen):
    """All details of one GPU, with charts."""

    scope: ClassVar[KeyScope] = "gpu"
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(scope)

    def __init__(self, workspace: Workspace, uuid: str) -> None:
        super().__init__(workspace)
        self._uuid = uuid
        self._memo = Memo()
        self._gpu: Gpu | None = None

    @property
    def heading(self) -> str:
        """The GPU's name."""
        return "GPU" if self._gpu is None else f"GPU {self._gpu.index}"

    @property
    def footer_keys(self) -> Sequence[FooterKey]:
        """See ``PaintedScreen.footer_keys``."""
        offered = self._can_end and self._blamed()
        end = [footer_key("end", label="end unlisted holders…")] if offered else []
        windows = window_keys(self._workspace.window)
        maker = maker_of(None if self._gpu is None else self._gpu.name)
        copied = footer_key("copy", label=f"copy {maker.main_variable}")
        why = footer_key("help", label="why")
        others = (
            [footer_key("previous GPU", "next GPU", label="other GPU")]
            if len(self._listed) > 1
            else []
        )
        back, notify = footer_key("back"), footer_key("notify")
        return (back, why, *others, *windows, *end, SCROLL, copied, notify)

    def find(self, snapshot: Snapshot) -> bool:
        """See ``PageScreen.find``."""
        found = next((gpu for gpu in snapshot.gpus if gpu.uuid == self._uuid), None)
        self._gpu = found or self._gpu
        return found is not None

    def page(self, width: int) -> list[Row]:
        """The page from the newest snapshot that has the GPU."""
        gone = self.gone_text("Not in the driver's list since {since}; these are its last values.")
        if self._gpu is None:
            return text_rows(f"  {self._uuid}: {gone}", width)
        return gpu_rows(
            self._memo.part(self._uuid),
            self._gpu,
            self._history,
            self._history.latest,
            self._workspace.window,
            self._viewed_time.session.recording,
            width,
            self.body_height,
            gone,
            is_past=self._viewed_time.is_past,
        )

    def state_help(self) -> list[HelpSection]:
        """See ``PaintedScreen.state_help``."""
        if self._gpu is None or self._gone_at is not None:
            return []
        found = gpu_findings(self._history, self._gpu)
        return state_sections(f"GPU {self._gpu.index}", self._history, found)

    @property
    def _listed(self) -> Sequence[Gpu]:
        """The GPUs of the dashboard, in its order."""
        return () if self._history.latest is None else self._history.latest.gpus

    def action_gpu(self, step: int) -> None:
        """Show the next or previous GPU, after the last one the first, in the same window."""
        uuids = [gpu.uuid for gpu in self._listed]
        if self._uuid in uuids:
            self._uuid = uuids[(uuids.index(self._uuid) + step) % len(uuids)]
        elif uuids:
            self._uuid = uuids[0]
        self._gone_at = None
        self._workspace.dashboard.follow_gpu(self._uuid)
        self.rebuild()

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


READ_SECONDS = 2.0
"""Seconds between two reads of the details while the page is visible."""


class ProcessScreen(PageScreen):
    """All details of one process."""

    scope: ClassVar[KeyScope] = "process"
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(scope)

    def __init__(self, workspace: Workspace, process: ProcessId) -> None:
        super().__init__(workspace)
        self._process_id = process
        self._memo = Memo()
        self._process = GpuProcess(id=process, type="", uses=())
        self._details: Details | None = None
        self._reveals = False
        self._reading = False
        self._alive_at: float | None = None
        self._listed = False
        self._ended_at: float | None = None

    def on_mount(self) -> None:
        """Read the details now and repeatedly."""
        self._read_details()
        self.set_interval(READ_SECONDS, self._read_details)

    # -- what is shown ---------------------------------------------------------------------------

    @property
    def heading(self) -> str:
        """The process's name."""
        return f"process {self._process_id.pid}"

    @property
    def footer_keys(self) -> Sequence[FooterKey]:
        """See ``PaintedScreen.footer_keys``."""
        end = [footer_key("end")] if self._can_end and self._ended_at is None else []
        reveal = "hide secrets" if self._reveals else "show secrets"
        copied, secrets = footer_key("copy", label="copy kill"), footer_key("secrets", label=reveal)
        notify = footer_key("notify", label="notify when ended")
        windows = window_keys(self._workspace.window)
        return (footer_key("back"), *windows, *end, copied, notify, secrets, SCROLL)

    def page(self, width: int) -> list[Row]:
        """The page from the newest snapshot."""
        ended = self._ended_at is not None or self._process.state == ENDED
        return process_rows(
            self._memo,
            self._process,
            self._history,
            self._history.latest,
            self._workspace.window,
            width,
            details=self._details,
            is_past=self._viewed_time.is_past,
            reading=self._details is None and not ended and not self._viewed_time.is_past,
            reveals=self._reveals,
            gone=self._gone(),
            ended=ended,
        )

    def find(self, snapshot: Snapshot) -> bool:
        """See ``PageScreen.find``. A process that was never on a GPU is not missing."""
        found = next(
            (process for process in snapshot.processes if process.id == self._process_id), None
        )
        if found is None:
            return not self._listed
        self._listed, self._process = True, found
        return True

    def _gone(self) -> str:
        """Why it is no longer listed; empty if it is."""
        latest = self._history.latest
        if self._process.state == ENDED:
            return "Has ended; the driver still lists it, with the memory below."
        if self._ended_at is not None and latest is not None:
            at = moment_text(self._ended_at, latest.time)
            return f"Ended at {at}; these are its last values."
        if self._gone_at is None:
            return ""
        state = "it may have ended"
        if self._details is not None and self._details.ended:
            state = "it has ended"
        elif self._alive_at is not None and self._alive_at >= self._gone_at:
            state = "it is still running, on no GPU"
        return self.gone_text(f"Not in any GPU's process list since {{since}}: {state}.")

    def state_help(self) -> list[HelpSection]:
        """See ``PaintedScreen.state_help``."""
        return process_sections(self._history, (self._process,))

    # -- looking up ------------------------------------------------------------------------------

    def _read_details(self) -> None:
        """Read the details on another thread, unless the previous read hangs."""
        # The details are those of now, and the page may show the past.
        if (
            self._viewed_time.is_past
            or self._reading
            or self._ended_at is not None
            or not self.in_sight
        ):
            return
        if self._process_id.start_time is None:
            # It is in another PID namespace: its PID means another process here, or none.
            return
        self._reading = True
        run_in_thread(
            self.app,
            lambda: self._viewed_time.session.machine.processes.details(self._process_id),
            self._show_details,
            self._show_failure,
            name="gpumon-details",
        )

    def _show_failure(self, error: Exception) -> None:
        """Say why there are no newer details: their machine cannot be asked."""
        if not isinstance(error, Refused):
            raise error
        self._reading = False
        if self.is_attached:
            last = self._details or Details(self._process_id)
            self._details = msgspec.structs.replace(last, unreadable=(f"{error.sentence}.",))
            self.rebuild()

    def _show_details(self, details: Details | None) -> None:
        self._reading = False
        if not self.is_attached:
            return
        latest = self._history.latest
        now = time.time() if latest is None else latest.time
        if details is None:
            self._ended_at = now
        else:
            self._alive_at, self._details = now, details.after(self._details)
            self._process = self._process if self._listed else _unlisted(details)
        self.rebuild()

    # -- keys ------------------------------------------------------------------------------------

    def action_end(self) -> None:
        """Request its end."""
        if self._ended_at is not None:
            self.say(f"{self._process_id.pid} has ended already")
            return
        self._workspace.kill_controller.ask([target_of(self._process)])

    def action_watch(self) -> None:
        """Notify when it ends (toggle)."""
        self.notify_of(self._process, "ends")

    def action_copy(self) -> None:
        """Copy the kill command, and show it."""
        said = NO_PID_OF_THE_PAST
        if not self._viewed_time.is_past:
            said = copy_kill(self.app, self._process_id, self._viewed_time.session.machine.name)
        self.say(said, lasting=True)

    def action_reveal(self) -> None:
        """Show or hide values that look like secrets."""
        self._reveals = not self._reveals
        self.rebuild()


def _unlisted(details: Details) -> GpuProcess:
    """A process that is on no GPU, such as a parent of one, made from its details."""
    itself = next((relative for relative in details.family if relative.id == details.id), None)
    if itself is None:
        return GpuProcess(id=details.id, type="", uses=(), command=details.command)
    return itself.on_no_gpu(details.place)


class JobScreen(PageScreen):
    """All that is known about one job as a whole."""

    scope: ClassVar[KeyScope] = "job"
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(scope)

    def __init__(self, workspace: Workspace, job: JobGroup) -> None:
        super().__init__(workspace)
        self._job = job

    @property
    def heading(self) -> str:
        """The job's name."""
        return f"job {self._job.label}"

    @property
    def footer_keys(self) -> Sequence[FooterKey]:
        """See ``PaintedScreen.footer_keys``."""
        if not self._job.processes:
            return (footer_key("back"), SCROLL)
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
        gone = self.gone_text(
            "None of its processes has been on a GPU since {since}; these are its last values."
        )
        return job_rows(self._job, gone, gpus, context, width)

    def find(self, snapshot: Snapshot) -> bool:
        """See ``PageScreen.find``."""
        allocated = allocated_jobs(snapshot, self._history)
        found = job_with_key(snapshot.processes, self._job.key, allocated)
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
            self.say(f"{job.label} is no longer on a GPU")
        elif not job.processes:
            self.say(no_process_of(job))
        else:
            self._workspace.kill_controller.ask(targets_of_job(job), f"job {job.label}")
