"""The page: what it tells of a machine, and what it no longer tells of a driver that hangs."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess

import pytest
from msgspec.structs import replace

from gpumon.exporter.label_limits import MOST_NAMES, NAME_SECONDS, LabelLimits
from gpumon.exporter.metrics_page import MetricsPages
from gpumon.makers.demo import DemoSource
from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.allocations import Allocation
from gpumon.model.network import Nic, NicKind
from gpumon.model.processes import GpuProcess, GpuUse, ProcessId, Workload
from gpumon.model.serving import InferenceServer
from gpumon.model.snapshot import Gpu, GpuStatus, Host, Snapshot, Trouble
from tests.driver import GIB, Driver, Owner, h100, owners
from tests.exporter.exporting import Scrape, exporting, wait_until
from tests.exporter.page import PAGE, with_states
from tests.known import known

NOON = 1_763_700_000.0


def page_of(pages: MetricsPages) -> Scrape:
    page = pages.newest()
    assert gzip.decompress(page.zipped) == page.text
    return Scrape(page.text.decode())


def rendered(*snapshots: Snapshot, interval: float = 5.0) -> Scrape:
    pages = MetricsPages("ada-07", interval)
    for snapshot in snapshots:
        pages.take(snapshot)
    return page_of(pages)


def a_gpu(index: int = 0, **fields: object) -> Gpu:
    fields = {"sampled_at": NOON, "utilization_gpu": 50, "memory_used": 0, **fields}
    return Gpu(index, f"GPU-{index}", **fields)  # type: ignore[arg-type]  # fields of Gpu


def of(*gpus: Gpu, time: float = NOON, processes: tuple[GpuProcess, ...] = ()) -> Snapshot:
    return Snapshot(time, Host("ada-07"), gpus, processes, processes_at=NOON)


def process(pid: int, user: str, memory: int = GIB) -> GpuProcess:
    return GpuProcess(
        ProcessId(pid, 1),
        "C",
        (GpuUse("GPU-0", 0, memory_used=memory, sm=1),),
        user=user,
        command=("train.py", "--token=secret"),
    )


def test_the_state_of_each_gpu_is_in_the_words_of_the_screen() -> None:
    source = DemoSource()
    source.open()
    states = rendered(source.sample()).labels("gpumon_gpu_state", "state")
    words = ("busy", "busy", "hot", "idle", "free", "allocated", "lost", "unattributed")
    assert states == {str(index): word for index, word in enumerate(words)}


def test_the_document_has_every_state() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_states(page) == page, "python -m tests.exporter.page writes it anew"


def test_a_hung_job_is_stuck_with_a_question_mark_and_without_its_duration() -> None:
    hung = a_gpu(utilization_gpu=100, power_draw=90.0, power_limit=700.0, memory_total=80 * GIB)
    moments = [NOON + 30 * step for step in range(40)]
    scrape = rendered(*(of(replace(hung, sampled_at=at), time=at) for at in moments))
    assert scrape.labels("gpumon_gpu_state", "state") == {"0": "stuck?"}


def test_a_gpu_that_allows_no_computing_is_not_called_busy() -> None:
    idle = a_gpu(utilization_gpu=0, memory_used=0, compute_mode="Prohibited")
    assert rendered(of(idle)).labels("gpumon_gpu_state", "state") == {"0": "no compute"}


def test_each_xid_keeps_the_time_when_it_was_last_seen() -> None:
    scrape = rendered(
        of(a_gpu(xid=79, xid_at=NOON - 9)),
        of(a_gpu(xid=45, xid_at=NOON - 4), time=NOON + 1),
        of(a_gpu(xid=79, xid_at=NOON + 2), time=NOON + 2),
    )
    seen = scrape.values("gpumon_gpu_xid_last_seen_timestamp_seconds", "xid")
    assert seen == {"79": NOON + 2, "45": NOON - 4}


def test_each_accident_keeps_the_time_when_it_was_last_seen() -> None:
    resets = [Accident(NOON + at, AccidentKind.RESET, "GPU-0") for at in (0, 5)]
    killed = Accident(NOON + 3, AccidentKind.OUT_OF_MEMORY, pid=7)
    xid = Accident(NOON, AccidentKind.ERROR_CODE, "GPU-0", 79)
    first = replace(of(a_gpu()), accidents=(resets[0], xid))
    second = replace(of(a_gpu(), time=NOON + 6), accidents=(resets[1], resets[0], killed))
    scrape = rendered(first, second, of(a_gpu(), time=NOON + 900))
    name = "gpumon_gpu_accident_last_seen_timestamp_seconds"
    assert scrape.values(name, "kind") == {"reset": NOON + 5}
    killed_at = scrape.values("gpumon_oom_kill_last_seen_timestamp_seconds", "Hostname")
    assert killed_at == {"ada-07": NOON + 3}
    assert rendered(of(a_gpu())).values(name, "kind") == {}, "unknown has no sample"


def test_a_sample_has_its_time_and_the_driver_is_up() -> None:
    scrape = rendered(of(a_gpu(0, sampled_at=NOON - 3), a_gpu(1, sampled_at=NOON - 1)))
    assert scrape.values("gpumon_sample_timestamp_seconds", "Hostname") == {"ada-07": NOON - 1}
    assert scrape.up == 1


def test_before_the_first_sample_nothing_is_told() -> None:
    pages = MetricsPages("ada-07", 5.0)
    assert pages.newest().text == b""


def test_old_values_of_a_gpu_are_withheld_and_those_beside_it_are_told() -> None:
    hangs = a_gpu(0, sampled_at=NOON - 16, status=GpuStatus.NO_ANSWER, xid=79, xid_at=NOON)
    scrape = rendered(of(hangs, a_gpu(1)))
    assert scrape.values("DCGM_FI_DEV_GPU_UTIL") == {"1": 50}
    assert scrape.values("DCGM_FI_DEV_XID_ERRORS") == {"0": 79}, "an error does not pass"
    assert scrape.labels("gpumon_gpu_status", "status") == {"0": "no answer", "1": "ok"}
    assert scrape.labels("gpumon_gpu_state", "state") == {"0": "no answer", "1": "busy unlisted"}
    assert scrape.up == 1, "it answers for the other one"


@pytest.mark.parametrize(("interval", "age", "told"), [(5, 14, 1), (5, 16, 0), (60, 170, 1)])
def test_values_are_told_for_three_intervals_and_fifteen_seconds_at_least(
    interval: float, age: float, told: int
) -> None:
    taken = of(a_gpu(sampled_at=NOON - age), time=NOON, processes=(process(1, "ann"),))
    host = replace(taken.host, nics=(Nic("mlx5_0", NicKind.ROCE, up=True),))
    scrape = rendered(replace(taken, host=host, processes_at=NOON - age), interval=interval)
    assert len(scrape.values("DCGM_FI_DEV_FB_USED")) == told
    assert len(scrape.values("gpumon_user_gpus", "user")) == told
    assert len(scrape.values("gpumon_nic_up", "nic")) == told
    assert scrape.up == told


def test_where_all_calls_hang_the_driver_is_down_and_old_values_go() -> None:
    silent = [a_gpu(index, status=GpuStatus.NO_ANSWER) for index in range(2)]
    lost = a_gpu(2, status=GpuStatus.LOST)
    scrape = rendered(of(a_gpu(), processes=(process(1, "ann"),)), of(*silent, lost, time=NOON + 4))
    assert scrape.up == 0
    assert scrape.values("DCGM_FI_DEV_GPU_UTIL"), "four seconds ago is not old"
    scrape = rendered(of(*silent, lost, time=NOON + 60, processes=(process(1, "ann"),)))
    assert scrape.up == 0
    assert not scrape.values("DCGM_FI_DEV_GPU_UTIL")
    assert not scrape.values("gpumon_user_gpu_memory_bytes", "user")
    assert scrape.values("gpumon_sample_timestamp_seconds", "Hostname") == {"ada-07": NOON}


@pytest.mark.parametrize("status", [GpuStatus.LOST, GpuStatus.ASLEEP])
def test_a_driver_that_says_why_there_are_no_values_is_up(status: GpuStatus) -> None:
    assert rendered(of(a_gpu(status=status), time=NOON + 60)).up == 1


def test_a_trouble_with_the_driver_is_a_driver_that_is_down() -> None:
    scrape = rendered(Snapshot(NOON, Host("ada-07"), trouble=Trouble("It was unloaded.", "")))
    assert scrape.up == 0
    assert [sample.name for sample in scrape.samples] == ["gpumon_driver_up"]


def test_without_any_sample_for_long_no_old_page_is_told() -> None:
    now = 100.0
    pages = MetricsPages("ada-07", 5.0, lambda: now)
    pages.take(of(a_gpu()))
    assert page_of(pages).values("DCGM_FI_DEV_GPU_UTIL")
    now += 16
    assert [sample.name for sample in page_of(pages).samples] == ["gpumon_driver_up"]
    assert page_of(pages).up == 0
    pages.take(of(a_gpu()))
    assert page_of(pages).up == 1


# Who comes and goes


def names(snapshot: Snapshot) -> set[str | None]:
    return {process.user for process in snapshot.processes}


def crowd(count: int, time: float = NOON, first: int = 0) -> Snapshot:
    people = (process(n, f"u{n:03}", memory=n * GIB) for n in range(first, first + count))
    return of(a_gpu(), time=time, processes=tuple(people))


def test_of_a_crowd_those_with_the_most_memory_have_names_and_the_others_are_summed() -> None:
    held = rendered(crowd(MOST_NAMES + 3)).values("gpumon_user_gpu_memory_bytes", "user")
    assert len(held) == MOST_NAMES + 1
    assert held["other"] == (0 + 1 + 2) * GIB
    assert "u066" in held


@pytest.mark.parametrize("seconds", [5, 2 * NAME_SECONDS], ids=["at once", "after a suspend"])
def test_a_user_keeps_the_name_though_others_take_more(seconds: float) -> None:
    limit = LabelLimits()
    before = names(limit.apply(crowd(MOST_NAMES)))
    assert names(limit.apply(crowd(MOST_NAMES + 9, time=NOON + seconds))) == {*before, "other"}


def test_the_hour_begins_with_the_last_process() -> None:
    limit = LabelLimits()
    limit.apply(crowd(MOST_NAMES))
    limit.apply(crowd(MOST_NAMES, time=NOON + NAME_SECONDS - 1))
    for seconds, expected in ((2 * NAME_SECONDS - 2, {"other"}), (2 * NAME_SECONDS, {"u500"})):
        assert names(limit.apply(crowd(1, time=NOON + seconds, first=500))) == expected


def test_unknown_users_and_jobs_take_nobodys_name() -> None:
    known = crowd(MOST_NAMES)
    unknown = (replace(each, user=None) for each in crowd(1, first=99).processes)
    jobs = [Allocation("slurm", str(n), "u000") for n in range(MOST_NAMES)]
    allocations = (Allocation("slurm"), *jobs)
    processes = (*unknown, *known.processes)
    seen = LabelLimits().apply(replace(known, processes=processes, allocations=allocations))
    assert names(seen) == {None, *names(known)}
    assert seen.allocations == allocations


def test_thousands_of_numbers_add_a_bounded_number_of_names_an_hour() -> None:
    limit = LabelLimits()
    seen: set[str | None] = set()
    for step in range(100):
        seen |= names(limit.apply(crowd(50, time=NOON + step, first=50 * step)))
    assert len(seen - {"other"}) == MOST_NAMES
    later = NOON + 100 + NAME_SECONDS
    assert "other" not in names(limit.apply(crowd(50, time=later, first=9000)))


def test_a_clock_that_is_set_back_keeps_nobody_out() -> None:
    limit = LabelLimits()
    limit.apply(crowd(MOST_NAMES))
    assert "other" not in names(limit.apply(crowd(MOST_NAMES, time=NOON - 86400, first=500)))


def given(*allocations: Allocation, time: float = NOON) -> Snapshot:
    return replace(of(a_gpu(0), a_gpu(1), time=time), allocations=allocations)


def test_the_jobs_of_a_gpu_are_told() -> None:
    ann = Allocation("slurm", "88123", "ann", ("GPU-0",))
    scrape = rendered(given(ann, Allocation("slurm", devices=("GPU-1",))))
    assert scrape.labels("gpumon_gpu_allocated", "job") == {"0": "88123", "1": ""}
    assert scrape.labels("gpumon_gpu_allocated", "user") == {"0": "ann", "1": ""}
    assert scrape.labels("gpumon_gpu_state", "state")["1"] == "busy unlisted"
    assert "gpumon_gpu_allocated" not in rendered(given()).text


def test_thousands_of_jobs_add_a_bounded_number_of_names_an_hour() -> None:
    limits = LabelLimits()
    jobs: set[str | None] = set()
    users: set[str | None] = set()
    for number in range(200):
        job = Allocation("slurm", str(number), f"u{number}", ("GPU-0",))
        seen = limits.apply(given(job, time=NOON + number))
        jobs |= {allocation.job for allocation in seen.allocations or ()}
        users |= {allocation.user for allocation in seen.allocations or ()}
    assert jobs == {*map(str, range(MOST_NAMES)), "other"}
    assert users == {*(f"u{number}" for number in range(MOST_NAMES)), "other"}
    later = limits.apply(given(job, time=NOON + 200 + NAME_SECONDS))
    assert later.allocations == (job,)


def test_jobs_without_a_name_of_their_own_are_one_series() -> None:
    crowd_of_jobs = [Allocation("slurm", str(n), "ann", ("GPU-0",)) for n in range(70)]
    scrape = rendered(given(*crowd_of_jobs))
    assert scrape.text.count('job="other"') == 1
    assert set(scrape.labels("gpumon_gpu_allocated", "user").values()) == {"ann"}


def test_thousands_of_models_add_a_bounded_number_of_names_an_hour() -> None:
    pages = MetricsPages("ada-07", 5.0)
    models: set[str] = set()
    for step in range(10):
        servers = [
            replace(one, place=Workload(server=InferenceServer("vllm", f"m{one.id.pid}", 1, 1)))
            for one in crowd(20, first=20 * step).processes
        ]
        pages.take(of(a_gpu(), time=NOON + step, processes=tuple(servers)))
        name = "gpumon_server_gpu_memory_bytes"
        held = [sample for sample in page_of(pages).samples if sample.name == name]
        models |= {sample.labels["model"] for sample in held}
        assert sum(sample.value for sample in held) == sum(
            known(server.memory_used) for server in servers
        )
    assert len(models) == MOST_NAMES + 1
    assert "other" in models


@pytest.mark.slow
def test_a_user_comes_and_goes_with_the_processes() -> None:
    with Driver([h100()]) as driver, exporting("-n", "0.1", env=driver.env()) as exporter:
        exporter.wait_for(lambda it: it.up == 1, "a sample")
        assert not exporter.scrape().values("gpumon_user_gpus", "user")
        with owners(2, ["python", "train.py", "--token=secret"]) as started:
            driver.cards[0].processes = [Owner(one.pid, memory=2 * GIB) for one in started]
            scrape = exporter.wait_for(
                lambda it: it.values("gpumon_user_gpu_memory_bytes", "user"), "the user"
            )
            ((_, memory),) = scrape.values("gpumon_user_gpu_memory_bytes", "user").items()
            assert memory == 4 * GIB
            assert "secret" not in scrape.text
            assert "train.py" not in scrape.text
            # Of UUIDs and amounts some digits may be those of a PID.
            labels = re.findall(r'(\w+)="([^"]*)"', scrape.text)
            assert "pid" not in {name for name, _ in labels}
            assert not {str(one.pid) for one in started} & {value for _, value in labels}
            driver.cards[0].processes = []
        exporter.wait_for(lambda it: not it.values("gpumon_user_gpus", "user"), "nobody")


# What goes wrong with a driver


def test_a_gpu_that_is_lost_is_one_gpu() -> None:
    with Driver([h100(), h100()]) as driver, exporting("-n", "0.1", env=driver.env()) as exporter:
        exporter.wait_for(lambda it: len(it.values("DCGM_FI_DEV_FB_USED")) == 2, "two GPUs")
        driver.cards[1].lost = True
        driver.cards[1].xid(79)
        scrape = exporter.wait_for(
            lambda it: it.labels("gpumon_gpu_state", "state").get("1") == "lost", "the lost GPU"
        )
        assert set(scrape.values("DCGM_FI_DEV_FB_USED")) == {"0"}
        assert scrape.up == 1


@pytest.mark.slow
def test_a_driver_that_hangs_is_down_and_its_values_go() -> None:
    with Driver([h100()]) as driver, exporting("-n", "0.1", env=driver.env()) as exporter:
        exporter.wait_for(lambda it: it.values("DCGM_FI_DEV_FB_USED"), "values")
        driver.cards[0].hang()
        driver.system.hang()
        scrape = exporter.wait_for(lambda it: not it.values("DCGM_FI_DEV_FB_USED"), "no old values")
        assert scrape.up == 0
        assert scrape.labels("gpumon_gpu_state", "state") == {"0": "no answer"}
        assert exporter.get("/-/healthy").status == 200
        driver.cards[0].release()
        driver.system.release()
        exporter.wait_for(lambda it: it.up and it.values("DCGM_FI_DEV_FB_USED"), "values again")


@pytest.mark.slow
def test_a_machine_without_a_driver_is_told_and_tried_again() -> None:
    with Driver([h100()]) as driver:
        driver.fail_init(9)
        with exporting("-n", "0.1", env=driver.env()) as exporter:
            exporter.wait_said("Trying again")
            assert exporter.scrape().up == 0
            tried = driver.system.times("nvmlInit_v2")
            wait_until(lambda: driver.system.times("nvmlInit_v2") > tried, "another try")
            assert exporter.said.count("Trying again") == 1
            driver.fail_init(0)
            exporter.wait_for(lambda it: it.up == 1, "the driver")
            assert exporter.end() == 0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_objects_to_nothing_but_names_of_dcgm() -> None:
    source = DemoSource()
    source.open()
    pages = MetricsPages("ada-07", 5.0, with_jobs=True)
    pages.take(source.sample())
    command = ["promtool", "check", "metrics"]
    checked = subprocess.run(command, input=pages.newest().text, capture_output=True, check=False)
    dcgms = ("label names should be written in 'snake_case'", 'should have "_total" suffix')
    told = checked.stderr.decode().splitlines()
    assert [line for line in told if not any(one in line for one in dcgms)][:5] == []
    own = [line for line in told if line.startswith("gpumon_") and dcgms[0] not in line]
    assert own == []
    ours = ("gpumon_user_", "gpumon_server_", "gpumon_nic_")
    assert [line for line in told if line.startswith(ours)] == []
