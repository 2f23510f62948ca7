"""The page of one job: what it is, where it runs, since when, and how much memory it holds."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpumon.model.arithmetic import known_sum
from gpumon.model.processes import GpuUse
from gpumon.text.cells import Field, Row, fill
from gpumon.text.formatting import UNKNOWN, duration, gib, gibibytes, gpu_list, number, printable
from gpumon.text.table import Sort, heading_row
from gpumon.ui.view.gpu_text import load_word
from gpumon.ui.view.page_layout import (
    Fact,
    Section,
    Side,
    fact_rows,
    moment_text,
    page_rows,
    text_rows,
)
from gpumon.ui.view.process_page import use_rows, workload_facts
from gpumon.ui.view.process_table import process_row, sort_processes, visible_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.findings.groups import JobGroup
    from gpumon.model.snapshot import Gpu
    from gpumon.text.process_columns import RowContext

_SORT = Sort()


def job_rows(
    job: JobGroup, gone: str, gpus: Sequence[Gpu], context: RowContext, width: int
) -> list[Row]:
    """The whole page, every row exactly ``width`` cells.

    Args:
        job: The newest values of the job.
        gone: A text that says that none of its processes is on a GPU; empty if one is.
        gpus: The GPUs.
        context: What the rows of its processes need.
        width: Cells.
    """
    now = context.now
    uses = _merged(job)
    load = load_word(gpus, uses)
    sections = [
        Section("", lambda size: _summary(job, gone, load, now, size)),
        Section("Job", lambda size: fact_rows(_facts(job, now), size), Side.LEFT),
        Section("On the GPUs", lambda size: use_rows(uses, job.memory, gpus, size), Side.RIGHT),
        Section("Processes", lambda size: _processes(job, load, context, size)),
    ]
    return page_rows(sections, width)


def _summary(job: JobGroup, gone: str, load: str, now: float, width: int) -> list[Row]:
    """The name and the main values."""
    fields: list[Field] = [
        (", ".join(printable(user or UNKNOWN) for user in job.users), "user"),
        (f"   {gibibytes(job.memory)} {gib()}", "strong"),
        (f" on GPU {gpu_list(job.gpus)}", ""),
        (f"   {load} ", "dim"),
        (number(job.sm, " %"), ""),
    ]
    if job.started_at is not None and not gone:
        fields += [("   for ", "dim"), (duration(now - job.started_at), "")]
    rows = [fill([(job.label, "strong")], width), fill(fields, width)]
    return rows + (text_rows(gone, width, "state.note") if gone else [])


def _facts(job: JobGroup, now: float) -> list[Fact]:
    count = len(job.processes)
    facts = [Fact("processes", f"{count} on GPUs")]
    if job.started_at is not None:
        age = f"{duration(now - job.started_at)} ago"
        facts.append(Fact("started", moment_text(job.started_at, now), note=age))
    places = dict.fromkeys(process.place for process in job.processes)
    # Processes of one job run in one place; what differs is on their own pages.
    return facts + workload_facts(next(iter(places)), looked_up=True)


def _merged(job: JobGroup) -> list[GpuUse]:
    """What its processes use of each GPU together."""
    on_gpu: defaultdict[tuple[int, str, tuple[int, int] | None], list[GpuUse]] = defaultdict(list)
    for process in job.processes:
        for use in process.uses:
            on_gpu[use.gpu_index, use.gpu_uuid, use.instance].append(use)
    return [
        GpuUse(
            uuid,
            index,
            instance,
            memory_used=known_sum(use.memory_used for use in uses),
            sm=known_sum(use.sm for use in uses),
        )
        for (index, uuid, instance), uses in sorted(on_gpu.items(), key=lambda pair: pair[0][0])
    ]


def _processes(job: JobGroup, load: str, context: RowContext, width: int) -> list[Row]:
    columns = visible_columns(width)
    ordered = sort_processes(job.processes, _SORT, context)
    rows = [process_row(process, columns, context, width) for process in ordered]
    return [heading_row(columns, _SORT, width, load), *rows]
