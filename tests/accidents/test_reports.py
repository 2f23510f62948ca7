"""An accident is reported with whose it was and what left, and never with what was not seen."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from gpumon.accidents import details_of, first_lines, report_of
from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.processes import GpuProcess, Workload
from gpumon.model.snapshot import GpuStatus, Snapshot, Unknown
from tests.build import NOON, gpu, process, snapshot

XID = Accident(NOON, AccidentKind.ERROR_CODE, "GPU-0", 31, 41233, "python")
LOST = Accident(NOON, AccidentKind.ERROR_CODE, "GPU-0", 79)
KILL = Accident(
    NOON, AccidentKind.OUT_OF_MEMORY, None, None, 41233, "python", cgroup="/slurm/job_7"
)


def python(pid: int = 41233, gpus: tuple[int, ...] = (0,), job: str | None = "88123") -> GpuProcess:
    """A process of chen that has run for two hours."""
    seen = process(pid, user="chen", gpus=gpus, started_at=NOON - 7200)
    return replace(seen, name="python", place=Workload(slurm_job=job, session=pid))


def seen(time: float, *processes: GpuProcess, **changes: bool) -> Snapshot:
    gpus = [gpu(index=index) for index in range(3)]
    return snapshot(time, *gpus, processes=processes, **changes)


def test_the_named_process_its_job_and_what_left_are_reported() -> None:
    before = seen(
        NOON - 1, python(), python(2, gpus=(1,)), python(3, job="9"), python(4, (2,), "9")
    )
    report = report_of(XID, before, seen(NOON + 20, python(3, job="9"), python(4, (2,), "9")))

    assert report.sentence.startswith("GPU 0: XID 31, ")
    assert report.sentence.endswith(": 41233 python of chen (slurm 88123)")
    assert report.ran_seconds == 7200
    assert {each.id.pid for each in report.present or ()} == {41233, 2, 3}
    assert report.left_text == "41233 python of chen, 2 python of chen"
    assert report.lost_text == "≥ 4.0"
    named = (
        "the kernel names 41233 python of chen (slurm 88123), which ran for 2h00m and had 1.0 GiB"
    )
    assert any(sentence.startswith(named) for sentence in details_of(report))


def test_the_kernel_may_name_a_thread_of_a_process_on_the_gpu() -> None:
    report = report_of(replace(XID, process_name="pt_main_thread"), seen(NOON - 1, python()), None)
    assert report.process == python()


@pytest.mark.parametrize(
    ("accident", "before"),
    [
        (XID, None),
        (XID, seen(NOON + 1, python())),
        (XID, seen(NOON - 3600, python())),
        (XID, seen(NOON - 1, python(), pids_are_ours=False)),
        (XID, seen(NOON - 1, python(), in_container=True)),
        (KILL, seen(NOON - 1, python(), in_container=True)),
        (replace(XID, pid=7), seen(NOON - 1, python())),
        (replace(KILL, process_name="bash"), seen(NOON - 1, python())),
        (replace(KILL, process_name=None), seen(NOON - 1, python())),
    ],
    ids=[
        *("nothing", "later", "long ago", "namespace", "container", "kill in a container"),
        *("other", "reused", "no name"),
    ],
)
def test_a_process_that_was_not_seen_is_not_joined(
    accident: Accident, before: Snapshot | None
) -> None:
    report = report_of(accident, before, seen(NOON + 20))
    assert (report.process, report.job, report.ran_seconds, report.lost_gpu_hours) == (None,) * 4
    assert report.whose.startswith(str(accident.pid))


def test_in_a_container_a_named_process_may_have_been_seen_with_another_pid() -> None:
    named = "the kernel names 41233 python, "
    for contained, why in (
        (False, "which gpumon had not seen on a GPU"),
        (True, "by a PID of the host"),
    ):
        report = report_of(XID, seen(NOON - 1, python(7), in_container=contained), None)
        assert named + why in details_of(report)
        assert report.present == (python(7),)


def test_the_oom_killers_process_is_joined_by_pid_and_name() -> None:
    report = report_of(KILL, seen(NOON - 1, python()), seen(NOON + 5))
    assert report.gpu_index is None
    assert "at the memory limit of /slurm/job_7: 41233 python of chen" in report.sentence
    assert report.left_text == "41233 python of chen"


@pytest.mark.parametrize(
    ("text", "killed"), [("oom_kill 1", "1 process"), ("oom_kill 3", "3 processes")]
)
def test_a_counter_of_kills_does_not_say_whose_memory_was_used_up(text: str, killed: str) -> None:
    kills = Accident(NOON, AccidentKind.OUT_OF_MEMORY, text=text, cgroup="/slurm/job_7")
    sentence = report_of(kills, seen(NOON - 1, python()), None).sentence
    assert sentence == f"out of memory, the OOM killer killed {killed} of /slurm/job_7"


def test_what_the_line_says_beyond_the_number_is_reported() -> None:
    text = "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x00086226 0x00000000)"
    report = report_of(replace(LOST, number=149, text=text), seen(NOON - 1, python()), None)
    assert report.sentence.startswith("GPU 0: XID 149, ")
    assert ", fatal, link 8, unit NETIR: " in report.sentence


def test_what_follows_is_named_once_each() -> None:
    further = tuple([replace(LOST, number=number, time=NOON + 1) for number in (48, 79, 79)])
    report = report_of(replace(LOST, number=48), seen(NOON - 1, python()), None, further)
    assert [what.split(":")[0] for what in report.then] == ["XID 79"]
    assert ", then XID 79, the GPU fell off the bus: 41233 python" in report.sentence
    assert "then XID 79: the GPU fell off the bus" in details_of(report)


def test_what_left_is_unknown_without_a_later_list_of_the_gpu() -> None:
    before = seen(NOON - 1, python())
    unread = gpu(index=0, unknown={"processes": Unknown.NO_ANSWER})
    for after in (
        None,
        before,
        seen(NOON + 31),
        snapshot(NOON + 5, unread),
        snapshot(NOON + 5, gpu(index=0, status=GpuStatus.LOST)),
    ):
        report = report_of(XID, before, after)
        assert (report.left, report.left_text, report.lost_text) == (None, "", "")
    assert report_of(XID, before, seen(NOON + 5, python())).left_text == "nothing"


def test_hours_are_lost_to_a_fault_of_the_gpu_and_not_to_any_error_without_a_process() -> None:
    before, after = seen(NOON - 1, python()), seen(NOON + 5)
    assert report_of(LOST, before, after).lost_text == "≥ 2.0"
    assert report_of(replace(LOST, number=63), before, after).lost_text == ""
    assert report_of(replace(LOST, pid=7), before, after).lost_text == ""


def test_unknown_parts_stay_unknown() -> None:
    bare = Accident(NOON, AccidentKind.OTHER)
    report = report_of(bare, None, None)
    assert (report.sentence, report.whose, report.left_text, report.lost_text) == (
        *("error", ""),
        *("", ""),
    )
    unnumbered = report_of(Accident(NOON, AccidentKind.ERROR_CODE, "GPU-9"), None, None)
    assert unnumbered.sentence == "error"
    unknown = report_of(replace(XID, number=99999), None, None)
    assert (unknown.label, unknown.meaning) == ("XID 99999", None)


# Lines of one accident


def test_lines_of_one_process_and_moment_are_one_accident() -> None:
    lines = [replace(XID, number=number, time=NOON + late) for number, late in ((43, 1), (45, 2.5))]
    assert first_lines([*lines, XID]) == {XID: tuple(lines)}


def test_the_kernel_says_what_follows_from_an_error_of_another_process() -> None:
    other = replace(XID, number=45, pid=8, time=NOON + 1)
    assert first_lines([XID, other]) == {XID: (), other: ()}
    caused = replace(other, text="Ch 8 preemptive removal, caused by previous Xid 31")
    assert first_lines([XID, caused]) == {XID: (caused,)}


@pytest.mark.parametrize("pids", [1, 20_000], ids=["one accident", "many accidents"])
def test_a_flood_of_lines_is_joined_in_linear_time(pids: int) -> None:
    lines = [
        replace(XID, pid=number % pids + 1, time=NOON + number / 100_000, text=str(number))
        for number in range(20_000)
    ]
    began = time.thread_time()
    assert len(first_lines(lines)) == pids
    assert time.thread_time() - began < 5


def test_other_gpus_later_lines_and_other_kills_are_other_accidents() -> None:
    others = (
        replace(XID, gpu_uuid="GPU-1"),
        replace(XID, time=NOON + 2.5),
        KILL,
        replace(KILL, pid=9),
    )
    assert set(first_lines([XID, *others])) == {XID, *others}
    counted = replace(KILL, pid=None, process_name=None, time=NOON + 1)
    assert first_lines([KILL, counted]) == {KILL: (counted,)}
