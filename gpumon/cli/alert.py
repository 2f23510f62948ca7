"""``gpumon alert``: list the alerts, or test one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.option_groups import AlertFileOption, Option
from gpumon.cli.output import EXIT_FAILED, EXIT_USAGE, configure_output, fail, load_settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpumon.alerts.alert import Alert


class AlertCommand(Command):
    description = (
        "List the alerts of the configuration, or send a test notification through each channel of "
        "an alert and print the results; the exit status is 1 if a channel failed. docs/alerts.md "
        "describes alerts."
    )
    alerts = AlertFileOption()
    groups = (alerts,)
    options = (
        Option("what", metavar="list|test", choices=("list", "test"), help="what to do with them"),
        Option("name", metavar="NAME", nargs="?", help="with test: the name of the alert"),
    )

    def run(self, options: argparse.Namespace) -> int:
        configure_output(options, "table")
        found = self.alerts.open(options, load_settings(), terminal=True)
        if not found:
            return EXIT_FAILED
        alerts = {alert.name: alert for alert in found}
        if options.what == "list":
            if options.name is not None:
                return fail("list takes no name: it lists all alerts.", EXIT_USAGE)
            return _list(found)
        if options.name is None:
            return fail(
                f"test needs the name of an alert; there are {', '.join(alerts)}.", EXIT_USAGE
            )
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
        from gpumon.system.standard_output import write_to_terminal
        from gpumon.text.notification import BELL

        write_to_terminal(BELL)

    def notify(self, title: str, text: str) -> None:
        """Show a notification."""
        import os

        from gpumon.system.standard_output import write_to_terminal
        from gpumon.text.notification import notification

        write_to_terminal(notification(title, text, os.environ))


def _test(alert: Alert) -> int:
    """Send a notice through each channel of an alert; the exit status."""
    import platform
    import time

    from gpumon.alerts.channels.channel import Attempt
    from gpumon.alerts.notice import notice_of_test
    from gpumon.text.formatting import printable

    if not alert.channels:
        sys.stdout.write("it has no do: it is only listed in the dashboard and by gpumon watch\n")
        return 0
    notice = notice_of_test(alert, platform.node(), time.time())
    failed = False
    for channel in alert.channels:
        failure = channel.try_to_send(Attempt(alert, notice, _Terminal()))
        failed = failed or failure is not None
        result = "sent" if failure is None else f"failed: {failure.sentence}"
        sys.stdout.write(f"{printable(f'{channel.describe()}: {result}')}\n")
        sys.stdout.flush()
    return EXIT_FAILED if failed else 0
