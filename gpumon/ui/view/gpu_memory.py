"""The memory of one GPU: a bar of its parts, a line for each holder, and the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.arithmetic import known_sum
from gpumon.model.process_states import ENDED, STATES
from gpumon.text.cells import Field, Row, fill, row_width
from gpumon.text.command_lines import command_line
from gpumon.text.formatting import (
    UNKNOWN,
    duration,
    fit,
    gib,
    gibibytes,
    memory_size,
    mig_name,
    number,
    printable,
)
from gpumon.ui.view.gpu_text import load_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpumon.findings import Account
    from gpumon.model.processes import GpuProcess, GpuUse
    from gpumon.model.snapshot import Gpu, MigInstance, Snapshot
    from gpumon.recording.history import History

_USER, _LABEL, _AMOUNT, _WORK = 10, 18, 9, 13
_GLYPHS = "█▓"
"""Neighbours in the bar must differ."""
_GAP = "  "


class Holder(Struct, frozen=True):
    """A line of the memory: a process, or a MIG device with its processes."""

    label: str  # The user and PID, or the MIG device.
    memory: int | None  # Bytes; ``None`` is unknown.
    amount: str  # Those bytes as text.
    work: str  # Since when it is idle, or how busy it is.
    about: str  # The job and the command, or who holds the MIG device.


def holders_of(gpu: Gpu, snapshot: Snapshot | None, history: History) -> list[Holder]:
    """Who holds the memory of a GPU: MIG devices by index, then processes, largest first."""
    processes = () if snapshot is None else snapshot.processes
    devices = {(device.gpu_instance, device.compute_instance) for device in gpu.mig}
    outside = _held(processes, lambda use: use.gpu_uuid == gpu.uuid and use.instance not in devices)
    return [
        *(_device_holder(device, gpu, processes, history) for device in gpu.mig),
        *(_process_holder(process, memory, gpu, history) for process, memory in outside),
    ]


def process_holders(gpu: Gpu, snapshot: Snapshot | None, history: History) -> list[Holder]:
    """The processes on a GPU and its MIG devices, largest first."""
    processes = () if snapshot is None else snapshot.processes
    held = _held(processes, lambda use: use.gpu_uuid == gpu.uuid)
    return [_process_holder(process, memory, gpu, history) for process, memory in held]


def _held(
    processes: Iterable[GpuProcess], counts: Callable[[GpuUse], bool]
) -> list[tuple[GpuProcess, int | None]]:
    """Processes and their bytes, largest first, unknown amounts last."""
    held: list[tuple[GpuProcess, int | None]] = []
    for process in processes:
        sizes = [use.memory_used for use in process.uses if counts(use)]
        if sizes:
            held.append((process, known_sum(sizes)))
    return sorted(held, key=lambda pair: (pair[1] is None, -(pair[1] or 0)))


def _process_holder(process: GpuProcess, memory: int | None, gpu: Gpu, history: History) -> Holder:
    user, pid = printable(process.user or UNKNOWN), process.id.pid
    places = () if process.place is None else process.place.labels[:1]
    if process.visible and process.state == ENDED:
        places = (STATES[ENDED].about,)
    return Holder(
        f"{fit(user, _USER - 1)} {pid}",
        memory,
        gibibytes(memory),
        _work(process, gpu, history),
        "  ".join((*map(printable, places), command_line(process))),
    )


def _device_holder(
    device: MigInstance, gpu: Gpu, processes: Iterable[GpuProcess], history: History
) -> Holder:
    instance = (device.gpu_instance, device.compute_instance)
    held = _held(processes, lambda use: use.gpu_uuid == gpu.uuid and use.instance == instance)
    names = [
        f"{printable(process.user or UNKNOWN)} {process.id.pid} {memory_size(memory)}"
        for process, memory in held
    ]
    return Holder(
        f"MIG {mig_name(gpu.index, device.index)} {printable(device.profile or '')}",
        device.memory_used,
        f"{gibibytes(device.memory_used)}/{gibibytes(device.memory_total)}",
        _work(held[0][0], gpu, history) if len(held) == 1 else "",
        ", ".join(names),
    )


def _work(process: GpuProcess, gpu: Gpu, history: History) -> str:
    """``idle 3h12m``, with ``≥`` if its start was not observed; otherwise the SM use."""
    interval = history.process_idle(process.id)
    if interval is not None and interval.seconds >= history.thresholds.idle_after:
        least = "" if interval.start_observed else "≥"
        return f"idle {least}{duration(interval.seconds)}"
    return "" if process.sm is None else f"{load_word([gpu])} {number(process.sm)} %"


def memory_rows(account: Account, holders: Sequence[Holder], width: int, most: int) -> list[Row]:
    """The memory as a bar, with a line for each holder and one for the rest.

    Args:
        account: How the memory is divided.
        holders: From ``holders_of``.
        width: Cells.
        most: The maximum number of lines for the holders.
    """
    shown = list(holders if len(holders) <= most else holders[: most - 1])
    hidden = holders[len(shown) :]
    hidden_memory = known_sum(holder.memory for holder in hidden)
    glyphs = [_GLYPHS[place % 2] for place in range(len(shown) + 1)]
    parts = [(glyph, holder.memory) for glyph, holder in zip(glyphs, shown, strict=False)]
    if hidden:
        parts.append((glyphs[-1], hidden_memory))
    rows = [_bar(account, parts, width)] if account.total else []
    rows += holder_rows(shown, glyphs, width)
    if hidden:
        fields = [(f"{glyphs[-1]} ", "graph.memory"), (f"+{len(hidden)} more, ", "")]
        rows.append(fill([*fields, (memory_size(hidden_memory), "strong")], width))
    sizes = (account.unattributed, account.reserved, account.free, account.total)
    return rows if all(size is None for size in sizes) else [*rows, *_rest(account, width)]


def holder_rows(holders: Iterable[Holder], glyphs: Iterable[str], width: int) -> list[Row]:
    """A line for each holder, with its glyph in the bar."""
    rows: list[Row] = []
    for glyph, holder in zip(glyphs, holders, strict=False):
        idle = holder.work.startswith("idle")
        fields = [
            (f"{glyph} ", "graph.memory"),
            (fit(holder.label, _LABEL), "user"),
            (f"{holder.amount:>{_AMOUNT}}", "strong"),
            (f" {gib():<6}" if holder.memory is not None else "       ", "dim"),
            (fit(holder.work, _WORK), "state.note" if idle else "dim"),
        ]
        left = max(0, width - row_width(fields))
        rows.append(fill([*fields, (fit(holder.about, left), "dim")], width))
    return rows


def _bar(account: Account, parts: Sequence[tuple[str, int | None]], width: int) -> Row:
    """The parts as one bar; each known part has a length of at least one cell."""
    total = account.total or 1
    named = sum(size or 0 for _, size in parts)
    unlisted = account.unattributed
    if unlisted is not None:
        # The memory of a MIG device includes what none of its processes holds.
        unlisted = max(0, min(unlisted, (account.used or 0) - named))
    cells: list[Field] = []
    at, used = 0, 0
    for glyph, style, size in (
        ("▒", "dim", account.reserved),
        *((glyph, "graph.memory", size) for glyph, size in parts),
        ("▚", _unlisted_style(account), unlisted),
    ):
        at += size or 0
        end = min(width, max(round(at / total * width), used + 1 if size else used))
        cells.append((glyph * (end - used), style))
        used = end
    if account.free is not None:
        cells.append(("░" * (width - used), "rule"))
    return fill((cell for cell in cells if cell[0]), width)


def _unlisted_style(account: Account) -> str:
    size = account.unattributed
    return "state.warning" if size is not None and size > account.tolerance else "dim"


def _rest(account: Account, width: int) -> list[Row]:
    """The memory that is no holder's; the total if it fits on the same line."""
    parts = (
        ("▚ ", _unlisted_style(account), "unattributed ", account.unattributed),
        ("▒ ", "dim", "driver ", account.reserved),
        ("░ ", "rule", "free ", account.free),
        ("", "", "of ", account.total),
    )
    lines: list[list[Field]] = [[]]
    for glyph, style, label, size in parts:
        fields: list[Field] = [(glyph, style), (label, ""), (memory_size(size), "strong")]
        if lines[-1] and row_width(lines[-1]) + len(_GAP) + row_width(fields) > width:
            if not glyph:
                break
            lines.append([])
        lines[-1] += [(_GAP, ""), *fields] if lines[-1] else fields
    return [fill((field for field in line if field[0]), width) for line in lines]
