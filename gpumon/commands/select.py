"""``gpumon select``: cards that are free, for a shell or a program to use."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple, TextIO

from gpumon.choosing.choosing import Chooser
from gpumon.choosing.lookout import Lookout
from gpumon.choosing.outputs import (
    as_env,
    as_index,
    as_json,
    as_uuid,
    doubt_of_indices,
    table,
)
from gpumon.commands.telling import Teller, columns, tell, write
from gpumon.reserving.locks import Locks
from gpumon.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.choosing.judging import Verdict
    from gpumon.choosing.requirements import Requirements
    from gpumon.model import Snapshot
    from gpumon.sources import Source
    from gpumon.sources.links import Links


_WATCH_SECONDS = 0.5
"""Between two looks while cards are watched."""


class Terms(NamedTuple):
    """What was asked for on the command line.

    Attributes:
        requirements: Of the cards.
        form: ``uuid``, ``index``, ``env`` or ``json``.
        verbose: Whether to say which were taken and why.
        lock_dir: Where the locks are; ``None`` is the usual place.
        past: A log that knows the past; ``None`` is none.
    """

    requirements: Requirements
    form: str = "uuid"
    verbose: bool = False
    lock_dir: str | None = None
    past: str | None = None


def select(
    source: Source, terms: Terms, stream: TextIO, links: Callable[[], Links] | None = None
) -> int:
    """Print the best cards that fit, or say on standard error why each does not.

    Args:
        source: Where snapshots come from; of all cards.
        terms: What was asked for.
        stream: Where to.
        links: Tells how near cards are to one another; asked where several are wanted.

    Returns:
        The exit status: 0, or 1 where not enough fit.

    Raises:
        SourceError: There are no cards to choose from.
        TapeError: The log of the past cannot be read.
        UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be read for certain.
        OSError: The stream takes no more.
    """
    locks = Locks(terms.lock_dir, os.environ, make=False)
    requirements = terms.requirements
    chooser = Chooser(requirements, os.environ, locks, links, terms.past)
    with Lookout(source) as lookout:
        snapshot, verdicts = _settled(lookout, chooser)
    choice = chooser.choose(verdicts)
    if locks.trouble:
        tell(f"who has reserved a card is known of your own programs only: {locks.trouble}")
    if terms.form == "json":
        stream.write(as_json(choice, verdicts) + "\n")
    if choice is None:
        tell(chooser.refusal(verdicts))
        write(table(verdicts, columns=columns()))
        return 1
    chosen = choice.candidates
    if terms.form != "json":
        form = {"uuid": as_uuid, "index": as_index, "env": as_env}[terms.form]
        stream.write(form(chosen) + "\n")
    stream.flush()
    if terms.verbose:
        tell(choice.reason)
        write(table(verdicts, choice, columns()))
    if terms.form in {"index", "env"}:
        tell(doubt_of_indices(chosen, snapshot.gpus))
    if requirements.mig and len(chosen) > 1:
        tell("CUDA gives a program the first of several MIG devices alone: hand them out singly.")
    return 0


def _settled(lookout: Lookout, chooser: Chooser) -> tuple[Snapshot, tuple[Verdict, ...]]:
    """The last look at the cards, once they have been watched for as long as is asked for."""
    snapshot = lookout.look()
    verdicts = chooser.judge(snapshot)
    if not chooser.left():
        return snapshot, verdicts
    lookout.interval = _WATCH_SECONDS
    with Teller(sys.stderr) as teller:
        while (left := chooser.left()) and not chooser.hopeless(verdicts):
            fitting = sum(1 for one in verdicts if chooser.may_still_fit(one))
            teller.show([f"○ watching the cards, {duration(left)} left", f"{fitting} calm so far"])
            following = lookout.next(_WATCH_SECONDS)
            if following is not None:
                snapshot, verdicts = following, chooser.judge(following)
    return snapshot, verdicts
