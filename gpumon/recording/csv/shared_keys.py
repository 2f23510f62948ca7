"""Whether several GPUs, or the GPUs of several hosts, have one key in another program's log.

Two programs that log the same GPU into one file write equal names and nearly equal values. Rows
of two GPUs differ, again and again in the same way.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from gpumon.recording.csv.nvidia_smi import unknown_word
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_RETURNS, _OFTEN = 2, 0.25
"""How often a key goes back to a GPU it had before, and in which share of its rows, if several GPUs
have it: after a restart of the machine an index may be that of another GPU."""
_FEWEST_BURSTS = 6
_MOSTLY = 0.9
_UNEVEN = 1.2
"""How much longer than the shortest usual step the longest is in rows that come in groups."""
_DIFFERENCE = 0.02
"""Share by which two values must differ: programs that read one GPU see nearly the same."""
_MOST_PROGRAMS = 2
_SAMPLE_SECONDS = 0.002
"""Seconds from row to row in which nvidia-smi cannot have read a GPU again."""
_HOST_HEADINGS = frozenset(
    ("host", "hostname", "node", "nodename", "machine", "machinename", "server", "servername")
)
_MOST_NAMED = 8


def is_shared(
    walls: Sequence[float],
    identities: Sequence[tuple[str, ...]],
    values: Sequence[Sequence[float | None]],
    gap: float | None,
    precision: float,
) -> bool:
    """Whether rows with the same key are of several GPUs, or of too many programs to tell.

    Args:
        walls: The time of each row.
        identities: What never differs between rows of a GPU, such as its name.
        values: Its measurements.
        gap: Seconds between rows from which a sample begins, if the time shows it.
        precision: Seconds to which the times are known.
    """
    if _go_back(identities):
        return True
    if precision < 1 and _size(walls, gap) > _MOST_PROGRAMS:
        return True
    return _come_in_groups(walls) and any(
        _alternate(column) for column in zip(*values, strict=True)
    )


def _go_back(identities: Sequence[tuple[str, ...]]) -> bool:
    """Whether the rows go back again and again to a GPU that they had before."""
    known: list[str | None] = [None] * max(map(len, identities), default=0)
    seen: list[set[str]] = [set() for _ in known]
    returns = [0] * len(known)
    for identity in identities:
        for place, cell in enumerate(identity):
            if not cell or unknown_word(cell) is not None or cell.startswith("["):
                continue
            if known[place] not in (None, cell) and cell in seen[place]:
                returns[place] += 1
            known[place] = cell
            seen[place].add(cell)
    return any(count >= max(_RETURNS, _OFTEN * len(identities)) for count in returns)


def _size(walls: Sequence[float], gap: float | None) -> int:
    """The rows of most samples, if the time shows where these begin."""
    if gap is None:
        is_single = len(walls) > 1 and abs(walls[-1] - walls[0]) < _SAMPLE_SECONDS * len(walls)
        return len(walls) if is_single else 1
    sizes, size = Counter[int](), 1
    for before, after in pairwise(walls):
        if abs(after - before) > gap:
            sizes[size] += 1
            size = 0
        size += 1
    [(usual, count)] = sizes.most_common(1) or [(1, 0)]
    return usual if 2 * count > sizes.total() else 1


def _come_in_groups(walls: Sequence[float]) -> bool:
    """Whether every other step is longer than those between."""
    steps = [abs(after - before) for before, after in pairwise(walls)]
    halves = [sorted(steps[first::2]) for first in (0, 1)]
    if not all(halves):
        return False
    short, long = sorted(half[len(half) // 2] for half in halves)
    return long > _UNEVEN * short


def _alternate(column: Sequence[float | None]) -> bool:
    """Whether every other value is above both of those beside it, nearly always."""
    known = [
        (one - before, one - after, max(abs(before), abs(one), abs(after)))
        for before, one, after in zip(column, column[1:], column[2:], strict=False)
        if before is not None and one is not None and after is not None
    ]
    if len(known) < 2 * _FEWEST_BURSTS:
        return False
    signs = []
    for before, after, size in known:
        least = _DIFFERENCE * size
        if before > least and after > least:
            signs.append(1)
        elif before < -least and after < -least:
            signs.append(-1)
        else:
            signs.append(0)
    found = sum(one * other == -1 for one, other in pairwise(signs))
    return found >= _MOSTLY * (len(signs) - 1)


def host_place(texts: Sequence[str]) -> int | None:
    """The column of the host; ``None`` if there is none."""
    for place, text in enumerate(texts):
        if "".join(filter(str.isalpha, text.lower())) in _HOST_HEADINGS:
            return place
    return None


def several_hosts(heading: str, place: int, hosts: Iterable[str], delimiter: str) -> str:
    """That a file has several hosts, and how to split it, as the rest of a sentence."""
    names = [printable(host) for host in dict.fromkeys(hosts)]
    between = r"\t" if delimiter == "\t" else f"{delimiter} *"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    column, listed = f"${place + 1}", f"{', '.join(names[:_MOST_NAMED])}{more}"
    return (
        f"has rows of several hosts in its column {printable(heading)} ({listed}), each with GPUs"
        " of its own: write a file for each host, as in"
        f" awk -F'{between}' 'NR == 1 || {column} == \"{names[0]}\"' FILE > {names[0]}.csv"
    )
