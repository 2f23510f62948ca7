"""The children of the processes to terminate, and theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.host.process_host import target_of_relative

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.host.process_host import RelatedProcess, Target
    from gpumon.model.processes import GpuProcess


def descendants(
    roots: Sequence[Target], family: Iterable[RelatedProcess], listed: Iterable[GpuProcess]
) -> list[Target]:
    """The descendants of these processes, parents first.

    Args:
        roots: The processes.
        family: They with their relatives, parents first.
        listed: The processes on the GPUs, for the use of GPUs by descendants.
    """
    uses = {process.id: process.uses for process in listed}
    relatives = tuple(family)
    known = {relative.id for relative in relatives}
    places = {root.id.pid: root.place for root in roots if root.id in known}
    found = []
    for relative in relatives:
        if relative.parent in places:
            place = places.setdefault(relative.id.pid, places[relative.parent])
            found.append(target_of_relative(relative, uses.get(relative.id, ()), place))
    return found
