"""All rules, and what is asked of them: the findings of a GPU or a process, and their meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings import allocated, faults, heat, memory, processes, servers, speed, work
from gpumon.findings.finding import FindingKind, Severity
from gpumon.findings.phrases import spaced, time_of_day
from gpumon.findings.rule import ProcessRule, Rule
from gpumon.model.makers import first_maker, maker_of
from gpumon.model.snapshot import ANSWERING, GpuStatus
from gpumon.model.thresholds import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.findings.finding import Answer, Finding
    from gpumon.host.process_host import Details
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import Condition, History, ServerCondition


def _rules() -> dict[FindingKind, Rule | ProcessRule]:
    """A rule of each kind, in the order of the kinds."""
    found = {
        value.kind: value
        for module in (allocated, faults, heat, memory, processes, servers, speed, work)
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, (Rule, ProcessRule))
        and "kind" in vars(value)
    }
    for kind in FindingKind:
        if kind not in found:
            raise TypeError(
                f"no class has the kind {kind.name}: put it into a module of gpumon/findings that "
                "registry.py lists"
            )
    return {kind: found[kind]() for kind in FindingKind}


RULES = _rules()
"""The rule of each kind, in the order of the kinds.

First come faults of the GPU, then current conditions, then past errors, which may have caused the
conditions after them.
"""
GPU_RULES = {kind: rule for kind, rule in RULES.items() if isinstance(rule, Rule)}
PROCESS_RULES = {kind: rule for kind, rule in RULES.items() if isinstance(rule, ProcessRule)}

_STATUSES = {rule.status: rule for rule in GPU_RULES.values() if rule.status is not None}
_DETAILS = tuple(rule for rule in GPU_RULES.values() if rule.is_detail)
_FALLBACKS = tuple(rule for rule in GPU_RULES.values() if rule.is_fallback)
_CONDITIONS = tuple(
    rule
    for rule in GPU_RULES.values()
    if rule.status is None and not rule.is_detail and not rule.is_fallback
)
"""The rules for a GPU that answers."""
_PERMANENT = tuple(rule for rule in _CONDITIONS if rule.is_permanent)
"""Those for a GPU whose values are old."""


def conditions(thresholds: Thresholds = DEFAULTS) -> dict[str, Condition | ServerCondition]:
    """The conditions that a history must track for the rules, by name."""
    return {
        name: condition
        for rule in RULES.values()
        for name, condition in rule.conditions(thresholds).items()
    }


def gpu_findings(history: History, gpu: Gpu) -> list[Finding]:
    """All findings of a GPU in the newest snapshot, most severe first.

    The result is never empty: without other findings the GPU is free, working or unknown. If its
    values are old because another GPU hangs, the result has their age and only those findings that
    cannot pass by themselves.
    """
    found = list(_found(history, gpu))
    if gpu.status is GpuStatus.OK and history.old(gpu) is None:
        details = (rule.answer(history, gpu) for rule in _DETAILS)
        found += [finding for finding in details if finding]
    return sorted(found, key=lambda finding: -finding.severity)


def gpu_state(history: History, gpu: Gpu) -> Finding:
    """The first of ``gpu_findings``, without the cost of the others: needed per GPU and frame.

    A rule that runs after a warning cannot find anything worse, except memory errors after the
    status of a failing GPU.
    """
    found = _found(history, gpu)
    worst = next(found)
    while worst.severity < Severity.WARNING or gpu.status is GpuStatus.FAILING:
        finding = next(found, None)
        if finding is None:
            break
        if finding.severity > worst.severity:
            worst = finding
    return worst


def _found(history: History, gpu: Gpu) -> Iterator[Finding]:
    """The findings of a GPU, in the order of their kinds."""
    status = _status(history, gpu)
    if status:
        yield status
        if gpu.status not in ANSWERING:
            return
    is_quiet = not status
    for rule in _CONDITIONS if history.old(gpu) is None else _PERMANENT:
        finding = rule.answer(history, gpu)
        if finding:
            is_quiet = False
            yield finding
    if is_quiet:
        rest = (rule.answer(history, gpu) for rule in _FALLBACKS)
        yield from (finding for finding in rest if finding)


def _status(history: History, gpu: Gpu) -> Answer:
    rule = _STATUSES.get(gpu.status)
    return False if rule is None else rule.answer(history, gpu)


def gpu_answer(history: History, gpu: Gpu, kind: FindingKind) -> Answer:
    """Whether a GPU is in a state: the finding, ``False``, or ``None`` if that is unknown.

    A GPU that does not answer is neither hot nor cool.

    Raises:
        KeyError: It is a state of processes.
    """
    rule = GPU_RULES[kind]
    if gpu.status not in ANSWERING or rule.status is not None:
        status = _status(history, gpu)
        if status and status.kind is kind:
            return status
        return False if gpu.status in ANSWERING else None
    is_missing = bool(rule.assumed) and history.is_missing(gpu, *rule.assumed)
    answer = rule.answer(history, gpu)
    if is_missing and answer:
        return None
    if history.old(gpu) is None or (answer and rule.is_permanent):
        return answer
    return None


def process_findings(
    history: History, process: GpuProcess, details: Details | None = None
) -> list[Finding]:
    """All findings of a process; empty if it is in no current list.

    Takes some hundred microseconds, because it looks for growth over up to an hour: for the pages
    of single processes. Tables use ``History.process_idle``.
    """
    latest = history.latest
    if latest is None or all(process.id != listed.id for listed in latest.processes):
        return []
    found = (rule.answer(history, process, details) for rule in PROCESS_RULES.values())
    return [finding for finding in found if finding]


class Explanation(Struct, frozen=True):
    """A finding, explained; see also ``ExplanationText``."""

    finding: Finding
    seen: tuple[str, ...]
    """The evidence, or the sentence of a finding without evidence."""
    since: str | None
    """Such as ``since 14:02, for 22 m``; ``None`` if that is not known."""
    meaning: str
    causes: tuple[str, ...]
    advice: tuple[str, ...]
    """In the words of the GPU's maker."""
    source: str


def explain(history: History, finding: Finding) -> Explanation:
    """A finding of the newest snapshot, explained. The texts are safe to print."""
    explanation = RULES[finding.kind].explanation
    gpus = () if history.latest is None else history.latest.gpus
    name = next((gpu.name for gpu in gpus if gpu.uuid == finding.subject), None)
    maker = maker_of(name)
    advice, source = explanation.advice, explanation.source
    if maker is not first_maker():
        advice, source = explanation.other_advice or advice, explanation.other_source or source
    since = None
    if finding.since is not None:
        length = spaced(max(0.0, history.now - finding.since))
        since = f"since {time_of_day(history, finding.since)}, for {length}"
    words = {"log": maker.kernel_log, "variable": maker.main_variable}
    return Explanation(
        finding=finding,
        seen=finding.evidence or (finding.sentence,),
        since=since,
        meaning=explanation.meaning,
        causes=explanation.causes,
        advice=tuple(text.format(**words) for text in advice),
        source=source,
    )
