"""Webhooks: what servers get, and that each failure is a sentence in bounded time and memory."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from gpumon.alerts.alert import Alert
from gpumon.alerts.channels.channel import Attempt
from gpumon.alerts.channels.webhook import Webhook
from gpumon.alerts.notice import Notice
from gpumon.findings.finding import Severity
from tests.alerts.sending import NOTICE, alert_with, failure, refusal
from tests.alerts.watching import http_server
from tests.exporter.certificates import Authority, authority
from tests.known import known
from tests.prometheus.hostile import answering, drip
from tests.prometheus.hostile import http as answer

__all__ = ["authority"]

SECRET = "s3cr3t-t0ken"  # noqa: S105 - nobody has it


def posted(
    form: str, notice: Notice = NOTICE, path: str = "/topic", alert: Alert | None = None
) -> tuple[str, Any, Mapping[str, str]]:
    with http_server() as (url, posts):
        channel = Webhook(f"{url}{path}", form, (("X-Token", SECRET),))
        channel.send(Attempt(alert or alert_with(channel), notice))
        (post,) = posts
    assert post.headers["X-Token"] == SECRET
    assert post.headers["Content-Type"] == "application/json"
    return post.path, json.loads(post.body), post.headers


def test_the_format_of_gpumon_has_all_values() -> None:
    path, body, headers = posted("gpumon", path="/a/b?c=d&e")
    assert path == "/a/b?c=d&e"
    assert headers["User-Agent"].startswith("gpumon/")
    assert body["schema"] == "gpumon.notice/1"
    assert (body["alert"], body["severity"], body["gpu_index"]) == ("broken", "critical", 3)
    again = posted("gpumon")[1]
    assert again["id"] == body["id"]
    other = posted("gpumon", replace(NOTICE, ended=True))[1]
    assert other["id"] != body["id"]


@pytest.mark.parametrize(
    ("severity", "priority", "tags"),
    [
        (Severity.CRITICAL, 5, ["rotating_light"]),
        (Severity.WARNING, 4, ["warning"]),
        (Severity.NOTE, 3, []),
        (Severity.GOOD, 3, ["white_check_mark"]),
    ],
)
def test_ntfy_gets_its_topic_and_a_priority(
    severity: Severity, priority: int, tags: list[str]
) -> None:
    notice = replace(NOTICE, severity=severity)
    for path, root in (("/my%20topic", "/"), ("/base/my%20topic/", "/base/")):
        assert posted("ntfy", notice, path)[:2] == (
            root,
            {
                "topic": "my topic",
                "title": NOTICE.title,
                "message": NOTICE.sentence,
                "priority": priority,
                "tags": tags,
            },
        )
    long = posted("ntfy", replace(NOTICE, sentence="日" * 5000))[1]
    assert len(long["message"].encode()) < 4096
    assert "has no topic" in (failure(Webhook("http://127.0.0.1:1", "ntfy")) or "")


def test_slack_gets_a_text_that_mentions_nobody() -> None:
    text = "*gpu-04 GPU 3: lost*\nGPU 3 (H100) of gpu-04: &lt;the driver&gt; cannot reach it &amp;"
    assert posted("slack")[1]["text"].startswith(text)


def test_alertmanager_gets_the_same_labels_at_the_beginning_and_at_the_end() -> None:
    (begun,) = posted("alertmanager", path="/api/v2/alerts")[1]
    ended = replace(
        NOTICE, at=NOTICE.at + 90, ended=True, severity=Severity.GOOD, title="no longer lost"
    )
    (over,) = posted("alertmanager", ended)[1]
    labels = {"alertname": "broken", "source": "gpumon", "host": "gpu-04"}
    labels |= {"key": "gpu:GPU-1a2b", "gpu_index": "3", "gpu_uuid": "GPU-1a2b"}
    assert begun["labels"] == over["labels"] == labels
    assert begun["annotations"] == {
        "summary": NOTICE.title,
        "description": NOTICE.sentence,
        "severity": "critical",
    }
    assert begun["startsAt"] == over["startsAt"] == "2023-11-14T22:12:20.000+00:00"
    assert begun["endsAt"] == "2023-11-14T23:13:20.250+00:00"
    assert over["endsAt"] == "2023-11-14T22:14:50.250+00:00"


def test_alertmanager_waits_for_an_end_that_is_reported() -> None:
    alert = replace(alert_with(), ended=True)
    (begun,) = posted("alertmanager", alert=alert)[1]
    assert begun["endsAt"] == "2023-11-15T22:13:20.250+00:00"
    of_process = replace(NOTICE, key="process:7:8", pid=7, user="ann", is_test=True)
    (sent,) = posted("alertmanager", of_process)[1]
    assert sent["labels"].keys() & {"gpu_index", "gpu_uuid"} == set()
    assert sent["labels"].items() >= {"pid": "7", "user": "ann", "test": "true"}.items()


_ANSWERS: dict[str, tuple[bytes | None, str | None, bool]] = {
    "200": (answer(b"ok"), None, False),
    "204": (answer(b"", "204 No Content"), None, False),
    "garbage in a success": (answer(b"\xff\0"), None, False),
    "302": (answer(b"", "302 Found", "Location: http://127.0.0.1:1/"), "it redirects", False),
    "400": (answer(b"no_text", "400 Bad Request"), "with status 400: no_text", False),
    "401": (answer(b"", "401 Unauthorized"), "refuses access (status 401): check", False),
    "404": (answer(b"<html>no", "404 Not Found"), "(status 404)", False),
    "429": (answer(b"", "429 Slow Down"), "it answers with status 429", True),
    "500": (answer(b'{"error":"a\\u001b[31mb"}', "500 Error"), "status 500: a�[31mb", True),
    "500 deep": (answer(b"[" * 100_000, "500 Error"), "it answers with status 500", True),
    "500 list": (answer(b"[1]", "500 Error"), "it answers with status 500", True),
    "ssh": (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP", True),
    "nothing": (None, "it closed the connection without an answer", True),
}


@pytest.mark.parametrize("kind", _ANSWERS)
def test_an_answer(kind: str) -> None:
    reply, expected, again = _ANSWERS[kind]
    with answering(reply) as server:
        error = refusal(Webhook(f"{server.url}/x"))
    if expected is None:
        assert error is None
        return
    assert expected in known(error).sentence
    assert len(known(error).sentence) < 400
    assert known(error).again is again


@pytest.mark.parametrize(
    "reply",
    [
        drip(b"HTTP/1.1 200 OK\r\n", b"X-Filler: 1\r\n"),
        drip(b"HTTP/1.1 500 Error\r\n\r\n", b" "),
        drip(b"", b""),
    ],
    ids=["headers", "error", "nothing"],
)
def test_an_endless_answer_is_given_up(
    reply: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Webhook, "seconds", 0.5)
    with answering(reply) as server:
        error = known(refusal(Webhook(server.url)))
    assert (error.sentence, error.again) == ("no answer within 0.5s", True)


@pytest.mark.parametrize(("status", "sentence"), [("200 OK", None), ("500 E", "status 500")])
def test_a_huge_answer_is_not_read(status: str, sentence: str | None) -> None:
    def flood(connection: socket.socket) -> None:
        connection.sendall(f"HTTP/1.1 {status}\r\n\r\n".encode())
        for _ in range(100):
            connection.sendall(b"\n" * 2**20)

    with answering(flood) as server:
        tracemalloc.start()
        try:
            reason = failure(Webhook(f"{server.url}/"))
            assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
        finally:
            tracemalloc.stop()
    assert reason is None if sentence is None else sentence in (reason or "")


def test_a_redirection_is_not_followed() -> None:
    with http_server() as (elsewhere, posts):
        moved = answer(b"", "307 Temporary Redirect", f"Location: {elsewhere}")
        with answering(moved) as server:
            reason = failure(Webhook(f"{server.url}/"))
    assert reason == ("it redirects (status 307), which gpumon does not follow: give the final URL")
    assert posts == []


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    assert "refuses connections" in (failure(Webhook(f"http://127.0.0.1:{port}/")) or "")
    assert "cannot be resolved" in (failure(Webhook("http://no-such-host.invalid/")) or "")


def test_tls_with_an_authority_of_ones_own(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.folder / "server.pem", authority.folder / "server.key")
    with answering(answer(b""), context) as server:
        channel = Webhook(f"https://127.0.0.1:{server.port}/")
        reason = failure(channel) or ""
        assert "its certificate is not trusted" in reason
        assert "SSL_CERT_FILE" in reason
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.folder / "ca.pem"))
        assert failure(channel) is None
    with answering(answer(b"")) as server:
        assert "TLS fails" in (failure(Webhook(f"https://127.0.0.1:{server.port}/")) or "")


def test_no_sentence_has_a_secret() -> None:
    echo = f"/services/{SECRET} {SECRET} us%40er:pass%21word us@er:pass!word q={SECRET}"
    pair = base64.b64encode(b"us@er:pass!word").decode()
    for body in (echo, json.dumps({"error": f"{echo} {pair}"}), " " * 60_000 + echo):
        with answering(answer(body.encode(), "500 Error")) as server:
            url = f"http://us%40er:pass%21word@127.0.0.1:{server.port}/services/{SECRET}?q={SECRET}"
            reason = failure(Webhook(url, headers=(("X-Token", SECRET),))) or ""
            assert "status 500: " in reason
            assert f"Authorization: Basic {pair}" in server.requests[0]
        for secret in (SECRET, "pass!word", "pass%21word", pair, "us@er"):
            assert secret not in reason


def test_the_users_own_authorization_takes_the_place_of_the_urls() -> None:
    with http_server() as (url, posts):
        with_user = url.replace("://", "://ann:pw@")
        channel = Webhook(
            with_user, headers=(("authorization", "Bearer x"), ("content-type", "a/b"))
        )
        assert failure(channel) is None
    headers = {name.lower(): value for name, value in posts[0].headers.items()}
    assert (headers["authorization"], headers["content-type"]) == ("Bearer x", "a/b")
    assert posts[0].path == "/"
