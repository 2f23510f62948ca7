"""The report of a visit: its tables, what differs, what is missing, and no names."""

from __future__ import annotations

import csv
import io
import shutil
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.bench import watching
from tests.bench.rows import is_cut, whole_rows
from tests.bench.tables import markers, table
from tests.bench.watching import Failed, Turn
from tests.command import run_program
from tests.gpu import compare, latency, screen
from tests.gpu.agreement import Verdict
from tests.gpu.compare import Row
from tests.gpu.differing import printed
from tests.gpu.ending import Ended, Endings, OutOfMemory
from tests.gpu.facts import Facts, GpuFacts
from tests.gpu.latency import Run
from tests.gpu.report import LATENCY_README, WATCHING_README, report, write
from tests.gpu.visit import Outcome
from tests.gpu.work import ROOT

SAME, DIFFERS, FAILED = (each.value for each in (Verdict.SAME, Verdict.DIFFERS, Verdict.FAILED))
UUID = "GPU-cf952104-9acb-58db-b25e-6a5ab02b28f7"
SERIAL = "1652823054567"
GROUPS = (
    *("Values beside nvidia-smi", "Processes beside nvidia-smi", "Known loads"),
    *("Tests on the card", "Steps of the visit", "Ends of processes"),
    *("Refused to an ordinary user, not to root", "Screens"),
)
ROUNDS = "in 3 of 20 rounds under load."
NOTHING = {group: ["Nothing differs."] for group in GROUPS}


class Visit(NamedTuple):
    """What ``visited`` writes; the defaults are those of a visit on which nothing differs."""

    rows: Sequence[Row] = ()
    steps: Sequence[Outcome] = ()
    simulated: bool = False
    pytest: str = "....\n4 passed in 3.10s\n"
    case: dict[str, Any] = {}  # noqa: RUF012 - never changed
    memory: dict[str, Any] = {}  # noqa: RUF012 - never changed
    refused: dict[str, list[int]] = {}  # noqa: RUF012 - never changed
    page: str = "GPU 0"
    failed: Sequence[Failed] = ()


CASE = Ended(
    "PyTorch",
    tried=True,
    seen_ms=20.5,
    memory_used_bytes=2**30,
    end={"processes": [{"pid": 7, "outcome": "ended", "sentence": None}], "memory": []},
    memory_back_ms=30.1,
    memory_missing_bytes=0,
)
OUT_OF_MEMORY = OutOfMemory(
    tried=True,
    error="out of memory",
    holder_seen=True,
    refused_select="no GPU has 4 GiB free",
    after_ms=800,
    worked_after=True,
)
GPU = GpuFacts(
    "NVIDIA H100 80GB HBM3", 80 * 2**30, "9.0", None, mig_mode=False, persistence_mode=None
)


def visited(out: Path, visit: Visit | None = None) -> Path:
    """A folder as a visit leaves it."""
    visit = visit or Visit()
    done = Outcome("compare", "compare.csv", 0, 99.5, "done", "")
    packages = {"jax": "0.9.1", "torch": "2.11.0"}
    steps = [done, *visit.steps]
    facts = Facts(
        date="2026-11-06",
        simulated=visit.simulated,
        gpus=[GPU],
        driver_version="580.95.05",
        cores=16,
        packages=packages,
        steps=steps,
    )
    (out / "facts.json").write_bytes(msgspec.json.encode(facts))
    ending = Endings(
        [msgspec.structs.replace(CASE, **visit.case)],
        msgspec.structs.replace(OUT_OF_MEMORY, **visit.memory),
    )
    (out / "ending.json").write_bytes(msgspec.json.encode(ending))
    (out / "pytest.txt").write_text(visit.pytest)
    _write_rows(out, visit)
    _write_screens(out, visit.page)
    with tarfile.open(out / "run.tar", "w") as file:
        member = tarfile.TarInfo("run.csv.zst")
        member.size = 1000
        file.addfile(member, io.BytesIO(bytes(1000)))
    return out


