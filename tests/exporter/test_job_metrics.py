"""What each job, pod and container uses of each GPU, with ``--jobs``."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from msgspec.structs import replace

from gpumon.exporter.label_limits import MOST_NAMES, NAME_SECONDS
from gpumon.exporter.metrics_page import MetricsPages
from gpumon.makers.demo import DemoSource
from gpumon.model.allocations import Allocation
from gpumon.model.processes import Container, GpuProcess, Workload
from gpumon.model.snapshot import GpuStatus, Snapshot
from gpumon.text.formatting import printable
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.driver import Driver, Owner, h100, owners
from tests.export.hostile import snapshot_of, texts
from tests.exporter.exporting import Scrape, exporting

MEMORY, SM = "gpumon_job_gpu_memory_bytes", "gpumon_job_gpu_sm_ratio"
POD = Workload(Container("containerd", id="ab" * 32, pod="train-0", namespace="ml"))
DOCKER = Workload(Container("docker", id="9bca8d63d5fa" + "0" * 52))
SLURM = Workload(slurm_job="88123")
NOWHERE = Workload(session=7)


def scraped(*snapshots: Snapshot, with_jobs: bool = True) -> Scrape:
    pages = MetricsPages("ada-07", 5.0, with_jobs=with_jobs)
    for each in snapshots:
        pages.take(each)
    return Scrape(pages.newest().text.decode())


def jobs(scrape: Scrape, metric: str, index: int = 0) -> dict[tuple[str, str], float]:
    """The values of a GPU by kind and name."""
    return {
        (sample.labels["kind"], sample.labels["name"]): sample.value
        for sample in scrape.samples
        if sample.name == metric and sample.labels["gpu"] == str(index)
    }


def at(place: Workload | None, pid: int, **fields: object) -> GpuProcess:
    return replace(process(pid, **fields), place=place)  # type: ignore[arg-type]  # its fields


def machine(*processes: GpuProcess, time: float = NOON) -> Snapshot:
    gpus = [gpu(index=index, sampled_at=time) for index in (0, 1)]
    return snapshot(time, *gpus, processes=processes)


def pods(first: int, count: int, time: float = NOON) -> Snapshot:
    """A machine with a process in each of so many pods, later ones with more memory."""
    return machine(
        *(
            at(Workload(Container("kubernetes", pod=f"pod-{n}")), n, memory_used=n)
            for n in range(first, first + count)
        ),
        time=time,
    )


def test_what_shares_a_gpu_has_its_own_memory_and_sm_use() -> None:
    scrape = scraped(
        machine(
            at(POD, 1, memory_used=2 * GIB, sm=10, gpus=(0, 1)),
            at(POD, 2, memory_used=GIB, sm=30),
            at(DOCKER, 3, memory_used=3 * GIB, sm=5),
            at(SLURM, 4, memory_used=4 * GIB, sm=0, gpus=(1,)),
            at(NOWHERE, 5, memory_used=5 * GIB, sm=1),
            at(None, 6, memory_used=6 * GIB, sm=2),
        )
    )
    assert jobs(scrape, MEMORY) == {
        ("pod", "ml/train-0"): 3 * GIB,
        ("container", "9bca8d63d5fa"): 3 * GIB,
        ("none", ""): 5 * GIB,
        ("unknown", ""): 6 * GIB,
    }
    assert jobs(scrape, MEMORY, 1) == {("pod", "ml/train-0"): 2 * GIB, ("slurm", "88123"): 4 * GIB}
    assert jobs(scrape, SM, 1) == {("pod", "ml/train-0"): 0.1, ("slurm", "88123"): 0}
    assert jobs(scrape, SM)["pod", "ml/train-0"] == 0.4


def test_a_sum_of_which_a_part_is_unknown_is_no_sample() -> None:
    scrape = scraped(
        machine(
            at(POD, 1, memory_used=None, sm=10),
            at(POD, 2, memory_used=GIB, sm=None),
            at(POD, 3, memory_used=GIB, sm=1, gpus=(1,)),
            at(SLURM, 4, memory_used=GIB, sm=None),
        )
    )
    assert jobs(scrape, MEMORY) == {("slurm", "88123"): GIB}
    assert jobs(scrape, SM) == {}
    assert jobs(scrape, MEMORY, 1) == {("pod", "ml/train-0"): GIB}


def test_a_gpu_that_does_not_answer_has_no_old_values_of_jobs() -> None:
    now = NOON + 60
    silent = gpu(sampled_at=NOON, status=GpuStatus.NO_ANSWER)
    listed = (at(POD, 1, gpus=(0, 1)),)
    scrape = scraped(snapshot(now, silent, gpu(index=1, sampled_at=now), processes=listed))
    assert jobs(scrape, MEMORY) == {}
    assert jobs(scrape, MEMORY, 1) == {("pod", "ml/train-0"): GIB}


def test_without_the_option_the_page_is_the_same_less_these_metrics() -> None:
    source = DemoSource()
    source.open()
    sample = source.sample()
    page = scraped(sample).text
    assert page.count("\ngpumon_job_") > 10
    lines = [line for line in page.splitlines() if "gpumon_job_" not in line]
    assert scraped(sample, with_jobs=False).text.splitlines() == lines


# How many there may be


def test_ten_thousand_pods_are_a_bounded_number_of_series_with_the_whole_memory() -> None:
    held = jobs(scraped(pods(0, 10_000)), MEMORY)
    assert len(held) == MOST_NAMES + 1
    assert held["pod", "pod-9999"] == 9999
    assert sum(held.values()) == sum(range(10_000))


def test_pods_that_come_and_go_add_a_bounded_number_of_names_an_hour() -> None:
    pages = MetricsPages("ada-07", 5.0, with_jobs=True)
    seen: set[str] = set()
    for step in range(20):
        pages.take(pods(10 * step, 10, NOON + step))
        scrape = Scrape(pages.newest().text.decode())
        seen |= {name for _, name in jobs(scrape, MEMORY)}
    assert len(seen - {"other"}) == MOST_NAMES
    pages.take(pods(9000, 10, NOON + 20 + NAME_SECONDS))
    later = jobs(Scrape(pages.newest().text.decode()), MEMORY)
    assert ("pod", "other") not in later


def test_jobs_with_an_allocation_and_pods_share_the_names() -> None:
    given_away = [Allocation("slurm", str(n), "ann", ("GPU-0",)) for n in range(40)]
    scrape = scraped(replace(pods(100, 40), allocations=given_away))
    named = {sample.labels["job"] for sample in scrape.samples if "job" in sample.labels}
    held = jobs(scrape, MEMORY)
    assert len(named) == 40
    assert len(held) == MOST_NAMES - 40 + 1
    assert ("pod", "other") in held


def test_a_pod_that_has_a_gpu_and_uses_it_is_one_name() -> None:
    allocated = [
        Allocation("kubernetes", f"pod-{n}", devices=("GPU-0",)) for n in range(MOST_NAMES)
    ]
    scrape = scraped(replace(pods(0, MOST_NAMES), allocations=allocated))
    held = {name for _, name in jobs(scrape, MEMORY)}
    assert held == {sample.labels["job"] for sample in scrape.samples if "job" in sample.labels}
    assert "other" not in held


# Texts that somebody else has chosen


@given(texts)
def test_whatever_a_name_is_there_is_one_line_of_it(text: str) -> None:
    scrape = scraped(snapshot_of(text), replace(snapshot_of(text), time=NOON))
    for sample in scrape.samples:
        assert all(printable(value) == value for value in sample.labels.values())
    series = [
        (sample.name, *sorted(sample.labels.items()))
        for sample in scrape.samples
        if sample.name.startswith("gpumon_job_")
    ]
    assert len(series) == len(set(series))


def test_a_name_without_an_end_is_cut() -> None:
    huge = [Workload(Container("podman", name="x" * 10**6 + end)) for end in "ab"]
    scrape = scraped(machine(*(at(place, pid) for pid, place in enumerate(huge, 1))))
    assert jobs(scrape, MEMORY) == {("container", "x" * 317): 2 * GIB}


def test_names_that_print_alike_are_one_series() -> None:
    names = ("a\x01", "a\x02", 'a"\n', "a\\")
    places = [Workload(Container("lxc", id=name, name=name)) for name in names]
    held = jobs(scraped(machine(*map(at, places, itertools.count(1)))), MEMORY)
    assert held == {
        ("container", printable("a\x01")): 2 * GIB,
        ("container", 'a" '): GIB,
        ("container", "a\\"): GIB,
    }


# The whole program


@pytest.mark.slow
def test_a_real_process_is_in_its_job_and_goes_with_it() -> None:
    with Driver([h100()]) as driver, exporting("--jobs", "-n", "0.1", env=driver.env()) as exporter:
        with owners(2, environ={"SLURM_JOB_ID": "4711"}) as of_job, owners(1) as alone:
            driver.cards[0].processes = [
                Owner(owner.pid, memory=size * GIB, sm=size)
                for owner, size in zip([*of_job, *alone], (1, 2, 4), strict=True)
            ]
            expected = {("slurm", "4711"): 3 * GIB, ("none", ""): 4 * GIB}
            scrape = exporter.wait_for(lambda it: jobs(it, MEMORY) == expected, "the jobs")
            assert jobs(scrape, SM)["slurm", "4711"] == 0.03
            driver.cards[0].processes = []
        exporter.wait_for(lambda it: not jobs(it, MEMORY), "nobody")
        assert exporter.end() == 0


def test_without_the_option_no_process_is_looked_up() -> None:
    with (
        Driver([h100()]) as driver,
        exporting("-n", "0.1", env=driver.env()) as exporter,
        owners(1, environ={"SLURM_JOB_ID": "4711"}) as (owner,),
    ):
        driver.cards[0].processes = [Owner(owner.pid, memory=GIB, sm=1)]
        scrape = exporter.wait_for(lambda it: it.values("gpumon_user_gpus", "user"), "the user")
        assert "4711" not in {value for each in scrape.samples for value in each.labels.values()}
        assert "gpumon_job_" not in scrape.text
