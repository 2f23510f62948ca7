"""The texts of notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.alerts.notice import Notice, gpu_key, process_key
from gpumon.findings.finding import Severity
from gpumon.findings.phrases import at_most, spaced
from gpumon.sources.maker_words import error_code, short_name
from gpumon.text.formatting import gib, gibibytes, number, printable, temperature
from gpumon.text.units import degree

if TYPE_CHECKING:
    from gpumon.alerts.alert import Alert
    from gpumon.alerts.memory import RememberedProcess
    from gpumon.findings.finding import Finding
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, Snapshot

TITLE_CELLS = 60
_HOST_CELLS = 24
_COMMAND_CHARACTERS = 1000


def _title(snapshot: Snapshot, subject: str, what: str) -> str:
    host = at_most(printable(snapshot.host.name), _HOST_CELLS)
    return at_most(f"{host} {subject}: {what}", TITLE_CELLS)


def _gpu_named(snapshot: Snapshot, gpu: Gpu) -> str:
    model = f" ({printable(short_name(gpu.name))})" if gpu.name else ""
    return f"GPU {gpu.index}{model} of {printable(snapshot.host.name)}"


def _gpu_values(gpu: Gpu) -> str:
    return (
        f"{number(gpu.utilization_gpu, ' %')} busy, {gibibytes(gpu.memory_used)} of "
        f"{gibibytes(gpu.memory_total)} {gib()} in use, {temperature(gpu.temperature_gpu)} "
        f"{degree()}"
    )


def gpu_notice(
    alert: Alert,
    snapshot: Snapshot,
    gpu: Gpu,
    at: float,
    finding: Finding | None,
    since: float | None,
) -> Notice:
    """A GPU is in a state, or meets a filter."""
    what = printable(alert.name) if finding is None else finding.kind.value
    said = finding.sentence if finding else f"{printable(alert.when)}: {_gpu_values(gpu)}"
    return _about_gpu(
        alert,
        snapshot,
        gpu,
        at,
        severity=Severity.NOTE if finding is None else finding.severity,
        title=_title(snapshot, f"GPU {gpu.index}", what),
        sentence=f"{_gpu_named(snapshot, gpu)}: {said}",
        since=since,
    )


def gpu_ended(
    alert: Alert, snapshot: Snapshot, gpu: Gpu, at: float, since: float, state: str | None
) -> Notice:
    """A GPU is in a state, or meets a filter, no more."""
    what = printable(alert.name) + " ended" if state is None else f"no longer {state}"
    no_longer = f"no longer {printable(alert.when) if state is None else state}"
    return _about_gpu(
        alert,
        snapshot,
        gpu,
        at,
        severity=Severity.GOOD,
        title=_title(snapshot, f"GPU {gpu.index}", what),
        sentence=f"{_gpu_named(snapshot, gpu)}: {no_longer}, after {spaced(at - since)}; "
        f"{_gpu_values(gpu)}",
        since=since,
        ended=True,
    )


def xid_notice(
    alert: Alert,
    snapshot: Snapshot,
    gpu: Gpu,
    at: float,
    number_: int,
    reported: float | None,
    severity: Severity,
    meaning: str,
) -> Notice:
    """The driver reported an XID."""
    return _about_gpu(
        alert,
        snapshot,
        gpu,
        at,
        severity=severity,
        title=_title(snapshot, f"GPU {gpu.index}", error_code(number_).label),
        sentence=f"{_gpu_named(snapshot, gpu)}: {meaning}",
        since=reported,
        key=f"{gpu_key(gpu.uuid)}:xid:{number_}",
    )


def _about_gpu(
    alert: Alert,
    snapshot: Snapshot,
    gpu: Gpu,
    at: float,
    *,
    severity: Severity,
    title: str,
    sentence: str,
    since: float | None,
    ended: bool = False,
    key: str | None = None,
) -> Notice:
    return Notice(
        alert=alert.name,
        key=key or gpu_key(gpu.uuid),
        host=snapshot.host.name,
        at=at,
        since=since,
        ended=ended,
        severity=severity,
        title=title,
        sentence=sentence,
        gpu_index=gpu.index,
        gpu_uuid=gpu.uuid,
    )


def _process_named(pid: int, name: str | None, user: str | None) -> str:
    """``python 1234 of ann``."""
    owner = f" of {printable(user)}" if user else ""
    return f"{printable(name) if name else 'process'} {pid}{owner}"


def _on(gpus: tuple[int, ...]) -> str:
    return f"GPU {','.join(map(str, gpus))}" if gpus else "no GPU"


def _process_values(process: GpuProcess) -> str:
    return f"{gibibytes(process.memory_used)} {gib()} of GPU memory, SM {number(process.sm, ' %')}"


def process_notice(
    alert: Alert,
    snapshot: Snapshot,
    process: GpuProcess,
    at: float,
    finding: Finding | None,
    since: float | None,
) -> Notice:
    """A process is in a state, or meets a filter."""
    named = _process_named(process.id.pid, process.name, process.user)
    what = printable(alert.name) if finding is None else finding.kind.value
    if finding is None:
        said = f"{printable(alert.when)}; {_process_values(process)}"
    else:
        said = finding.sentence
    place = f"{_on(process.gpu_indices)} of {printable(snapshot.host.name)}"
    single = process.uses[0] if len(process.gpu_indices) == 1 else None
    return Notice(
        alert=alert.name,
        key=process_key(process.id),
        host=snapshot.host.name,
        at=at,
        since=since,
        severity=Severity.NOTE if finding is None else finding.severity,
        title=_title(snapshot, named, what),
        sentence=f"{named} on {place}: {said}",
        gpu_index=None if single is None else single.gpu_index,
        gpu_uuid=None if single is None else single.gpu_uuid,
        pid=process.id.pid,
        user=process.user and printable(process.user),
        command=told_command(alert, process),
    )


def told_command(alert: Alert, process: GpuProcess) -> str | None:
    """The command line of a process, if the alert asks for it."""
    if not alert.commands or not process.command:
        return None
    return printable(" ".join(process.command)[:_COMMAND_CHARACTERS])


def process_ended(
    alert: Alert,
    snapshot: Snapshot,
    process: RememberedProcess,
    at: float,
    *,
    of_state: str | None = None,
) -> Notice:
    """A process has ended, or, with ``of_state``, what was told of it has."""
    named = _process_named(process.pid, process.name, process.user)
    place = f"{_on(process.gpus)} of {printable(snapshot.host.name)}"
    lasted = spaced(at - process.since)
    if of_state is None:
        what, sentence = "ended", f"{named} has ended: it was on {place} for at least {lasted}"
    else:
        what, sentence = f"no longer {of_state}", f"{named} on {place}: no longer {of_state}"
    single = len(process.gpu_uuids) == 1
    return Notice(
        alert=alert.name,
        key=f"process:{process.pid}:{process.start_time or ''}",
        host=snapshot.host.name,
        at=at,
        since=process.since,
        ended=of_state is not None,
        severity=Severity.NOTE if of_state is None else Severity.GOOD,
        title=_title(snapshot, named, what),
        sentence=sentence,
        gpu_index=process.gpus[0] if single else None,
        gpu_uuid=process.gpu_uuids[0] if single else None,
        pid=process.pid,
        user=process.user and printable(process.user),
        command=process.command,
    )


def test_notice(alert: Alert, host: str, at: float) -> Notice:
    """What ``gpumon alert test`` sends."""
    return Notice(
        alert=alert.name,
        key="test",
        host=host,
        at=at,
        since=at,
        severity=Severity.NOTE,
        title=at_most(f"{at_most(printable(host), _HOST_CELLS)} test: {alert.name}", TITLE_CELLS),
        sentence=f"This is a test of the alert {alert.name} ({alert.when}): nothing has happened.",
        is_test=True,
    )
