"""What gpumon says of inference servers, with its evidence; nothing follows from the unknown."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.findings import SHORT_CELLS, Finding, FindingKind, conditions, process_findings
from gpumon.findings.registry import PROCESS_RULES
from gpumon.model.processes import Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.recording.history import History
from gpumon.serving import ENGINES
from gpumon.text.formatting import cell_width
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known

VLLM = Workload(server=InferenceServer("vllm", "qwen", 100, 1))
IDLE = ServerLoad(0, 0, 0.0, 0.0, 0.0, 1.0)
FULL = ServerLoad(40, 3, 0.5, 900.0, 500.0, 98.4)
SLOW = ServerLoad(2, 0, 0.0, 2.0, 0.0, 12.0)


def see(
    load: ServerLoad | None,
    seconds: float = 120.0,
    *,
    before: ServerLoad | None = None,
    place: Workload = VLLM,
    sm: int | None = 100,
) -> list[Finding]:
    """What is said of a server after it has reported this for so long, each second."""
    history = History(conditions())
    given = replace(process(memory_used=72 * GIB, sm=sm), place=place)
    states = [before] * (before is not None) + [load] * int(seconds + 1)
    for second, state in enumerate(states):
        history.add(snapshot(NOON + second, gpu(), processes=(replace(given, load=state),)))
    return process_findings(history, replace(given, load=load))


def of_kind(found: list[Finding], kind: FindingKind) -> Finding | None:
    return next((finding for finding in found if finding.kind is kind), None)


def test_a_server_without_requests_serves_nobody_however_busy_its_gpu_is() -> None:
    found = known(of_kind(see(IDLE, before=FULL, sm=50), FindingKind.IDLE_PROCESS))
    assert found.sentence == "serving nobody for 2 m, holds 72.0 GiB on GPU 0"
    assert found.short == "serves nobody 2m, 72.0 GiB"
    assert found.evidence == ("no request in all 121 readings", "GPU memory 72.0 GiB")
    assert found.since == NOON + 1


def test_an_answer_that_fails_does_not_end_the_idle_time_of_a_server() -> None:
    """The next answer has no rates: these need two."""
    history = History(conditions())
    served = replace(process(memory_used=72 * GIB, sm=50), place=VLLM)
    loads = (FULL, *[IDLE] * 100, ServerLoad(problem="no answer within 1s"), ServerLoad(0, 0), IDLE)
    for second, load in enumerate(loads):
        history.add(snapshot(NOON + second, gpu(), processes=(replace(served, load=load),)))
    found = of_kind(process_findings(history, replace(served, load=IDLE)), FindingKind.IDLE_PROCESS)
    assert found is not None
    assert found.since == NOON + 1


def test_a_server_with_requests_is_not_idle_however_quiet_its_gpu_is() -> None:
    """A GPU that waits for another machine, or for the next step, reads 0."""
    for load in (ServerLoad(1, 0), ServerLoad(0, 1), replace(IDLE, tokens=0.1)):
        assert of_kind(see(load, sm=0), FindingKind.IDLE_PROCESS) is None


def test_a_server_that_does_not_report_its_requests_is_idle_by_its_gpu() -> None:
    """Ollama, and Triton, which does not report what it works on."""
    for load in (ServerLoad(models=("m",)), ServerLoad(waiting=0, requests=0.0), None):
        found = known(of_kind(see(load, sm=0), FindingKind.IDLE_PROCESS))
        assert found.sentence.startswith("idle for ")
        assert of_kind(see(load, sm=20), FindingKind.IDLE_PROCESS) is None


def test_requests_that_wait_for_a_full_cache_need_attention() -> None:
    found = known(of_kind(see(FULL, 60, before=IDLE), FindingKind.REQUESTS_WAIT))
    assert found.sentence == "3 requests wait, KV cache 98 %, for 1 m"
    assert (found.short, found.brief) == ("3 wait, KV cache 98 %, 1m", "KV full")
    assert found.evidence == ("requests waiting 3", "KV cache 98 % used", "requests running 40")


def test_one_request_waits() -> None:
    found = known(of_kind(see(replace(FULL, waiting=1), before=IDLE), FindingKind.REQUESTS_WAIT))
    assert found.sentence.startswith("1 request waits, ")


@pytest.mark.parametrize(
    ("kind", "load"),
    [
        (FindingKind.REQUESTS_WAIT, replace(FULL, waiting=None)),
        (FindingKind.REQUESTS_WAIT, replace(FULL, kv_cache=None)),
        (FindingKind.SLOW_SERVER, replace(SLOW, tokens=None)),
        (FindingKind.SLOW_SERVER, replace(SLOW, prompt_tokens=None)),
        (FindingKind.SLOW_SERVER, replace(SLOW, running=None)),
    ],
    ids=["waiting", "cache", "tokens", "prompts", "running"],
)
def test_nothing_follows_from_a_value_that_is_unknown(kind: FindingKind, load: ServerLoad) -> None:
    assert of_kind(see(load), kind) is None


@pytest.mark.parametrize("load", [ServerLoad(problem="it needs a key"), None], ids=["key", "none"])
def test_nothing_is_found_of_a_server_that_reports_nothing(load: ServerLoad | None) -> None:
    kinds = {finding.kind for finding in see(load)}
    assert not kinds & {FindingKind.REQUESTS_WAIT, FindingKind.SLOW_SERVER}


def test_a_busy_gpu_without_tokens_is_slow() -> None:
    found = known(of_kind(see(SLOW, 90, before=IDLE), FindingKind.SLOW_SERVER))
    assert found.sentence == "its GPU is 100 % busy, and it generates 2 tokens a second, for 1 m"
    assert (found.short, found.brief) == ("busy, 2 tokens/s, 1m", "slow")
    assert found.evidence == (
        "SM use 100 %",
        "2 tokens a second, 0 of prompts",
        "requests running 2",
    )


def test_a_server_is_not_slow_if_the_use_of_its_gpu_is_unknown() -> None:
    assert of_kind(see(SLOW, sm=None), FindingKind.SLOW_SERVER) is None


def test_tokens_that_are_counted_at_the_end_of_a_request_prove_nothing() -> None:
    place = Workload(server=InferenceServer("llama.cpp", "m", 100, 1))
    assert of_kind(see(SLOW, place=place), FindingKind.SLOW_SERVER) is None
    other = Workload(server=InferenceServer("an engine of tomorrow", "m", 100, 1))
    assert of_kind(see(SLOW, place=other), FindingKind.SLOW_SERVER) is None


def test_answers_distinguish_no_from_unknown() -> None:
    history = History(conditions())
    rule = PROCESS_RULES[FindingKind.REQUESTS_WAIT]
    for second, (load, expected) in enumerate(
        [(None, None), (IDLE, False), (FULL, False), (replace(FULL, kv_cache=None), None)]
    ):
        given = replace(process(), place=VLLM, load=load)
        history.add(snapshot(NOON + second, gpu(), processes=(given,)))
        assert rule.answer(history, given) is expected
    # It may have held before the first sample.
    history = History(conditions())
    given = replace(process(), place=VLLM, load=FULL)
    history.add(snapshot(NOON, gpu(), processes=(given,)))
    assert rule.answer(history, given) is None


def holding(
    share: float, server: InferenceServer, load: ServerLoad | None = None
) -> Finding | None:
    """What is said of a server's memory that is this share of a GPU."""
    history = History(conditions())
    given = replace(
        process(memory_used=int(share * 80 * GIB)), place=Workload(server=server), load=load
    )
    history.add(snapshot(NOON, gpu(memory_total=80 * GIB), processes=(given,)))
    return of_kind(process_findings(history, given), FindingKind.PREALLOCATED)


