"""The inference servers that gpumon knows: everything that differs between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping


class MetricNames(Struct, frozen=True):
    """The names of a server's metrics.

    Each has its names in different versions, the newest first; none if it is not reported.
    """

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()  # A counter of those that ended.
    tokens: tuple[str, ...] = ()  # A counter of those that were generated.
    prompt_tokens: tuple[str, ...] = ()  # A counter.
    kv_cache: tuple[str, ...] = ()
    model_label: str | None = None  # The label that names the model.


class Commands(Struct, frozen=True):
    """How a server is started. Long options are the same with ``-`` and with ``_`` in them."""

    # Programs, scripts and modules, each with its subcommands: ``vllm serve``.
    programs: tuple[str, ...] = ()
    # How the titles begin that its processes give themselves.
    titles: tuple[str, ...] = ()
    model: tuple[str, ...] = ()  # Options.
    model_follows: bool = False  # Whether the model may follow the program without an option.
    memory: tuple[str, ...] = ()  # Options.
    port: tuple[str, ...] = ()  # Options.
    config_file: tuple[str, ...] = ()  # Options.
    # Environment variables that set what no option sets.
    model_variables: tuple[str, ...] = ()
    memory_variables: tuple[str, ...] = ()
    port_variables: tuple[str, ...] = ()  # A port, or an address or URL that has one.

    @property
    def variables(self) -> tuple[str, ...]:
        """All its environment variables."""
        return (*self.model_variables, *self.memory_variables, *self.port_variables)


class Engine(Struct, frozen=True):
    """A kind of inference server."""

    key: str  # In snapshots and logs.
    name: str  # As its makers write it.
    commands: Commands = Commands()
    # The setting that limits the GPU memory that it takes at its start, as its users write it;
    # ``None`` if it has none.
    memory_setting: str | None = None
    memory_share: float | None = None  # That setting's default, if it is always the same.
    # Whether it is a share of the memory that is free once the model was loaded, not of the GPU.
    memory_is_of_free: bool = False
    memory_default: str = ""  # The default in words.
    metrics_path: str | None = "/metrics"  # ``None`` if it is not asked.
    metrics: MetricNames | None = None
    metrics_option: str | None = None  # The option that turns its metrics on, if they are off.
    # Whether it counts tokens while it generates them, and not when a request ends.
    tokens_while_generating: bool = False
    default_port: int | None = None  # Of its metrics.
    # Whether each of its processes is a server of its own, with a model and metrics of its own.
    has_independent_processes: bool = False
    workers: tuple[str, ...] = ()  # Keys of other engines whose servers it starts as its workers.


_ENGINES = (
    # github.com/vllm-project/vllm, 0.9 to 0.11 and later: vllm/v1/metrics/loggers.py (metrics; the
    # counter of tokens follows each step), vllm/config/cache.py (the default),
    # vllm/entrypoints/cli/serve.py, vllm/utils/system_utils.py (titles).
    Engine(
        key="vllm",
        name="vLLM",
        commands=Commands(
            programs=(
                "vllm serve",
                "vllm.entrypoints.cli.main serve",
                "vllm.entrypoints.openai.api_server",
                "vllm.entrypoints.api_server",
            ),
            titles=("VLLM::",),
            model=("--model",),
            model_follows=True,
            memory=("--gpu-memory-utilization",),
            port=("--port",),
            config_file=("--config",),
        ),
        memory_setting="--gpu-memory-utilization",
        memory_share=0.9,
        memory_default="0.9, from version 0.21 on 0.92",
        metrics=MetricNames(
            running=("vllm:num_requests_running",),
            waiting=("vllm:num_requests_waiting",),
            requests=("vllm:request_success_total",),
            tokens=("vllm:generation_tokens_total",),
            prompt_tokens=("vllm:prompt_tokens_total",),
            kv_cache=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            model_label="model_name",
        ),
        tokens_while_generating=True,
        default_port=8000,
    ),
    # github.com/sgl-project/sglang, up to 0.5.23, in python/sglang: srt/metrics/collector.py, now
    # srt/observability/metrics_collector.py (metrics; tokens count at the end of their request),
    # srt/server_args.py, cli/serve.py, srt/managers/scheduler.py (titles).
    Engine(
        key="sglang",
        name="SGLang",
        commands=Commands(
            programs=("sglang.launch_server", "sglang serve"),
            titles=("sglang::",),
            model=("--model-path", "--model"),
            model_follows=True,
            memory=("--mem-fraction-static",),
            port=("--port",),
            config_file=("--config",),
        ),
        memory_setting="--mem-fraction-static",
        memory_default="depends on the GPU, about 0.79 to 0.88",
        metrics=MetricNames(
            running=("sglang:num_running_reqs",),
            waiting=("sglang:num_queue_reqs",),
            requests=("sglang:num_requests_total",),
            tokens=("sglang:generation_tokens_total",),
            prompt_tokens=("sglang:prompt_tokens_total",),
            kv_cache=("sglang:token_usage",),
            model_label="model_name",
        ),
        metrics_option="--enable-metrics",
        default_port=30000,
    ),
    # github.com/huggingface/text-generation-inference, 3.3.6: router/src/server.rs,
    # router/src/validation.rs, backends/v3/src/backend.rs and queue.rs (metrics; tokens count at
    # the end of their request), launcher/src/main.rs, server/text_generation_server/cli.py.
    Engine(
        key="tgi",
        name="TGI",
        commands=Commands(
            programs=(
                "text-generation-launcher",
                "text-generation-router",
                "text-generation-server serve",
            ),
            model=("--model-id",),
            model_follows=True,
            memory=("--cuda-memory-fraction",),
            port=("--port", "-p"),
            model_variables=("MODEL_ID",),
            memory_variables=("CUDA_MEMORY_FRACTION",),
            port_variables=("PORT",),
        ),
        memory_setting="--cuda-memory-fraction",
        memory_share=1.0,
        memory_default="1.0",
        metrics=MetricNames(
            running=("tgi_batch_current_size",),
            waiting=("tgi_queue_size",),
            requests=("tgi_request_success",),
            tokens=("tgi_request_generated_tokens_sum",),
            prompt_tokens=("tgi_request_input_length_sum",),
        ),
        default_port=3000,
    ),
    # github.com/NVIDIA/TensorRT-LLM, 2025 and 2026: tensorrt_llm/metrics/collector.py (tokens count
    # at the end of their request), tensorrt_llm/commands/serve.py,
    # tensorrt_llm/serve/openai_server.py. Each GET of its /metrics empties the queue of statistics
    # that its own users read. Its label model_name is always "undefined".
    Engine(
        key="tensorrt-llm",
        name="TensorRT-LLM",
        commands=Commands(
            programs=(
                "trtllm-serve",
                "trtllm-serve serve",
                "trtllm-serve grpc",
                "trtllm-serve mm_embedding_serve",
                "trtllm-serve disaggregated",
                "trtllm-serve disaggregated_mpi_worker",
            ),
            model_follows=True,
            memory=("--kv_cache_free_gpu_memory_fraction", "--free_gpu_memory_fraction"),
            port=("--port",),
            config_file=("--extra_llm_api_options", "--config"),
        ),
        memory_setting="--kv_cache_free_gpu_memory_fraction",
        memory_share=0.9,
        memory_is_of_free=True,
        memory_default="0.9 of the memory that is free after the model was loaded",
        metrics_path="/prometheus/metrics",
        metrics=MetricNames(
            running=("trtllm_num_requests_running",),
            waiting=("trtllm_num_requests_waiting",),
            requests=("trtllm_request_success_total",),
            tokens=("trtllm_generation_tokens_total",),
            prompt_tokens=("trtllm_prompt_tokens_total",),
            kv_cache=("trtllm_kv_cache_utilization",),
        ),
        default_port=8000,
    ),
    # github.com/triton-inference-server/server, 2.73: docs/user_guide/metrics.md,
    # src/command_line_parser.cc and .h.
    Engine(
        key="triton",
        name="Triton",
        commands=Commands(
            programs=("tritonserver", "triton_python_backend_stub"),
            model=("--model-repository", "--model-store"),
            port=("--metrics-port",),
        ),
        metrics=MetricNames(
            waiting=("nv_inference_pending_request_count",),
            requests=("nv_inference_request_success",),
            model_label="model",
        ),
        default_port=8002,
    ),
    # github.com/ggml-org/llama.cpp, 2024 to 2026: tools/server/server-context.cpp, before
    # tools/server/server.cpp (metrics; tokens count at the end of their request),
    # tools/server/README.md (options and variables), app/llama.cpp (the command with subcommands).
    Engine(
        key="llama.cpp",
        name="llama.cpp",
        commands=Commands(
            programs=("llama-server", "llama serve", "llama server"),
            model=("--model", "-m", "-hf", "-hfr", "--hf-repo", "-dr", "--docker-repo"),
            port=("--port",),
            model_variables=("LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO", "LLAMA_ARG_DOCKER_REPO"),
            port_variables=("LLAMA_ARG_PORT",),
        ),
        metrics=MetricNames(
            running=("llamacpp:requests_processing",),
            waiting=("llamacpp:requests_deferred",),
            tokens=("llamacpp:tokens_predicted_total",),
            prompt_tokens=("llamacpp:prompt_tokens_total",),
            # Until May 2025 (pull request 13660).
            kv_cache=("llamacpp:kv_cache_usage_ratio",),
        ),
        metrics_option="--metrics",
        default_port=8080,
        # With --models-dir it starts itself again for each model, on another port.
        has_independent_processes=True,
    ),
    # github.com/abetlen/llama-cpp-python, 0.2 and 0.3: llama_cpp/server/settings.py and
    # __main__.py. It reports no metrics.
    Engine(
        key="llama-cpp-python",
        name="llama-cpp-python",
        commands=Commands(
            programs=("llama_cpp.server",),
            model=("--model",),
            port=("--port",),
            config_file=("--config_file",),
            model_variables=("MODEL",),
            port_variables=("PORT",),
        ),
        metrics_path=None,
    ),
    # github.com/ollama/ollama, 0.1 to 0.33: cmd/cmd.go, api/types.go, envconfig/config.go,
    # llm/llama_server.go. Its workers were ollama_llama_server, then ollama runner, and
    # are now also llama-server with a model that is named by its digest.
    Engine(
        key="ollama",
        name="Ollama",
        commands=Commands(
            programs=("ollama serve", "ollama start", "ollama runner", "ollama_llama_server"),
            port_variables=("OLLAMA_HOST",),
        ),
        metrics_path="/api/ps",
        default_port=11434,
        workers=("llama.cpp",),
    ),
    # github.com/InternLM/lmdeploy, 0.9 to 0.16: lmdeploy/metrics/loggers.py and
    # metrics_processor.py (the counter of tokens follows each step), lmdeploy/cli/serve.py and
    # utils.py. From 0.11 on its metrics are on, and the option that turned them on is refused.
    Engine(
        key="lmdeploy",
        name="LMDeploy",
        commands=Commands(
            programs=("lmdeploy serve api_server",),
            model_follows=True,
            memory=("--cache-max-entry-count",),
            port=("--server-port",),
        ),
        memory_setting="--cache-max-entry-count",
        memory_share=0.8,
        memory_is_of_free=True,
        memory_default="0.8 of the memory that is free after the model was loaded",
        metrics=MetricNames(
            running=("lmdeploy:num_requests_running",),
            waiting=("lmdeploy:num_requests_waiting",),
            requests=("lmdeploy:request_success_total",),
            tokens=("lmdeploy:generation_tokens_total",),
            prompt_tokens=("lmdeploy:prompt_tokens_total",),
            kv_cache=("lmdeploy:gpu_cache_usage_perc",),
            model_label="model_name",
        ),
        tokens_while_generating=True,
        default_port=23333,
    ),
    # github.com/ray-project/ray, 2: python/ray/serve/_private/common.py (titles). The metrics of
    # all replicas are at the port of Ray's agent, which is not theirs.
    Engine(
        key="ray",
        name="Ray Serve",
        commands=Commands(titles=("ray::ServeReplica:",)),
        metrics_path=None,
    ),
)

ENGINES: Mapping[str, Engine] = {engine.key: engine for engine in _ENGINES}
