"""The language of processes: what each of its terms tests, and how its value is written.

Unknown values of a process

- match no comparison and no negated one: unknown memory is neither over 1G nor not over 1G;
- match no text: ``user:ann`` leaves out a process of an unknown user and ``!user:ann`` keeps it,
  because a user who hides ann's processes wants to see all others;
- never mean idle: ``idle>10m`` selects processes seen idle, ``!idle>10m`` all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from gpumon.filters.language import (
    COMPARES,
    IS,
    Language,
    Selection,
    Term,
    Test,
    Wrong,
    index_term,
    number_term,
    parse,
    said,
    text_term,
)
from gpumon.model.allocations import job_keys_of, unplaced_of
from gpumon.model.process_states import STATES, STOPPED, TRACED, ZOMBIE
from gpumon.model.thresholds import DEFAULTS
from gpumon.text.unit_parsing import COUNT, DURATION, PERCENT, SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpumon.model.allocations import Allocation
    from gpumon.model.processes import GpuProcess, ProcessId, Workload
    from gpumon.text.unit_parsing import Measure


class FilterContext(Struct, frozen=True):
    """What a filter needs in addition to the process."""

    now: float
    idle: Callable[[ProcessId], float | None]
    """Seconds for which a process has been idle; ``None`` if it is not idle, or if that is
    unknown."""
    idle_after: float = DEFAULTS.idle_after
    """Seconds without work after which a process is idle."""
    host: str = ""
    """The name of its host in a fleet; empty at home."""
    allocations: Sequence[Allocation] = ()
    """What schedulers have given to jobs of its machine."""


ProcessTest: TypeAlias = "Test[GpuProcess, FilterContext]"
ReadProcessTest: TypeAlias = "Callable[[str, str], ProcessTest]"
ProcessTerm: TypeAlias = "Term[GpuProcess, FilterContext]"


def names(process: GpuProcess) -> str:
    """Everything that names a process except its PID, as one text to search."""
    parts = [process.user, process.name, " ".join(process.command)]
    place = process.place
    if place is not None:
        parts += place.labels
        parts += place.launcher_name, place.notebook
        parts += _container(place)
    return "\0".join(part for part in parts if part).casefold()


def _container(place: Workload) -> tuple[str | None, ...]:
    container = place.container
    if container is None:
        return ()
    return container.name, container.id, container.pod


def _job(place: Workload) -> tuple[str | None, ...]:
    return place.slurm_job, place.launcher_name


def _place(parts: Callable[[Workload], Iterable[str | None]]) -> ReadProcessTest:
    """``text_term`` for the place where the process runs."""
    return text_term(lambda process: () if process.place is None else parts(process.place))


def _server(process: GpuProcess) -> Iterable[str | None]:
    server = None if process.place is None else process.place.server
    if server is None:
        return ()
    return server.engine, server.model, *(process.load.models if process.load else ())


def _reported(measure: Measure, field: str) -> ReadProcessTest:
    """``number_term`` for what the inference server of a process reports."""
    return number_term(
        measure,
        lambda process, _: None if process.load is None else getattr(process.load, field),
    )


def _names_of_job(job: Allocation) -> Iterable[str | None]:
    return job.job, job.user, job.owned_label


def _allocation(sign: str, value: str) -> ProcessTest:
    """Tests the jobs that its GPUs were given to, and the job that it is part of."""
    names = text_term(_names_of_job)(sign, value)

    def test(process: GpuProcess, context: FilterContext) -> bool | None:
        jobs = [job for job in context.allocations if names(job, None)]
        on = {use.gpu_uuid for use in process.uses}
        keys = set(job_keys_of(process.place))
        if any(not (on.isdisjoint(job.devices) and keys.isdisjoint(job.keys)) for job in jobs):
            return True
        # Some of the job's GPUs may be among these; or these are somebody's, perhaps the job's.
        whose = [job for job in context.allocations if job.job is None]
        is_somebodys = any(not on.isdisjoint(job.devices) for job in whose)
        return None if is_somebodys or unplaced_of((*jobs, *whose)) else False

    return test


def _age(process: GpuProcess, context: FilterContext) -> float | None:
    return None if process.started_at is None else max(0.0, context.now - process.started_at)


_idle_for: ReadProcessTest = number_term(
    DURATION, lambda process, context: context.idle(process.id)
)


def _idle(sign: str, text: str) -> ProcessTest:
    test = _idle_for(sign, text)
    return lambda process, context: bool(test(process, context))


def _is_idle(process: GpuProcess, context: FilterContext) -> bool:
    seconds = context.idle(process.id)
    return seconds is not None and seconds >= context.idle_after


_gpu: ReadProcessTest = index_term(
    lambda process, gpus: any(gpus.includes(use.gpu_index, use.gpu_uuid) for use in process.uses)
)


def _type(sign: str, value: str) -> ProcessTest:
    letters = {"COMPUTE": "CM", "GRAPHICS": "G"}.get(value.upper())
    if letters is not None:
        return lambda process, _: not set(letters).isdisjoint(process.type)
    wanted = set(value.upper().split("+"))
    if not wanted <= {"C", "G", "M"}:
        raise Wrong(f"no type {said(value)}: write C, G, M, C+G, compute or graphics")
    if sign == "=":
        return lambda process, _: set(process.type.split("+")) == wanted
    return lambda process, _: wanted.issubset(process.type)


_STATES = {STATES[letters[0]].word: letters for letters in ("R", "S", STOPPED + TRACED, ZOMBIE)}
_STATE_NAMES = ", ".join(("idle", *_STATES))


def _state(_: str, value: str) -> ProcessTest:
    word = value.lower()
    if word == "idle":
        return _is_idle
    letters = _STATES.get(word)
    if letters is None:
        if word not in set("rsdtzixwkp"):
            raise Wrong(
                f"no state {said(value)}: write {_STATE_NAMES}, or a letter of ps, such as D"
            )
        letters = word + word.upper()
    return lambda process, _: process.state is not None and process.state in letters


def _pid(_: str, value: str) -> ProcessTest:
    if not (value.isascii() and value.isdigit()) or len(value) > 10:
        raise Wrong(f"no process number {said(value)}: write it whole, such as 41233")
    wanted = int(value)
    return lambda process, _: process.id.pid == wanted


# One line per term is easier to read here than short lines.
# ruff: noqa: E501
# fmt: off
TERMS: tuple[ProcessTerm, ...] = (
    Term("user", "user:ann", "whose owner's name holds this; user=ann for the whole name", IS, text_term(lambda p: (p.user,))),
    Term("gpu", "gpu:0,2-4", "on any of these GPUs, by index or UUID: gpu:GPU-1a2b", IS, _gpu),
    Term("mem", "mem>10G", "with more GPU memory than this, on all GPUs together", COMPARES, number_term(SIZE, lambda p, _: p.memory_used)),
    Term("sm", "sm<5", "that keep the SMs busy for less than this, in percent of the time", COMPARES, number_term(PERCENT, lambda p, _: p.sm)),
    Term("cpu", "cpu>90", "that use more of the CPU, in percent of one core", COMPARES, number_term(PERCENT, lambda p, _: p.cpu_percent)),
    Term("rss", "rss>2G", "with more host memory than this", COMPARES, number_term(SIZE, lambda p, _: p.rss)),
    Term("age", "age>1h30m", "that started longer ago than this", COMPARES, number_term(DURATION, _age)),
    Term("idle", "idle>10m", "that were seen idle for longer than this", COMPARES, _idle),
    Term("type", "type:C", "that compute (C), draw (G), are a client of MPS (M), or both: C+G", IS, _type),
    Term("state", "state:idle", f"that are {_STATE_NAMES}, or in this state of ps: state:D", IS, _state),
    Term("pid", "pid:41233", "with this number", IS, _pid),
    Term("cmd", "cmd:train", "whose command line holds this", IS, text_term(lambda p: (" ".join(p.command),))),
    Term("name", "name:python", "whose short name holds this", IS, text_term(lambda p: (p.name,))),
    Term("container", "container:llama", "in this container, by name or id", IS, _place(_container)),
    Term("pod", "pod:train-0", "in this Kubernetes pod", IS, _place(lambda place: () if place.container is None else (place.container.pod,))),
    Term("job", "job:88123", "of this Slurm job, or started by this launcher: job:torchrun", IS, _place(_job)),
    Term("alloc", "alloc:88123", "on a GPU that a scheduler has given to this job or user: alloc:ann", IS, _allocation),
    Term("env", "env:torch", "in this conda or virtual environment", IS, _place(lambda place: (place.environment,))),
    Term("tmux", "tmux:train", "in this tmux session", IS, _place(lambda place: (place.tmux,))),
    Term("notebook", "notebook:eda", "of this notebook or Jupyter kernel", IS, _place(lambda place: (place.notebook, place.jupyter_kernel))),
    Term("server", "server:vllm", "of an inference server of this kind or with this model: server:qwen", IS, text_term(_server)),
    Term("running", "running>0", "whose server works on more requests than this", COMPARES, _reported(COUNT, "running")),
    Term("waiting", "waiting>10", "whose server has more requests that wait than this", COMPARES, _reported(COUNT, "waiting")),
    Term("requests", "requests<1", "whose server finishes fewer requests a second than this", COMPARES, _reported(COUNT, "requests")),
    Term("tokens", "tokens<5", "whose server generates fewer tokens a second than this", COMPARES, _reported(COUNT, "tokens")),
    Term("kv", "kv>95", "whose server uses more of its KV cache than this, in percent", COMPARES, _reported(PERCENT, "kv_cache")),
    Term("where", "where:docker", "where any word of WHERE holds this", IS, _place(lambda place: place.labels)),
)
# fmt: on
"""Every term, in the order of the help."""

PROCESSES: Language[GpuProcess, FilterContext] = Language(
    TERMS, lambda process, _: names(process), lambda process, word: word == str(process.id.pid)
)
"""The language of processes."""
Filter: TypeAlias = "Selection[GpuProcess, FilterContext]"
"""Selects processes."""


def parse_filter(text: str) -> Filter:
    """``parse`` for processes."""
    return parse(text, PROCESSES)
