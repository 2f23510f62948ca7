"""What is concluded from the answers of LSF's ``bjobs``."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from gpumon.allocations import local_allocations
from gpumon.allocations.lsf import LsfAllocations, LsfJob, jobs_of
from gpumon.allocations.programs import Printed
from gpumon.model.allocations import Allocation
from tests import fork_server
from tests.build import gpu, snapshot
from tests.clock import HandClock
from tests.command import write_program
from tests.driver import Driver, h100
from tests.known import known
from tests.screen import PATIENCE

FOUR = snapshot(0.0, *(gpu(index=index, minor_number=index) for index in range(4)))
HOST = socket.gethostname().partition(".")[0]
NOT_KNOWN = Allocation("lsf", unplaced=None)
NO_JOBS = Printed(b'{\n  "COMMAND":"bjobs",\n  "JOBS":0,\n  "RECORDS":[\n  ]\n}\n')


def record(**changes: object) -> dict[str, object]:
    """A job as ``bjobs -json -o`` prints it."""
    return {
        "JOBID": "321",
        "JOBINDEX": "0",
        "USER": "ann",
        "STAT": "RUN",
        "START_TIME": "Apr 12 18:10:55 2026",
        "FINISH_TIME": "Apr  2 22:27:01 2027 L",
        # One number for each task, on each of the job's machines.
        "GPU_ALLOC": f"other.example.com:2,3;{HOST}.example.com:0,1,0,1",
    } | changes


def printed(*records: object) -> Printed:
    answer = {"COMMAND": "bjobs", "JOBS": len(records), "RECORDS": records}
    return Printed(json.dumps(answer, indent=2).encode())


def read(**changes: object) -> list[LsfJob]:
    return known(jobs_of(printed(record(**changes)), HOST))


class Cluster:
    """What ``bjobs`` answers, by host."""

    def __init__(self) -> None:
        self.clock = HandClock(0.0)
        self.answers: dict[str, Printed | None] = {}
        self.asked: list[str] = []
        self.lsf = LsfAllocations(self.clock, self._run)

    def _run(self, command: Sequence[str], patience: float) -> Printed | None:
        assert patience == 5.0
        assert command[:4] == ("bjobs", "-u", "all", "-json")
        self.asked.append(command[-1])
        bad = Printed(b"", f"{command[-1]}: Bad host name, host group name".encode(), 255)
        return self.answers.get(command[-1], bad)

    def look(self, seconds: float = 0.0) -> tuple[tuple[Allocation, ...], float]:
        self.clock.now += seconds
        return self.lsf.find(FOUR, 5.0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(socket, "gethostname", lambda: f"{HOST}.example.com")
    return Cluster()


def test_a_job_has_the_gpus_of_this_machine(cluster: Cluster) -> None:
    cluster.answers[f"{HOST}.example.com"] = printed(record())
    (found,), pause = cluster.look()
    assert (found.job, found.user, found.unplaced, found.is_share) == ("321", "ann", 0, False)
    assert found.devices == (FOUR.gpus[0].uuid, FOUR.gpus[1].uuid)
    assert found.since == datetime(2026, 4, 12, 18, 10, 55).timestamp()
    assert found.until == datetime(2027, 4, 2, 22, 27, 1).timestamp()
    assert pause == 60.0


def test_lsf_is_asked_once_a_minute_and_less_while_it_is_down(cluster: Cluster) -> None:
    host = f"{HOST}.example.com"
    cluster.answers[host] = printed(record())
    known, _ = cluster.look()
    assert cluster.look(59.0) == (known, 1.0)
    assert cluster.asked == [host]
    cluster.answers[host] = None
    assert cluster.look(1.0) == (known, 10.0)
    assert cluster.look(10.0) == (known, 20.0)
    assert cluster.look(230.0)[0] == (*known, NOT_KNOWN)
    cluster.answers[host] = NO_JOBS
    assert cluster.look(600.0)[0] == ()


def test_lsf_may_know_the_machine_by_its_short_name(cluster: Cluster) -> None:
    cluster.answers[HOST] = printed(record(GPU_ALLOC=f"{HOST}:3"))
    (found,), _ = cluster.look()
    assert found.devices == (FOUR.gpus[3].uuid,)
    assert cluster.asked == [f"{HOST}.example.com", HOST]


def test_a_machine_that_lsf_does_not_know_has_no_jobs(cluster: Cluster) -> None:
    assert cluster.look() == ((), 60.0)


def test_nothing_is_known_before_lsf_answers(cluster: Cluster) -> None:
    cluster.answers[f"{HOST}.example.com"] = Printed(b"", b"LSF is down. Please wait ...", 255)
    assert cluster.look() == ((NOT_KNOWN,), 10.0)


def test_a_number_is_a_gpu_only_where_all_orders_are_the_same(cluster: Cluster) -> None:
    cluster.answers[f"{HOST}.example.com"] = printed(record())
    seen = snapshot(0.0, *(gpu(index=index, minor_number=3 - index) for index in range(4)))
    (found,), _ = cluster.lsf.find(seen, 5.0)
    assert (found.devices, found.unplaced) == ((), 2)


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ({"JOBINDEX": "4"}, {"name": "321[4]"}),
        ({"JOBINDEX": "x"}, {"name": "321"}),
        ({"JOBID": 321, "JOBINDEX": 0}, {"name": "321"}),
        ({"JOBID": "\x1b[31m"}, {"name": None}),
        ({"JOBID": None}, {"name": None}),
        ({"GPU_ALLOC": f"{HOST}:0"}, {"gpus": {0}, "is_share": False}),
        ({"GPU_ALLOC": f"{HOST}:0:3/3,0:3/3"}, {"gpus": {0}, "is_share": True}),
        ({"GPU_ALLOC": f"a:1;{HOST}.b.c:5,7"}, {"gpus": {5, 7}, "is_share": False}),
        # The job is here, so that it may have any.
        *(
            ({"GPU_ALLOC": gpus}, {"gpus": None, "is_share": False})
            for gpus in ("other:0", f"{HOST}:", f"{HOST}:0,x", f"{HOST}:{'9' * 99}", "\x1b", None)
        ),
        ({"GPU_ALLOC": ["0"]}, {"gpus": None, "is_share": False}),
        # A time has its year, and an estimate is no limit.
        *(
            ({"START_TIME": text, "FINISH_TIME": text}, {"since": None, "until": None})
            for text in ("", "-", None, 5, "Apr 12 18:10", "Apr 31 18:10:55 2026")
        ),
        ({"START_TIME": "Foo 1 00:00:00 2026"}, {"since": None}),
        ({"FINISH_TIME": "Apr 12 22:27:01 2026 E"}, {"until": None}),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_value_is_known_or_not(changes: dict[str, object], values: dict[str, object]) -> None:
    (job,) = read(**changes)
    assert {name: getattr(job, name) for name in values} == values


@pytest.mark.parametrize(
    "changes",
    [{"GPU_ALLOC": ""}, {"GPU_ALLOC": "-"}, *({"STAT": state} for state in ("PEND", "DONE"))],
)
def test_a_job_without_gpus_or_that_does_not_run_holds_none(changes: dict[str, object]) -> None:
    assert read(**changes) == []


@pytest.mark.parametrize("state", ["USUSP", "UNKWN", "new", None, [], {}])
def test_a_job_in_any_other_state_holds_its_gpus(state: object) -> None:
    assert len(read(STAT=state)) == 1


@pytest.mark.parametrize(
    ("answer", "jobs"),
    [
        (NO_JOBS, []),
        (Printed(b"", b"No unfinished job found\n", 255), []),
        (Printed(NO_JOBS.output, b"No unfinished job found\n", 255), []),
        (Printed(b""), None),
        (Printed(b"[" * 100_000), None),
        (Printed(b'{"RECORDS":{}}'), None),
        (Printed(b'{"RECORDS":[5]}'), None),
        (Printed(NO_JOBS.output, b"", 1), None),
        (printed(*[record()] * 5000), None),
    ],
    ids=[
        *("no jobs", "none found", "none found in JSON", "nothing", "nesting"),
        *("an object", "a number", "status 1", "too long"),
    ],
)
def test_only_a_whole_answer_is_believed(answer: Printed, jobs: list[LsfJob] | None) -> None:
    assert jobs_of(answer, HOST) == jobs


@pytest.mark.slow
def test_select_asks_the_program_and_stays_within_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = tmp_path / "answer"
    alloc = [
        record(GPU_ALLOC=f"{HOST}:0"),
        record(JOBID="400", JOBINDEX="2", GPU_ALLOC=f"{HOST}:2"),
    ]
    answer.write_bytes(printed(*alloc).output)
    write_program(tmp_path / "bjobs", f'#!/bin/sh\n[ "$#" = 7 ] && cat {answer}\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("GPUMON_LOCK_DIR", str(tmp_path / "locks"))
    found = known(local_allocations())
    assert NOT_KNOWN in found.unknown
    with Driver([h100() for _ in range(3)]) as driver:

        def select(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
            return fork_server.run(
                [sys.executable, "-m", "gpumon", "select", *arguments, "--format", "index"],
                {**driver.env(), **variables},
                timeout=PATIENCE,
            )

        assert select().stdout.strip() == "1"
        more = select("-n", "2")
        assert more.returncode == 1
        assert "lsf 321 of ann has had it" in more.stderr
        assert select(LSB_JOBID="400", LSB_JOBINDEX="2").stdout.strip() == "2"
        # The number of another scheduler's job is none of LSF's.
        assert select(SLURM_JOB_ID="321").stdout.strip() == "1"
