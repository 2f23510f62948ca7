"""Whatever a server answers: one clear sentence, in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import os
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.config.settings import Prometheus
from gpumon.fleet.fleet import FleetError, HostStatus
from gpumon.prometheus.client import PrometheusClient, QueryError, read_endpoint
from tests.absent import ABSENT
from tests.exporter.certificates import Authority, authority
from tests.known import known
from tests.ports import free_place
from tests.prometheus.hostile import answering, drip
from tests.prometheus.hostile import http as answer
from tests.prometheus.server import open_fleet, wait_for

__all__ = ["authority"]

_SERIES = {"metric": {"__name__": "up", "job": "a"}, "value": [1.5, "1"]}
_WHOLE = json.dumps(
    {"status": "success", "data": {"resultType": "vector", "result": [_SERIES]}}
).encode()
_ZIPPED = gzip.compress(_WHOLE)
_GZIP = "Content-Encoding: gzip"


def _flood(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b" " * 2**20)


def _write(told: bytes) -> Callable[[socket.socket], None]:
    """Writes an answer, and then ends the connection."""
    return lambda connection: connection.sendall(told)


def ask(url: str, settings: Prometheus = Prometheus(), patience: float = 60.0) -> object:  # noqa: B008 - immutable
    client = PrometheusClient(read_endpoint(url, settings), patience)
    try:
        return client.query("up")
    finally:
        client.close()


def refusal(url: str, settings: Prometheus = Prometheus(), patience: float = 60.0) -> str:  # noqa: B008 - immutable
    with pytest.raises(QueryError) as refused:
        ask(url, settings, patience)
    assert str(refused.value).isprintable()
    assert refused.value.__cause__ is None
    return str(refused.value)


_BAD_ANSWERS: dict[str, tuple[bytes | Callable[[socket.socket], None] | None, str]] = {
    "500": (answer(b"", "500 Internal Server Error"), "it answers with status 500"),
    "503": (answer(b'{"status":"error","error":"no\\u001b[31m luck"}', "503 Busy"), "503: no"),
    "401": (answer(b"", "401 Unauthorized"), "it requires a password or a token"),
    "403": (answer(b"", "403 Forbidden"), "does not allow"),
    "404": (answer(b"", "404 Not Found"), "check the path"),
    "redirect": (
        answer(b"", "302 Found", "Location: http://elsewhere/"),
        "it redirects (status 302)",
    ),
    "html": (answer(b"<html>Log in</html>"), "not in the format of Prometheus"),
    "half": (answer(_WHOLE[:-9]), "not in the format of Prometheus"),
    "deep": (answer(b"[" * 100_000), "not in the format of Prometheus"),
    "numbers": (
        answer(b'{"status":"success","data":{"result":[{"metric":{"job":7}}]}}'),
        "not in the format of Prometheus",
    ),
    "error": (answer(b'{"status":"error","error":"bad"}'), "it refuses the query: bad"),
    "400": (
        answer(b'{"status":"error","error":"parse error: x"}', "400 Bad Request"),
        "it refuses the query: parse error: x; check --match",
    ),
    "cut": (_write(answer(_WHOLE)[:-9]), "was cut off"),
    "cut gzip": (answer(_ZIPPED[:-12], "200 OK", _GZIP), "was cut off"),
    "no gzip": (answer(b"no gzip", "200 OK", _GZIP), "was cut off"),
    "flood": (_flood, "larger than 64 MiB"),
    "bomb": (answer(gzip.compress(b" " * 100 * 2**20), "200 OK", _GZIP), "larger than 64 MiB"),
    "ssh": (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
    "nothing": (None, "closed the connection without an answer"),
}


@pytest.mark.parametrize("kind", _BAD_ANSWERS)
def test_a_bad_answer(kind: str) -> None:
    told, expected = _BAD_ANSWERS[kind]
    with answering(told) as server:
        assert expected in refusal(server.url)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "told",
    [
        drip(b"HTTP/1.1 200 OK\r\n", b"X-Filler: 1\r\n"),
        drip(b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        drip(b"", b""),
    ],
    ids=["headers", "body", "nothing"],
)
def test_an_endless_answer_is_given_up(told: Callable[[socket.socket], None]) -> None:
    with answering(told) as server:
        url = server.url
        assert refusal(url, patience=0.5) == "no answer within 0.5s"


@pytest.mark.slow
def test_a_flood_takes_no_memory() -> None:
    bomb = answer(gzip.compress(b" " * 2**28, compresslevel=1), "200 OK", _GZIP)
    with answering(bomb) as server:
        tracemalloc.start()
        try:
            refusal(server.url)
            assert tracemalloc.get_traced_memory()[1] < 200 * 2**20
        finally:
            tracemalloc.stop()


def test_nobody_listens() -> None:
    assert "refuses connections" in refusal(f"http://{free_place()}")
    assert "cannot be resolved" in refusal("http://no-such-host.invalid:9090")


def test_a_kept_connection_that_ended_is_made_anew() -> None:
    """Also gzip is asked for, and the connection kept."""
    with answering(answer(_ZIPPED, "200 OK", _GZIP)) as server:
        client = PrometheusClient(read_endpoint(server.url, Prometheus()), 60.0)
        for _ in range(2):
            (series,) = client.query("up")
            assert (series.metric.job, series.value) == ("a", (1.5, "1"))
        kept, server.answer = server.answer, _write(answer(_ZIPPED, "200 OK", _GZIP))
        assert client.query("up")
        server.answer = kept
        assert client.query("up")
        client.close()
        assert "Accept-Encoding: gzip" in server.requests[0]
        with pytest.raises(QueryError):
            client.query("up")


def test_tls_with_an_authority_of_ones_own(authority: Authority, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.folder / "server.pem", authority.folder / "server.key")
    with answering(answer(_WHOLE), context) as server:
        url = f"https://127.0.0.1:{server.port}"
        trusted = Prometheus(ca_file=str(authority.folder / "ca.pem"))
        assert ask(url, trusted)
        assert "is not trusted" in refusal(url)
    with answering(answer(_WHOLE)) as server:
        assert "TLS fails" in refusal(f"https://127.0.0.1:{server.port}", trusted)
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    os.mkfifo(pipe := tmp_path / "pipe")
    for name, expected in (
        (str(empty), "no certificates"),
        (ABSENT, "No such file"),
        (str(pipe), "is not a regular file"),
    ):
        with pytest.raises(FleetError, match=expected):
            read_endpoint("https://localhost", Prometheus(ca_file=name))


def test_a_dead_server_blocks_nobody_and_is_tried_again() -> None:
    with answering(drip(b"", b"")) as server:
        fleet = open_fleet(server.url, patience=0.5)
        try:
            name = f"127.0.0.1:{server.port}"
            latest = wait_for(
                fleet, lambda now: now.hosts[0].status is HostStatus.DOWN, "a sentence"
            )
            assert latest.hosts[0].name == name
            assert latest.hosts[0].sentence == "no answer within 0.5s"
            source = fleet.machine(name).source
            source.open()
            trouble = known(source.sample().trouble)
            assert "no answer" in trouble.sentence
            assert list(source.past()) == []
            asked = len(server.requests)
            server.answer = answer(b'{"status":"success","data":{"result":[]}}')
            wait_for(
                fleet, lambda now: "no metrics of GPUs" in now.hosts[0].sentence, "another sentence"
            )
            assert len(server.requests) > asked
        finally:
            fleet.close()


def test_a_fleet_closes_while_it_waits() -> None:
    """Not after the time limit, an hour here."""
    with answering(drip(b"", b"")) as server:
        fleet = open_fleet(server.url, patience=3600.0)
        deadline = time.monotonic() + 60
        while not server.requests:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert fleet.latest().hosts[0].status is HostStatus.CONNECTING
        threads = [one for one in threading.enumerate() if one.name == "gpumon-prometheus"]
        assert threads
        fleet.close()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert fleet.latest().hosts
