"""The columns of both tables: their headings, the type, named sets, and what can be added."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gpumon.config.columns import COLUMN_SETS
from gpumon.config.table import InvalidValue, read_columns
from gpumon.model.processes import ProcessId, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.model.snapshot import Host
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.process_filter import ProcessFilter
from gpumon.ui.view.process_table import Listing
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.ui.view.drawing import VIEW, dashboard_of, lines_of, text_of

if TYPE_CHECKING:
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu

HOST = Host(
    "ada-07",
    driver_version="570.124.06",
    cuda_version="12.8",
    cpu_percent=37.0,
    memory_total=1000 * GIB,
    memory_used=212 * GIB,
    load=(40.15, 1.0, 1.0),
)


def table(*processes: GpuProcess, view: View = VIEW, width: int = 160) -> list[str]:
    """The process table of a dashboard, with its heading."""
    now = replace(snapshot(NOON, gpu(), processes=processes), host=HOST)
    return lines_of(dashboard_of(now, width, view=view).processes)


def test_the_index_has_the_same_heading_in_both_tables() -> None:
    now = snapshot(NOON, gpu(), gpu(index=1), gpu(index=2), processes=(process(),))
    parts = dashboard_of(now, 120)
    assert text_of(parts.gpus[0]).split()[:2] == ["#", "GPU"]
    assert text_of(parts.processes[0]).split()[:2] == ["#", "PID"]


def test_the_type_is_hidden_while_all_processes_compute() -> None:
    compute = process(pid=1)
    draws = replace(process(pid=2), type="G")
    assert "T" not in table(compute)[0].split()
    heading, *rows = table(compute, draws)
    assert heading.split()[:4] == ["#", "PID", "USER", "T"]
    assert {row.split()[3] for row in rows[:2]} == {"C", "G"}, "a letter"
    only_compute = View(interval=0.5, narrowing=ProcessFilter(kind="C"))
    assert "T" not in table(compute, draws, view=only_compute)[0].split(), "as listed"
    chosen = View(interval=0.5, columns=("pid", "type", "command"))
    assert table(compute, view=chosen)[0].split() == ["PID", "T", "COMMAND"], "as chosen"


def served(pid: int, load: ServerLoad | None, server: int = 90) -> GpuProcess:
    """An engine of the server with this PID, which reports so much."""
    place = Workload(server=InferenceServer("vllm", "Qwen2.5-14B", pid=server, start_time=5))
    return replace(process(pid), place=place, load=load)


def test_columns_of_servers_are_there_while_a_server_reports_something() -> None:
    trains = replace(process(1), place=Workload())
    secret = served(2, ServerLoad(problem="it needs a key"))
    assert not {"WAIT", "TOK/S"} & set(table(trains, secret)[0].split())
    serves = served(3, ServerLoad(running=4, waiting=0, tokens=1234.4), server=91)
    assert "WAIT" not in table(trains, secret, serves)[0].split(), "nothing waits"
    waits = served(4, ServerLoad(running=4, waiting=7, tokens=0.0), server=92)
    heading, *rows = table(trains, secret, serves, waits)
    wait, tokens = heading.index("WAIT") + 4, heading.index("TOK/S") + 5
    cells = {row.split()[1]: (row[wait - 4 : wait], row[tokens - 5 : tokens]) for row in rows[:4]}
    assert cells["1"] == ("    ", "     "), "it is no server"
    assert cells["2"] == ("   –", "    –"), "a server that reports nothing"
    assert cells["3"] == ("   0", " 1234")
    assert cells["4"] == ("   7", "    0")


def test_everything_that_a_server_reports_can_be_a_column() -> None:
    columns = ("pid", "running", "waiting", "requests", "tokens", "kv_cache", "command")
    load = ServerLoad(running=12, waiting=3, requests=0.02, tokens=12_345.0, kv_cache=97.6)
    heading, row = table(served(7, load), view=View(interval=0.5, columns=columns))[:2]
    assert heading.split() == ["PID", "RUN", "WAIT", "REQ/S", "TOK/S", "KV%", "COMMAND"]
    assert row.split()[:6] == ["7", "12", "3", "<0.1", "12.3k", "98"]


def test_the_line_of_a_job_has_what_its_server_reports_once() -> None:
    load = ServerLoad(running=4, waiting=2, tokens=500.0)
    view = View(interval=0.5, listing=Listing.JOBS)
    heading, job, *engines = table(served(1, load), served(2, load), view=view)[:4]
    tokens = heading.index("TOK/S") + 5
    assert "vllm Qwen2.5-14B · 2 processes" in job
    assert [row[tokens - 5 : tokens] for row in (job, *engines)] == ["  500"] * 3


def test_a_server_is_idle_by_its_requests_where_its_use_is_unknown() -> None:
    view = View(interval=0.5, columns=("pid", "idle", "command"))
    serves = ServerLoad(running=1, waiting=0, requests=0.1, tokens=9.0)
    for load, idle in ((None, "–"), (serves, "")):
        unknown = replace(served(7, load), uses=process(sm=None).uses)
        heading, row = table(unknown, view=view)[:2]
        assert row[: heading.index("IDLE") + 4].split()[1:] == ([idle] if idle else [])


def test_the_columns_of_nvitop_can_be_chosen() -> None:
    columns = read_columns("nvitop")
    use = replace(process().uses[0], sm=60, memory_activity=34)
    one = replace(process(), uses=(use,), rss=125 * GIB, user="ann")
    heading, row = table(one, view=View(interval=0.5, columns=columns))[:2]
    assert heading.split() == [
        *("#", "PID", "USER", "GPU-MEM▼", "SM%", "MBW%", "CPU%", "RAM%", "AGE", "COMMAND")
    ]
    assert row[heading.index("MBW%") :].split()[0] == "34"
    assert row[: heading.index("RAM%") + 4].split()[-1] == "12.5", "of 1000 GiB"
    unknown = replace(process(), rss=None)
    heading, row = table(unknown, view=View(interval=0.5, columns=columns))[:2]
    assert row[: heading.index("RAM%") + 4].split()[-1] == "–"


def gpu_lines(columns: str | list[str], width: int, height: int, *cards: Gpu) -> list[str]:
    view = View(interval=0.5, columns=read_columns(columns))
    return lines_of(dashboard_of(snapshot(NOON, *cards), width, height, view).gpus)


@pytest.mark.parametrize(("width", "height"), [(200, 50), (100, 24)])
def test_fan_state_and_memory_bandwidth_can_be_added_to_the_list_of_gpus(
    width: int, height: int
) -> None:
    fans = gpu(utilization_memory=31, fan_speed=104, pstate=2)
    passive = gpu(index=1, utilization_memory=0, pstate=0)
    cards = [fans, passive, *(gpu(index=index) for index in range(2, 8))]
    heading, first, second, third, *_ = gpu_lines("nvitop", width, height, *cards)
    end = re.search(r"°C +power +mem bw +fan +pstate(?= |$)", heading)
    assert end is not None
    assert first[: end.end()].split()[-3:] == ["31%", "104%", "P2"]
    assert second[: end.end()].split()[-3:] == ["0%", "–", "P0"]
    assert third[: end.end()].split()[-3:] == ["0%", "–", "–"]
    plain = gpu_lines("default", width, height, *cards)[0]
    assert not re.search("mem bw|fan|pstate", plain)
    some = gpu_lines(["pid", "pstate", "fan_speed"], width, height, *cards)
    assert re.search(r"power +pstate +fan( |$)", some[0])
    assert re.search(r"W +P2 +104%( |$)", some[1])


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_column_that_is_added_is_whole_or_absent_and_moves_no_line(width: int) -> None:
    cards = [gpu(index=index, utilization_memory=31, pstate=2) for index in range(16)]
    lines = gpu_lines("nvitop", width, 24, *cards)
    assert {len(line) for line in lines} == {width}
    assert "mem b…" not in lines[0]
    assert "psta…" not in lines[0]


def test_a_set_of_columns_stands_beside_single_columns() -> None:
    chosen = read_columns(["nvitop", "where"])
    assert chosen[-6:] == ("age", "where", "command", "utilization_memory", "fan_speed", "pstate")
    assert read_columns(["fan_speed", "user"]) == ("pid", "user", "command", "fan_speed")
    assert read_columns("default") == COLUMN_SETS["default"]
    with pytest.raises(InvalidValue, match="did you mean nvitop"):
        read_columns("nvtop")


def test_a_worker_of_a_server_names_the_model_where_there_is_room() -> None:
    load = ServerLoad(running=1)
    worker = replace(served(1, load), command=("VLLM::EngineCore",))
    assert table(worker)[1].rstrip().endswith(" VLLM::EngineCore Qwen2.5-14B")
    place = Workload(server=InferenceServer("vllm", "org/\x1b[31m" + "m" * 500, pid=90))
    long = replace(worker, place=place)
    assert re.search(r" VLLM::EngineCore [^\x1b]+m+… *$", table(long)[1])
    copy = replace(worker, command=("vllm", "serve", "org/Qwen2.5-14B"))
    assert table(copy)[1].rstrip().endswith(" vllm serve org/Qwen2.5-14B"), "it stands there"
    whole = replace(worker, place=served(1, load, server=1).place)
    itself = replace(whole, id=ProcessId(1, 5))
    assert table(itself)[1].rstrip().endswith(" VLLM::EngineCore"), "its command says it"