def _write_rows(out: Path, visit: Visit) -> None:
    with (out / "compare.csv").open("w", newline="") as opened:
        rows = compare.Table(opened)
        for number in range(1, 21):
            text = f"{50 + number}"
            rows.write(
                Row("tensor", number, "0", "query-gpu", "temperature.gpu", text, text, "0", SAME)
            )
        rows.write(Row("idle", 1, "0", "pmon", "memory of process 7", "", "", "", SAME))
        rows.write(Row("tensor", 1, "0", "gpm", "sm_active", "95", "at least 60: why", "0", SAME))
        for row in visit.rows:
            rows.write(row)
    turns = [
        Turn(number, name, 900, 1.5 + number / 10, 2.0, 1.6, 3.0, cpu)
        for number in (1, 2, 3)
        for name, cpu in ((watching.UNWATCHED, None), ("gpumon -n 0.1", 1.5))
    ]
    watching.written([*turns, *visit.failed], out / "watching.csv")
    calls = {"nvmlA": [1e-6], "nvmlB": [2e-6]}
    _write_latency(
        out,
        [
            row
            for user, codes in (("root", {}), ("ordinary", visit.refused))
            for load in ("idle", "tensor")
            for row in latency.rows(
                Run(calls, codes, {}, "NVIDIA H100", "580"), user, load, "2026-11-06"
            )
        ],
    )


def _write_latency(out: Path, rows: list[dict[str, str]]) -> None:
    with (out / "latency.csv").open("w", newline="") as opened:
        writer = csv.DictWriter(opened, latency.COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)


def _write_screens(out: Path, page: str) -> None:
    lines = ["Screens of 200×50 cells, under load (products of matrices).", ""]
    lines += table(screen.HEADINGS, [("gpumon -n 0.1", "120", "10.0", "3.10", "37.5")])
    for each in screen.PAGES:
        lines += ["", f"## {each.name}", "", page]
    (out / screen.FILE).write_text("\n".join([*lines, ""]), encoding="utf-8")


def differing(out: Path) -> dict[str, list[str]]:
    """Heading -> the lines below it."""
    _, _, text = "\n".join(report(out).lines).partition("## What differs\n")
    parts = [part.split("\n") for part in text.split("\n### ")[1:]]
    return {heading: [line for line in lines if line] for heading, *lines in parts}


def test_where_nothing_differs_the_report_says_so_and_has_the_tables(tmp_path: Path) -> None:
    lines = report(visited(tmp_path)).lines
    assert lines[:3] == [
        "# A visit: 6 November 2026, NVIDIA H100 80GB HBM3, driver 580.95.05, 16 cores",
        "",
        "## What watching costs the watched",
    ]
    assert "| gpumon -n 0.1 | 1.700 | 1.600–1.800 | 2.000 | +0.00 % | 1.5 |" in lines
    assert any(line.endswith("16 cores, PyTorch 2.11.0; 3 rounds:") for line in lines)
    assert "| nvmlB | 2.0 | 2.0 | 2.0 | 2.0 | NVIDIA H100 | 580 | 2026-11-06 |" in lines
    assert "| gpumon -n 0.1 | 120 | 10.0 | 3.10 | 37.5 |" in lines
    assert differing(tmp_path) == NOTHING


def wrong(name: str, source: str, gpumon: str, smi: str, verdict: str = DIFFERS) -> list[Row]:
    """Three rounds of twenty, for a value that stands still."""
    verdicts = [verdict] * 3 + [SAME] * 17
    return [
        Row("tensor", number, "0", source, name, gpumon, smi, "", each)
        for number, each in enumerate(verdicts, 1)
    ]


VALUES, PROCESSES, LOADS, TESTS, STEPS, ENDS, REFUSED, SCREENS = GROUPS
HELD = "memory of the load's process"
DISAGREEMENTS = {
    VALUES: {
        f"enforced.power.limit: gpumon 12, nvidia-smi 52, {ROUNDS}": wrong(
            "enforced.power.limit", "query-gpu", "12", "52"
        ),
        f"memory.total: gpumon 3 MiB, nvidia-smi 300 MiB, {ROUNDS}": wrong(
            "memory.total", "query-gpu", f"{3 * 2**20}", "300"
        ),
        f"fan_speed in nvidia-smi -q -x: gpumon unknown, nvidia-smi 3 %, {ROUNDS}": wrong(
            "fan_speed", "xml", "", "3 %", Verdict.ONLY_SMI.value
        ),
        f"serial: differs, values left out, {ROUNDS}": wrong(
            "serial", "query-gpu", SERIAL, "99999999"
        ),
        "nvidia-smi -q -x: it hung, idle.": [
            Row("idle", 1, "", "xml", "", "", "it hung", "", FAILED)
        ],
    },
    PROCESSES: {
        f"{HELD} in nvidia-smi pmon: gpumon 512 MiB to 1024 MiB, nvidia-smi not listed, "
        "under copies.": [
            Row("copy", 1, "0", "pmon", HELD, f"{2**29}..{2**30}", "not listed", "", DIFFERS)
        ]
    },
    LOADS: {
        "sm_active: 80 where at most 30 is expected (few), under tiny kernels.": [
            Row("tiny", 1, "0", "gpm", "sm_active", "80", "at most 30: few", "50", DIFFERS)
        ],
        "dram_active: gpumon 0 to 1, DCGM 70, with memory held.": [
            Row("sleep", 1, "0", "gpm", "dram_active, DCGM", "0..1", "70", "69", DIFFERS)
        ],
        "the known load: there is no PyTorch, under copies.": [
            Row("copy", 0, "", "gpm", "", "", "there is no PyTorch", "", FAILED)
        ],
    },
}


