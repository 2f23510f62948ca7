"""The channel ``apprise``: a service that the library apprise knows.

It runs in a process of its own: it is optional, takes some 45 MB and 150 ms, speaks to any server
in its own time, and can be killed. The URL is on the standard input of the process, since every
user of the machine can read its arguments.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, ClassVar

import msgspec

from gpumon.alerts.channels.channel import Channel, DeliveryError, masked
from gpumon.alerts.channels.command import run_program, status_in_words
from gpumon.alerts.notice import as_json
from gpumon.config.table import InvalidValue
from gpumon.findings.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpumon.alerts.channels.channel import Attempt

_ABSENT, _UNKNOWN_URL, _FAILED = 90, 91, 92
_TYPES = {
    Severity.CRITICAL: "failure",
    Severity.WARNING: "warning",
    Severity.GOOD: "success",
}
"""Apprise's own types of notices; https://appriseit.com/api/usage/."""
# The empty entry of sys.path is the current folder, which may hold anything. The last line of the
# log of apprise is the reason of a failure.
_PROGRAM = f"""
import json, logging, sys
sys.path[:] = filter(None, sys.path)
given = json.loads(sys.stdin.buffer.read())
try:
    import apprise
except ImportError:
    sys.exit({_ABSENT})
logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s", force=True)
services = apprise.Apprise()
if not services.add(given["url"]):
    sys.exit({_UNKNOWN_URL})
sent = services.notify(title=given["title"], body=given["body"], notify_type=given["type"])
sys.exit(0 if sent else {_FAILED})
"""


class Apprise(Channel, frozen=True):
    """A service that the library apprise knows."""

    name: ClassVar[str] = "apprise"
    example_value: ClassVar[str] = '"…"'
    about: ClassVar[str] = (
        "a URL of [Apprise](https://github.com/caronc/apprise), which needs "
        "`pip install '.[alerts]'`"
    )
    seconds: ClassVar[float] = 20.0

    url: str

    @classmethod
    def read(cls, table: Mapping[str, object], folder: Path) -> Channel:  # noqa: ARG003 - it has no paths
        url = table["apprise"]
        if not isinstance(url, str) or "://" not in url or not url.isprintable():
            raise InvalidValue("apprise takes a URL, such as mailto://…")
        return cls(url)

    def describe(self) -> str:
        return f"apprise {self.url.partition('://')[0]}"

    def send(self, attempt: Attempt) -> None:
        if not sys.executable:
            raise DeliveryError("the Python that runs gpumon is unknown, and apprise needs it")
        values = as_json(attempt.notice)
        given = {
            "url": self.url,
            "title": values["title"],
            "body": values["sentence"],
            "type": _TYPES.get(attempt.notice.severity, "info"),
        }
        ended = run_program(
            (sys.executable, "-c", _PROGRAM),
            msgspec.json.encode(given),
            self.seconds,
            attempt,
            environment=os.environ,
        )
        if ended.status == 0:
            return
        if ended.status == _ABSENT:
            raise DeliveryError(
                "apprise is not installed: install it in a checkout with pip install '.[alerts]'"
            )
        secret = self.url.partition("://")[2] or self.url
        reason = masked(ended.last_line, (secret,))
        because = f": {reason}" if reason else ""
        if ended.status == _UNKNOWN_URL:
            raise DeliveryError(f"apprise does not support this URL{because}")
        if ended.status == _FAILED:
            raise DeliveryError(f"apprise could not send it{because}", again=True)
        raise DeliveryError(status_in_words(ended._replace(last_line=reason)))
