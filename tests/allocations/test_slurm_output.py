"""What Slurm prints, as five versions of it did, whole or damaged."""

from __future__ import annotations

import json

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
from tests.allocations.outputs import NONE, SLURM, TOO_LONG, in_form, of_json, of_text, text
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
        (["RUNNING"], True),
        (["SUSPENDED"], True),
        (["FAILED", "COMPLETING"], True),
        (["RUNNING", "CONFIGURING"], True),
        (["STOPPED"], True),
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


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"start_time": 10**30}, "since"),
        ({"start_time": -1}, "since"),
        ({"start_time": "now"}, "since"),
        ({"start_time": {"set": True, "infinite": False, "number": 9e99}}, "since"),
        ({"start_time": {"set": False, "infinite": False, "number": 1795710069}}, "since"),
        ({"end_time": 4_102_444_800}, "until"),
        ({"end_time": 0}, "until"),
        ({"time_limit": "x"}, "until"),
        ({"nodes": "gpu-[01-02"}, "nodes"),
        ({"nodes": "gpu 1"}, "nodes"),
        ({"nodes": ""}, "nodes"),
    ],
)
def test_wrong_values_are_unknown(changed: dict[str, object], field: str) -> None:
    assert getattr(known(of_json(changed)), field) is None


@pytest.mark.parametrize(
    ("name", "user_id", "user"),
    [
        ("", 5, "5"),
        (None, 5, "5"),
        ("x" * 1000, 5, "5"),
        ("nobody", 5, "5"),
        ("nobody", 65534, "nobody"),
        ("ann", None, "ann"),
    ],
)
def test_users_without_a_name_have_their_id(name: object, user_id: object, user: str) -> None:
    assert known(of_json({"user_name": name, "user_id": user_id})).user == user


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
        ("n[1-65537]", None),
        ("n[1-300]x[1-300]", None),
        ("n[1-60000],m[1-60000]", None),
        pytest.param("a," * 70_000 + "a", None, id="many names"),
        ("n[1-999999999]", None),
        pytest.param("n[1-" + "9" * 5000 + "]", None, id="long number"),
        ("n[2-1]", None),
        ("n[1", None),
        ("n1]", None),
        ("n]1[", None),
        ("n[[1]]", None),
        ("n[]", None),
        ("n[1-2-3]", None),
        ("n[a]", None),
        ("n[٣]", None),
        ("a,,b", None),
        ("(null)", None),
        ("a b", None),
        pytest.param("a" * 254, None, id="long name"),
        pytest.param("a" * 2**25, None, id="very long name"),
    ],
)
def test_expand_hosts(hosts: str, expected: list[str] | None) -> None:
    assert expand_hosts(hosts) == expected


@given(st.text("n[]0-9,("), st.integers(0, 20))
def test_expanded_hosts_are_never_more(hosts: str, most: int) -> None:
    assert len(expand_hosts(hosts, most) or ()) <= most
