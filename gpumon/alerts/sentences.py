"""The texts of notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.alerts.notice import Notice, gpu_key, process_key
from gpumon.alerts.xids import xid_sentence, xid_severity
from gpumon.findings.finding import Severity
from gpumon.findings.phrases import at_most, spaced
from gpumon.model.processes import ProcessId
from gpumon.sources.maker_words import error_code, short_name
from gpumon.text.formatting import gib, gibibytes, number, printable, temperature
from gpumon.text.units import degree

if TYPE_CHECKING:
    from gpumon.alerts.alert import Alert
    from gpumon.alerts.look import Look
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
    alert: Alert, look: Look, gpu: Gpu, finding: Finding | None, since: float | None
) -> Notice:
    """A GPU is in a state, or meets a filter."""
    return _about_gpu(
        alert,
        look,
        gpu,
        Severity.NOTE if finding is None else finding.severity,
        printable(alert.name) if finding is None else finding.kind.value,
        finding.sentence if finding else f"{printable(alert.when)}: {_gpu_values(gpu)}",
        since,
    )


def gpu_ended(alert: Alert, look: Look, gpu: Gpu, since: float, state: str | None) -> Notice:
    """A GPU is in a state, or meets a filter, no more."""
    what = printable(alert.name) + " ended" if state is None else f"no longer {state}"
    no_longer = f"no longer {printable(alert.when) if state is None else state}"
    said = f"{no_longer}, after {spaced(look.now - since)}; {_gpu_values(gpu)}"
    return _about_gpu(alert, look, gpu, Severity.GOOD, what, said, since, ended=True)


def xid_notice(alert: Alert, look: Look, gpu: Gpu, number_: int, reported: float | None) -> Notice:
    """The driver reported an XID."""
    return _about_gpu(
        alert,
        look,
        gpu,
        xid_severity(number_),
        error_code(number_).label,
        xid_sentence(number_),
        reported,
        key=f"{gpu_key(gpu.uuid)}:xid:{number_}",
    )


def _about_gpu(
    alert: Alert,
    look: Look,
    gpu: Gpu,
    severity: Severity,
    what: str,
    said: str,
    since: float | None,
    *,
    ended: bool = False,
    key: str | None = None,
) -> Notice:
    return Notice(
        alert=alert.name,
        key=key or gpu_key(gpu.uuid),
        host=look.snapshot.host.name,
        at=look.now,
        since=since,
        ended=ended,
        severity=severity,
        title=_title(look.snapshot, f"GPU {gpu.index}", what),
        sentence=f"{_gpu_named(look.snapshot, gpu)}: {said}",
        gpu_index=gpu.index,
        gpu_uuid=gpu.uuid,
    )


def _process_named(process: RememberedProcess) -> str:
    """``python 1234 of ann``."""
    owner = f" of {printable(process.user)}" if process.user else ""
    return f"{printable(process.name) if process.name else 'process'} {process.pid}{owner}"


def _place(look: Look, process: RememberedProcess) -> str:
    gpus = f"GPU {','.join(map(str, process.gpus))}" if process.gpus else "no GPU"
    return f"{gpus} of {printable(look.snapshot.host.name)}"


def process_notice(
    alert: Alert,
    look: Look,
    process: GpuProcess,
    remembered: RememberedProcess,
    finding: Finding | None,
) -> Notice:
    """A process is in a state, or meets a filter."""
    if finding is None:
        severity, what = Severity.NOTE, printable(alert.name)
        held = f"{gibibytes(process.memory_used)} {gib()} of GPU memory"
        said = f"{printable(alert.when)}; {held}, SM {number(process.sm, ' %')}"
    else:
        severity, what, said = finding.severity, finding.kind.value, finding.sentence
    sentence = f"{_process_named(remembered)} on {_place(look, remembered)}: {said}"
    return _about_process(alert, look, remembered, severity, what, sentence)


def told_command(alert: Alert, process: GpuProcess) -> str | None:
    """The command line of a process, if the alert asks for it."""
    if not alert.commands or not process.command:
        return None
    return printable(" ".join(process.command)[:_COMMAND_CHARACTERS])


def process_ended(
    alert: Alert, look: Look, process: RememberedProcess, *, of_state: str | None = None
) -> Notice:
    """A process has ended, or, with ``of_state``, what was told of it has."""
    named, place = _process_named(process), _place(look, process)
    if of_state is None:
        lasted = spaced(look.now - process.since)
        sentence = f"{named} has ended: it was on {place} for at least {lasted}"
        return _about_process(alert, look, process, Severity.NOTE, "ended", sentence)
    what = f"no longer {of_state}"
    sentence = f"{named} on {place}: {what}"
    return _about_process(alert, look, process, Severity.GOOD, what, sentence, ended=True)


def _about_process(
    alert: Alert,
    look: Look,
    process: RememberedProcess,
    severity: Severity,
    what: str,
    sentence: str,
    *,
    ended: bool = False,
) -> Notice:
    single = len(process.gpu_uuids) == 1
    return Notice(
        alert=alert.name,
        key=process_key(ProcessId(process.pid, process.start_time)),
        host=look.snapshot.host.name,
        at=look.now,
        since=process.since,
        ended=ended,
        severity=severity,
        title=_title(look.snapshot, _process_named(process), what),
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
