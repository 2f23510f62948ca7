"""The damaged lines of a log: counts them, and says how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.recording.csv.columns import GPU_COLUMNS, PROCESS_COLUMNS
from gpumon.recording.csv.files import exists
from gpumon.recording.csv.tables import Damage, samples
from gpumon.recording.recording import RecordingError
from gpumon.text.formatting import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from gpumon.recording.csv.files import LogFiles

_MOST_FILES = 8
"""Number of files whose damage is listed."""
_MESSAGE_CHARACTERS = 120
_SAMPLES = 100
"""Samples that are read between two pauses."""


def find_damage(parts: Iterable[LogFiles], pause: Callable[[], bool]) -> dict[Path, Damage] | None:
    """Count the damaged lines of each file of a log. Reads all files.

    Args:
        parts: The parts of the log.
        pause: Called now and then; whether to go on.

    Returns:
        The files with damaged lines; ``None`` if it was not to go on.
    """
    found = {}
    for part in parts:
        for path, columns, processes in (
            (part.gpus, GPU_COLUMNS, False),
            (part.processes, PROCESS_COLUMNS, True),
        ):
            damage = Damage()
            try:
                if not exists(path):
                    continue
                read = samples(path, columns, _nothing, processes=processes, damage=damage)
                for number, _ in enumerate(read):
                    if not number % _SAMPLES and not pause():
                        return None
            except RecordingError:
                # Showing the log tells it.
                continue
            if damage:
                found[path] = damage
    return found


def _nothing(*_: object) -> None:
    """The row of a line whose values are not needed."""


def damage_notes(damages: Mapping[Path, Damage], most: int = _MOST_FILES) -> list[str]:
    """What is wrong with the files of logs, in sentences for the user.

    Args:
        damages: The damage of each file, also of those without.
        most: Number of files that are named.
    """
    found = [(path, damage) for path, damage in damages.items() if damage]
    sentences = [printable(one) for each in found[:most] for one in _sentences(*each)]
    more = len(found) - most
    if more > 0:
        sentences.append(f"{counted(more, 'more file')} of these logs are damaged too.")
    return sentences


def _sentences(path: Path, damage: Damage) -> Iterator[str]:
    if damage.lines:
        lines = counted(damage.lines, "damaged line")
        first = "" if damage.lines == 1 else "the first is "
        yield f"{path} has {lines}, {first}line {damage.first}; unreadable values count as unknown."
    if damage.impossible:
        lines = counted(damage.impossible, "line")
        first = "" if damage.impossible == 1 else "the first is "
        yield (
            f"{path} has {lines} with values that no GPU can have, {first}line"
            f" {damage.first_impossible}; these values count as unknown."
        )
    if damage.unassigned:
        rows = counted(damage.unassigned, "row")
        first = "" if damage.unassigned == 1 else "the first is "
        yield (
            f"{path} has {rows} that may be of any GPU, {first}line {damage.first_unassigned}:"
            " others are missing there, so add index to the query."
        )
    if damage.unread:
        columns = "the column" if len(damage.unread) == 1 else "the columns"
        yield (
            f"{path}: gpumon does not know {columns} {', '.join(damage.unread)}; it reads the names"
            " of nvidia-smi --query-gpu."
        )
    if damage.first_message is not None:
        number, text = damage.first_message
        messages = counted(damage.messages, "message")
        first = "" if damage.messages == 1 else "the first "
        yield (
            f"{path} has {messages} of nvidia-smi among its rows, {first}in line {number}:"
            f" {text[:_MESSAGE_CHARACTERS]}"
        )
