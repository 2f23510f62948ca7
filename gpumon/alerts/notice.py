"""What an alert tells, apart from the ways in which it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings.finding import Severity  # noqa: TC001 - msgspec resolves annotations at run time

if TYPE_CHECKING:
    from gpumon.model.processes import ProcessId


class Notice(Struct, frozen=True, kw_only=True):
    """One thing that an alert tells, once.

    It holds nothing of other people's command lines; ``command`` is filled only if the alert asks
    for it.

    Attributes:
        alert: Name of the alert.
        key: Identifies what it is about, such as ``gpu:GPU-…`` or ``process:1234:5678``; the same
            for the beginning and for the end.
        host: Name of the machine.
        at: When it was noticed, in seconds since the epoch.
        since: When it began, in seconds since the epoch; ``None`` if that is unknown.
        ended: Whether it has ended.
        severity: How much attention it needs.
        title: At most some 60 characters, safe to print, such as ``gpu-04 GPU 3: hot``.
        sentence: The whole sentence, safe to print.
        gpu_index: The GPU, if it is about one.
        gpu_uuid: The GPU, if it is about one.
        pid: The process, if it is about one.
        user: The user of the process.
        command: The command line of the process, if the alert asks for it.
        is_test: Whether it is sent by ``gpumon alert test``.
    """

    alert: str
    key: str
    host: str
    at: float
    severity: Severity
    title: str
    sentence: str
    since: float | None = None
    ended: bool = False
    gpu_index: int | None = None
    gpu_uuid: str | None = None
    pid: int | None = None
    user: str | None = None
    command: str | None = None
    is_test: bool = False


def gpu_key(uuid: str) -> str:
    """The key of a GPU."""
    return f"gpu:{uuid}"


def process_key(process: ProcessId) -> str:
    """The key of a process."""
    return f"process:{process.pid}:{process.start_time or ''}"
