"""Which commands are inference servers, and what they say of them."""

from __future__ import annotations

import shlex

import pytest

from gpumon.serving.recognition import Recognised, engine_of, is_helper, recognise

NO_VARIABLES: dict[str, str] = {}

SERVERS = {
    # vllm-project/vllm: docs/getting_started/quickstart.md.
    "vllm serve Qwen/Qwen2.5-1.5B-Instruct": Recognised("vllm", "Qwen/Qwen2.5-1.5B-Instruct"),
    # vllm-project/vllm, issue 7768, as the kernel shows a script of an environment.
    "/opt/venv/bin/python3.12 /opt/venv/bin/vllm serve /model --port 8001 --trust-remote-code "
    "--served-model-name internvl2-internlm2 --enable-chunked-prefill False "
    "--gpu-memory-utilization 0.8 --tensor-parallel-size 2": Recognised(
        "vllm", "/model", memory_value="0.8", port=8001
    ),
    # vllm-project/vllm: docs/deployment/docker.md, with the entry point of its older images.
    "python3 -m vllm.entrypoints.openai.api_server --model mistralai/Mistral-7B-v0.1": Recognised(
        "vllm", "mistralai/Mistral-7B-v0.1"
    ),
    "python -u -m vllm.entrypoints.api_server --model=m --gpu_memory_utilization=.5": Recognised(
        "vllm", "m", memory_value=".5"
    ),
    # Python's parsers take the beginning of an option.
    "python -um vllm.entrypoints.cli.main serve m --gpu-memory-util 0.45": Recognised(
        "vllm", "m", memory_value="0.45"
    ),
    "python -mvllm.entrypoints.openai.api_server --model m": Recognised("vllm", "m"),
    # vllm-project/vllm: docs/configuration/serve_args.md.
    "vllm serve --config config.yaml": Recognised("vllm", has_config_file=True),
    # The last counts, as for each of these parsers.
    "vllm serve m --port 1 --port 2": Recognised("vllm", "m", port=2),
    # The flag before it may or may not take a value.
    "vllm serve --port 8000 --enforce-eager m": Recognised("vllm", port=8000),
    # sgl-project/sglang: docs/basic_usage/send_request.ipynb.
    "python3 -m sglang.launch_server --model-path qwen/qwen2.5-0.5b-instruct --host 0.0.0.0": (
        Recognised("sglang", "qwen/qwen2.5-0.5b-instruct")
    ),
    # sgl-project/sglang: python/sglang/cli/serve.py.
    "/usr/bin/python3 /usr/local/bin/sglang serve qwen/qwen3-8b --mem-fraction-static 0.7 "
    "--enable-metrics --port 31000": Recognised(
        "sglang", "qwen/qwen3-8b", memory_value="0.7", port=31000
    ),
    # huggingface/text-generation-inference: README.md, launcher/src/main.rs.
    "text-generation-launcher --model-id mistralai/Mistral-7B-Instruct-v0.2 -p 8080": Recognised(
        "tgi", "mistralai/Mistral-7B-Instruct-v0.2", port=8080
    ),
    "/opt/conda/bin/python /opt/conda/bin/text-generation-server serve bigscience/bloom-560m "
    "--uds-path /tmp/text-generation-server --logger-level INFO --json-output": Recognised(
        "tgi", "bigscience/bloom-560m"
    ),
    "text-generation-router --max-concurrent-requests 128 --port 80": Recognised("tgi", port=80),
    # taco-project/FlexKV: examples/trt_adaption/launch.sh.
    "trtllm-serve serve /cfs/DeepSeek-V3.1 --host 0.0.0.0 --port 6000 --backend pytorch "
    "--tp_size 8 --kv_cache_free_gpu_memory_fraction 0.75 "
    "--extra_llm_api_options extra-llm-api-config.yml": Recognised(
        "tensorrt-llm", "/cfs/DeepSeek-V3.1", "0.75", port=6000, has_config_file=True
    ),
    # NVIDIA/TensorRT-LLM: tensorrt_llm/commands/serve.py.
    "trtllm-serve nvidia/DeepSeek-R1-FP4 --free_gpu_memory_fraction .7": Recognised(
        "tensorrt-llm", "nvidia/DeepSeek-R1-FP4", ".7"
    ),
    "trtllm-serve disaggregated -c config.yaml": Recognised("tensorrt-llm"),
    "trtllm-serve": Recognised("tensorrt-llm"),
    # triton-inference-server/server: docs/getting_started/quickstart.md; its parser is getopt_long.
    "tritonserver --model-repo=/models --metrics-port 9002": Recognised(
        "triton", "/models", port=9002
    ),
    # ggml-org/llama.cpp: tools/server/README.md.
    "./build/bin/llama-server -m models/7B/ggml-model.gguf -c 2048 --metrics --port 8033": (
        Recognised("llama.cpp", "models/7B/ggml-model.gguf", port=8033)
    ),
    "llama-server -hf ggml-org/gemma-3-1b-it-GGUF:Q4_K_M": Recognised(
        "llama.cpp", "ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"
    ),
    # meta-models/meta-oss-cookbook, pull request 25.
    "llama serve -hf meta-models/Muse-Glimmer-30B-GGUF -np 1 -a muse-glimmer": Recognised(
        "llama.cpp", "meta-models/Muse-Glimmer-30B-GGUF"
    ),
    # abetlen/llama-cpp-python: README.md.
    "python3 -m llama_cpp.server --model models/7B/llama-model.gguf --n_gpu_layers 35": Recognised(
        "llama-cpp-python", "models/7B/llama-model.gguf"
    ),
    "python3 -m llama_cpp.server --config_file c.json": Recognised(
        "llama-cpp-python", has_config_file=True
    ),
    # ollama/ollama: docs/linux.md; cmd/cmd.go has the other name.
    "/usr/bin/ollama serve": Recognised("ollama"),
    "ollama start": Recognised("ollama"),
    # ollama/ollama: x/mlxrunner/client.go; llm/server.go of version 0.3.
    "/usr/bin/ollama runner --mlx-engine --model m --port 40113": Recognised("ollama"),
    "/tmp/ollama1/runners/cuda_v12/ollama_llama_server --model /m --port 4": Recognised("ollama"),
    # InternLM/lmdeploy: docs/en/llm/api_server.md.
    "lmdeploy serve api_server internlm/internlm2_5-7b-chat --server-port 23334 "
    "--cache-max-entry-count 0.5": Recognised(
        "lmdeploy", "internlm/internlm2_5-7b-chat", memory_value="0.5", port=23334
    ),
    # vllm-project/vllm: vllm/v1/engine/core.py, vllm/v1/executor/multiproc_executor.py.
    "VLLM::EngineCore_DP0": Recognised("vllm", knows_memory=False),
    "VLLM::Worker_TP0_EP0": Recognised("vllm", knows_memory=False),
    # sgl-project/sglang: python/sglang/srt/managers/scheduler.py.
    "sglang::scheduler_TP0": Recognised("sglang", knows_memory=False),
    # ray-project/ray: python/ray/serve/_private/common.py.
    "ray::ServeReplica:llms:LLMServer": Recognised("ray", knows_memory=False),
}


