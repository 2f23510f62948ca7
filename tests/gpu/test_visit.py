"""A visit on the simulated driver: it runs through, its files are made, and what hangs is cut."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest

from gpumon.system.zstandard import zstd
from tests.command import run_program
from tests.driver import Driver, h100
from tests.driver.cuda import serving
from tests.driver.owners import lives
from tests.driver.smi import installed
from tests.gpu import compare, wheels
from tests.gpu.ending import Endings
from tests.gpu.record import HOST, Names, rows_without_names
from tests.gpu.visit import PLAN, SECONDS, Outcome, Stage, Step, Visit
from tests.gpu.work import ROOT
from tests.lives import until

SCRIPT = ROOT / "tests/gpu/visit.sh"
FILES = {
    *("facts.json", "pytest.txt", "compare.csv", "latency.csv", "watching.csv", "run.tar"),
    *("ending.json", "screen.txt"),
}


class Steps(msgspec.Struct):
    steps: list[Outcome]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_runs_through_and_a_wrong_value_is_among_what_differs(tmp_path: Path) -> None:
    out, programs = tmp_path / "out", tmp_path / "bin"
    programs.mkdir()
    installed(programs)
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    wrong = {"SMI_WRONG": "temperature.gpu=+40", "PATH": path}
    with Driver([h100(), h100()]) as driver, serving(driver):
        driver.open_to_all()
        done = subprocess.run(
            ["bash", str(SCRIPT), str(out), "--pace", "0.04"],
            env=driver.env() | wrong,
            capture_output=True,
            text=True,
            timeout=590,
            check=False,
        )
        assert driver.cards[0].processes == ()
    assert {file.name for file in out.iterdir()} == FILES
    steps = msgspec.json.decode((out / "facts.json").read_bytes(), type=Steps).steps
    assert {step.file: step.outcome for step in steps} == dict.fromkeys(FILES, "done"), done.stdout
    assert done.returncode == 0, done.stdout
    _check_endings(msgspec.json.decode((out / "ending.json").read_bytes(), type=Endings))
    _check_log(out / "run.tar")
    differing = {one.name for one in compare.differences(compare.read(out / "compare.csv"))}
    assert differing == {"temperature.gpu"}
    said = run_program(
        [sys.executable, "-m", "tests.gpu.report", str(out)], cwd=ROOT, check=True
    ).stdout
    assert "temperature.gpu: " in said
    private = (driver.cards[0].serial, driver.cards[0].uuid, str(ROOT))
    for file in FILES - {"run.tar"}:
        text = (out / file).read_text()
        assert not [word for word in private if word in text], file


def _check_endings(found: Endings) -> None:
    """Everything was seen and ended, and all memory came back."""
    for case in found.cases:
        if case.name == "inference server":
            continue
        assert case.tried, case
        assert case.end["processes"][0]["outcome"] == "ended"
        assert case.memory_missing_bytes == 0
    loaders, jax, *_ = found.cases
    assert len(loaders.end["processes"]) == 5
    assert "JAX" in jax.findings[0]
    want = found.out_of_memory
    assert "CUDA_ERROR_OUT_OF_MEMORY" in want.error
    assert "GPU 0" in want.refused_select
    assert want.holder_seen
    assert want.worked_after


def _check_log(file: Path) -> None:
    """Both logs, without this machine's names; the job fills the memory at its end."""
    with tarfile.open(file) as packed:
        logs = {
            entry.name: zstd.decompress(packed.extractfile(entry).read()).decode()  # type: ignore[union-attr]  # files
            for entry in packed
        }
    gpus = list(csv.DictReader(io.StringIO(logs["run.csv.zst"])))
    assert {row["host"] for row in gpus} == {HOST}
    used = [float(row["memory.used [MiB]"]) for row in gpus if row["index"] == "0"]
    assert max(used) > 60_000
    assert used[-1] < max(used)
    commands = {
        row["command"] for row in csv.DictReader(io.StringIO(logs["run.processes.csv.zst"]))
    }
    assert any("train.py" in command for command in commands)


