"""The log that a screen writes beside what it shows.

What writes it is imported when it is wanted: most runs write none.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING

from gpumon.layout.key_names import keycap
from gpumon.text import counted, duration, memory_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpumon.collector import Collector
    from gpumon.layout.chrome import LogNote
    from gpumon.log.recorder import LogStatus, Recorder


class Logbook:
    """Starts a log, stops it, and says how it stands.

    Args:
        collector: Whose samples are logged; ``None`` for a replay, which is a log already.
        path: Where to; a new file of its own in the working directory each time unless told.
        user: Log the processes of this user alone.
        commands: Whether to write command lines, which can hold secrets.
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
        self._told: list[str] = []
        self._turning = Lock()

    @property
    def note(self) -> LogNote | None:
        """How the log stands, while one is written."""
        # Once: the errand that ends a log is on another thread.
        recorder = self._recorder
        if recorder is None:
            return None
        from gpumon.layout.chrome import LogNote

        status = recorder.status
        if status.trouble is not None:
            return LogNote(f"log: {counted(status.lost, 'sample')} lost", status.trouble)
        return LogNote(f"log {_size(status)} {duration(status.seconds)}")

    def begin(self) -> str | None:
        """Begin the log that was asked for on the command line, if one was.

        Returns:
            Why it cannot be written, as a sentence.
        """
        if self._path is None:
            return None
        from gpumon.log.opening import LogError

        try:
            self.start()
        except LogError as error:
            return error.sentence
        return None

    def start(self) -> str:
        """Begin a log. Returns where it is written, as a sentence.

        Raises:
            LogError: It cannot be written.
        """
        if self._collector is None:
            return "this is a log already: nothing to log"
        from gpumon.log.naming import log_path
        from gpumon.log.recorder import Recorder

        name = log_path(self._path, self._collector.hostname, time.time())
        recorder = Recorder(name, user=self._user, commands=self._commands)
        recorder.start()
        self._recorder = recorder
        self._unsubscribe = self._collector.subscribe(recorder.take)
        return f"logging to {_place(recorder.status.path)}; {keycap('L')} stops"

    def stop(self) -> str:
        """End the log. Returns where it is and what it holds, as a sentence."""
        recorder, unsubscribe = self._recorder, self._unsubscribe
        if recorder is None or unsubscribe is None:
            return ""
        unsubscribe()
        self._recorder = self._unsubscribe = None
        status = recorder.stop()
        told = f"logged {_amounts(status)}. To see them: gpumon replay {status.path}"
        self._told.append(told)
        # The screen may be narrow, so where the log is comes first; what to type comes at the end.
        return f"logged to {_place(status.path)}: {_amounts(status)}"

    def turn(self) -> str:
        """Begin a log, or end the one there is. Returns what to tell the person.

        Waits for the disk. One that is asked for while another is under way comes after it.
        """
        from gpumon.log.opening import LogError

        with self._turning:
            if self._recorder is not None:
                return self.stop()
            try:
                return self.start()
            except LogError as error:
                return error.sentence

    def close(self) -> list[str]:
        """End the log. Returns what all of them hold, to be told when the screen is gone."""
        with self._turning:
            self.stop()
        return self._told


def _place(path: Path) -> str:
    """The file, and its folder where that is not the working directory."""
    folder = path.parent.resolve()
    return path.name if folder == path.cwd() else f"{path.name} in {folder}"


def _amounts(status: LogStatus) -> str:
    lost = f", {counted(status.lost, 'sample')} lost" if status.lost else ""
    return (
        f"{counted(status.samples, 'sample')} in {duration(status.seconds)}{lost}, {_size(status)}"
    )


def _size(status: LogStatus) -> str:
    return memory_size(status.bytes)
