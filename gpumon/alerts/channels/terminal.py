"""The channels of the terminal in which gpumon runs: its bell, and desktop notifications."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpumon.alerts.channels.channel import Channel

if TYPE_CHECKING:
    from gpumon.alerts.channels.channel import Attempt


class Bell(Channel, frozen=True):
    """The terminal's bell."""

    name: ClassVar[str] = "bell"
    about: ClassVar[str] = "the bell of the terminal; in the dashboard only"
    takes_table: ClassVar[bool] = False
    needs_terminal: ClassVar[bool] = True

    def send(self, attempt: Attempt) -> None:
        attempt.terminal.bell()


class Desktop(Channel, frozen=True):
    """A desktop notification by the terminal (OSC 9, 777 or 99)."""

    name: ClassVar[str] = "desktop"
    about: ClassVar[str] = "a notification by the terminal; in the dashboard only"
    takes_table: ClassVar[bool] = False
    needs_terminal: ClassVar[bool] = True

    def send(self, attempt: Attempt) -> None:
        attempt.terminal.notify(attempt.notice.title, attempt.notice.sentence)
