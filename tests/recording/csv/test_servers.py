"""A log has each process's inference server and what it reports, and a replay shows them."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.model.processes import Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.recording.csv.recording import open_log
from tests.build import NOON, gpu, process, snapshot
from tests.recording.csv.reading import opened, write_log
from tests.recording.csv.several import write_several

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.processes import GpuProcess

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


def replayed(path: Path, host: str | None = None) -> tuple[GpuProcess, ...]:
    if host is not None:
        recording = open_log(path, host=host)
        try:
            found = recording.at(NOON)
        finally:
            recording.close()
    else:
        with opened(path) as recording:
            found = recording.at(NOON)
    assert found is not None
    return found.processes


def rewrite(path: Path, change: Callable[[list[list[str]]], list[list[str]]]) -> None:
    """Change the cells of a file."""
    rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(change(rows))


def test_a_replay_shows_the_server_of_each_process_and_what_it_reported(tmp_path: Path) -> None:
    workers = [serving(pid, load=BUSY) for pid in (41240, 41241)]
    silent = serving(7, InferenceServer("tgi", pid=7), ServerLoad(problem="it needs a key"))
    plain = serving(8, None, None)
    path = write_log(
        tmp_path / "run.csv", [snapshot(NOON, gpu(), processes=(*workers, silent, plain))]
    )
    found = {one.id.pid: (one.place, one.load) for one in replayed(path)}
    assert found == {one.id.pid: (one.place, one.load) for one in (*workers, silent, plain)}


def test_a_log_of_several_machines_has_them_too(tmp_path: Path) -> None:
    ticks = [
        {
            "a": snapshot(NOON, gpu(), processes=(serving(),)),
            "b": snapshot(NOON, gpu(), processes=(serving(load=None),)),
        }
    ]
    path = write_several(tmp_path / "run.csv", ticks)
    assert [one.load for one in replayed(path, "a")] == [BUSY]
    [process_of_b] = replayed(path, "b")
    assert process_of_b.load is None
    assert process_of_b.place is not None
    assert process_of_b.place.server == VLLM


@settings(deadline=None, max_examples=60)
@given(SERVERS | st.none(), LOADS | st.none())
def test_whatever_a_server_reports_is_read_back(
    server: InferenceServer | None, load: ServerLoad | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_log(
            Path(folder) / "run.csv",
            [snapshot(NOON, gpu(), processes=(serving(server=server, load=load),))],
        )
        [found] = replayed(path)
    assert found.place == Workload(session=5, server=server)
    # A load without any value is as good as none.
    assert found.load == (None if load == ServerLoad() else load)


def test_zero_is_not_unknown(tmp_path: Path) -> None:
    idle = ServerLoad(0, 0, 0.0, 0.0, None, 0.0)
    path = write_log(tmp_path / "run.csv", [snapshot(NOON, gpu(), processes=(serving(load=idle),))])
    [found] = replayed(path)
    assert found.load == idle
    assert found.load is not None
    assert found.load.is_idle is True


def test_a_log_from_before_these_columns_is_replayed_as_before(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [snapshot(NOON, gpu(), processes=(serving(),))])

    def old(rows: list[list[str]]) -> list[list[str]]:
        width = rows[0].index("gpumon_log") + 1
        return [row[:width] for row in rows]

    rewrite(tmp_path / "run.processes.csv", old)
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
def test_a_forged_cell_is_unknown_and_the_others_stay(
    tmp_path: Path, column: str, cell: str
) -> None:
    path = write_log(tmp_path / "run.csv", [snapshot(NOON, gpu(), processes=(serving(),))])

    def forged(rows: list[list[str]]) -> list[list[str]]:
        rows[1][rows[0].index(column)] = cell
        return rows

    rewrite(tmp_path / "run.processes.csv", forged)
    [found] = replayed(path)
    assert found.place is not None
    assert found.place.server is not None
    assert found.place.server.model == VLLM.model
    assert found.load is not None
    assert found.load.requests == BUSY.requests
    assert (found.place.server, found.load) != (VLLM, BUSY) or column == "server_has_config_file"


def test_texts_of_a_server_are_bounded_and_cannot_act(tmp_path: Path) -> None:
    hostile = "=1+1\x1b[2J\n" + "x" * 10**6
    server = replace(VLLM, model=hostile, memory_value=hostile)
    load = ServerLoad(models=(hostile,) * 100, problem=hostile)
    path = write_log(
        tmp_path / "run.csv",
        [snapshot(NOON, gpu(), processes=(serving(server=server, load=load),))],
    )
    written = (tmp_path / "run.processes.csv").read_text(encoding="utf-8")
    assert len(written) < 20_000
    assert "\x1b" not in written
    rows = list(csv.DictReader(io.StringIO(written)))
    assert len(rows) == 1
    for name in ("server_model", "server_memory_value", "server_models", "server_problem"):
        assert not rows[0][name].startswith(("=", "+", "-", "@"))
    assert len(replayed(path)) == 1
