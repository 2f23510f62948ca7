"""Findings about a process: idle, growing, or reserved memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings.explanation import END_IF_YOURS, NVML, TORCH_MEMORY, ExplanationText
from gpumon.findings.finding import SHORT_CELLS, FindingKind
from gpumon.findings.growth import growth, room
from gpumon.findings.phrases import all_of
from gpumon.findings.preallocation import preallocation
from gpumon.findings.rule import HeldFor, LastingRule, ProcessRule, Words
from gpumon.findings.work import IDLE_SIGN
from gpumon.text.formatting import cell_width, gib, gibibytes

if TYPE_CHECKING:
    from gpumon.findings.finding import Answer
    from gpumon.host.process_host import Details
    from gpumon.model.processes import GpuProcess
    from gpumon.recording.history import History


class IdleProcess(ProcessRule):
    """The process holds memory but has not run for a while."""

    kind = FindingKind.IDLE_PROCESS
    other_names = ("process idle",)
    sign = IDLE_SIGN
    explanation = ExplanationText(
        (
            "The process holds GPU memory, but none of its kernels has run for a while. An "
            "inference server that reports its requests has received none."
        ),
        (
            "a notebook that was left open",
            "a job that waits for data or for other ranks",
            "a server that nobody uses at this time of the day",
        ),
        (END_IF_YOURS,),
        f"{NVML}, nvmlDeviceGetProcessUtilization",
    )

    def answer(
        self, history: History, process: GpuProcess, details: Details | None = None
    ) -> Answer:
        interval = history.process_idle(process.id)
        if interval is None:
            return False if process.resting is False else None
        least = history.thresholds.idle_after
        if interval.seconds < least or interval.samples < LastingRule.least_samples:
            return False if interval.start_observed else None
        held = HeldFor(history, interval)
        size = f"{gibibytes(process.memory_used)} {gib()}"
        if process.load is not None and process.load.is_idle:
            return self._finding(process.id, _serving_nobody(process, held, size), held)
        words = Words(
            f"idle for {held}, holds {size} on {_gpus(process)}",
            f"idle {held.short}, holds {size}",
            f"idle {held.brief}",
            (f"SM use 0 % in {all_of(held.samples, 'reading')}", f"GPU memory {size}"),
        )
        return self._finding(process.id, words, held)


class Growing(ProcessRule):
    """The memory of the process grows steadily; with a forecast if it is on one GPU only."""

    kind = FindingKind.GROWING
    other_names = ("memory growing",)
    is_forecast = True
    is_slow = True
    explanation = ExplanationText(
        "The GPU memory of the process grows steadily.",
        (
            "a leak, such as results that are kept with their autograd graph",
            "a cache that stops growing by itself",
        ),
        ("Save a checkpoint before the memory is full.",),
        TORCH_MEMORY,
    )

    def answer(
        self, history: History, process: GpuProcess, details: Details | None = None
    ) -> Answer:
        found = growth(
            lambda seconds, count: history.process_series(process.id).buckets(
                "memory_used", seconds, count
            )
        )
        if not found:
            return found
        evidence = found.evidence
        sentence = short = f"grows {found.pace}"
        free = _room(history, process)
        left = found.full_in(free)
        if left is not None:
            sentence += f": GPU full in about {left} at this pace"
            evidence = (*evidence, f"{gibibytes(free)} {gib()} free on {_gpus(process)}")
            if cell_width(longer := f"{short}, full in {left}") <= SHORT_CELLS:
                short = longer
        words = Words(sentence, short, "grows", evidence, history.now - found.seconds)
        return self._finding(process.id, words)


class Preallocated(ProcessRule):
    """The memory of the process was probably reserved in advance."""

    kind = FindingKind.PREALLOCATED
    is_alert_state = False
    """It needs a look into the process."""
    explanation = ExplanationText(
        (
            "The framework or inference server reserves its memory at start, whether it needs it "
            "or not."
        ),
        ("a program that needs it", "a server that needs it when many requests come"),
        ("The finding names the setting that changes it.",),
        "docs.jax.dev, GPU memory allocation; tensorflow.org/guide/gpu; docs/serving.md of gpumon",
    )

    def answer(
        self, history: History, process: GpuProcess, details: Details | None = None
    ) -> Answer:
        gpus = () if history.latest is None else history.latest.gpus
        words = preallocation(process, details, gpus)
        return False if words is None else self._finding(process.id, words)


def _serving_nobody(process: GpuProcess, held: HeldFor, size: str) -> Words:
    return Words(
        f"serving nobody for {held}, holds {size} on {_gpus(process)}",
        f"serves nobody {held.brief}, {size}",
        f"idle {held.brief}",
        (f"no request in {all_of(held.samples, 'reading')}", f"GPU memory {size}"),
    )


def _room(history: History, process: GpuProcess) -> int | None:
    """Free bytes of the one GPU a process is on; ``None`` if they do not limit its growth."""
    uuids = {use.gpu_uuid for use in process.uses}
    gpus = () if history.latest is None else history.latest.gpus
    here = [gpu for gpu in gpus if gpu.uuid in uuids]
    if len(uuids) != 1 or len(here) != 1:
        return None
    return room(history, here[0])


def _gpus(process: GpuProcess) -> str:
    return f"GPU {', '.join(map(str, process.gpu_indices))}"
