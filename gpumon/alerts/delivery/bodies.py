"""The bodies of webhooks, and where they are posted.

ntfy: "Publish as JSON" of https://docs.ntfy.sh/publish/, with its priorities 1 to 5. Slack:
https://docs.slack.dev/messaging/formatting-message-text, which Mattermost and others take too.
Alertmanager: https://prometheus.io/docs/alerting/latest/alerts_api.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import msgspec

from gpumon.alerts.delivery.attempt import DeliveryError
from gpumon.alerts.delivery.facts import facts_of
from gpumon.findings.finding import Severity
from gpumon.text.formatting import shortened

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from gpumon.alerts.alert import Alert, Webhook
    from gpumon.alerts.notice import Notice

_MOST_OF_NTFY = 1000
"""Characters; ntfy makes a file of a message of more than 4,096 bytes."""
_PRIORITIES = {Severity.CRITICAL: 5, Severity.WARNING: 4}
_TAGS = {
    Severity.CRITICAL: "rotating_light",
    Severity.WARNING: "warning",
    Severity.GOOD: "white_check_mark",
}
_RESOLVE_SECONDS = 300.0
"""Alertmanager's own ``resolve_timeout``, as it comes."""
_MOST_SECONDS = 86400.0
"""How long a state stays active in Alertmanager if its end is told, but does not come."""


class Post(NamedTuple):
    """What is posted.

    Attributes:
        target: The path with the query.
        body: JSON.
    """

    target: str
    body: bytes


def post_of(webhook: Webhook, url: SplitResult, alert: Alert, notice: Notice) -> Post:
    """What is posted to a webhook.

    Args:
        webhook: The webhook.
        url: Its URL, parsed.
        alert: The alert.
        notice: The notice.

    Raises:
        DeliveryError: The URL does not fit the format.
    """
    path = url.path
    if webhook.format == "ntfy":
        # JSON goes to the folder of the topic.
        folder, _, topic = path.rstrip("/").rpartition("/")
        if not topic:
            raise DeliveryError("its URL has no topic: ntfy needs one, as in https://ntfy.sh/topic")
        path, value = f"{folder}/", _ntfy(unquote(topic), notice)
    elif webhook.format == "slack":
        value = _slack(notice)
    elif webhook.format == "alertmanager":
        value = [_alertmanager(alert, notice)]
    else:
        value = facts_of(notice)
    return Post(f"{path or '/'}{'?' if url.query else ''}{url.query}", msgspec.json.encode(value))


def _ntfy(topic: str, notice: Notice) -> object:
    facts = facts_of(notice)
    tag = _TAGS.get(notice.severity)
    return {
        "topic": topic,
        "title": facts["title"],
        "message": shortened(str(facts["sentence"]), _MOST_OF_NTFY),
        "priority": _PRIORITIES.get(notice.severity, 3),
        "tags": [] if tag is None else [tag],
    }


def _slack(notice: Notice) -> object:
    facts = facts_of(notice)
    return {"text": f"*{_slack_text(facts['title'])}*\n{_slack_text(facts['sentence'])}"}


def _slack_text(text: object) -> str:
    # Without these a text could mention a whole channel: <!channel>.
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _alertmanager(alert: Alert, notice: Notice) -> object:
    """One alert of Alertmanager.

    Its labels identify it, so the end has the same as the beginning: neither a severity, which is
    another one at the end, nor the GPUs of a process, which may change.
    """
    facts = facts_of(notice)
    about = ("pid", "user") if notice.pid is not None else ("gpu_index", "gpu_uuid")
    labels = {"alertname": facts["alert"], "source": "gpumon"} | {
        name: facts[name] for name in ("host", "key", *about)
    }
    annotations = {
        "summary": facts["title"],
        "description": facts["sentence"],
        "severity": facts["severity"],
        "command": facts["command"],
    }
    if notice.is_test:
        labels["test"] = "true"
    since = notice.at if notice.since is None else min(notice.since, notice.at)
    # gpumon tells it once, so Alertmanager must not take the silence for the end.
    lasting = _MOST_SECONDS if alert.ended else max(alert.cooldown, _RESOLVE_SECONDS)
    ends = notice.at if notice.ended else notice.at + lasting
    return {
        "labels": _texts(labels),
        "annotations": _texts(annotations),
        "startsAt": _rfc_3339(since),
        "endsAt": _rfc_3339(ends),
    }


def _texts(values: dict[str, str | float | bool | None]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value not in {None, ""}}


def _rfc_3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
