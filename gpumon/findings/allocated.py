"""Whether a GPU is given to somebody: by a scheduler, or by ``gpumon run``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.availability import (
    allocated_sentence,
    allocated_to_others,
)
from gpumon.findings.explanation import (
    ExplanationText,
)
from gpumon.findings.finding import BRIEF_CELLS, SHORT_CELLS, FindingKind, Severity
from gpumon.findings.phrases import (
    at_most,
    first_part,
    longest_part,
    spaced,
)
from gpumon.findings.rule import LastingRule, Rule, Words, bound
from gpumon.model.allocations import allocations_of, unplaced_of
from gpumon.recording.history import Condition
from gpumon.text.formatting import cell_width, duration, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.findings.finding import Answer
    from gpumon.findings.rule import Said
    from gpumon.model.allocations import Allocation
    from gpumon.model.snapshot import Gpu, Reserved
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import History, Holding

NO_LOAD = "no load"
"""The condition of a GPU on which nothing runs."""


class Allocated(LastingRule):
    """A scheduler has given the GPU to a job: it is not free, whether the job uses it or not."""

    kind = FindingKind.ALLOCATED
    hides_memory = True
    is_normal_use = True
    sign = ("◈", "allocated to a job by a scheduler such as Slurm")
    explanation = ExplanationText(
        (
            "A scheduler has allocated the GPU to a job, so it is not free even while nothing runs "
            "on it. After an hour without a process (`unused_after`) this is a warning."
        ),
        (
            "a job that prepares its data on the CPU, or has finished its work on the GPU",
            "a shell that somebody left open in a job",
            "a job that requested more GPUs than it uses",
        ),
        (
            "Ask the owner to end the job, or to request fewer GPUs.",
            "Slurm: `scancel`, `--gres`. LSF: `bkill`, `-gpu`. Kubernetes: `kubectl delete pod`.",
        ),
        "slurm.schedmd.com, scontrol and gres.conf; kubernetes.io, Device Plugins",
    )
    after = 0.0

    def conditions(self, thresholds: Thresholds) -> dict[str, Condition]:
        return {
            **super().conditions(thresholds),
            NO_LOAD: Condition(bound(self.has_no_load, thresholds)),
        }

    def holds(self, holding: Holding) -> bool:
        """Whether no process computes on it: a history tracks no allocations."""
        return holding.computing == 0

    def has_no_load(self, utilization_gpu: int) -> bool:
        """Whether nothing runs on it, by whomever it is held."""
        return utilization_gpu == 0

    def answer(self, history: History, gpu: Gpu) -> Answer:
        """See ``Rule.answer``."""
        latest = history.latest
        if latest is None or not latest.allocations:
            return False
        certain = allocations_of(latest.allocations, gpu)
        if certain:
            return self._finding(gpu.uuid, self._certain(history, gpu, certain))
        unsure = allocated_to_others(latest.allocations, gpu, history.now)
        holding = history.holding(gpu)
        if unsure is None or (holding is not None and holding.computing):
            return False
        first = unplaced_of(latest.allocations)[0]
        short = at_most(f"perhaps {printable(first.label)}'s", SHORT_CELLS)
        brief = f"{printable(first.scheduler)}?"
        if cell_width(brief) > BRIEF_CELLS:
            brief = "allocated?"
        return self._finding(gpu.uuid, Words(unsure.sentence, short, brief))

    def _certain(self, history: History, gpu: Gpu, certain: Sequence[Allocation]) -> Words:
        first = certain[0]
        more = f" +{len(certain) - 1}" if len(certain) > 1 else ""
        sentence = allocated_sentence(first, history.now)
        evidence = tuple(allocated_sentence(each, history.now) for each in certain)
        unused = self._unused(history, gpu, first)
        if unused is None:
            end, brief = _end(first, history.now)
            name = _named(first, first.label, SHORT_CELLS - len(more) - len(end))
            return Words(
                sentence,
                f"{name}{more}{end}",
                brief,
                evidence,
                first.since,
                Severity.QUIET,
            )
        since, is_least = unused
        seconds = history.now - since
        length = f"{'≥' if is_least else ''}{first_part(seconds)}"
        end = f"{more}, no process {length}"
        name = _named(first, first.owned_label, SHORT_CELLS - cell_width(end))
        long = seconds >= history.thresholds.unused_after
        least = "at least " if is_least else ""
        return Words(
            f"{sentence}; no process has computed on it for {least}{spaced(seconds)}",
            f"{name}{end}",
            f"unused {length}" if len(length) <= 3 else "unused",
            (*evidence, "no process computes on it"),
            since,
            Severity.WARNING if long else Severity.NOTE,
        )

    def _unused(
        self, history: History, gpu: Gpu, allocation: Allocation
    ) -> tuple[float, bool] | None:
        """Since when no process of the job computes on it, and whether that may be longer."""
        interval = history.interval(gpu.uuid, self._condition)
        if interval is None:
            return None
        started = allocation.since
        if started is not None and started >= interval.since:
            return min(started, history.now), False
        return interval.since, not interval.start_observed


def _end(allocation: Allocation, now: float) -> tuple[str, str]:
    """When it ends at the latest, behind a name, and alone."""
    if allocation.until is None:
        return "", "allocated"
    left = allocation.until - now
    if left <= 0:
        return ", past its limit", "allocated"
    return f", free in ≤ {longest_part(left)}", f"≤ {longest_part(left)}"


def _named(allocation: Allocation, label: str, width: int) -> str:
    """A label, cut; the scheduler is left out where not even it and the job fit."""
    fits = cell_width(printable(allocation.label)) <= width
    return at_most(printable(label if fits else allocation.job or label), width)


class Reservation(Rule):
    """``gpumon run`` has reserved the GPU.

    A user who looks for a free one must see that before the job runs.
    """

    kind = FindingKind.RESERVED
    hides_memory = True
    is_normal_use = True
    sign = ("◆", "reserved by gpumon run for a job")
    explanation = ExplanationText(
        "`gpumon run` reserved the GPU for a job that runs or is about to start.",
        (),
        ("Select another GPU, or wait: `gpumon wait`.",),
        "docs/run.md of gpumon",
    )

    def say(self, history: History, gpu: Gpu) -> Said:
        held = reservations(history, gpu)
        if not held:
            return False
        first = held[0]
        holding = history.holding(gpu)
        quiet = holding is not None and bool(holding.processes)
        by = "" if first.user is None else f" by {printable(first.user)}"
        since = "" if first.since is None else f" {duration(history.now - first.since)}"
        more = f" +{len(held) - 1}" if len(held) > 1 else ""
        room = SHORT_CELLS - len("reserved") - len(since) - len(more)
        what = "reserved" if first.mig_uuid is None else "a MIG device of it is reserved"
        length = f" for{since}" if since else ""
        return Words(
            f"{what}{by}{length}: gpumon run keeps it for a job",
            f"reserved{at_most(by, room)}{since}{more}",
            "reserved",
            tuple(map(_reservation_text, held)),
            first.since,
            Severity.QUIET if quiet else Severity.NOTE,
        )


def reservations(history: History, gpu: Gpu) -> Sequence[Reserved]:
    """The reservations of a GPU and of its MIG devices."""
    latest = history.latest
    return () if latest is None else [held for held in latest.reserved if held.gpu_uuid == gpu.uuid]


def _reservation_text(reserved: Reserved) -> str:
    if reserved.pid is None:
        return "its lock is held by a process that is not visible here"
    command = f": {printable(reserved.command)}" if reserved.command else ""
    return f"gpumon run {reserved.pid}{command}"
