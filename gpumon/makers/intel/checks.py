"""Checks of ``gpumon doctor`` on Intel's drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.doctor import MakerChecks, check
from gpumon.makers.drm.checks import (
    LOST,
    REPLACE,
    driver_result,
    process_lists,
    render_nodes,
    visible_result,
)
from gpumon.makers.intel import MAKER

if TYPE_CHECKING:
    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext

_NO_DRIVER = (
    "Run `sudo dmesg | grep -E 'i915|xe'`: the kernel may be too old for the GPU, or its firmware "
    "(linux-firmware) missing."
)


@check("Intel driver")
def intel_driver(context: DiagnosticContext) -> Result | None:
    """Whether Intel's GPUs have the driver ``i915`` or ``xe``, not none; its version."""
    return driver_result(context, MAKER, _NO_DRIVER)


@check("visible Intel")
def visible_intel(context: DiagnosticContext) -> Result | None:
    """The Intel GPUs that ``ZE_AFFINITY_MASK`` selects here."""
    return visible_result(context, MAKER, MAKER.variables, "ZE_ENABLE_PCI_ID_DEVICE_ORDER=1")


CHECKS = MakerChecks(
    slots={
        "driver": (intel_driver,),
        "device files": (render_nodes,),
        "process lists": (process_lists,),
        "visible devices": (visible_intel,),
    },
    container="Start the container with --device /dev/dri.",
    process_note="How busy Intel's GPUs are, and how much memory is used, is known to root only.",
    lost=LOST,
    replace=REPLACE,
    platform="xpu",
    platform_words="Intel's GPUs (XPU {})",
    frameworks={
        "torch": "Install the build for XPU: pytorch.org has the command.",
        "TensorFlow": "Intel's extension for TensorFlow supports some of its GPUs.",
        "JAX": "Intel's extension for OpenXLA supports some of its GPUs.",
    },
)
