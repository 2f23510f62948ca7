"""``gpumon doctor``: the whole of it, as a person runs it."""

from __future__ import annotations

import io
import json
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpumon.doctor.context import ExaminedMachine, pci_gpus
from gpumon.doctor.report import doctor, examine
from gpumon.model.snapshot import GpuStatus
from tests.build import gpu
from tests.command import GPUMON, run_program
from tests.doctor.trees import PROCESSOR, Tree
from tests.driver import Driver, h100
from tests.makers.nvml_room import join_watchers
from tests.nvml_source import NvmlSource
from tests.screen import Screen

DOCTOR = [*GPUMON, "doctor"]


def run(*arguments: str, env: Mapping[str, str] = os.environ) -> subprocess.CompletedProcess[str]:
    return run_program([*DOCTOR, *arguments], env)


def checks(output: str) -> dict[str, dict[str, Any]]:
    return {check["check"]: check for check in json.loads(output)["checks"]}


@pytest.mark.skipif(bool(pci_gpus(ExaminedMachine())), reason="this machine has a GPU")
def test_a_machine_without_a_driver_is_told_what_to_do_in_lines_of_80_cells() -> None:
    done = run()
    assert (done.returncode, done.stderr) == (1, "")
    assert "FAIL  driver library" in done.stdout
    assert "→ Install the NVIDIA driver" in done.stdout
    assert "\x1b" not in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if "/" not in line)


def test_json_says_the_same_with_a_schema_and_the_worst_verdict() -> None:
    with Driver([h100()]) as driver:
        done = run("--json", env={**driver.env(), "CUDA_VISIBLE_DEVICES": "0"})
    report = json.loads(done.stdout)
    assert report["schema"] == "gpumon.doctor/1"
    found = checks(done.stdout)
    assert found["answer"]["verdict"] == "pass"
    assert found["driver library"]["section"] == "Driver"
    assert found["newest CUDA"]["found"].startswith("12.8")
    assert found["answer"]["todo"] is None
    verdicts = {check["verdict"] for check in report["checks"]}
    assert report["verdict"] == max(verdicts, key=("pass", "unknown", "warn", "fail").index)
    assert done.returncode == (report["verdict"] == "fail")


def examined(folder: Path, *, scrub: bool = False, **environ: str) -> str:
    """The report on a healthy machine with this environment."""
    out, environ = io.StringIO(), {"LANG": "C.UTF-8", **environ}
    machine = ExaminedMachine(root=Tree(folder).root, environ=environ, try_open=lambda _: None)
    with Driver([h100()]) as driver:
        driver.attach()
        status = doctor(NvmlSource(), out, scrub=scrub, machine=machine)
    join_watchers()
    assert status == 0, out.getvalue()
    return out.getvalue()


def test_a_healthy_machine_passes_and_exits_with_0(tmp_path: Path) -> None:
    report = examined(tmp_path)
    assert "FAIL" not in report
    assert " PASS  answer            1 GPU, in" in report


@pytest.mark.slow
def test_scrubbing_leaves_out_who_and_where() -> None:
    name = os.uname().nodename
    with Driver([h100()]) as driver:
        uuid = driver.cards[0].uuid
        home = {"HOME": "", "XDG_STATE_HOME": "/state", "VIRTUAL_ENV": "/venv"}
        env = driver.env() | {name: f"/home/annegret{path}" for name, path in home.items()}
        env |= {"USER": "annegret", "CUDA_VISIBLE_DEVICES": uuid}
        plain, scrubbed = run("--json", env=env), run("--json", "--scrub", env=env)
    assert "annegret" in plain.stdout
    assert uuid in plain.stdout
    assert "annegret" not in scrubbed.stdout
    assert uuid not in scrubbed.stdout
    # As a word: the name of a temporary folder may contain a short one by chance.
    assert name == "localhost" or not re.search(rf"\b{re.escape(name)}\b", scrubbed.stdout)
    assert json.loads(scrubbed.stdout)["scrubbed"] is True
    assert checks(plain.stdout).keys() == checks(scrubbed.stdout).keys()


@pytest.mark.usefixtures("fresh_user_names")
def test_a_user_whom_the_environment_does_not_name_is_left_out_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ("annegret", "x", 4711, 4711, "", "/data/annegret", "/bin/sh")
    monkeypatch.setattr("pwd.getpwuid", lambda _: pwd.struct_passwd(known))
    report = examined(tmp_path, scrub=True, GPUMON_LOCK_DIR="/data/annegret/locks")
    assert "/data/USER/locks" in report
    assert "annegret" not in report


def test_a_terminal_gets_colours_unless_it_wants_none() -> None:
    with Driver([h100()]) as driver:
        for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
            with Screen(DOCTOR, env={**driver.env(), **env}, columns=80, lines=60) as screen:
                screen.wait_for(r"\d+ checks")
                screen.wait_end()
                assert (b"\x1b[32m" in screen.output) == coloured
                assert all(len(line.rstrip()) <= 80 for line in screen.rows())


def test_the_page_names_every_check(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    version = "#define CUDNN_MAJOR 7\n#define CUDNN_MINOR 6\n#define CUDNN_PATCHLEVEL 5\n"
    tree.write("/usr/include/cudnn.h", version)
    tree.drm_card("0000:03:00.0", "amdgpu", 128)
    tree.drm_card("0000:07:00.0", "xe", 129)
    tree.drm_card(PROCESSOR, "i915", 130)
    cards = (
        gpu(),
        gpu(index=1, status=GpuStatus.ASLEEP),
        gpu(index=2, name="AMD Instinct MI210", pci_bus_id="0000:03:00.0"),
        gpu(index=3, name="Intel Arc B580", pci_bus_id="0000:07:00.0"),
    )
    variables = {"CUDA_VISIBLE_DEVICES": "0", "ZE_AFFINITY_MASK": "0"}
    case = tree.case(*cards, environ={"TERM": "xterm", **variables})
    page = (Path(__file__).parents[2] / "docs/doctor.md").read_text(encoding="utf-8")
    names = [result.check for result in examine(case)]
    assert len(names) >= 32
    assert [name for name in names if not re.search(rf" {name}(,| \|)", page)] == []


def test_nothing_heavy_is_imported_to_look_at_frameworks() -> None:
    code = (
        "import sys; from gpumon.cli import main; main(['doctor']); "
        "sys.exit(', '.join({'torch', 'tensorflow', 'jax', 'textual'} & set(sys.modules)))"
    )
    done = run_program([sys.executable, "-c", code])
    assert done.stderr.strip() == ""
