"""What stands in the table, line by line: processes, their families, users or jobs."""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from gpumon.findings.groups import jobs
from gpumon.model.snapshot import GpuProcess, ProcessId
from gpumon.ui.view.processes import in_order, sort_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gpumon.filters import Facts, Filter
    from gpumon.findings.groups import Job, UserUse
    from gpumon.host import RelatedProcess
    from gpumon.ui.view.processes import RowContext, Sort

Key: TypeAlias = ProcessId | str
"""What a line is, whatever stands around it: a process, or the name of a group."""


class Listing(str, Enum):
    """What the table lists."""

    PROCESSES = "processes"
    TREE = "tree"
    USERS = "users"
    JOBS = "jobs"


class Entry(Struct, frozen=True):
    """A line of the table.

    Attributes:
        key: What it is.
        process: The process; one on no card, such as a shell in the tree, has no uses.
        branch: The tree's lines before its command.
        below: How many lines may be folded away under it.
        folded: Whether they are.
        user: The user, in a list of users.
        job: The job, on the line that stands for all of it.
    """

    key: Key
    process: GpuProcess | None = None
    branch: str = ""
    below: int = 0
    folded: bool = False
    user: UserUse | None = None
    job: Job | None = None

    @property
    def processes(self) -> tuple[GpuProcess, ...]:
        """Whom a key pressed on this line is about; nobody on the line of a user."""
        if self.job is not None:
            return self.job.processes
        return () if self.process is None else (self.process,)


class ProcessFilter(Struct, frozen=True):
    """Which of the processes are shown.

    Attributes:
        user: The one user that was asked for on the command line.
        mine: The name of whoever looks, when only their processes are wanted.
        kind: ``C`` or ``G``: only processes that compute, or only those that draw.
        filter: What stands in the filter line.
    """

    user: str | None = None
    mine: str | None = None
    kind: str | None = None
    filter: Filter | None = None

    def words(self, everybody: Sequence[GpuProcess]) -> list[str]:
        """Each narrowing in a word or two, for the rule above the table.

        Args:
            everybody: The processes before any narrowing.
        """
        words = []
        if self.user is not None:
            none = all(process.user != self.user for process in everybody)
            words.append(f"of {self.user}{', who has none' if none else ''}")
        if self.mine is not None:
            words.append("only mine")
        if self.kind is not None:
            words.append("only compute" if self.kind == "C" else "only graphics")
        if self.filter is not None and self.filter.text:
            words.append(f"/{self.filter.text}")
        return words

    def apply(self, processes: Sequence[GpuProcess], facts: Facts | None) -> list[GpuProcess]:
        """The processes that pass all of it.

        Args:
            processes: Of a snapshot.
            facts: What a filter needs to know; ``None`` where there is none.
        """
        return [
            process
            for process in processes
            if (self.user is None or process.user == self.user)
            and (self.mine is None or process.user == self.mine)
            and (self.kind is None or self._is_kind(process))
            and (self.filter is None or facts is None or self.filter.matches(process, facts))
        ]

    def _is_kind(self, process: GpuProcess) -> bool:
        # A client of MPS computes.
        kinds = process.type.split("+")
        return "G" in kinds if self.kind == "G" else bool({"C", "M"} & set(kinds))


FOLDED_FROM = 5
"""So many processes that hold no card, below one that does, begin folded: data loaders."""


def process_entries(processes: Sequence[GpuProcess], sort: Sort, sight: RowContext) -> list[Entry]:
    """A line a process."""
    return [Entry(process.id, process) for process in sort_processes(processes, sort, sight)]


def job_entries(
    processes: Sequence[GpuProcess], sort: Sort, sight: RowContext, turned: Collection[Key]
) -> list[Entry]:
    """A line a job, and under it its processes; a job of one process is that process.

    Args:
        processes: Those to show.
        sort: Of the jobs, by what their line shows or else by their first process, and of the
            processes within each.
        sight: For the sorting.
        turned: Keys of the jobs that are folded.
    """
    ordered = sort_processes(processes, sort, sight)
    rank = {process.id: place for place, process in enumerate(ordered)}
    found = sorted(jobs(ordered), key=lambda job: min(rank[p.id] for p in job.processes))
    if (value_of := _JOB_VALUES.get(sort.column)) is not None:
        found = in_order(found, value_of, descending=sort.descending)
    entries: list[Entry] = []
    for job in found:
        members = sorted(job.processes, key=lambda process: rank[process.id])
        if len(members) == 1:
            entries.append(Entry(members[0].id, members[0]))
            continue
        key = f"job:{job.key}"
        folded = key in turned
        entries.append(Entry(key, below=len(members), folded=folded, job=job))
        if not folded:
            entries += [
                Entry(process.id, process, branch="└─" if process is members[-1] else "├─")
                for process in members
            ]
    return entries


