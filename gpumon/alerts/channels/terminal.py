"""The channels of the terminal in which gpumon runs: its bell, and desktop notifications."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpumon.alerts.channels.channel import Attempt, Channel, DeliveryError, Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpumon.alerts.alert import Alert
    from gpumon.alerts.notice import Notice


class _TerminalChannel(Channel, frozen=True):
    needs_terminal: ClassVar[bool] = True

    @classmethod
    def read(cls, table: Mapping[str, object], folder: Path) -> Channel:  # noqa: ARG003 - no options
        """See ``Channel.read``."""
        return cls()

    def send(self, alert: Alert, notice: Notice, attempt: Attempt) -> None:  # noqa: ARG002 - as above
        """See ``Channel.send``."""
        if attempt.terminal is None:
            raise DeliveryError("there is no terminal")
        self.show(attempt.terminal, notice)

    def show(self, terminal: Terminal, notice: Notice) -> None:
        """Show a notice in the terminal."""
        raise NotImplementedError


class Bell(_TerminalChannel, frozen=True):
    """The terminal's bell."""

    name: ClassVar[str] = "bell"
    about: ClassVar[str] = "the bell of the terminal; in the dashboard only"

    def show(self, terminal: Terminal, notice: Notice) -> None:  # noqa: ARG002 - a bell has no text
        """Ring."""
        terminal.bell()


class Desktop(_TerminalChannel, frozen=True):
    """A desktop notification by the terminal (OSC 9, 777 or 99)."""

    name: ClassVar[str] = "desktop"
    about: ClassVar[str] = "a notification by the terminal; in the dashboard only"

    def show(self, terminal: Terminal, notice: Notice) -> None:
        """Show its title and its sentence."""
        terminal.notify(notice.title, notice.sentence)
