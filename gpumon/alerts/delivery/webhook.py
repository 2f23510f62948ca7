"""Tells a notice by a POST."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

import msgspec

import gpumon
from gpumon.alerts.delivery.attempt import CUT, Attempt, DeliveryError
from gpumon.alerts.delivery.bodies import post_of
from gpumon.alerts.delivery.masking import said_safely

if TYPE_CHECKING:
    import ssl

    from gpumon.alerts.alert import Alert, Webhook
    from gpumon.alerts.notice import Notice

SECONDS = 2.0
"""How long a POST may take with everything."""
_PORTS = {"http": 80, "https": 443}
_SOON_BETTER = {408, 425, 429}
"""Statuses that mean: not now. So do those from 500 on."""


def post(
    webhook: Webhook, alert: Alert, notice: Notice, attempt: Attempt, seconds: float = SECONDS
) -> None:
    """Tell a notice.

    Args:
        webhook: Where to.
        alert: The alert.
        notice: The notice.
        attempt: Ends the connection when it is cut.
        seconds: How long it may take.

    Raises:
        DeliveryError: There was no answer, or it was no success.
    """
    # Imported here: only who has a webhook needs HTTP, and the import takes 20 ms.
    from gpumon.http.connection import HttpConnection, HttpError, HttpRequest

    url = _read_url(webhook.url)
    target, body = post_of(webhook, url, alert, notice)
    connection = HttpConnection(
        url.hostname or "",
        url.port or _PORTS[url.scheme],
        _context() if url.scheme == "https" else None,
        seconds,
        authority="the variable SSL_CERT_FILE",
    )
    headers = _headers(webhook, url)
    request = HttpRequest("POST", target, headers, body)
    try:
        with attempt.cut_by(connection.close):
            # What is answered to a success is of no interest.
            answer = connection.ask(request, 0)
    except HttpError as error:
        if attempt.is_cut:
            raise DeliveryError(CUT) from None
        raise DeliveryError(str(error), again=not error.lasting) from None
    finally:
        connection.close()
    if not answer.is_success:
        sent = {
            name: headers[name] for name in ("Authorization", *webhook.headers) if name in headers
        }
        secrets = (url.path, url.query, url.netloc.rpartition("@")[0], *sent.values())
        said = said_safely(_said(answer.body), secrets)
        again = answer.status >= 500 or answer.status in _SOON_BETTER
        raise DeliveryError(_refusal(answer.status) + (f": {said}" if said else ""), again=again)


def _read_url(text: str) -> SplitResult:
    """A URL.

    Raises:
        DeliveryError: It is none. The sentence does not repeat it: it may hold a password.
    """
    wrong = DeliveryError("its URL is not one with http:// or https://")
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise wrong from None
    if url.scheme not in _PORTS or not url.hostname or port == 0:
        raise wrong
    if not text.isascii() or not text.isprintable() or " " in text:
        raise DeliveryError("its URL has characters that no URL has")
    return url


def _context() -> ssl.SSLContext:
    """Certificates are checked, by the authorities of the system or of ``SSL_CERT_FILE``."""
    import ssl

    return ssl.create_default_context()


def _headers(webhook: Webhook, url: SplitResult) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"gpumon/{gpumon.__version__}",
        "Accept": "*/*",
        "Connection": "close",
    }
    if url.username is not None:
        pair = b":".join(unquote_to_bytes(part or "") for part in (url.username, url.password))
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    for name, value in webhook.headers.items():
        if not value.isascii() or not value.isprintable():
            raise DeliveryError(f"its header {name!a} has characters that no header may have")
        headers = {known: one for known, one in headers.items() if known.lower() != name.lower()}
        headers[name] = value
    return headers


def _refusal(status: int) -> str:
    if 300 <= status < 400:
        return f"it redirects (status {status}), which gpumon does not follow: give the final URL"
    if status in {401, 403}:
        return f"it refuses access (status {status}): check the token or the password"
    if status == 404:
        return "it does not know the path of the URL (status 404)"
    return f"it answers with status {status}"


def _said(body: bytes) -> str:
    """The error in the body of an answer; empty if it is a page for people."""
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        text = body.decode(errors="replace").strip()
        return "" if text.startswith("<") else text.partition("\n")[0]
    if isinstance(told, dict):
        told = told.get("error") or told.get("message")
    return told if isinstance(told, str) else ""
