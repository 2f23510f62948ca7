"""All that is known of an accident, in words, for every place that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.text.formatting import duration, gib, gibibytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.accidents.join import AccidentReport


def details_of(report: AccidentReport) -> Iterator[str]:
    """All that is known of an accident, a sentence each; not safe to print."""
    accident = report.accident
    yield report.what
    for what in report.then:
        yield f"then {what}"
    process = report.process
    if process is not None:
        facts = []
        if report.ran_seconds is not None:
            facts.append(f"ran for {duration(report.ran_seconds)}")
        if process.memory_used is not None:
            facts.append(f"had {gibibytes(process.memory_used)} {gib()} of GPU memory")
        known = f", which {' and '.join(facts)}" if facts else ""
        yield f"the kernel names {report.whose}{known}"
        if process.command:
            yield f"command: {' '.join(process.command)}"
    elif report.has_foreign_pid:
        yield f"the kernel names {report.whose}, by a PID of the host"
    elif accident.pid is not None:
        yield f"the kernel names {report.whose}, which gpumon had not seen on a GPU"
    if accident.memory is not None:
        yield f"it had {gibibytes(accident.memory)} {gib()} of host memory"
    if report.left is not None:
        yield f"processes that left its GPUs within 30 s: {report.left_text}"
    if report.lost_gpu_hours is not None:
        yield f"those that left had used at least {report.lost_gpu_hours:.1f} GPU-hours"
    for line in (accident, *report.further):
        if line.text:
            yield f"kernel: {line.text}"
