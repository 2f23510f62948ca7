"""An alert as it is configured: when it tells something, and in which ways."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

EVENT_COOLDOWN = 1800.0
"""Seconds; the usual ``Alert.cooldown`` of events, and of GPUs that become free."""
STATE_COOLDOWN = 21600.0
"""Seconds; the usual ``Alert.cooldown`` of everything that lasts."""


class Bell(Struct, frozen=True):
    """The terminal's bell."""


class Desktop(Struct, frozen=True):
    """A notification of the terminal (OSC 9, 777 or 99)."""


class AlertCommand(Struct, frozen=True):
    """A program.

    Attributes:
        args: Its argument list; no shell is between.
    """

    args: tuple[str, ...]


WebhookFormat: TypeAlias = Literal["gpumon", "ntfy", "slack", "alertmanager"]
"""The forms of a webhook's body."""


class Webhook(Struct, frozen=True):
    """A JSON POST to a URL.

    Attributes:
        url: The URL.
        format: The form of the body.
        headers: Further headers.
    """

    url: str
    format: WebhookFormat = "gpumon"
    headers: Mapping[str, str] = {}


class Apprise(Struct, frozen=True):
    """A service that the library apprise knows.

    Attributes:
        url: Its URL.
    """

    url: str


Way = Bell | Desktop | AlertCommand | Webhook | Apprise


class Alert(Struct, frozen=True, kw_only=True):
    """An alert.

    Attributes:
        name: Its name.
        when: What it tells; ``parse_when`` reads it.
        ways: How it is told.
        lasting: Seconds for which it must hold before it is told (``for`` in the configuration).
        cooldown: Seconds in which the same is not told again. What begins in this time is told at
            its end if it still holds; an event is not told at all.
        ended: Whether the end is told too.
        commands: Whether command lines of processes are told.
    """

    name: str
    when: str
    ways: tuple[Way, ...] = ()
    lasting: float = 0.0
    cooldown: float = STATE_COOLDOWN
    ended: bool = False
    commands: bool = False


def in_terminal(alert: Alert) -> Alert:
    """The alert, told in no other way than in the terminal."""
    return replace(alert, ways=tuple(way for way in alert.ways if isinstance(way, (Bell, Desktop))))
