"""Starts and stops logging from the dashboard.

The recorder is imported only when a log is started, because most runs write none.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING

from gpumon.text.formatting import counted, duration, memory_size
from gpumon.ui.view.key_names import keycap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpumon.recording.csv.recorder import LogStatus, Recorder
    from gpumon.sampling.collector import Collector
    from gpumon.ui.view.header_footer import LogNote


class Logbook:
    """Starts a log, stops it, and reports its status.

    Args:
        collector: The source of samples; ``None`` for a replay, which is a log already.
        path: The path; by default a new file in the working directory each time.
        user: Log only the processes of this user.
        commands: Whether to log command lines, which may contain secrets.
    """

    def __init__(
        self,
        collector: Collector | None,
        path: str | None = None,
        user: str | None = None,
        *,
        commands: bool = True,
    ) -> None:
        self._collector = collector
        self._path = path
        self._user = user
        self._commands = commands
        self._recorder: Recorder | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._summaries: list[str] = []
        self._toggle_lock = Lock()

    @property
    def note(self) -> LogNote | None:
        """The status of the log for the header; ``None`` while none is written."""
        # Read once: another thread may stop the log meanwhile.
        recorder = self._recorder
        if recorder is None:
            return None
        from gpumon.ui.view.header_footer import LogNote

        status = recorder.status
        if status.trouble is not None:
            return LogNote(f"log: {counted(status.lost, 'sample')} lost", status.trouble)
        return LogNote(f"log {_size(status)} {duration(status.seconds)}")

    def begin(self) -> str | None:
        """Start the log that the command line requests, if any.

        Returns:
            Why it cannot be written, as a sentence; ``None`` if it can.
        """
        if self._path is None:
            return None
        from gpumon.recording.csv.opening import LogError

        try:
            self.start()
        except LogError as error:
            return str(error)
        return None

    def start(self) -> str:
        """Start a log. Returns a message with its path.

        Raises:
            LogError: It cannot be written.
        """
        if self._collector is None:
            return "this is a log already: nothing to log"
        from gpumon.recording.csv.files import log_path
        from gpumon.recording.csv.recorder import Recorder

        name = log_path(self._path, self._collector.hostname, time.time())
        recorder = Recorder(name, user=self._user, commands=self._commands)
        recorder.start()
        self._recorder = recorder
        self._unsubscribe = self._collector.subscribe(recorder.take)
        return f"logging to {_place(recorder.status.path)}; {keycap('log')} stops"

    def stop(self) -> str:
        """Stop the log. Returns a message with its path and size."""
        recorder, unsubscribe = self._recorder, self._unsubscribe
        if recorder is None or unsubscribe is None:
            return ""
        unsubscribe()
        self._recorder = self._unsubscribe = None
        status = recorder.stop()
        summary = f"logged {_amounts(status)}. To see them: gpumon replay {status.path}"
        self._summaries.append(summary)
        # The screen may be narrow, so the path comes first.
        return f"logged to {_place(status.path)}: {_amounts(status)}"

    def toggle(self) -> str:
        """Start a log, or stop the current one. Returns the message for the user.

        Blocks on the disk; parallel calls run one after another.
        """
        from gpumon.recording.csv.opening import LogError

        with self._toggle_lock:
            if self._recorder is not None:
                return self.stop()
            try:
                return self.start()
            except LogError as error:
                return str(error)

    def close(self) -> list[str]:
        """Stop the log. Returns a summary of each log, to be printed after the screen is gone."""
        with self._toggle_lock:
            self.stop()
        return self._summaries


def _place(path: Path) -> str:
    """The file name, and its folder if that is not the working directory."""
    folder = path.parent.resolve()
    return path.name if folder == path.cwd() else f"{path.name} in {folder}"


def _amounts(status: LogStatus) -> str:
    lost = f", {counted(status.lost, 'sample')} lost" if status.lost else ""
    return (
        f"{counted(status.samples, 'sample')} in {duration(status.seconds)}{lost}, {_size(status)}"
    )


def _size(status: LogStatus) -> str:
    return memory_size(status.bytes)
