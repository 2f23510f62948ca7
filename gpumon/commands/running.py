"""Stays with a job from its first moment until its memory is back, and tells what came of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.choosing.lookout import QUICK_PATIENCE
from gpumon.choosing.words import gib, name_of
from gpumon.commands.telling import tell
from gpumon.model import CardStatus
from gpumon.running import words
from gpumon.running.child import Child
from gpumon.running.members import Members
from gpumon.running.tally import SLACK_BYTES, Tally
from gpumon.running.terminal import Terminal
from gpumon.sources import SourceError
from gpumon.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.choosing.judging import Candidate
    from gpumon.choosing.lookout import Lookout
    from gpumon.log.recorder import Recorder
    from gpumon.model import GpuProcess, Snapshot
    from gpumon.reserving.locks import Reservation
    from gpumon.running.child import Ending

INTERVAL = 1.0
"""Seconds between two samples, as in ``gpumon log``."""
_BACK_SECONDS = 10.0
"""So long is waited for the memory of a job that has ended; the driver takes it back in less."""
_BACK_PAUSE = 0.1
_TOUCH_SECONDS = 3600.0


class Job:
    """One command on cards that are reserved for it.

    Args:
        lookout: Looks at the cards.
        candidates: Those that are reserved.
        before: How they were before.
        reservation: Kept in use meanwhile.
    """

    def __init__(
        self,
        lookout: Lookout,
        candidates: Sequence[Candidate],
        before: Snapshot,
        reservation: Reservation,
    ) -> None:
        self._lookout = lookout
        self._candidates = candidates
        self._before = before
        self._reservation = reservation
        self._touched_at = time.monotonic()
        self._tally: Tally | None = None
        self._recorder: Recorder | None = None
        self._members: Members | None = None

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], log: str | None
    ) -> Ending:
        """Run the command and tell on standard error what came of it.

        Raises:
            LogError: The log cannot be written; then nothing is run.
            OSError: The command cannot be started.
        """
        if log is not None:
            from gpumon.log.recorder import Recorder

            self._recorder = Recorder(log)
            self._recorder.start()
        began = time.monotonic()
        try:
            ending, tally = self._stay(command, environment)
            seconds = time.monotonic() - began
            back = self._wait_for_memory(tally)
        finally:
            status = None if self._recorder is None else self._recorder.stop()
        tell(words.ended(command[0], ending, seconds, tally.cards))
        for card in tally.cards:
            tell(words.of_card(card))
        if ending.exit_status:
            for card in tally.cards:
                tell(words.full(card) or "")
        tell(words.use(tally.cards))
        tell(back)
        if status is not None:
            from gpumon.commands.log_words import summary

            for sentence in summary(status):
                tell(sentence)
        return ending

    def _stay(self, command: Sequence[str], environment: Mapping[str, str]) -> tuple[Ending, Tally]:
        with Terminal() as terminal:
            child = Child(terminal)
            with child.signals_passed_on():
                child.start(command, environment)
                members = self._members = Members(child.pid, child.group)
                tally = self._tally = Tally(self._candidates, members.among, self._before)
                self._lookout.interval = INTERVAL
                ignore = self._lookout.listen(self._see)
                try:
                    ending = child.wait()
                finally:
                    ignore()
        return ending, tally

    def _see(self, snapshot: Snapshot) -> None:
        """Take a sample. On the sampling thread."""
        if self._tally is None:
            return
        members = self._tally.add(snapshot)
        if self._recorder is not None:
            self._recorder.take(self._narrowed(snapshot, members))
        if time.monotonic() > self._touched_at + _TOUCH_SECONDS:
            self._touched_at = time.monotonic()
            self._reservation.touch()

    def _narrowed(self, snapshot: Snapshot, members: Sequence[GpuProcess]) -> Snapshot:
        """A snapshot of the job's cards, and of the job on them."""
        uuids = {one.gpu.uuid for one in self._candidates}
        kept = []
        for process in members:
            uses = tuple(use for use in process.uses if use.gpu_uuid in uuids)
            if uses:
                kept.append(replace(process, uses=uses))
        gpus = tuple(gpu for gpu in snapshot.gpus if gpu.uuid in uuids)
        return replace(snapshot, gpus=gpus, processes=tuple(kept))

    def _wait_for_memory(self, tally: Tally) -> str:
        """Wait until the cards are as they were, and tell whether they are."""
        give_up_at = time.monotonic() + _BACK_SECONDS
        first = True
        try:
            while True:
                left = give_up_at - time.monotonic()
                snapshot = self._lookout.look(max(left, QUICK_PATIENCE))
                if first:
                    tally.add(snapshot, over=True)
                    first = False
                missing = self._missing(snapshot)
                if not missing:
                    seen = any(card.used for card in tally.cards)
                    return "all its memory came back" if seen else "it left no memory in use"
                known = any(self._memory_before(one) is not None for one in self._candidates)
                if not known or time.monotonic() > give_up_at:
                    return self._not_back(snapshot, missing)
                time.sleep(_BACK_PAUSE)
        except (KeyboardInterrupt, SourceError):
            # The driver may have hung since the last list of processes.
            for card in tally.cards:
                card.doubtful = True
            return "whether its memory came back is unknown"

    def _missing(self, snapshot: Snapshot) -> dict[str, int | None]:
        """How much is not back yet on which card; ``None`` where that cannot be told."""
        missing: dict[str, int | None] = {}
        for candidate in self._candidates:
            now = candidate.seen_in(snapshot)
            held = self._held_by_job(candidate, snapshot)
            if held:
                missing[candidate.label] = held
                continue
            then = self._memory_before(candidate)
            left = None if now is None else self._unshared(now, snapshot)
            if then is None or left is None:
                missing[candidate.label] = None
            elif left > then + SLACK_BYTES:
                missing[candidate.label] = left - then
        return missing

    def _memory_before(self, candidate: Candidate) -> int | None:
        before = candidate.seen_in(self._before)
        return None if before is None else self._unshared(before, self._before)

    def _held_by_job(self, candidate: Candidate, snapshot: Snapshot) -> int:
        """Bytes that living processes of the job hold, as the last list of them tells."""
        total = 0
        for process in self._job_in(snapshot):
            use = candidate.use_of(process)
            if use is not None and _lives(process):
                total += use.memory_used or 1
        return total

    def _job_in(self, snapshot: Snapshot) -> tuple[GpuProcess, ...]:
        return () if self._members is None else self._members.among(snapshot.processes)

    def _unshared(self, candidate: Candidate, snapshot: Snapshot) -> int | None:
        """Bytes in use that belong to no living process, and to nobody in another container."""
        used = candidate.memory_used
        # While a call to the card hangs its last values are repeated.
        if used is None or candidate.gpu.status is not CardStatus.OK:
            return None
        for process in snapshot.processes:
            use = candidate.use_of(process)
            if use is not None and use.memory_used is not None and not self._is_over(process):
                used -= use.memory_used
        return used

    def _is_over(self, process: GpuProcess) -> bool:
        if process.visible or self._members is None:
            return not _lives(process)
        # What has no entry in /proc lives elsewhere, or was the job's and is listed all the same.
        return self._members.had(process.id.pid)

    def _not_back(self, snapshot: Snapshot, missing: Mapping[str, int | None]) -> str:
        told = []
        for label, size in missing.items():
            if size is None:
                told.append(f"whether its memory on {label} came back is unknown")
            else:
                told.append(f"{gib(size)} on {label} have not come back")
        left = [one for one in self._job_in(snapshot) if _lives(one)]
        if left:
            named = ", ".join(printable(name_of(one)) for one in left[:3])
            told.append(f"of the job there are still: {named}")
        return "; ".join(told)


def _lives(process: GpuProcess) -> bool:
    from gpumon.host.procfs import stat_of

    stat = stat_of("/proc", process.id.pid)
    return not process.visible or (stat is not None and stat.id == process.id and not stat.ended)
