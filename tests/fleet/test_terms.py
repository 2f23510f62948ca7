"""The filters of hosts, and of the processes on all hosts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.filters.language import FilterError, parse
from gpumon.filters.terms import FilterContext
from gpumon.fleet.fleet import HostStatus
from gpumon.fleet.terms import FLEET_PROCESSES, HOST_TERMS, HOSTS
from gpumon.model.allocations import Allocation
from gpumon.model.processes import Workload
from gpumon.model.snapshot import GpuStatus
from tests.build import GIB, NOON, gpu, process
from tests.hosts import host, host_state, with_snapshot

BUSY = gpu(index=2, memory_used=70 * GIB, memory_free=10 * GIB, utilization_gpu=90)
ANN = process(7, memory_used=70 * GIB, sm=90, gpus=(2,), user="Ann")
HOST = host(host_state("GPU-01.lab", gpu(), gpu(index=1), BUSY, processes=(ANN,)))
SICK = host(host_state("gpu-02", gpu(status=GpuStatus.LOST, memory_free=None)))
DOWN = host(host_state("gpu-03"), host_state("gpu-03", status=HostStatus.DOWN))


@pytest.mark.parametrize(
    "text",
    [
        *("", "ann", "h100 lab", "!bo", "free>1", "free=2", "!free>2"),
        "free>1 mem>40G user:ann host:gpu-0*",
        *("host:lab", "host:gpu-??.lab", "host:gpu-[0-9]1*", "host=gpu-01.lab", "!host:gpu-0?"),
        *("used>=71G", "used<72G", "gpus=3", "user=ann", "model:h100", "age<5s"),
        *("state:free", "state:live", "!state:lost"),
    ],
)
def test_it_keeps_the_host(text: str) -> None:
    assert parse(text, HOSTS).matches(HOST, NOON + 1)


@pytest.mark.parametrize(
    "text", ["free>2", "mem>80G", "user:bo", "host:gpu-02*", "host=gpu", "state:lost", "age>5s"]
)
def test_it_leaves_out_the_host(text: str) -> None:
    assert not parse(text, HOSTS).matches(HOST, NOON + 1)


def test_jobs_of_a_host_are_those_of_its_processes_and_those_that_were_given_gpus() -> None:
    placed = replace(ANN, place=Workload(slurm_job="88123"))
    given = (Allocation("slurm", "88_3", "bo", number="91"),)
    state = host_state("gpu-04", BUSY, processes=(placed,))
    there = host(with_snapshot(state, allocations=given))
    for text in ("job:88123", "job=91", "job=88_3", "alloc:bo", "alloc:88_3", "!alloc:ann"):
        assert parse(text, HOSTS).matches(there, NOON), text
    for text in ("job:5", "alloc:88123", "job=88"):
        assert not parse(text, HOSTS).matches(there, NOON), text


def test_states_are_those_of_gpus_and_of_the_host() -> None:
    assert parse("state:lost", HOSTS).matches(SICK, NOON)
    assert parse("state:down", HOSTS).matches(DOWN, NOON)
    assert not parse("state:free", HOSTS).matches(DOWN, NOON), "nobody knows what is free there"


@pytest.mark.parametrize("text", ["free>1", "!free>1", "free=0", "mem<1T", "used>0"])
def test_what_is_unknown_of_a_host_matches_no_comparison(text: str) -> None:
    assert not parse(text, HOSTS).matches(DOWN, NOON)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fre>1", "did you mean free"),
        ("free>x", "write a number, such as 2"),
        ("mem>4", "such as 10G"),
        ("user>ann", "user takes : or = or !="),
        ("pid:7", "no term"),
    ],
)
def test_what_it_cannot_read_it_says(text: str, said: str) -> None:
    with pytest.raises(FilterError, match=said):
        parse(text, HOSTS)


@pytest.mark.parametrize("term", HOST_TERMS, ids=lambda term: str(term.name))
def test_every_example_of_the_help_can_be_read(term: object) -> None:
    assert parse(term.example, HOSTS).tests  # type: ignore[attr-defined]  # pytest passes objects


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("host:gpu-0*", True),
        ("host:gpu-02*", False),
        ("!host:gpu-02", True),
        ("lab", True),
        ("user=ann mem>60G host:lab", True),
        ("7", True),
        ("8", False),
    ],
)
def test_processes_are_found_by_their_host_too(text: str, kept: bool) -> None:
    facts = FilterContext(NOON, lambda _: None, host="GPU-01.lab")
    named = replace(ANN, name="python")
    assert parse(text, FLEET_PROCESSES).matches(named, facts) is kept


def test_at_home_there_is_no_host_to_filter_by() -> None:
    from gpumon.filters.terms import parse_filter

    with pytest.raises(FilterError, match="no term"):
        parse_filter("host:gpu-01")
