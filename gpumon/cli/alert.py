"""``gpumon alert``: list the alerts, or test one."""

from __future__ import annotations

import os
import platform
import sys
import time
from typing import TYPE_CHECKING

from gpumon.cli.common import take_output, take_settings
from gpumon.cli.messages import EXIT_FAILED, EXIT_USAGE, fail, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpumon.alerts.alert import Alert
    from gpumon.cli.help import MakeParser
    from gpumon.config import Settings


def add_options(command: MakeParser) -> None:
    """Add ``gpumon alert`` to the parser."""
    alert = command(
        description="List the alerts of the configuration, or send a test notification through "
        "each channel of an alert and print the results; the exit status is 1 if a channel failed. "
        "docs/alerts.md describes alerts.",
    )
    alert.add_argument(
        "what", metavar="list|test", choices=("list", "test"), help="what to do with them"
    )
    alert.add_argument("name", metavar="NAME", nargs="?", help="with test: the name of the alert")
    add_alert_file(alert)


def add_alert_file(parser: argparse.ArgumentParser) -> None:
    """Add ``--alerts`` to a parser."""
    parser.add_argument(
        "--alerts",
        metavar="FILE",
        help="read the [[alerts]] of this file, not those of the configuration",
    )


def alerts_of(
    options: argparse.Namespace, settings: Settings, *, terminal: bool
) -> Sequence[Alert] | str:
    """The valid alerts of ``--alerts`` or of the configuration, or why there are none.

    Mistakes are printed on standard error.
    """
    from gpumon.alerts.alert import read_alerts
    from gpumon.config import config_path

    tables, path = settings.alerts, config_path()
    if options.alerts is not None:
        from gpumon.config.reading import read_alert_file

        path = options.alerts
        loaded = read_alert_file(path)
        for error in loaded.errors:
            say(error.sentence)
        tables = loaded.settings.alerts
    found = read_alerts(tables, terminal=terminal)
    for error in found.errors:
        say(error.sentence)
    if not found.alerts:
        return (
            f"there is no alert in {path}: write a table [[alerts]] with a line such as "
            'when = "hot" into it; docs/alerts.md has examples.'
        )
    return found.alerts


def run(options: argparse.Namespace) -> int:
    """List the alerts, or test one; the exit status."""
    take_output(options, "table")
    found = alerts_of(options, take_settings(), terminal=True)
    if isinstance(found, str):
        return fail(found)
    alerts = {alert.name: alert for alert in found}
    if options.what == "list":
        if options.name is not None:
            return fail("list takes no name: it lists all alerts.", EXIT_USAGE)
        return _list(found)
    if options.name is None:
        return fail(f"test needs the name of an alert; there are {', '.join(alerts)}.", EXIT_USAGE)
    alert = alerts.get(options.name)
    if alert is None:
        from gpumon.config.suggestions import nearest_or_all

        return fail(
            f"there is no alert {options.name!r}; {nearest_or_all(options.name, alerts)}.",
            EXIT_USAGE,
        )
    return _test(alert)


def _list(alerts: Sequence[Alert]) -> int:
    from gpumon.text.formatting import printable

    for alert in alerts:
        sys.stdout.write(f"{printable(_in_words(alert))}\n")
    return 0


def _in_words(alert: Alert) -> str:
    """An alert on one line."""
    from gpumon.text.formatting import duration

    channels = ", ".join(channel.describe() for channel in alert.channels) or "only listed"
    parts = [f"when {alert.when}"]
    if alert.for_seconds:
        parts.append(f"for {duration(alert.for_seconds)}")
    parts.append(f"again after {duration(alert.cooldown)}")
    if alert.ended:
        parts.append("and its end")
    if alert.commands:
        parts.append("with command lines")
    return f"{alert.name}: {', '.join(parts)}: {channels}"


class _Terminal:
    """The terminal of this command; implements ``Terminal`` of the channels."""

    def bell(self) -> None:
        """Ring."""
        from gpumon.system.own_terminal import write_to_terminal
        from gpumon.text.notification import BELL

        write_to_terminal(BELL)

    def notify(self, title: str, text: str) -> None:
        """Show a notification."""
        from gpumon.system.own_terminal import write_to_terminal
        from gpumon.text.notification import notification

        write_to_terminal(notification(title, text, os.environ))


def _test(alert: Alert) -> int:
    """Send a notice through each channel of an alert; the exit status."""
    from gpumon.alerts.channels.channel import Attempt
    from gpumon.alerts.notice import test_notice
    from gpumon.text.formatting import printable

    if not alert.channels:
        sys.stdout.write("it has no do: it is only listed in the dashboard and by gpumon watch\n")
        return 0
    notice = test_notice(alert, platform.node(), time.time())
    failed = False
    for channel in alert.channels:
        failure = channel.failure(alert, notice, Attempt(_Terminal()))
        failed = failed or failure is not None
        result = "sent" if failure is None else f"failed: {failure.sentence}"
        sys.stdout.write(f"{printable(f'{channel.describe()}: {result}')}\n")
        sys.stdout.flush()
    return EXIT_FAILED if failed else 0
