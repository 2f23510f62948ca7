"""Which servers are asked, how often, and what a process gets of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from math import inf
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.config.settings import Serving
from gpumon.host.listeners import Sockets, sockets_of
from gpumon.host.workloads import WorkloadReader
from gpumon.model.processes import GpuProcess, GpuUse, ProcessId, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.sampling import asked_server
from gpumon.sampling.asked_server import EVERY
from gpumon.sampling.enrichment import Lookup
from gpumon.sampling.servers import Servers
from gpumon.serving import client
from gpumon.system.system import System
from tests.build import gpu, snapshot
from tests.clock import HandClock
from tests.known import known
from tests.lives import until
from tests.screen import PATIENCE
from tests.serving.answers import HANGS
from tests.serving.fake_server import FakeServer, answer, ok, vllm_text

pytestmark = pytest.mark.usefixtures("patient")

OTHER = 12345
"""A user who does not run these tests."""


def on_gpu(server: FakeServer, **changes: object) -> GpuProcess:
    """The server's process, as one that the driver lists."""
    process = GpuProcess(
        server.id,
        "C",
        (GpuUse("GPU-0", 0),),
        uid=os.geteuid(),
        user="me",
        **changes,  # type: ignore[arg-type]  # keywords pass through
    )
    return replace(process, place=WorkloadReader().read([process])[process.id])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    with FakeServer(tmp_path) as running:
        yield running


class Asking:
    """The queries, with a clock that is moved by hand."""

    def __init__(self, **settings: object) -> None:
        self.clock = HandClock()
        self.reads = 0
        self.settings = Serving(**settings)  # type: ignore[arg-type]  # keywords pass through
        self.servers = Servers(self._read, System(clock=self.clock))

    def _read(self) -> Serving:
        self.reads += 1
        return self.settings

    def load(self, *processes: GpuProcess) -> ServerLoad | None:
        return self.servers.find(processes)[0].get(processes[0].id)


def test_a_server_of_the_user_is_asked_and_its_processes_get_what_it_reports(
    server: FakeServer,
) -> None:
    asking = Asking()
    process = on_gpu(server)
    server.answer(ok(vllm_text(3, 2, 0.98, 1000, 500, 10)))
    assert asking.load(process) == ServerLoad(3, 2, kv_cache=98.0, models=("qwen",))
    asking.clock.now += EVERY
    server.answer(ok(vllm_text(1, 0, 0.5, 1500, 1500, 12)))
    assert asking.load(process) == ServerLoad(1, 0, 0.4, 200, 100, 50.0, ("qwen",))


def test_it_is_asked_every_five_seconds_at_most(server: FakeServer) -> None:
    asking = Asking()
    process = on_gpu(server)
    for _ in range(20):
        _, pause = asking.servers.find([process])
        assert 0 < pause <= EVERY
        asking.clock.now += 0.5
    assert len(server.requests) == 2
    assert asking.reads == 1


def test_all_processes_of_a_server_get_the_same_and_it_is_asked_once(server: FakeServer) -> None:
    asking = Asking()
    first = on_gpu(server)
    worker = replace(first, id=replace(first.id, pid=first.id.pid + 1_000_000))
    loads, _ = asking.servers.find([first, worker])
    assert loads[first.id] is loads[worker.id]
    assert len(server.requests) == 1


@pytest.mark.parametrize("uid", [OTHER, None], ids=["another's", "unknown"])
def test_a_server_whose_user_is_not_this_one_is_not_asked(
    server: FakeServer, uid: int | None
) -> None:
    assert Asking().load(replace(on_gpu(server), uid=uid, user="svc-llm")) is None
    assert server.requests == []


def test_a_server_that_reports_no_metrics_is_not_asked(tmp_path: Path) -> None:
    """It is like any other process: its kernels say whether it is idle."""
    with FakeServer(tmp_path, "llama_cpp.server", ("--port", "{port}")) as server:
        process = on_gpu(server)
        assert known(known(process.place).server).engine == "llama-cpp-python"
        assert Asking().servers.find([process]) == ({}, inf)
        assert server.requests == []


def test_a_process_that_says_it_is_of_another_users_server_gets_nothing(server: FakeServer) -> None:
    """The outermost process decides: anybody can start a program below another one."""
    mine = on_gpu(server)
    assert Asking().load(mine, replace(mine, id=replace(mine.id, pid=1), uid=OTHER)) is None
    assert server.requests == []