_JOB_VALUES: dict[str, Callable[[Job], object]] = {
    "gpu": lambda job: job.gpus,
    "memory_used": lambda job: job.memory,
    "sm": lambda job: job.sm,
    "age": lambda job: None if job.started_at is None else -job.started_at,
}
"""What the line of a job tells of all its processes together, by column."""


def user_entries(uses: Sequence[UserUse]) -> list[Entry]:
    """A line a user."""
    return [Entry(f"user:{use.user}", user=use) for use in uses]


class _Node:
    """A process of the tree while it is put together."""

    __slots__ = ("below", "process", "rank")

    def __init__(self, process: GpuProcess, rank: float) -> None:
        self.process = process
        self.rank = rank
        self.below: list[_Node] = []

    def count(self) -> int:
        return sum(1 + node.count() for node in self.below)

    def holds_cards(self) -> bool:
        return any(node.process.uses or node.holds_cards() for node in self.below)


_LAST = float("inf")


def tree_entries(
    processes: Sequence[GpuProcess],
    kin: Sequence[RelatedProcess],
    sort: Sort,
    sight: RowContext,
    turned: Collection[Key],
) -> list[Entry]:
    """The processes among their ancestors and descendants, siblings in the table's order.

    Args:
        processes: The GPU processes to show; their families come along.
        kin: The families, parents first, as ``ProcessHost.families`` tells them.
        sort: A parent takes the place of the first of those below it.
        sight: For the sorting.
        turned: Keys of those that were folded, or unfolded where they begin folded.
    """
    ordered = sort_processes(processes, sort, sight)
    rank = {process.id: float(place) for place, process in enumerate(ordered)}
    nodes: dict[ProcessId, _Node] = {}
    shown = {process.id: process for process in ordered}
    known = {relative.id: relative for relative in kin}
    by_pid = {relative.id.pid: relative.id for relative in kin}
    for identity in _families(shown, known, by_pid):
        process = shown.get(identity) or _as_process(known[identity])
        nodes[identity] = _Node(process, rank.get(identity, _LAST))
    roots: list[_Node] = []
    for identity, node in nodes.items():
        parent = by_pid.get(known[identity].parent) if identity in known else None
        above = None if parent is None or parent == identity else nodes.get(parent)
        (roots if above is None else above.below).append(node)
    entries: list[Entry] = []
    _settle(roots)
    for root in roots:
        _grow(root, "", "", turned, entries)
    return entries


def _families(
    shown: dict[ProcessId, GpuProcess],
    known: dict[ProcessId, RelatedProcess],
    by_pid: dict[int, ProcessId],
) -> list[ProcessId]:
    """The shown processes, with their ancestors and descendants among the known ones."""
    children: defaultdict[int, list[ProcessId]] = defaultdict(list)
    for relative in known.values():
        children[relative.parent].append(relative.id)
    wanted = dict.fromkeys(shown)
    for identity in shown:
        above = known.get(identity)
        while above is not None and (parent := by_pid.get(above.parent)) is not None:
            if parent in wanted:
                break
            wanted[parent] = None
            above = known[parent]
    waiting = list(shown)
    while waiting:
        for child in children[waiting.pop().pid]:
            if child not in wanted:
                wanted[child] = None
                waiting.append(child)
    return list(wanted)


def _as_process(kin: RelatedProcess) -> GpuProcess:
    return GpuProcess(
        kin.id,
        "",
        (),
        user=kin.user,
        uid=kin.uid,
        name=kin.name,
        command=kin.command,
        state=kin.state,
        rss=kin.rss,
        started_at=kin.started_at,
    )


def _settle(nodes: list[_Node]) -> None:
    """Put siblings in order: by the first GPU process in each, then by PID."""
    for node in nodes:
        _settle(node.below)
        node.rank = min([node.rank, *(below.rank for below in node.below)])
    nodes.sort(key=lambda node: (node.rank, node.process.id.pid))


def _grow(
    node: _Node, branch: str, after: str, turned: Collection[Key], entries: list[Entry]
) -> None:
    """Add the lines of a process and of all below it."""
    count = node.count()
    folded = False
    if count:
        begins_folded = count >= FOLDED_FROM and not node.holds_cards()
        folded = begins_folded != (node.process.id in turned)
    mark = f"{branch}+{count} " if folded else branch
    entries.append(Entry(node.process.id, node.process, mark, count, folded))
    if folded:
        return
    for below in node.below:
        last = below is node.below[-1]
        _grow(
            below,
            after + ("└─" if last else "├─"),
            after + ("  " if last else "│ "),
            turned,
            entries,
        )
