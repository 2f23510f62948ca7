"""Writes the two files of a log so that each sample is complete or absent.

Before each sample the writer checks whether both files are still the same files at their paths. So
one code path handles opening a log, continuing one, rotation, and files that were moved, removed or
emptied.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import os
import stat
from typing import TYPE_CHECKING

from gpumon.recording.csv.compression import head
from gpumon.recording.csv.files import MOST_PARTS, LogFiles, forms, numbered, part_numbers
from gpumon.recording.csv.opening import LogError, being_written, holder, lock, open_file, shown
from gpumon.recording.csv.tails import whole_gpus, whole_lists
from gpumon.recording.recording import RecordingError

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.recording.csv.rows import LogColumns

_HEADER_BYTES = 2**16
"""The longest first line that is looked at."""
_TRIES = 8
"""How often a file is opened that is not there any more once it is locked."""
_LINKLESS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system answers on which a file has one name only."""


class LogWriter:
    """Writes one log; locks it from ``ready`` to ``close``. For use by one thread.

    Args:
        files: Where to write.
        rotate: Rotate the files once either is longer than this many bytes; ``None`` means never.
        keep: Number of rotated parts to keep; ``None`` keeps all.
        columns: Those of the two files.
    """

    def __init__(
        self,
        files: LogFiles,
        rotate: int | None,
        keep: int | None,
        columns: LogColumns,
    ) -> None:
        self._files = files
        self._columns = columns
        self._gpu_header, self._process_header = columns.gpu_header, columns.process_header
        self._rotate = rotate
        self._keep = keep
        self._gpus: _File | None = None
        self._processes: _File | None = None
        self._at_new_place = False
        self.bytes = 0
        """Written so far to both files, headers included."""
        self.trouble: str | None = None
        """What goes wrong though samples are written: a sentence for a person."""

    def ready(self) -> bool:
        """Prepare for a sample: open, continue or create the files.

        Returns:
            Whether the next row will not follow the last written one.

        Raises:
            LogError: A file there must not be written to.
            OSError: A file cannot be opened.
        """
        gpus, processes = self._opened()
        if gpus.size is None or processes.size is None:
            self._settle(gpus, processes)
            self._at_new_place = True
            self.trouble = None
        at_new_place, self._at_new_place = self._at_new_place, False
        return at_new_place

    def write(self, gpus: bytes, processes: bytes) -> None:
        """Write all rows of a sample; if this raises, none is written. Call ``ready`` first.

        Raises:
            OSError: The rows cannot be written.
        """
        if self._gpus is None or self._processes is None:
            raise RuntimeError("the log is not open")
        try:
            # A list without its GPUs can be detected by its time, GPUs without their list cannot.
            self._processes.append(processes)
            self._gpus.append(gpus)
        except OSError:
            self._processes.undo()
            self._gpus.undo()
            raise
        self.bytes += self._processes.commit() + self._gpus.commit()
        if self._rotate is not None and self._rotate < max(
            self._gpus.size or 0, self._processes.size or 0
        ):
            self._begin_part(self._gpus, self._processes)

    def sync(self) -> None:
        """Wait until everything written is on the disk.

        Raises:
            OSError: The data cannot be synced.
        """
        for file in (self._processes, self._gpus):
            if file is not None:
                os.fsync(file.descriptor)

    def close(self) -> None:
        """Unlock the log. Files that were created and never written to are removed."""
        for file in (self._processes, self._gpus):
            if file is not None:
                file.discard()
        self._processes = self._gpus = None

    def _opened(self) -> tuple[_File, _File]:
        """Both files, reopened if other files are at their paths by now."""
        gpus = self._gpus
        if gpus is None or not gpus.look():
            gpus = self._claim()
            # The old file is released only now, so that the log is always locked.
            self._gpus, old = gpus, self._gpus
            if old is not None:
                old.close()
            self._finish_rotation(begun=not gpus.is_empty())
        processes = self._processes
        if processes is None or not processes.look():
            processes = _File(self._files.processes, self._process_header)
            self._processes, old = processes, self._processes
            if old is not None:
                old.close()
        return gpus, processes

    def _claim(self) -> _File:
        """Open the GPU file and lock it."""
        path = self._files.gpus
        for _ in range(_TRIES):
            file = _File(path, self._gpu_header)
            try:
                lock(file.descriptor, path)
                if file.look():
                    if file.is_empty():
                        self._check_rotated()
                    return file
            except BaseException:
                file.discard()
                raise
            file.close()
        raise LogError(f"{shown(path)} disappears as soon as it is created; choose another name.")

    def _check_rotated(self) -> None:
        """Check whether another writer has rotated the log and not yet started the next part.

        Raises:
            LogError: One has.
        """
        numbers = part_numbers(self._files)
        if not numbers:
            return
        part = numbered(self._files, numbers[-1]).gpus
        other = holder(part, but_not=None if self._gpus is None else self._gpus.descriptor)
        if other is not None:
            raise being_written(part, other)

    def _finish_rotation(self, *, begun: bool) -> None:
        """Complete a rotation that a killed writer left unfinished.

        Args:
            begun: Whether the GPU file has any content.
        """
        numbers = part_numbers(self._files)
        if not numbers:
            return
        part = numbered(self._files, numbers[-1])
        with contextlib.suppress(FileNotFoundError):
            if begun:
                # It had both names already and keeps the current one.
                if part.gpus.samefile(self._files.gpus):
                    part.gpus.unlink()
            elif part.gpus.exists():
                if not any(path.exists() for path in forms(part.processes)):
                    _move(self._files.processes, part.processes)
                elif part.processes.samefile(self._files.processes):
                    self._files.processes.unlink()

    def _settle(self, gpus: _File, processes: _File) -> None:
        """Truncate incomplete data, and write headers to empty files."""
        if gpus.is_of_other_columns() or processes.is_of_other_columns():
            self._move_aside(gpus, processes)
            gpus, processes = self._opened()
        begun = gpus.is_empty()
        last = None
        if not begun:
            rows, columns = len(self._gpu_header), self._columns.gpus
            end, last = whole_gpus(gpus.descriptor, rows, gpus.length(), columns)
            gpus.cut(end)
        if not processes.is_empty():
            end = processes.length()
            # If the GPU file is new, the GPUs at the time of the last list are unknown.
            if not begun:
                rows, columns = len(self._process_header), self._columns.processes
                end = whole_lists(processes.descriptor, rows, end, columns, last)
            processes.cut(end)
        for file in (gpus, processes):
            if file.is_empty():
                self.bytes += file.begin()

    def _begin_part(self, gpus: _File, processes: _File) -> None:
        """Rotate. A failed rotation is retried; meanwhile samples go to the current files."""
        name = shown(self._files.gpus)
        try:
            self.sync()
            self._move_aside(gpus, processes)
        except OSError as error:
            self.trouble = f"{name} cannot be rotated ({error.strerror}) and grows on until it can."
            return
        # An error here recurs before the next sample, and is reported then.
        with contextlib.suppress(OSError, LogError):
            self._at_new_place = self.ready()
        try:
            self._remove_oldest()
        except OSError as error:
            self.trouble = f"Old parts of {name} cannot be removed ({error.strerror})."

    def _move_aside(self, gpus: _File, processes: _File) -> None:
        numbers = part_numbers(self._files)
        number = numbers[-1] + 1 if numbers else 1
        if number > MOST_PARTS:
            raise OSError(errno.EOVERFLOW, f"no number follows {MOST_PARTS}")
        part = numbered(self._files, number)
        for file, to in ((gpus, part.gpus), (processes, part.processes)):
            if not file.is_empty():
                _move(file.path, to)

    def _remove_oldest(self) -> None:
        """Remove surplus parts, oldest first, but only those that certainly belong to this log."""
        if self._keep is None:
            return
        numbers = part_numbers(self._files)
        there = set(numbers)
        number = numbers[-1] if numbers else 0
        mine: list[list[Path]] = []
        while number in there:
            files = _files_of(numbered(self._files, number))
            if files is None:
                break
            mine.append(files)
            number -= 1
        for files in reversed(mine[self._keep :]):
            for path in files:
                path.unlink()