@pytest.mark.root
def test_a_server_of_a_user_whom_the_configuration_names_is_asked(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o755)
    prefix = ("setpriv", f"--reuid={OTHER}", "--clear-groups")
    with FakeServer(tmp_path, prefix=prefix) as server:
        process = replace(on_gpu(server), uid=OTHER, user="svc-llm")
        assert Asking().load(process) is None
        assert server.requests == []
        assert Asking(users="bo, svc-llm").load(process) == ServerLoad(
            0, 0, kv_cache=0.0, models=("qwen",)
        )
        # The user of the listening process counts, not only that of the one on the GPU.
        mine = replace(process, uid=os.geteuid())
        load = known(Asking().load(mine))
        assert load.problem == f"none of its processes listens on port {server.port}"
        assert len(server.requests) == 1


def test_a_setting_turns_it_off(server: FakeServer) -> None:
    assert Asking(ask=False).servers.find([on_gpu(server)]) == ({}, inf)
    assert server.requests == []


def test_without_a_server_not_even_the_settings_are_read() -> None:
    asking = Asking()
    process = GpuProcess(ProcessId(1, 1), "C", (), uid=os.geteuid(), place=Workload())
    assert asking.servers.find([process]) == ({}, inf)
    assert asking.reads == 0


def test_a_key_comes_from_a_file(server: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("s3cret\n")
    process = on_gpu(server)
    Asking(token_files={str(server.port): str(file)}).load(process)
    assert "Authorization: Bearer s3cret\r\n" in server.requests[-1]
    # That of another port is for another server.
    Asking(token_files={"1": str(file)}).load(process)
    assert "Authorization" not in server.requests[-1]
    load = Asking(token_files={str(server.port): "/nonexistent"}).load(process)
    assert str(load and load.problem).startswith("the file with its key cannot be read")


def test_a_problem_passes(server: FakeServer) -> None:
    asking = Asking()
    process = on_gpu(server)
    server.answer(answer("401 Unauthorized"))
    assert asking.load(process) == ServerLoad(problem="it needs a key")
    server.answer(ok(vllm_text(running=1)))
    asking.clock.now += EVERY
    assert asking.load(process) == ServerLoad(1, 0, kv_cache=0.0, models=("qwen",))


def test_a_server_that_does_not_answer_is_asked_less_and_less(server: FakeServer) -> None:
    asking = Asking()
    process = on_gpu(server)
    server.answer(answer("500 Oops"))
    asked = []
    for _ in range(300):
        before = len(server.requests)
        asking.load(process)
        if len(server.requests) > before:
            asked.append(asking.clock.now - 1000)
        asking.clock.now += 1
    assert asked == [0, 5, 15, 35, 75, 135, 195, 255]


def test_what_is_unchanged_is_the_same_object(server: FakeServer) -> None:
    asking = Asking()
    process = on_gpu(server)
    asking.load(process)
    asking.clock.now += EVERY
    first = asking.load(process)
    asking.clock.now += EVERY
    assert asking.load(process) is first


def test_a_port_that_another_process_listens_on_is_not_asked(
    server: FakeServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its command line says the port of the first server, on which it does not listen."""
    arguments = ("serve", "m", "--port", str(server.port))
    with FakeServer(tmp_path_factory.mktemp("other"), arguments=arguments) as liar:
        load = Asking().load(on_gpu(liar))
    assert load == ServerLoad(problem=f"none of its processes listens on port {server.port}")
    assert server.requests == []


_LAUNCHER = """\
import subprocess, sys
subprocess.call(sys.argv[sys.argv.index("--") + 1:])
"""


def test_a_child_may_listen_in_place_of_the_outermost_process(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As the router of TGI, whose launcher is the parent of it and of what is on the GPU."""
    launcher = tmp_path_factory.mktemp("launcher") / "text-generation-launcher"
    launcher.write_text(_LAUNCHER)
    arguments = ("--port", "{port}")
    with FakeServer(
        tmp_path,
        "text-generation-router",
        arguments,
        prefix=(sys.executable, str(launcher), "--model-id", "m", *arguments, "--"),
    ) as server:
        server.answer(ok("tgi_batch_current_size 3\ntgi_queue_size 1\n"))
        process = on_gpu(server)
        assert known(process.place).server == InferenceServer(
            "tgi", "m", server.id.pid, server.id.start_time, "--cuda-memory-fraction"
        )
        assert Asking().load(process) == ServerLoad(3, 1)


def test_a_server_that_has_ended_is_not_looked_for_at_another_port(tmp_path: Path) -> None:
    with FakeServer(tmp_path) as server:
        process = on_gpu(server)
    assert Asking().load(process) == ServerLoad(problem="it has ended")


def test_a_server_that_does_not_listen_yet_is_looked_into_once(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have hundreds of children that compile its model."""
    launcher = tmp_path_factory.mktemp("launcher") / "vllm"
    launcher.write_text(_LAUNCHER)
    looks: list[ProcessId] = []

    def looked_into(process: ProcessId, system: System) -> Sockets:
        looks.append(process)
        return sockets_of(process, system)

    monkeypatch.setattr(asked_server, "sockets_of", looked_into)
    prefix = (sys.executable, str(launcher), "serve", "m", "--port", "1", "--")
    with FakeServer(tmp_path, arguments=("serve", "m"), prefix=prefix) as server:
        load = Asking().load(on_gpu(server))
        assert load == ServerLoad(problem="none of its processes listens on port 1")
        assert looks == [server.id]


def test_what_others_report_is_known_before_all_hung_servers_were_waited_for(
    server: FakeServer, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PATIENCE", 1.0)
    with ExitStack() as stack:
        hung = [stack.enter_context(FakeServer(tmp_path_factory.mktemp("hung"))) for _ in range(3)]
        for each in hung:
            each.answer(HANGS)
        processes = [on_gpu(hung[0]), on_gpu(server), on_gpu(hung[1]), on_gpu(hung[2])]
        asking = Servers(Serving)
        loads, pause = asking.find(processes)
        assert loads == {hung[0].id: ServerLoad(problem="no answer within 1s")}
        assert pause == 0
        loads, pause = asking.find(processes)
        assert hung[2].id not in loads
        # On a busy machine it may be late.
        assert loads[server.id].problem in {None, "no answer within 1s"}
        assert pause == 0


def test_the_servers_of_others_leave_room_for_ones_own(server: FakeServer) -> None:
    """More are not asked than can be in time, and those of others would not be asked anyway."""
    own = on_gpu(server)
    assert own.place is not None
    others = []
    for pid in range(1_000_000, 1_000_100):
        of_other = InferenceServer("vllm", "m", pid, own.id.start_time)
        place = replace(own.place, server=of_other)
        others.append(replace(own, uid=OTHER, user="svc-llm", place=place))
    loads, _ = Asking().servers.find([*others, own])
    assert set(loads) == {own.id}


def test_the_lookup_adds_what_servers_report(server: FakeServer) -> None:
    process = replace(on_gpu(server), place=None)
    sample = snapshot(0.0, gpu(), processes=(process,))

    class Host:
        """Knows where the process runs, and nothing else."""

        def __getattr__(self, name: str) -> object:
            return {
                "workloads": lambda listed: WorkloadReader().read(listed),
                "scan": lambda _: None,
                "relatives": lambda _: (),
            }[name]

    server.answer(ok(vllm_text(running=4)))
    lookup = Lookup(Host(), servers=Servers(Serving))  # type: ignore[arg-type]  # what is asked
    found = lookup.look_once(sample, patience=PATIENCE)
    (annotated,) = found.processes
    assert annotated.load == ServerLoad(4, 0, kv_cache=0.0, models=("qwen",))
    assert annotated.resting is False
    # The same tuple while nothing is new.
    assert lookup.annotate(sample).processes is found.processes

    lookup = Lookup(Host(), servers=Servers(Serving))  # type: ignore[arg-type]  # as above
    lookup.start()
    try:
        until(lambda: lookup.annotate(sample).processes[0].load is not None, "its answer")
    finally:
        lookup.stop()


def test_a_server_that_still_loads_is_found_soon_after_it_listens(
    server: FakeServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However long it took: nobody was asked meanwhile."""
    arguments = ("serve", "m", "--port", str(server.port))
    with FakeServer(tmp_path_factory.mktemp("loads"), arguments=arguments) as loads:
        asking = Asking()
        process = on_gpu(loads)
        for _ in range(20):
            _, pause = asking.servers.find([process])
            assert 0 < pause <= 10
            asking.clock.now += pause
    assert server.requests == []