@pytest.mark.slow
def test_a_step_that_hangs_is_cut_with_all_that_it_started_and_said(tmp_path: Path) -> None:
    stubborn = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "print(f'{os.getpid()} {child}' if child else '', flush=True)\n"
        "print('it hangs here', file=sys.stderr, flush=True)\n"
        "time.sleep(600)\n"
    )
    hanging = Step("hanging", "pids.txt", ("-c", stubborn), 10.0, output=True)
    failing = Step("failing", "f.txt", ("-c", "raise SystemExit('no such GPU')"), 60.0)
    next_one = Step("next", "out.txt", ("-c", "print('done')"), 60.0, output=True)
    visit = Visit(tmp_path, 1.0, 120.0)
    assert not visit.go([Stage(((hanging, failing, next_one),), 100)])
    assert [one.outcome for one in visit.outcomes] == ["cut", "failed", "done"]
    assert "it hangs here" in visit.outcomes[0].said
    assert "no such GPU" in visit.outcomes[1].said
    assert (tmp_path / "out.txt").read_text() == "done\n"
    pids = [int(pid) for pid in (tmp_path / "pids.txt").read_text().split()]
    assert len(pids) == 2
    until(lambda: not any(lives(pid) for pid in pids), "their end")
    known = msgspec.json.decode((tmp_path / "facts.json").read_bytes(), type=Steps)
    assert known.steps == visit.outcomes


def test_a_step_without_time_left_is_not_begun(tmp_path: Path) -> None:
    visit = Visit(tmp_path, 1.0, 0.0)
    late = Step("late", "late.txt", ("-c", "print()"), 5.0, output=True)
    assert not visit.go([Stage(((late,),), 10)])
    assert visit.outcomes[0].outcome == "not begun"
    assert not (tmp_path / "late.txt").exists()


def test_the_plan_makes_eight_files_within_nine_minutes() -> None:
    steps = [step for stage in PLAN for row in stage.rows for step in row]
    assert sorted(step.file for step in steps) == sorted(FILES)
    assert sum(stage.seconds for stage in PLAN) <= SECONDS < 540


def test_without_a_folder_it_says_how_to_call_it() -> None:
    done = run_program(["bash", str(SCRIPT)])
    assert done.returncode != 0
    assert "usage: bash tests/gpu/visit.sh OUT" in done.stderr


def test_a_log_keeps_its_numbers_and_loses_its_names() -> None:
    text = (
        "host,uuid,user,command,pid\n"
        "gpu.example.org,GPU-1,carol,/home/carol/bin/python secret.py --token x,17\n"
        "gpu.example.org,GPU-1,carol,python -m tests.gpu.record --job 3,18\n"
        "gpu.example.org,GPU-2,dave,,19\n"
    )
    rows = list(csv.DictReader(io.StringIO(rows_without_names(text, Names()))))
    assert [row["user"] for row in rows] == ["ann", "ann", "ben"]
    assert [row["pid"] for row in rows] == ["17", "18", "19"]
    assert {row["host"] for row in rows} == {HOST}
    assert rows[0]["uuid"] == rows[1]["uuid"] != rows[2]["uuid"]
    assert rows[0]["command"] == "python"
    assert "train.py" in rows[1]["command"]
    assert rows[2]["command"] == ""


def test_wheels_are_those_of_the_project_and_of_these_tests() -> None:
    wanted = wheels.requirements()
    for name in ("textual", "nvidia-ml-py", "msgspec", "pytest-timeout", "pyte", "nvitop"):
        assert any(one.startswith(f"{name}>=") for one in wanted), name
    assert not any(one.startswith(("ziglang", "playwright")) for one in wanted)


def test_a_visit_that_is_ended_ends_its_steps(tmp_path: Path) -> None:
    waiting = (
        "import os, sys, time; open(sys.argv[1], 'w').write(f'{os.getpid()}\\n'); time.sleep(600)"
    )
    # The step is at work for a while before the visit knows of it, and another thread than the one
    # that waits receives the signal: so nothing interrupts that wait, as when it has just begun.
    visiting = (
        "import signal, subprocess, sys, time\n"
        "class SlowToReturn(subprocess.Popen):\n"
        "    def __init__(self, *arguments, **options):\n"
        "        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])\n"
        "        super().__init__(*arguments, **options)\n"
        "        time.sleep(1)\n"
        "subprocess.Popen = SlowToReturn\n"
        "from pathlib import Path\n"
        "from tests.gpu.visit import Stage, Step, Visit\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "step = Step('waiting', 'pid', ('-c', sys.argv[2], sys.argv[1] + '/pid'), 300.0)\n"
        "Visit(Path(sys.argv[1]), 1.0).go([Stage(((step,),), 300.0)])\n"
    )
    file = tmp_path / "pid"
    command = [sys.executable, "-c", visiting, str(tmp_path), waiting]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as visit:
        until(lambda: file.exists() and file.read_text().endswith("\n"), "the step")
        pid = int(file.read_text())
        visit.terminate()
        assert visit.wait(60) != 0
    until(lambda: not lives(pid), "its end")
