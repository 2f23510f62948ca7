"""The list of checks, in the order of their dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from gpumon.doctor import access, cuda, driver, drm, frameworks, gpus, own, rocm, terminal
from gpumon.doctor.result import unknown, why_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpumon.doctor.context import DiagnosticContext
    from gpumon.doctor.result import Result

Check: TypeAlias = "Callable[[DiagnosticContext], Result | None]"

SECTIONS: dict[str, dict[str, Check]] = {
    "Driver": {
        "GPUs on the bus": driver.gpus_on_the_bus,
        "kernel module": driver.kernel_module,
        "driver library": driver.library,
        "CUDA library": driver.cuda_library,
        "AMD driver": drm.amd_driver,
        "Intel driver": drm.intel_driver,
        "answer": driver.answer,
    },
    "Access": {
        "device files": access.device_files,
        "nvidia-uvm": access.unified_memory,
        "cgroup limits": access.device_limits,
        "render nodes": drm.render_nodes,
        "/dev/kfd": drm.compute_driver,
        "process numbers": access.pid_namespace,
        "other users": access.hidden_processes,
        "ended processes": access.ended_processes,
        "process lists": drm.process_lists,
    },
    "GPUs": {
        "GPUs answer": gpus.answering,
        "persistence mode": gpus.persistence,
        "GPU memory": gpus.memory_health,
        "work of the SMs": gpus.profiling,
        "reported errors": gpus.reported_errors,
        "asleep": gpus.asleep,
        "processor's GPU": drm.processor_gpus,
    },
    "Computing": {
        "newest CUDA": cuda.newest,
        "toolkits": cuda.toolkits,
        "cuDNN": cuda.cudnn,
        "ROCm": rocm.rocm,
        "visible GPUs": cuda.visible,
        "visible AMD": drm.visible_amd,
        "visible Intel": drm.visible_intel,
        "torch": frameworks.torch,
        "TensorFlow": frameworks.tensorflow,
        "JAX": frameworks.jax,
    },
    "Terminal": {
        "kind": terminal.kind,
        "characters": terminal.characters,
        "colours": terminal.colours,
        "whole frames": terminal.whole_frames,
    },
    "gpumon": {
        "version": own.version,
        "configuration": own.configuration,
        "state": own.state,
        "locks": own.locks,
    },
}
"""The checks by section and name; names are the same in every version of gpumon."""


def examine(case: DiagnosticContext) -> Iterator[tuple[str, Result]]:
    """Run every check: its section title and result."""
    for title, checks in SECTIONS.items():
        for name, check in checks.items():
            result = _result(check, case)
            if result is not None:
                yield title, replace(result, check=name)


def _result(check: Check, case: DiagnosticContext) -> Result | None:
    """The result of a check; if the check itself fails, the result says so."""
    try:
        return check(case)
    except Exception as error:  # noqa: BLE001 - the other checks must run
        return unknown(
            f"The check failed: {why_failed(error)}",
            "If the reason is not on this machine, please report it with this output.",
        )
