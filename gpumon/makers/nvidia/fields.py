"""Reads many values in one driver call: ``nvmlDeviceGetFieldValues`` with a reused buffer."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

import pynvml

if TYPE_CHECKING:
    from gpumon.makers.nvidia.gpu import NvmlGpu
    from gpumon.makers.nvidia.queries import FieldQuery

ENTRY = struct.Struct("@IIqqIIQ")
"""``nvmlFieldValue_t``: field, scope, timestamp, latency, type of the value, code, value."""


class FieldBatch:
    """The fields of one GPU that are read together.

    Args:
        gpu: The GPU.
    """

    def __init__(self, gpu: NvmlGpu) -> None:
        self._gpu = gpu
        self.queries: list[FieldQuery] = []
        self._asked: list[FieldQuery] = []
        self._prepare()

    def add(self, query: FieldQuery) -> None:
        """Include a field from the next call on."""
        self.queries.append(query)

    def ask(self) -> int:
        """Read all fields, and let the GPU settle each field's own code."""
        if self._asked != self.queries:
            self._prepare()
        if not self._asked:
            return 0
        code = self._call()
        for query, entry in zip(self._asked, ENTRY.iter_unpack(self._buffer), strict=True):
            own_code = code or entry[5]
            if not own_code:
                own_code = query.keep(entry[4], decode(entry[4], entry[6]))
            if own_code or query.failures:
                self._gpu.settle(query, own_code)
        return 0

    def drop(self, query: FieldQuery) -> None:
        """Exclude a field from the next call on."""
        self.queries.remove(query)

    def _prepare(self) -> None:
        self._asked = list(self.queries)
        self._buffer = ctypes.create_string_buffer(ENTRY.size * len(self._asked))
        count = ctypes.c_int(len(self._asked))
        gpu = self._gpu
        self._call = gpu.prepared("nvmlDeviceGetFieldValues", gpu.handle, count, self._buffer)
        for i, query in enumerate(self._asked):
            ENTRY.pack_into(self._buffer, i * ENTRY.size, query.field, query.scope, 0, 0, 0, 0, 0)


def decode(kind: int, raw: int) -> float:
    """The number in the eight bytes of ``nvmlValue_t``.

    Args:
        kind: An ``nvmlValueType_t``; for an unknown type the result is ``raw``.
        raw: The eight bytes as an unsigned number.
    """
    if kind == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT:
        return raw & 0xFFFFFFFF
    if kind == pynvml.NVML_VALUE_TYPE_SIGNED_INT:
        return ctypes.c_int32(raw & 0xFFFFFFFF).value
    if kind == pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG:
        return ctypes.c_int64(raw).value
    if kind == pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT:
        return raw & 0xFFFF
    if kind == pynvml.NVML_VALUE_TYPE_DOUBLE:
        return ctypes.c_double.from_buffer_copy(ctypes.c_uint64(raw)).value
    return raw
