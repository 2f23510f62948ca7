"""A log of two CSV files, as a recorder writes it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpumon.recording.csv.files import PACKED, log_files
from gpumon.recording.csv.opening import LogError, refuse_no_file, shown
from gpumon.recording.csv.rows import ONE_MACHINE, SEVERAL_MACHINES, GpuRows, ProcessRows
from gpumon.recording.csv.writer import LogWriter

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from gpumon.model.snapshot import Snapshot


class _Rows(NamedTuple):
    """What turns the snapshots of one machine into rows."""

    gpus: GpuRows
    processes: ProcessRows


class CsvLog:
    """A ``RecordedLog``: turns snapshots into rows, and writes them.

    Args:
        path: The log, with ``.csv`` or without.
        rotate: Start new files once one of the two is longer than this many bytes.
        keep: Number of rotated parts to keep; ``None`` keeps all.
        commands: Whether to write command lines, which can contain secrets.
        user: Write the processes of this user only; the GPUs are written in any case.
        several: Whether it is a log of several machines.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        rotate: int | None = None,
        keep: int | None = None,
        commands: bool = True,
        user: str | None = None,
        several: bool = False,
    ) -> None:
        self._asked = Path(path)
        files = log_files(path)
        self._files = files
        self._several = several
        self.path = files.gpus
        """The GPUs' file."""
        self._writer = LogWriter(files, rotate, keep, SEVERAL_MACHINES if several else ONE_MACHINE)
        self._commands, self._user = commands, user
        self._rows: dict[str | None, _Rows] = {}

    @property
    def files(self) -> str:
        """See ``RecordedLog.files``."""
        return f"{self._files.gpus} and {self._files.processes.name}"

    @property
    def advice(self) -> str:
        """See ``RecordedLog.advice``."""
        path = str(self.path)
        # A name that begins with a dash would be read as an option.
        file = shlex.quote(f"./{path}" if path.startswith("-") else path)
        which, by = (" --host NAME", " --by host") if self._several else ("", "")
        replay, report = f"gpumon replay {file}{which}", f"gpumon report {file}{by}"
        return f"see it again with: {replay}; sum it up with: {report}"

    def begin(self) -> None:
        """See ``RecordedLog.begin``."""
        if self.path.suffix in PACKED:
            raise LogError(f"{shown(self.path)} is compressed; name a log that ends in .csv.")
        refuse_no_file(self._asked)
        self._writer.ready()

    def write(self, snapshots: Mapping[str | None, Snapshot], elapsed: float) -> None:
        """See ``RecordedLog.write``."""
        try:
            if self._writer.ready():
                self._forget_lists()
            gpus, lists = [], []
            for name, snapshot in snapshots.items():
                rows = self._rows_of(name)
                gpus.append(rows.gpus.of(snapshot, elapsed))
                lists.append(rows.processes.of(snapshot, elapsed))
            self._writer.write(b"".join(gpus), b"".join(lists))
        except (OSError, LogError):
            self._forget_lists()
            raise

    def sync(self) -> None:
        """See ``RecordedLog.sync``."""
        self._writer.sync()

    def close(self) -> None:
        """See ``RecordedLog.close``."""
        self._writer.close()

    @property
    def bytes(self) -> int:
        """See ``RecordedLog.bytes``."""
        return self._writer.bytes

    @property
    def trouble(self) -> str | None:
        """See ``RecordedLog.trouble``."""
        return self._writer.trouble

    def _rows_of(self, name: str | None) -> _Rows:
        rows = self._rows.get(name)
        if rows is None:
            lists = ProcessRows(commands=self._commands, user=self._user, hostname=name)
            rows = self._rows[name] = _Rows(GpuRows(name), lists)
        return rows

    def _forget_lists(self) -> None:
        for rows in self._rows.values():
            rows.processes.forget()
