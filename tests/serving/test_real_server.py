"""gpumon reads from a real server, llama.cpp's ``llama-server``, what clients sent to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.serving import ENGINES, client
from gpumon.serving.metrics_text import AnswerError, ServerReadings
from gpumon.serving.rates import Rates
from gpumon.serving.recognition import Recognised, recognise
from tests.command import run_program
from tests.driver import GIB, Driver, Owner, h100
from tests.known import known
from tests.lives import look
from tests.ports import Workload

from .real_server import SLOTS, RealServer, busy, real_server

LLAMA = ENGINES["llama.cpp"]


pytestmark = [pytest.mark.usefixtures("patient"), pytest.mark.slow]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    with real_server(tmp_path) as started:
        yield started


def readings(address: Workload, key: str | None = None) -> ServerReadings:
    return client.ask(LLAMA, address.host, address.port, key)


def test_its_command_line_names_its_model_and_its_port(server: RealServer) -> None:
    process = known(look(server.process.pid))
    assert recognise(process.command, {}) == Recognised(
        "llama.cpp", model=str(server.model), port=server.address.port
    )


def test_what_was_sent_is_counted(server: RealServer) -> None:
    assert readings(server.address) == ServerReadings(
        running=0, waiting=0, tokens=0, prompt_tokens=0
    )
    completions = [server.complete(37), server.complete(5, prompt="Hello")]
    assert [completion.tokens for completion in completions] == [37, 5]
    prompt_tokens = sum(completion.prompt_tokens for completion in completions)
    assert readings(server.address) == ServerReadings(
        running=0, waiting=0, tokens=42, prompt_tokens=prompt_tokens
    )


def test_rates_are_those_of_what_was_sent(server: RealServer) -> None:
    rates = Rates()
    rates.load(readings(server.address), 0.0)
    sent = server.complete(600)
    load = rates.load(readings(server.address), 10.0)
    assert (load.tokens, load.prompt_tokens) == (60, sent.prompt_tokens / 10)


def test_requests_wait_when_its_slots_are_taken(server: RealServer) -> None:
    with busy(server.address, SLOTS + 3):
        now = readings(server.address)
        assert (now.running, now.waiting) == (SLOTS, 3)
    now = readings(server.address)
    assert (now.running, now.waiting) == (0, 0)


def test_it_counts_the_tokens_of_a_request_only_when_that_has_finished(server: RealServer) -> None:
    live = LLAMA.tokens_while_generating
    rates = Rates()
    with busy(server.address, 1):
        before = readings(server.address)
        rates.load(before, 0.0, tokens_while_generating=live)
        unknown = rates.load(readings(server.address), 5.0, tokens_while_generating=live)
        server.complete(3)
        assert (before.tokens, unknown.tokens, unknown.is_idle) == (0, None, False)
    after = readings(server.address)
    assert after.tokens == 3, "cancelled requests count"
    load = rates.load(after, 10.0, tokens_while_generating=live)
    assert (load.tokens, load.running) == (0.3, 0)


def test_its_metrics_need_its_key(tmp_path: Path) -> None:
    with real_server(tmp_path, ["--metrics", "--api-key", "sesame"]) as server:
        with pytest.raises(AnswerError, match=r"^it needs a key$"):
            readings(server.address)
        assert readings(server.address, "sesame").running == 0


def test_its_metrics_are_off_by_default(tmp_path: Path) -> None:
    with (
        real_server(tmp_path, []) as server,
        pytest.raises(AnswerError, match=r"^its metrics are off: start it with --metrics$"),
    ):
        readings(server.address)


def test_a_snapshot_has_its_requests(server: RealServer) -> None:
    with busy(server.address, SLOTS + 1):
        (found,) = snapshot(server.process.pid)
    assert found == [server.process.pid, "llama.cpp tiny.gguf", SLOTS, 1]


def test_each_of_several_models_is_a_server_of_its_own(tmp_path: Path) -> None:
    with real_server(tmp_path, models=("large", "small")) as server:
        server.complete(3, model="large")
        server.complete(5, model="small")
        large, small = (server.workers()[model] for model in ("large", "small"))
        assert readings(large.address).tokens == 3
        assert readings(small.address).tokens == 5
        with busy(small.address, 1):
            found = snapshot(large.pid, small.pid)
    assert sorted(found) == sorted(
        [[large.pid, "llama.cpp large.gguf", 0, 0], [small.pid, "llama.cpp small.gguf", 1, 0]]
    )


def snapshot(*pids: int) -> list[list[object]]:
    """PID, server, and requests that run and that wait, of processes on a simulated GPU."""
    with Driver([h100(memory_used=72 * GIB)]) as driver:
        driver.cards[0].processes = [Owner(pid, memory=72 * GIB // len(pids)) for pid in pids]
        done = run_program([sys.executable, "-c", _SNAPSHOT], driver.env())
    assert done.returncode == 0, done.stderr
    found: list[list[object]] = json.loads(done.stdout)
    return found


_SNAPSHOT = """
import gpumon, json
# On a busy machine a snapshot does not wait for all answers.
for _ in range(20):
    processes = gpumon.snapshot().processes
    if all(each.load and not each.load.problem for each in processes):
        break
print(json.dumps([
    [each.id.pid, each.place.server.label, each.load.running, each.load.waiting]
    for each in processes
]))
"""
