"""The archive of a machine: its snapshots of the last days, in bounded space on disk.

Users know it as the history of the machine: ``gpumon log --local`` keeps it, and the dashboard,
``report`` and programs find it by themselves. ``docs/history.md`` describes it.

A folder has a file for each hour, a ``Segment``. It holds every field of every snapshot, in the
form that a stream to another machine has (``model.codec``), compressed over a minute at a time.
A snapshot is whole or absent: a program that is killed leaves all that it wrote.
``docs/decisions/0007-history-on-disk.md`` has the figures.
"""

from gpumon.recording.archive.archive import GAP_SECONDS, Archive, ArchiveHistory
from gpumon.recording.archive.places import ArchivePlace, FoundArchive, find_archive, own_place
from gpumon.recording.archive.writer import ArchiveLog, Bounds

__all__ = [
    "GAP_SECONDS",
    "Archive",
    "ArchiveHistory",
    "ArchiveLog",
    "ArchivePlace",
    "Bounds",
    "FoundArchive",
    "find_archive",
    "own_place",
]
