"""Reads how much of a GPU works (GPM), which NVML measures between two samples of its counters.

Hopper and later have it. A sample is a buffer of the library, so it is freed when the queries of
the GPU stop.
"""

from __future__ import annotations

from ctypes import byref, c_uint
from typing import TYPE_CHECKING

import pynvml
from msgspec.structs import replace

from gpumon.model.snapshot import Unknown
from gpumon.sources.nvml.queries import REACTIONS, PollRate, Query, Reaction

if TYPE_CHECKING:
    from gpumon.sources.nvml.card import NvmlCard

LEAST_SECONDS = 0.2
"""Between two samples: of less than 0.1 s the values are of no use (DCGM#310)."""

METRICS: dict[str, int] = {
    "sm_active": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "sm_occupancy": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor_active": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "fp64_active": pynvml.NVML_GPM_METRIC_FP64_UTIL,
    "fp32_active": pynvml.NVML_GPM_METRIC_FP32_UTIL,
    "fp16_active": pynvml.NVML_GPM_METRIC_FP16_UTIL,
    "dram_active": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
}
"""The fields of ``Gpu`` and of ``MigInstance``, and their numbers in nvml.h; all in percent."""

_NAMES = tuple(METRICS)


class GpmSampler:
    """Samples one GPU and its MIG devices.

    Args:
        card: The GPU.
    """

    def __init__(self, card: NvmlCard) -> None:
        self._card = card
        self._whole = _Pair(card)
        self._instances: dict[int, _Pair] = {}
        self._is_supported = False
        self.query = Query(_NAMES, self._ask, PollRate.PROFILE)

    def free(self) -> None:
        """Free the buffers."""
        for pair in (self._whole, *self._instances.values()):
            pair.free()
        self._instances = {}

    def _ask(self) -> int:
        """Sample the GPU; the values are those of the time since the sample before."""
        card = self._card
        if not self._is_supported or self.query.refusals:
            code = self._ask_for_support()
            if code:
                return code
        if card.mig:
            self._sample_instances()
        code = self._whole.sample("nvmlGpmSampleGet")
        if code:
            return code
        if not self._whole.is_whole:
            if self._whole.is_new:
                card.facts.miss(_NAMES, Unknown.NOT_READ)
            return pynvml.NVML_SUCCESS
        code, found = self._whole.values()
        if code:
            return code
        unknown = dict(card.facts.unknown)
        for name, value in found.items():
            if isinstance(value, Unknown):
                card.facts.values[name] = None
                unknown[name] = value
            else:
                card.facts.values[name] = value
                unknown.pop(name, None)
        if unknown != card.facts.unknown:
            card.facts.unknown = unknown
        return pynvml.NVML_SUCCESS

    def _ask_for_support(self) -> int:
        support = pynvml.c_nvmlGpmSupport_t(version=pynvml.NVML_GPM_SUPPORT_VERSION)
        code = self._card.call("nvmlGpmQueryDeviceSupport", self._card.handle, byref(support))
        self._is_supported = not code and bool(support.isSupportedDevice)
        return code if code or self._is_supported else pynvml.NVML_ERROR_NOT_SUPPORTED

    def _sample_instances(self) -> None:
        """Sample the GPU instances; one that refuses keeps its values unknown."""
        card = self._card
        present = {one.gpu_instance for one in card.mig if one.gpu_instance is not None}
        for gone in self._instances.keys() - present:
            self._instances.pop(gone).free()
        known: dict[int | None, dict[str, float | None]] = {}
        for number in present:
            pair = self._instances.setdefault(number, _Pair(card))
            if pair.sample("nvmlGpmMigSampleGet", c_uint(number)) or not pair.is_whole:
                continue
            code, found = pair.values()
            if not code:
                known[number] = {
                    name: None if isinstance(value, Unknown) else value
                    for name, value in found.items()
                }
        card.mig_shares = known
        card.mig = tuple(
            replace(one, **known.get(one.gpu_instance, {})) if one.gpu_instance is not None else one
            for one in card.mig
        )


class _Pair:
    """Two samples, taken in turn.

    Attributes:
        is_new: Whether the first of them was taken just now.
        is_whole: Whether both were taken, far enough from one another.
    """

    def __init__(self, card: NvmlCard) -> None:
        self._card = card
        self._samples = [pynvml.c_nvmlGpmSample_t(), pynvml.c_nvmlGpmSample_t()]
        self._taken_at: list[float | None] = [None, None]
        self._next = 0
        self._get = pynvml.c_nvmlGpmMetricsGet_t(
            version=pynvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(METRICS)
        )
        for metric, number in zip(self._get.metrics, METRICS.values(), strict=False):
            metric.metricId = number
        self.is_new = self.is_whole = False

    def sample(self, function: str, *which: c_uint) -> int:
        """Take a sample, unless the last one is too near; NVML's code."""
        self.is_new = self.is_whole = False
        now, last = self._card.clock.monotonic(), self._taken_at[1 - self._next]
        if last is not None and now - last < LEAST_SECONDS:
            return pynvml.NVML_SUCCESS
        code = self._allocate() or self._card.call(
            function, self._card.handle, *which, self._samples[self._next]
        )
        if code:
            # Over a longer gap the mean would tell another time.
            self._taken_at = [None, None]
            return code
        self._taken_at[self._next] = now
        self._next = 1 - self._next
        self.is_new, self.is_whole = last is None, last is not None
        return pynvml.NVML_SUCCESS

    def values(self) -> tuple[int, dict[str, float | Unknown]]:
        """The values between the two samples; NVML's code and, if that is 0, each value."""
        get = self._get
        get.sample1, get.sample2 = self._samples[self._next], self._samples[1 - self._next]
        code = self._card.call("nvmlGpmMetricsGet", byref(get))
        if code:
            return code, {}
        return code, {
            name: _value(metric.nvmlReturn, metric.value)
            for name, metric in zip(METRICS, get.metrics, strict=False)
        }

    def _allocate(self) -> int:
        for sample in self._samples:
            if not sample:
                code = self._card.call("nvmlGpmSampleAlloc", byref(sample))
                if code:
                    return code
        return pynvml.NVML_SUCCESS

    def free(self) -> None:
        """Free both, unless a call that hangs may still write into them."""
        self._taken_at = [None, None]
        for number, sample in enumerate(self._samples):
            if sample:
                if not self._card.hangs():
                    self._card.call("nvmlGpmSampleFree", sample)
                self._samples[number] = pynvml.c_nvmlGpmSample_t()


def _value(code: int, value: float) -> float | Unknown:
    """A value in percent, or why there is none."""
    if not code:
        # Rounding of counters may pass the ends; NaN fails both comparisons.
        return round(min(value, 100.0), 1) if value >= 0 else Unknown.NO_ANSWER
    return _REASONS.get(REACTIONS.get(code, Reaction.FAILING), Unknown.NO_ANSWER)


_REASONS = {
    Reaction.OTHER: Unknown.NOT_SUPPORTED,
    Reaction.STALE: Unknown.NOT_SUPPORTED,
    Reaction.REFUSED: Unknown.NO_PERMISSION,
    Reaction.EMPTY: Unknown.NOT_READ,
}