def vllm(value: str | None = None, **changes: object) -> InferenceServer:
    setting = "--gpu-memory-utilization"
    server = InferenceServer("vllm", "m", 100, 1, memory_setting=setting, memory_value=value)
    return replace(server, **changes)


def test_memory_that_a_server_takes_at_its_start_names_the_setting() -> None:
    found = known(holding(0.31, vllm("0.30"), replace(IDLE, kv_cache=2.0)))
    assert found.sentence == (
        "much of this memory may be unused: vLLM reserves it at start, however few requests come, "
        "and holds 31 % of GPU 0; --gpu-memory-utilization is 0.30"
    )
    assert found.short == "preallocated by vLLM"
    assert found.evidence == (
        "holds 31 % of GPU 0",
        "its command is that of vLLM",
        "--gpu-memory-utilization is 0.30",
        "KV cache 2 % used",
    )


def test_memory_that_requests_need_is_not_unused() -> None:
    assert holding(0.31, vllm("0.30"), FULL) is None
    assert holding(0.31, vllm("0.30"), ServerLoad(problem="it needs a key")) is not None


def test_a_setting_that_is_not_set_has_its_default() -> None:
    found = known(holding(0.91, vllm()))
    assert found.sentence.endswith(
        "; --gpu-memory-utilization is not set, its default is 0.9, from version 0.21 on 0.92"
    )


@pytest.mark.parametrize(
    ("share", "server"),
    [
        (0.5, vllm()),
        (0.1, vllm("0.30")),
        (0.9, vllm("0.30")),
        (0.9, vllm("much")),
        (0.9, vllm("nan")),
        (0.9, vllm("-1")),
        # It may be set there.
        (0.9, vllm(has_config_file=True)),
        (0.9, InferenceServer("llama.cpp", "m", 100, 1)),
        # Nearly all of it is the model: the cache has 8 % of the GPU.
        (0.3, InferenceServer("lmdeploy", "m", 100, 1, "--cache-max-entry-count", "0.1")),
        (0.9, InferenceServer("an engine of tomorrow", "m", 100, 1, "--memory")),
    ],
)
def test_nothing_is_reserved_that_does_not_fit_the_setting(
    share: float, server: InferenceServer
) -> None:
    assert holding(share, server) is None


@pytest.mark.parametrize("engine", [key for key, one in ENGINES.items() if one.memory_setting])
def test_every_server_that_takes_its_memory_at_its_start_is_told(engine: str) -> None:
    setting = ENGINES[engine].memory_setting
    found = known(holding(0.93, InferenceServer(engine, "m", 100, 1, memory_setting=setting)))
    assert f"{setting} is not set, its default is " in found.sentence
    assert cell_width(found.short) <= SHORT_CELLS
    found = known(holding(0.9, InferenceServer(engine, "m", 100, 1, setting, "0.85")))
    assert found.sentence.endswith(f"{setting} is 0.85")
