"""What Slurm writes about generic resources (GRES), of which only GPUs and parts of them count.

An item is a name, often a type, and how many, followed by which in one of several forms::

    gpu:h100:2(IDX:0,3)      places in slurmd's list
    gpu:h100:0(IDX:N/A)      none
    gpu:h100(CNT:2)          not known which, as without files in gres.conf
    shard:3(3/4,0/4)         of each GPU in turn, how many of its shards; before 24.05 IDX
    mps:50(50/100,0/100)     likewise, in percent
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.allocations.host_lists import ranges_of, split_list

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_GPUS = 4096
"""Far more than one node has, MIG instances included."""

_NONE = ("", "IDX:N/A")
"""What stands in the brackets of an item of which there are none."""

_WHOLE = "gpu"
_SHARES = ("shard", "mps")

_OTHER = re.compile(r"(?:[A-Za-z0-9_.-]+[:(].*)?|\(null\)")
_COUNT = re.compile(r"[0-9]{1,9}")
_PART = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


class Gres(Struct, frozen=True):
    """What a job, or all jobs, have of the GPUs of one node.

    Attributes:
        count: How many GPUs; those of which it has only a part count, too. ``None``: not known.
        indices: Their places in slurmd's list of GPUs, ascending. ``None``: not known.
        is_share: Whether it has only parts of GPUs: shards, or percent of MPS.
    """

    count: int | None
    indices: tuple[int, ...] | None = None
    is_share: bool = False


NO_GPUS = Gres(0, ())


def gres_of(text: str) -> Gres:
    """The GPUs of a list of resources on one node.

    Args:
        text: The list, such as ``gpu:a100_3g.40gb:1(IDX:2),gpu:a100_1g.10gb:2(IDX:0-1)``.

    Returns:
        All of them together; nothing is known of a malformed list.
    """
    items = split_list(text, "(", ")")
    if items is None:
        return Gres(None)
    whole, shares = [], []
    for item in items:
        name = re.split(r"[:(]", item, maxsplit=1)[0]
        if name == _WHOLE:
            whole.append(_gpus(item))
        elif name in _SHARES:
            shares.append(_parts_of_gpus(item))
        elif not _OTHER.fullmatch(item):
            return Gres(None)
    found = [each for each in (*whole, *shares) if each.count != 0]
    is_share = bool(found) and all(each.count == 0 for each in whole)
    return _sum(found, is_share)


def gres_beyond(total: Gres, taken: Sequence[Gres], counted: Sequence[Gres]) -> Gres:
    """What is left of GPUs in use without those of known jobs.

    Args:
        total: All that are in use, whose number is known.
        taken: What each job has.
        counted: Of these what is in the total already, which may be older than a job.
    """
    places = [each.indices for each in taken if each.indices is not None]
    if total.indices is not None and len(places) == len(taken):
        left = sorted(set(total.indices).difference(*places))
        return Gres(len(left), tuple(left), total.is_share)
    count = (total.count or 0) - sum(each.count or 0 for each in counted if not each.is_share)
    return Gres(max(0, count), None, total.is_share)


def names_gpus(text: str) -> bool:
    """Whether a list of trackable resources or of GRES has GPUs or parts of them.

    Args:
        text: The list, such as ``cpu=2,node=1,gres/gpu=1`` or ``gpu:h100:4``.
    """
    names = (
        re.split(r"[:=(]", item.removeprefix("gres/"), maxsplit=1)[0] for item in text.split(",")
    )
    return any(name == _WHOLE or name in _SHARES for name in names)


def _sum(found: list[Gres], is_share: bool) -> Gres:
    count = 0
    indices: list[int] | None = []
    for each in found:
        if each.count is None:
            return Gres(None, is_share=is_share)
        count += each.count
        indices = None if indices is None or each.indices is None else [*indices, *each.indices]
    # A GPU is given away once: places that occur twice are of different lists.
    if count > _MOST_GPUS or (indices is not None and len(set(indices)) != len(indices)):
        return Gres(None, is_share=is_share)
    return Gres(count, None if indices is None else tuple(sorted(indices)), is_share)


def _gpus(item: str) -> Gres:
    """Whole GPUs, or MIG instances."""
    amount, details = _amount(item)
    if amount is None:
        return Gres(None)
    if amount == 0:
        return NO_GPUS if details in _NONE else Gres(None)
    if details.startswith("IDX:"):
        indices = _indices(details.removeprefix("IDX:"))
        # Not believed if it contradicts itself.
        return Gres(amount, indices) if indices and len(indices) == amount else Gres(None)
    return Gres(amount)


def _parts_of_gpus(item: str) -> Gres:
    """Shards or percent, whose amount says nothing about how many GPUs they are of."""
    amount, details = _amount(item)
    by_place = details.startswith("IDX:")
    indices = _indices(details.removeprefix("IDX:")) if by_place else _partly(details)
    if amount == 0:
        return NO_GPUS if details in _NONE or indices == () else Gres(None)
    return Gres(len(indices), indices) if amount is not None and indices else Gres(None)


def _amount(item: str) -> tuple[int | None, str]:
    """How many of it, and the text in brackets."""
    name, _, rest = item.partition("(")
    details, closing, after = rest.partition(")")
    if after or (not closing and "(" in item):
        return None, ""
    if details.startswith("CNT:"):
        return _number(details.removeprefix("CNT:")), ""
    return _number(name.rpartition(":")[2]), details


def _number(text: str) -> int | None:
    return int(text) if _COUNT.fullmatch(text) else None


def _indices(text: str) -> tuple[int, ...] | None:
    """The places in a list such as ``0,3-5``, ascending; ``None`` for any other text."""
    ranges = ranges_of(text)
    if ranges is None:
        return None
    indices: list[int] = []
    for _, first, last in ranges:
        # Slurm lists them in order, and none twice.
        if not (indices[-1] if indices else -1) < first <= last < _MOST_GPUS:
            return None
        indices += range(first, last + 1)
    return tuple(indices)


def _partly(text: str) -> tuple[int, ...] | None:
    """The places with a part that is not 0, in a list such as ``3/4,0/4``."""
    items = text.split(",")
    if len(items) > _MOST_GPUS:
        return None
    indices = []
    for place, item in enumerate(items):
        found = _PART.fullmatch(item)
        if found is None or int(found[1]) > int(found[2]):
            return None
        if int(found[1]):
            indices.append(place)
    return tuple(indices)
