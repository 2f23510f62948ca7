"""A log has each process's inference server and what it reports, and a replay shows them."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.model.processes import GpuProcess, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.recording.csv.columns import PROCESS_COLUMNS
from tests.build import NOON, gpu, process, snapshot
from tests.known import known
from tests.recording.csv.reading import change_cells, drop_columns, sample_at, write_log
from tests.recording.csv.several import write_several

VLLM = InferenceServer(
    "vllm",
    "/models/Qwen2.5-14B-Instruct",
    pid=41233,
    start_time=77,
    memory_setting="--gpu-memory-utilization",
    memory_value="0.92",
)
BUSY = ServerLoad(3, 14, 0.125, 512.5, 2048.0, 98.5, ("qwen 14b", "it's", "=lora"))

COUNTS = st.none() | st.integers(0, 10**6)
RATES = st.none() | st.integers(0, 10**9).map(lambda thousandths: thousandths / 1000)
TEXTS = st.none() | st.text("abc /:.-='\",;@+", min_size=1)
SERVERS = st.builds(
    InferenceServer,
    st.sampled_from(["vllm", "sglang", "ollama", "an engine of later"]),
    TEXTS,
    pid=st.just(41233),
    start_time=COUNTS,
    memory_setting=TEXTS,
    memory_value=TEXTS,
    has_config_file=st.booleans(),
)
LOADS = st.builds(
    ServerLoad,
    COUNTS,
    COUNTS,
    RATES,
    RATES,
    RATES,
    st.none() | st.integers(0, 100_000).map(lambda thousandths: thousandths / 1000),
    st.lists(st.text("abc /'\"=", min_size=1), max_size=3).map(tuple),
    TEXTS,
)


def serving(
    pid: int = 41240, server: InferenceServer | None = VLLM, load: ServerLoad | None = BUSY
) -> GpuProcess:
    return replace(process(pid), place=Workload(session=5, server=server), load=load)


def log(path: Path, *processes: GpuProcess) -> Path:
    """A log of one sample of these processes."""
    return write_log(path / "run.csv", [snapshot(NOON, gpu(), processes=processes)])


def replayed(path: Path, host: str | None = None) -> tuple[GpuProcess, ...]:
    return sample_at(path, host=host).processes


def test_a_replay_shows_the_server_of_each_process_and_what_it_reported(tmp_path: Path) -> None:
    workers = [serving(pid, load=BUSY) for pid in (41240, 41241)]
    silent = serving(7, InferenceServer("tgi", pid=7), ServerLoad(problem="it needs a key"))
    logged = (*workers, silent, serving(8, None, None))
    found = {one.id.pid: (one.place, one.load) for one in replayed(log(tmp_path, *logged))}
    assert found == {one.id.pid: (one.place, one.load) for one in logged}


def test_a_log_of_several_machines_has_them_too(tmp_path: Path) -> None:
    loads = {"a": BUSY, "b": None}
    tick = {
        host: snapshot(NOON, gpu(), processes=(serving(load=load),)) for host, load in loads.items()
    }
    path = write_several(tmp_path / "run.csv", [tick])
    for host, load in loads.items():
        [found] = replayed(path, host)
        assert (known(found.place).server, found.load) == (VLLM, load)


@settings(deadline=None, max_examples=60)
@given(SERVERS | st.none(), LOADS | st.none())
@example(VLLM, ServerLoad(0, 0, 0.0, 0.0, None, 0.0))
def test_whatever_a_server_reports_is_read_back(
    server: InferenceServer | None, load: ServerLoad | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        [found] = replayed(log(Path(folder), serving(server=server, load=load)))
    assert found.place == Workload(session=5, server=server)
    # A load without any value is as good as none.
    assert found.load == (None if load == ServerLoad() else load)


def test_a_log_from_before_these_columns_is_replayed_as_before(tmp_path: Path) -> None:
    path = log(tmp_path, serving())
    names = [column.name for column in PROCESS_COLUMNS if column.part in {"server", "load"}]
    drop_columns(tmp_path / "run.processes.csv", *names)
    [found] = replayed(path)
    assert (found.place, found.load) == (Workload(session=5), None)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("server_process", "-4:2"),
        ("server_process", "9" * 4000),
        ("server_process", f"{10**30}:1"),
        ("server_running", "-1"),
        ("server_tokens [1/s]", "nan"),
        ("server_tokens [1/s]", "1e300"),
        ("server_kv_cache [%]", "101"),
        ("server_waiting", "many"),
        ("server_has_config_file", "perhaps"),
    ],
)
def test_a_forged_cell_is_unknown_and_others_stay(tmp_path: Path, column: str, cell: str) -> None:
    path = log(tmp_path, serving())
    change_cells(tmp_path / "run.processes.csv", (0, column, cell))
    [found] = replayed(path)
    server, load = known(known(found.place).server), known(found.load)
    assert (server.model, load.requests) == (VLLM.model, BUSY.requests)
    assert (server, load) != (VLLM, BUSY) or column == "server_has_config_file"


def test_texts_of_a_server_are_bounded_and_cannot_act(tmp_path: Path) -> None:
    hostile = "=1+1\x1b[2J\n" + "x" * 10**6
    server = replace(VLLM, model=hostile, memory_value=hostile)
    load = ServerLoad(models=(hostile,) * 100, problem=hostile)
    path = log(tmp_path, serving(server=server, load=load))
    written = (tmp_path / "run.processes.csv").read_text(encoding="utf-8")
    assert len(written) < 20_000
    assert "\x1b" not in written
    [row] = csv.DictReader(io.StringIO(written))
    for name in ("server_model", "server_memory_value", "server_models", "server_problem"):
        assert not row[name].startswith(("=", "+", "-", "@"))
    assert len(replayed(path)) == 1
