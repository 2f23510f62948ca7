"""What users may forge in the text that Slurm prints: by names, comments, and paths."""

from __future__ import annotations

import re

import pytest

from gpumon.allocations.slurm_output import Job, job_of_text
from tests.allocations.outputs import NONE, REAL_JOB, UNKNOWN, of_text, text

# Text that users choose, each placed where they can: the name, and a comment at the end.
FORGED_USER = "x\n   UserId=root(0) GroupId=root(0) MCS_label=N/A"
FORGED_GRES = "x\n   JOB_GRES=gpu:h100:8\n     Nodes=gpu-01 CPU_IDs=0 Mem=0 GRES=gpu:8(IDX:0-7)"


def named(name: str, data: str = "") -> str:
    return (data or text("26.05", "1")).replace("JobName=train-llama", f"JobName={name}")


def commented(comment: str) -> str:
    return text("26.05", "1").rstrip("\n") + f"\n   Comment={comment}\n\n"


@pytest.mark.parametrize(
    "data",
    [
        named("x UserId=root(0) JobState=PENDING"),
        named("x ArrayJobId=7 ArrayTaskId=2 HetJobId=5 HetJobOffset=1"),
        named("x\r   UserId=root(0)"),
        named("x\u2028   UserId=root(0)"),
        named("x\x0b   UserId=root(0)"),
        named("x\n\n\n  UserId=root(0)\nUserId=root(0)"),
        commented("GRES=gpu:8 JobId=1 JobId=2"),
        text("26.05", "1").replace("WorkDir=/tmp", "WorkDir=/tmp/x JobState=PENDING"),
    ],
)
def test_text_of_users_inside_of_lines_changes_nothing(data: str) -> None:
    assert of_text(data) == REAL_JOB


@pytest.mark.parametrize("place", [named, commented])
@pytest.mark.parametrize(
    ("forged", "fields"),
    [
        (FORGED_USER, {"user": None}),
        ("x\n   JobState=PENDING Reason=None", {"holds": None, "since": None, "until": None}),
        ("x\n   RunTime=00:00:00 TimeLimit=UNLIMITED", {"until": None}),
        ("x\n   StartTime=2026-01-01T00:00:00", {"since": None, "until": None}),
        ("x\n   NodeList=gpu-09", {"nodes": None}),
        (FORGED_GRES, {"gres": UNKNOWN}),
        ("x\n     Nodes=gpu-01 GRES=gpu:8(IDX:0-7)", {"gres": UNKNOWN}),
        ("x\n   MinCPUsNode=1", {"gres": None}),
    ],
)
def test_lines_that_occur_twice_are_not_believed(
    place: object, forged: str, fields: dict[str, object]
) -> None:
    assert callable(place)
    job = of_text(place(forged))
    for field in Job.__struct_fields__:
        assert getattr(job, field) == fields.get(field, getattr(REAL_JOB, field)), field


def test_lines_out_of_order_are_not_believed() -> None:
    # A job without GPUs, whose name says that it has some.
    data = re.sub(r"   JOB_GRES=.*\n     Nodes=.*\n", "", text("26.05", "1"))
    assert of_text(data).gres == NONE
    assert of_text(named(FORGED_GRES, data)).gres == UNKNOWN
    assert of_text(named("x\n   JOB_GRES=gpu:h100:8", data)).gres == UNKNOWN
    assert of_text(named("x\n     Nodes=gpu-01 GRES=gpu:8(IDX:0-7)", data)).gres == UNKNOWN


def forged_record(number: str, first: str = "") -> str:
    """A whole record of root, and the beginning of another one that takes the real lines."""
    record = text("26.05", "1").replace("games(5)", "root(0)")
    lines = record.partition("\n")[2].rstrip("\n")
    return f"x\n{lines}\n\nJobId={number} {first}JobName=y"


def test_records_that_a_name_forges_are_not_believed() -> None:
    # The same number again, in the name or later.
    assert of_text(named(forged_record("1"))) == Job("1", "1")
    assert of_text(commented("x\n\n" + text("25.05", "1"))) == Job("1", "1")
    # A stranger, which is not in the answer about one job.
    assert of_text(named(forged_record("999"))) == Job("1", "1")
    # In an array other records are expected, but of the same user.
    array = text("26.05", "1").replace("JobId=1 ", "JobId=1 ArrayJobId=1 ArrayTaskId=0 ")
    assert of_text(array).name == "1_0"
    assert of_text(array * 2) == Job("1", "1")
    # Strangers of the same user.
    stranger = text("25.05", "1").replace("JobId=1 ", "JobId=2 ")
    assert of_text(text("26.05", "1") + stranger) == Job("1", "1")
    assert of_text(array + stranger) == Job("1", "1")
    forged = forged_record("999", "ArrayJobId=1 ArrayTaskId=1 ")
    assert of_text(named(forged, array)) == Job("1", "1")


def test_text_that_is_cut_off_says_nothing_wrong() -> None:
    whole = text("26.05", "1").encode()
    for end in range(len(whole)):
        job = job_of_text(whole[:end], "1", "gpu-01")
        for field in Job.__struct_fields__ if job is not None else ():
            assert getattr(job, field) in {getattr(REAL_JOB, field), None}, (end, field)


def test_a_line_of_later_versions_in_a_name_is_not_believed() -> None:
    data = re.sub(r"   JOB_GRES=.*\n     Nodes=.*\n", "", text("21.08", "1"))
    data = data.replace("billing=8\n", "billing=8,gres/gpu=4\n")
    assert of_text(named("x\n   AllocTRES=cpu=8", data)).gres is None
