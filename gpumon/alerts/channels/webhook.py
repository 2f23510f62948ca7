"""The channel ``webhook``: a POST of JSON.

ntfy: "Publish as JSON" of https://docs.ntfy.sh/publish/, with its priorities 1 to 5. Slack:
https://docs.slack.dev/messaging/formatting-message-text, which Mattermost and others take too.
Alertmanager: https://prometheus.io/docs/alerting/latest/alerts_api.
"""

from __future__ import annotations

import os
import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import SplitResult, unquote, unquote_to_bytes, urlsplit

import msgspec

import gpumon
from gpumon.alerts.channels.channel import CANCELLED, Channel, DeliveryError, masked
from gpumon.alerts.notice import as_json
from gpumon.config.suggestions import did_you_mean
from gpumon.config.table import InvalidValue
from gpumon.findings.finding import Severity
from gpumon.system.files import FileFault, read_secret_line
from gpumon.text.formatting import shortened

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpumon.alerts.alert import Alert
    from gpumon.alerts.channels.channel import Attempt
    from gpumon.alerts.notice import Notice, Values

    _Body = Callable[[Alert, Notice], Any]

_PORTS = {"http": 80, "https": 443}
_RETRIED_STATUSES = {408, 425, 429}
"""Statuses that mean: not now. So do those from 500 on."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_MOST_OF_NTFY = 1000
"""Characters; ntfy makes a file of a message of more than 4,096 bytes."""
_NTFY_PRIORITIES = {Severity.CRITICAL: 5, Severity.WARNING: 4}
_NTFY_TAGS = {
    Severity.CRITICAL: "rotating_light",
    Severity.WARNING: "warning",
    Severity.GOOD: "white_check_mark",
}
_RESOLVE_SECONDS = 300.0
"""Alertmanager's own default of ``resolve_timeout``."""
_MOST_SECONDS = 86400.0
"""How long a state stays active in Alertmanager if its end is reported, but does not arrive."""


class Webhook(Channel, frozen=True):
    """A POST of JSON to a URL."""

    name: ClassVar[str] = "webhook"
    example_value: ClassVar[str] = '"https://…"'
    about: ClassVar[str] = "a POST with JSON, to http or https"
    keys: ClassVar[tuple[str, ...]] = ("format", "headers", "header_files")
    seconds: ClassVar[float] = 2.0

    url: str
    format: str = "gpumon"
    """The form of the body, a key of ``_BODIES``."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers: names and values."""

    @classmethod
    def read(cls, table: Mapping[str, object], folder: Path) -> Channel:
        form = table.get("format", "gpumon")
        if not isinstance(form, str) or form not in _BODIES:
            *others, last = _BODIES
            near = did_you_mean(form, _BODIES)
            raise InvalidValue(f"its format is {', '.join(others)} or {last}{near}")
        headers = _headers(table.get("headers", {}), "headers")
        for name, path in _headers(table.get("header_files", {}), "header_files").items():
            headers[name] = _secret(folder / os.path.expanduser(path))  # noqa: PTH111 - Path's raises for an unknown user
        return cls(_url(table["webhook"]), form, tuple(headers.items()))

    def describe(self) -> str:
        return f"webhook {urlsplit(self.url).hostname} ({self.format})"

    def send(self, attempt: Attempt) -> None:
        # Imported here: most people have no webhook, and the import of HTTP takes 20 ms.
        from gpumon.http.connection import HttpConnection, HttpError, HttpRequest

        url = urlsplit(self.url)
        target, body = self._request(url, attempt)
        connection = HttpConnection(
            url.hostname or "",
            url.port or _PORTS[url.scheme],
            _tls() if url.scheme == "https" else None,
            self.seconds,
            authority="the variable SSL_CERT_FILE",
        )
        headers = self._headers(url)
        request = HttpRequest("POST", target, headers, body)
        try:
            with attempt.cancelled_by(connection.close):
                # The body of a success is not needed.
                answer = connection.ask(request, 0)
        except HttpError as error:
            if attempt.is_cancelled:
                raise DeliveryError(CANCELLED) from None
            raise DeliveryError(str(error), again=not error.lasting) from None
        finally:
            connection.close()
        if not answer.is_success:
            names = ("Authorization", *(name for name, _ in self.headers))
            sent = [headers[name] for name in names if name in headers]
            secrets = (url.path, url.query, url.netloc.rpartition("@")[0], *sent)
            reason = masked(_reason(answer.body), secrets)
            again = answer.status >= 500 or answer.status in _RETRIED_STATUSES
            sentence = _refusal(answer.status) + (f": {reason}" if reason else "")
            raise DeliveryError(sentence, again=again)

    def _request(self, url: SplitResult, attempt: Attempt) -> tuple[str, bytes]:
        """The path with the query, and the JSON."""
        path = url.path
        value = _BODIES[self.format](attempt.alert, attempt.notice)
        if self.format == "ntfy":
            # JSON goes to the folder of the topic.
            folder, _, topic = path.rstrip("/").rpartition("/")
            if not topic:
                raise DeliveryError(
                    "its URL has no topic: ntfy needs one, as in https://ntfy.sh/topic"
                )
            path, value = f"{folder}/", {"topic": unquote(topic), **value}
        target = f"{path or '/'}{'?' if url.query else ''}{url.query}"
        return target, msgspec.json.encode(value)

    def _headers(self, url: SplitResult) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"gpumon/{gpumon.__version__}",
            "Accept": "*/*",
            "Connection": "close",
        }
        if url.username is not None:
            from base64 import b64encode

            pair = b":".join(unquote_to_bytes(part or "") for part in (url.username, url.password))
            headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
        for name, value in self.headers:
            for known in [known for known in headers if known.lower() == name.lower()]:
                del headers[known]
            headers[name] = value
        return headers


