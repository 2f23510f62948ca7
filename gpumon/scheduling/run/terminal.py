"""The terminal that gpumon shares with the job it runs: who is at it, and in which mode it is."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    Modes = list[object]


class Terminal:
    """The controlling terminal, lent to a job and taken back. There may be none.

    Writing its state from the background takes a program that ignores ``SIGTTOU``.
    """

    def __init__(self) -> None:
        self._descriptor = -1
        with contextlib.suppress(OSError):
            self._descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        self._ours: Modes | None = None
        self._theirs: Modes | None = None
        self._lent_to: int | None = None

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.take_back()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def is_lent(self) -> bool:
        """Whether a job has it."""
        return self._lent_to is not None

    @property
    def foreground(self) -> int | None:
        """The process group that is at it; ``None`` where there is no terminal."""
        try:
            return os.tcgetpgrp(self._descriptor)
        except OSError:
            return None

    def lend(self, group: int) -> bool:
        """Let a job be at it, if we are; in the mode in which that job left it, if it did.

        Returns:
            Whether that was so.
        """
        if self._descriptor < 0 or self.foreground != os.getpgrp():
            return False
        self._ours = self._modes()
        self._set_modes(self._theirs)
        try:
            os.tcsetpgrp(self._descriptor, group)
        except OSError:
            return False  # the job has ended before it began
        self._lent_to = group
        return True

    def take_back(self) -> None:
        """Be at it again, in the mode in which it was. Does nothing where it was not lent."""
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
