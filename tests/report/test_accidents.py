"""``gpumon report --accidents``: what happened, and whose it was."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.snapshot import Snapshot
from gpumon.recording.archive import Archive
from gpumon.report.accidents import FIGURES, print_accidents
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.command import run_here
from tests.recording.archive.archives import archived
from tests.report.logs import write_log

FELL = Accident(NOON + 10, AccidentKind.ERROR_CODE, "GPU-0", 79, 100, "python", None, "fell off")
FOLLOWS = Accident(NOON + 10.5, AccidentKind.ERROR_CODE, "GPU-0", 45, 100, "python", "00000008")
KILLED = Accident(NOON + 30, AccidentKind.OUT_OF_MEMORY, None, None, 7, "load", memory=3 * GIB)


def samples() -> list[Snapshot]:
    """Ann's process leaves GPU 0 when it falls off the bus; another stays on GPU 1."""
    hers = replace(
        process(started_at=NOON - 7200), name="python", command=("python", "a\x1b[2J.py")
    )
    other = process(200, gpus=(1,), user="bo")
    taken = []
    for second in range(60):
        there = (hers, other) if second <= 10 else (other,)
        one = snapshot(NOON + second, gpu(index=0), gpu(index=1), processes=there)
        known = tuple(each for each in (FELL, FOLLOWS, KILLED) if each.time < one.time)
        taken.append(replace(one, accidents=known))
    return taken


@pytest.fixture(params=["log", "history"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if request.param == "history":
        return {"paths": [], "history": Archive(archived(tmp_path / "history", samples()))}
    timed = [(one, one.time - NOON) for one in samples()]
    return {"paths": [str(write_log(tmp_path / "run.csv", timed))]}


def printed(source: dict[str, Any], **options: Any) -> str:
    out = io.StringIO()
    assert print_accidents(**source, **options, out=out, width=100) == 0
    return out.getvalue()


def accidents(source: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    return list(json.loads(printed(source, form="json", **options))["accidents"])


def test_it_says_whose_it_was_and_what_ended(source: dict[str, Any]) -> None:
    first, second = accidents(source)
    assert (first["number"], first["gpu"], first["pid"], first["user"]) == (79, 0, 100, "ann")
    assert (first["present"], first["left"]) == ([100], [100])
    assert first["lost_gpu_hours"] == pytest.approx(2.0, abs=0.05)
    assert first["kernel"] == "fell off"
    assert first["followed_by"].startswith("XID 45: ")
    assert (second["kind"], second["pid"], second["process_name"]) == ("out of memory", 7, "load")
    # Nobody had seen it on a GPU.
    assert (second["user"], second["job"], second["left"], second["gpu"]) == (None,) * 4


def test_people_read_it_line_by_line(source: dict[str, Any]) -> None:
    text = printed(source)
    assert "GPU 0  XID 79: the GPU fell off the bus\n  then XID 45: a program was ended" in text
    assert "\n  the kernel names 100 python of ann" in text
    assert "had 3.0 GiB of host memory" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_each_form_has_the_same_keys(source: dict[str, Any]) -> None:
    keys = [one.key for one in FIGURES]
    rows = list(csv.DictReader(printed(source, form="csv").splitlines()))
    assert [list(each) for each in (accidents(source)[0], *rows)] == [keys] * 3
    assert rows[1]["number"] == ""


def test_only_the_time_and_the_hosts_that_are_wanted(source: dict[str, Any]) -> None:
    late = accidents(source, first="2023-11-14T12:00:20+00:00")
    assert [one["pid"] for one in late] == [7]
    assert printed(source, hosts=frozenset({"elsewhere"})) == "No accident is known in that time.\n"


class _Unsearched(Archive):
    @property
    def events_complete(self) -> bool:
        return False


def test_what_was_not_searched_or_is_damaged_is_said(tmp_path: Path) -> None:
    folder = archived(tmp_path / "history", samples())
    (folder / "000000-20231114-000000.gpumon").write_text("nothing of gpumon's\n")
    archives = [{"paths": [], "history": kind(folder)} for kind in (Archive, _Unsearched)]
    searched, unsearched = (
        json.loads(printed(archive, form="json", search_seconds=0.0))["notes"]
        for archive in archives
    )
    assert "A part of the history is damaged, and left out." in searched
    assert [note for note in unsearched if "not been searched completely" in note]


@pytest.mark.parametrize("name", [["--by", "user"], ["--plot"], ["--price", "1"], ["--job", "3"]])
def test_what_is_of_usage_is_refused(name: list[str]) -> None:
    done = run_here("report", "run.csv", "--accidents", *name)
    assert done.returncode == 2
    assert f"cannot be used with {name[0]}" in done.stderr


def test_the_machine_of_an_accident_is_named_where_there_are_several(tmp_path: Path) -> None:
    paths = []
    for name in ("ada-07", "bo-01"):
        taken = [replace(one, host=replace(one.host, name=name)) for one in samples()]
        timed = [(one, one.time - NOON) for one in taken]
        paths.append(str(write_log(tmp_path / f"{name}.csv", timed)))
    both, one = printed({"paths": paths}), printed({"paths": paths[:1]})
    assert "  ada-07  GPU 0  XID 79" in both
    assert "  bo-01  GPU 0  XID 79" in both
    assert "ada-07" not in one
