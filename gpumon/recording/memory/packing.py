"""Many snapshots in few bytes, and back again as they were.

Snapshots that follow one another differ little, and a field most of all resembles itself in the
sample before. So a block of them is laid out field by field, all values of a card or a process in a
row: what never changes is written once, numbers as differences, anything else once and then by its
number. Then it is deflated. Every value comes back equal to what it was.

Objects that several snapshots share, such as a list of processes that was read once for ten
samples, are kept once and are shared again afterwards.

Blocks never leave the process that made them, so what is no number may be pickled: that takes every
text that a command line can hold.
"""

from __future__ import annotations

import math
import pickle
import zlib
from array import array
from itertools import accumulate, chain, islice, starmap
from operator import attrgetter, eq, sub
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import astuple, replace

from gpumon.model.snapshot import Gpu, GpuProcess, GpuUse, HolderScan, Host, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    import msgspec

    _Column = tuple[Any, ...]
    """A word for how it is laid out, and what that takes: see ``_packed``."""
    _Mover = Callable[[Any], Any]

_Item = TypeVar("_Item")

_DEFLATION = 3
_WIDTHS = {width: 2 ** (array(width).itemsize * 8 - 1) for width in "bhiq"}
"""The types of ``array`` for whole numbers, the narrowest first, and how far they reach."""
_SCALES = (1000, 2**22)
"""The driver counts in thousandths, and a time of this century is a multiple of 2**-22 s."""
_LARGEST = 2.0**40
"""Larger ones are nothing that is measured here."""
_NESTED = ("gpus", "processes", "uses")
"""What has a table of its own."""


def packing(snapshots: Sequence[Snapshot]) -> Generator[None, None, bytes]:
    """Make a block of snapshots, at least one, for ``unpacked``; in steps of some milliseconds.

    Whoever samples cannot stay away for the whole of it.
    """
    lists, listed = _distinct([snapshot.processes for snapshot in snapshots])
    gpus, cards = _laid_out([snapshot.gpus for snapshot in snapshots], attrgetter("uuid"))
    tables = [_table(snapshots)]
    yield
    tables.append(_table(gpus))
    yield
    processes, members = _laid_out(lists, attrgetter("id.pid"))
    tables.append(_table(processes))
    yield
    uses = [process.uses for process in processes]
    tables.append(_table(list(chain.from_iterable(uses))))
    yield
    block = (*tables, cards, _packed(listed), members, _packed(list(map(len, uses))))
    return zlib.compress(pickle.dumps(block, pickle.HIGHEST_PROTOCOL), _DEFLATION)


def unpacked(block: bytes, shift: float = 0.0) -> list[Snapshot]:
    """The snapshots of a block.

    Args:
        block: What ``packing`` made.
        shift: Seconds to add to all times in them.
    """
    opened = pickle.loads(zlib.decompress(block))  # noqa: S301 - made by this very process
    heads, gpu_table, process_table, use_table, cards, listed, members, use_counts = opened
    movers = _movers(shift) if shift else {}
    uses = _made(GpuUse, use_table, movers)
    own_uses = _parted(uses, _unpacked(use_counts))
    processes = _made(GpuProcess, process_table, movers, uses=own_uses)
    gpus = _made(Gpu, gpu_table, movers)
    lists = _chosen(processes, members)
    return _made(
        Snapshot,
        heads,
        movers,
        gpus=_chosen(gpus, cards),
        processes=[lists[number] for number in _unpacked(listed)],
    )


def _movers(shift: float) -> dict[str, _Mover]:
    """What moves the times in a field, for each that has some."""

    def move(time: float | None) -> float | None:
        return None if time is None else time + shift

    def move_host(host: Host) -> Host:
        return replace(host, driver_since=move(host.driver_since))

    def move_scan(scan: HolderScan | None) -> HolderScan | None:
        return None if scan is None else replace(scan, at=scan.at + shift)

    times = ("time", "processes_at", "sampled_at", "status_since", "xid_at", "started_at")
    return {**dict.fromkeys(times, move), "host": move_host, "holders": move_scan}


def _distinct(items: Sequence[_Item]) -> tuple[list[_Item], list[int]]:
    """Each object once, in the order of coming; and which of them comes where."""
    ids = list(map(id, items))
    by_id = dict(zip(ids, items, strict=True))
    numbers = {item: number for number, item in enumerate(by_id)}
    return list(by_id.values()), list(map(numbers.__getitem__, ids))


def _laid_out(
    lists: Sequence[Sequence[_Item]], key: Callable[[_Item], Any]
) -> tuple[list[_Item], tuple[_Column, _Column]]:
    """What stands in any of the lists, sorted, and which of that stands in each."""
    items, numbers = _distinct(list(chain.from_iterable(lists)))
    order = sorted(range(len(items)), key=[key(item) for item in items].__getitem__)
    places = [0] * len(order)
    for place, number in enumerate(order):
        places[number] = place
    return [items[number] for number in order], (
        _packed(list(map(len, lists))),
        _packed([places[number] for number in numbers]),
    )


