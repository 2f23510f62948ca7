"""What a real ``llama-server`` reports, on which gpumon relies."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.screen import PATIENCE

from .real_server import SLOTS, RealServer, get, read_metrics, real_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.driver import Driver

RUNNING = "llamacpp:requests_processing"
WAITING = "llamacpp:requests_deferred"
TOKENS = "llamacpp:tokens_predicted_total"
PROMPT_TOKENS = "llamacpp:prompt_tokens_total"


def test_it_counts_what_was_sent(server: RealServer) -> None:
    before = server.metrics()
    assert {before[name] for name in (RUNNING, WAITING, TOKENS, PROMPT_TOKENS)} == {0}
    completions = [server.complete(37), server.complete(5, prompt="Hello")]
    assert [completion.tokens for completion in completions] == [37, 5]
    after = server.metrics()
    assert after[TOKENS] == 42
    assert after[PROMPT_TOKENS] == sum(completion.prompt_tokens for completion in completions)
    assert after[RUNNING] == after[WAITING] == 0


def test_requests_wait_when_its_slots_are_taken(server: RealServer) -> None:
    with server.busy(SLOTS + 3):
        busy = server.metrics()
        assert (busy[RUNNING], busy[WAITING]) == (SLOTS, 3)
    idle = server.metrics()
    assert idle[RUNNING] == idle[WAITING] == 0


def test_it_counts_the_tokens_of_a_request_only_when_that_has_finished(server: RealServer) -> None:
    with server.busy(1):
        server.complete(3)
        assert server.metrics()[TOKENS] == 3
    assert server.metrics()[TOKENS] == 3, "cancelled requests count"


def test_its_metrics_need_its_key(tmp_path: Path) -> None:
    with real_server(tmp_path, ["--metrics", "--api-key", "sesame"]) as server:
        assert get(server.address, "/metrics")[0] == 401
        status, text = get(server.address, "/metrics", key="sesame")
        assert (status, RUNNING in text) == (200, True)


def test_it_has_no_metrics_unless_it_was_started_with_them(tmp_path: Path) -> None:
    with real_server(tmp_path, []) as server:
        assert get(server.address, "/metrics")[0] == 501


def test_each_of_several_models_has_a_process_with_metrics_of_its_own(tmp_path: Path) -> None:
    with real_server(tmp_path, models=("large", "small")) as server:
        server.complete(3, model="large")
        server.complete(5, model="small")
        assert get(server.address, "/metrics")[0] == 400
        counted = {
            model: read_metrics(worker.address)[TOKENS]
            for model, worker in server.workers().items()
        }
    assert counted == {"large": 3, "small": 5}


def test_gpumon_sees_it_as_the_process_of_a_gpu(server: RealServer, driver: Driver) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpumon", "snapshot", "--format", "json"],
        env=driver.env(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    (process,) = json.loads(done.stdout)["processes"]
    assert process["pid"] == server.process.pid
    assert process["command"][0].endswith("/llama-server")
    assert process["command"][1:3] == ["--model", str(server.model)]
