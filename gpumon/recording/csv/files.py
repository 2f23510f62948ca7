"""The file names of a log: what a path means, and which files belong together.

``run.csv`` has the GPUs and ``run.processes.csv`` the processes. Rotation moves both aside under
the next number, to ``run.part0001.csv`` and ``run.part0001.processes.csv``, then
``run.part0002.csv`` and so on: the highest is the newest. A tool such as logrotate that compresses
them adds ``.gz`` or ``.zst``.

A name like ``run.88123.csv``, which separates the logs of jobs, is not a rotated part.
"""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path

from msgspec import Struct

PACKED = (".gz", ".zst")
"""What the name of a compressed file ends in."""
MOST_PARTS = 10**9 - 1
"""The highest number of a part."""

_HOST_CHARACTERS = 64
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_NAME = re.compile(r"(.*?)(?:\.processes)?(?:\.csv(\.gz|\.zst)?)?", re.DOTALL)


class LogFiles(Struct, frozen=True):
    """The two files of a log, or of one rotated part of it."""

    gpus: Path  # the log itself
    processes: Path  # which may be missing


def default_name(host: str, time: float) -> str:
    """The default name from host and time: ``gpumon-ada-07-20260701-140327.csv``.

    Args:
        host: Name of the machine; the part after its first dot and characters that are unsafe in
            file names are left out.
        time: Seconds since the epoch; written as the local clock shows it.
    """
    short = _UNFIT.sub("-", host.partition(".")[0]).strip("-")[:_HOST_CHARACTERS]
    parts = ("gpumon", short, f"{datetime.fromtimestamp(time).astimezone():%Y%m%d-%H%M%S}")
    return "-".join(part for part in parts if part) + ".csv"


def log_path(asked: str | None, host: str, time: float) -> str:
    """The path of the log: as requested, or a default name in the requested directory.

    Args:
        asked: What was typed; ``None`` is this directory.
        host: Name of the machine.
        time: Seconds since the epoch.
    """
    if asked is None:
        return default_name(host, time)
    # Not Path.is_dir, which raises for a name that is too long.
    if asked.endswith(os.sep) or os.path.isdir(asked):  # noqa: PTH112 - as said above
        return os.path.join(asked, default_name(host, time))
    return asked


def log_files(path: str | os.PathLike[str]) -> LogFiles:
    """The files that a path stands for, existing or not.

    ``run``, ``run.csv`` and ``run.processes.csv`` all mean the same log. A compressed file, such as
    ``run.part0001.csv.gz``, means itself and the processes' file of the same form.
    """
    given = Path(path)
    stem, packed = _parsed(given.name)
    return LogFiles(
        given.parent / f"{stem}.csv{packed}", given.parent / f"{stem}.processes.csv{packed}"
    )


def log_to_read(path: str | os.PathLike[str]) -> LogFiles:
    """The log that a path means to a reader, existing or not.

    A rotated part means the whole log if the log's own file is beside it.
    """
    given = Path(path)
    files = log_files(given)
    if exists(given) and given not in (files.gpus, files.processes):
        # A user who redirects nvidia-smi's output to a file may give it any name.
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
    """The existing parts of a log, oldest first: the rotated parts, then the current files.

    Only parts with a GPU file are listed. The process file of a part is named even if it is
    missing. If a file exists both plain and compressed, the plain one is used.
    """
    directory = files.gpus.parent
    names = _names(directory)
    stem, _ = _parsed(files.gpus.name)
    found = []
    for middle in (*(_middle(number) for number in _numbers(stem, names)), ""):
        gpus = _form(f"{stem}{middle}.csv", names)
        # A crash in the middle of a rotation leaves one file under both names.
        if gpus is not None and not (middle and _is_same(directory / gpus, files.gpus)):
            plain = f"{stem}{middle}.processes.csv"
            found.append(LogFiles(directory / gpus, directory / (_form(plain, names) or plain)))
    return found


def numbered(files: LogFiles, number: int) -> LogFiles:
    """The names that rotation gives to the part with a number."""
    stem, _ = _parsed(files.gpus.name)
    return log_files(files.gpus.with_name(f"{stem}{_middle(number)}.csv"))


def part_numbers(files: LogFiles) -> list[int]:
    """The numbers in use, ascending: of parts, and of process files without their GPU file.

    Raises:
        OSError: When the directory cannot be read.
    """
    names = set(os.listdir(files.gpus.parent))  # noqa: PTH208 - names are what is compared
    return _numbers(_parsed(files.gpus.name)[0], names)


def forms(plain: Path) -> list[Path]:
    """A file's own name and its compressed forms, existing or not."""
    return [plain, *(plain.with_name(plain.name + ending) for ending in PACKED)]


def exists(path: Path) -> bool:
    """Whether anything exists at a path; False if the system rejects the path."""
    # Path.exists raises for a name that is too long and for a folder without permission.
    return os.path.exists(path)  # noqa: PTH110 - as said above


def _names(directory: Path) -> set[str]:
    """The contents of a directory; empty if it cannot be read."""
    try:
        return set(os.listdir(directory))  # noqa: PTH208 - names are what is compared
    except (OSError, ValueError):
        return set()


def _parsed(name: str) -> tuple[str, str]:
    """The name without its suffixes, and its compression."""
    match = _NAME.fullmatch(name)
    return (name, "") if match is None else (match[1], match[2] or "")


def _numbers(stem: str, names: set[str]) -> list[int]:
    # Only numbers in the form that rotation writes: the name of a part is rebuilt from its number.
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
