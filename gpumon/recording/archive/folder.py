"""The files in the folder of an archive."""

from __future__ import annotations

import os
import re
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from gpumon.recording.archive.segment_format import EVENTS_SUFFIX, SUFFIX

if TYPE_CHECKING:
    from pathlib import Path

LOCK = "lock"
"""The name of the file that the writer locks."""
_NAME = re.compile(rf"(\d{{6,}})-\d{{8}}-\d{{6}}{re.escape(SUFFIX)}")


class SegmentFile(NamedTuple):
    """A segment in a folder, by its number: a later one has a higher number."""

    number: int
    path: Path

    @property
    def events(self) -> Path:
        """The file of its events, which may be missing."""
        return self.path.with_suffix(EVENTS_SUFFIX)


def segments_in(folder: Path) -> list[SegmentFile]:
    """The segments in a folder, oldest first.

    Raises:
        OSError: The folder cannot be read.
    """
    names = os.listdir(folder)  # noqa: PTH208 - names are what is compared
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    return sorted(SegmentFile(int(match[1]), folder / match[0]) for match in matches)


def segments_at(path: Path) -> list[SegmentFile]:
    """The segments in a folder, oldest first, or the only one that a file is.

    Raises:
        OSError: The path cannot be read.
    """
    return [SegmentFile(1, path)] if path.is_file() else segments_in(path)


def segment_path(folder: Path, number: int, time: float) -> Path:
    """The path of a new segment; its time, by the local clock, is for people."""
    return folder / f"{number:06}-{datetime.fromtimestamp(time).astimezone():%Y%m%d-%H%M%S}{SUFFIX}"