class _File:
    """One open file.

    Attributes:
        size: The length that is known to hold complete samples; ``None`` if unknown.
    """

    def __init__(self, path: Path, header: bytes) -> None:
        self.path = path
        self.descriptor, self._is_made_here = open_file(path)
        self.size: int | None = None
        self._header = header
        self._appended = 0
        status = os.fstat(self.descriptor)
        self._identity = (status.st_dev, status.st_ino)

    def look(self) -> bool:
        """Whether its path still leads to it; resets the size if another process changed it."""
        try:
            status = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        if status.st_size != self.size:
            self.size = None
        return (status.st_dev, status.st_ino) == self._identity

    def length(self) -> int:
        return os.fstat(self.descriptor).st_size

    def is_empty(self) -> bool:
        """Whether it contains at most a part of a header."""
        head = os.pread(self.descriptor, len(self._header), 0)
        return len(head) < len(self._header) and self._header.startswith(head)

    def is_of_other_columns(self) -> bool:
        """Whether it is a log of another gpumon version, or of one machine instead of several.

        Raises:
            LogError: It is not a log.
        """
        head = os.pread(self.descriptor, _HEADER_BYTES, 0)
        if head.startswith(self._header) or self.is_empty():
            return False
        if not _is_header(head):
            raise LogError(
                f"{shown(self.path)} is not a log of gpumon, so it stays unchanged; choose another"
                " name."
            )
        return True

    def begin(self) -> int:
        """Write the header to an empty file; returns the header's length."""
        self.cut(0)
        try:
            self.append(self._header)
        except OSError:
            self.undo()
            raise
        return self.commit()

    def cut(self, end: int) -> None:
        """Truncate it to this length, if it is longer."""
        if self.length() > end:
            os.ftruncate(self.descriptor, end)
        self.size = end

    def append(self, data: bytes) -> None:
        """Append data, in one call while there is space. It counts from ``commit`` on."""
        left = data
        while left:
            left = left[os.write(self.descriptor, left) :]
        self._appended = len(data)

    def commit(self) -> int:
        """Keep the appended data; returns its length."""
        appended, self._appended = self._appended, 0
        if self.size is not None:
            self.size += appended
        return appended

    def undo(self) -> None:
        """Remove the appended data, also if it is incomplete. If this fails, it is done later."""
        self._appended = 0
        size, self.size = self.size, None
        if size is not None:
            with contextlib.suppress(OSError):
                self.cut(size)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)

    def discard(self) -> None:
        """Close it; remove it if it was created here and nothing was written to it."""
        with contextlib.suppress(OSError):
            if self._is_made_here and not self.length() and self.look():
                self.path.unlink()
        self.close()