@pytest.mark.parametrize("command", SERVERS)
def test_a_server_is_recognised_by_its_command(command: str) -> None:
    assert recognise(shlex.split(command), NO_VARIABLES) == SERVERS[command]
    assert engine_of(shlex.split(command)) == SERVERS[command].engine


@pytest.mark.parametrize(
    "command",
    [
        "bash -c 'vllm serve m'",
        "bash -lc 'ollama serve'",
        "bash -lc llama-server",
        "sh -ec tritonserver",
        "/opt/nvidia/nvidia_entrypoint.sh vllm serve m",
        "uv run vllm serve m",
        "docker run vllm/vllm-openai --model m",
        "vim vllm.py",
        "grep vllm serve",
        "tail -f vllm.log",
        "pip install vllm",
        "vllm bench serve --model m",
        "vllm chat",
        "vllm",
        "vllm --port 8000 serve",
        "python -m vllm.entrypoints.openai.run_batch -i a -o b --model m",
        "python -c 'from vllm import LLM' serve m",
        "python train.py vllm serve m",
        "python -m pytest vllm.entrypoints.api_server",
        "python -m",
        "python",
        "python - serve",
        "ollama run llama3.2",
        "ollama pull llama3.2",
        "text-generation-server download-weights m",
        "lmdeploy serve proxy",
        "lmdeploy chat m",
        "server -m model.gguf",
        "llama-cli -m model.gguf",
        "llama cli -m model.gguf",
        "ray::IDLE",
        "ray::train",
        "raylet",
        "notVLLM::EngineCore",
    ],
)
def test_what_only_speaks_of_a_server_is_none(command: str) -> None:
    assert recognise(shlex.split(command), NO_VARIABLES) is None
    assert engine_of(shlex.split(command)) is None


