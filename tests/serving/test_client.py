"""A question to an inference server is bounded; its answers and rates are what can be true."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from gpumon.model.serving import ServerLoad
from gpumon.serving import ENGINES, client
from gpumon.serving.client import MOST_BYTES, PATIENCE, ask
from gpumon.serving.metrics_text import (
    AnswerError,
    ServerReadings,
    read_loaded_models,
    read_metrics,
)
from gpumon.serving.rates import Rates
from tests.serving.answers import DRIPS, FLOODS, HANGS
from tests.serving.fake_server import FakeServer, answer, ok, vllm_text

VLLM = ENGINES["vllm"]

pytestmark = pytest.mark.usefixtures("patient")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with FakeServer(tmp_path_factory.mktemp("server")) as running:
        yield running


def problem(server: FakeServer, engine: str = "vllm", key: str | None = None) -> str:
    with pytest.raises(AnswerError) as caught:
        ask(ENGINES[engine], server.host, server.port, key)
    return str(caught.value)


def test_an_answer_has_what_the_server_reports(server: FakeServer) -> None:
    server.answer(ok(vllm_text(3, 2, 0.985, 2000, 1000, 7)))
    assert ask(VLLM, server.host, server.port) == ServerReadings(
        3, 2, 7, 1000, 2000, 98.5, ("qwen",)
    )
    request = server.requests[-1]
    assert request.startswith("GET /metrics HTTP/1.1\r\n")
    assert "authorization" not in request.lower()


def test_the_key_is_sent_to_the_server(server: FakeServer) -> None:
    server.answer(ok(vllm_text()))
    ask(VLLM, server.host, server.port, "s3cret")
    assert "Authorization: Bearer s3cret\r\n" in server.requests[-1]


def test_trtllm_is_asked_at_the_path_that_takes_nothing_from_others(server: FakeServer) -> None:
    server.answer(ok("trtllm_num_requests_running 4\n"))
    assert ask(ENGINES["tensorrt-llm"], server.host, server.port).running == 4
    assert server.requests[-1].startswith("GET /prometheus/metrics HTTP/1.1\r\n")


def test_ollama_names_the_models_that_it_has_loaded(server: FakeServer) -> None:
    models = [{"name": "llama3.2:3b", "size_vram": 3}, {"name": "qwen3:8b"}]
    server.answer(ok(json.dumps({"models": models})))
    found = ask(ENGINES["ollama"], server.host, server.port)
    assert found == ServerReadings(models=("llama3.2:3b", "qwen3:8b"))
    assert server.requests[-1].startswith("GET /api/ps HTTP/1.1\r\n")


@pytest.mark.parametrize("wanted", [HANGS, DRIPS], ids=["hangs", "drips"])
def test_a_slow_server_is_not_waited_for(
    server: FakeServer, wanted: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PATIENCE", PATIENCE)
    server.answer(wanted)
    began = time.monotonic()
    assert problem(server) == f"no answer within {PATIENCE:g}s"
    assert time.monotonic() - began < 3 * PATIENCE


def test_no_more_than_a_mebibyte_is_read(server: FakeServer) -> None:
    server.answer(FLOODS)
    assert problem(server) == f"its answer is larger than {MOST_BYTES // 2**20} MiB"


def test_a_redirection_is_not_followed(server: FakeServer) -> None:
    server.answer(answer("302 Found", b"", f"Location: http://{server.host}:{server.port}/other"))
    before = len(server.requests)
    assert problem(server) == "it answers with a redirection, which is not followed"
    assert len(server.requests) == before + 1


def test_a_server_with_a_key_needs_one(server: FakeServer) -> None:
    server.answer(answer("401 Unauthorized", b"no"))
    assert problem(server) == "it needs a key"
    assert problem(server, key="wrong") == "it refuses the key"


@pytest.mark.parametrize("status", ["404 Not Found", "501 Not Implemented"])
def test_metrics_that_are_off_name_the_option_that_turns_them_on(
    server: FakeServer, status: str
) -> None:
    server.answer(answer(status))
    assert problem(server, "llama.cpp") == "its metrics are off: start it with --metrics"
    assert problem(server, "vllm") == "its metrics are off"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (answer("500 Internal Server Error"), "it answers with the status 500"),
        (b"\0\1\2\3\r\n\r\n", "the server does not speak HTTP"),
        (b"", "it closed the connection without an answer"),
        (ok("<html>login</html>"), "its answer has none of the metrics that gpumon knows"),
        (ok('vllm:num_requests_running{a="1} 2'), "its metrics cannot be read"),
        (ok("vllm:num_requests_running one\n"), "its metrics cannot be read"),
        (
            ok("".join(f'vllm:num_requests_running{{e="{i}"}} 1\n' for i in range(3000))),
            "its answer has more than 2000 series",
        ),
    ],
)
def test_an_answer_that_says_nothing_is_a_problem(
    server: FakeServer, wanted: bytes, expected: str
) -> None:
    server.answer(wanted)
    assert problem(server).startswith(expected)


def test_a_closed_port_is_a_problem(server: FakeServer) -> None:
    with pytest.raises(AnswerError, match="it refuses connections"):
        ask(VLLM, "127.1.2.3", server.port)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("num_requests_running", ("NaN", "-1", "+Inf", "1e300")),
        ("kv_cache_usage_perc", ("NaN", "-0.1", "1.01", "+Inf")),
    ],
)
def test_a_number_that_cannot_be_is_unknown(name: str, values: tuple[str, ...]) -> None:
    for value in values:
        text = f"vllm:{name} {value}\nvllm:num_requests_waiting 2\n"
        assert read_metrics(text, VLLM) == ServerReadings(waiting=2), value


def test_the_engines_of_a_server_are_added_up_and_its_fullest_cache_counts() -> None:
    text = (
        'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} 4\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.2\nvllm:kv_cache_usage_perc{engine="1"} 0.9\n'
    )
    assert read_metrics(text, VLLM) == ServerReadings(running=7, kv_cache=90)


def test_workers_that_report_the_same_count_once() -> None:
    """SGLang's, if it is started with --enable-metrics-for-all-schedulers."""
    text = "".join(
        f'sglang:num_running_reqs{{model_name="m",tp_rank="{rank}",dp_rank="{rank // 2}"}} 5\n'
        for rank in range(4)
    )
    assert read_metrics(text, ENGINES["sglang"]).running == 10


