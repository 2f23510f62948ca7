"""What the table lists: the tree's shape, jobs, narrowing, and whom a key on a line is about."""

from __future__ import annotations

from msgspec.structs import replace

from gpumon.filters.terms import FilterContext, parse_filter
from gpumon.findings.groups import AllocatedJob
from gpumon.host.process_host import RelatedProcess
from gpumon.model.allocations import Allocation
from gpumon.model.processes import GpuProcess, ProcessId, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.text.process_columns import RowContext
from gpumon.text.table import Sort
from gpumon.ui.view.process_filter import ProcessFilter
from gpumon.ui.view.process_table import (
    FOLDED_FROM,
    TableEntry,
    job_entries,
    process_entries,
    tree_entries,
)
from tests.build import GIB, NOON, gpu, process

SIGHT = RowContext(NOON)
SORT = Sort()
FACTS = FilterContext(NOON, lambda _: None)


def relative(pid: int, parent: int, name: str = "python", start_time: int = 1) -> RelatedProcess:
    return RelatedProcess(ProcessId(pid, start_time), parent, pid, pid, name, (name,), user="ann")


def drawn(entries: list[TableEntry]) -> list[tuple[str, int]]:
    return [(e.branch, e.process.id.pid) for e in entries if e.process is not None]


def test_a_process_stands_between_its_ancestors_and_its_children() -> None:
    parents = {10: 1, 20: 10, 100: 20, 201: 100, 202: 100}
    family = [relative(pid, parent) for pid, parent in parents.items()]
    entries = tree_entries([process(100)], family, SORT, SIGHT, ())
    assert drawn(entries) == [
        *(("", 10), ("└─", 20), ("  └─", 100), ("    ├─", 201), ("    └─", 202))
    ]


def test_siblings_stand_in_the_tables_order_and_a_parent_where_its_first_child_does() -> None:
    small, big = process(100, memory_used=GIB), process(101, memory_used=9 * GIB)
    family = [relative(10, 1), relative(20, 1), relative(100, 10), relative(101, 20)]
    entries = tree_entries([small, big], family, SORT, SIGHT, ())
    assert drawn(entries) == [("", 20), ("└─", 101), ("", 10), ("└─", 100)]


def test_many_loaders_begin_folded_and_unfold_when_asked() -> None:
    loaders = [relative(200 + n, 100) for n in range(FOLDED_FROM)]
    family = [relative(100, 1), *loaders]
    folded = tree_entries([process(100)], family, SORT, SIGHT, ())
    assert drawn(folded) == [(f"+{FOLDED_FROM} ", 100)]
    assert len(tree_entries([process(100)], family, SORT, SIGHT, {ProcessId(100, 1)})) == 6


def test_a_process_without_known_family_is_in_the_tree_all_the_same() -> None:
    hidden = process(100, start_time=None, visible=False)
    assert drawn(tree_entries([hidden], [], SORT, SIGHT, ())) == [("", 100)]


def test_a_reused_number_is_nobodys_parent() -> None:
    """The tree's 100 is another process than the one the driver lists."""
    entries = tree_entries([process(100)], [relative(100, 1, start_time=7)], SORT, SIGHT, ())
    assert [entry.key for entry in entries] == [ProcessId(100, 1)]


def test_only_the_families_of_shown_processes_are_in_the_tree() -> None:
    family = [relative(10, 1), relative(100, 10), relative(101, 10), relative(102, 101)]
    entries = tree_entries([process(100)], family, SORT, SIGHT, ())
    assert [pid for _, pid in drawn(entries)] == [10, 100]


def at(job: str | None, session: int = 1, pid: int = 100, memory: int = GIB) -> GpuProcess:
    return replace(process(pid, memory_used=memory), place=Workload(slurm_job=job, session=session))


def test_a_job_is_a_line_for_all_its_processes_and_a_key_on_it_means_all() -> None:
    members = [at("88", pid=100), at("88", session=2, pid=101), at("99", session=3, pid=102)]
    entries = job_entries(members, SORT, SIGHT, ())
    head = entries[0]
    assert head.job
    assert {p.id.pid for p in head.processes} == {100, 101}
    assert [pid for _, pid in drawn(entries)] == [100, 101, 102]
    folded = job_entries(members, SORT, SIGHT, {head.key})
    assert [pid for _, pid in drawn(folded)] == [102]


