"""The columns of both tables: headings, named sets, what can be added, and their widths."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gpumon.config.columns import COLUMN_SETS
from gpumon.config.table import InvalidValue, read_columns
from gpumon.model.processes import GpuProcess, ProcessId, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.model.snapshot import Gpu
from gpumon.text.process_columns import PROCESS_COLUMNS
from gpumon.text.table import Sort
from gpumon.ui.view.dashboard_rows import Dashboard, Parts
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.process_filter import ProcessFilter
from gpumon.ui.view.process_table import Listing
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.ui.view.drawing import VIEW, Live, dashboard_of, demo, demo_dashboard, lines_of, text_of
from tests.ui.view.test_header import HOST


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


def lines(parts: Parts) -> list[str]:
    """The table with its heading."""
    return [text_of(row).rstrip() for row in parts.processes]


def widths(parts: Parts) -> dict[str, int]:
    """The width of each column; the command has the rest."""
    found = {column.label: column.width for column in parts.layout.columns}
    return {label: width for label, width in found.items() if width}


class Table(Live):
    """One dashboard that draws one list of processes after the other."""

    def __init__(self, width: int = 120, **view: object) -> None:
        super().__init__(replace(View(interval=1.0), **view), width)

    def draw_list(self, seconds: float, *processes: GpuProcess) -> Parts:
        self.see(snapshot(NOON + seconds, gpu(), processes=processes))
        return self.draw()


def in_place(one: GpuProcess, session: str | None) -> GpuProcess:
    return replace(one, place=Workload(tmux=session))


@pytest.mark.parametrize(("width", "least"), [(80, 20), (100, 28), (120, 50), (200, 110)])
@pytest.mark.parametrize("listing", [Listing.PROCESSES, Listing.TREE, Listing.JOBS])
def test_the_command_has_what_the_other_columns_do_not_need(
    width: int, least: int, listing: Listing
) -> None:
    now, history = demo()
    silent = [replace(process, load=None) for process in now.processes]
    without_servers = replace(now, processes=tuple(silent))
    for shown, servers in ((without_servers, 0), (now, len("TOK/S "))):
        parts = Dashboard(history).rows(shown, View(interval=0.5, listing=listing), width, 50)
        heading = lines(parts)[0]
        assert " IDLE " in heading
        assert (" TOK/S " in heading) == (servers > 0)
        assert width - heading.index("COMMAND") >= least - servers
        assert (" WHERE " in heading) == (width >= 100)


@pytest.mark.parametrize("width", [160, 200, 300])
def test_a_wide_terminal_shows_where_processes_run_in_full(width: int) -> None:
    shown = "\n".join(lines(demo_dashboard(8, width, 50)))
    for where in ("slurm 88123.batch ", "jupyter 8a2f3c1e ", "docker vllm-qwen14b "):
        assert where in shown


def test_a_narrow_column_has_the_name_in_place_of_the_kind_of_where_a_process_runs() -> None:
    shown = "\n".join(lines(demo_dashboard(8, 120, 50)))
    for where in (" tmux llama ", " 88117.0 ", " 88123.bat… ", " vllm-qwen… "):
        assert where in shown
    assert "slurm" not in shown


def test_a_text_of_any_length_leaves_the_command_its_cells() -> None:
    table = Table()
    long = in_place(process(pid=4_194_304, user="a" * 40), "s" * 80)
    assert 120 - lines(table.draw_list(0, long))[0].index("COMMAND") >= 50
    table.size = 300, 24
    assert widths(table.draw_list(1, long))["WHERE"] == 28


def test_values_change_without_moving_a_column() -> None:
    table = Table()
    first = table.draw_list(0, process(sm=9, memory_used=512 * 2**20))
    for seconds, (sm, cpu, rss, memory) in enumerate(
        [(99, 9.0, 1, GIB // 4), (100, 99.0, 99 * GIB, GIB), (1, 3200.0, GIB, 75 * GIB)], start=1
    ):
        changed = replace(process(sm=sm, memory_used=memory), cpu_percent=cpu, rss=rss)
        parts = table.draw_list(seconds, changed)
        assert widths(parts) == widths(first)
        assert "…" not in lines(parts)[1]


def test_a_column_grows_at_once_and_shrinks_after_half_a_minute() -> None:
    table = Table(width=160)
    short, long = in_place(process(), "ft"), in_place(process(), "a-longer-session")
    before = widths(table.draw_list(0, short))
    grown = widths(table.draw_list(1, long))
    assert grown["WHERE"] == before["WHERE"] + 14
    for seconds in range(2, 32):
        assert widths(table.draw_list(seconds, short)) == grown
    assert widths(table.draw_list(32, short)) == before


def test_an_empty_column_is_not_there_and_does_not_blink() -> None:
    table = Table()
    nowhere, somewhere = in_place(process(), None), in_place(process(), "ft")
    assert "WHERE" not in lines(table.draw_list(0, nowhere))[0]
    assert "IDLE" not in lines(table.draw_list(1, nowhere))[0]
    assert "WHERE" in lines(table.draw_list(2, somewhere))[0]
    for seconds in range(3, 33):
        assert "WHERE" in lines(table.draw_list(seconds, nowhere))[0]
    assert "WHERE" not in lines(table.draw_list(33, nowhere))[0]
    unknown = replace(process(), place=None)
    assert "WHERE" not in lines(table.draw_list(34, unknown))[0], "it is looked up after the start"
    assert "  – " in lines(table.draw_list(35, unknown, somewhere))[1], "unknown is not empty"


@pytest.mark.parametrize(
    "change",
    [
        {"narrowing": ProcessFilter(user="bo")},
        {"listing": Listing.TREE, "narrowing": ProcessFilter(user="bo")},
    ],
)
def test_another_choice_of_what_is_listed_fits_the_columns_at_once(
    change: dict[str, object],
) -> None:
    table = Table()
    named = in_place(process(pid=4_000_000, user="a-long-name"), "session")
    other = in_place(process(pid=7, user="bo"), None)
    before = widths(table.draw_list(0, named, other))
    table.change(**change)
    after = widths(table.draw_list(1, named, other))
    assert "WHERE" in before
    assert "WHERE" not in after
    assert (after["PID"], after["USER"]) == (3, 4)


def test_a_jump_in_time_fits_the_columns_at_once() -> None:
    for seconds in (-5.0, 60.0):
        table = Table()
        table.draw_list(0, in_place(process(user="a-long-name"), "session"))
        then = snapshot(NOON + seconds, gpu(), processes=(in_place(process(), None),))
        shown = table.dashboard.rows(then, table.view, 120, 24)
        assert "WHERE" not in lines(shown)[0]
        assert widths(shown)["USER"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_arrow_of_each_column_fits_its_heading(width: int, descending: bool) -> None:
    for column in PROCESS_COLUMNS:
        view = View(interval=0.5, sort=Sort(column.key, descending))
        parts = demo_dashboard(8, width, 50, view)
        heading = lines(parts)[0]
        assert "…" not in heading
        if column.key in {shown.key for shown in parts.layout.columns}:
            arrow = "▼" if descending else "▲"
            assert f"{column.short or column.label}{arrow}" in heading


def test_the_column_of_the_order_is_there_even_if_it_is_empty() -> None:
    table = Table(sort=Sort("idle"))
    assert "IDLE▼" in lines(table.draw_list(0, process(sm=50)))[0]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_click_sorts_by_the_heading_under_it(width: int) -> None:
    parts = demo_dashboard(8, width, 50)
    heading = lines(parts)[0]
    for column in parts.layout.columns:
        label = column.short or column.label
        label += "▼" * (column.key == "memory_used")
        for x in range(heading.index(f" {label}") + 1, heading.index(f" {label}") + len(label) + 1):
            assert parts.layout.column_at(x) is column


def test_columns_that_the_user_chose_are_there_even_if_they_are_empty() -> None:
    table = Table(columns=("pid", "type", "idle", "where", "command"))
    heading = lines(table.draw_list(0, in_place(process(sm=50), None)))[0]
    assert heading.split() == ["PID", "T", "IDLE", "WHERE", "COMMAND"]
