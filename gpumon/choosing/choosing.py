"""Brings it together: from a look at the cards to those that are taken."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import TYPE_CHECKING

from gpumon.choosing.allocation import allowance
from gpumon.choosing.judging import Circumstances, is_identified, judge
from gpumon.choosing.line import Line
from gpumon.choosing.ordering import choose
from gpumon.choosing.steady import Steady, look_back
from gpumon.choosing.words import many
from gpumon.sources import NoSuchCardError
from gpumon.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gpumon.choosing.judging import Verdict
    from gpumon.choosing.ordering import Choice
    from gpumon.choosing.requirements import Requirements
    from gpumon.model import Snapshot
    from gpumon.reserving.locks import Locks
    from gpumon.sources.links import Links

_UNSETTLED = frozenset(("busy", "old"))
"""Refusals that a second look may take back: utilisation is that of up to the last second, also
where its job has ended by now, and the driver may count its own start (without persistence mode the
first client makes it scrub the memory) or be slow at its first answers."""
_SETTLES_SECONDS = 2.0


class Chooser:
    """Judges looks at the cards by one person's requirements, and takes the best of what fits.

    Args:
        requirements: What is asked for.
        environment: Variables of whoever asks; ``CUDA_VISIBLE_DEVICES`` there is respected.
        locks: Tell who has reserved which card; ``None``: nobody.
        links: Tells how near cards are to one another; asked once, where several are wanted.
        past: A log that may know how the cards have been, where that is asked for.
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
        self._links: Links | None = None
        self._past = past
        self._most_cards = 0
        self._steady = None if requirements.stable is None else Steady(requirements.stable)
        self._unsettled = False
        self._settled_by: float | None = None
        shared = None if locks is None else locks.shared
        self._line = None if shared is None else Line(shared)

    def join_line(self, snapshot: Snapshot) -> None:
        """Have those who come later leave to us what we could take; until ``leave_line``."""
        if self._line is not None:
            self._line.join(self.requirements, allowance(self._environment, snapshot.gpus))

    def leave_line(self) -> None:
        """Wait in line no longer. May be called at any time."""
        if self._line is not None:
            self._line.leave()

    def judge(self, snapshot: Snapshot, mine: Collection[str] = frozenset()) -> tuple[Verdict, ...]:
        """What is thought of each card. Locks are looked at after the snapshot was taken.

        Args:
            snapshot: How the cards are.
            mine: UUIDs of what is reserved for us already.

        Raises:
            NoSuchCardError: ``--gpus`` names a card that there is not.
            UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be read for certain.
            TapeError: The log of the past cannot be read.
        """
        steady = self._steady
        if steady is None:
            return self._judged_now(snapshot, mine)
        if self._past is not None:
            self._look_back(self._past, steady)
            self._past = None
        steady.add(snapshot.time, self._judged_now(snapshot, mine))
        return steady.verdicts()

    def _judged_now(self, snapshot: Snapshot, mine: Collection[str]) -> tuple[Verdict, ...]:
        verdicts = judge(snapshot, self.requirements, self._circumstances(snapshot, mine))
        kinds = [None if one.refusal is None else one.refusal.kind for one in verdicts]
        self._unsettled = kinds.count(None) < self.requirements.least and not _UNSETTLED.isdisjoint(
            kinds
        )
        if self._unsettled and self._settled_by is None:
            self._settled_by = time.monotonic() + _SETTLES_SECONDS
        return verdicts

    def left(self) -> float:
        """For how many seconds the cards must still be watched."""
        watching = 0.0 if self._steady is None else self._steady.left
        if not self._unsettled or self._settled_by is None:
            return watching
        return max(watching, self._settled_by - time.monotonic())

    @staticmethod
    def may_still_fit(verdict: Verdict) -> bool:
        """Whether nothing but the time that is still to be watched speaks against it."""
        return verdict.refusal is None or verdict.refusal.kind == "watching"

    def _look_back(self, path: str, steady: Steady) -> None:
        from gpumon.log.tape import open_log

        with closing(open_log(path)) as tape:
            look_back(
                steady,
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
        # A card that was there and is gone may come back, as after the driver was loaded anew.
        self._most_cards = max(self._most_cards, len(gpus))
        uuids = [gpu.uuid for gpu in gpus if is_identified(gpu)]
        missing = self.requirements.only.missing(self._most_cards, uuids)
        if missing and not past:
            raise NoSuchCardError(missing, len(gpus))
        uid = os.geteuid() if hasattr(os, "geteuid") else None
        plain = Circumstances(allowance(self._environment, gpus), uid=uid)
        if self._locks is None or past:
            return plain
        devices = [gpu.uuid for gpu in gpus] + [mig.uuid for gpu in gpus for mig in gpu.mig]
        held = self._locks.others(uuid for uuid in devices if uuid not in mine)
        known = Circumstances(plain.allowance, held, uid=uid)
        owed = {} if self._line is None or mine else self._line.owed(snapshot, known)
        return Circumstances(plain.allowance, held, owed, uid)

    def choose(self, verdicts: Sequence[Verdict]) -> Choice | None:
        """The best; ``None`` where not enough fit."""
        if self._links is None and self._ask_links is not None and self.requirements.most > 1:
            self._links = self._ask_links()
        if self._links is None:
            return choose(verdicts, self.requirements)
        return choose(verdicts, self.requirements, self._links)

    def refusal(self, verdicts: Sequence[Verdict]) -> str:
        """Why nothing was chosen, in a sentence."""
        return f"{self._shortage(verdicts)}; {self.requirements.number} asked."

    def _shortage(self, verdicts: Sequence[Verdict]) -> str:
        asked = self.requirements
        thing = "MIG device" if asked.mig else "card"
        there = sum(1 for one in verdicts if not asked.mig or one.candidate.mig is not None)
        if self.hopeless(verdicts):
            if there < asked.least:
                return f"this machine has {many(there, thing) if there else f'no {thing}'}"
            possible = sum(1 for one in verdicts if one.may_come)
            return f"only {many(possible, thing)} can fit" if possible else f"no {thing} fits"
        fitting = sum(1 for one in verdicts if one.refusal is None)
        watched = sum(1 for one in verdicts if self.may_still_fit(one))
        if asked.stable is not None and fitting < asked.least <= watched:
            return f"the cards have not been watched for {duration(asked.stable)} yet"
        if not fitting:
            return f"no {thing} fits"
        return f"only {many(fitting, thing)} {'fits' if fitting == 1 else 'fit'}"

    def hopeless(self, verdicts: Sequence[Verdict]) -> bool:
        """Whether waiting cannot help: too few cards are of the kind that is asked for."""
        possible = sum(1 for one in verdicts if one.may_come)
        gone = self._most_cards - len({one.candidate.gpu.uuid for one in verdicts})
        return possible + gone < self.requirements.least