@pytest.mark.parametrize(
    ("heading", "said", "rows"),
    [(heading, *each) for heading, found in DISAGREEMENTS.items() for each in found.items()],
)
def test_what_gpumon_and_nvidia_smi_disagree_on_is_a_sentence(
    tmp_path: Path, heading: str, said: str, rows: list[Row]
) -> None:
    assert differing(visited(tmp_path, Visit(rows=rows))) == NOTHING | {heading: [f"- {said}"]}


ALIVE = {"processes": [{"pid": 7, "outcome": "alive", "sentence": "it waits"}]}
NO_MEMORY_BACK = {"memory_back_ms": None, "memory_missing_bytes": None}


@pytest.mark.parametrize(
    ("heading", "visit", "said"),
    [
        (
            STEPS,
            Visit(steps=[Outcome("record", "run.tar", 0, 300, "cut", "")]),
            ["record (run.tar) was cut after 300 s."],
        ),
        (
            STEPS,
            Visit(steps=[Outcome("screen", "screen.txt", 0, 0, "failed", "no\nscreen")]),
            ["screen (screen.txt) failed: no screen."],
        ),
        (ENDS, Visit(case={"seen_ms": None}), ["PyTorch: gpumon did not see it."]),
        (
            ENDS,
            Visit(case={"end": ALIVE, **NO_MEMORY_BACK, "memory_missing_bytes": 3 * 2**30}),
            [
                "PyTorch: process 7 alive, it waits.",
                "PyTorch: 3072 MiB of its memory did not come back.",
            ],
        ),
        (
            ENDS,
            Visit(case={"end": None, "said": "odd", "memory_used_bytes": None, **NO_MEMORY_BACK}),
            [
                "PyTorch: odd.",
                "PyTorch: gpumon does not know its memory.",
                "PyTorch: gpumon end reported no process.",
                "PyTorch: whether its memory came back is not known.",
            ],
        ),
        (
            ENDS,
            Visit(case={"tried": False, "said": "no JAX", "end": None}),
            ["Not known: not tried: PyTorch (no JAX)."],
        ),
        (
            ENDS,
            Visit(memory={"error": "", "refused_select": "", "holder_seen": False}),
            [
                "out of memory: no run failed for want of memory.",
                "out of memory: gpumon did not see who held the memory.",
                "out of memory: gpumon select chose the GPU without free memory.",
            ],
        ),
        (
            ENDS,
            Visit(memory={"worked_after": False}),
            ["out of memory: the run had no memory after the holder's end either."],
        ),
        (REFUSED, Visit(refused={"nvmlB": [4, 4]}), ["nvmlB: NO_PERMISSION 2."]),
        (
            SCREENS,
            Visit(page="Not shown: it did not come."),
            [f"{page.name}: Not shown: it did not come." for page in screen.PAGES],
        ),
        (TESTS, Visit(pytest="sss\n3 skipped in 0.50s\n"), ["Not known: 3 skipped in 0.50s."]),
    ],
)
def test_what_went_otherwise_in_another_step_is_a_sentence(
    tmp_path: Path, heading: str, visit: Visit, said: list[str]
) -> None:
    found = differing(visited(tmp_path, visit))
    assert found == NOTHING | {heading: [f"- {text}" for text in said]}


def test_what_root_is_refused_too_and_other_codes_are_no_difference(tmp_path: Path) -> None:
    visited(tmp_path, Visit(refused={"nvmlA": [4], "nvmlB": [3]}))
    rows = whole_rows(tmp_path / "latency.csv")
    assert differing(tmp_path)[REFUSED] == ["- nvmlA: NO_PERMISSION 1."]
    for row in rows:
        if (row["user"], row["load"], row["function"]) == ("root", "idle", "nvmlA"):
            row["refused"] = "NO_PERMISSION 1"
    _write_latency(tmp_path, rows)
    assert differing(tmp_path)[REFUSED] == ["Nothing differs."]


