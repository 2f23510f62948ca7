"""Cells with the accidents of a GPU, and the accidents of a sample from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gpumon.model.accidents import ACCIDENTS_KEPT, Accident

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.snapshot import Gpu, Snapshot

_CELL_CHARACTERS = 8000
"""The longest cell; the oldest accidents are left out."""
_decode = msgspec.json.Decoder(tuple[Accident, ...]).decode


def row_accidents(snapshot: Snapshot, gpu: Gpu) -> tuple[Accident, ...]:
    """The accidents in the row of a GPU; the first row has those of no listed GPU, too."""
    if not snapshot.accidents:
        return ()
    uuids = {gpu.uuid}
    if gpu is snapshot.gpus[0]:
        listed = {each.uuid for each in snapshot.gpus}
        uuids |= {str(accident.gpu_uuid) for accident in snapshot.accidents} - listed
    return tuple([accident for accident in snapshot.accidents if str(accident.gpu_uuid) in uuids])


def accidents_cell(accidents: Iterable[Accident]) -> str:
    """A JSON array with an array per accident: its fields in their order; ASCII only.

    Without any it is ``[]``: unknown is an empty cell, and every cell of the column is a text.
    """
    items: list[str] = []
    size = 2
    for accident in reversed(list(accidents)):
        # Escapes keep what acts on a terminal out of the file, and give the same text back.
        item = json.dumps(msgspec.to_builtins(accident), separators=(",", ":"))
        item = item.replace("\x7f", "\\u007f")
        size += len(item) + 1
        if size > _CELL_CHARACTERS:
            break
        items.insert(0, item)
    return f"[{','.join(items)}]"


def parse_accidents(cell: str) -> tuple[Accident, ...]:
    """The accidents of an ``accidents_cell``.

    Raises:
        ValueError: It is none.
    """
    try:
        return _decode(cell)[-ACCIDENTS_KEPT:]
    except (UnicodeError, RecursionError) as error:
        raise ValueError(cell) from error


def sample_accidents(
    rows: Iterable[tuple[Accident, ...] | None], late: float
) -> tuple[Accident, ...]:
    """The accidents of a sample, oldest first, from the cells of its rows.

    Args:
        rows: What the cells say; ``None`` is an empty cell.
        late: Seconds by which the recording's time is later than that of the cells.
    """
    found = {accident: None for row in rows if row for accident in row}
    if not found:
        return ()
    moved = [
        replace(accident, time=accident.time + late) if late else accident for accident in found
    ]
    return tuple(sorted(moved, key=lambda accident: accident.time)[-ACCIDENTS_KEPT:])
