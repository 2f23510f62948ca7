"""Each kind of server is understood, in the form that its documentation and sources give.

Names and labels are theirs, see the rows of ``gpumon.serving.engines``; the values are made up. A
real server is in ``test_real_server``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpumon.serving import ENGINES
from gpumon.serving.client import ask
from gpumon.serving.metrics_text import ServerReadings
from tests.serving.fake_server import FakeServer, ok

pytestmark = pytest.mark.usefixtures("patient")

_LABELS = 'engine_type="unified",model_name="qwen",tp_rank="0",pp_rank="0"'

DOCUMENTED = {
    # With the name of the cache before 0.9, and histograms whose names begin as those of counters.
    "vllm": (
        """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="qwen"} 3.0
vllm:num_requests_waiting{model_name="qwen"} 1.0
vllm:gpu_cache_usage_perc{model_name="qwen"} 0.25
vllm:prompt_tokens_total{model_name="qwen"} 9000.0
vllm:generation_tokens_total{model_name="qwen"} 4000.0
vllm:request_generation_tokens_sum{model_name="qwen"} 1.0
vllm:generation_tokens_created{model_name="qwen"} 1.7e+09
vllm:request_success_total{finished_reason="stop",model_name="qwen"} 20.0
vllm:request_success_total{finished_reason="length",model_name="qwen"} 2.0
vllm:request_success_total{finished_reason="abort",model_name="qwen"} 0.0
""",
        ServerReadings(3, 1, 22, 4000, 9000, 25.0, ("qwen",)),
    ),
    "sglang": (
        f"""\
sglang:num_running_reqs{{{_LABELS}}} 5.0
sglang:num_queue_reqs{{{_LABELS}}} 2.0
sglang:token_usage{{{_LABELS}}} 0.5
sglang:gen_throughput{{{_LABELS}}} 86.5
sglang:prompt_tokens_total{{model_name="qwen"}} 8128.0
sglang:generation_tokens_total{{model_name="qwen"}} 7557.0
sglang:num_requests_total{{model_name="qwen"}} 11.0
""",
        ServerReadings(5, 2, 11, 7557, 8128, 50.0, ("qwen",)),
    ),
    "tgi": (
        """\
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 4
# TYPE tgi_queue_size gauge
tgi_queue_size 0
# TYPE tgi_request_success counter
tgi_request_success 7
# TYPE tgi_request_generated_tokens histogram
tgi_request_generated_tokens_bucket{le="+Inf"} 7
tgi_request_generated_tokens_sum 350
tgi_request_generated_tokens_count 7
tgi_request_input_length_sum 700
""",
        ServerReadings(4, 0, 7, 350, 700),
    ),
    "tensorrt-llm": (
        """\
trtllm_num_requests_running{engine_type="trtllm",model_name="undefined"} 2.0
trtllm_num_requests_waiting{engine_type="trtllm",model_name="undefined"} 1.0
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="undefined"} 0.75
trtllm_generation_tokens_total{engine_type="trtllm",model_name="undefined"} 30.0
trtllm_prompt_tokens_total{engine_type="trtllm",model_name="undefined"} 60.0
trtllm_request_success_total{engine_type="trtllm",finished_reason="stop"} 6.0
""",
        ServerReadings(2, 1, 6, 30, 60, 75.0),
    ),
    "triton": (
        """\
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="resnet",version="1"} 12
nv_inference_request_success{model="bert",version="1"} 30
nv_inference_request_failure{model="resnet",reason="OTHER",version="1"} 1
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="resnet",version="1"} 0
nv_inference_pending_request_count{model="bert",version="1"} 3
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5
""",
        ServerReadings(waiting=3, requests=42, models=("resnet", "bert")),
    ),
    # Until May 2025 with the use of the cache.
    "llama.cpp": (
        """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 70
llamacpp:tokens_predicted_total 37
llamacpp:predicted_tokens_seconds 18.5
llamacpp:kv_cache_usage_ratio 0.1
llamacpp:requests_processing 1
llamacpp:requests_deferred 0
""",
        ServerReadings(1, 0, None, 37, 70, 10.0),
    ),
    "lmdeploy": (
        """\
lmdeploy:num_requests_running{engine="0",model_name="qwen"} 1.0
lmdeploy:num_requests_waiting{engine="0",model_name="qwen"} 0.0
lmdeploy:gpu_cache_usage_perc{engine="0",model_name="qwen"} 0.02
lmdeploy:prompt_tokens_total{engine="0",model_name="qwen"} 100.0
lmdeploy:generation_tokens_total{engine="0",model_name="qwen"} 200.0
lmdeploy:request_success_total{engine="0",finished_reason="stop",model_name="qwen"} 3.0
""",
        ServerReadings(1, 0, 3, 200, 100, 2.0, ("qwen",)),
    ),
    "ollama": (
        """\
{"models": [{"name": "qwen3:8b", "model": "qwen3:8b", "size": 6654289920,
"size_vram": 6654289920, "expires_at": "2026-11-28T14:38:31.837Z"}]}
""",
        ServerReadings(models=("qwen3:8b",)),
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with FakeServer(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.parametrize("engine", DOCUMENTED)
def test_a_server_is_understood(server: FakeServer, engine: str) -> None:
    text, expected = DOCUMENTED[engine]
    server.answer(ok(text))
    assert ask(ENGINES[engine], server.host, server.port) == expected


def test_every_server_that_is_asked_has_a_text() -> None:
    asked = {key for key, engine in ENGINES.items() if engine.metrics_path is not None}
    assert set(DOCUMENTED) == asked
