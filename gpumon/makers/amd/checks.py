"""Checks of ``gpumon doctor`` on AMD's driver and ROCm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.doctor import MakerChecks, check, failed, passed, warned
from gpumon.doctor.access import in_container, no_permission
from gpumon.doctor.context import exists, resolved
from gpumon.makers.amd import MAKER
from gpumon.makers.drm.checks import (
    LOST,
    NO_GROUP,
    REPLACE,
    driver_result,
    process_lists,
    render_nodes,
    used_gpus,
    visible_result,
)
from gpumon.text.formatting import counted

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext, ExaminedMachine

_NO_DRIVER = (
    "Run `sudo modprobe amdgpu`, then `sudo dmesg | grep amdgpu`: the kernel may be too old for "
    "the GPU, or its firmware (linux-firmware) missing."
)
# The kernel parameters are those of CONFIG_DRM_AMDGPU_SI and CONFIG_DRM_AMDGPU_CIK in the kernel's
# ``drivers/gpu/drm/amd/amdgpu/Kconfig``.
_RADEON = (
    "The first two generations of GCN (HD 7000 to R9 290) work with amdgpu too: start the kernel "
    "with `radeon.si_support=0 amdgpu.si_support=1 radeon.cik_support=0 amdgpu.cik_support=1`. "
    "gpumon and ROCm cannot use older ones."
)
_KFD = "/dev/kfd"
_NODES = "/sys/class/kfd/kfd/topology/nodes"
# See rocm.docs.amd.com, "Running ROCm Docker containers".
_CONTAINER = "Start the container with --device /dev/kfd --device /dev/dri."


@check("AMD driver")
def amd_driver(context: DiagnosticContext) -> Result | None:
    """Whether AMD's GPUs have the driver ``amdgpu``, and its version.

    It finds the older ``radeon``, GPUs without a driver, and a changed parameter ``noretry``
    (XNACK).
    """
    cards = context.cards_of(MAKER)
    if any(card.driver == "radeon" for card in cards) and not context.in_wsl:
        complain = warned if context.gpus else failed
        return complain(
            "The old driver radeon controls a GPU: gpumon and ROCm need amdgpu.",
            _RADEON,
            *(f"{card.slot}  {card.driver or 'no driver'}" for card in cards),
        )
    return driver_result(context, MAKER, _NO_DRIVER, _parameters(context))


def _parameters(context: DiagnosticContext) -> list[str]:
    """Parameters of amdgpu that were changed and decide what programs may do."""
    retry = (context.machine.text("/sys/module/amdgpu/parameters/noretry") or "").strip()
    if not any(card.driver == "amdgpu" for card in context.cards) or retry not in {"0", "1"}:
        return []
    # The kernel's ``Documentation/gpu/amdgpu/module-parameters.rst``.
    return [
        f"noretry={retry}: retries after page faults (XNACK) are {'off' if int(retry) else 'on'}"
    ]


@check("/dev/kfd")
def compute_driver(context: DiagnosticContext) -> Result | None:
    """Whether you may open ``/dev/kfd``, which ROCm needs, and whether it supports a GPU.

    The second is read from ``/sys/class/kfd``.
    """
    cards = used_gpus(context, MAKER)
    rocm = bool(rocm_versions(context.machine))
    if not cards or context.in_wsl or (not rocm and all(card.integrated for card in cards)):
        return None
    file = context.machine.path(_KFD)
    if not exists(file):
        complain = failed if rocm else warned
        return complain(
            f"There is no {_KFD}: programs draw, but ROCm's programs do not start.",
            _CONTAINER
            if in_container(context)
            else "The kernel may be built without CONFIG_HSA_AMD, or the GPU be older than what "
            "KFD supports: `sudo dmesg | grep kfd` says which.",
        )
    effect, contained = ": ROCm's programs do not start", in_container(context)
    barred = no_permission(context, [file], effect, otherwise=NO_GROUP, contained=contained)
    if barred:
        return barred
    numbers = [
        context.machine.text(f"{context.machine.name(folder)}/gpu_id")
        for folder in context.machine.folder(_NODES, "*")
    ]
    # A number that cannot be read is that of a GPU that this cgroup may not use; 0 is a processor.
    if numbers and all(number is not None and number.strip() == "0" for number in numbers):
        return warned(
            "You may open it, but KFD supports no GPU of this machine: ROCm's programs find none.",
            "Run `sudo dmesg | grep kfd`: the GPU may be too old, or its slot lack PCIe atomics.",
        )
    return passed(f"You may open {_KFD}, which ROCm needs.")


@check("ROCm")
def rocm(context: DiagnosticContext) -> Result | None:
    """Installed versions of ROCm: ``/opt/rocm/.info/version``, ``/opt/rocm-*``.

    Also ``HSA_XNACK``.
    """
    versions = rocm_versions(context.machine)
    if not versions:
        if not context.gpus_of(MAKER):
            return None
        return passed("None in /opt: Python packages include their own libraries.")
    details = [f"{version}  {path}" for path, version in versions.items()]
    retry = context.machine.environ.get("HSA_XNACK")
    if retry is not None:
        details.append(f"HSA_XNACK={retry}")
    return passed(f"{counted(len(versions), 'installation')}.", *details)


def rocm_versions(machine: ExaminedMachine) -> dict[str, str]:
    """The version of ROCm by folder; the same folder once."""
    found: dict[str, str] = {}
    seen: set[Path] = set()
    for folder in (machine.path("/opt/rocm"), *machine.folder("/opt", "rocm-*")):
        name = machine.name(folder)
        version = (machine.text(f"{name}/.info/version") or "").strip()
        if version and resolved(folder) not in seen:
            seen.add(resolved(folder))
            found[name] = version
    return found


@check("visible AMD")
def visible_amd(context: DiagnosticContext) -> Result | None:
    """The AMD GPUs that ``ROCR_VISIBLE_DEVICES`` and ``HIP_VISIBLE_DEVICES`` select here."""
    return visible_result(context, MAKER, (*MAKER.variables, "CUDA_VISIBLE_DEVICES"), "UUIDs")


CHECKS = MakerChecks(
    slots={
        "driver": (amd_driver,),
        "device files": (render_nodes, compute_driver),
        "process lists": (process_lists,),
        "toolkits": (rocm,),
        "visible devices": (visible_amd,),
    },
    container=_CONTAINER,
    process_note="Those of ROCm are shown for all users.",
    lost=LOST,
    replace=REPLACE,
    platform="rocm",
    platform_words="ROCm {}",
    # The GPU of a processor is mostly there for the display.
    computes_when_integrated=lambda context: bool(rocm_versions(context.machine)),
    # The pages "Get started" of pytorch.org and "Installation" of docs.jax.dev.
    frameworks={
        "torch": 'Install the build for ROCm: the page "Get started" of pytorch.org has the '
        "command.",
        "TensorFlow": "Install tensorflow-rocm as ROCm's documentation says.",
        "JAX": "Install JAX's plugin for ROCm as docs.jax.dev says.",
    },
)
