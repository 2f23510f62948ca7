"""The list of checks, in the order of their dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gpumon.doctor import access, cuda, driver, drm, frameworks, gpus, own, rocm, terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpumon.doctor.context import DiagnosticContext
    from gpumon.doctor.result import Result

Check: TypeAlias = "Callable[[DiagnosticContext], Result | None]"

SECTIONS: tuple[tuple[str, tuple[Check, ...]], ...] = (
    (
        "Driver",
        (
            driver.gpus_on_the_bus,
            driver.kernel_module,
            driver.library,
            driver.cuda_library,
            drm.amd_driver,
            drm.intel_driver,
            driver.answer,
        ),
    ),
    (
        "Access",
        (
            access.device_files,
            access.unified_memory,
            access.device_limits,
            drm.render_nodes,
            drm.compute_driver,
            access.pid_namespace,
            access.hidden_processes,
            drm.process_lists,
        ),
    ),
    (
        "GPUs",
        (
            gpus.answering,
            gpus.persistence,
            gpus.memory_health,
            gpus.profiling,
            gpus.reported_errors,
            gpus.asleep,
            drm.processor_gpus,
        ),
    ),
    (
        "Computing",
        (
            cuda.newest,
            cuda.toolkits,
            cuda.cudnn,
            rocm.rocm,
            cuda.visible,
            drm.visible_amd,
            drm.visible_intel,
            frameworks.torch,
            frameworks.tensorflow,
            frameworks.jax,
        ),
    ),
    ("Terminal", (terminal.kind, terminal.characters, terminal.colours, terminal.whole_frames)),
    ("gpumon", (own.version, own.configuration, own.state, own.locks)),
)


def examine(case: DiagnosticContext) -> Iterator[tuple[str, Result]]:
    """Run every check: its section title and result."""
    for title, checks in SECTIONS:
        for check in checks:
            result = check(case)
            if result is not None:
                yield title, result
