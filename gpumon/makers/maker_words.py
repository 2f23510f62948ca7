"""Which fields of ``Gpu`` have a meaning for which maker."""

from __future__ import annotations

from gpumon.model.makers import maker_of

_ONLY_NVIDIA = frozenset(
    (
        *(
            "compute_capability",
            "memory_reserved",
            "bar1_used",
            "utilization_ofa",
        ),
        *("sm_active", "sm_occupancy", "tensor_active", "fp64_active", "fp32_active"),
        *("fp16_active", "dram_active", "pstate", "nvlink_active", "nvlink_count", "nvlink_rx"),
        *("nvlink_tx", "nvlink_errors", "remapped_rows_correctable", "remapped_rows_uncorrectable"),
        *("remapped_rows_pending", "remapped_rows_failure", "retired_pages_single_bit"),
        *("recovery_action", "xid", "xid_at", "persistence_mode", "compute_mode", "mig_mode"),
    )
)
"""Fields of ``Gpu`` that mean a feature of NVIDIA's GPUs or driver."""

_NOT_NVIDIA = frozenset(("temperature_hotspot", "fan_rpm"))
"""Fields of ``Gpu`` that NVIDIA's driver does not report."""


def is_meant_for(field: str, name: str | None) -> bool:
    """Whether a field of ``Gpu`` has a meaning for a GPU with this product name."""
    return field not in (_NOT_NVIDIA if maker_of(name).name == "NVIDIA" else _ONLY_NVIDIA)
