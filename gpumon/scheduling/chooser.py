"""Chooses GPUs: from a snapshot to the GPUs that a job gets."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.makers.links import NONE_KNOWN
from gpumon.makers.source import NoSuchGpuError
from gpumon.model.snapshot import ReservationHolder
from gpumon.scheduling.allocation import allowance
from gpumon.scheduling.eligibility import Circumstances, is_identified, job_maker, judge
from gpumon.scheduling.ranking import choose
from gpumon.scheduling.stability import StabilityWindow, look_back
from gpumon.scheduling.wait_queue import WaitQueue
from gpumon.text.formatting import counted, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gpumon.makers.links import Links
    from gpumon.model.snapshot import Snapshot
    from gpumon.scheduling.eligibility import Eligibility
    from gpumon.scheduling.ranking import GpuChoice
    from gpumon.scheduling.requirements import Requirements
    from gpumon.scheduling.reservation.locks import Locks

_UNSETTLED = frozenset(("busy", "old"))
"""Reasons that a second sample may remove. Utilisation is an average of up to a second, so it may
include a job that has ended, or the driver's own start: without persistence mode the first client
makes it scrub the memory. The first answers of a driver may also be slow."""
_SETTLES_SECONDS = 2.0


class Chooser:
    """Evaluates snapshots by the requirements, and chooses the best eligible GPUs.

    Args:
        requirements: The requirements.
        environment: The caller's environment; its ``CUDA_VISIBLE_DEVICES`` is respected.
        locks: The locks of reserved GPUs; ``None`` means that no GPU is reserved.
        links: Returns the links between GPUs; called once, if several GPUs are wanted.
        past: A log of the past, if the requirements ask for a stable time.
    """

    def __init__(
        self,
        requirements: Requirements,
        environment: Mapping[str, str],
        locks: Locks | None = None,
        links: Callable[[], Links] | None = None,
        past: str | None = None,
    ) -> None:
        self.requirements = requirements
        self._environment = environment
        self._locks = locks
        self._ask_links = links
        self._links = NONE_KNOWN
        self._past = past
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

    def judge(
        self, snapshot: Snapshot, mine: Collection[str] = frozenset()
    ) -> tuple[Eligibility, ...]:
        """The eligibility of each GPU. Locks are read after the snapshot was taken.

        Args:
            snapshot: The snapshot.
            mine: UUIDs that are reserved for us already.

        Raises:
            NoSuchGpuError: ``--gpus`` names a GPU that does not exist.
            UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be resolved.
            RecordingError: The log of the past cannot be read.
        """
        stability = self._stability
        if stability is None:
            return self._judged_now(snapshot, mine)
        if self._past is not None:
            self._look_back(self._past, stability)
            self._past = None
        stability.add(snapshot.time, self._judged_now(snapshot, mine))
        return stability.verdicts()

    def _judged_now(self, snapshot: Snapshot, mine: Collection[str]) -> tuple[Eligibility, ...]:
        verdicts = judge(snapshot, self.requirements, self._circumstances(snapshot, mine))
        kinds = [None if one.refusal is None else one.refusal.kind for one in verdicts]
        self._unsettled = kinds.count(None) < self.requirements.least and not _UNSETTLED.isdisjoint(
            kinds
        )
        if self._unsettled and self._settled_by is None:
            self._settled_by = time.monotonic() + _SETTLES_SECONDS
        return verdicts

    def left(self) -> float:
        """Seconds for which the GPUs must still be observed."""
        watching = 0.0 if self._stability is None else self._stability.left
        if not self._unsettled or self._settled_by is None:
            return watching
        return max(watching, self._settled_by - time.monotonic())

    @staticmethod
    def may_still_fit(verdict: Eligibility) -> bool:
        """Whether only the remaining observation time is missing."""
        return verdict.refusal is None or verdict.refusal.kind == "watching"

    def _look_back(self, path: str, stability: StabilityWindow) -> None:
        from gpumon.recording.csv.recording import open_log

        with closing(open_log(path)) as tape:
            look_back(
                stability,
                tape,
                time.time(),
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
        known = Circumstances(allowance(self._environment, gpus), _reservations(snapshot), uid=uid)
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
        return f"{self._shortage(verdicts)}; {self.requirements.counted()} asked."

    def _shortage(self, verdicts: Sequence[Eligibility]) -> str:
        asked = self.requirements
        thing = "MIG device" if asked.mig else "GPU"
        there = sum(1 for one in verdicts if not asked.mig or one.candidate.mig is not None)
        if self.hopeless(verdicts):
            if there < asked.least:
                return f"this machine has {counted(there, thing) if there else f'no {thing}'}"
            possible = sum(1 for one in verdicts if one.may_come)
            return f"only {counted(possible, thing)} can fit" if possible else f"no {thing} fits"
        fitting = sum(1 for one in verdicts if one.refusal is None)
        watched = sum(1 for one in verdicts if self.may_still_fit(one))
        if asked.stable is not None and fitting < asked.least <= watched:
            return f"the GPUs have not been observed for {duration(asked.stable)} yet"
        if not fitting:
            return f"no {thing} fits"
        return f"only {counted(fitting, thing)} {'fits' if fitting == 1 else 'fit'}"

    def hopeless(self, verdicts: Sequence[Eligibility]) -> bool:
        """Whether waiting cannot help, because too few GPUs are of the requested kind."""
        possible = sum(1 for one in verdicts if one.may_come)
        gone = self._most_gpus - len({one.candidate.gpu.uuid for one in verdicts})
        return possible + gone < self.requirements.least


def _reservations(snapshot: Snapshot) -> dict[str, ReservationHolder]:
    """The reservations in a snapshot, by UUID of the GPU or MIG device."""
    return {
        one.mig_uuid or one.gpu_uuid: ReservationHolder(one.user, one.pid, one.since, one.command)
        for one in snapshot.reserved
    }
