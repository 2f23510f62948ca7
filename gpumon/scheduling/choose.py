"""Chooses GPUs: from samples to the GPUs that a job gets.

``Chooser`` judges each sample. If a stable time is required, a GPU must have been eligible in all
samples of that time, which is observed, or read from a log that covers it without a gap.

A Slurm job, a container or a script that sets a variable such as ``CUDA_VISIBLE_DEVICES`` has
already allocated GPUs: only those are eligible.
"""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.availability import Insider
from gpumon.host.clues import slurm_job
from gpumon.makers.source import NoSuchGpuError
from gpumon.makers.visible_devices import visible_devices_of
from gpumon.model.allocations import LSF, SLURM
from gpumon.model.makers import Maker, gpus_of, makers_of
from gpumon.model.snapshot import ReservationHolder
from gpumon.model.topology import NO_KNOWN_LINKS
from gpumon.scheduling.eligibility import (
    Allowance,
    Circumstances,
    Ineligibility,
    is_identified,
    job_maker,
    judge,
)
from gpumon.scheduling.queue import WaitQueue
from gpumon.scheduling.ranking import choose
from gpumon.system.system import user_name
from gpumon.text.formatting import counted, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gpumon.allocations import Allocations
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.model.topology import Links
    from gpumon.recording.recording import Recording
    from gpumon.scheduling.eligibility import Eligibility
    from gpumon.scheduling.locks import Locks
    from gpumon.scheduling.ranking import GpuChoice
    from gpumon.scheduling.requirements import Requirements

GAP_SECONDS = 10.0
"""The state between two samples further apart than this is unknown."""
_MOST_SAMPLES = 2000
_SCHEDULER_SECONDS = 5.0
"""Seconds to wait for a scheduler's controller, which is asked seldom; GPUs of which it does not
answer are not free."""
_Verdicts = tuple["Eligibility", ...]
_UNSETTLED = frozenset(("busy", "old"))
"""Reasons that a second sample may remove. Utilisation is an average of up to a second, so it may
include a job that has ended, or the driver's own start: without persistence mode the first client
makes it scrub the memory. The first answers of a driver may also be slow."""
_SETTLES_SECONDS = 2.0