def test_without_root_it_is_not_known_what_only_others_are_refused(tmp_path: Path) -> None:
    visited(tmp_path, Visit(refused={"nvmlB": [4]}))
    path = tmp_path / "latency.csv"
    lines = path.read_text().splitlines(keepends=True)
    missing = "root,idle,,,,,,not measured: this is not root,,,\n"
    path.write_text("".join([lines[0], *lines[5:], missing]))
    (said,) = differing(tmp_path)[REFUSED]
    idle, loaded = "root, idle: not measured: this is not root", "root, under load: not measured"
    assert said == f"- Not known: {idle}; {loaded}."


FAILURES = f"""..F.E [100%]
=================================== ERRORS ====================================
_________________ ERROR at setup of test_ten_samples __________________
E   OSError: [Errno 2] no such file: '/srv/ann-data/tests/tool'
=================================== FAILURES ===================================
_____________ test_every_value[memory used] _____________
    def test_every_value(metric, values):
>       assert disagreements(metric, values) == []
E       AssertionError: assert ['0: nvidia-s...ory used)'] == []
E         Left contains one more item: '0: nvidia-smi says 3, gpumon 4 and 4'
E         Full diff:

tests/gpu/test_real_card.py:90: AssertionError
_ _ _ _ _ _ _ _ _ _
_____________ test_every_value[serial] _____________
E       AssertionError: assert ['0: nvidia-smi says {SERIAL}'] == []
=========================== short test summary info ============================
ERROR tests/gpu/test_real_card.py::test_ten_samples - OSError: [Errno 2]...
FAILED tests/gpu/test_real_card.py::test_every_value[memory used] - AssertionE...
FAILED tests/gpu/test_real_card.py::test_every_value[serial] - AssertionErr...
FAILED tests/gpu/test_real_card.py::TestOwner::test_it - assert 1 == 2
============== 3 failed, 2 passed, 1 error in 65.12s (0:01:05) ===============
"""


def test_failed_tests_are_named_with_what_their_assertions_say(tmp_path: Path) -> None:
    assert differing(visited(tmp_path, Visit(pytest=FAILURES)))[TESTS] == [
        "- test_ten_samples: `OSError: [Errno 2] no such file: '…/tool'`.",
        (
            "- test_every_value[memory used]: `AssertionError: assert ['0: nvidia-s...ory used)'] "
            "== []; Left contains one more item: '0: nvidia-smi says 3, gpumon 4 and 4'`."
        ),
        "- test_every_value[serial]: failed, values left out.",
        "- TestOwner.test_it: `assert 1 == 2`.",
    ]


def test_a_run_of_pytest_that_was_cut_has_the_tests_that_had_failed(tmp_path: Path) -> None:
    text = "tests/gpu/test_a.py::test_b[x y] FAILED   [ 20%]\ntests/gpu/test_a.py::test_c PASS"
    assert printed(text.splitlines()) == ({"test_b[x y]": ""}, "")
    assert differing(visited(tmp_path, Visit(pytest=text)))[TESTS] == [
        "- test_b[x y]: failed.",
        "- Not known: pytest did not come to its end.",
    ]


def test_a_monitor_that_failed_is_said_below_the_table(tmp_path: Path) -> None:
    failed = Failed(1, "nvidia-smi -lms 100", "it ended while it was measured")
    lines = report(visited(tmp_path, Visit(failed=[failed]))).lines
    assert "nvidia-smi -lms 100 failed: it ended while it was measured." in lines


def test_an_empty_folder_gives_a_report_of_what_is_missing(tmp_path: Path) -> None:
    found = report(tmp_path)
    for name in ("pytest.txt", "compare.csv", "latency.csv", "watching.csv", "run.tar"):
        assert f"- {name} is missing." in found.lines
    assert found.lines.count("Not measured.") == 3
    assert (found.watching, found.latency) == ([], [])
    assert set(differing(tmp_path)) == set(GROUPS)
    for said in differing(tmp_path).values():
        assert said[0].startswith("- Not known: "), said


@pytest.mark.parametrize("size", [0, 1, 50, 120, 0.5, -1])
def test_files_that_were_cut_anywhere_are_said_and_reported(
    tmp_path: Path, size: int | float
) -> None:
    visited(tmp_path)
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        most = int(len(data) * size) if isinstance(size, float) else size
        path.write_bytes(data[: min(most, len(data) - 1)])
    said = "\n".join(report(tmp_path).lines)
    for name in ("facts.json", "ending.json"):
        assert f"- {name} cannot be read: " in said
    for name in ("compare.csv", "latency.csv", "watching.csv", "screen.txt"):
        assert f"- {name} {'is cut short' if size else 'has no rows'}." in said or (
            name == "screen.txt" and not size
        )
    # In fewer bytes there is no whole row.
    assert ("Nothing differs." in said) == (size not in {0, 1, 50})


