"""What is reported, when, and how often."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.alerts.alert import Alert
from gpumon.alerts.channels.command import Command
from gpumon.alerts.channels.terminal import Bell
from gpumon.alerts.notice import Notice
from gpumon.alerts.watchers import MOST_SUBJECTS
from gpumon.findings.finding import Severity
from gpumon.model.processes import GpuProcess, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.model.snapshot import Gpu, GpuStatus, Trouble, Unknown
from tests.alerts.machine import Machine, alert, hot, watched
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known

pytestmark = pytest.mark.usefixtures("utc")


def titles(notices: list[Notice]) -> list[str]:
    return [notice.title for notice in notices]


def lost(**changes: object) -> Gpu:
    values: dict[str, object] = dict.fromkeys(
        ("utilization_gpu", "temperature_gpu", "power_draw", "memory_used", "memory_free")
    )
    unknown = dict.fromkeys(values, Unknown.GPU_LOST)
    return gpu(status=GpuStatus.LOST, unknown=unknown, **values, **changes)


def working(pid: int = 100, **changes: object) -> GpuProcess:
    return process(pid, sm=80, **changes)  # type: ignore[arg-type]  # keywords pass through


# The course of a state


def test_a_state_is_reported_once_when_it_begins() -> None:
    machine = watched(alert("hot"))
    (notice,) = machine.see(3600, hot(), step=5)
    assert notice.title == "ada-07 GPU 0: hot"
    assert notice.sentence.startswith("GPU 0 (H100 80GB HBM3) of ada-07: hot, 91 °C")
    assert (notice.key, notice.gpu_index, notice.severity) == ("gpu:GPU-0", 0, Severity.WARNING)
    assert notice.since == notice.at
    assert not notice.ended


WELL, HOT = gpu(), hot()
UNKNOWN = {
    "lost": lost(),
    "temperature": gpu(temperature_gpu=None, unknown={"temperature_gpu": Unknown.NO_ANSWER}),
    "no answer": gpu(status=GpuStatus.NO_ANSWER),
}


Course = list[tuple[float, Gpu, int]]
"""What is seen, for how many seconds, and how many notices that gives."""
ENDS = {"ended": True, "cooldown": 0.0}

COURSES: dict[str, tuple[Alert, Course]] = {
    **{
        f"what holds at the first sample is not reported: {when}": (
            alert(when, ended=True),
            [(3600, HOT, 0), (120, WELL, 0), (5, HOT, 1)],
        )
        for when in ("hot", "temp>85")
    },
    "it must hold for long enough without a break": (
        alert("temp>85", for_seconds=60.0),
        [(5, WELL, 0), *[(50, HOT, 0), (2, WELL, 0)] * 10, (59, HOT, 0), (3, HOT, 1)],
    ),
    "flapping is reported once": (
        alert("hot", **ENDS),
        [(5, WELL, 0), (3, HOT, 1), *[(50, WELL, 0), (3, HOT, 0)] * 99],
    ),
    "after the cooldown it is reported if it still holds": (
        alert("hot", ended=True, cooldown=1000.0),
        [(5, WELL, 0), (10, HOT, 1), (100, WELL, 1), (800, HOT, 0), (200, HOT, 1)],
    ),
    "what is over within the cooldown has neither a start nor an end": (
        alert("hot", ended=True, cooldown=1000.0),
        [(5, WELL, 0), (10, HOT, 1), (100, WELL, 1), (100, HOT, 0), (2000, WELL, 0)],
    ),
    **{
        f"what is unknown begins and ends nothing: {name}, {when}": (
            alert(when, **ENDS),
            [
                *((60, blank, 0), (60, WELL, 0), (5, HOT, 1)),
                *((600, blank, 0), (600, HOT, 0), (600, blank, 0), (70, WELL, 1)),
            ],
        )
        for when in ("hot", "temp>85")
        for name, blank in UNKNOWN.items()
    },
}


@pytest.mark.parametrize("name", COURSES)
def test_a_course_gives_these_notices(name: str) -> None:
    alert, course = COURSES[name]
    machine = Machine(alert)
    # Of an hour there is a sample every five seconds.
    found = [len(machine.see(time, shown, step=max(1, time / 720))) for time, shown, _ in course]
    assert found == [count for _, _, count in course]


def test_a_state_that_shows_later_is_not_reported_if_it_held_at_the_first_sample() -> None:
    stuck = gpu(utilization_gpu=100, power_draw=100.0)
    machine = Machine(alert("stuck"))
    assert machine.see(1800, stuck, processes=(working(),), step=5) == []
    begun = Machine(alert("stuck"))
    begun.see(10, gpu(utilization_gpu=50, power_draw=400.0), processes=(working(),))
    assert len(begun.see(1800, stuck, processes=(working(),), step=5)) == 1


def test_its_end_is_reported_after_a_minute_without_it() -> None:
    machine = watched(alert("hot", ended=True))
    machine.see(30, hot())
    assert machine.see(59, gpu()) == []
    (notice,) = machine.see(30, gpu())
    assert notice.title == "ada-07 GPU 0: no longer hot"
    assert (notice.ended, notice.severity, notice.key) == (True, Severity.GOOD, "gpu:GPU-0")
    assert machine.see(600, gpu()) == []


# What is unknown


def test_without_a_driver_or_the_gpu_nothing_begins_and_nothing_ends() -> None:
    other = gpu(index=1)
    machine = Machine(alert("hot", ended=True, cooldown=0.0), alert("ends user:ann"))
    there = (working(gpus=(0,)), working(200, gpus=(1,)))
    machine.see(10, gpu(), other, processes=there)
    assert len(machine.see(10, hot(), other, processes=there)) == 1
    driverless = snapshot(machine.now, processes=())
    trouble = Trouble("The driver is gone.", "Load it.")
    empty = type(driverless)(time=0, host=driverless.host, trouble=trouble)
    assert machine.show(600, empty) == []
    assert machine.see(600, other, processes=(there[1],)) == []
    assert machine.see(600, hot(), other, processes=there) == []


def test_a_lost_gpu_is_reported_and_its_return() -> None:
    machine = watched(alert("lost", ended=True))
    (notice,) = machine.see(600, lost())
    assert (notice.title, notice.severity) == ("ada-07 GPU 0: lost", Severity.CRITICAL)
    assert titles(machine.see(70, gpu())) == ["ada-07 GPU 0: no longer lost"]


def test_a_gpu_that_is_plugged_in_later_has_a_first_sample_of_its_own() -> None:
    assert watched(alert("hot")).see(60, gpu(), hot(index=1)) == []


def test_time_without_samples_does_not_count() -> None:
    machine = watched(alert("temp>85", for_seconds=600.0))
    machine.see(10, hot())
    machine.now += 3600
    assert machine.see(500, hot()) == []
    assert len(machine.see(200, hot())) == 1


def test_a_clock_that_is_set_back_repeats_nothing() -> None:
    machine = watched(alert("hot", ended=True, cooldown=1000.0), alert("xid"))
    machine.see(10, hot(xid=79, xid_at=machine.now))
    assert len(machine.notices) == 2
    machine.now -= 7200
    assert machine.see(100, hot(xid=79, xid_at=machine.now - 5)) == []
    assert len(machine.see(100, gpu())) == 1
    # Nor does it hold back what begins after the cooldown.
    machine.see(1000, gpu())
    assert titles(machine.see(10, hot())) == ["ada-07 GPU 0: hot"]


# Filters, processes


def test_a_filter_of_gpus_reports_each() -> None:
    machine = Machine(alert("util<5 gpu:0-1"))
    busy = [gpu(index=index, utilization_gpu=90) for index in range(3)]
    machine.see(10, *busy)
    notices = machine.see(10, *[gpu(index=index) for index in range(3)])
    assert [notice.gpu_index for notice in notices] == [0, 1]
    assert "util<5 gpu:0-1: 0 % busy, 0.5 of 80.0 GiB in use, 40 °C" in notices[0].sentence


def test_a_state_may_be_narrowed_to_gpus_with_a_users_processes() -> None:
    machine = Machine(alert("hot and user:me"))
    machine.see(10, gpu(), gpu(index=1), processes=(working(), working(200, user="bob", gpus=(1,))))
    notices = machine.see(
        10, hot(), hot(index=1), processes=(working(), working(200, user="bob", gpus=(1,)))
    )
    assert [notice.gpu_index for notice in notices] == [0]


def test_a_process_that_meets_a_filter_is_reported_once_with_its_values() -> None:
    machine = Machine(alert("idle>2h and mem>10G"))
    big = process(memory_used=12 * GIB, sm=0)
    machine.see(10, gpu(), processes=(working(memory_used=12 * GIB),))
    assert machine.see(7190, gpu(), processes=(big,), step=10) == []
    (notice,) = machine.see(7200, gpu(), processes=(big,), step=10)
    assert notice.title == "ada-07 process 100 of ann: idle>2h and mem>10G"
    assert "12.0 GiB of GPU memory, SM 0 %" in notice.sentence
    assert (notice.pid, notice.user, notice.gpu_index) == (100, "ann", 0)


def test_only_processes_that_come_later_are_reported() -> None:
    machine = Machine(alert("user:me"))
    assert machine.see(60, gpu(), processes=(working(),)) == []
    notices = machine.see(60, gpu(), processes=(working(), working(200), working(300, user="bob")))
    assert [notice.pid for notice in notices] == [200]


def test_what_is_looked_up_after_the_first_list_was_there_before() -> None:
    machine = Machine(alert("env:torch"), alert("user:me"), alert("util<5 user:me"))
    place = Workload(environment="torch")
    unknown = replace(working(user=None), place=None)
    machine.see(3, gpu(), processes=(unknown,))
    known = replace(working(), place=place)
    assert machine.see(60, gpu(), processes=(known,)) == []
    later = replace(working(200), place=None)
    assert len(machine.see(3, gpu(), processes=(known, later))) == 1
    assert len(machine.see(3, gpu(), processes=(known, replace(later, place=place)))) == 1


def serving(pid: int, load: ServerLoad | None, model: str | None = "Qwen2.5-14B") -> GpuProcess:
    """A worker of the server 7."""
    server = InferenceServer("vllm", model, pid=7, start_time=1)
    return replace(working(pid), place=Workload(server=server), load=load)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "meets", "misses"),
    [
        ("waiting>10", ServerLoad(waiting=11), ServerLoad(waiting=10)),
        ("running<1", ServerLoad(running=0), ServerLoad(running=1)),
        ("requests<1", ServerLoad(requests=0.5), ServerLoad(requests=1.5)),
        ("tokens<5", ServerLoad(tokens=0.0), ServerLoad(tokens=80.0)),
        ("kv>95", ServerLoad(kv_cache=98.0), ServerLoad(kv_cache=40.0)),
        ("server:qwen waiting>10", ServerLoad(waiting=11), ServerLoad(waiting=10)),
    ],
)
def test_a_server_is_reported_by_what_it_reports_and_not_while_that_is_unknown(
    when: str, meets: ServerLoad, misses: ServerLoad
) -> None:
    machine = Machine(alert(when, ended=True, cooldown=0.0))
    unknown = ServerLoad(problem="it needs a key")
    assert machine.see(60, gpu(), processes=(serving(100, misses),)) == []
    for blank in (None, unknown):
        assert machine.see(300, gpu(), processes=(serving(100, blank),)) == []
    assert len(machine.see(30, gpu(), processes=(serving(100, meets),))) == 1
    for blank in (None, unknown):
        assert machine.see(300, gpu(), processes=(serving(100, blank),)) == []
    [over] = machine.see(300, gpu(), processes=(serving(100, misses),))
    assert over.ended


def test_the_workers_of_a_server_are_one_notice_and_another_server_is_another() -> None:
    def workers(load: ServerLoad) -> tuple[GpuProcess, ...]:
        other = InferenceServer("vllm", "Qwen2.5-14B", pid=8, start_time=1)
        beside = replace(serving(300, load), place=Workload(server=other))
        return (*(serving(pid, load) for pid in range(100, 104)), beside)

    idle = workers(ServerLoad(waiting=0))
    machine = watched(alert("waiting>10", ended=True, cooldown=0.0), processes=idle)
    begun = machine.see(60, gpu(), processes=workers(ServerLoad(waiting=11)))
    assert [notice.pid for notice in begun] == [100, 300]
    over = machine.see(300, gpu(), processes=idle)
    assert [(notice.pid, notice.ended) for notice in over] == [(100, True), (300, True)]


def test_the_end_of_a_server_is_one_notice() -> None:
    idle = serving(100, ServerLoad(waiting=0))
    machine = watched(alert("waiting>10", ended=True), processes=(idle,))
    workers = tuple(serving(pid, ServerLoad(waiting=11)) for pid in range(100, 104))
    machine.see(60, gpu(), processes=workers)
    over = machine.see(300, gpu(), processes=())
    assert [(notice.pid, notice.ended) for notice in over] == [(100, True)]


def test_a_server_whose_model_is_unknown_is_known_by_its_engine_alone() -> None:
    alerts = map(alert, ("server:vllm", "server:qwen", "!server:qwen"))
    machine = watched(*alerts, processes=(working(),))
    unknown = (working(), serving(200, None, model=None))
    assert titles(machine.see(60, gpu(), processes=unknown)) == [
        "ada-07 process 200 of ann: server:vllm"
    ]
    named = (working(), serving(200, ServerLoad(models=("qwen",)), model=None))
    assert titles(machine.see(60, gpu(), processes=named)) == [
        "ada-07 process 200 of ann: server:qwen"
    ]


def test_an_idle_process_is_reported_unless_it_was_idle_at_the_first_sample() -> None:
    machine = Machine(alert("idle process"))
    assert machine.see(600, gpu(), processes=(process(), working(200))) == []
    notices = machine.see(600, gpu(), processes=(process(), process(200)))
    assert titles(notices) == ["ada-07 process 200 of ann: idle process"]
    assert notices[0].sentence == (
        "process 200 of ann on GPU 0 of ada-07: idle for 1 m, holds 1.0 GiB on GPU 0"
    )


def test_an_unknown_idle_time_ends_nothing() -> None:
    machine = Machine(alert("idle>10m", ended=True, cooldown=0.0))
    idle, silent = process(sm=0), process(sm=None)
    machine.see(10, gpu(), processes=(working(),))
    assert len(machine.see(700, gpu(), processes=(idle,))) == 1
    assert machine.see(600, gpu(), processes=(silent,)) == []
    assert machine.see(900, gpu(), processes=(idle,)) == []
    assert titles(machine.see(70, gpu(), processes=(working(),))) == [
        "ada-07 process 100 of ann: no longer idle>10m"
    ]


def test_the_end_of_a_process_is_reported_if_it_is_missing_from_two_lists() -> None:
    machine = Machine(alert("ends user:me"))
    machine.see(60, gpu(), processes=(working(), working(200, user="bob")))
    assert machine.see(1, gpu()) == []
    assert machine.see(5, gpu(), processes=(working(),)) == []
    (notice,) = machine.see(60, gpu())
    assert notice.title == "ada-07 process 100 of ann: ended"
    assert "has ended: it was on GPU 0 of ada-07 for at least 1 m" in notice.sentence
    assert not notice.ended


def test_a_process_on_a_gpu_that_does_not_answer_has_not_ended() -> None:
    machine = watched(alert("ends 100"), processes=(working(),))
    assert machine.see(600, lost()) == []
    assert machine.see(10, gpu(), processes=(working(),)) == []
    assert len(machine.see(10, gpu())) == 1


def test_a_process_whose_memory_grows_is_reported() -> None:
    machine = Machine(alert("growing"))
    for minute in range(20):
        machine.see(60, gpu(), processes=(working(memory_used=(2 + minute) * GIB),), step=5)
    assert [notice.pid for notice in machine.notices] == [100]


def test_command_lines_are_sent_only_if_configured() -> None:
    secret = type(working())(
        working(200).id, "C", working(200).uses, user="ann", command=("train", "--key=s3cret")
    )
    quiet, open_ = alert("user:me"), alert("user:me", commands=True, name="open")
    machine = watched(quiet, open_, alert("ends user:me"))
    notices = machine.see(10, gpu(), processes=(secret,)) + machine.see(10, gpu())
    assert [notice.command for notice in notices] == [None, "train --key=s3cret", None]
    assert all("s3cret" not in f"{notice.title}{notice.sentence}" for notice in notices)


# XIDs


def test_xids_are_reported_by_severity_or_number() -> None:
    machine = watched(alert("xid"), alert("xid critical"), alert("xid 13,31"))
    for number in (13, 94, 79):
        machine.see(10, gpu(xid=number, xid_at=machine.now))
    assert [(notice.alert, notice.key) for notice in machine.notices] == [
        ("xid 13,31", "gpu:GPU-0:xid:13"),
        ("xid", "gpu:GPU-0:xid:94"),
        ("xid", "gpu:GPU-0:xid:79"),
        ("xid critical", "gpu:GPU-0:xid:79"),
    ]
    assert machine.notices[-1].severity is Severity.CRITICAL
    assert "XID 79: " in machine.notices[-1].sentence


def test_an_xid_is_reported_again_only_after_the_cooldown() -> None:
    machine = watched(alert("xid", cooldown=1800.0))
    for _ in range(100):
        machine.see(30, gpu(xid=79, xid_at=machine.now))
    assert len(machine.notices) == 2


def test_an_xid_from_before_the_first_sample_is_not_reported() -> None:
    machine = Machine(alert("xid all"))
    assert machine.see(60, gpu(xid=79, xid_at=machine.now - 3600)) == []
    # The kernel log may report it later.
    assert machine.see(60, gpu(xid=48, xid_at=machine.now - 3600)) == []


# By key


def test_a_gpu_that_is_watched_by_key_is_reported_when_it_is_free() -> None:
    machine = watched(processes=(working(),))
    machine.engine.notify_when_free(gpu())
    assert machine.see(10, gpu(), processes=(working(),)) == []
    (notice,) = machine.see(60, gpu())
    assert notice.title == "ada-07 GPU 0: free"
    machine.see(10, gpu(), processes=(working(),))
    assert machine.see(60, gpu()) == []


def test_a_process_that_is_watched_by_key_is_reported_when_it_ends() -> None:
    machine = watched(processes=(working(), working(200)))
    machine.engine.notify_when_ended(working())
    machine.engine.notify_when_ended(working(200))
    machine.engine.cancel("process:200:1")
    assert machine.see(10, gpu(), processes=(working(), working(200))) == []
    # Another process may get its number.
    (notice,) = machine.see(60, gpu(), processes=(working(start_time=2),))
    assert notice.pid == 100


# Restarts


def test_after_a_restart_nothing_is_reported_twice(tmp_path: Path) -> None:
    machine = watched(alert("hot"), alert("xid"), alert("user:me"), state=tmp_path / "state.json")
    seen = hot(xid=79, xid_at=machine.now)
    assert len(machine.see(10, seen, processes=(working(),))) == 3
    for pause in (0, 60, 7200, 86400):
        machine.restart(pause)
        assert machine.see(60, seen, processes=(working(),)) == [], pause


def test_an_xid_that_the_kernel_log_repeats_after_a_restart_is_not_new(tmp_path: Path) -> None:
    machine = watched(alert("xid", cooldown=0.0), state=tmp_path / "state.json")
    at = machine.now
    assert len(machine.see(10, gpu(xid=79, xid_at=at))) == 1
    machine.restart(60)
    machine.see(10, gpu())
    assert machine.see(10, gpu(xid=79, xid_at=at)) == []
    assert len(machine.see(10, gpu(xid=79, xid_at=machine.now))) == 1


def test_what_begins_in_a_short_pause_is_reported_but_not_in_a_long_one(tmp_path: Path) -> None:
    for pause, count in ((600, 4), (7200, 0)):
        machine = Machine(
            *(alert("hot"), alert("xid"), alert("user:me"), alert("ends 300")),
            state=tmp_path / f"{pause}.json",
        )
        machine.see(10, gpu(), processes=(working(300, user="bob"),))
        machine.restart(pause)
        after = hot(xid=79, xid_at=machine.now - 100)
        assert len(machine.see(60, after, processes=(working(),))) == count


def test_the_end_of_what_was_reported_before_a_restart_is_reported(tmp_path: Path) -> None:
    machine = watched(alert("temp>85", ended=True), state=tmp_path / "state.json")
    machine.see(10, hot())
    machine.restart(60)
    assert titles(machine.see(120, gpu())) == ["ada-07 GPU 0: temp>85 ended"]


def test_a_state_that_needs_time_to_show_again_has_not_ended_by_a_restart(tmp_path: Path) -> None:
    busy = gpu(utilization_gpu=50, power_draw=400.0)
    stuck = gpu(utilization_gpu=100, power_draw=100.0)
    machine = Machine(
        *(alert("stuck", ended=True, cooldown=0.0), alert("idle>10m", ended=True, cooldown=0.0)),
        state=tmp_path / "state.json",
    )
    machine.see(10, busy, processes=(working(),), step=5)
    assert len(machine.see(1000, stuck, processes=(process(),), step=5)) == 2
    machine.restart(5)
    assert machine.see(3000, stuck, processes=(process(),), step=5) == []


def test_an_alert_that_is_new_after_a_restart_has_a_first_sample(tmp_path: Path) -> None:
    machine = Machine(alert("xid"), state=tmp_path / "state.json")
    machine.see(10, hot(), processes=(working(),))
    machine.alerts = (alert("xid"), alert("hot"), alert("user:me"))
    machine.restart()
    assert machine.see(60, hot(), processes=(working(),)) == []


def shape(value: object) -> object:
    """The keys of a JSON value, and the states of its instances."""
    if not isinstance(value, dict):
        return None
    return {key: item if key == "phase" else shape(item) for key, item in value.items()}


def test_a_state_file_of_an_earlier_version_is_continued(tmp_path: Path) -> None:
    at = NOON - 60.0
    told: dict[str, object] = {
        "phase": "told",
        "since": at,
        "seen_at": at,
        "held": 10.0,
        "gone": 0.0,
    }
    told |= {"held_then": True, "told_at": at}
    ann: dict[str, object] = {"pid": 100, "start_time": 1, "name": None, "user": "ann", "gpus": [0]}
    ann |= {"gpu_uuids": ["GPU-0"], "since": at, "command": None, "missing": 0}
    known: dict[str, dict[str, object]] = {
        "temp>85": {"episodes": {"gpu:GPU-0": told}},
        "xid": {"episodes": {"GPU-0:79": told | {"phase": "over"}}, "xids": {"GPU-0": {"79": at}}},
        "user:me": {
            "episodes": {"process:100:1": told | {"phase": "known"}},
            "processes": {"process:100:1": ann},
        },
        "ends user:me": {"looked": {}, "processes": {"process:100:1": ann}},
    }
    nothing = {"looked": {"GPU-0": at - 60}, "episodes": {}, "xids": {}, "processes": {}}
    alerts = {when: {"when": when, **nothing, **of_alert} for when, of_alert in known.items()}
    state = tmp_path / "state.json"
    before = {"at": at, "pace": 5.0, "alerts": alerts, "version": 1}
    state.write_text(json.dumps(before))
    machine = Machine(*(alert(when, ended=True) for when in known), state=state)
    assert machine.engine.trouble is None
    seen = {"xid": 79, "xid_at": at}
    assert machine.see(5, hot(**seen), processes=(working(),)) == []
    machine.restart()
    # An earlier version can read this file, too: it skips the server and the accidents.
    after = json.loads(state.read_bytes())
    for of_alert in after["alerts"].values():
        assert of_alert.pop("accidents_at") is None
        for remembered in of_alert["processes"].values():
            assert remembered.pop("server") is None
    assert shape(after) == shape(before)
    assert titles(machine.see(120, gpu(**seen))) == [
        "ada-07 process 100 of ann: ended",
        "ada-07 GPU 0: temp>85 ended",
    ]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff\x00", b'{"at": "x"}', b'{"at": 1, "version": 99}', b"[" * 10**6],
)
def test_an_unreadable_state_file_is_one_sentence_and_a_fresh_start(
    tmp_path: Path, content: bytes
) -> None:
    state = tmp_path / "state.json"
    state.write_bytes(content)
    machine = Machine(alert("hot"), state=state)
    trouble = known(machine.engine.trouble)
    assert trouble.startswith(f"the file of past notifications, {state}, is not usable (")
    machine.see(10, gpu())
    assert len(machine.see(10, hot())) == 1
    machine.restart()
    assert machine.engine.trouble is None
    assert machine.see(10, hot()) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    machine = watched(alert("hot"), state=tmp_path / "file" / "state.json")
    assert len(machine.see(10, hot())) == 1
    machine.engine.close()
    assert "after a restart gpumon does not know what it has reported" in (
        machine.engine.trouble or ""
    )


def test_of_two_programs_one_runs_the_commands(tmp_path: Path) -> None:
    channels = (Bell(), Command(("true",)))
    first = Machine(alert("hot", channels=channels), state=tmp_path / "state.json")
    second = Machine(alert("hot", channels=channels), state=tmp_path / "state.json")
    assert first.engine.trouble is None
    assert "another gpumon of yours" in (second.engine.trouble or "")
    for machine, expected in ((first, channels), (second, (Bell(),))):
        machine.see(10, gpu())
        machine.history.add(snapshot(machine.now, hot()))
        latest = known(machine.history.latest)
        ((reported, _),) = machine.engine.check(machine.history, latest)
        assert reported.channels == expected
    first.engine.close()
    second.now += 1
    second.see(200, gpu())
    assert second.engine.trouble is None


# Bounds


@pytest.mark.slow
def test_memory_is_bounded_where_thousands_of_processes_come_and_go(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    machine = Machine(alert("user:me", ended=True), alert("ends user:me"), state=state)
    machine.see(2, gpu())
    # More than any alert remembers at once.
    count = 2 * MOST_SUBJECTS
    for first in range(0, count, 100):
        machine.see(5, gpu(), processes=tuple(working(pid) for pid in range(first, first + 100)))
    assert len({notice.pid for notice in machine.notices if notice.alert == "user:me"}) == count
    machine.restart()
    assert state.stat().st_size < 1_000_000
    machine.see(200, gpu())
    machine.restart()
    for left in json.loads(state.read_bytes())["alerts"].values():
        assert (left["episodes"], left["processes"]) == ({}, {})


def test_a_check_does_not_keep_its_snapshot() -> None:
    machine = Machine(
        alert("hot and user:me"), alert("idle>2h"), alert("xid"), alert("ends user:me")
    )
    machine.see(10, hot(), processes=(working(),))
    gc.collect()
    gc.disable()
    try:
        machine.see(10, hot(), processes=(working(),))
        left = gc.collect()
    finally:
        gc.enable()
    assert left == 0, "what refers to itself stays for minutes, and keeps its snapshot"