# -- reading its table ---------------------------------------------------------------------------


def _url(value: object) -> str:
    advice = (
        "a webhook is a URL with http:// or https://, a host and, if any, a port from 1 to 65535"
    )
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise InvalidValue(advice)
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidValue(advice) from None
    if parts.scheme not in _PORTS or not host or port == 0:
        raise InvalidValue(advice)
    return value


def _headers(value: object, key: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
        _HEADER_NAME.fullmatch(name)
        and isinstance(text, str)
        and text.strip()
        and text.isprintable()
        and (key == "header_files" or text.isascii())
        for name, text in value.items()
    ):
        example = "secret" if key == "headers" else "/path/of/a/file"
        raise InvalidValue(f'{key} is a table of texts, such as {{ Authorization = "{example}" }}')
    return dict(value)


def _secret(path: Path) -> str:
    try:
        return read_secret_line(str(path))
    except FileFault as fault:
        raise InvalidValue(f"{path} {fault}") from None


# -- the bodies ----------------------------------------------------------------------------------


def _ntfy(_: Alert, notice: Notice) -> object:
    values, tag = as_json(notice), _NTFY_TAGS.get(notice.severity)
    return {
        "title": values["title"],
        "message": shortened(str(values["sentence"]), _MOST_OF_NTFY),
        "priority": _NTFY_PRIORITIES.get(notice.severity, 3),
        "tags": [] if tag is None else [tag],
    }


def _slack(_: Alert, notice: Notice) -> object:
    values = as_json(notice)
    return {"text": f"*{_slack_text(values['title'])}*\n{_slack_text(values['sentence'])}"}


def _slack_text(text: object) -> str:
    # Without these a text could mention a whole channel: <!channel>.
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _alertmanager(alert: Alert, notice: Notice) -> object:
    """An alert of Alertmanager.

    Its labels identify it, so the end has the same as the beginning: neither a severity, which
    changes at the end, nor the GPUs of a process, which may change.
    """
    values = as_json(notice)
    subject = ("pid", "user") if notice.pid is not None else ("gpu_index", "gpu_uuid")
    labels: Values = {"alertname": values["alert"], "source": "gpumon"}
    labels |= {name: values[name] for name in ("host", "key", *subject)}
    if notice.is_test:
        labels["test"] = "true"
    annotations: Values = {
        "summary": values["title"],
        "description": values["sentence"],
        "severity": values["severity"],
        "command": values["command"],
    }
    since = notice.at if notice.since is None else min(notice.since, notice.at)
    # gpumon sends it once, so Alertmanager must not take the silence for the end.
    active = _MOST_SECONDS if alert.ended else max(alert.cooldown, _RESOLVE_SECONDS)
    ends = notice.at if notice.ended else notice.at + active
    return [
        {
            "labels": _texts(labels),
            "annotations": _texts(annotations),
            "startsAt": _rfc_3339(since),
            "endsAt": _rfc_3339(ends),
        }
    ]


_BODIES: dict[str, _Body] = {
    "gpumon": lambda _, notice: as_json(notice),
    "ntfy": _ntfy,
    "slack": _slack,
    "alertmanager": _alertmanager,
}
"""The body of each format."""


def _texts(values: Values) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value not in {None, ""}}


def _rfc_3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


# -- the connection and its answer ---------------------------------------------------------------


def _tls() -> ssl.SSLContext:
    """Certificates are checked, by the authorities of the system or of ``SSL_CERT_FILE``."""
    import ssl

    return ssl.create_default_context()


def _refusal(status: int) -> str:
    if 300 <= status < 400:
        return f"it redirects (status {status}), which gpumon does not follow: give the final URL"
    if status in {401, 403}:
        return f"it refuses access (status {status}): check the token or the password"
    if status == 404:
        return "it does not know the path of the URL (status 404)"
    return f"it answers with status {status}"


def _reason(body: bytes) -> str:
    """The error in the body of an answer; empty if it is a page for people."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        text = body.decode(errors="replace").strip()
        return "" if text.startswith("<") else text.partition("\n")[0]
    if isinstance(value, dict):
        value = value.get("error") or value.get("message")
    return value if isinstance(value, str) else ""
