"""What the processes of a list hold of the cards."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpumon.availability import Listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model import GpuProcess


class Holding(Listed, frozen=True):
    """What the processes hold of one card.

    Attributes:
        hidden: How many are not visible to this host.
        owners: Users of the computing processes, who holds most first; ``None`` stands for the
            unknown owners of hidden ones.
        owner_since: When the first of the first owner's computing processes was first seen with a
            card.
    """

    hidden: int = 0
    owners: tuple[str | None, ...] = ()
    owner_since: float | None = None


def holdings(there: Iterable[tuple[GpuProcess, float]]) -> dict[str, Holding]:
    """What processes, each with when it was first seen, hold of every card."""
    on_card: dict[str, list[tuple[GpuProcess, float, int | None]]] = defaultdict(list)
    for process, first in there:
        parts: dict[str, int | None] = {}
        for use in process.uses:
            memory = parts.get(use.gpu_uuid, 0)
            if memory is not None:
                memory = None if use.memory_used is None else memory + use.memory_used
            parts[use.gpu_uuid] = memory
        for uuid, memory in parts.items():
            on_card[uuid].append((process, first, memory))
    return {uuid: _holding_of(here) for uuid, here in on_card.items()}


def _holding_of(here: list[tuple[GpuProcess, float, int | None]]) -> Holding:
    """What processes, each with when it was first seen and its bytes on a card, hold of it."""
    held: dict[str | None, int] = defaultdict(int)
    since: dict[str | None, float] = {}
    computing = total = hidden = 0
    known = True
    for process, first, memory in here:
        hidden += not process.visible
        if memory is None:
            known = False
        else:
            total += memory
        if process.type != "G":
            computing += 1
            held[process.user] += memory or 0
            since[process.user] = min(first, since.get(process.user, first))
    owners = tuple(sorted(held, key=lambda owner: (-held[owner], owner or "")))
    return Holding(
        processes=len(here),
        computing=computing,
        memory=total if known else None,
        hidden=hidden,
        owners=owners,
        owner_since=since[owners[0]] if owners else None,
    )
