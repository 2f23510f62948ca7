"""Chooses the best of the eligible GPUs.

A GPU without computing processes comes before one that would be shared. Of several GPUs, those with
the closest links are chosen. Then the tightest fit, so that large GPUs stay free for jobs that need
them; then the least utilised, the coolest, the lowest index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from gpumon.model.topology import NO_KNOWN_LINKS, Link, Links
from gpumon.scheduling.eligibility import Candidate, Eligibility  # noqa: TC001 - msgspec resolves them

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.scheduling.requirements import Requirements


class GpuChoice(Struct, frozen=True):
    """The chosen GPUs."""

    candidates: tuple[Candidate, ...]  # in the order of their indices
    fitting: int  # number of eligible GPUs
    link: Link | None = None  # the weakest between two of them; ``None`` for a single GPU
    shared: int = 0  # number of them that other processes compute on

    @property
    def labels(self) -> str:
        """Their names: ``GPU 0, GPU 3``."""
        return ", ".join(candidate.label for candidate in self.candidates)

    @property
    def reason(self) -> str:
        """Why these were chosen, for the user."""
        spare = self.fitting > len(self.candidates)
        words = [
            f"{self.labels} of {self.fitting} that fit"
            if spare
            else f"{self.labels}: nothing else fits"
        ]
        if self.link is Link.UNKNOWN:
            words.append("the links between them are unknown")
        elif self.link is not None:
            words.append(f"joined by {self.link.words}")
        elif spare:
            words.append("the tightest fit")
        if self.shared:
            words.append("shared with other processes")
        return "; ".join(words)


def choose(
    verdicts: Sequence[Eligibility], requirements: Requirements, links: Links = NO_KNOWN_LINKS
) -> GpuChoice | None:
    """The best GPUs, at most as many as requested.

    Returns:
        ``None`` if fewer are eligible than the requested minimum.
    """
    fitting = sorted((verdict for verdict in verdicts if verdict.fits), key=_rank)
    if len(fitting) < requirements.least:
        return None
    wanted = min(requirements.most, len(fitting))
    alone = [verdict for verdict in fitting if not verdict.others]
    pool = alone if len(alone) >= wanted else fitting
    group = _nearest(pool, wanted, links)
    return GpuChoice(
        tuple(sorted((verdict.candidate for verdict in group.taken), key=_index)),
        len(fitting),
        Link(group.way.longest) if wanted > 1 else None,
        sum(1 for verdict in group.taken if verdict.others),
    )


def worth(choice: GpuChoice, verdicts: Sequence[Eligibility]) -> tuple[object, ...]:
    """The sort key of choices on different machines, each from its verdicts: lower is better.

    More GPUs come first where the number may vary; then the rule for GPUs of one machine.
    """
    taken = [_rank(verdict) for verdict in verdicts if verdict.candidate in choice.candidates]
    return -len(taken), choice.shared, sorted(taken)


def _rank(verdict: Eligibility) -> tuple[float, ...]:
    """The sort key: lower is better."""
    gpu = verdict.candidate.gpu
    infinite = float("inf")
    return (
        len(verdict.others),
        infinite if verdict.free is None else verdict.free // 2**28,
        infinite if gpu.utilization_gpu is None else gpu.utilization_gpu,
        infinite if gpu.temperature_gpu is None else gpu.temperature_gpu // 5,
        *_index(verdict.candidate),
    )


def _index(candidate: Candidate) -> tuple[int, int]:
    return candidate.gpu.index, -1 if candidate.mig is None else candidate.mig.index


def _nearest(pool: Sequence[Eligibility], wanted: int, links: Links) -> _Group:
    """The GPUs with the closest links, and of equal groups the better one; the pool is sorted.

    For each GPU as a start, add the GPU whose weakest link to those already chosen is strongest.
    """
    return min((_grown(first, pool, wanted, links) for first in pool), key=_Group.worth)


class _Group(NamedTuple):
    """A possible group of GPUs with its sort key: lower is better."""

    taken: list[Eligibility]
    way: _Way
    ranks: tuple[int, ...]

    def worth(self) -> tuple[_Way, tuple[int, ...]]:
        return self.way, self.ranks


class _Way(NamedTuple):
    """The distances within a group: the longest, the sum, and the sum over the bus."""

    longest: int = 0
    together: int = 0
    by_bus: int = 0

    def and_to(self, added: Eligibility, others: Sequence[Eligibility], links: Links) -> _Way:
        """The distances with one more GPU added."""
        uuid = added.candidate.gpu.uuid
        joints = [links.of(uuid, other.candidate.gpu.uuid) for other in others]
        return _Way(
            max([self.longest, *(joint.nearest for joint in joints)]),
            self.together + sum(joint.nearest for joint in joints),
            self.by_bus + sum(joint.bus for joint in joints),
        )


def _grown(first: Eligibility, pool: Sequence[Eligibility], wanted: int, links: Links) -> _Group:
    taken, way = [first], _Way()
    while len(taken) < wanted:
        left = [verdict for verdict in pool if verdict not in taken]
        ways = [(way.and_to(verdict, taken, links), index) for index, verdict in enumerate(left)]
        way, index = min(ways)
        taken.append(left[index])
    ranks = [index for index, verdict in enumerate(pool) if verdict in taken]
    return _Group(taken, way, tuple(reversed(ranks)))
