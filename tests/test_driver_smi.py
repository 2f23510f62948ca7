"""The stand-in for nvidia-smi answers in the forms of the real one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver import GIB, MIB, Driver, Owner, h100, owners
from tests.driver.smi import installed
from tests.gpu.agreement import COMPARED


class Program:
    """nvidia-smi on a machine with one GPU and a process on it."""

    def __init__(self, path: Path, driver: Driver, pid: int) -> None:
        self.command = str(path)
        self.env = driver.env()
        self.pid = pid

    def ask(self, *arguments: str, status: int = 0, **environ: str) -> str:
        done = subprocess.run(
            [self.command, *arguments],
            env={**self.env, **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done
        return done.stdout


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    with (
        Driver([h100()], driver_version="580.95.05") as driver,
        owners(1, ["python", "train.py"]) as (process,),
    ):
        driver.cards[0].processes = [Owner(process.pid, memory=3 * GIB, sm=40)]
        driver.cards[0].memory_used = 3 * GIB + MIB // 4
        yield Program(installed(tmp_path), driver, process.pid)


def test_units_stand_in_the_header_and_behind_each_value(program: Program) -> None:
    names = "--query-gpu=index,memory.used,power.draw,temperature.gpu,fan.speed"
    assert program.ask(names, "--format=csv").splitlines() == [
        "index, memory.used [MiB], power.draw [W], temperature.gpu, fan.speed [%]",
        "0, 3072 MiB, 71.30 W, 34, [N/A]",
    ]
    assert program.ask(names, "--format=csv,noheader,nounits") == "0, 3072, 71.30, 34, [N/A]\n"


def test_an_unknown_field_is_refused(program: Program) -> None:
    said = program.ask("--query-gpu=index,cuda_version", "--format=csv", status=2)
    assert said.splitlines()[0] == 'Field "cuda_version" is not a valid field to query.'


def test_the_help_names_every_field_that_gpumon_shows(program: Program) -> None:
    lines = program.ask("--help-query-gpu").splitlines()
    assert lines[0] == 'List of valid properties to query for the switch "--query-gpu":'
    assert '"clocks_event_reasons.active" or "clocks_throttle_reasons.active"' in lines
    assert "Section about ecc.errors properties" in lines
    quoted = {line.split('"')[1] for line in lines if line.startswith('"')}
    assert {metric.smi for metric in COMPARED} <= quoted


def test_processes(program: Program) -> None:
    apps = program.ask("--query-compute-apps=pid,used_memory,name", "--format=csv,noheader")
    assert apps == f"{program.pid}, 3072 MiB, python\n"
    header, units, row = program.ask("pmon", "-c", "1").splitlines()
    assert header.split()[1:6] == ["gpu", "pid", "type", "fb", "ccpm"]
    assert units.startswith("# Idx")
    assert row.split()[:6] == ["0", str(program.pid), "C", "3072", "0", "40"]


def test_the_table_comes_again_and_again(program: Program) -> None:
    once = program.ask()
    assert once.count("NVIDIA-SMI 580.95.05") == 1
    with subprocess.Popen(
        [program.command, "-lms", "20"], env=program.env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        tables = 0
        for line in process.stdout:
            tables += "NVIDIA-SMI" in line
            if tables == 3:
                break
        process.kill()
    assert tables == 3


def test_a_value_can_be_made_wrong(program: Program) -> None:
    wrong = "temperature.gpu=+40,clocks/sm_clock=7 MHz"
    text = program.ask("-q", "-x", SMI_WRONG=wrong)
    assert "<sm_clock>7 MHz</sm_clock>" in text
    assert "<gpu_temp>34 C</gpu_temp>" in text
    asked = program.ask("--query-gpu=temperature.gpu", "--format=csv,noheader", SMI_WRONG=wrong)
    assert asked == "74\n"
