"""Writes what ``gpumon end`` will do, and what became of it: for a person and for a program."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpumon.host.refusals import signal_name
from gpumon.kill.outcome import Outcome, report_text
from gpumon.text.command_lines import shorten_command
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    counted,
    fit,
    fit_right,
    gib,
    gibibytes,
    printable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.host.process_host import Refused, Target
    from gpumon.kill.outcome import MemoryReclaimed, TargetOutcome, TerminationReport
    from gpumon.model.processes import ProcessId

SCHEMA = "gpumon.end/1"
_OUTCOMES = {
    Outcome.WAITING: "alive",
    Outcome.ENDED: "ended",
    Outcome.GONE: "gone",
    Outcome.REFUSED: "refused",
    Outcome.UNKNOWN: "unknown",
}
_GAP = "  "
_WIDTH = 80
"""Cells of a line of the table where no terminal says how many there are."""
_LEAST_WIDTH = 24
"""Below this many cells lines are left to the terminal to wrap."""
_LEAST_COMMAND = 16


class Plan(NamedTuple):
    """Whom a signal would reach."""

    number: int  # the signal
    targets: tuple[Target, ...]
    children: frozenset[ProcessId]  # those that were not named
    obstacles: Mapping[ProcessId, Refused]  # why some of them would not get it
    machine: str | None = None  # their machine, safe to print, if it is another one


def plan_table(plan: Plan, width: int | None) -> str:
    """The processes, the memory that may come back, and why some would get no signal.

    ``width`` is that of the terminal in cells; ``None`` without one.
    """
    rows = [("PID:START", "USER", "GPU", gib()), *map(_row, plan.targets)]
    widths = [max(map(cell_width, column)) for column in zip(*rows, strict=True)]
    room = max(_LEAST_COMMAND, (width or _WIDTH) - sum(widths) - len(_GAP) * len(widths))
    commands = ["COMMAND", *(_command(target, plan, room) for target in plan.targets)]
    lines = []
    for row, command in zip(rows, commands, strict=True):
        cells = [*map(fit, row[:3], widths), fit_right(row[3], widths[3]), command]
        lines.append(_GAP.join(cells).rstrip())
    refusals = [f"{printable(refused.sentence)}." for refused in plan.obstacles.values()]
    lines += _wrapped([*refusals, _sum(plan)], width)
    return "".join(f"{line}\n" for line in lines)


def report_lines(report: TerminationReport, kill_hint: str, width: int | None) -> str:
    """What became of the processes and their memory.

    ``kill_hint`` says how to send KILL to the processes that do not end.
    """
    text = report_text(report, kill_hint)
    reported = " ".join(text.processes)
    silent = [
        f"{outcome.target.id.pid} has not ended"
        for outcome in report.outcomes
        if outcome.outcome is Outcome.WAITING
        and not re.search(rf"\b{outcome.target.id.pid}\b", reported)
    ]
    lines = [text.summary, *text.processes, *silent, *text.notes]
    return "".join(f"{line}\n" for line in _wrapped(lines, width))


def _wrapped(sentences: Sequence[str], width: int | None) -> list[str]:
    """The sentences, wrapped at words on a terminal."""
    if width is None or width < _LEAST_WIDTH:
        return list(sentences)
    return [
        line
        for sentence in sentences
        for line in textwrap.wrap(sentence, width, break_long_words=False, break_on_hyphens=False)
    ]


def as_json(plan: Plan, report: TerminationReport | None = None) -> str:
    """Everything known; without a report what would be done."""
    if report is None:
        processes = [_planned(target, plan) for target in plan.targets]
        memory: Sequence[MemoryReclaimed] = ()
    else:
        processes = [_ended(outcome, plan) for outcome in report.outcomes]
        memory = report.memory
    data = {
        "schema": SCHEMA,
        "machine": plan.machine,
        "dry_run": report is None,
        "signal": signal_name(plan.number),
        "processes": processes,
        "memory": [
            {
                "index": gpu.gpu_index,
                "uuid": gpu.gpu_uuid,
                "expected_bytes": gpu.expected,
                "returned_bytes": gpu.returned,
                "missing_bytes": gpu.missing,
                "settled": gpu.settled,
            }
            for gpu in memory
        ],
        "log_fault": (report.unlogged or None) if report is not None else None,
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def _row(target: Target) -> tuple[str, str, str, str]:
    start = target.id.start_time
    memory = _memory(target)
    return (
        str(target.id.pid) if start is None else f"{target.id.pid}:{start}",
        printable(target.user or UNKNOWN),
        ",".join(map(str, sorted({use.gpu_index for use in target.uses}))) or UNKNOWN,
        UNKNOWN if memory is None else gibibytes(memory),
    )


def _memory(target: Target) -> int | None:
    """Bytes that a process holds on all GPUs; ``None`` if not all are known."""
    sizes = [use.memory_used for use in target.uses]
    return None if None in sizes or not sizes else sum(filter(None, sizes))


def _command(target: Target, plan: Plan, room: int) -> str:
    prefix = "child: " if target.id in plan.children else ""
    if not target.command:
        return f"{prefix}[{printable(target.name or 'unknown')}]"
    return prefix + shorten_command(target.command, room - len(prefix)).rstrip()


def _sum(plan: Plan) -> str:
    """Whom the signal would reach, and the memory that may come back."""
    reached = [target for target in plan.targets if target.id not in plan.obstacles]
    freed: dict[int, int | None] = {}
    for use in (use for target in reached for use in target.uses):
        before = freed.get(use.gpu_index, 0)
        unknown = before is None or use.memory_used is None
        freed[use.gpu_index] = None if unknown else (before or 0) + (use.memory_used or 0)
    parts = [
        f"{'an unknown amount' if size is None else f'{gibibytes(size)} {gib()}'} on GPU {index}"
        for index, size in sorted(freed.items())
    ]
    sentence = f"{signal_name(plan.number)} would reach {counted(len(reached), 'process', 'es')}"
    if len(reached) < len(plan.targets):
        sentence += f" of {len(plan.targets)}"
    if plan.machine is not None:
        sentence += f" on {plan.machine}"
    if parts:
        sentence += f", which {'holds' if len(reached) == 1 else 'hold'} {', '.join(parts)}"
    return f"{sentence}."


def _planned(target: Target, plan: Plan) -> dict[str, object]:
    refused = plan.obstacles.get(target.id)
    return {
        **_described(target, plan),
        "outcome": "would_send" if refused is None else "refused",
        "reason": None if refused is None else _key(refused.reason.value),
        "sentence": None if refused is None else printable(refused.sentence),
        "seconds": None,
    }


def _ended(outcome: TargetOutcome, plan: Plan) -> dict[str, object]:
    return {
        **_described(outcome.target, plan),
        "child": outcome.late or outcome.target.id in plan.children,
        "outcome": _OUTCOMES[outcome.outcome],
        "reason": None if outcome.refusal is None else _key(outcome.refusal.value),
        "sentence": printable(outcome.sentence) or None,
        "seconds": outcome.seconds,
    }


def _described(target: Target, plan: Plan) -> dict[str, object]:
    return {
        "pid": target.id.pid,
        "start_time": target.id.start_time,
        "user": None if target.user is None else printable(target.user),
        "uid": target.uid,
        "name": None if target.name is None else printable(target.name),
        "command": [printable(word) for word in target.command],
        "child": target.id in plan.children,
        "gpus": [
            {
                "index": use.gpu_index,
                "uuid": use.gpu_uuid,
                "memory_used_bytes": use.memory_used,
            }
            for use in target.uses
        ],
    }


def _key(text: str) -> str:
    return text.replace(" ", "_")
