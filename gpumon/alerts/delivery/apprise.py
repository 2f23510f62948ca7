"""Tells a notice by a service that the library apprise knows.

It runs in a process of its own: it is optional, takes some 45 MB and 150 ms, speaks to any server
in its own time, and can be killed. The URL is on the standard input of the process, since every
user of the machine can read its arguments.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import msgspec

from gpumon.alerts.delivery.attempt import Attempt, DeliveryError
from gpumon.alerts.delivery.facts import facts_of
from gpumon.alerts.delivery.masking import said_safely
from gpumon.alerts.delivery.program import run_program, status_in_words
from gpumon.findings.finding import Severity

if TYPE_CHECKING:
    from gpumon.alerts.alert import Apprise
    from gpumon.alerts.notice import Notice

SECONDS = 20.0
"""How long it may take."""
_ABSENT, _UNKNOWN_URL, _FAILED = 90, 91, 92
_TYPES = {
    Severity.CRITICAL: "failure",
    Severity.WARNING: "warning",
    Severity.GOOD: "success",
}
"""Apprise's own types of notices; https://appriseit.com/api/usage/."""
# The empty place to import from is the folder where it runs, with whatever is in it. The last line
# of what apprise logs is the reason of a failure.
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
told = services.notify(title=given["title"], body=given["body"], notify_type=given["type"])
sys.exit(0 if told else {_FAILED})
"""


def run_apprise(way: Apprise, notice: Notice, attempt: Attempt, seconds: float = SECONDS) -> None:
    """Tell a notice.

    Args:
        way: The service.
        notice: The notice.
        attempt: Kills the process when it is cut.
        seconds: How long it may take.

    Raises:
        DeliveryError: Apprise is not installed, does not know the URL, or failed.
    """
    if not sys.executable:
        raise DeliveryError("the Python that runs gpumon is unknown, and apprise needs it")
    facts = facts_of(notice)
    given = {
        "url": way.url,
        "title": facts["title"],
        "body": facts["sentence"],
        "type": _TYPES.get(notice.severity, "info"),
    }
    ended = run_program(
        (sys.executable, "-c", _PROGRAM),
        msgspec.json.encode(given),
        seconds,
        attempt,
        environment=os.environ,
    )
    if ended.status == 0:
        return
    if ended.status == _ABSENT:
        raise DeliveryError(
            "apprise is not installed: install it in a checkout with pip install '.[alerts]'"
        )
    secret = way.url.partition("://")[2] or way.url
    said = said_safely(ended.last_line, (secret,))
    if ended.status == _UNKNOWN_URL:
        raise DeliveryError("apprise does not know such a URL" + (f": {said}" if said else ""))
    if ended.status == _FAILED:
        raise DeliveryError("apprise could not send it" + (f": {said}" if said else ""), again=True)
    raise DeliveryError(status_in_words(ended._replace(last_line=said)))