def _is_header(head: bytes) -> bool:
    """Whether the beginning of a file is the header of a log, with any columns."""
    line = head.partition(b"\n")[0].decode("utf-8-sig", errors="replace")
    try:
        cells = next(csv.reader([line]), [])
    except csv.Error:
        # Python up to 3.10 rejects zero bytes.
        return False
    return cells[:1] == ["timestamp"] and "gpumon_log" in [cell.strip() for cell in cells]


def _move(path: Path, to: Path) -> None:
    """Rename a file, unless the new name exists.

    Raises:
        OSError: It cannot be renamed; ``FileExistsError`` if the name exists.
    """
    # Renaming would replace an existing file.
    try:
        os.link(path, to, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _LINKLESS:
            raise
        if os.path.lexists(to):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), to) from None
        path.rename(to)
    else:
        path.unlink()


def _files_of(part: LogFiles) -> list[Path] | None:
    """The files of a part, in removal order; ``None`` if one may belong to another log."""
    there = [path for path in (*forms(part.processes), *forms(part.gpus)) if os.path.lexists(path)]
    return there if all(_is_mine(path) for path in there) else None


def _is_mine(path: Path) -> bool:
    """Whether a file is a log of this user that nobody is writing."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return False
    try:
        return _is_header(head(path, _HEADER_BYTES)) and holder(path) is None
    except (OSError, RecordingError):
        return False
