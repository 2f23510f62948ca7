"""Reads how much of a GPU works (GPM), which NVML measures between two samples of its counters.

Hopper and later have it. A sample is a buffer of the library, so it is freed when the queries of
the GPU stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml
from msgspec.structs import replace

from gpumon.makers.nvidia.queries import REACTIONS, PollRate, Query, Reaction
from gpumon.model.snapshot import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.makers.nvidia.gpu import NvmlGpu

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
_NONE_KNOWN: dict[str, float | None] = dict.fromkeys(METRICS)


class GpmSampler:
    """Samples one GPU and its GPU instances.

    Some drivers refuse the GPU as a whole while it is divided, so its instances have a query of
    their own.

    Args:
        gpu: The GPU.

    Attributes:
        queries: What reads the values.
    """

    def __init__(self, gpu: NvmlGpu) -> None:
        self._gpu = gpu
        self._whole = _Pair(gpu)
        self._instances: dict[int, _Pair] = {}
        self._is_supported = False
        self._query = Query(_NAMES, self._ask, PollRate.PROFILE)
        self._instance_query = Query((), self._ask_instances, PollRate.PROFILE)
        self.queries = (self._query, self._instance_query)

    def free(self) -> None:
        """Free the buffers."""
        for pair in (self._whole, *self._instances.values()):
            pair.free()
        self._instances = {}

    def _ask(self) -> int:
        """Sample the GPU; the values are those of the time since the sample before."""
        answers = self._gpu.answers
        code = self._ask_for_support(self._query)
        if code:
            return code
        code, found = self._whole.read(pynvml.nvmlGpmSampleGet)
        if code or found is None:
            return code
        if not found:
            answers.miss(_NAMES, Unknown.NOT_READ)
            return code
        reasons = {name: value for name, value in found.items() if isinstance(value, Unknown)}
        answers.values.update(_known(found))
        unknown = {
            name: why for name, why in answers.unknown.items() if name not in found
        } | reasons
        if unknown != answers.unknown:
            answers.unknown = unknown
        return code

    def _ask_for_support(self, query: Query) -> int:
        """Whether the GPU supports GPM, asked once, and again when a refused query is retried."""
        if self._is_supported and not query.refusals:
            return pynvml.NVML_SUCCESS
        gpu = self._gpu
        code, support = gpu.ask_driver(pynvml.nvmlGpmQueryDeviceSupport, gpu.handle)
        self._is_supported = not code and bool(support.isSupportedDevice)
        return code if code or self._is_supported else pynvml.NVML_ERROR_NOT_SUPPORTED

    def _ask_instances(self) -> int:
        """Sample the GPU instances; NVML's code if none of them can be sampled."""
        gpu = self._gpu
        present = {mig.gpu_instance for mig in gpu.mig if mig.gpu_instance is not None}
        for gone in self._instances.keys() - present:
            self._instances.pop(gone).free()
        shares: dict[int | None, dict[str, float | None]] = {}
        code = self._ask_for_support(self._instance_query) if present else pynvml.NVML_SUCCESS
        errors = []
        for number in sorted(present) if not code else ():
            pair = self._instances.setdefault(number, _Pair(gpu))
            error, found = pair.read(pynvml.nvmlGpmMigSampleGet, number)
            if REACTIONS.get(error) in {Reaction.GPU, Reaction.DRIVER}:
                return error
            if error:
                errors.append(error)
            elif found is None:
                shares[number] = gpu.mig_shares.get(number, {})
            else:
                shares[number] = _known(found)
        if errors and len(errors) == len(present):
            code = errors[0]
        gpu.mig_shares = shares
        gpu.mig = tuple(
            replace(mig, **(_NONE_KNOWN | shares.get(mig.gpu_instance, {}))) for mig in gpu.mig
        )
        return code


class _Pair:
    """Two samples, taken in turn."""

    def __init__(self, gpu: NvmlGpu) -> None:
        self._gpu = gpu
        self._older: Any = None
        self._newer: Any = None
        self._taken_at: float | None = None
        self._get = pynvml.c_nvmlGpmMetricsGet_t(
            version=pynvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(METRICS)
        )
        for metric, number in zip(self._get.metrics, METRICS.values(), strict=False):
            metric.metricId = number

    def read(
        self, function: Callable[..., Any], *which: int
    ) -> tuple[int, dict[str, float | Unknown] | None]:
        """Take a sample.

        Args:
            function: NVML's, which takes it.
            which: The GPU instance, if not of the whole GPU.

        Returns:
            NVML's code, and the values since the sample before: empty if there was none, ``None``
            if it was too near to take another one.
        """
        now, before = self._gpu.clock.monotonic(), self._taken_at
        if before is not None and now - before < LEAST_SECONDS:
            return pynvml.NVML_SUCCESS, None
        # After an error the values of the next pair would be of a longer time than they seem.
        self._taken_at = None
        # The older one is overwritten.
        code = self._allocate()
        if not code:
            code, _ = self._gpu.ask_driver(function, self._gpu.handle, *which, self._older)
        if code:
            return code, None
        self._older, self._newer = self._newer, self._older
        if before is not None:
            code, found = self._values()
            if code:
                return code, None
        else:
            found = {}
        self._taken_at = now
        return code, found

    def _values(self) -> tuple[int, dict[str, float | Unknown]]:
        get = self._get
        get.sample1, get.sample2 = self._older, self._newer
        code, _ = self._gpu.ask_driver(pynvml.nvmlGpmMetricsGet, get)
        return code, {
            name: _value(metric.nvmlReturn, metric.value)
            for name, metric in zip(METRICS, get.metrics, strict=False)
        }

    def _allocate(self) -> int:
        code = pynvml.NVML_SUCCESS
        if not self._older:
            code, self._older = self._gpu.ask_driver(pynvml.nvmlGpmSampleAlloc)
        if not self._newer and not code:
            code, self._newer = self._gpu.ask_driver(pynvml.nvmlGpmSampleAlloc)
        return code

    def free(self) -> None:
        """Free both, unless a call that hangs may still write into them."""
        if not self._gpu.hangs():
            for sample in (self._older, self._newer):
                if sample:
                    self._gpu.ask_driver(pynvml.nvmlGpmSampleFree, sample)
        self._older = self._newer = None
        self._taken_at = None


def _known(found: dict[str, float | Unknown]) -> dict[str, float | None]:
    return {name: None if isinstance(value, Unknown) else value for name, value in found.items()}


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
