"""The terminal that gpumon shares with its job: the foreground group and the mode."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Modes = list[object]


class ControllingTerminal:
    """The controlling terminal, given to a job and taken back. There may be none.

    A program must ignore ``SIGTTOU`` to change the terminal from the background.
    """

    def __init__(self) -> None:
        self._descriptor = -1
        with contextlib.suppress(OSError):
            self._descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        self._ours: Modes | None = None
        self._theirs: Modes | None = None
        self._lent_to: int | None = None

    def __enter__(self) -> ControllingTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.take_back()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def is_lent(self) -> bool:
        """Whether the job has it."""
        return self._lent_to is not None

    @property
    def foreground(self) -> int | None:
        """The foreground process group; ``None`` without a terminal."""
        try:
            return os.tcgetpgrp(self._descriptor)
        except OSError:
            return None

    def lend(self, group: int) -> bool:
        """Put a job in the foreground if we are there, in the mode in which that job left it.

        Returns:
            Whether we were in the foreground.
        """
        if self._descriptor < 0 or self.foreground != os.getpgrp():
            return False
        self._ours = self._modes()
        self._set_modes(self._theirs)
        try:
            os.tcsetpgrp(self._descriptor, group)
        except OSError:
            return False  # The job has exited already.
        self._lent_to = group
        return True

    def take_back(self) -> None:
        """Return to the foreground, in the previous mode, if the job has the terminal."""
        if self._lent_to is None:
            return
        self._lent_to = None
        with contextlib.suppress(OSError):
            os.tcsetpgrp(self._descriptor, os.getpgrp())
        self._theirs = self._modes()
        if self._theirs != self._ours:
            self._set_modes(self._ours)

    def _modes(self) -> Modes | None:
        import termios

        try:
            return list(termios.tcgetattr(self._descriptor))
        except termios.error:
            return None

    def _set_modes(self, modes: Modes | None) -> None:
        import termios

        if modes is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, modes)  # type: ignore[arg-type]  # as they were read
