"""Apprise, in a process of its own: the real library, and a real server."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from gpumon.alerts.channels.apprise import Apprise
from gpumon.alerts.channels.channel import Attempt, DeliveryError
from tests.alerts.sending import NOTICE, alert_with, failure, refusal
from tests.alerts.watching import http_server
from tests.exporter.exporting import wait_until
from tests.known import known
from tests.prometheus.hostile import answering, drip
from tests.prometheus.hostile import http as answer


@pytest.fixture
def installed() -> None:
    """Skips without the library."""
    pytest.importorskip("apprise", reason="the extra alerts is not installed")


@pytest.mark.usefixtures("installed")
def test_a_service_gets_the_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What lies in the folder of gpumon is not imported.
    (tmp_path / "apprise.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    with http_server() as (url, posts):
        assert failure(Apprise(f"json://{url.removeprefix('http://')}/hook")) is None
    (post,) = posts
    body = json.loads(post.body)
    assert post.path == "/hook"
    assert (body["title"], body["message"]) == (NOTICE.title, NOTICE.sentence)
    assert body["type"] == "failure"


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_what_fails_is_one_sentence_without_the_url() -> None:
    secret = "s3cr3t-t0ken"  # noqa: S105 - nobody has it
    for url in (f"nosuch://{secret}@host", secret):
        sentence = failure(Apprise(url)) or ""
        assert sentence.startswith("apprise does not support this URL")
        assert secret not in sentence
    with answering(answer(secret.encode(), "500 Error")) as server:
        url = f"json://user:{secret}@127.0.0.1:{server.port}/{secret}"
        error = known(refusal(Apprise(url)))
    assert error.sentence.startswith("apprise could not send it")
    assert error.again
    assert secret not in error.sentence


def test_without_the_library_the_sentence_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "apprise.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sentence = failure(Apprise("json://localhost"))
    assert "pip install '.[alerts]'" in (sentence or "")


@pytest.mark.usefixtures("installed")
def test_its_url_is_not_in_the_list_of_processes_and_it_ends_when_it_is_cancelled() -> None:
    secret, attempt = "s3cr3t-t0ken", Attempt(alert_with(), NOTICE)
    failed: list[str] = []

    def run(port: int) -> None:
        try:
            channel = Apprise(f"json://127.0.0.1:{port}/{secret}")
            channel.send(attempt)
        except DeliveryError as error:
            failed.append(error.sentence)

    def arguments() -> list[str]:
        return [
            path.read_bytes().decode()
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if is_child(path.parent)
        ]

    with answering(drip(b"", b"")) as server:
        thread = threading.Thread(target=run, args=(server.port,))
        thread.start()
        wait_until(lambda: server.requests, "its request")
        lines = arguments()
        assert any("import apprise" in line for line in lines)
        assert not any(secret in line for line in lines)
        attempt.cancel()
        thread.join(60)
    assert failed == ["gpumon ended before it was sent"]
    assert not any("import apprise" in line for line in arguments())


def is_child(folder: Path) -> bool:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid()
    except (OSError, IndexError):
        return False
