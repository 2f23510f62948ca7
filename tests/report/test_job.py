"""``gpumon report --job``: all that logs say of one Slurm job."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.cli import main
from gpumon.model.allocations import Allocation
from gpumon.model.processes import Workload
from gpumon.model.snapshot import Snapshot
from gpumon.report.chosen_job import ChosenJob, chosen_job
from gpumon.report.figures import figures_of
from gpumon.report.output import print_report
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.command import run_here
from tests.known import known
from tests.recording.csv.several import write_several
from tests.report.logs import printed, refused, report, write_log
from tests.report.page import PAGE
from tests.report.test_adding_up import (
    BEFORE_ALL,
    START,
    Row,
    assert_adds_up,
    logs,
    sample,
    use,
    write,
)

JOB = ChosenJob("88123")
SECONDS = 60


def sampled(second: float, host: str, sm: int | None, job: str = "88123") -> Snapshot:
    """Two GPUs that a job has on a host; a process with this load is on the first of them."""
    cards = tuple(
        gpu(index=index, uuid=f"{host}-{index}", energy=1e6 + 700.0 * second * (1 - index))
        for index in range(2)
    )
    taken = snapshot(NOON + second, *cards)
    if sm is not None:
        mine = replace(process(7, sm=sm, memory_used=4 * GIB), place=Workload(slurm_job=job))
        own = tuple(replace(use, gpu_uuid=f"{host}-0") for use in mine.uses)
        taken = replace(taken, processes=(replace(mine, uses=own),))
    has = (Allocation("slurm", job, "ann", tuple(card.uuid for card in cards)),)
    return replace(taken, allocations=has, host=replace(taken.host, name=host))


def host_log(folder: Path, host: str, sm: int | None, job: str = "88123") -> Path:
    """The log of a host that the job has for a minute."""
    samples = [(sampled(second, host, sm, job), float(second)) for second in range(SECONDS + 1)]
    return write_log(folder / f"{host.encode('ascii', 'replace').hex()}.csv", samples)


def job_report(*paths: Path, job: ChosenJob = JOB, **options: Any) -> dict[str, Any]:
    return report(*paths, by="job", job=job, **options)


def seconds(line: dict[str, Any], *figures: str) -> list[int]:
    return [round(3600 * line[f"{figure}_hours"]) for figure in figures]


OF_ALL = ("allocated", "gpu", "unused_allocated", "idle")


def test_a_job_has_a_line_for_each_host_and_all_of_them_together(tmp_path: Path) -> None:
    paths = [host_log(tmp_path, "gpu-01", 90), host_log(tmp_path, "gpu-02", 0)]
    found = job_report(*paths)
    first, second = found["lines"]
    assert [(line["host"], line["user"], line["gpus"]) for line in (first, second)] == [
        ("gpu-01", "ann", "0,1"),
        ("gpu-02", "ann", "0,1"),
    ]
    assert seconds(first, *OF_ALL) == [120, 60, 60, 0]
    assert seconds(second, *OF_ALL) == [120, 60, 60, 60]
    assert seconds(found["total"], *OF_ALL) == [240, 120, 120, 60]
    assert first["memory_peak_bytes"] == 4 * GIB
    assert first["energy_kwh"] == pytest.approx(700 * 60 / 3.6e6, abs=1e-6)
    assert found["total"]["energy_kwh"] == pytest.approx(2 * 700 * 60 / 3.6e6, abs=1e-6)
    assert (first["utilization_mean_percent"], second["utilization_mean_percent"]) == (90, 0)
    assert found["total"]["utilization_mean_percent"] == 45
    assert found["lagging"] == ["gpu-02"]
    assert found["job"] == "88123"


def test_a_log_of_several_hosts_and_logs_of_each_say_the_same(tmp_path: Path) -> None:
    hosts = {"gpu-01": 90, "gpu-02": 80}
    ticks = [
        {host: sampled(second, host, sm) for host, sm in hosts.items()}
        for second in range(SECONDS + 1)
    ]
    several = write_several(tmp_path / "all.csv", ticks)
    each = [host_log(tmp_path, host, sm) for host, sm in hosts.items()]
    found = job_report(several)
    assert found == job_report(*each) == job_report(*reversed(each))
    assert found["lagging"] == []
    only = job_report(several, hosts=frozenset({"gpu-02"}))
    assert [line["host"] for line in only["lines"]] == ["gpu-02"]


@pytest.mark.parametrize("asked", ["88_", "0x1", "88 ", "", "1" * 11, "\u0661"])
def test_what_is_no_number_of_a_job_is_none(asked: str) -> None:
    assert chosen_job(asked) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "found"),
    [("88", ["88", "88+0", "88_3", "88_4"]), ("88_3", ["88_3"]), ("88+0", ["88+0"]), ("8", [])],
)
def test_a_number_is_all_parts_of_a_job(asked: str, found: list[str], tmp_path: Path) -> None:
    jobs = ["88", "88_3", "88_4", "88+0", "881", "188"]
    paths = [host_log(tmp_path, f"of {each}", 50, each) for each in jobs]
    if not found:
        assert refused(*paths, by="job", job=chosen_job(asked))
        return
    lines = job_report(*paths, job=known(chosen_job(asked)))["lines"]
    assert [line["host"] for line in lines] == [f"of {each}" for each in found]


@pytest.mark.parametrize("asked", ["88", "88_3", "91"])
@pytest.mark.parametrize("process_job", ["91", "88_3"])
@pytest.mark.parametrize("late", [0, 20])
def test_a_task_has_its_processes_by_its_name_and_by_the_number_that_slurm_gave_it(
    asked: str, process_job: str, late: int, tmp_path: Path
) -> None:
    names = ("allocations", "allocated.jobs", "allocated.users")
    rows, lists = [], []
    for at in range(41):
        has = (1, "slurm 88_3=91", "ann") if at >= late else (0, None, None)
        own = {"processes": 1, **dict(zip(names, has, strict=True))}
        rows.append(sample(at) | own)
        lists.append(use(at) | {"sm [%]": 50, "slurm_job": process_job})
    path = write(tmp_path / "run.csv", rows, lists)
    (line,) = job_report(path, job=ChosenJob(asked))["lines"]
    assert seconds(line, "allocated", "unused_allocated") == [40 - late, 0]
    if process_job == asked or not late:
        assert seconds(line, "gpu", "present") == [40, 40]
    (among_all,) = report(path, by="job")["lines"]
    assert among_all["job"] == "slurm 88_3"
    assert seconds(among_all, "gpu", "present", "allocated") == [40, 40, 40 - late]


def test_a_task_whose_name_is_in_the_last_sample_only_has_a_line(tmp_path: Path) -> None:
    mine = process(7, sm=50)
    has = (Allocation("slurm", "88_3", "ann", ("GPU-0",), number="91"),)

    def log(name: str, job: str | None, *times: float) -> Path:
        place = None if job is None else Workload(slurm_job=job)
        own = (replace(mine, place=place),)
        taken = [snapshot(NOON + at, gpu(), processes=own) for at in times]
        if job is not None:
            taken[-1] = replace(taken[-1], allocations=has)
        return write_log(tmp_path / name, [*zip(taken, times, strict=True)])

    paths = [log("before.csv", None, 0.0, 1.0, 2.0), log("after.csv", "91", 10.0, 11.0, 12.0)]
    assert [line["job"] for line in report(*paths, by="job")["lines"]] == ["slurm 91"]


def text_of(*arguments: str | Path) -> str:
    """What ``gpumon report --job 88123`` prints."""
    done = run_here("report", "--job", "88123", *map(str, arguments))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_text_fits_into_a_mail(tmp_path: Path) -> None:
    paths = [host_log(tmp_path, f"gpu-{host:02}", 90 - 10 * (host % 7)) for host in range(16)]
    text = text_of("--ascii", *paths)
    lines = text.splitlines()
    assert text.isascii()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("slurm 88123 of ann  16 hosts  ")
    said = "GPU-hours: 32m allocated, 16m with its processes (50 %), 16m unused"
    assert lines[1] == said
    assert "\n8 hosts with more load: --format json and csv have all.\n" in text
    said = "by mean SM of all their GPUs (median 35 %): gpu-06 15 %, gpu-13 15 %."
    assert said in " ".join(text.split())
    # Those with least load are named.
    assert {"gpu-06", "gpu-13"} <= set(re.findall(r"^(gpu-\d\d) ", text, re.MULTILINE))


def test_hosts_of_unknown_load_do_not_hide_one_that_lags(tmp_path: Path) -> None:
    paths = [host_log(tmp_path, host, sm) for host, sm in (("slow", 5), ("one", 90), ("two", 88))]
    for number in range(8):
        host = f"gpu-{number}"
        samples = []
        for second in range(0, SECONDS + 1, 20):
            taken = sampled(second, host, None)
            mine = replace(process(7, sm=None, gpus=(0, 1)), place=Workload(slurm_job="88123"))
            own = tuple(replace(use, gpu_uuid=f"{host}-{use.gpu_index}") for use in mine.uses)
            taken = replace(taken, processes=(replace(mine, uses=own),))
            samples.append((taken, float(second)))
        paths.append(write_log(tmp_path / f"{host}.csv", samples))
    text = printed(*paths, by="job", job=JOB)
    assert {"slow", "one", "two"} <= set(re.findall(r"^(\w+) ", text, re.MULTILINE))
    assert "3 hosts with more or unknown load: " in text


def test_a_job_that_uses_nothing_is_said_to(tmp_path: Path) -> None:
    path = host_log(tmp_path, "gpu-01", None)
    text = text_of(path)
    assert "GPU-hours: 2m00s allocated, 2m00s unused\n" in text
    assert "No process of the job was on a GPU.\n" in text
    path.with_suffix(".processes.csv").unlink()
    text = text_of(path)
    assert "only allocated GPUs count" in text
    assert "No process" not in text


def test_the_csv_has_a_row_for_each_host(tmp_path: Path) -> None:
    paths = [host_log(tmp_path, host, 50) for host in ("gpu-01", "gpu-02")]
    heading, *rows = printed(*paths, by="job", job=JOB, form="csv").splitlines()
    assert heading.split(",") == [figure.key for figure in figures_of("job")]
    assert [row.partition(",")[0] for row in rows] == ["gpu-01", "gpu-02"]


def test_the_page_explains_the_keys_of_a_job(tmp_path: Path) -> None:
    found = job_report(host_log(tmp_path, "gpu-01", 50))
    text = PAGE.read_text(encoding="utf-8")
    told: list[str] = []
    for name in ("report", "job"):
        table = text.partition(f"<!-- keys: {name} -->\n")[2].partition("\n\n")[0]
        told += re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted({*told} - {"energy_without_process_kwh"}) == sorted(found)


@pytest.mark.skipif(shutil.which("setsid") is None, reason="needs setsid of util-linux")
def test_the_epilog_leaves_a_mail_that_slurmd_neither_waits_for_nor_kills(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8").partition("```sh\n#!/bin/sh\n")[2].partition("```")[0]
    go, mail = tmp_path / "go", tmp_path / "mail.txt"
    tools = {
        "gpumon": f'while [ ! -e {go} ]; do sleep 0.05; done; echo "$@"',
        "mail": f'echo "$@" >{mail}.part; cat >>{mail}.part; mv {mail}.part {mail}',
        "hostname": "echo gpu-01",
    }
    for name, body in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    started = {"SLURM_JOB_ID": "88123", "SLURM_JOB_USER": "ann", "SLURM_JOB_START_TIME": "1"}
    path = f"{tmp_path}:{os.environ['PATH']}"
    script = text.replace("PATH=/usr/local/bin:/usr/bin:/bin", f"PATH={path}")
    assert script != text
    with subprocess.Popen(
        ["/bin/sh", "-c", script], env=started, stdout=subprocess.PIPE, start_new_session=True
    ) as epilog:
        assert epilog.communicate(timeout=20)[0] == b""
    assert epilog.returncode == 0
    with contextlib.suppress(ProcessLookupError):
        os.killpg(epilog.pid, signal.SIGKILL)
    go.touch()
    deadline = time.monotonic() + 20
    while not mail.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    subject, asked = mail.read_text(encoding="utf-8").splitlines()
    assert subject == "-s GPUs of job 88123 on gpu-01 ann"
    assert asked.startswith("report --job 88123 --from 1970-01-01 ")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--job", "7"], 1, "Slurm job 7 was not found on gpu-01, gpu-02: no process"),
        (["--job", "7", "--host", "gpu-02"], 1, "Slurm job 7 was not found on gpu-02: no"),
        (["--job", "88123", "--host", "gpu-09"], 1, "There is no sample of gpu-09 in that time"),
        (["--job", "88123", "--from", "2030-01-01"], 1, "on gpu-01, gpu-02 after --from"),
        (["--job", "x"], 2, "'x' is no Slurm job: give its number, 88123"),
        (["--job", "88123", "--by", "gpu"], 2, "it cannot be used with --by gpu"),
        (["--job", "88123", "--by", "job"], 2, "it cannot be used with --by job"),
        (["--job", "88123", "--plot"], 2, "it cannot be used with --job"),
    ],
)
def test_what_cannot_be_reported_is_a_sentence(
    arguments: list[str], status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [host_log(tmp_path, host, 50) for host in ("gpu-01", "gpu-02")]
    try:
        ended = main(["report", *map(str, paths), *arguments])
    except SystemExit as error:
        ended = int(str(error.code))
    printed = capsys.readouterr()
    assert ended == status
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out


def test_by_host_is_what_it_does_anyway(tmp_path: Path) -> None:
    path = host_log(tmp_path, "gpu-01", 50)
    assert text_of(path) == text_of(path, "--by", "host")


def test_names_from_outside_are_harmless(tmp_path: Path) -> None:
    hostile = "\x1b[2J\u202e[red]"
    paths = [host_log(tmp_path, hostile, 0), host_log(tmp_path, "gpu-01", 90)]
    for form in ("table", "json", "csv"):
        assert printed(*paths, by="job", job=JOB, form=form).replace("\n", "").isprintable()


def of_job(rows: Sequence[Row]) -> list[Row]:
    """The processes of ann in job 5; her GPUs are allocated to it, too."""
    return [row | {"slurm_job": 5 if row.get("user") == "ann" else None} for row in rows]


@pytest.mark.slow
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(drawn=logs(), chosen=st.sampled_from(["5", "6"]))
def test_a_job_alone_has_the_figures_that_it_has_among_all_and_time_ranges_add_up(
    tmp_path: Path, drawn: tuple[list[Row], list[Row], list[float]], chosen: str
) -> None:
    rows, lists, splits = drawn
    path = write(tmp_path / "run.csv", rows, of_job([BEFORE_ALL, *lists]))

    def lines(job: ChosenJob | None) -> list[Any]:
        out = io.StringIO()
        failed = print_report([str(path)], by="job", job=job, form="json", out=out, now=START + 1e6)
        found = [] if failed else json.loads(out.getvalue())["lines"]
        return [line for line in found if line["job"] == f"slurm {chosen}"]

    job = ChosenJob(chosen)
    assume(lines(job))
    assert lines(job) == lines(None)
    assert_adds_up([path], splits, "job", job=job)


@pytest.mark.parametrize(
    ("allocated", "said"),
    [
        ((0, "slurm 88123", "ann"), "0s allocated, 0s unused"),
        ((None, "slurm 88123?", "ann"), "– allocated, – unused"),
        ((1, "slurm 88123;slurm 88123", ";;;;"), "5s allocated, 5s unused"),
    ],
)
def test_cells_that_contradict_each_other_are_no_accident(
    allocated: tuple[int | None, str, str], said: str, tmp_path: Path
) -> None:
    names = ("allocations", "allocated.jobs", "allocated.users")
    row = dict(zip(names, allocated, strict=True)) | {"processes": 0}
    rows = [sample(at) | row for at in range(6)]
    path = write(tmp_path / "run.csv", rows, [use(0, at=START - 1e5)])
    assert f"GPU-hours: {said}\n" in printed(path, by="job", job=JOB)