def test_the_row_that_was_cut_is_left_out(tmp_path: Path) -> None:
    visited(tmp_path, Visit(rows=wrong("enforced.power.limit", "query-gpu", "12", "52")))
    path = tmp_path / "compare.csv"
    whole = path.read_text()
    path.write_text(whole + "idle,1,0,query-gpu,temperature.gpu,34,34,0,dif")
    assert is_cut(path)
    assert len(whole_rows(path)) == whole.count("\n") - 1
    (said,) = differing(tmp_path)[VALUES]
    assert said.startswith("- enforced.power.limit: ")
    assert "- compare.csv is cut short." in report(tmp_path).lines


@pytest.mark.parametrize("name", ["facts.json", "ending.json"])
def test_a_form_that_is_not_as_agreed_is_said(tmp_path: Path, name: str) -> None:
    visited(tmp_path)
    (tmp_path / name).write_text('{"steps": 7, "cases": 7}')
    assert any(line.startswith(f"- {name} cannot be read: ") for line in report(tmp_path).lines)


def test_a_name_a_path_and_a_number_of_that_machine_are_nowhere(tmp_path: Path) -> None:
    said = (
        f"{UUID}: /opt/secret/data/x.py, "
        "/home/annika/plans/train.py, /workdir/y.py; 1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    )
    step = Outcome("record", "run.tar", 0, 3, "failed", said)
    failed = Failed(2, "nvidia-smi -lms 100", "no /opt/secret/data/nvidia-smi")
    rows = [Row("idle", 1, "0", "query-gpu", "serial", SERIAL, SERIAL, "", SAME)]
    long = "[" + "y" * 470 + " /workdir/annika/node-17/secret/" + "z" * 60
    visit = Visit(
        rows=rows,
        steps=[step],
        failed=[failed],
        pytest=f"FAILED tests/a.py::test_b - {long}\n1 failed in 1s\n",
    )
    found = report(visited(tmp_path, visit))
    for part in (found.lines, found.watching):
        text = "\n".join(part)
        for hidden in ("annika", UUID, SERIAL, "workdir", "secret", "plans", "1b4e28ba"):
            assert hidden not in text
    (told,) = differing(tmp_path)[STEPS]
    for kept in ("record (run.tar) failed after 3 s", "GPU-…", "…/x.py", "…/train.py", "…/y.py"):
        assert kept in told
    (cut,) = differing(tmp_path)[TESTS]
    assert cut.startswith("- test_b: `[yyy")
    assert cut.endswith("`")
    assert len(cut) <= 501


def test_the_tables_replace_what_stood_in_the_readmes(tmp_path: Path) -> None:
    out, copies = tmp_path / "out", tmp_path / "copies"
    out.mkdir()
    for name in (WATCHING_README, LATENCY_README):
        (copies / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, copies / name)
    before = {name: (copies / name).read_text() for name in (WATCHING_README, LATENCY_README)}
    assert write(report(visited(out)), copies) == []
    for name, part, row in (
        (WATCHING_README, "watching", "| gpumon -n 0.1 | 1.700 | 1.600–1.800 |"),
        (LATENCY_README, "latency", "| nvmlB | 2.0 | 2.0 | 2.0 | 2.0 | NVIDIA H100 |"),
    ):
        begin, end = markers(part)
        head, _, rest = (copies / name).read_text().partition(begin)
        new, _, tail = rest.partition(end)
        assert row in new
        assert "measured" not in new
        assert before[name].startswith(head)
        assert before[name].endswith(tail)
    # What was measured on an unknown GPU is of no use, and on a simulated one it says nothing.
    for facts in (Facts(), Facts(simulated=True, gpus=[GPU])):
        (out / "facts.json").write_bytes(msgspec.json.encode(facts))
        assert write(report(out), copies) == [WATCHING_README, LATENCY_README]
    assert "| gpumon -n 0.1 | 1.700 |" in (copies / WATCHING_README).read_text()


def test_the_command_prints_the_report(tmp_path: Path) -> None:
    done = run_program(
        [sys.executable, "-m", "tests.gpu.report", str(visited(tmp_path))], cwd=ROOT, check=True
    )
    assert done.stdout.splitlines() == report(tmp_path).lines
