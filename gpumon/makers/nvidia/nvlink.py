"""Reads the NVLinks of a GPU: which are up, their traffic and their errors."""

from __future__ import annotations

from ctypes import byref, c_uint
from typing import TYPE_CHECKING

import pynvml

from gpumon.makers.nvidia.queries import FieldQuery, PollRate, Query
from gpumon.makers.nvidia.query_builders import counter_query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.makers.nvidia.gpu import NvmlGpu


def nvlinks(gpu: NvmlGpu) -> Query:
    """How many links there are, and how many are up."""
    most = 1

    def ask() -> int:
        nonlocal most
        links = active = 0
        state = c_uint()
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            code = gpu.call("nvmlDeviceGetNvLinkState", gpu.handle, link, byref(state))
            missing = {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT}
            if code in missing and links >= most:
                # The first missing link ends the list. Links never become fewer: a refusal before
                # the last known one is an error.
                break
            if code:
                return code
            links += 1
            active += state.value
        most = max(links, most)
        gpu.facts.values["nvlink_count"] = links
        gpu.facts.values["nvlink_active"] = active
        return pynvml.NVML_SUCCESS

    return Query(("nvlink_count", "nvlink_active"), ask, PollRate.RARE)


def nvlink_traffic(gpu: NvmlGpu) -> Iterator[Query]:
    """Bytes per second over all links, sent and received."""
    yield _bytes(
        gpu,
        "nvlink_tx",
        kibibytes=pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        byte_field=pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES,
    )
    yield _bytes(
        gpu,
        "nvlink_rx",
        kibibytes=pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        byte_field=pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES,
    )


def _bytes(gpu: NvmlGpu, name: str, kibibytes: int, byte_field: int) -> Query:
    """Up to NVLink 4 the counter is in KiB; NVLink 5 has another one, in bytes."""
    every = FieldQuery.ALL_LINKS
    newer = counter_query(gpu, name, byte_field, 1, None, scope=every)
    return counter_query(gpu, name, kibibytes, 1024, newer, scope=every)


def nvlink_errors(gpu: NvmlGpu) -> Iterator[Query]:
    """Replays and recoveries of all links together.

    CRC errors are not counted: they matter at 100 a second only (DCGM's hardware limits), and
    those that matter lead to replays. Not available from NVLink 5 on, which counts otherwise.
    """
    counts: dict[int, int] = {}

    def of(field: int) -> Query:
        def keep(_kind: int, value: float) -> int:
            counts[field] = int(value)
            if len(counts) == len(_ERROR_FIELDS):
                gpu.facts.values["nvlink_errors"] = sum(counts.values())
            return pynvml.NVML_SUCCESS

        return FieldQuery(("nvlink_errors",), field, keep, PollRate.SLOW)

    for field in _ERROR_FIELDS:
        yield of(field)


_ERROR_FIELDS = (
    pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
)
