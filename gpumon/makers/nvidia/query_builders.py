"""Builds queries for calls of common shape: numbers, a structure, a text, a counter."""

from __future__ import annotations

import math
from ctypes import byref, c_uint, c_ulonglong
from functools import partial
from typing import TYPE_CHECKING, Any

import pynvml

from gpumon.makers.nvidia.queries import FieldQuery, PollRate, Query
from gpumon.model.snapshot import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.makers.nvidia.gpu import NvmlGpu


def _unchanged(value: float) -> object:
    return value


def number_query(
    gpu: NvmlGpu,
    name: str,
    function: str,
    *which: int,
    convert: Callable[[float], object] = _unchanged,
    rate: PollRate = PollRate.FAST,
    cost: float = 0.0,
    otherwise: Query | None = None,
    answer: type[c_uint | c_ulonglong] = c_uint,
) -> Query:
    """A query for one 32-bit number."""
    value = answer()
    call = gpu.prepared(function, gpu.handle, *which, byref(value))
    values = gpu.facts.values

    def ask() -> int:
        code = call()
        if not code:
            values[name] = convert(value.value)
        return code

    return Query((name,), ask, rate, otherwise, cost)


wide_number_query = partial(number_query, answer=c_ulonglong)
"""A query for one 64-bit number."""


def numbers_query(
    gpu: NvmlGpu,
    names: tuple[str | None, ...],
    function: str,
    convert: Callable[[float], object] = _unchanged,
    rate: PollRate = PollRate.SLOW,
) -> Query:
    """A query for several numbers; those without a name are ignored."""
    numbers = [(name, c_uint()) for name in names]
    call = gpu.prepared(function, gpu.handle, *(byref(number) for _, number in numbers))
    values = gpu.facts.values

    def ask() -> int:
        code = call()
        if not code:
            for name, number in numbers:
                if name is not None:
                    values[name] = convert(number.value)
        return code

    return Query(tuple(name for name in names if name is not None), ask, rate)


def struct_query(
    gpu: NvmlGpu,
    function: str,
    answer: Any,
    fields: dict[str, str],
    rate: PollRate,
    otherwise: Query | None = None,
) -> Query:
    """A query that fills the structure ``answer``; ``fields`` has its member for each value."""
    call = gpu.prepared(function, gpu.handle, byref(answer))
    values, members = gpu.facts.values, tuple(fields.items())

    def ask() -> int:
        code = call()
        if not code:
            for name, member in members:
                values[name] = getattr(answer, member)
        return code

    return Query(tuple(fields), ask, rate, otherwise)


def text_query(gpu: NvmlGpu, name: str, function: str) -> Query:
    """A query for a text that never changes."""

    def ask() -> int:
        code, text = gpu.text(function, gpu.handle)
        if not code:
            gpu.facts.values[name] = text
        return code

    return Query((name,), ask, PollRate.ONCE)


def field_query(
    gpu: NvmlGpu,
    name: str,
    field: int,
    convert: Callable[[float], object] = _unchanged,
    rate: PollRate = PollRate.FAST,
) -> FieldQuery:
    """A query for one value of ``nvmlDeviceGetFieldValues``."""
    values = gpu.facts.values

    def keep(_kind: int, value: float) -> int:
        values[name] = convert(value)
        return pynvml.NVML_SUCCESS

    return FieldQuery((name,), field, keep, rate)


def counter_query(
    gpu: NvmlGpu, name: str, field: int, unit: int, otherwise: Query | None, scope: int = 0
) -> FieldQuery:
    """A query for a cumulative counter, in units of ``unit`` bytes, as bytes per second."""
    values, last = gpu.facts.values, (math.inf, 0.0)

    def keep(kind: int, counter: float) -> int:
        nonlocal last
        # A 32-bit counter of a busy link wraps several times between two queries.
        if kind not in {
            pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG,
            pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
        }:
            return pynvml.NVML_ERROR_NOT_SUPPORTED
        (since, before), now = last, gpu.clock.monotonic()
        last = now, counter
        if now <= since or counter < before:
            # The first reading, or one after the driver was reloaded or the counter wrapped.
            gpu.facts.miss((name,), Unknown.NOT_READ)
            return pynvml.NVML_SUCCESS
        if values.get(name) is None:
            gpu.facts.found((name,))
        # A fraction of a byte is noise, which a stream would send.
        values[name] = float(round((counter - before) * unit / (now - since)))
        return pynvml.NVML_SUCCESS

    return FieldQuery((name,), field, keep, PollRate.SLOW, otherwise, scope)
