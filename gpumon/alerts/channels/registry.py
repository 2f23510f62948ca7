"""All channels, and the list ``do`` of an alert, which names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.alerts.channels.apprise import Apprise
from gpumon.alerts.channels.command import Command
from gpumon.alerts.channels.terminal import Bell, Desktop
from gpumon.alerts.channels.webhook import Webhook
from gpumon.config.suggestions import did_you_mean
from gpumon.config.table import InvalidValue
from gpumon.config.toml_text import toml_key

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.alerts.channels.channel import Channel

CHANNELS: dict[str, type[Channel]] = {
    channel.name: channel for channel in (Bell, Desktop, Command, Webhook, Apprise)
}
"""The channels by name, in the order of the documents."""
EXAMPLES = tuple(channel.example() for channel in CHANNELS.values())
_ADVICE = f"give {', '.join(EXAMPLES[:-1])} or {EXAMPLES[-1]}"
_TABLES = tuple(name for name, channel in CHANNELS.items() if channel.example_value)


def read_channel(value: object, folder: Path) -> Channel:
    """Read an entry of ``do``; ``folder`` is that of the file, for paths in it.

    Raises:
        InvalidValue: It is not a channel, or a value of its table is invalid.
    """
    if isinstance(value, str):
        if value in CHANNELS and value not in _TABLES:
            return CHANNELS[value].read({}, folder)
        raise InvalidValue(f"{_ADVICE}{did_you_mean(value, CHANNELS)}")
    if not isinstance(value, dict):
        raise InvalidValue(_ADVICE)
    names = [name for name in _TABLES if name in value]
    if len(names) != 1:
        raise InvalidValue(f"{_ADVICE}{did_you_mean(next(iter(value), ''), _TABLES)}")
    (name,) = names
    channel = CHANNELS[name]
    for key in value:
        if key != name and key not in channel.keys:
            others = f"; there are {', '.join(channel.keys)}" if channel.keys else ""
            near = did_you_mean(key, channel.keys) or others
            raise InvalidValue(f"unknown key {toml_key(key)} of a {name}{near}")
    return channel.read(value, folder)