def _table(rows: Sequence[msgspec.Struct]) -> dict[str, _Column]:
    """Data of one type, column by column, but for what has a table of its own."""
    if not rows:
        return {}
    columns = zip(*map(astuple, rows), strict=True)
    return {
        field: _packed([None] * len(rows) if field in _NESTED else values)
        for field, values in zip(rows[0].__struct_fields__, columns, strict=True)
    }


def _made(
    kind: Callable[..., _Item],
    table: dict[str, _Column],
    movers: dict[str, _Mover],
    **nested: Sequence[Any],
) -> list[_Item]:
    columns = {field: _unpacked(column, movers.get(field)) for field, column in table.items()}
    return list(starmap(kind, zip(*(columns | nested).values(), strict=True)))


def _chosen(items: Sequence[_Item], packed: tuple[_Column, _Column]) -> list[tuple[_Item, ...]]:
    """Undoes ``_laid_out``."""
    lengths, places = map(_unpacked, packed)
    return _parted(map(items.__getitem__, places), lengths)


def _parted(items: Iterable[_Item], lengths: Iterable[int]) -> list[tuple[_Item, ...]]:
    left = iter(items)
    return [tuple(islice(left, length)) for length in lengths]


def _packed(values: Sequence[Any]) -> _Column:
    """A column, as short as it goes: the same all over, numbers, or whatever it is."""
    first = values[0] if values else None
    # Most columns that move are told by their last value, and need not be compared all through.
    if not values or (first == values[-1] and values.count(first) == len(values)):
        return "same", first, len(values)
    kinds = set(map(type, values))
    if type(None) in kinds and kinds & {int, float}:
        there = bytes([value is not None for value in values])
        return "gaps", there, _packed([value for value in values if value is not None])
    packed = None
    if kinds == {int}:
        packed = _whole_numbers(values)
    elif kinds == {float}:
        packed = _fractions(values)
    return packed or _things(values)


def _whole_numbers(values: Sequence[int]) -> _Column | None:
    """Steps from one to the next; ``None`` where one is too long for eight bytes."""
    steps = [values[0], *map(sub, values[1:], values)]
    lowest, highest = min(steps), max(steps)
    for width, reach in _WIDTHS.items():
        if -reach <= lowest and highest < reach:
            return "whole", width, _turned(array(width, steps))
    return None


def _fractions(values: Sequence[float]) -> _Column:
    # Of numbers that are none the sum is none either.
    scalable = math.isfinite(sum(values)) and max(map(abs, values)) < _LARGEST
    for scale in _SCALES if scalable else ():
        # Most that are of no scale are told by their first value.
        if round(values[0] * scale) / scale != values[0]:
            continue
        whole = [round(value * scale) for value in values]
        if all(map(eq, values, [number / scale for number in whole])):
            steps = _whole_numbers(whole)
            if steps is not None:
                return "scaled", scale, steps
    return "exact", _turned(array("d", values))


def _things(values: Sequence[Any]) -> _Column:
    """Each thing once, and which of them comes where."""
    try:
        # Equal ones may be different objects.
        items = list(dict.fromkeys(values))
        places = dict(zip(items, range(len(items)), strict=True))
        numbers = list(map(places.__getitem__, values))
    except TypeError:
        # Not to be told by value.
        items, numbers = _distinct(values)
    return "things", items, _packed(numbers)


def _unpacked(column: _Column, mover: _Mover | None = None) -> Sequence[Any]:
    match column:
        case "same", value, times:
            return [value if mover is None else mover(value)] * times
        case "gaps", there, packed:
            known = iter(_unpacked(packed, mover))
            return [next(known) if one else None for one in there]
        case "things", items, packed:
            if mover is not None:
                items = [mover(item) for item in items]
            return list(map(items.__getitem__, _unpacked(packed)))
    numbers = _numbers(column)
    return numbers if mover is None else [mover(number) for number in numbers]


def _numbers(column: _Column) -> Sequence[Any]:
    match column:
        case "whole", width, turned:
            return list(accumulate(_turned_back(width, turned)))
        case "scaled", scale, packed:
            return [number / scale for number in _numbers(packed)]
        case _, turned:
            return _turned_back("d", turned).tolist()
    raise AssertionError


def _turned(numbers: array[Any]) -> bytes:
    """All first bytes, then all second ones: what is alike stands together."""
    raw, width = numbers.tobytes(), numbers.itemsize
    return b"".join([raw[place::width] for place in range(width)])


def _turned_back(typecode: str, turned: bytes) -> array[Any]:
    numbers = array(typecode)
    width = numbers.itemsize
    count = len(turned) // width
    raw = bytearray(len(turned))
    for place in range(width):
        raw[place::width] = turned[place * count : (place + 1) * count]
    numbers.frombytes(raw)
    return numbers
