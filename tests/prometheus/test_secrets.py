"""A password or a token reaches its server, and nobody else."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.config.settings import Prometheus
from gpumon.fleet.fleet import FleetError
from gpumon.prometheus.client import PrometheusClient, QueryError, read_endpoint
from tests.prometheus.hostile import HostileServer, answering
from tests.prometheus.hostile import http as answer

SECRET = "-".join(("open", "sesame", "4711"))
_EMPTY = answer(b'{"status":"success","data":{"result":[]}}')
_REFUSED = answer(b"", "401 Unauthorized")


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with answering(_EMPTY) as found:
        yield found


def ask(url: str, settings: Prometheus) -> None:
    client = PrometheusClient(read_endpoint(url, settings), 60.0)
    try:
        client.query("up")
    finally:
        client.close()


def sent(server: HostileServer) -> list[str]:
    """The last request's headers of authorization."""
    lines = server.requests[-1].split("\r\n")
    return [line for line in lines if line.lower().startswith("authorization:")]


def test_basic_authentication(server: HostileServer, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    url = server.url
    settings = Prometheus(url=url, user="ann", password_file=str(file))
    ask("", settings)
    pair = base64.b64encode(f"ann:{SECRET}".encode()).decode()
    assert sent(server) == [f"Authorization: Basic {pair}"]
    ask(f"{url}/", settings)
    assert sent(server)


def test_a_token_that_is_renewed(server: HostileServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    url = f"{server.url}/prometheus/"
    client = PrometheusClient(read_endpoint("", Prometheus(url=url, token_file=str(file))), 60.0)
    client.query("up")
    assert sent(server) == ["Authorization: Bearer first"]
    assert server.requests[-1].startswith("GET /prometheus/api/v1/query?query=up&")
    file.write_text("second")
    client.query("up")
    assert sent(server) == ["Authorization: Bearer second"]
    file.unlink()
    with pytest.raises(QueryError, match="cannot be read"):
        client.query("up")
    client.close()


def test_no_other_server_gets_it(server: HostileServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(SECRET)
    for url in ("http://127.0.0.1:9", f"https://127.0.0.1:{server.port}", "http://localhost"):
        ask(server.url, Prometheus(url=url, token_file=str(file)))
        assert sent(server) == []
    with pytest.raises(FleetError, match="no url"):
        ask(server.url, Prometheus(token_file=str(file)))


def test_no_text_has_it(server: HostileServer, tmp_path: Path) -> None:
    """Neither the sentence of a refusal, nor what a program prints that fails."""
    file = tmp_path / "token"
    url = server.url
    settings = Prometheus(url=url, token_file=str(file))
    file.write_text(SECRET)
    server.answer = _REFUSED
    with pytest.raises(QueryError) as refused:
        ask("", settings)
    assert "refuses the password or the token" in str(refused.value)
    texts = [repr(refused.value), repr(read_endpoint("", settings)), repr(refused.getrepr())]
    for broken in (f"{SECRET}\r\nX-Other: 1", f"{SECRET} more", f"{SECRET}\x1b"):
        file.write_bytes(broken.encode())
        with pytest.raises(FleetError, match=r"one line|has a space") as wrong:
            read_endpoint("", settings)
        texts.append(str(wrong.value))
    assert not any(SECRET in text for text in texts)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (f"http://ann:{SECRET}@prometheus:9090", "every user of this machine could read"),
        (f"http://{SECRET}@prometheus:9090", "every user of this machine could read"),
        (f"ftp://{SECRET}", "not a URL of http"),
        (f"http://prometheus:{SECRET}", "is not a URL"),
        (f"http://prometheus?token={SECRET}", r"has a \? or a #"),
        (f"http://[{SECRET}", "is not a URL"),
        (SECRET, "not a URL of http"),
        ("http://prometheus/a b", "characters that no URL has"),
        ("", "no url under"),
    ],
)
def test_a_url_that_cannot_be_used(url: str, expected: str) -> None:
    """No sentence repeats it: it may hold a password."""
    with pytest.raises(FleetError, match=expected) as wrong:
        read_endpoint(url, Prometheus())
    assert SECRET not in str(wrong.value)


def test_settings_that_contradict_each_other(tmp_path: Path) -> None:
    url = "http://prometheus:9090"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    large = tmp_path / "large"
    large.write_bytes(b"x" * 70_000)
    absent = str(tmp_path / "absent")
    for settings, expected in (
        (Prometheus(url=url, user="ann"), "no password_file"),
        (Prometheus(url=url, password_file=absent), "no user"),
        (Prometheus(url=url, user="ann", password_file=absent, token_file=absent), "keep one"),
        (Prometheus(url=url, user="a:b", password_file=absent), "has a colon"),
        (Prometheus(url=url, token_file=absent), "cannot be read: No such file"),
        (Prometheus(url=url, token_file=str(pipe)), "is not a regular file"),
        (Prometheus(url=url, token_file=str(large)), "is larger than 64 KiB"),
    ):
        with pytest.raises(FleetError, match=expected):
            read_endpoint("", settings)
