"""What Slurm prints, as five versions of it did, whole or damaged."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.allocations.slurm_output import (
    Gres,
    Job,
    expand_hosts,
    gres_in_use,
    job_of_json,
    job_of_text,
    jobs_of_pids,
)
from tests.allocations.outputs import (
    NONE,
    REAL_JOB,
    SLURM,
    TOO_LONG,
    UNKNOWN,
    in_form,
    of_json,
    of_text,
    text,
)
from tests.known import known

DAY = 86400.0

REAL = [
    ("21.08", ("1",), "gpu-02", "1", "games", 1795709628.0, DAY, Gres(2, (0, 1))),
    ("21.08", ("8",), "gpu-01", "2_3", "mail", 1795709628.0, DAY / 12, Gres(1, (2,))),
    ("21.08", ("3",), "gpu-04", "3", "news", 1795709628.0, DAY / 12, Gres(3, (0, 1, 2))),
    ("24.05", ("1",), "gpu-01", "1", "games", 1795709564.0, DAY, Gres(2, (0, 1))),
    # The leaders: of an array, whose number its last task has, and of a heterogeneous job.
    ("24.05", ("2", "9"), "gpu-01", "2_4", "mail", 1795709564.0, DAY / 12, Gres(1, (3,))),
    ("24.05", ("5", "6"), "gpu-02", "5+0", "uucp", 1795709564.0, DAY / 48, Gres(1, (2,))),
    ("24.05", ("6",), "gpu-03", "5+1", "uucp", 1795709564.0, DAY / 48, Gres(1, (1,))),
    ("24.05", ("3",), "gpu-03", "3", "news", 1795709564.0, DAY / 12, Gres(1, (0,), is_share=True)),
    ("25.05", ("1",), "gpu-01", "1", "games", 1795709198.0, DAY, Gres(2, (0, 1))),
    ("26.05", ("1",), "gpu-02", "1", "games", 1795710069.0, DAY, Gres(2, (0, 1))),
    ("26.05", ("4",), "gpu-04", "4", "news", 1795710070.0, DAY / 12, Gres(3, (0, 1, 2))),
]


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("row", REAL, ids=lambda row: f"{row[0]}-{row[3]}")
def test_running_jobs_of_all_versions(
    form: str, row: tuple[str, tuple[str, ...], str, str, str, float, float, Gres]
) -> None:
    version, numbers, node, name, user, since, seconds, gres = row
    nodes = "gpu-[01-02]" if numbers == ("1",) else node
    assert in_form(form, version, numbers, node) == Job(
        numbers[0], name, user, True, since, since + seconds, False, nodes, gres
    )


def test_json_cut_off_by_23_02_is_left_to_the_text() -> None:
    data = (SLURM / "23.02/job.json").read_bytes()
    assert job_of_json(data, "9", "gpu-01") is None
    assert of_text(text("23.02", "9"), "9").user == "games"
    # If its only fault is that errors are reported, it is whole.
    answer = json.loads(data)
    answer["jobs"][0] |= {"user_name": "games", "start_time": 1795709350, "time_limit": 1440}
    job = job_of_json(json.dumps(answer).encode(), "9", "gpu-01")
    assert job == Job(
        "9", "9", "games", True, 1795709350.0, 1795795750.0, False, "gpu-[01-02]", Gres(2, (0, 1))
    )


def test_ended_jobs_have_nothing() -> None:
    job = of_text(text("23.02", "12"), "12", "gpu-04")
    assert (job.holds, job.gres) == (False, NONE)
    assert job.since == job.until == 1795709350.0


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(("version", "number"), [("21.08", "6"), ("24.05", "8")])
def test_waiting_jobs_have_no_times(form: str, version: str, number: str) -> None:
    job = in_form(form, version, [number])
    assert (job.holds, job.since, job.until, job.nodes) == (False, None, None, None)
    # Nothing, and no limit: null in 21.08.
    assert (job.gres, job.has_no_limit) == (NONE, version == "21.08")


def test_unlimited_jobs_have_no_end() -> None:
    limit = {"set": False, "infinite": True, "number": 0}
    end = {"set": True, "infinite": False, "number": 1795710069 + 365 * 86400}
    found = [
        known(of_json({"time_limit": limit, "end_time": end})),
        known(of_json({"time_limit": None, "end_time": end["number"]})),
        of_text(
            text("26.05", "1")
            .replace("TimeLimit=1-00:00:00", "TimeLimit=UNLIMITED")
            .replace("EndTime=2026-11-27T16:21:09", "EndTime=Unknown")
        ),
    ]
    for job in found:
        assert (job.since, job.until, job.has_no_limit) == (1795710069.0, None, True)


@pytest.mark.parametrize(
    ("states", "holds"),
    [
        *(([state], True) for state in ("RUNNING", "SUSPENDED", "STOPPED")),
        (["FAILED", "COMPLETING"], True),
        (["RUNNING", "CONFIGURING"], True),
        (["COMPLETED"], False),
        (["PENDING", "REQUEUE_HOLD"], False),
        ("OUT_OF_MEMORY", False),
        (["SOMETHING_NEW"], None),
    ],
)
def test_which_states_hold_resources(states: object, holds: bool | None) -> None:
    assert known(of_json({"job_state": states})).holds is holds
    # The text has one state.
    state = states[-1] if isinstance(states, list) else states
    data = text("26.05", "1").replace("JobState=RUNNING", f"JobState={state}")
    assert of_text(data).holds is holds


@pytest.mark.parametrize(
    "changed",
    [
        {"job_id": 2},
        {"job_id": "1"},
        {"job_id": True},
        {"job_id": 1.0},
        {"user_name": None, "user_id": None},
        {"user_name": None, "user_id": True},
        {"user_name": None, "user_id": 2**32},
        {"job_state": None},
        {"job_state": []},
        {"job_state": [1]},
        {"gres_detail": None},
        {"gres_detail": "gpu:1"},
    ],
)
def test_json_of_another_form_is_left_to_the_text(changed: dict[str, object]) -> None:
    assert of_json(changed) is None


SET = {"set": True, "infinite": False, "number": 1795710069}


@pytest.mark.parametrize(
    ("changed", "field", "value"),
    [
        *(
            ({"start_time": time}, "since", None)
            for time in (10**30, -1, "now", {**SET, "number": 9e99}, {**SET, "set": False})
        ),
        *(({"end_time": time}, "until", None) for time in (4_102_444_800, 0)),
        ({"time_limit": "x"}, "until", None),
        *(({"nodes": nodes}, "nodes", None) for nodes in ("gpu-[01-02", "gpu 1", "")),
        # Users without a name have their ID.
        *(({"user_name": name, "user_id": 5}, "user", "5") for name in ("", None, "nobody")),
        ({"user_name": "x" * 1000, "user_id": 5}, "user", "5"),
        ({"user_name": "nobody", "user_id": 65534}, "user", "nobody"),
        ({"user_name": "ann", "user_id": None}, "user", "ann"),
        # GPUs that belong to no known node.
        ({"gres_detail": ["gpu:1(IDX:0)"]}, "gres", None),
        *(
            ({"nodes": nodes}, "gres", None)
            for nodes in ("gpu-[02-03]", "gpu-01,gpu-01", "gpu-[01-", 7)
        ),
        *(
            ({"gres_detail": [], "tres_alloc_str": text}, "gres", None)
            for text in ("cpu=8,gres/gpu=4,gres/gpu:h100=4", None)
        ),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_wrong_value_is_unknown(
    changed: dict[str, object], field: str, value: str | None
) -> None:
    assert getattr(known(of_json(changed)), field) == value


def test_a_job_that_is_there_twice_is_not_believed() -> None:
    answer = json.loads((SLURM / "25.05/job.json").read_bytes())
    answer["jobs"] *= 2
    assert job_of_json(json.dumps(answer).encode(), "1", "gpu-01") == Job("1", "1")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"jobs": {}}',
        b'{"jobs": [1]}',
        pytest.param(b'{"jobs": [{"job_id": ' + b"[" * 100_000, id="too deep"),
        b'{"jobs": [{"job_id": "\xff"}]}',
        (SLURM / "25.05/job.json").read_bytes()[:-3],
        pytest.param((SLURM / "25.05/job.json").read_bytes() + b" " * TOO_LONG, id="too long"),
    ],
)
def test_bad_json_is_none(data: bytes) -> None:
    assert job_of_json(data, "1", "gpu-01") is None


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b"", "1"),
        (b"slurm_load_jobs error: Invalid job id specified\n", "1"),
        (text("26.05", "1").encode(), "2"),
        (text("26.05", "1").encode(), ""),
        pytest.param(text("26.05", "1").encode() + b" " * TOO_LONG + b"\n", "1", id="too long"),
        pytest.param(
            text("26.05", "1").encode() + b"\n" * (TOO_LONG // 2), "1", id="too many lines"
        ),
        pytest.param(
            text("26.05", "1").encode() + b"JobId=2 JobName=x\n" * (TOO_LONG // 18 - 200),
            "1",
            id="too many records",
        ),
        (b"JobId=x JobName=x\n", "x"),
    ],
)
def test_text_without_the_job_is_none(data: bytes, number: str) -> None:
    assert job_of_text(data, number, "gpu-01") is None


@pytest.mark.parametrize(
    "value",
    [
        "2026-13-01T00:00:00",
        "0001-01-01T00:00:00",
        "9999-12-31T23:59:59",
        "2026-11-26",
        "16:21",
        "",
    ],
)
def test_bad_times_in_text_are_unknown(value: str) -> None:
    data = text("26.05", "1").replace("StartTime=2026-11-26T16:21:09", f"StartTime={value}")
    assert of_text(data).since is None


def test_jobs_of_pids() -> None:
    data = (SLURM / "23.02/listpids.txt").read_bytes()
    jobs = jobs_of_pids(data)
    assert jobs[2872] == jobs[2904] == "17"
    assert len(jobs) == 9
    junk = b"1 2 3\nx 9 0 0 0\n0 9 0 0 0\n99999999 9 0 0 0\n7 - 0 0 0\n\xff\n8 9 extern - -\n"
    # Twice for one job is usual, for two it is not believed.
    twice = b"5 9 0 0 0\n5 9 1 0 0\n6 9 0 0 0\n6 8 0 0 0\n6 9 0 0 0\n"
    assert jobs_of_pids(junk + twice + b"9 9 0 0 0") == {8: "9", 5: "9"}
    assert jobs_of_pids(b" " * TOO_LONG + b"\n5 9 0 0 0\n") == {}


@given(st.data())
def test_no_damage_raises(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(["21.08", "23.02", "26.05"]))
    name = data.draw(st.sampled_from(["job.json", "job.txt", "node.txt", "listpids.txt"]))
    raw = bytearray((SLURM / version / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place : place + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=8))
    for number in ("1", "9"):
        job_of_json(bytes(raw), number, "gpu-01")
        job_of_text(bytes(raw), number, "gpu-01")
    gres_in_use(bytes(raw), "gpu-01")
    jobs_of_pids(bytes(raw))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("", []),
        ("login", ["login"]),
        ("gpu-[01-02,07],login", ["gpu-01", "gpu-02", "gpu-07", "login"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[008-010]", ["n008", "n009", "n010"]),
        ("r[1-2]n[3-4].x", ["r1n3.x", "r1n4.x", "r2n3.x", "r2n4.x"]),
        *(
            (malformed, None)
            for malformed in (
                *("n[2-1]", "n[1", "n1]", "n]1[", "n[[1]]", "n[]", "n[1-2-3]", "n[a]", "n[٣]"),
                *("a,,b", "(null)", "a b"),
            )
        ),
        *((huge, None) for huge in ("n[1-65537]", "n[1-300]x[1-300]", "n[1-60000],m[1-60000]")),
        ("n[1-999999999]", None),
        pytest.param("n[1-" + "9" * 5000 + "]", None, id="long number"),
        pytest.param("a," * 70_000 + "a", None, id="many names"),
        pytest.param("a" * 254, None, id="long name"),
        pytest.param("a" * 2**25, None, id="very long name"),
    ],
)
def test_expand_hosts(hosts: str, expected: list[str] | None) -> None:
    assert expand_hosts(hosts) == expected


@given(st.text("n[]0-9,("), st.integers(0, 20))
def test_expanded_hosts_are_never_more(hosts: str, most: int) -> None:
    assert len(expand_hosts(hosts, most) or ()) <= most


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("gpu:h100:2(IDX:0,3),gpu:a100_1g.10gb:2(IDX:5-6)", Gres(4, (0, 3, 5, 6))),
        ("gpu(CNT:2)", Gres(2)),
        ("gpu:h100(CNT:2),gpu:l4:1(IDX:4)", Gres(3)),
        ("gpu:2", Gres(2)),
        ("gpu:h100:4(S:0-1)", Gres(4)),
        ("gpu:h100:0(IDX:N/A)", NONE),
        ("gpu:h100:0(IDX:N/A),shard:0", NONE),
        ("", NONE),
        ("(null)", NONE),
        ("nic:mlx:2(IDX:0-1),gpu:1(IDX:2),license:1", Gres(1, (2,))),
        ("shard:3(3/4,0/4)", Gres(1, (0,), is_share=True)),
        ("shard:l4:5(0/4,1/4,4/4)", Gres(2, (1, 2), is_share=True)),
        ("shard:l4:1(IDX:0)", Gres(1, (0,), is_share=True)),
        ("mps:50(50/100,0/100)", Gres(1, (0,), is_share=True)),
        ("shard:3", Gres(None, is_share=True)),
        ("gpu:l4:1(IDX:1),shard:l4:3(3/4,0/4)", Gres(2, (0, 1))),
        *(
            (contradiction, UNKNOWN)
            for contradiction in (
                *("gpu:h100:2(IDX:0)", "gpu:h100:0(IDX:1)", "gpu:a:1(IDX:0),gpu:b:1(IDX:0)"),
                "gpu:h100:2(IDX:1,0)",
            )
        ),
        *(
            (junk, UNKNOWN)
            for junk in (
                *("gpu:h100:1(IDX:4096)", "gpu:h100:1(IDX:-1)", "gpu:5000", "gpu:4096,gpu:l4:1"),
                *("gpu:h100:2(IDX:0-1", "gpu:h100:2(IDX:0-1)x", "gpu:h100:²", "gpu", "N/A"),
            )
        ),
        pytest.param("gpu:1(IDX:" + "9" * 5000 + ")", UNKNOWN, id="long index"),
        pytest.param("gpu:" + "9" * 5000, UNKNOWN, id="long count"),
        ("shard:3(5/4)", Gres(None, is_share=True)),
        pytest.param(f"shard:1({'0/1,' * 5000}1/1)", Gres(None, is_share=True), id="many parts"),
        ("shard:3(0/4)", Gres(None, is_share=True)),
        ("shard:0(1/4)", Gres(None, is_share=True)),
    ],
)
def test_forms_of_gres(gres: str, expected: Gres) -> None:
    assert known(of_json({"gres_detail": ["gpu:8", gres]}, "gpu-02")).gres == expected
    node = f"NodeName=gpu-01 Arch=x86_64\n   Gres=gpu:h100:4\n   GresUsed={gres}\n"
    assert gres_in_use(node.encode(), "gpu-01") == expected


NO_GRES = (r"   JOB_GRES=.*\n     Nodes=.*\n", "")


@pytest.mark.parametrize(
    ("changes", "gres"),
    [
        ([NO_GRES], NONE),
        ([(r"JOB_GRES=.*", "JOB_GRES=(null)"), (r" GRES=.*", " GRES=")], NONE),
        ([NO_GRES, ("billing=8\n", "billing=8,gres/gpu=4\n")], None),
        ([(r"     Nodes=.*\n", "")], None),
        ([(r" GRES=.*", "")], None),
        ([NO_GRES, (r"   AllocTRES=.*\n", "")], None),
        ([(r"     Nodes=", "   Other=1\n     Nodes=")], UNKNOWN),
        ([(r"Nodes=gpu-\[01-02\]", "Nodes=gpu-02")], None),
        ([(r"Nodes=gpu-\[01-02\]", "Nodes=gpu-[01-02")], None),
        ([(r"Nodes=gpu-\[01-02\]", "Nodes=gpu-[01-02],gpu-01")], UNKNOWN),
        ([(r"(     Nodes=).*\n", r"\1gpu-02 GRES=gpu:1(IDX:3)\n\1gpu-01 GRES=\n")], NONE),
        # Cut off before the line that follows.
        ([(r"   MinCPUsNode(?s:.*)", "")], None),
    ],
)
def test_gpus_in_text(changes: list[tuple[str, str]], gres: Gres | None) -> None:
    data = text("24.05", "1")
    for pattern, replacement in changes:
        data, count = re.subn(pattern, replacement, data)
        assert count
    assert of_text(data).gres == gres


def test_many_long_lists_of_nodes_take_no_time() -> None:
    line = "     Nodes=gpu-[1-65536] GRES=gpu:1\n"
    data = re.sub(r"     Nodes=.*\n", lambda _: line * 100_000, text("26.05", "1"))
    begin = time.process_time()
    assert of_text(data).gres is None
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    ("version", "used"),
    [
        ("21.08", (Gres(4, (0, 1, 2, 3)), NONE)),
        ("23.02", (Gres(4, (0, 1, 2, 3)), Gres(1, (0,), is_share=True))),
        ("24.05", (Gres(4, (0, 1, 2, 3)), Gres(2, (0, 1)))),
        ("26.05", (Gres(4, (0, 1, 2, 3)), Gres(1, (0,), is_share=True))),
    ],
)
def test_gpus_of_a_node_in_use(version: str, used: tuple[Gres, Gres]) -> None:
    data = (SLURM / version / "node.txt").read_bytes()
    assert (gres_in_use(data, "gpu-01"), gres_in_use(data, "gpu-03")) == used
    assert gres_in_use(data, "gpu-02") is None
    assert gres_in_use(data * 2, "gpu-01") is None
    assert gres_in_use(data.replace(b"   GresUsed", b"   GresUsed=\n   GresUsed"), "gpu-01") is None
    assert gres_in_use(data + b"\n" * TOO_LONG, "gpu-01") is None
    cut = data.partition(b"GresUsed=gpu:h100:4")[0] + b"GresUsed=gpu:1"
    assert gres_in_use(cut, "gpu-01") is None


def test_shards_before_24_05_have_indices() -> None:
    job = of_text(text("23.02", "11"), "11", "gpu-03")
    assert job.gres == Gres(1, (0,), is_share=True)


def test_a_node_without_gpus_has_none_in_use() -> None:
    node = b"NodeName=n1 Arch=x86_64\n   CPUAlloc=0\n   Gres=%s\n   NodeAddr=n1\n"
    assert gres_in_use(node % b"(null)", "n1") == Gres(0, ())
    assert gres_in_use(node % b"gpu:4", "n1") is None


# What users may forge: by names, comments, and paths


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
