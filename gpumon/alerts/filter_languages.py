"""The filter languages of alerts: of processes, as everywhere, and of GPUs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from gpumon.filters import terms
from gpumon.filters.language import (
    COMPARES,
    IS,
    C,
    Language,
    S,
    Selection,
    Term,
    Test,
    index_term,
    number_term,
    text_term,
)
from gpumon.filters.terms import FilterContext
from gpumon.system.system import user_name
from gpumon.text.unit_parsing import DURATION, PERCENT, SIZE, Measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.alerts.evaluation import EvaluationContext
    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Gpu

GpuFilter: TypeAlias = "Selection[Gpu, EvaluationContext]"
_Read: TypeAlias = "Callable[[str, str], Test[S, C]]"

ME = "me"
"""The name of the own user in a filter."""

_DEGREES = Measure({"": 1, "c": 1, "°c": 1}, "write degrees Celsius, such as 85")
_WATTS = Measure({"": 1, "w": 1}, "write a number of watts, such as 300")


class AlertContext(FilterContext, frozen=True, kw_only=True):
    """That of an alert."""

    idle_for_longer: Callable[[ProcessId], bool]
    """Whether a process may have been idle for longer than ``idle``, because it was idle already
    when it was first seen."""


def meets(selection: Selection[S, C], subject: S, context: C) -> bool | None:
    """Whether a subject meets every term; ``None`` if that is unknown."""
    known: bool | None = True
    for test in selection.tests:
        met = test(subject, context)
        if met is False:
            return False
        if met is None:
            known = None
    return known


def own_user() -> str:
    """The name of the user who runs this program."""
    return user_name(os.geteuid())


def _if_known(is_unknown: Callable[[S], bool], read: _Read[S, C]) -> _Read[S, C]:
    """A term that is unknown, not false, where an unknown value could make it true."""

    def read_known(sign: str, value: str) -> Test[S, C]:
        test = read(sign, value)

        def known(subject: S, context: C) -> bool | None:
            met = test(subject, context)
            return None if not met and is_unknown(subject) else met

        return known

    return read_known


def _user(sign: str, value: str) -> Test[Gpu, EvaluationContext]:
    wanted = (own_user() if value == ME else value).casefold()
    whole = sign == "=" or value == ME

    def test(gpu: Gpu, context: EvaluationContext) -> bool | None:
        users = context.users_on(gpu)
        if users is None:
            return None
        names = [name.casefold() for name in users if name is not None]
        if any(wanted == name if whole else wanted in name for name in names):
            return True
        return None if None in users else False

    return test


def _number(measure: Measure, field: str) -> _Read[Gpu, EvaluationContext]:
    return number_term(measure, lambda gpu, _: getattr(gpu, field))


_idle_for: _Read[Gpu, EvaluationContext] = number_term(
    DURATION, lambda gpu, context: context.idle_seconds(gpu)
)


def _gpu_idle(sign: str, value: str) -> Test[Gpu, EvaluationContext]:
    test = _idle_for(sign, value)

    def known(gpu: Gpu, context: EvaluationContext) -> bool | None:
        met = test(gpu, context)
        # It may have been idle for longer than this program has watched.
        is_least = context.may_be_idle_longer(gpu)
        return None if is_least and not (met and sign.startswith(">")) else met

    return known


_index: _Read[Gpu, EvaluationContext] = index_term(
    lambda gpu, gpus: gpus.includes(gpu.index, gpu.uuid)
)
_model: _Read[Gpu, EvaluationContext] = _if_known(
    lambda gpu: gpu.name is None, text_term(lambda gpu: (gpu.name,))
)

# One line per term is easier to read here than short lines.
# ruff: noqa: E501
# fmt: off
_GPU_TERMS: tuple[Term[Gpu, EvaluationContext], ...] = (
    Term("gpu", "gpu:0,2-4", "by index or UUID: gpu:GPU-1a2b", IS, _index),
    Term("model", "model:h100", "whose product name holds this", IS, _model),
    Term("user", "user:ann", "with a process or a job of a user whose name holds this; user:me is you", IS, _user),
    Term("idle", "idle>1h", "on which nothing has run for longer than this", COMPARES, _gpu_idle),
    Term("util", "util<5", "whose utilisation is below this, in percent", COMPARES, _number(PERCENT, "utilization_gpu")),
    Term("mem", "mem>70G", "with more memory in use than this", COMPARES, _number(SIZE, "memory_used")),
    Term("free", "free<2G", "with less free memory than this", COMPARES, _number(SIZE, "memory_free")),
    Term("temp", "temp>85", "that are hotter than this, in degrees Celsius", COMPARES, _number(_DEGREES, "temperature_gpu")),
    Term("power", "power>300", "that draw more than this, in watts", COMPARES, _number(_WATTS, "power_draw")),
    Term("sm", "sm<20", "whose SMs are active for less of the time than this, in percent", COMPARES, _number(PERCENT, "sm_active")),
    Term("tensor", "tensor<1", "whose tensor cores are active for less of the time than this", COMPARES, _number(PERCENT, "tensor_active")),
    Term("dram", "dram>80", "whose memory is active for more of the time than this, in percent", COMPARES, _number(PERCENT, "dram_active")),
)
# fmt: on

GPUS: Language[Gpu, EvaluationContext] = Language(
    _GPU_TERMS, lambda gpu, _: (gpu.name or "").casefold()
)
"""The language of GPUs."""


def _is_server_unknown(process: GpuProcess) -> bool:
    if process.place is None:
        return True
    server, load = process.place.server, process.load
    is_named = server is None or server.model is not None or (load is not None and load.models)
    return not is_named


_UNKNOWN: dict[str, Callable[[GpuProcess], bool]] = {
    "user": lambda process: process.user is None,
    "name": lambda process: process.name is None,
    "cmd": lambda process: not process.command,
    "server": _is_server_unknown,
    **{
        name: lambda process: process.place is None
        for name in ("container", "pod", "job", "env", "tmux", "notebook", "where")
    },
}
"""Whether a term cannot be judged of a process."""


def _changed(term: Term[GpuProcess, FilterContext]) -> Term[GpuProcess, FilterContext]:
    def read(sign: str, value: str) -> Test[GpuProcess, FilterContext]:
        if term.name == "user" and value == ME:
            return term.read("=", own_user())
        if term.name == "idle" or (term.name == "state" and value.lower() == "idle"):
            return _idle(term.read(sign, value))
        return term.read(sign, value)

    is_unknown = _UNKNOWN.get(term.name)
    return replace(term, read=read if is_unknown is None else _if_known(is_unknown, read))


def _idle(test: Test[GpuProcess, FilterContext]) -> Test[GpuProcess, FilterContext]:
    """A test of idleness that is unknown when it cannot know."""

    def known(process: GpuProcess, context: FilterContext) -> bool | None:
        if test(process, context):
            return True
        if process.resting is None:
            return None
        longer = isinstance(context, AlertContext) and context.idle_for_longer(process.id)
        return None if longer else False

    return known


PROCESSES = replace(terms.PROCESSES, terms=tuple(map(_changed, terms.TERMS)))
"""The language of processes, in which ``user:me`` is the own user.

What is not known of a process, such as its container before that was looked up, is unknown here,
and so is its idle time while the driver is silent: neither begins or ends an alert.
"""
