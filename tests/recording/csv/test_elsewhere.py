"""What other people's tools make of a log, without a word of help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from gpumon.makers.demo import DemoSource
from tests.recording.csv.reading import write_log

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot


@pytest.fixture(scope="module")
def sampled() -> list[Snapshot]:
    source = DemoSource()
    source.open()
    return list(source.past())[-40:]


def ask(question: str, path: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        return database.execute(question.replace("FILE", str(path))).fetchall()


@pytest.mark.slow
def test_duckdb_opens_both_files_and_knows_times_and_numbers(
    tmp_path: Path, sampled: list[Snapshot]
) -> None:
    path = tmp_path / "run.csv"
    write_log(path, sampled)
    types = dict(row[:2] for row in ask("describe select * from 'FILE'", path))
    assert types["timestamp"] == "TIMESTAMP WITH TIME ZONE"
    for column in ("memory.used [MiB]", "power.draw [W]", "elapsed [s]"):
        assert types[column] == "DOUBLE"
    assert types["utilization.gpu [%]"] == types["index"] == "BIGINT"
    ((rows, cards, memory),) = ask(
        "select count(*), count(distinct uuid), sum(\"memory.used [MiB]\") from 'FILE'", path
    )
    gpus = [gpu for snapshot in sampled for gpu in snapshot.gpus]
    assert (rows, cards) == (len(gpus), len({gpu.uuid for gpu in gpus}))
    assert memory == pytest.approx(sum(gpu.memory_used or 0 for gpu in gpus) / 2**20)

    processes = tmp_path / "run.processes.csv"
    ((last,),) = ask("select count(distinct pid) from 'FILE'", processes)
    assert last == len({process.id.pid for one in sampled for process in one.processes})
    types = dict(row[:2] for row in ask("describe select * from 'FILE'", processes))
    assert types["used_gpu_memory [MiB]"] == "DOUBLE"
    assert types["pid"] == "BIGINT"


def test_an_unknown_value_is_null_and_no_zero(tmp_path: Path, sampled: list[Snapshot]) -> None:
    path = tmp_path / "run.csv"
    write_log(path, sampled)
    lost = sum(gpu.power_draw is None for one in sampled for gpu in one.gpus)
    ((found,),) = ask("select count(*) from 'FILE' where \"power.draw [W]\" is null", path)
    assert found == lost > 0
