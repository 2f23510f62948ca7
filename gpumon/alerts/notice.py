"""Notices: what an alert reports, their texts, and how programs get them.

The schema of the JSON, ``gpumon.notice/1``, is in ``docs/alerts.md``. It follows the rules of
``gpumon.export.as_json``: units are in the keys, ``null`` is unknown, and keys are only added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from gpumon.findings.finding import FindingKind, Severity
from gpumon.findings.phrases import at_most, spaced
from gpumon.model.allocations import allocations_of
from gpumon.model.error_codes import ErrorSeverity, error_code
from gpumon.model.makers import short_name
from gpumon.model.processes import ProcessId
from gpumon.text.formatting import (
    UNKNOWN,
    duration,
    gib,
    gibibytes,
    number,
    printable,
    shortened,
    temperature,
)
from gpumon.text.units import degree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.accidents import AccidentReport
    from gpumon.alerts.alert import Alert
    from gpumon.alerts.evaluation import EvaluationContext
    from gpumon.alerts.instances import RememberedProcess
    from gpumon.findings.finding import Finding
    from gpumon.model.accidents import Accident
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, Snapshot

SCHEMA = "gpumon.notice/1"
"""The value of the key ``schema``."""
_TITLE_CELLS = 60
_HOST_CELLS = 24
_COMMAND_CHARACTERS = 1000
_CAME_BACK = 0.9
"""The share of its memory from which on it counts as returned: others may grow meanwhile."""
_MOST_CHARACTERS = 2000
"""Of a text for programs; the usual ones have less than 200."""


class Notice(
    Struct,
    frozen=True,
    kw_only=True,
    rename={"at": "at_unix_seconds", "since": "since_unix_seconds", "is_test": "test"},
):
    """What an alert reports, once.

    Its fields are the keys of the schema in this order, and the variables of programs: each field
    that is added is public. It holds nothing of other people's command lines; ``command`` is filled
    only if the alert asks for it.
    """

    alert: str
    """Name of the alert."""
    key: str
    """Identifies the subject, such as ``gpu:GPU-…`` or ``process:1234:5678``; the same at the start
    and at the end."""
    host: str
    """Name of the machine."""
    at: float
    """When it was noticed, in seconds since the epoch."""
    since: float | None = None
    """When it began, in seconds since the epoch; ``None`` if that is unknown."""
    ended: bool = False
    severity: Severity
    title: str
    """At most some 60 characters, safe to print, such as ``gpu-04 GPU 3: hot``."""
    sentence: str
    """The whole sentence, safe to print."""
    gpu_index: int | None = None
    gpu_uuid: str | None = None
    pid: int | None = None
    user: str | None = None
    """The user of the process, or of the job that has the GPU."""
    command: str | None = None
    """The command line of the process, if the alert asks for it."""
    is_test: bool = False
    """Whether ``gpumon alert test`` sends it."""


def gpu_key(uuid: str) -> str:
    """The key of a GPU."""
    return f"gpu:{uuid}"


def process_key(process: ProcessId) -> str:
    """The key of a process."""
    return f"process:{process.pid}:{process.start_time or ''}"


# -- texts about a GPU ---------------------------------------------------------------------------


def gpu_notice(
    alert: Alert, context: EvaluationContext, gpu: Gpu, finding: Finding | None, since: float | None
) -> Notice:
    """A GPU is in a state, or meets a filter."""
    notice = _about_gpu(
        alert,
        context,
        gpu,
        Severity.NOTE if finding is None else finding.severity,
        printable(alert.name) if finding is None else finding.kind.value,
        finding.sentence if finding else f"{printable(alert.when)}: {_gpu_values(gpu)}",
        since,
    )
    if finding is None or finding.kind is not FindingKind.ALLOCATED:
        return notice
    jobs = allocations_of(context.snapshot.allocations, gpu)
    owner = jobs[0].user if jobs else None
    return replace(notice, user=owner and printable(owner))


def gpu_ended(
    alert: Alert, context: EvaluationContext, gpu: Gpu, since: float, state: str | None
) -> Notice:
    """A GPU is no longer in a state, or no longer meets a filter."""
    what = printable(alert.name) + " ended" if state is None else f"no longer {state}"
    no_longer = f"no longer {printable(alert.when) if state is None else state}"
    sentence = f"{no_longer}, after {spaced(context.now - since)}; {_gpu_values(gpu)}"
    return _about_gpu(alert, context, gpu, Severity.GOOD, what, sentence, since, ended=True)


def xid_notice(
    alert: Alert, context: EvaluationContext, gpu: Gpu, xid: int, reported: float | None
) -> Notice:
    """The driver reported an XID."""
    code = error_code(xid, gpu.name)
    severity = {
        ErrorSeverity.CRITICAL: Severity.CRITICAL,
        ErrorSeverity.WARNING: Severity.WARNING,
    }.get(code.severity or ErrorSeverity.NOTE, Severity.NOTE)
    advice = f"; {code.advice}" if code.advice else ""
    sentence = f"{code.label}: {code.explanation}{advice}"
    key = f"{gpu_key(gpu.uuid)}:xid:{xid}"
    return _about_gpu(alert, context, gpu, severity, code.label, sentence, reported, key=key)


def accident_notice(alert: Alert, context: EvaluationContext, report: AccidentReport) -> Notice:
    """The kernel reported an accident, of a GPU or of a process that it killed."""
    accident, process = report.accident, report.process
    gpu = context.gpus.get(accident.gpu_uuid or "")
    pid = accident.pid if process is None else process.id.pid
    user = None if process is None else process.user
    whose = printable(report.whose)
    host = printable(context.snapshot.host.name)
    named = f": {whose}" if whose else ""
    model = "" if gpu is None or not gpu.name else f" ({printable(short_name(gpu.name))})"
    where = f"{host}: " if gpu is None else f"GPU {gpu.index}{model} of {host}: "
    return Notice(
        alert=alert.name,
        key=accident_key(accident),
        host=context.snapshot.host.name,
        at=context.now,
        since=accident.time,
        severity=Severity.WARNING,
        title=_title(
            context.snapshot.host.name,
            f"{'' if gpu is None else f'GPU {gpu.index}: '}{report.label}{named}",
        ),
        sentence=f"{where}{printable(report.what)}{named}",
        gpu_index=None if gpu is None else gpu.index,
        gpu_uuid=accident.gpu_uuid,
        pid=pid,
        user=user and printable(user),
        command=None if process is None else command_line(alert, process),
    )


def accident_key(accident: Accident) -> str:
    """The key of an accident: of one kind, and of a GPU, or of a killed process or its cgroup."""
    kind = accident.kind.value
    if accident.gpu_uuid is not None:
        return f"{gpu_key(accident.gpu_uuid)}:accident:{kind}"
    victim = accident.cgroup if accident.pid is None else accident.pid
    return f"accident:{kind}:{'' if victim is None else printable(str(victim))}"


def _about_gpu(
    alert: Alert,
    context: EvaluationContext,
    gpu: Gpu,
    severity: Severity,
    what: str,
    sentence: str,
    since: float | None,
    *,
    ended: bool = False,
    key: str | None = None,
) -> Notice:
    host = context.snapshot.host.name
    model = f" ({printable(short_name(gpu.name))})" if gpu.name else ""
    return Notice(
        alert=alert.name,
        key=key or gpu_key(gpu.uuid),
        host=host,
        at=context.now,
        since=since,
        ended=ended,
        severity=severity,
        title=_title(host, f"GPU {gpu.index}: {what}"),
        sentence=f"GPU {gpu.index}{model} of {printable(host)}: {sentence}",
        gpu_index=gpu.index,
        gpu_uuid=gpu.uuid,
    )


def _title(host: str, text: str) -> str:
    return at_most(f"{at_most(printable(host), _HOST_CELLS)} {text}", _TITLE_CELLS)


def _gpu_values(gpu: Gpu) -> str:
    return (
        f"{number(gpu.utilization_gpu, ' %')} busy, {gibibytes(gpu.memory_used)} of "
        f"{gibibytes(gpu.memory_total)} {gib()} in use, {temperature(gpu.temperature_gpu)} "
        f"{degree()}"
    )


# -- texts about a process -----------------------------------------------------------------------


def process_notice(
    alert: Alert,
    context: EvaluationContext,
    process: GpuProcess,
    remembered: RememberedProcess,
    finding: Finding | None,
) -> Notice:
    """A process is in a state, or meets a filter."""
    if finding is None:
        severity, what = Severity.NOTE, printable(alert.name)
        memory = f"{gibibytes(process.memory_used)} {gib()} of GPU memory"
        values = f"{printable(alert.when)}; {memory}, SM {number(process.sm, ' %')}"
    else:
        severity, what, values = finding.severity, finding.kind.value, finding.sentence
    sentence = f"{_process_on_gpus(context, remembered)}: {values}"
    return _about_process(alert, context, remembered, severity, what, sentence)


def process_ended(
    alert: Alert,
    context: EvaluationContext,
    process: RememberedProcess,
    *,
    of_state: str | None = None,
) -> Notice:
    """A process has ended, or, with ``of_state``, the reported state of it has."""
    if of_state is None:
        lasted = spaced(context.now - process.since)
        gpus = f"{_gpus_of(process)} of {printable(context.snapshot.host.name)}"
        sentence = f"{_process_named(process)} has ended: it was on {gpus} for at least {lasted}"
        return _about_process(alert, context, process, Severity.NOTE, "ended", sentence)
    what = f"no longer {of_state}"
    sentence = f"{_process_on_gpus(context, process)}: {what}"
    return _about_process(alert, context, process, Severity.GOOD, what, sentence, ended=True)


def command_line(alert: Alert, process: GpuProcess) -> str | None:
    """The command line of a process, if the alert asks for it."""
    if not alert.commands or not process.command:
        return None
    return printable(" ".join(process.command)[:_COMMAND_CHARACTERS])


def _process_named(process: RememberedProcess) -> str:
    """``python 1234 of ann``."""
    owner = f" of {printable(process.user)}" if process.user else ""
    return f"{printable(process.name) if process.name else 'process'} {process.pid}{owner}"


def _gpus_of(process: RememberedProcess) -> str:
    return f"GPU {','.join(map(str, process.gpus))}" if process.gpus else "no GPU"


def _process_on_gpus(context: EvaluationContext, process: RememberedProcess) -> str:
    host = printable(context.snapshot.host.name)
    return f"{_process_named(process)} on {_gpus_of(process)} of {host}"


def _about_process(
    alert: Alert,
    context: EvaluationContext,
    process: RememberedProcess,
    severity: Severity,
    what: str,
    sentence: str,
    *,
    ended: bool = False,
) -> Notice:
    has_one_gpu = len(process.gpu_uuids) == 1
    return Notice(
        alert=alert.name,
        key=process_key(ProcessId(process.pid, process.start_time)),
        host=context.snapshot.host.name,
        at=context.now,
        since=process.since,
        ended=ended,
        severity=severity,
        title=_title(context.snapshot.host.name, f"{_process_named(process)}: {what}"),
        sentence=sentence,
        gpu_index=process.gpus[0] if has_one_gpu else None,
        gpu_uuid=process.gpu_uuids[0] if has_one_gpu else None,
        pid=process.pid,
        user=process.user and printable(process.user),
        command=process.command,
    )


# -- texts about what is watched by key ----------------------------------------------------------


def end_of_process(notice: Notice, process: GpuProcess, before: Snapshot, now: Snapshot) -> Notice:
    """The notice with how long the process ran, and whether its memory came back.

    ``before`` is the last snapshot that lists it, and ``now`` the newest.
    """
    name = f"process {process.id.pid}"
    sentence = _end_sentence(name, process.started_at, (process,), before, now)
    return replace(notice, sentence=sentence, since=process.started_at)


def end_of_job(
    notice: Notice,
    job: str,
    processes: Sequence[GpuProcess],
    before: Snapshot,
    now: Snapshot,
) -> Notice:
    """The notice of the end of a whole job, from that of its last process."""
    starts = [process.started_at for process in processes]
    known = [start for start in starts if start is not None]
    started = min(known) if len(known) == len(starts) else None
    name = f"job {printable(job)}"
    return replace(
        notice,
        alert=f"{name} ends",
        title=_title(notice.host, f"{name}: ended"),
        sentence=_end_sentence(name, started, processes, before, now),
        since=started,
    )


def _end_sentence(
    name: str,
    started: float | None,
    processes: Sequence[GpuProcess],
    before: Snapshot,
    now: Snapshot,
) -> str:
    ran = "" if started is None else f" after {duration(now.time - started)}"
    returned = _memory_of_ended(processes, before, now)
    return f"{name} has ended{ran}{f'; {returned}' if returned else ''}"


def _memory_of_ended(processes: Sequence[GpuProcess], before: Snapshot, now: Snapshot) -> str:
    """Whether the memory of processes has come back; empty if that cannot be known."""
    held: dict[str, int] = {}
    for process in processes:
        for use in process.uses:
            if use.memory_used is None:
                return ""
            held[use.gpu_uuid] = held.get(use.gpu_uuid, 0) + use.memory_used
    if not held:
        return ""
    used_before = {gpu.uuid: gpu.memory_used for gpu in before.gpus}
    used_now = {gpu.uuid: gpu for gpu in now.gpus}
    ended = {process.id for process in processes}
    staying = []
    for uuid, size in held.items():
        gpu, then = used_now.get(uuid), used_before.get(uuid)
        if gpu is None or gpu.memory_used is None or then is None:
            return ""
        if then - gpu.memory_used < size * _CAME_BACK:
            is_alone = all(
                process.id in ended or all(use.gpu_uuid != uuid for use in process.uses)
                for process in (*before.processes, *now.processes)
            )
            if not is_alone:
                # Other processes may have taken it meanwhile.
                return ""
            staying.append(f"{gibibytes(gpu.memory_used)} {gib()} stay in use on GPU {gpu.index}")
    if staying:
        return ", ".join(staying)
    return f"its {gibibytes(sum(held.values())) or UNKNOWN} {gib()} came back"


def notice_of_test(alert: Alert, host: str, at: float) -> Notice:
    """What ``gpumon alert test`` sends."""
    return Notice(
        alert=alert.name,
        key="test",
        host=host,
        at=at,
        since=at,
        severity=Severity.NOTE,
        title=_title(host, f"test: {alert.name}"),
        sentence=f"This is a test of the alert {alert.name} ({alert.when}): nothing has happened.",
        is_test=True,
    )


# -- for programs --------------------------------------------------------------------------------

Values: TypeAlias = dict[str, "str | float | bool | None"]
_VARIABLES = {"at_unix_seconds": "AT", "since_unix_seconds": "SINCE", "gpu_index": "GPU"}
"""The variables, without ``GPUMON_``, that have another name than their key."""


def as_json(notice: Notice) -> Values:
    """The object of the schema; its texts are safe to print and have a bounded length."""
    values: Values = {"schema": SCHEMA, "id": _id(notice), **to_builtins(notice)}
    values["severity"] = notice.severity.name.lower()
    return {
        key: shortened(printable(value), _MOST_CHARACTERS) if isinstance(value, str) else value
        for key, value in values.items()
    }


def as_environment(notice: Notice) -> dict[str, str | None]:
    """The variables of a notice; ``None`` for those that must not be there."""
    return {
        f"GPUMON_{_VARIABLES.get(key, key.upper())}": _variable(value)
        for key, value in as_json(notice).items()
        if key not in {"schema", "id"}
    }


def _variable(value: str | float | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(int(value))


def _id(notice: Notice) -> str:
    """The same for all attempts to send a notice, and different for every other notice."""
    # Imported here: only channels need it, and the screens import this file.
    from hashlib import sha256

    parts = (notice.host, notice.alert, notice.key, repr(notice.at), str(notice.ended))
    return sha256("\0".join(parts).encode(errors="backslashreplace")).hexdigest()[:16]
