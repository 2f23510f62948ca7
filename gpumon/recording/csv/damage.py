"""What of a log is damaged, missing or repeated: finds it, and says so."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from gpumon.recording.csv.columns import GPU_COLUMNS, HOSTNAME, PROCESS_COLUMNS
from gpumon.recording.csv.files import exists
from gpumon.recording.csv.tables import Damage, samples
from gpumon.recording.recording import RecordingError
from gpumon.text.formatting import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from gpumon.recording.csv.files import LogFiles

_MOST_FILES = 8
"""Number of files whose damage is listed."""
_MESSAGE_CHARACTERS = 120
_SAMPLES = 100
"""Samples that are read between two pauses."""
_GPU = ("uuid", "pci_bus_id", "index", "hostname")
_USE = (
    *("pid", "started_at", "start_ticks"),
    *("gpu_uuid", "gpu_index", "gpu_instance", "compute_instance", "hostname"),
)
"""Fields that identify what a row of each file is about."""


def find_damage(parts: Iterable[LogFiles], pause: Callable[[], bool]) -> dict[Path, Damage] | None:
    """Find what is wrong with each file of a log. Reads all files.

    Args:
        parts: The parts of the log.
        pause: Called now and then; whether to go on.

    Returns:
        The files with anything to report; ``None`` if it was not to go on.
    """
    found = {}
    for part in parts:
        for path, columns, subject, processes in (
            (part.gpus, (*GPU_COLUMNS, HOSTNAME), _GPU, False),
            (part.processes, (*PROCESS_COLUMNS, HOSTNAME), _USE, True),
        ):
            places = [1 + place for place, column in enumerate(columns) if column.field in subject]
            damage = Damage()
            try:
                if not exists(path):
                    continue
                key = partial(_cells, itemgetter(*places))
                read = samples(path, columns, key, processes=processes, damage=damage)
                for number, rows in enumerate(read):
                    damage.repeated += len(rows) - len(set(rows))
                    if not number % _SAMPLES and not pause():
                        return None
            except RecordingError as error:
                damage.refusal = error.sentence
            if damage:
                found[path] = damage
    return found


def _cells(get: Callable[[Sequence[object]], object], *row: object) -> object:
    """Those cells of a row that identify what it is about."""
    return get(row)


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
    if damage.refusal:
        yield f"{damage.refusal.rstrip('.')}; what it has is left out."
    if damage.flaw:
        yield f"{path} {damage.flaw}."
    if damage.before:
        lines = counted(damage.before, "line")
        yield f"{path} has {lines} before the headings, which gpumon skips."
    if damage.lines:
        lines = counted(damage.lines, "damaged line")
        first = "" if damage.lines == 1 else "the first is "
        yield f"{path} has {lines}, {first}line {damage.first}; unreadable values count as unknown."
    if damage.repeated:
        rows = counted(damage.repeated, "row")
        yield f"{path} has {rows} twice in a sample, which count once."
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
    if damage.again:
        rows = counted(damage.again, "earlier sample")
        yield (
            f"{path} repeats {rows} from line {damage.first_again} on. They count twice: remove"
            " them if the file was appended to itself."
        )
    if damage.overlapping is not None:
        yield (
            f"{path} and {damage.overlapping} overlap in time and have no UUIDs, so GPUs of one"
            " index count as one GPU: if the files are of one host, this is right; report files of"
            " different hosts one by one."
        )
    if damage.first_message is not None:
        number, text = damage.first_message
        messages = counted(damage.messages, "message")
        first = "" if damage.messages == 1 else "the first "
        yield (
            f"{path} has {messages} of nvidia-smi among its rows, {first}in line {number}:"
            f" {text[:_MESSAGE_CHARACTERS]}"
        )
