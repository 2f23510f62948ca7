"""Alerts on accidents, which the kernel log reports some moments after they happened."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpumon.alerts.memory import Remembered
from gpumon.alerts.notice import Notice
from gpumon.alerts.watchers import MOST_SUBJECTS
from gpumon.findings.finding import Severity
from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.processes import GpuProcess
from tests.alerts.machine import Machine, alert, watched
from tests.build import gpu, process, snapshot

TRAIN = replace(process(41233, user="ann"), name="python")


def reset(time: float, uuid: str = "GPU-0") -> Accident:
    return Accident(time, AccidentKind.RESET, uuid, text="GPU reset begin!")


def killed(time: float, pid: int = 41233) -> Accident:
    return Accident(
        time, AccidentKind.OUT_OF_MEMORY, pid=pid, process_name="python", text="Out of memory"
    )


def happens(
    machine: Machine, *accidents: Accident, processes: tuple[GpuProcess, ...] = (TRAIN,)
) -> list[Notice]:
    seen = snapshot(machine.now, gpu(), gpu(index=1), processes=processes)
    return machine.show(1, replace(seen, accidents=accidents))


def test_resets_timeouts_and_killed_processes_are_reported_once_and_xids_are_not() -> None:
    machine = watched(alert("accident"), processes=(TRAIN,))
    seen = (
        Accident(machine.now, AccidentKind.TIMEOUT, "GPU-1", text="ring gfx timeout"),
        Accident(machine.now, AccidentKind.ERROR_CODE, "GPU-0", 79, text="fallen off"),
        killed(machine.now),
    )
    found = happens(machine, *seen)
    assert sorted(notice.key for notice in found) == [
        "accident:out of memory:41233",
        "gpu:GPU-1:accident:timeout",
    ]
    assert happens(machine, *seen, processes=()) == []


def test_a_killed_process_is_named_with_its_user_although_it_is_gone() -> None:
    machine = watched(alert("accident oom"), processes=(TRAIN,))
    (notice,) = happens(machine, killed(machine.now), processes=())
    assert notice.title == "ada-07 out of memory: 41233 python of ann"
    assert notice.sentence == (
        "ada-07: out of memory: the OOM killer killed a process: 41233 python of ann"
    )
    assert (notice.pid, notice.user, notice.gpu_uuid) == (41233, "ann", None)
    assert notice.severity is Severity.WARNING
    assert notice.since is not None


def test_the_words_and_the_filter_select_accidents() -> None:
    whens = ("accident reset", "accident timeout,oom", "accident user:ann", "accidents gpu:1")
    machine = watched(*map(alert, whens), processes=(TRAIN,))
    found = happens(machine, killed(machine.now), reset(machine.now), processes=())
    assert sorted((notice.alert, notice.key) for notice in found) == [
        ("accident reset", "gpu:GPU-0:accident:reset"),
        ("accident timeout,oom", "accident:out of memory:41233"),
        ("accident user:ann", "accident:out of memory:41233"),
        ("accident user:ann", "gpu:GPU-0:accident:reset"),
    ]


def test_a_reset_that_follows_from_a_time_out_or_an_xid_is_reported() -> None:
    machine = watched(alert("accident reset"), alert("accident"), processes=(TRAIN,))
    for kind, uuid in ((AccidentKind.TIMEOUT, "GPU-0"), (AccidentKind.ERROR_CODE, "GPU-1")):
        cause = Accident(machine.now, kind, uuid, number=79, text="ring gfx timeout")
        happens(machine, cause, reset(machine.now + 0.01, uuid))
    assert [(notice.alert, notice.key) for notice in machine.notices] == [
        ("accident reset", "gpu:GPU-0:accident:reset"),
        ("accident", "gpu:GPU-0:accident:timeout"),
        ("accident reset", "gpu:GPU-1:accident:reset"),
        ("accident", "gpu:GPU-1:accident:reset"),
    ]


def test_what_the_kernel_log_has_from_before_the_start_is_not_reported() -> None:
    machine = Machine(alert("accident"))
    old = reset(machine.now - 60)
    happens(machine)
    # The log is read from the second sample on.
    assert happens(machine, old) == []
    assert len(happens(machine, old, killed(machine.now))) == 1


def test_lines_that_arrive_late_and_out_of_order_are_reported() -> None:
    machine = watched(alert("accident"), processes=(TRAIN,))
    early, late = machine.now, machine.now + 3
    machine.now += 5
    assert len(happens(machine, killed(late))) == 1
    assert len(happens(machine, reset(early), killed(late))) == 1


def test_a_reset_is_reported_that_comes_a_sample_after_its_timeout() -> None:
    machine = watched(alert("accident", cooldown=0.0), alert("accident reset"), processes=(TRAIN,))
    timeout = Accident(machine.now, AccidentKind.TIMEOUT, "GPU-0", text="ring gfx timeout")
    assert [notice.alert for notice in happens(machine, timeout)] == ["accident"]
    follows = reset(machine.now - 0.5)
    found = happens(machine, timeout, follows)
    assert [(notice.alert, notice.key) for notice in found] == [
        ("accident", "gpu:GPU-0:accident:reset"),
        ("accident reset", "gpu:GPU-0:accident:reset"),
    ]
    assert happens(machine, timeout, follows) == []


def test_each_killed_process_is_reported_and_a_gpu_that_is_reset_often_is_not() -> None:
    machine = watched(alert("accident"), processes=(TRAIN,))
    seen: list[Accident] = []
    for pid in range(10):
        seen += [killed(machine.now, 100 + pid), reset(machine.now)]
        happens(machine, *seen[-32:])
        machine.now += 30
    keys = [notice.key for notice in machine.notices]
    assert len([key for key in keys if "memory" in key]) == 10
    assert keys.count("gpu:GPU-0:accident:reset") == 1


def test_thousands_of_killed_processes_take_bounded_memory_and_hide_no_reset(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state.json"
    machine = watched(alert("accident", cooldown=86400.0), state=state, processes=(TRAIN,))
    for first in range(1000, 1000 + MOST_SUBJECTS + 200, 25):
        happens(machine, *(killed(machine.now, first + number) for number in range(25)))
    assert len(machine.notices) == MOST_SUBJECTS + 200
    assert len(happens(machine, reset(machine.now))) == 1
    machine.engine.close()
    (known,) = msgspec.json.decode(state.read_bytes(), type=Remembered).alerts.values()
    assert len(known.instances) == MOST_SUBJECTS
    assert "gpu:GPU-0:accident:reset" in known.instances


def test_a_restart_repeats_no_accident_and_misses_none_of_a_short_pause(tmp_path: Path) -> None:
    machine = watched(
        alert("accident", cooldown=0.0), state=tmp_path / "state.json", processes=(TRAIN,)
    )
    told = reset(machine.now)
    assert len(happens(machine, told)) == 1
    machine.restart(60)
    again = reset(told.time + 0.02)
    between = killed(machine.now - 30)
    assert happens(machine) == []
    assert [notice.key for notice in happens(machine, again, between)] == [
        "accident:out of memory:41233"
    ]
    machine.restart(7200)
    assert happens(machine, killed(machine.now - 30, pid=7)) == []


def test_a_clock_that_is_set_back_loses_no_accident() -> None:
    machine = watched(alert("accident"), processes=(TRAIN,))
    machine.now -= 3600
    happens(machine)
    assert len(happens(machine, reset(machine.now))) == 1


def test_hostile_names_are_safe_to_print() -> None:
    machine = watched(alert("accident"), processes=(TRAIN,))
    hostile = Accident(
        machine.now,
        AccidentKind.OUT_OF_MEMORY,
        pid=5,
        process_name="\x1b]0;x\x07[red]",
        text="Out of memory",
        cgroup="/a\x1b[2J",
    )
    (notice,) = happens(machine, hostile)
    assert "\x1b" not in notice.title + notice.sentence
    # The key goes to programs in their environment.
    (unnamed,) = happens(machine, replace(hostile, pid=None, cgroup="/b\x1b[2J\0"))
    assert not {"\x1b", "\0"} & set(unnamed.key)
