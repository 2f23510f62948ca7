"""The filter languages of alerts: of processes, as everywhere, and of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.filters.language import PROCESSES, TERMS, Facts, Language, Selection, Term
from gpumon.filters.term import COMPARES, IS, F, S, Test, Wrong, number_term
from gpumon.model.selection import SelectionError, parse_selection
from gpumon.text.formatting import printable
from gpumon.text.unit_parsing import PERCENT, SIZE, Measure

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Gpu

ME = "me"
"""The name of the own user in a filter."""

_DEGREES = Measure({"": 1, "c": 1, "°c": 1}, "write degrees Celsius, such as 85")
_WATTS = Measure({"": 1, "w": 1}, "write a number of watts, such as 300")


class AlertFacts(Facts, frozen=True, kw_only=True):
    """``Facts`` of an alert.

    Attributes:
        idle_for_longer: Whether a process may have been idle for longer than ``idle`` says, because
            it was idle already when it was first seen.
    """

    idle_for_longer: Callable[[ProcessId], bool]


class GpuFacts(Struct, frozen=True):
    """Facts that a filter of GPUs needs in addition to the GPU.

    Attributes:
        users: The users with processes on a GPU, of which ``None`` is an unknown one; ``None``
            without a current list.
    """

    users: Callable[[Gpu], Collection[str | None] | None]


def meets(selection: Selection[S, F], subject: S, facts: F) -> bool | None:
    """Whether a subject meets every term; ``None`` if that is unknown."""
    known: bool | None = True
    for test in selection.tests:
        met = test(subject, facts)
        if met is False:
            return False
        if met is None:
            known = None
    return known


def gpu_language(me: str) -> Language[Gpu, GpuFacts]:
    """The language of GPUs.

    Args:
        me: The name of the own user.
    """

    def user(sign: str, value: str) -> Test[Gpu, GpuFacts]:
        wanted = (me if value == ME else value).casefold()
        whole = sign == "=" or value == ME

        def test(gpu: Gpu, facts: GpuFacts) -> bool | None:
            users = facts.users(gpu)
            if users is None:
                return None
            names = [name.casefold() for name in users if name is not None]
            if any(wanted == name if whole else wanted in name for name in names):
                return True
            return None if None in users else False

        return test

    def model(sign: str, value: str) -> Test[Gpu, GpuFacts]:
        wanted = value.casefold()

        def test(gpu: Gpu, _: GpuFacts) -> bool | None:
            if gpu.name is None:
                return None
            name = gpu.name.casefold()
            return name == wanted if sign == "=" else wanted in name

        return test

    def number(measure: Measure, field: str) -> Callable[[str, str], Test[Gpu, GpuFacts]]:
        return number_term(measure, lambda gpu, _: getattr(gpu, field))

    # One line per term is easier to read here than short lines.
    # ruff: noqa: E501
    # fmt: off
    terms: tuple[Term[Gpu, GpuFacts], ...] = (
        Term("gpu", "gpu:0,2-4", "by index or UUID: gpu:GPU-1a2b", IS, _gpu),
        Term("model", "model:h100", "whose product name holds this", IS, model),
        Term("user", "user:ann", "with a process of a user whose name holds this; user:me is you", IS, user),
        Term("util", "util<5", "whose utilisation is below this, in percent", COMPARES, number(PERCENT, "utilization_gpu")),
        Term("mem", "mem>70G", "with more memory in use than this", COMPARES, number(SIZE, "memory_used")),
        Term("free", "free<2G", "with less free memory than this", COMPARES, number(SIZE, "memory_free")),
        Term("temp", "temp>85", "that are hotter than this, in degrees Celsius", COMPARES, number(_DEGREES, "temperature_gpu")),
        Term("power", "power>300", "that draw more than this, in watts", COMPARES, number(_WATTS, "power_draw")),
        Term("sm", "sm<20", "whose SMs are active for less of the time than this, in percent", COMPARES, number(PERCENT, "sm_active")),
        Term("tensor", "tensor<1", "whose tensor cores are active for less of the time than this", COMPARES, number(PERCENT, "tensor_active")),
        Term("dram", "dram>80", "whose memory is active for more of the time than this, in percent", COMPARES, number(PERCENT, "dram_active")),
    )
    # fmt: on
    return Language(terms, lambda gpu, _: (gpu.name or "").casefold())


def _gpu(_: str, value: str) -> Test[Gpu, GpuFacts]:
    try:
        gpus = parse_selection(value)
    except SelectionError as wrong:
        raise Wrong(printable(str(wrong))) from None
    return lambda gpu, _: gpus.includes(gpu.index, gpu.uuid)


def process_language(me: str) -> Language[GpuProcess, Facts]:
    """The language of processes, in which ``user:me`` is the own user.

    What is not known of a process, such as its container before that was looked up, is unknown
    here, and so is its idle time while the driver is silent: neither begins or ends an alert.

    Args:
        me: The name of the own user.
    """
    return replace(PROCESSES, terms=tuple(_changed(term, me) for term in TERMS))


def _changed(term: Term[GpuProcess, Facts], me: str) -> Term[GpuProcess, Facts]:
    def read(sign: str, value: str) -> Test[GpuProcess, Facts]:
        if term.name == "user" and value == ME:
            return _if_known(_UNKNOWN[term.name], term.read("=", me))
        test = term.read(sign, value)
        if term.name == "idle" or (term.name == "state" and value.lower() == "idle"):
            return _idle(test)
        is_unknown = _UNKNOWN.get(term.name)
        return test if is_unknown is None else _if_known(is_unknown, test)

    return replace(term, read=read)


def _has_no_place(process: GpuProcess) -> bool:
    return process.place is None


_UNKNOWN: dict[str, Callable[[GpuProcess], bool]] = {
    "user": lambda process: process.user is None,
    "name": lambda process: process.name is None,
    "cmd": lambda process: not process.command,
    **dict.fromkeys(("container", "pod", "job", "env", "tmux", "notebook", "where"), _has_no_place),
}
"""Whether a term cannot be judged of a process."""


def _if_known(
    is_unknown: Callable[[GpuProcess], bool], test: Test[GpuProcess, Facts]
) -> Test[GpuProcess, Facts]:
    return lambda process, facts: None if is_unknown(process) else test(process, facts)


def _idle(test: Test[GpuProcess, Facts]) -> Test[GpuProcess, Facts]:
    """A test of idleness that says when it cannot know."""

    def known(process: GpuProcess, facts: Facts) -> bool | None:
        if test(process, facts):
            return True
        if process.resting is None:
            return None
        longer = isinstance(facts, AlertFacts) and facts.idle_for_longer(process.id)
        return None if longer else False

    return known