class Chooser:
    """Evaluates snapshots by the requirements, and chooses the best eligible GPUs."""

    def __init__(
        self,
        requirements: Requirements,
        environment: Mapping[str, str],  # its ``CUDA_VISIBLE_DEVICES`` is respected
        locks: Locks | None = None,  # ``None`` means that no GPU is reserved
        links: Callable[[], Links] | None = None,  # called once, if several GPUs are wanted
        past: str | None = None,  # a log, if the requirements ask for a stable time
        allocations: Allocations | None = None,  # what schedulers have given away here
    ) -> None:
        self.requirements = requirements
        self._environment = environment
        self._locks = locks
        self._ask_links = links
        self._links = NO_KNOWN_LINKS
        self._past = past
        self._allocations = allocations
        self._most_gpus = 0
        self._stability = (
            None if requirements.stable is None else StabilityWindow(requirements.stable)
        )
        self._unsettled = False
        self._settled_by: float | None = None
        shared = None if locks is None else locks.shared
        self._queue = None if shared is None else WaitQueue(shared)

    def join_queue(self, snapshot: Snapshot) -> None:
        """Join the queue, so that later waiters leave our GPUs to us; until ``leave_queue``."""
        if self._queue is not None:
            allowed = allowance(self._environment, snapshot.gpus)
            # What it follows from is not known to the other waiters.
            maker = job_maker(snapshot.gpus, self.requirements, allowed)
            self._queue.join(replace(self.requirements, maker=maker.name), allowed)

    def leave_queue(self) -> None:
        """Leave the queue. May be called at any time."""
        if self._queue is not None:
            self._queue.leave()

    def judge(self, snapshot: Snapshot, mine: Collection[str] = frozenset()) -> _Verdicts:
        """The eligibility of each GPU; ``mine`` are UUIDs that are reserved for us already.

        Locks are read after the snapshot was taken.

        Raises:
            NoSuchGpuError: ``--gpus`` names a GPU that does not exist.
            UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be resolved.
            RecordingError: The log of the past cannot be read.
        """
        snapshot = self._with_allocations(snapshot)
        stability = self._stability
        if stability is None:
            return self._judged_now(snapshot, mine)
        if self._past is not None:
            self._look_back(self._past, stability, snapshot.time)
            self._past = None
        stability.add(snapshot.time, self._judged_now(snapshot, mine))
        return stability.verdicts()

    def _judged_now(self, snapshot: Snapshot, mine: Collection[str]) -> _Verdicts:
        verdicts = judge(snapshot, self.requirements, self._circumstances(snapshot, mine))
        kinds = [verdict.kind for verdict in verdicts]
        too_few = kinds.count("") < self.requirements.least
        self._unsettled = too_few and not _UNSETTLED.isdisjoint(kinds)
        if self._unsettled and self._settled_by is None:
            self._settled_by = time.monotonic() + _SETTLES_SECONDS
        return verdicts

    def _with_allocations(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what schedulers have given away, unless it has that already."""
        if self._allocations is None or snapshot.allocations is not None:
            return snapshot
        found = self._allocations.settle(snapshot, _SCHEDULER_SECONDS)
        return replace(snapshot, allocations=found)

    def left(self) -> float:
        """Seconds for which the GPUs must still be observed."""
        watching = 0.0 if self._stability is None else self._stability.left
        if not self._unsettled or self._settled_by is None:
            return watching
        return max(watching, self._settled_by - time.monotonic())

    @staticmethod
    def may_still_fit(verdict: Eligibility) -> bool:
        """Whether only the remaining observation time is missing."""
        return verdict.kind in {"", "watching"}

    def _look_back(self, path: str, stability: StabilityWindow, now: float) -> None:
        from gpumon.recording.opening import open_recording

        with closing(open_recording(path)) as log:
            look_back(
                stability,
                log,
                now,
                lambda snapshot: judge(
                    snapshot, self.requirements, self._circumstances(snapshot, past=True)
                ),
            )

    def _circumstances(
        self, snapshot: Snapshot, mine: Collection[str] = frozenset(), *, past: bool = False
    ) -> Circumstances:
        gpus = snapshot.gpus
        # A GPU that has disappeared may come back, as after the driver was reloaded.
        self._most_gpus = max(self._most_gpus, len(gpus))
        uuids = [gpu.uuid for gpu in gpus if is_identified(gpu)]
        missing = self.requirements.only.missing(self._most_gpus, uuids)
        if missing and not past:
            raise NoSuchGpuError(missing, len(gpus))
        uid = os.geteuid() if hasattr(os, "geteuid") else None
        # Another machine, whose locks are not here, has its reservations in the snapshot.
        known = Circumstances(
            allowance(self._environment, gpus),
            _reservations(snapshot),
            uid=uid,
            asker=_asker(self._environment, uid),
        )
        if self._locks is None or past:
            return known
        devices = [gpu.uuid for gpu in gpus] + [mig.uuid for gpu in gpus for mig in gpu.mig]
        held = self._locks.others(uuid for uuid in devices if uuid not in mine)
        known = replace(known, held=held)
        if self._queue is None or mine:
            return known
        return replace(known, reserved_for=self._queue.reserved_for(snapshot, known))

    def choose(self, verdicts: Sequence[Eligibility]) -> GpuChoice | None:
        """The best GPUs; ``None`` if too few are eligible."""
        if self._ask_links is not None and self.requirements.most > 1:
            self._links, self._ask_links = self._ask_links(), None
        return choose(verdicts, self.requirements, self._links)

    def refusal(self, verdicts: Sequence[Eligibility]) -> str:
        """Why no GPU was chosen, in a sentence."""
        return f"{self._shortage(verdicts)}; {self.requirements.counted()} requested."

    def _shortage(self, verdicts: Sequence[Eligibility]) -> str:
        asked = self.requirements
        thing = "MIG device" if asked.mig else "GPU"
        there = sum(1 for verdict in verdicts if not asked.mig or verdict.candidate.mig is not None)
        if self.hopeless(verdicts):
            if there < asked.least:
                return f"this machine has {counted(there, thing) if there else f'no {thing}'}"
            possible = sum(verdict.may_come for verdict in verdicts)
            return f"only {counted(possible, thing)} can fit" if possible else f"no {thing} fits"
        fitting = sum(verdict.fits for verdict in verdicts)
        watched = sum(map(self.may_still_fit, verdicts))
        if asked.stable is not None and fitting < asked.least <= watched:
            return f"the GPUs have not been observed for {duration(asked.stable)} yet"
        if not fitting:
            return f"no {thing} fits"
        return f"only {counted(fitting, thing)} {'fits' if fitting == 1 else 'fit'}"

    def hopeless(self, verdicts: Sequence[Eligibility]) -> bool:
        """Whether waiting cannot help, because too few GPUs are of the requested kind."""
        possible = sum(verdict.may_come for verdict in verdicts)
        gone = self._most_gpus - len({verdict.candidate.gpu.uuid for verdict in verdicts})
        return possible + gone < self.requirements.least


def _asker(environment: Mapping[str, str], uid: int | None) -> Insider:
    """This program's user, and the job that it runs in, by each of its names."""
    job, _ = slurm_job(None, None, environment)
    number, _ = slurm_job(None, None, {"SLURM_JOB_ID": environment.get("SLURM_JOB_ID", "")})
    jobs = [(SLURM, name) for name in (job, number) if name is not None]
    if lsf := environment.get("LSB_JOBID"):
        # The index of a job that is in no array is 0.
        index = environment.get("LSB_JOBINDEX") or "0"
        jobs.append((LSF, lsf if index == "0" else f"{lsf}[{index}]"))
    return Insider(None if uid is None else user_name(uid), frozenset(jobs))


def _reservations(snapshot: Snapshot) -> dict[str, ReservationHolder]:
    """The reservations in a snapshot, by UUID of the GPU or MIG device."""
    return {
        reservation.mig_uuid or reservation.gpu_uuid: ReservationHolder(
            reservation.user, reservation.pid, reservation.since, reservation.command
        )
        for reservation in snapshot.reserved
    }


class StabilityWindow:
    """Keeps the results of past samples for as long as they matter."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds  # for which a GPU must have been eligible
        self._samples: deque[tuple[float, _Verdicts]] = deque()

    @property
    def left(self) -> float:
        """Seconds that must still be observed."""
        watched = self._samples[-1][0] - self._samples[0][0] if self._samples else 0.0
        return max(0.0, self.seconds - watched)

    def add(self, time: float, verdicts: _Verdicts) -> None:
        """Add the next sample's results."""
        samples = self._samples
        if samples and not 0 <= time - samples[-1][0] <= GAP_SECONDS:
            samples.clear()
        # A result equal to both its neighbours carries no information.
        kinds = _kinds(verdicts)
        if len(samples) > 1 and _kinds(samples[-2][1]) == _kinds(samples[-1][1]) == kinds:
            samples.pop()
        samples.append((time, verdicts))
        # Keep the sample that reaches back over the whole time.
        while len(samples) > 1 and samples[1][0] <= time - self.seconds:
            samples.popleft()

    def verdicts(self) -> _Verdicts:
        """The current eligibility of each GPU."""
        judged = judge_over_time(tuple(self._samples))
        left = self.left
        return judged if not left else tuple(self._unsettled(verdict, left) for verdict in judged)

    def _unsettled(self, verdict: Eligibility, left: float) -> Eligibility:
        if verdict.refusal is not None:
            return verdict
        asked, watched = duration(self.seconds), duration(self.seconds - left)
        return replace(
            verdict, refusal=Ineligibility("watching", f"it fits, watched for {watched} of {asked}")
        )


def _kinds(verdicts: _Verdicts) -> dict[str, str]:
    """Why each GPU is not eligible, by UUID; empty if it is."""
    return {verdict.candidate.uuid: verdict.kind for verdict in verdicts}


def look_back(
    stability: StabilityWindow, log: Recording, now: float, judge: Callable[[Snapshot], _Verdicts]
) -> None:
    """Add the samples of a log, if they reach up to now, in seconds since the epoch."""
    for snapshot in log.between(now - stability.seconds - GAP_SECONDS, now, _MOST_SAMPLES):
        stability.add(snapshot.time, judge(snapshot))


def judge_over_time(samples: Sequence[tuple[float, _Verdicts]]) -> _Verdicts:
    """The last result of each GPU, which must have been eligible in all of these samples.

    Args:
        samples: Time and results of each, oldest first, at least one.
    """
    now = samples[-1][0]
    earlier: dict[str, tuple[float, Ineligibility]] = {}
    always = set.intersection(
        *({verdict.candidate.uuid for verdict in each} for _, each in samples)
    )
    for at, verdicts in samples[:-1]:
        for verdict in verdicts:
            # A GPU whose reservation ended was in use, or its result would show it.
            if verdict.refusal is not None and verdict.refusal.kind not in ("reserved", "queue"):
                earlier[verdict.candidate.uuid] = at, verdict.refusal
    judged = []
    for verdict in samples[-1][1]:
        uuid = verdict.candidate.uuid
        sentence = ""
        if uuid in earlier:
            at, refusal = earlier[uuid]
            sentence = f"it fits now, but {duration(now - at)} ago: {refusal.sentence}"
        elif uuid not in always:
            sentence = "it fits now, but was not there all the time"
        unsteady = sentence and verdict.refusal is None
        judged.append(
            replace(verdict, refusal=Ineligibility("stable", sentence)) if unsteady else verdict
        )
    return tuple(judged)


class UncertainAllocationError(Exception):
    """It cannot be determined which GPUs the environment allows.

    Attributes:
        sentence: Why, and what to do, for the user.
        passing: Whether it may be known later: a GPU has not reported its model.
    """

    def __init__(self, sentence: str, *, passing: bool) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.passing = passing

    def __reduce__(self) -> tuple[object, ...]:
        return _uncertain, (self.sentence, self.passing)


def _uncertain(sentence: str, passing: bool) -> UncertainAllocationError:
    return UncertainAllocationError(sentence, passing=passing)


def allowance(environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Allowance:
    """The GPUs that an environment allows.

    Args:
        environment: Variables by name.
        gpus: All GPUs of the machine.

    Raises:
        UncertainAllocationError: It names GPUs by indices that gpumon cannot resolve.
    """
    names = {
        maker: visible_devices_of(maker).selecting_variable(environment, gpus)
        for maker in makers_of(gpus)
    }
    if not any(names.values()):
        return Allowance()
    named: set[str] = set()
    reasons: dict[Maker, str] = {}
    for maker, name in names.items():
        if name is None:
            named |= {gpu.uuid for gpu in gpus_of(maker, gpus)}
        else:
            found, reasons[maker] = _allowed(maker, name, environment, gpus)
            named |= found
    return Allowance(frozenset(named), reasons)


def _allowed(
    maker: Maker, name: str, environment: Mapping[str, str], gpus: Sequence[Gpu]
) -> tuple[set[str], str]:
    """The UUIDs of a maker's GPUs that an environment allows, and why the others are not allowed.

    Args:
        maker: The maker.
        name: The variable that selects.
        environment: Variables by name.
        gpus: All GPUs of the machine.

    Raises:
        UncertainAllocationError: See ``allowance``.
    """
    meaning = visible_devices_of(maker).allocated(environment, gpus)
    if not meaning.devices and not meaning.certain:
        raise UncertainAllocationError(
            f"{name} is set, and which GPUs it leaves is uncertain: {meaning.why}. "
            f"{maker.certain_selection}",
            passing=any(gpu.name is None for gpu in gpus),
        )
    devices = meaning.devices
    named = {device.gpu_uuid if device.mig_index is None else device.uuid for device in devices}
    if not environment[name].startswith("MIG-"):
        # A GPU in MIG mode was allocated with all its devices.
        named |= {device.gpu_uuid for device in devices}
    why = f" ({meaning.why})" if meaning.why else ""
    return named, f"{name} leaves it out{why}"
