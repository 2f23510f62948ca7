"""Findings about inference servers, from what they report of their requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpumon.findings.explanation import ExplanationText
from gpumon.findings.finding import FindingKind, Severity
from gpumon.findings.rule import ServerRule, Words
from gpumon.serving import ENGINES
from gpumon.text.formatting import per_second

if TYPE_CHECKING:
    from gpumon.findings.rule import HeldFor
    from gpumon.model.processes import GpuProcess
    from gpumon.model.serving import ServerLoad

_METRICS = "docs/serving.md of gpumon"


class RequestsWait(ServerRule):
    """Requests wait because the server has no memory left for their tokens."""

    kind = FindingKind.REQUESTS_WAIT
    severity = Severity.WARNING
    other_names = ("kv cache full",)
    explanation = ExplanationText(
        (
            "Requests wait, and the KV cache is nearly full: a new request starts only when "
            "another one ends."
        ),
        ("more or longer requests than fit in the memory",),
        (
            "Give the server more memory: the page of the process names the setting.",
            "Start another replica.",
        ),
        _METRICS,
    )
    after = 30.0
    full_percent: ClassVar[float] = 95.0
    """vLLM preempts requests when the cache is full; at 95 % a long request gets no place."""

    def holds(self, process: GpuProcess) -> bool | None:
        load = process.load
        if load is None or load.waiting is None or load.kv_cache is None:
            return None
        return load.waiting > 0 and load.kv_cache >= self.full_percent

    def say(self, process: GpuProcess, load: ServerLoad, held: HeldFor) -> Words:
        waiting = "1 request waits" if load.waiting == 1 else f"{load.waiting} requests wait"
        cache = f"KV cache {load.kv_cache:.0f} %"
        return Words(
            f"{waiting}, {cache}, for {held}",
            held.after(f"{per_second(load.waiting)} wait, {cache}, "),
            "KV full",
            (
                f"requests waiting {load.waiting}",
                f"{cache} used",
                *([] if load.running is None else [f"requests running {load.running}"]),
            ),
        )


class SlowServer(ServerRule):
    """The GPU is fully busy, and the server generates next to nothing."""

    kind = FindingKind.SLOW_SERVER
    severity = Severity.WARNING
    explanation = ExplanationText(
        "The GPU is always busy and the server works on requests, but it hardly generates tokens.",
        (
            "a kernel or a worker that hangs: others wait for it",
            "another process that keeps the GPU busy",
            "very long prompts, if the server does not report the tokens of prompts",
        ),
        ("Look into the server's own log.", "Restart the server if this goes on."),
        _METRICS,
    )
    after = 60.0
    least_sm: ClassVar[float] = 95.0
    most_tokens: ClassVar[float] = 5.0
    """Per second, over half a minute: any GPU generates more, also for a single request."""
    most_prompt_tokens: ClassVar[float] = 50.0
    """Per second. Reading a prompt takes the GPU, too, and generates nothing."""

    def holds(self, process: GpuProcess) -> bool | None:
        load, place = process.load, process.place
        engine = None if place is None or place.server is None else ENGINES.get(place.server.engine)
        if load is None or engine is None or not engine.tokens_while_generating:
            return None
        if None in (load.running, load.tokens, load.prompt_tokens, process.sm):
            return None
        return (
            (load.running or 0) > 0
            and (load.tokens or 0) <= self.most_tokens
            and (load.prompt_tokens or 0) <= self.most_prompt_tokens
            and (process.sm or 0) >= self.least_sm
        )

    def say(self, process: GpuProcess, load: ServerLoad, held: HeldFor) -> Words:
        tokens = f"{load.tokens:.3g} tokens a second"
        return Words(
            f"its GPU is {process.sm:.0f} % busy, and it generates {tokens}, for {held}",
            held.after(f"busy, {load.tokens:.3g} tokens/s, "),
            "slow",
            (
                f"SM use {process.sm:.0f} %",
                f"{tokens}, {load.prompt_tokens:.3g} of prompts",
                f"requests running {load.running}",
            ),
        )