@pytest.mark.parametrize(
    ("command", "variables", "expected"),
    [
        # huggingface/text-generation-inference: launcher/src/main.rs, where each option has one.
        (
            "text-generation-launcher",
            {"MODEL_ID": "tiiuae/falcon-7b", "CUDA_MEMORY_FRACTION": "0.5", "PORT": "80"},
            Recognised("tgi", "tiiuae/falcon-7b", memory_value="0.5", port=80),
        ),
        (
            "text-generation-launcher --model-id m --cuda-memory-fraction .9 --port 3001",
            {"MODEL_ID": "other", "CUDA_MEMORY_FRACTION": "0.5", "PORT": "80"},
            Recognised("tgi", "m", memory_value=".9", port=3001),
        ),
        # ggml-org/llama.cpp: tools/server/README.md.
        (
            "llama-server",
            {"LLAMA_ARG_MODEL": "/models/a.gguf", "LLAMA_ARG_PORT": "8081"},
            Recognised("llama.cpp", "/models/a.gguf", port=8081),
        ),
        ("llama-server -m b.gguf", {"LLAMA_ARG_MODEL": "a"}, Recognised("llama.cpp", "b.gguf")),
        # abetlen/llama-cpp-python: llama_cpp/server/settings.py.
        (
            "python -m llama_cpp.server",
            {"MODEL": "a.gguf", "PORT": "8100"},
            Recognised("llama-cpp-python", "a.gguf", port=8100),
        ),
        # No server reads the variable of another.
        ("vllm serve m", {"PORT": "80", "MODEL_ID": "x"}, Recognised("vllm", "m")),
    ],
)
def test_variables_set_what_no_option_sets(
    command: str, variables: dict[str, str], expected: Recognised
) -> None:
    assert recognise(shlex.split(command), variables) == expected


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("0.0.0.0:11500", 11500),
        (":11500", 11500),
        ("http://gpu1:11500/", 11500),
        ("http://gpu1:11500/base", 11500),
        ("'https://gpu1:11500'", 11500),
        ("[::1]:11500", 11500),
        ("http://gpu1", 80),
        ("https://gpu1/", 443),
        ("gpu1", None),
        ("192.0.2.7", None),
        ("::1", None),
        ("[::1]", None),
        ("gpu1:0", None),
        ("gpu1:70000", None),
        ("gpu1:-1", None),
        ("gpu1:１１", None),
        ("gpu1:" + "1" * 10_000, None),
        ("\x1b[31m", None),
        ("", None),
    ],
)
def test_the_port_of_ollama_is_that_of_its_host(host: str, port: int | None) -> None:
    # ollama/ollama: envconfig/config_test.go.
    assert recognise(["ollama", "serve"], {"OLLAMA_HOST": host}) == Recognised("ollama", port=port)


def test_a_setting_that_a_variable_may_set_is_unknown_without_the_environment() -> None:
    found = recognise(["text-generation-launcher", "--model-id", "m"], None)
    assert found == Recognised("tgi", "m", knows_memory=False)
    found = recognise(["text-generation-launcher", "--cuda-memory-fraction", "0.5"], None)
    assert found == Recognised("tgi", memory_value="0.5")
    # This has no variable for it.
    assert recognise(["vllm", "serve", "m"], None) == Recognised("vllm", "m")


def test_a_key_is_not_kept() -> None:
    command = "vllm serve m --api-key sk-secret --hf-token hf_secret --port 8000"
    assert "secret" not in repr(recognise(shlex.split(command), {"VLLM_API_KEY": "sk-secret"}))


@pytest.mark.parametrize(
    "port", ["", "0", "-1", "65536", "8000x", "８０００", "9" * 5000, "--host"]
)
def test_a_forged_port_is_unknown(port: str) -> None:
    assert recognise(["vllm", "serve", "m", "--port", port], NO_VARIABLES) == Recognised(
        "vllm", "m"
    )


@pytest.mark.parametrize(
    "command",
    [
        [],
        [""],
        ["", "serve"],
        ["vllm", "serve", ""],
        ["vllm", "serve", "m" * 5000],
        ["vllm", "serve", "--model"],
        ["vllm", "serve", "--"],
        ["vllm", "serve", "-", "=", "--=x", "---"],
        ["vllm", "serve", "--model", ""],
        ["vllm", "serve", "--gpu-memory-utilization=" + "0" * 5000],
        ["/" * 5000, "serve"],
    ],
)
def test_a_hostile_command_sets_nothing(command: list[str]) -> None:
    assert recognise(command, NO_VARIABLES) in (None, Recognised("vllm"))


def test_a_hostile_value_is_kept_as_it_is() -> None:
    # Whoever shows it makes it printable.
    hostile = "\x1b]0;pwned\x07[red]\udcff\u202e"
    assert recognise(["vllm", "serve", hostile], NO_VARIABLES) == Recognised("vllm", hostile)


def test_a_command_of_many_arguments_is_read_quickly() -> None:
    command = ["vllm", "serve", "m", *["--port", "1"] * 20_000, "--port", "2"]
    assert recognise(command, NO_VARIABLES) == Recognised("vllm", "m", port=2)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        # Python's Lib/multiprocessing/spawn.py and forkserver.py.
        (
            [
                "/usr/bin/python3",
                "-c",
                "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)",
                "--multiprocessing-fork",
            ],
            True,
        ),
        (["python3", "-E", "-c", "from multiprocessing.forkserver import main; main(8)"], True),
        # mpi4py: src/mpi4py/futures/_core.py; Open MPI: orte/mca/ess/singleton.
        (["/usr/bin/python3", "-m", "mpi4py.futures.server"], True),
        (["orted", "--hnp", "--set-sid", "--report-uri", "6"], True),
        (["python3", "-c", "from multiprocessing.resource_tracker import main;main(5)"], False),
        (["python3", "train.py"], False),
        (["bash"], False),
        ([], False),
    ],
)
def test_helpers_are_what_their_parent_makes_of_them(command: list[str], expected: object) -> None:
    assert is_helper(command) is expected
