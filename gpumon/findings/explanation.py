"""What a kind of finding means, in words; and the sources of these."""

from __future__ import annotations

from msgspec import Struct


class ExplanationText(Struct, frozen=True):
    """What each finding of a kind means, what else it could be, and what to do."""

    meaning: str
    """What the state means, for GPUs of every maker."""
    causes: tuple[str, ...]
    """What it could be instead, or what can cause it; empty if there is nothing else."""
    advice: tuple[str, ...]
    """What to do, with ``{log}`` and ``{variable}`` for the words of the maker."""
    source: str
    """Where this is documented for GPUs of the first maker."""
    other_source: str = ""
    """The same for other makers; empty if it is the same."""
    other_advice: tuple[str, ...] = ()
    """The advice for other makers; empty if it is the same."""


DEBUG = "docs.nvidia.com/deploy/gpu-debug-guidelines"
CLOCKS = "docs.nvidia.com/deploy/nvml-api, NvmlClocksEventReasons"
NVML = "docs.nvidia.com/deploy/nvml-api"
SMI_PROCESSES = "nvidia-smi(1), Processes"
DCGM = "docs.nvidia.com/datacenter/dcgm, Profiling Metrics"
TORCH_MEMORY = "docs.pytorch.org, Understanding CUDA Memory Usage"
README = "docs/alerts.md of gpumon"
KERNEL = "docs.kernel.org, gpu"
THERMAL_SOURCE = f"{KERNEL}/amdgpu/thermal"
USAGE_SOURCE = f"{KERNEL}/drm-usage-stats"

ASK_OWNER = "Ask the owner of its processes before you use it."
LOOK_IN_LOG = "Look for {log} in the kernel log: `sudo dmesg`."
AS_ROOT = "As root gpumon sees the processes of all users."
END_IF_YOURS = "Ask its owner, or end it if it is yours."
SEE_HOLDERS = "See who holds the device file, on the page of the GPU."
