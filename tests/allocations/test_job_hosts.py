"""The hosts of a Slurm job: those of all its parts, or a sentence."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.allocations import job_hosts
from gpumon.allocations.job_hosts import JobHosts, JobHostsError, hosts_of_job
from gpumon.allocations.programs import Printed
from gpumon.allocations.slurm_output import jobs_of_json, jobs_of_text
from gpumon.text.formatting import printable
from tests.allocations.outputs import SLURM, TOO_LONG, text
from tests.command import write_program

WHOLE = (SLURM / "24.05/job.json").read_bytes()
NO_JSON = Printed(b"", b"scontrol: unrecognized option '--json'\n", 1)
MANY = b'{"jobs":[' + b"[" * 100_000


@pytest.fixture(autouse=True)
def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with ``scontrol``, which nobody runs."""
    write_program(tmp_path / "scontrol", "#!/bin/false\n")
    monkeypatch.setenv("PATH", str(tmp_path))


class Slurm:
    """Answers in JSON and in text, and keeps what was asked."""

    def __init__(self, in_json: Printed | None, in_text: Printed | None = None) -> None:
        self._answers = {True: in_json, False: in_text}
        self.asked: list[Sequence[str]] = []

    def __call__(self, arguments: Sequence[str], patience: float) -> Printed | None:
        assert 0 < patience <= job_hosts.PATIENCE
        self.asked.append(arguments)
        return self._answers["--json" in arguments]


def changed(changes: Mapping[str, object]) -> Printed:
    """The answer in which job 1 is changed."""
    answer = json.loads(WHOLE)
    next(job for job in answer["jobs"] if job["job_id"] == 1).update(changes)
    return Printed(json.dumps(answer).encode())


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize(
    ("name", "records", "hosts", "names"),
    [
        ("1", ("1",), ("gpu-01", "gpu-02"), {"1"}),
        ("2_4", ("2",), ("gpu-01",), {"2_4", "2"}),
        ("2", ("2", "9"), ("gpu-01",), {"2", "2_4", "2_3", "9"}),
        ("5+1", ("6",), ("gpu-03",), {"5+1", "6"}),
        ("5", ("5", "6"), ("gpu-02", "gpu-03"), {"5", "5+0", "5+1", "6"}),
        ("6", ("6",), ("gpu-03",), {"6", "5+1"}),
    ],
)
def test_a_job_has_the_hosts_of_all_its_parts(
    form: str, name: str, records: tuple[str, ...], hosts: tuple[str, ...], names: set[str]
) -> None:
    if form == "json":
        slurm = Slurm(Printed(WHOLE))
    else:
        slurm = Slurm(NO_JSON, Printed(text("24.05", *records).encode()))
    found = hosts_of_job(name, slurm)
    assert found.hosts == hosts
    assert found.names >= names if form == "json" else found.names <= names | {name}
    assert len(slurm.asked) == (1 if form == "json" else 2)


def fails(name: str, slurm: Slurm) -> str:
    with pytest.raises(JobHostsError) as refused:
        hosts_of_job(name, slurm)
    sentence = str(refused.value)
    assert sentence == printable(sentence)
    assert len(sentence) < 250
    return sentence


@pytest.mark.parametrize(
    "name", ["", "abc", "-1", "1_", "1_x", "1_[2-3]", "1 2", "९", "1\n", "\x1b[2J", "9" * 99]
)
def test_what_is_no_number_is_never_asked_for(name: str) -> None:
    slurm = Slurm(Printed(WHOLE))
    assert "is not a Slurm job number" in fails(name, slurm)
    assert not slurm.asked


def test_without_scontrol_it_says_where_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "is not on this machine" in fails("1", Slurm(Printed(WHOLE)))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (["PENDING"], "has not started yet"),
        (["PENDING", "REQUEUED"], "has not started yet"),
        (["COMPLETED"], "has ended"),
        (["NODE_FAIL"], "has ended"),
    ],
)
def test_a_job_that_does_not_run_has_no_hosts(state: list[str], said: str) -> None:
    assert said in fails("1", Slurm(changed({"job_state": state})))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "gave no answer about job 1 within 25 s"),
        (Printed(b"", b"slurm_load_jobs error: Invalid job id specified\n", 1), "has no job 1"),
        (Printed(b"", b"slurm_load_jobs error: Unable to contact\n", 1), "Unable to contact"),
        (Printed(b"", b"\x1b]0;x\x07" + b"y" * 9000, 1), "cannot answer about job 1"),
        (Printed(b"", b"", 2), "status 2"),
        (Printed(b"No jobs in the system\n"), "cannot be read"),
        (Printed(b"JobId=1 "), "cannot be read"),
        (Printed(text("24.05", "1").replace("NodeList=gpu", "NodeList=[").encode()), "be read"),
        # A name may have a whole record in it.
        (Printed(text("24.05", "1", "3").encode()), "cannot be read"),
    ],
)
def test_what_slurm_does_not_say_is_said_in_a_sentence(answer: Printed | None, said: str) -> None:
    assert said in fails("1", Slurm(NO_JSON, answer))


def test_an_answer_that_takes_all_the_time_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_hosts, "PATIENCE", 0.05)
    slurm = Slurm(NO_JSON, Printed(text("24.05", "1").encode()))

    def slow(arguments: Sequence[str], patience: float) -> Printed | None:
        time.sleep(0.1)
        return slurm(arguments, patience)

    with pytest.raises(JobHostsError, match="no answer"):
        hosts_of_job("1", slow)
    assert len(slurm.asked) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b'{"jobs":3}', MANY, b'{"jobs":[{"job_id":1}]}', WHOLE[:-9], b" " * TOO_LONG],
)
def test_a_damaged_answer_in_json_means_no_job(data: bytes) -> None:
    assert jobs_of_json(data, "1") == []


@given(st.integers(0, len(WHOLE)), st.binary(max_size=30), st.sampled_from(["1", "2", "5+1"]))
def test_no_damage_raises(at: int, instead: bytes, name: str) -> None:
    damaged = WHOLE[:at] + instead + WHOLE[at + len(instead) :]
    jobs_of_json(damaged, name)
    records = text("24.05", "1", "2", "9").encode()
    jobs_of_text(records[: at % len(records)] + instead + records[at % len(records) :], name)


def test_a_job_is_compared_by_value() -> None:
    assert hosts_of_job("1", Slurm(Printed(WHOLE))) == JobHosts(
        frozenset({"1"}), ("gpu-01", "gpu-02")
    )
