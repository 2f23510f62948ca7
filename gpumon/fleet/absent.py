"""GPUs that are known, and have no values now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.makers.backend_gpu import REASON_OF_STATUS
from gpumon.model.metrics import Tier
from gpumon.model.snapshot import GPU_METRICS, Gpu

if TYPE_CHECKING:
    from gpumon.model.snapshot import GpuStatus

_FIELDS = tuple(one.field for one in GPU_METRICS if one.field not in {"index", "uuid"})
STATIC_FIELDS = tuple(
    one.field for one in GPU_METRICS if one.tier is Tier.STATIC and one.field in _FIELDS
)
"""Values that never change, besides index and UUID."""


def without_values(gpu: Gpu, status: GpuStatus) -> Gpu:
    """The GPU with its static values only."""
    kept = {field: getattr(gpu, field) for field in STATIC_FIELDS}
    missing = [field for field in (*_FIELDS, "fan_speeds") if kept.get(field) is None]
    return Gpu(
        gpu.index,
        gpu.uuid,
        status,
        sampled_at=gpu.sampled_at,
        unknown=dict.fromkeys((*missing, "processes"), REASON_OF_STATUS[status]),
        **kept,
    )
