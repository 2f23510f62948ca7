"""The names of a log's files: what one path means, and which files belong together.

``run.csv`` has the cards and ``run.processes.csv`` the processes. Rotation moves both aside under
the next number, to ``run.part0001.csv`` and ``run.part0001.processes.csv``, then
``run.part0002.csv`` and so on: the highest is the newest. Whoever compresses those, as logrotate
would, adds ``.gz`` or ``.zst``.

A name like ``run.88123.csv``, by which somebody keeps the logs of jobs apart, is no part of a log.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from msgspec import Struct

PACKED = (".gz", ".zst")
"""What the name of a compressed file ends in."""
MOST_PARTS = 10**9 - 1
"""The highest number of a part."""

_NAME = re.compile(r"(.*?)(?:\.processes)?(?:\.csv(\.gz|\.zst)?)?", re.DOTALL)


class LogFiles(Struct, frozen=True):
    """The two files of a log, or of one rotated part of it.

    Attributes:
        gpus: The cards' file, the log itself.
        processes: The processes' file, which may be missing.
    """

    gpus: Path
    processes: Path


def log_files(path: str | os.PathLike[str]) -> LogFiles:
    """The files that a path stands for, whether they are there or not.

    ``run``, ``run.csv`` and ``run.processes.csv`` all mean the same log. A compressed file, such as
    ``run.part0001.csv.gz``, means itself and the processes' file of the same form.
    """
    given = Path(path)
    stem, packed = _parsed(given.name)
    return LogFiles(
        given.parent / f"{stem}.csv{packed}", given.parent / f"{stem}.processes.csv{packed}"
    )


def log_to_read(path: str | os.PathLike[str]) -> LogFiles:
    """The log that a path means to whoever reads it, whether it is there or not.

    A rotated part means the whole log, where the log's own file lies beside it.
    """
    given = Path(path)
    files = log_files(given)
    if exists(given) and given not in (files.gpus, files.processes):
        # Whoever sent nvidia-smi's words to a file may have called it anything.
        return files if given.is_dir() and exists(files.gpus) else _alone(given)
    stem, _ = _parsed(given.name)
    whole, _, part = stem.rpartition(".")
    names = _names(given.parent)
    is_part = f".{part}" in map(_middle, _numbers(whole, names))
    if is_part and _form(f"{whole}.csv", names) and not _numbers(stem, names):
        return log_files(given.with_name(f"{whole}.csv"))
    return files


def _alone(given: Path) -> LogFiles:
    return LogFiles(given, given.parent / f"{given.name}.processes.csv")


def parts(files: LogFiles) -> list[LogFiles]:
    """What is there of a log, oldest first: its rotated parts in their order, then its own files.

    Only what has a cards' file is listed. The processes' file of a part is named even where it is
    missing. Where a file is there both plain and compressed, it is the plain one.
    """
    directory = files.gpus.parent
    names = _names(directory)
    stem, _ = _parsed(files.gpus.name)
    found = []
    for middle in (*(_middle(number) for number in _numbers(stem, names)), ""):
        gpus = _form(f"{stem}{middle}.csv", names)
        # An end in the middle of a rotation leaves one file under both names.
        if gpus is not None and not (middle and _is_same(directory / gpus, files.gpus)):
            plain = f"{stem}{middle}.processes.csv"
            found.append(LogFiles(directory / gpus, directory / (_form(plain, names) or plain)))
    return found


def numbered(files: LogFiles, number: int) -> LogFiles:
    """The names that rotation gives to the part with a number."""
    stem, _ = _parsed(files.gpus.name)
    return LogFiles(
        files.gpus.with_name(f"{stem}{_middle(number)}.csv"),
        files.gpus.with_name(f"{stem}{_middle(number)}.processes.csv"),
    )


def part_numbers(files: LogFiles) -> list[int]:
    """The numbers in use, ascending: of parts, and of a processes' file without its cards' file.

    Raises:
        OSError: When the directory cannot be read.
    """
    names = set(os.listdir(files.gpus.parent))  # noqa: PTH208 - names are what is compared
    return _numbers(_parsed(files.gpus.name)[0], names)


def forms(plain: Path) -> list[Path]:
    """A file's own name and those of its compressed forms, whether there or not."""
    return [plain, *(plain.with_name(plain.name + ending) for ending in PACKED)]


def exists(path: Path) -> bool:
    """Whether there is anything at a path, which may be one that the system refuses."""
    # Path.exists raises for a name that is too long, and where a folder may not be looked into.
    return os.path.exists(path)  # noqa: PTH110


def _names(directory: Path) -> set[str]:
    """What lies in a directory; nothing where that cannot be told."""
    try:
        return set(os.listdir(directory))  # noqa: PTH208 - names are what is compared
    except (OSError, ValueError):
        return set()


def _parsed(name: str) -> tuple[str, str]:
    """The name without its endings, and what it is compressed with."""
    match = _NAME.fullmatch(name)
    return (name, "") if match is None else (match[1], match[2] or "")


def _numbers(stem: str, names: set[str]) -> list[int]:
    # Only numbers as rotation writes them: a part's name is made again from its number.
    part = re.compile(
        rf"({re.escape(stem)}\.part([0-9]{{4,9}}))(?:\.processes)?\.csv(?:\.gz|\.zst)?"
    )
    found = {(match[1], int(match[2])) for name in names if (match := part.fullmatch(name))}
    return sorted({number for name, number in found if number and name == stem + _middle(number)})


def _middle(number: int) -> str:
    return f".part{number:04}"


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _form(plain: str, names: set[str]) -> str | None:
    return next((name for ending in ("", *PACKED) if (name := plain + ending) in names), None)
