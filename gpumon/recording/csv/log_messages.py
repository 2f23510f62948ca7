"""The messages of ``gpumon log``: progress, problems and summary."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpumon.model.snapshot import GpuStatus
from gpumon.text.formatting import counted, printable

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.recorder import LogStatus

_BAR_CELLS = 16
_EIGHTHS = " ▏▎▍▌▋▊▉"
_SILENT = (
    GpuStatus.NO_ANSWER,
    GpuStatus.LOST,
    GpuStatus.RESET_REQUIRED,
    GpuStatus.NO_PERMISSION,
    GpuStatus.FAILING,
)
_OLD_INTERVALS = 2
_OLD_SECONDS = 3.0
"""GPUs that have not been read for this many intervals and seconds are reported."""


_NUMBER = re.compile(r"\d+\w*")


def trouble_of(latest: Snapshot, interval: float) -> str | None:
    """The current problem with sampling, safe to print.

    Args:
        latest: The newest snapshot.
        interval: Seconds between samples.
    """
    if latest.trouble is not None:
        return printable(latest.trouble.sentence)
    age = _age(latest)
    if age is not None and age > _OLD_INTERVALS * interval + _OLD_SECONDS:
        return f"No GPU has been read for {length(age)}."
    return None


def kind_of(trouble: str) -> str:
    """The kind of a problem: its sentence without the numbers that change while it lasts."""
    return _NUMBER.sub("", trouble)


def with_loss(sentence: str, status: LogStatus | None) -> str:
    """A sentence, preceded by the number of lost samples, if any."""
    lost = 0 if status is None else status.lost
    return f"{counted(lost, 'sample')} lost · {sentence}" if lost else sentence


def _age(snapshot: Snapshot) -> float | None:
    """Seconds since any responding GPU was read."""
    read = [
        gpu.sampled_at
        for gpu in snapshot.gpus
        if gpu.sampled_at is not None and gpu.status is GpuStatus.OK
    ]
    return snapshot.time - max(read) if read else None


def silent_gpus(snapshot: Snapshot | None) -> str:
    """The GPUs that do not respond, and why: ``GPU 6: lost``; empty if all respond."""
    if snapshot is None:
        return ""
    named = []
    for status in _SILENT:
        those = [str(gpu.index) for gpu in snapshot.gpus if gpu.status is status]
        if those:
            named.append(f"GPU {','.join(those)}: {status.value}")
    return ", ".join(named)


def progress(seconds: float, whole: float) -> str:
    """A progress bar, the elapsed share of the time, and the time left."""
    share = min(1.0, max(0.0, seconds / whole))
    eighths = int(share * _BAR_CELLS * 8)
    bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    left = length(max(0.0, whole - seconds))
    return f"{bar.ljust(_BAR_CELLS, '░')} {int(100 * share):3d} %  {left} left"


def amounts(status: LogStatus) -> list[str]:
    """The amounts written and lost."""
    told = [counted(status.samples, "sample")]
    if status.lost:
        told.append(f"{status.lost:,} lost")
    return [*told, size(status.bytes)]


def machine(snapshot: Snapshot, user: str | None) -> list[str]:
    """What is logged: GPUs and processes, and the busiest GPUs or those that do not respond."""
    processes = sum(user is None or one.user == user for one in snapshot.processes)
    told = [f"{counted(len(snapshot.gpus), 'GPU')}, {counted(processes, 'process', 'es')}"]
    silent = silent_gpus(snapshot)
    if silent:
        return [*told, silent]
    known = [
        (gpu.utilization_gpu, gpu.index) for gpu in snapshot.gpus if gpu.utilization_gpu is not None
    ]
    if not known:
        return told
    most, index = max(known, key=lambda one: one[0])
    return [*told, f"busiest: GPU {index} {most} %"]


def beginning(files: str, interval: float, seconds: float | None) -> str:
    """The first message: the files, the interval and the end time."""
    pace = "every second" if interval == 1 else f"every {interval:g} s"
    until = "until Ctrl+C or SIGTERM" if seconds is None else f"for {length(seconds)}"
    return f"logging to {printable(files)}, a sample {pace}, {until}"


def summary(status: LogStatus, advice: str) -> list[str]:
    """The result, and what the user can do with the log.

    Args:
        status: The final status.
        advice: What can be done: ``RecordedLog.advice``.
    """
    path = printable(str(status.path))
    told = f"logged {length(status.seconds)} to {path}: {', '.join(amounts(status))}"
    if status.trouble is not None:
        told += f". {printable(status.trouble)}"
    return [told, printable(advice)]


def length(seconds: float) -> str:
    """A duration to the second: ``42s``, ``12m04s``, ``3h12m04s``, ``2d03h12m``."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days}d{hours % 24:02d}h{minutes % 60:02d}m"
    if hours:
        return f"{hours}h{minutes % 60:02d}m{whole % 60:02d}s"
    return f"{minutes}m{whole % 60:02d}s" if minutes else f"{whole}s"


def size(count: int) -> str:
    """Bytes in a unit that keeps the text short: ``912 B``, ``14.2 KiB``, ``3.2 MiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