def test_jobs_are_sorted_by_the_sum_that_they_show() -> None:
    pair = [at("88", pid=100, memory=3 * GIB), at("88", session=2, pid=101, memory=3 * GIB)]
    processes = [*pair, at("99", session=3, pid=102, memory=4 * GIB)]
    for descending, order in ((True, [100, 101, 102]), (False, [102, 100, 101])):
        entries = job_entries(processes, Sort("memory_used", descending), SIGHT, ())
        assert [pid for _, pid in drawn(entries)] == order


def test_jobs_are_sorted_by_what_their_servers_report_together() -> None:
    def served(job: str, pid: int, tokens: float) -> GpuProcess:
        place = Workload(slurm_job=job, server=InferenceServer("vllm", pid=pid, start_time=1))
        return replace(process(pid), place=place, load=ServerLoad(tokens=tokens))

    pair = [served("88", 100, 300.0), served("88", 101, 300.0)]
    processes = [served("99", 102, 400.0), *pair]
    entries = job_entries(processes, Sort("tokens", descending=True), SIGHT, ())
    assert [pid for _, pid in drawn(entries)] == [100, 101, 102]


def test_all_narrowings_hold_together() -> None:
    ann, bo = process(100), process(101, user="bo")
    draws = process(102, type_="G")
    narrowing = ProcessFilter(kind="C", filter=parse_filter("!user:bo"))
    assert narrowing.apply([ann, bo, draws], FACTS) == [ann]
    assert ProcessFilter(mine="bo").apply([ann, bo, draws], FACTS) == [bo]
    assert ProcessFilter(only_user="bo").apply([ann, bo, draws], FACTS) == [bo]
    assert ProcessFilter(user="bo", mine="ann").apply([ann, bo, draws], FACTS) == []
    assert ProcessFilter().apply([ann, bo, draws], FACTS) == [ann, bo, draws]


def test_a_client_of_mps_computes() -> None:
    assert ProcessFilter(kind="C").apply([process(type_="M")], FACTS)
    assert ProcessFilter(kind="G").apply([process(type_="C+G")], FACTS)
    assert not ProcessFilter(kind="G").apply([process(type_="M")], FACTS)


def test_a_line_keeps_its_key_whatever_the_order() -> None:
    both = [process(100, memory_used=GIB), process(101, memory_used=2 * GIB)]
    one = process_entries(both, Sort(descending=True), SIGHT)
    other = process_entries(both, Sort(descending=False), SIGHT)
    assert [entry.key for entry in one] == [entry.key for entry in reversed(other)]


GIVEN = Allocation("slurm", "7", "bo", ("GPU-1",), since=NOON - 60, until=NOON + 3600)


def test_a_job_with_gpus_has_a_line_whether_it_has_one_process_or_none() -> None:
    alone = replace(process(100), place=Workload(slurm_job="6"))
    used = AllocatedJob(Allocation("slurm", "6", "ann", ("GPU-0",)), (0,), 0)
    unused = AllocatedJob(GIVEN, (1,), 1)
    entries = job_entries([alone], SORT, SIGHT, (), allocated=(unused, used))
    assert [(entry.key, entry.gpus, entry.below) for entry in entries] == [
        ("job:slurm 6", (0,), 1),
        (alone.id, (0,), 0),
        ("job:slurm 7", (1,), 0),
    ]
    first, *_ = job_entries([alone], SORT, SIGHT, (), 1, (unused, used))
    assert first.key == "job:slurm 7", "it comes first while the cursor is on its GPU"


def test_what_narrows_processes_narrows_jobs_without_a_process() -> None:
    job = AllocatedJob(GIVEN, (1,), 1)
    facts = replace(FACTS, allocations=(GIVEN,))

    def is_kept(text: str = "", **chosen: str) -> bool:
        narrowing = ProcessFilter(**chosen, filter=parse_filter(text))
        return narrowing.apply_to_allocated([job], [gpu(index=1)], facts) == [job]

    assert is_kept()
    assert is_kept(mine="bo", gpu="GPU-1", kind="C")
    for text in ("job:7", "alloc:7", "user:bo", "bo", "slurm", "gpu:1"):
        assert is_kept(text), text
    for text in ("job:8", "alloc:ann", "mem>0", "idle>1s", "pid:0", "!job:7"):
        assert not is_kept(text), text
    assert not is_kept(only_user="ann")
    assert not is_kept(gpu="GPU-0")
    assert not is_kept(kind="G")