def test_of_a_renamed_metric_the_newest_name_counts() -> None:
    """Versions 0.9 and 0.10 of vLLM have both."""
    text = "vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.6\n"
    assert read_metrics(text, VLLM).kv_cache == 60
    assert read_metrics("vllm:gpu_cache_usage_perc 0.5\n", VLLM).kv_cache == 50


@pytest.mark.parametrize(
    "labels", ['a="' + r"\"" * 50_000 + '"', ",".join(f'a{i}="1"' for i in range(20_000))]
)
def test_a_line_that_takes_the_parser_long_is_not_read(labels: str) -> None:
    began = time.process_time()
    with pytest.raises(AnswerError, match="a line of more than 4096 characters"):
        read_metrics(f"vllm:num_requests_running{{{labels}}} 1\n", VLLM)
    assert time.process_time() - began < 0.1


def test_only_whole_names_count() -> None:
    text = "vllm:num_requests_running_total 9\nvllm:num_requests_waiting 1\n"
    assert read_metrics(text, VLLM) == ServerReadings(waiting=1)


def test_names_of_models_are_few_and_short() -> None:
    lines = [f'vllm:num_requests_running{{model_name="{"m" * 500}{i}"}} 1' for i in range(20)]
    (model,) = read_metrics("\n".join(lines), VLLM).models
    assert model == "m" * 200
    lines = [f'vllm:num_requests_running{{model_name="{i}"}} 1' for i in range(20)]
    assert len(read_metrics("\n".join(lines), VLLM).models) == 8


@pytest.mark.parametrize("text", ["", "[]", '{"models": 3}', '{"models": [3]}', "[" * 100_000])
def test_a_list_of_models_that_is_none_is_a_problem(text: str) -> None:
    with pytest.raises(AnswerError, match="not a list of models"):
        read_loaded_models(text)


def test_the_name_of_a_model_is_a_text_that_can_be_written() -> None:
    (model,) = read_loaded_models(r'{"models": [{"name": "qwen\ud800"}]}').models
    assert model == "qwen?"


def test_ollama_without_a_model_reports_none() -> None:
    assert read_loaded_models('{"models": []}') == ServerReadings()


# Rates: what a server does per second follows from counters, and nothing is made up.


def test_a_rate_needs_two_answers() -> None:
    rates = Rates()
    assert rates.load(ServerReadings(2, 1, tokens=100), 10.0) == ServerLoad(2, 1)
    assert rates.load(ServerReadings(2, 1, tokens=600), 15.0) == ServerLoad(2, 1, tokens=100)


def test_rates_are_over_half_a_minute() -> None:
    rates = Rates()
    for second in range(0, 100, 5):
        # Ten tokens per second in the first minute, then none.
        load = rates.load(ServerReadings(0, 0, tokens=10 * min(second, 60)), float(second))
        if second == 60:
            assert load.tokens == 10
        if second == 75:
            assert load.tokens == 5
    assert load.tokens == 0
    assert load.is_idle


def test_a_server_that_began_again_has_no_rate() -> None:
    rates = Rates()
    rates.load(ServerReadings(tokens=1000, requests=5), 0.0)
    assert rates.load(ServerReadings(tokens=10, requests=6), 5.0) == ServerLoad(requests=0.2)


def test_a_counter_that_appears_has_no_rate() -> None:
    rates = Rates()
    rates.load(ServerReadings(), 0.0)
    assert rates.load(ServerReadings(tokens=10), 5.0) == ServerLoad()


def test_after_silence_rates_begin_anew() -> None:
    rates = Rates()
    rates.load(ServerReadings(tokens=0), 0.0)
    rates.forget()
    assert rates.load(ServerReadings(tokens=1000), 60.0).tokens is None


def test_half_a_request_is_not_none() -> None:
    """No server should report one, but it is not 0."""
    load = Rates().load(ServerReadings(running=0.5, waiting=0), 0.0)
    assert (load.running, load.waiting, load.is_idle) == (1, 0, False)


def test_tokens_of_a_request_that_runs_may_be_counted_at_its_end() -> None:
    rates = Rates()
    for now, live, tokens in ((0.0, False, None), (5.0, False, None), (10.0, True, 0)):
        load = rates.load(ServerReadings(1, tokens=7), now, tokens_while_generating=live)
        assert load.tokens == tokens
