"""Which server a process belongs to: with real processes, and with lines that a test can choose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.host.workloads import WorkloadReader
from gpumon.model.processes import GpuProcess
from gpumon.model.serving import InferenceServer
from tests.driver.owners import owners
from tests.host.fakes import FakeWorkloads
from tests.host.test_workloads import seen
from tests.known import known

START = 100
"""When each process of the fake lines was started."""

SPAWNING_SERVER = """
import multiprocessing, os, sys

def work():
    print(os.getpid(), flush=True)
    sys.stdin = open(0)
    sys.stdin.read()

if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    child = context.Process(target=work)
    child.start()
    child.join()
"""


@pytest.fixture
def fake(tmp_path: Path) -> FakeWorkloads:
    return FakeWorkloads(tmp_path)


def server_of(fake: FakeWorkloads, process: GpuProcess) -> InferenceServer | None:
    return WorkloadReader(fake.proc.system).read([process])[process.id].server


def real_server(process: GpuProcess) -> InferenceServer | None:
    return WorkloadReader().read([process])[process.id].server


def vllm(pid: int, model: str | None, value: str | None = None) -> InferenceServer:
    return InferenceServer("vllm", model, pid, START, "--gpu-memory-utilization", value)


def test_a_real_process_is_a_server_by_its_command() -> None:
    command = ["vllm", "serve", "Qwen/Qwen2.5-14B-Instruct", "--gpu-memory-utilization=0.6"]
    with owners(1, command) as [owner]:
        one = seen(owner.pid)
        assert real_server(one) == InferenceServer(
            *("vllm", "Qwen/Qwen2.5-14B-Instruct", owner.pid, one.id.start_time),
            *("--gpu-memory-utilization", "0.6"),
        )


def test_a_real_process_is_a_server_by_its_environment() -> None:
    variables = {"MODEL_ID": "tiiuae/falcon-7b", "CUDA_MEMORY_FRACTION": "0.5", "HF_TOKEN": "hf_x"}
    with owners(1, ["text-generation-launcher"], environ=variables) as [owner]:
        server = known(real_server(seen(owner.pid)))
    assert (server.model, server.memory_value) == ("tiiuae/falcon-7b", "0.5")


def test_a_worker_whose_server_is_out_of_sight_is_one_of_its_kind() -> None:
    with owners(1, ["VLLM::EngineCore"]) as [owner]:
        one = seen(owner.pid)
        # Nothing says what its memory setting is: a program may have set it in its code.
        assert real_server(one) == InferenceServer("vllm", None, owner.pid, one.id.start_time)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_real_worker_of_pythons_multiprocessing_belongs_to_its_server(
    tmp_path: Path, method: str
) -> None:
    program = tmp_path / "vllm"
    program.write_text(SPAWNING_SERVER.format(method=method))
    with subprocess.Popen(
        [sys.executable, program, "serve", "qwen"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        server = known(real_server(seen(int(known(started.stdout).readline()))))
        assert server == real_server(seen(started.pid))
        started.communicate()
    assert (server.pid, server.model) == (started.pid, "qwen")


def test_all_processes_of_a_server_have_its_identity_model_and_setting(fake: FakeWorkloads) -> None:
    fake.add(10, "bash", start=START)
    fake.add(
        11,
        "/opt/venv/bin/python3 /opt/venv/bin/vllm serve qwen --gpu-memory-utilization 0.8",
        parent=10,
    )
    core = fake.add(12, "VLLM::EngineCore", parent=11)
    workers = [fake.add(pid, f"VLLM::Worker_TP{pid - 13}", parent=12) for pid in (13, 14)]
    helper = fake.add(15, "python3 -m mpi4py.futures.server", parent=12)
    for one in (core, *workers, helper):
        assert server_of(fake, one) == vllm(11, "qwen", "0.8")


def test_the_workers_that_mpi_starts_belong_to_the_server_above_its_daemon(
    fake: FakeWorkloads,
) -> None:
    # Open MPI's mailing list has such a tree, of orte/mca/ess/singleton.
    fake.add(20, "/usr/bin/python3 /usr/local/bin/trtllm-serve m")
    fake.add(21, "orted --hnp --set-sid --report-uri 6 --singleton-died-pipe 7", parent=20)
    one = fake.add(22, "/usr/bin/python3 -m mpi4py.futures.server", parent=21)
    server = known(server_of(fake, one))
    assert (server.engine, server.model, server.pid) == ("tensorrt-llm", "m", 20)


def test_what_ollama_runs_is_ollama(fake: FakeWorkloads) -> None:
    # ollama/ollama: llm/llama_server.go.
    fake.add(30, "/usr/local/bin/ollama serve")
    runner = fake.add(
        31,
        "/usr/local/lib/ollama/llama-server --model /blobs/sha256-dde5 --port 41233 --offline",
        parent=30,
    )
    assert server_of(fake, runner) == InferenceServer("ollama", None, 30, START)
    old = fake.add(32, "/usr/local/bin/ollama runner --model /blobs/sha256-dde5", parent=30)
    assert server_of(fake, old) == InferenceServer("ollama", None, 30, START)
    other = fake.add(33, "/usr/local/bin/llama-server --model /m.gguf")
    assert server_of(fake, other) == InferenceServer("llama.cpp", "/m.gguf", 33, START)


def test_what_is_started_near_a_server_is_none(fake: FakeWorkloads) -> None:
    fake.add(40, "bash")
    fake.add(41, "vllm serve qwen", parent=40)
    beside = fake.add(42, "python train.py", parent=40)
    below = fake.add(43, "python bench.py --model qwen", parent=41)
    fake.add(44, "bash", parent=41)
    by_shell = fake.add(45, "python -m mpi4py.futures.server", parent=44)
    above = fake.add(40, "bash")
    for one in (beside, below, by_shell, above):
        assert server_of(fake, one) is None


def test_a_server_that_starts_another_is_not_it(fake: FakeWorkloads) -> None:
    fake.add(50, "ray::ServeReplica:llms:LLMServer")
    core = fake.add(51, "VLLM::EngineCore", parent=50)
    server = known(server_of(fake, core))
    assert (server.engine, server.pid) == ("vllm", 51)


def test_an_exec_makes_another_server_of_a_process(fake: FakeWorkloads) -> None:
    one = fake.add(60, "bash")
    assert fake.place(one).server is None
    fake.add(60, "vllm serve a")
    assert fake.place(one).server == vllm(60, "a")
    fake.add(60, "ollama serve")
    assert fake.place(one).server == InferenceServer("ollama", None, 60, START)


def test_a_title_that_comes_later_keeps_the_server(fake: FakeWorkloads) -> None:
    fake.add(70, "vllm serve a")
    one = fake.add(71, "vllm serve a", parent=70)
    assert fake.place(one).server == vllm(70, "a")
    fake.add(71, "VLLM::EngineCore", parent=70)
    assert fake.place(one).server == vllm(70, "a")


def test_without_its_environment_a_server_has_no_setting_that_this_may_hold(
    fake: FakeWorkloads,
) -> None:
    one = fake.add(80, "text-generation-launcher --model-id m", CUDA_MEMORY_FRACTION="0.5")
    server = known(server_of(fake, one))
    assert (server.memory_setting, server.memory_value) == ("--cuda-memory-fraction", "0.5")
    fake.hide_environ(80)
    assert server_of(fake, one) == InferenceServer("tgi", "m", 80, START)


def test_a_line_that_turns_in_a_circle_ends(fake: FakeWorkloads) -> None:
    fake.add(90, "vllm serve a", parent=91)
    one = fake.add(91, "VLLM::EngineCore", parent=90)
    assert known(server_of(fake, one)).engine == "vllm"


def test_only_helpers_are_no_server(fake: FakeWorkloads) -> None:
    fake.add(95, "python -m mpi4py.futures.server")
    assert server_of(fake, fake.add(96, "orted", parent=95)) is None


def test_this_test_is_no_server() -> None:
    assert real_server(seen(os.getpid())) is None
