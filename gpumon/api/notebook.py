"""A snapshot as a small table of HTML, as notebooks show it: no script, no style sheet."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from gpumon.findings import conditions, gpu_state
from gpumon.recording.history import History
from gpumon.text.command_lines import command_line
from gpumon.text.formatting import (
    UNKNOWN,
    counted,
    fit,
    gibibytes,
    memory_size,
    number,
    printable,
    temperature,
)
from gpumon.text.process_columns import RowContext, devices
from gpumon.text.table import Sort
from gpumon.ui.view.gpu_text import (
    holders,
    memory_share,
    mig_indices,
    share,
    short_name,
    state_glyph,
    unlisted_holder,
)
from gpumon.ui.view.process_table import sort_processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.findings import Finding
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, Snapshot

_PROCESSES = 10
_COMMAND_CELLS = 60
_LEFT, _RIGHT = (f"text-align:{side};white-space:nowrap" for side in ("left", "right"))


def html(snapshot: Snapshot) -> str:
    """The GPUs, and the processes with the most memory. Colours are those of the notebook."""
    history = History(conditions())
    history.add(snapshot)
    held = holders(snapshot.processes)
    mig = mig_indices(snapshot.gpus)
    context = RowContext(snapshot.time, host_memory=snapshot.host.memory_total, mig=mig)
    processes = sort_processes(snapshot.processes, Sort(), context)
    left = len(processes) - _PROCESSES
    driver = snapshot.host.driver_version
    head = " · ".join(
        (
            printable(snapshot.host.name),
            counted(len(snapshot.gpus), "GPU"),
            *(() if driver is None else (f"driver {printable(driver)}",)),
            *(("demo",) if snapshot.source == "demo" else ()),
        )
    )
    trouble = snapshot.trouble
    why = "" if trouble is None else f"<br>{escape(f'{trouble.sentence} {trouble.advice}')}"
    return (
        f"<div><b>gpumon</b> {escape(head)}{why}"
        + _table(
            ("#", "GPU", "state", "held by", "memory", "", "util", "", "temp", "power"),
            (_LEFT,) * 4 + (_RIGHT, _LEFT, _RIGHT, _LEFT, _RIGHT, _RIGHT),
            (
                _gpu(gpu, gpu_state(history, gpu), held.get(gpu.uuid) or unlisted_holder(gpu))
                for gpu in snapshot.gpus
            ),
        )
        + _table(
            ("PID", "user", "GPU", "memory", "SM", "command"),
            (_RIGHT, _LEFT, _LEFT, _RIGHT, _RIGHT, _LEFT),
            (_process(process, context) for process in processes[:_PROCESSES]),
        )
        + (f"and {counted(left, 'process', 'es')} more" if left > 0 else "")
        + "</div>"
    )


def _table(heads: Sequence[str], styles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        return "".join(
            f'<{tag} style="{style}">{cell}</{tag}>'
            for cell, style in zip(cells, styles, strict=True)
        )

    lines = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return lines and f"<table><tr>{line('th', heads)}</tr>{lines}</table>"


def _gpu(gpu: Gpu, state: Finding, held: Sequence[str]) -> tuple[str, ...]:
    used, total = gibibytes(gpu.memory_used), gibibytes(gpu.memory_total)
    return (
        str(gpu.index),
        escape(short_name(gpu.name)),
        escape(f"{state_glyph(state)} {printable(state.short or state.brief)}"),
        escape(held[0] if held else ""),
        UNKNOWN if used == UNKNOWN else f"{used}/{total} GiB",
        _bar(memory_share(gpu.memory_used, gpu.memory_total)),
        number(gpu.utilization_gpu, " %"),
        _bar(share(gpu.utilization_gpu, 100)),
        temperature(gpu.temperature_gpu, " °C"),
        number(gpu.power_draw, " W"),
    )


def _process(process: GpuProcess, context: RowContext) -> tuple[str, ...]:
    return (
        str(process.id.pid),
        escape(UNKNOWN if process.user is None else printable(process.user)),
        escape(devices(process, context.mig)),
        memory_size(process.memory_used),
        number(process.sm, " %"),
        f"<code>{escape(fit(command_line(process), _COMMAND_CELLS).rstrip())}</code>",
    )


def _bar(part: float | None) -> str:
    """A bar in the colour of the text; nothing if the value is unknown."""
    if part is None:
        return ""
    width = 100 * min(max(part, 0.0), 1.0)
    return (
        '<div style="width:5em;height:.7em;border:1px solid;box-sizing:border-box">'
        f'<div style="width:{width:.0f}%;height:100%;background:currentColor;opacity:.5"></div>'
        "</div>"
    )
