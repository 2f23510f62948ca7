"""The two files of a log as they are written: whole samples or nothing, whatever happens to them.

Before each sample is looked whether both files are still where and what they were. So opening a
log, continuing one, going on after rotation and after somebody moved, removed or emptied a file are
one and the same path through this code.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import os
import stat
from typing import TYPE_CHECKING

from gpumon.recording import RecordingError
from gpumon.recording.csv.compression import head
from gpumon.recording.csv.files import MOST_PARTS, LogFiles, forms, numbered, part_numbers
from gpumon.recording.csv.opening import LogError, being_written, holder, lock, open_file, shown
from gpumon.recording.csv.rows import GPU_HEADER, PROCESS_HEADER
from gpumon.recording.csv.tails import whole_cards, whole_lists

if TYPE_CHECKING:
    from pathlib import Path

_HEADER_BYTES = 2**16
"""The longest first line that is looked at."""
_TRIES = 8
"""How often a file is opened that is not there any more once it is locked."""
_LINKLESS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system answers on which a file has one name only."""


class LogWriter:
    """Writes one log; keeps it from other writers from ``ready`` to ``close``. For one thread.

    Args:
        files: Where to write.
        rotate: Move the files aside once either is longer than so many bytes; ``None`` is never.
        keep: How many of the parts moved aside are kept; ``None`` is all.
    """

    def __init__(self, files: LogFiles, rotate: int | None = None, keep: int | None = None) -> None:
        self._files = files
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
        """Make sure that a sample can follow: open the files, continue them or begin.

        Returns:
            Whether what was written last is not what the next row will follow.

        Raises:
            LogError: When something there must not be written to.
            OSError: When it cannot be.
        """
        gpus, processes = self._opened()
        if gpus.size is None or processes.size is None:
            self._settle(gpus, processes)
            self._at_new_place = True
            self.trouble = None
        at_new_place, self._at_new_place = self._at_new_place, False
        return at_new_place

    def write(self, gpus: bytes, processes: bytes) -> None:
        """Write the rows of a sample: all of them or, when this raises, none. ``ready`` goes first.

        Raises:
            OSError: When they cannot be written.
        """
        if self._gpus is None or self._processes is None:
            raise RuntimeError("the log is not open")
        try:
            # A list without its cards is known by its time, cards without their list by nothing.
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
        """Wait until all that was written is on the disk.

        Raises:
            OSError: When it does not get there.
        """
        for file in (self._processes, self._gpus):
            if file is not None:
                os.fsync(file.descriptor)

    def close(self) -> None:
        """Let go of the log. What was made and never written to is removed."""
        for file in (self._processes, self._gpus):
            if file is not None:
                file.discard()
        self._processes = self._gpus = None

    def _opened(self) -> tuple[_File, _File]:
        """Both files, opened again if others are at their paths by now."""
        gpus = self._gpus
        if gpus is None or not gpus.look():
            gpus = self._claim()
            # Only now the old one is let go: there is no moment at which the log is nobody's.
            self._gpus, old = gpus, self._gpus
            if old is not None:
                old.close()
            self._finish_rotation(begun=not gpus.is_empty())
        processes = self._processes
        if processes is None or not processes.look():
            processes = _File(self._files.processes, PROCESS_HEADER)
            self._processes, old = processes, self._processes
            if old is not None:
                old.close()
        return gpus, processes

    def _claim(self) -> _File:
        """Open the cards' file and keep it from others."""
        path = self._files.gpus
        for _ in range(_TRIES):
            file = _File(path, GPU_HEADER)
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
        raise LogError(f"{shown(path)} is moved away as soon as it is made; choose another name.")

    def _check_rotated(self) -> None:
        """Look whether another writer has moved the log aside and not yet begun the next part.

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
        """Put right what a writer left that ended in the middle of a rotation.

        Args:
            begun: Whether there is anything in the cards' file.
        """
        numbers = part_numbers(self._files)
        if not numbers:
            return
        part = numbered(self._files, numbers[-1])
        with contextlib.suppress(FileNotFoundError):
            if begun:
                # It had both names already and goes on under the one it had.
                if part.gpus.samefile(self._files.gpus):
                    part.gpus.unlink()
            elif part.gpus.exists():
                if not any(path.exists() for path in forms(part.processes)):
                    _move(self._files.processes, part.processes)
                elif part.processes.samefile(self._files.processes):
                    self._files.processes.unlink()

    def _settle(self, gpus: _File, processes: _File) -> None:
        """Cut off what is not whole in the files, and begin those that are empty."""
        if gpus.is_of_other_columns() or processes.is_of_other_columns():
            self._move_aside(gpus, processes)
            gpus, processes = self._opened()
        begun = gpus.is_empty()
        last = None
        if not begun:
            end, last = whole_cards(gpus.descriptor, len(GPU_HEADER), gpus.length())
            gpus.cut(end)
        if not processes.is_empty():
            lists, end = len(PROCESS_HEADER), processes.length()
            # Where the cards are new, what they were when the last list was written is unknown.
            processes.cut(whole_lists(processes.descriptor, lists, end, last) if not begun else end)
        for file in (gpus, processes):
            if file.is_empty():
                self.bytes += file.begin()

    def _begin_part(self, gpus: _File, processes: _File) -> None:
        """Rotate. What fails here is tried again: samples go where they can until then."""
        name = shown(self._files.gpus)
        try:
            self.sync()
            self._move_aside(gpus, processes)
        except OSError as error:
            self.trouble = f"{name} cannot be rotated ({error.strerror}) and grows on until it can."
            return
        # What goes wrong in this is met again before the next sample, and told then.
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
        """Remove the parts that are too many, as far down as they can only be this log's."""
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
    """One file, open.

    Attributes:
        size: Its length as far as it is known to hold whole samples; ``None`` while it is not.
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
        """Whether its path still leads to it; forgets the size where that was changed by others."""
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
        """Whether it holds nothing but perhaps the beginning of a header."""
        head = os.pread(self.descriptor, len(self._header), 0)
        return len(head) < len(self._header) and self._header.startswith(head)

    def is_of_other_columns(self) -> bool:
        """Whether it is a log by another version of gpumon.

        Raises:
            LogError: When it is no log at all.
        """
        head = os.pread(self.descriptor, _HEADER_BYTES, 0)
        if head.startswith(self._header) or self.is_empty():
            return False
        if not _is_header(head):
            raise LogError(
                f"{shown(self.path)} is no log of gpumon's, and is left as it is; choose another"
                " name."
            )
        return True

    def begin(self) -> int:
        """Write the header into an empty file; returns how many bytes it has."""
        self.cut(0)
        try:
            self.append(self._header)
        except OSError:
            self.undo()
            raise
        return self.commit()

    def cut(self, end: int) -> None:
        """Make it end there, where it is longer."""
        if self.length() > end:
            os.ftruncate(self.descriptor, end)
        self.size = end

    def append(self, data: bytes) -> None:
        """Write at the end, with one call as long as there is space. Counts from ``commit`` on."""
        left = data
        while left:
            left = left[os.write(self.descriptor, left) :]
        self._appended = len(data)

    def commit(self) -> int:
        """What was appended is to stay; returns how many bytes it has."""
        appended, self._appended = self._appended, 0
        if self.size is not None:
            self.size += appended
        return appended

    def undo(self) -> None:
        """What was appended goes again, also part of it. Where that fails, it is done later."""
        self._appended = 0
        size, self.size = self.size, None
        if size is not None:
            with contextlib.suppress(OSError):
                self.cut(size)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)

    def discard(self) -> None:
        """Close it; remove it where it was made here and nothing was written to it."""
        with contextlib.suppress(OSError):
            if self._is_made_here and not self.length() and self.look():
                self.path.unlink()
        self.close()


def _is_header(head: bytes) -> bool:
    """Whether the beginning of a file is the header of a log, with whatever columns."""
    line = head.partition(b"\n")[0].decode("utf-8-sig", errors="replace")
    try:
        cells = next(csv.reader([line]), [])
    except csv.Error:
        # Up to Python 3.10 it reads no zero bytes.
        return False
    return cells[:1] == ["timestamp"] and "gpumon_log" in [cell.strip() for cell in cells]


def _move(path: Path, to: Path) -> None:
    """Give a file another name, unless something has that already.

    Raises:
        OSError: It cannot be done; ``FileExistsError`` where something has the name.
    """
    # Renaming would take the place of what is there.
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
    """The files of a part, in the order to remove them; ``None`` where one may be another's."""
    there = [path for path in (*forms(part.processes), *forms(part.gpus)) if os.path.lexists(path)]
    return there if all(_is_mine(path) for path in there) else None


def _is_mine(path: Path) -> bool:
    """Whether a file is a log of this user's that nobody writes."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return False
    try:
        return _is_header(head(path, _HEADER_BYTES)) and holder(path) is None
    except (OSError, RecordingError):
        return False
