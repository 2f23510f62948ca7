"""What Slurm has given to the jobs of this machine.

Which jobs are here is read from the sockets of their steps, without asking the controller. A job is
asked once when it appears, and every two minutes while it has GPUs: a controller serves thousands
of machines. It is never asked for all jobs. For jobs that are private, and for those without a step
here, the controller is asked what of this node is in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.allocations.placement import devices_by_place, devices_with_processes
from gpumon.allocations.programs import printed_by
from gpumon.allocations.scheduler import unknown
from gpumon.allocations.slurm_gres import gres_beyond
from gpumon.allocations.slurm_node import JobsHere, SlurmNode
from gpumon.allocations.slurm_output import (
    Gres,
    Job,
    gres_in_use,
    job_of_json,
    job_of_text,
    jobs_of_pids,
)
from gpumon.model.allocations import SLURM, Allocation
from gpumon.system.backoff import Backoff
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpumon.allocations.programs import Printed
    from gpumon.model.snapshot import Snapshot
    from gpumon.system.system import Clock

NO_SUCH_JOB = b"Invalid job id"
"""The controller has no such job, or it is private."""
_NO_SUCH_NODE = b" not found"
"""The controller does not know the machine."""
_LOOK_SECONDS = 5.0
"""Seconds between two readings of the sockets."""
_LIST_SECONDS = 15.0
"""The same where a program must be started for it."""
_FILES_SECONDS = 60.0
"""Seconds between two readings of the configuration."""
_JOB_SECONDS = 120.0
_ENDING_SECONDS = 15.0
"""Seconds between two questions about a job without a step here: it may have ended."""
_NODE_SECONDS = 300.0
_NODE_ALONE_SECONDS = 60.0
"""The same where the jobs that are here cannot be read."""
_NODE_SOON = 20.0
_BURST = 16
"""Questions that may follow each other at once, when gpumon starts. ``rl_enable`` allows 30."""
_PACE = 0.5
"""Seconds between later questions, the refill of ``rl_enable``."""
_MOST_JOBS = 4096


class _Known:
    """A job as it is known."""

    __slots__ = ("asked", "due", "has_step", "job", "seen_at")

    def __init__(self, now: float) -> None:
        self.seen_at = now
        self.asked = False  # Whether the controller has answered.
        self.job: Job | None = None  # ``None`` if it answered that there is no such job.
        self.due = now
        self.has_step = True


class _InUse(Struct, frozen=True):
    """What of this node is in use, as the controller says."""

    at: float
    gres: Gres | None


def scontrol(arguments: Sequence[str], patience: float) -> Printed | None:
    """Run ``scontrol``, whose times are then local and without a zone; see ``printed_by``."""
    return printed_by(("scontrol", *arguments), patience, SLURM_TIME_FORMAT="standard")


class SlurmAllocations:
    """A ``Scheduler``.

    Args:
        clock: The clock.
        node: Slurm's files here, made anew each minute.
        ask: Runs ``scontrol``.
    """

    def __init__(
        self,
        clock: Clock = THIS_SYSTEM.clock,
        node: Callable[[], SlurmNode] = SlurmNode,
        ask: Callable[[Sequence[str], float], Printed | None] = scontrol,
    ) -> None:
        self._clock, self._new_node, self._ask_program = clock, node, ask
        self._files: SlurmNode | None = None
        self._files_due = self._look_due = 0.0
        self._here: JobsHere | None = None
        self._jobs: dict[str, _Known] = {}
        self._in_use: _InUse | None = None
        self._node_wanted_at = 0.0
        self._text_only = False
        self._backoff = Backoff()
        self._questions = 0

    def find(self, snapshot: Snapshot, patience: float) -> tuple[tuple[Allocation, ...], float]:
        """See ``Scheduler.find``."""
        now = self._clock.monotonic()
        if now >= self._look_due:
            self._look(now, patience)
        if now >= self._backoff.until and (question := self._next(now)) is not None:
            question(patience)
            self._questions += 1
        found = self._allocations(snapshot)
        now = self._clock.monotonic()
        if now < self._backoff.until:
            return found, min(self._backoff.until, self._look_due) - now
        if self._next(now) is not None:
            return found, 0.0 if self._questions < _BURST else _PACE
        return found, max(_PACE, self._look_due - now)

    def _look(self, now: float, patience: float) -> None:
        """Read which jobs are here."""
        if self._files is None or now >= self._files_due:
            self._files, self._files_due = self._new_node(), now + _FILES_SECONDS
        here, pause = self._files.jobs(), _LOOK_SECONDS
        if here is None:
            printed, pause = self._ask_program(("listpids",), patience), _LIST_SECONDS
            if printed is not None and printed.exit_status == 0:
                here = JobsHere(frozenset(jobs_of_pids(printed.output).values()))
        self._look_due = now + pause
        self._here = here
        if here is None:
            return
        for number in sorted(here.numbers)[:_MOST_JOBS]:
            if number not in self._jobs:
                self._jobs[number] = _Known(now)
                self._node_wanted_at = now
            known = self._jobs[number]
            if not known.has_step:
                # It runs another step, or again.
                known.has_step, known.due = True, now
        for number in self._jobs.keys() - here.numbers:
            self._leave(number, now)

    def _leave(self, number: str, now: float) -> None:
        """A job has no step here: it has ended, or waits for its next step."""
        known = self._jobs[number]
        if known.has_step:
            known.has_step, known.due = False, now
            self._node_wanted_at = now
        is_over = self._files is not None and self._files.is_contained
        if is_over or (known.asked and (known.job is None or known.job.holds is False)):
            del self._jobs[number]

    def _next(self, now: float) -> Callable[[float], None] | None:
        """The next question to the controller, if any is due."""
        due = [number for number, known in self._jobs.items() if now >= known.due]
        if due:
            number = min(due, key=lambda number: self._jobs[number].due)
            return lambda patience: self._ask_job(number, patience)
        return self._ask_node if self._wants_node(now) else None

    def _wants_node(self, now: float) -> bool:
        """Whether something of this node may be in use by jobs that are not known."""
        if self._is_complete and all(known.job for known in self._jobs.values()):
            return False
        if self._in_use is None:
            return True
        is_old = now >= self._in_use.at + (_NODE_SECONDS if self._here else _NODE_ALONE_SECONDS)
        changed = self._node_wanted_at > self._in_use.at
        return is_old or (changed and now >= self._in_use.at + _NODE_SOON)

    @property
    def _is_complete(self) -> bool:
        """Whether all jobs that may have GPUs here are seen."""
        return self._here is not None and not self._may_have_more

    @property
    def _may_have_more(self) -> bool:
        """Whether a job may have GPUs here without a step."""
        files = self._files
        return files is not None and files.runs_jobs and not files.is_contained

    @property
    def _node(self) -> str:
        """The name of this machine in Slurm."""
        named = None if self._here is None else self._here.node
        return named or ("" if self._files is None else self._files.name)

    def _ask_job(self, number: str, patience: float) -> None:
        known = self._jobs[number]
        job, answered = self._job(number, patience)
        now = self._clock.monotonic()
        if not answered:
            self._backoff.failed(now)
            return
        self._backoff.answered()
        if known.job is not None and job is None and known.has_step:
            # One answer may be cut off; a job that ends loses its step, too.
            job = known.job
        known.asked, known.job = True, job
        holds_none = job is not None and job.gres is not None and job.gres.count == 0
        known.due = now + (_JOB_SECONDS if known.has_step else _ENDING_SECONDS)
        if holds_none and known.has_step:
            # GPUs are not given to a job that runs already.
            known.due = float("inf")
        if not known.has_step:
            self._leave(number, now)

    def _job(self, number: str, patience: float) -> tuple[Job | None, bool]:
        """A job, and whether the controller answered."""
        if not self._text_only:
            printed = self._ask_program(("--json", "show", "job", number), patience)
            if printed is None:
                return None, False
            job = job_of_json(printed.output, number, self._node)
            if job is not None:
                return job, True
        printed = self._ask_program(("show", "job", "-d", number), patience)
        if printed is None:
            return None, False
        if printed.has_failed_with(NO_SUCH_JOB):
            return None, True
        if printed.exit_status != 0:
            return None, False
        job = job_of_text(printed.output, number, self._node)
        # An old version has no JSON, or one that is cut off.
        self._text_only = self._text_only or job is not None
        return job, True

    def _ask_node(self, patience: float) -> None:
        printed = self._ask_program(("show", "node", "-d", self._node), patience)
        now = self._clock.monotonic()
        # A machine that Slurm does not know has no jobs.
        none = printed is not None and printed.has_failed_with(_NO_SUCH_NODE)
        if printed is None or (printed.exit_status and not none):
            self._backoff.failed(now)
            return
        self._backoff.answered()
        self._in_use = _InUse(now, Gres(0, ()) if none else gres_in_use(printed.output, self._node))

    def _allocations(self, snapshot: Snapshot) -> tuple[Allocation, ...]:
        if self._files is None:
            return (unknown(SLURM),)
        places = devices_by_place(self._files.gpu_order(self._node), snapshot.gpus)
        found: list[Allocation] = []
        holding: list[tuple[float, Gres]] = []
        unread: list[str] = []
        for number, known in sorted(self._jobs.items(), key=lambda item: int(item[0])):
            job = known.job
            if job is None or job.gres is None or job.gres.count is None:
                unread.append(number)
            elif job.holds is not False and job.gres.count:
                holding.append((known.seen_at, job.gres))
                found.append(_placed(job, job.gres, places, snapshot))
        return (*found, *self._rest(unread, holding, places))

    def _rest(
        self,
        unread: Sequence[str],
        holding: Sequence[tuple[float, Gres]],
        places: Mapping[int, str],
    ) -> list[Allocation]:
        """What is in use beyond the jobs that are known, or that this is not known.

        Args:
            unread: The numbers of jobs here of which it is not known what they have.
            holding: Since when the others are known, and what they have.
            places: See ``devices_by_place``.
        """
        if self._is_complete and not unread:
            return []
        gres = self._gres_beyond(unread, holding)
        if gres is None:
            return [Allocation(SLURM, number, unplaced=None) for number in unread or (None,)]
        if not gres.count:
            return []
        name = unread[0] if len(unread) == 1 and not self._may_have_more else None
        devices, unplaced = _devices_of(gres, places)
        return [Allocation(SLURM, name, None, devices, unplaced, is_share=gres.is_share)]

    def _gres_beyond(
        self, unread: Sequence[str], holding: Sequence[tuple[float, Gres]]
    ) -> Gres | None:
        """What is in use beyond the jobs that are known; ``None`` if that is not known."""
        in_use = self._in_use
        if in_use is None or in_use.gres is None or in_use.gres.count is None:
            return None
        if any(self._jobs[number].seen_at > in_use.at for number in unread):
            return None
        taken = [gres for _, gres in holding]
        counted = [gres for seen_at, gres in holding if seen_at <= in_use.at]
        return gres_beyond(in_use.gres, taken, counted)


def _devices_of(gres: Gres, places: Mapping[int, str]) -> tuple[tuple[str, ...], int]:
    """The devices that these GPUs are, and how many are left of which it is not known."""
    if gres.indices is None or not places:
        return (), gres.count or 0
    # A place without a device is that of a GPU that is not shown.
    return tuple(places[place] for place in gres.indices if place in places), 0


def _placed(job: Job, gres: Gres, places: Mapping[int, str], snapshot: Snapshot) -> Allocation:
    """A job with the GPUs that are certainly its."""
    devices, unplaced = _devices_of(gres, places)
    if unplaced:
        seen = devices_with_processes(snapshot, [(SLURM, job.name), (SLURM, job.number)])
        devices = seen[:unplaced]
        unplaced -= len(devices)
    return Allocation(
        SLURM,
        job.name,
        job.user,
        devices,
        unplaced,
        job.since,
        job.until,
        job.nodes,
        gres.is_share,
        None if job.number == job.name else job.number,
    )
