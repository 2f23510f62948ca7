"""Alerts and their ways in words."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpumon.alerts.alert import AlertCommand, Apprise, Bell, Desktop, Webhook
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from gpumon.alerts.alert import Alert, Way


def way_in_words(way: Way) -> str:
    """A way without its secrets: a URL can be one, so only its host is told."""
    if isinstance(way, Bell):
        return "bell"
    if isinstance(way, Desktop):
        return "desktop"
    if isinstance(way, AlertCommand):
        return f"command {way.args[0]}"
    if isinstance(way, Webhook):
        return f"webhook {urlsplit(way.url).hostname} ({way.format})"
    assert isinstance(way, Apprise)  # noqa: S101 - the last one
    return f"apprise {way.url.partition('://')[0]}"


def alert_in_words(alert: Alert) -> str:
    """An alert on one line."""
    ways = ", ".join(map(way_in_words, alert.ways)) or "only listed"
    parts = [f"when {alert.when}"]
    if alert.lasting:
        parts.append(f"for {duration(alert.lasting)}")
    parts.append(f"again after {duration(alert.cooldown)}")
    if alert.ended:
        parts.append("and its end")
    if alert.commands:
        parts.append("with command lines")
    return f"{alert.name}: {', '.join(parts)}: {ways}"
