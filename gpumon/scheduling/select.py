"""``gpumon select``: finds free GPUs for a shell or a program."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from gpumon.sampling.gpu_sampler import GpuSampler
from gpumon.scheduling.chooser import Chooser
from gpumon.scheduling.outputs import (
    as_env,
    as_index,
    as_uuid,
    doubt_of_selection,
    json_text,
    selection_json,
    table,
)
from gpumon.scheduling.reservation.locks import Locks
from gpumon.text.formatting import duration
from gpumon.text.status_line import StatusLine, columns, tell, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.makers.links import Links
    from gpumon.makers.source import Source
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.scheduling.eligibility import Candidate, Eligibility
    from gpumon.scheduling.requirements import Requirements


_WRITERS: dict[str, Callable[[Sequence[Candidate], Sequence[Gpu]], str]] = {
    "uuid": as_uuid,
    "index": as_index,
    "env": as_env,
}

_WATCH_SECONDS = 0.5
"""Seconds between two samples while GPUs are observed."""


def select(
    source: Source,
    requirements: Requirements,
    stream: TextIO,
    *,
    form: str = "uuid",
    verbose: bool = False,
    lock_dir: str | None = None,
    past: str | None = None,
    links: Callable[[], Links] | None = None,
) -> int:
    """Print the best eligible GPUs, or on standard error why each GPU is not eligible.

    Args:
        source: The source of snapshots, of all GPUs.
        requirements: The requirements for the GPUs.
        stream: The output stream.
        form: ``uuid``, ``index``, ``env`` or ``json``.
        verbose: Whether to explain the choice.
        lock_dir: The lock folder; ``None`` is the default one.
        past: A log of the past, or ``None``.
        links: Returns the links between GPUs; called if several are wanted.

    Returns:
        The exit status: 0, or 1 if too few are eligible.

    Raises:
        SourceError: There are no GPUs.
        RecordingError: The log of the past cannot be read.
        UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be resolved.
        OSError: Writing to the stream failed.
    """
    locks = Locks(lock_dir, os.environ, make=False)
    chooser = Chooser(requirements, os.environ, locks, links, past)
    with GpuSampler(source) as sampler, StatusLine(sys.stderr) as status_line:
        snapshot, verdicts = settled(sampler, chooser, status_line.show)
    choice = chooser.choose(verdicts)
    if locks.trouble:
        tell(f"who has reserved a GPU is known of your own programs only: {locks.trouble}")
    if form == "json":
        stream.write(json_text(selection_json(choice, verdicts)) + "\n")
    if choice is None:
        tell(chooser.refusal(verdicts))
        write(table(verdicts, columns=columns()))
        return 1
    chosen = choice.candidates
    if form != "json":
        stream.write(_WRITERS[form](chosen, snapshot.gpus) + "\n")
    stream.flush()
    if verbose:
        tell(choice.reason)
        write(table(verdicts, choice, columns()))
    tell(doubt_of_selection(chosen, snapshot.gpus, by_index=form in {"index", "env"}))
    if requirements.mig and len(chosen) > 1:
        tell("CUDA gives a program the first of several MIG devices alone: hand them out singly.")
    return 0


def settled(
    sampler: GpuSampler, chooser: Chooser, show: Callable[[list[str]], object] = lambda _: None
) -> tuple[Snapshot, tuple[Eligibility, ...]]:
    """The last snapshot's results, once the GPUs have been observed for the required time.

    Args:
        sampler: Samples the GPUs.
        chooser: Judges them.
        show: Called with the parts of a line of progress.
    """
    snapshot = sampler.look()
    verdicts = chooser.judge(snapshot)
    if not chooser.left():
        return snapshot, verdicts
    sampler.collector.interval = _WATCH_SECONDS
    while (left := chooser.left()) and not chooser.hopeless(verdicts):
        fitting = sum(1 for one in verdicts if chooser.may_still_fit(one))
        show([f"○ observing the GPUs, {duration(left)} left", f"{fitting} stable so far"])
        following = sampler.next(_WATCH_SECONDS)
        if following is not None:
            snapshot, verdicts = following, chooser.judge(following)
    return snapshot, verdicts
