"""Takes the best of the cards that fit.

A card on which nobody computes goes before one that would be shared. Of several cards the nearest
to one another are taken. Then the tightest fit, so that large cards stay free for those who need
them, the idlest, the coolest, the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from gpumon.choosing.judging import Candidate, Verdict  # noqa: TC001 - msgspec resolves them
from gpumon.sources.links import NONE_KNOWN, Link, Links

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.choosing.requirements import Requirements


class Choice(Struct, frozen=True):
    """What was taken.

    Attributes:
        candidates: In the order of their indices.
        fitting: How many fitted.
        link: The longest way between two of them; ``None`` for one alone.
        shared: How many of them somebody else computes on.
    """

    candidates: tuple[Candidate, ...]
    fitting: int
    link: Link | None = None
    shared: int = 0

    @property
    def labels(self) -> str:
        """Which: ``GPU 0, GPU 3``."""
        return ", ".join(one.label for one in self.candidates)

    @property
    def reason(self) -> str:
        """Why these, for a person."""
        spare = self.fitting > len(self.candidates)
        words = [
            f"{self.labels} of {self.fitting} that fit"
            if spare
            else f"{self.labels}: nothing else fits"
        ]
        if self.link is Link.UNKNOWN:
            words.append("how near they are to one another is unknown")
        elif self.link is not None:
            words.append(f"joined by {self.link.words}")
        elif spare:
            words.append("the tightest fit")
        if self.shared:
            words.append("shared with who computes there")
        return "; ".join(words)


def choose(
    verdicts: Sequence[Verdict], requirements: Requirements, links: Links = NONE_KNOWN
) -> Choice | None:
    """As many of the best as are asked for, at most.

    Returns:
        ``None`` when fewer fit than at least are asked for.
    """
    fitting = sorted((one for one in verdicts if one.refusal is None), key=_rank)
    if len(fitting) < requirements.least:
        return None
    wanted = min(requirements.most, len(fitting))
    alone = [one for one in fitting if not one.others]
    pool = alone if len(alone) >= wanted else fitting
    group = _nearest(pool, wanted, links)
    return Choice(
        tuple(sorted((one.candidate for one in group.taken), key=_place)),
        len(fitting),
        Link(group.way.longest) if wanted > 1 else None,
        sum(1 for one in group.taken if one.others),
    )


def _rank(verdict: Verdict) -> tuple[float, ...]:
    """The less the better."""
    gpu = verdict.candidate.gpu
    infinite = float("inf")
    return (
        len(verdict.others),
        infinite if verdict.free is None else verdict.free // 2**28,
        infinite if gpu.utilization_gpu is None else gpu.utilization_gpu,
        infinite if gpu.temperature_gpu is None else gpu.temperature_gpu // 5,
        *_place(verdict.candidate),
    )


def _place(candidate: Candidate) -> tuple[int, int]:
    return candidate.gpu.index, -1 if candidate.mig is None else candidate.mig.index


def _nearest(pool: Sequence[Verdict], wanted: int, links: Links) -> _Group:
    """Those nearest to one another, of equals the better ones; the pool is in order.

    From each card on, the next is the one whose longest way to those already taken is shortest.
    """
    return min((_grown(first, pool, wanted, links) for first in pool), key=_Group.worth)


class _Group(NamedTuple):
    """Cards that might be taken together, and by what they are compared: the less the better."""

    taken: list[Verdict]
    way: _Way
    ranks: tuple[int, ...]

    def worth(self) -> tuple[_Way, tuple[int, ...]]:
        return self.way, self.ranks


class _Way(NamedTuple):
    """How far cards are from one another: the longest way, all ways, and all ways by the bus."""

    longest: int = 0
    together: int = 0
    by_bus: int = 0

    def and_to(self, one: Verdict, others: Sequence[Verdict], links: Links) -> _Way:
        """With the ways from one more card to those there are."""
        joints = [links.of(one.candidate.gpu.uuid, other.candidate.gpu.uuid) for other in others]
        return _Way(
            max([self.longest, *(joint.nearest for joint in joints)]),
            self.together + sum(joint.nearest for joint in joints),
            self.by_bus + sum(joint.bus for joint in joints),
        )


def _grown(first: Verdict, pool: Sequence[Verdict], wanted: int, links: Links) -> _Group:
    taken, way = [first], _Way()
    while len(taken) < wanted:
        left = [one for one in pool if one not in taken]
        ways = [(way.and_to(one, taken, links), place) for place, one in enumerate(left)]
        way, place = min(ways)
        taken.append(left[place])
    ranks = [place for place, one in enumerate(pool) if one in taken]
    return _Group(taken, way, tuple(reversed(ranks)))
