"""Inference servers: what a process serves, and what its server reports; part of the data model.

``None`` always means unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.arithmetic import known_sum
from gpumon.model.number_types import Count, Real  # noqa: TC001 - msgspec resolves annotations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.processes import GpuProcess, ProcessId


class InferenceServer(Struct, frozen=True, gc=False):
    """The inference server that a process belongs to, by command lines and environment.

    Attributes:
        engine: Its key in ``gpumon.serving.ENGINES``, such as ``vllm``.
        model: The model as its command names it: a name, or a path, not safe to print.
        pid: The outermost process of the server. All processes of one server have the same.
        start_time: That process' start time, see ``ProcessId``.
        memory_setting: The setting that limits the GPU memory it takes at its start, as its users
            write it: ``--gpu-memory-utilization``. ``None`` if it has none, or if it is not known
            whether it was set.
        memory_value: What this was set to, as written, not safe to print; ``None`` if its command
            line and its environment do not set it: then its default applies, unless a
            configuration file sets it.
        has_config_file: Whether it was also given a configuration file, which gpumon does not read.
    """

    engine: str
    model: str | None = None
    pid: Count | None = None
    start_time: Count | None = None
    memory_setting: str | None = None
    memory_value: str | None = None
    has_config_file: bool = False

    @property
    def label(self) -> str:
        """A short label, not safe to print: ``vllm Qwen2.5-14B-Instruct``."""
        return self.engine if self.short_model is None else f"{self.engine} {self.short_model}"

    @property
    def short_model(self) -> str | None:
        """The model without the folders, or the organisation, before it; ``None`` if unknown."""
        if self.model is None:
            return None
        return self.model.rstrip("/").rpartition("/")[2] or self.model


class ServerLoad(Struct, frozen=True, gc=False, array_like=True):
    """What an inference server reports of all its engines and models together.

    Rates are over about the last half minute, or since the first answer if that is later.

    Attributes:
        running: Number of requests that it works on.
        waiting: Number of requests that wait for it.
        requests: Requests that it finished, per second.
        tokens: Tokens that it generated, per second.
        prompt_tokens: Tokens of prompts that it read, per second.
        kv_cache: Use of its KV cache in percent; that of the engine with the fullest one.
        models: The models that it names, not safe to print.
        problem: Why it reports nothing, without a full stop: ``it needs a key``. Everything else is
            unknown then.
    """

    running: Count | None = None
    waiting: Count | None = None
    requests: Real | None = None
    tokens: Real | None = None
    prompt_tokens: Real | None = None
    kv_cache: Real | None = None
    models: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def is_idle(self) -> bool | None:
        """Whether it serves nobody; ``None`` if that is unknown."""
        signs = self.running, self.waiting, self.requests, self.tokens, self.prompt_tokens
        if any(signs):
            return False
        # What waits, and what has ended, says nothing about a request that it works on.
        if self.running is None or (self.requests is None and self.tokens is None):
            return None
        return True

    @property
    def is_pending(self) -> bool:
        """Whether it does not yet say, or for a while, whether it serves anybody.

        Of a server that reports its requests: there is no answer, or only one, without rates.
        """
        return self.problem is not None or (self.running is not None and self.is_idle is None)


def combined_load(processes: Iterable[GpuProcess]) -> ServerLoad | None:
    """What the inference servers of these processes report together, each counted once.

    Returns:
        The sums, and the use of the fullest KV cache; what any of them does not report is unknown.
        ``None`` if there is no server.
    """
    loads: dict[ProcessId, ServerLoad | None] = {}
    for process in processes:
        if (server := process.server_id) is not None:
            loads[server] = loads.get(server) or process.load
    if not loads:
        return None
    reported = [load or ServerLoad() for load in loads.values()]
    caches = [load.kv_cache for load in reported]
    return ServerLoad(
        running=known_sum(load.running for load in reported),
        waiting=known_sum(load.waiting for load in reported),
        requests=known_sum(load.requests for load in reported),
        tokens=known_sum(load.tokens for load in reported),
        prompt_tokens=known_sum(load.prompt_tokens for load in reported),
        kv_cache=None if None in caches else max(cache or 0.0 for cache in caches),
    )
