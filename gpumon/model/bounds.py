"""Makes values unknown that no hardware has. Every source does so where its snapshots begin.

Drivers report such values: more memory in use than there is (HAMi#1181), all bits of a number set,
255 °C. The bounds are those of the metrics.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, ValidationError, convert, defstruct
from msgspec.structs import replace

from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS, MigInstance, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.processes import GpuProcess, GpuUse
    from gpumon.model.snapshot import Gpu, Snapshot

MOST_ENGINES = 1000
"""Percent of its engines that a process uses at most: it may use several."""

_BOUNDED = tuple(metric for metric in GPU_METRICS if metric.is_bounded and metric.field != "index")
_values = attrgetter(*(metric.field for metric in _BOUNDED))
_LIMITS = tuple((metric.field, *metric.possible) for metric in _BOUNDED)
PARTS = tuple((metric.field, metric.at_most) for metric in GPU_METRICS if metric.at_most)
"""Fields of a GPU whose value is never above that of another field."""
_MIG_LIMITS = tuple(limit for limit in _LIMITS if limit[0] in MigInstance.__struct_fields__)
_MIG_PARTS = tuple(part for part in PARTS if part[0] in MigInstance.__struct_fields__)
_parts = attrgetter(*(part for part, _ in PARTS))
_wholes = attrgetter(*(whole for _, whole in PARTS))
_ENGINES = ("sm", "memory_activity", "encoder", "decoder")


def plausible(snapshot: Snapshot) -> Snapshot:
    """The snapshot without impossible values; the same object if it has none."""
    gpus = plausible_gpus(snapshot.gpus)
    processes = plausible_processes(snapshot.processes, gpus)
    if gpus is snapshot.gpus and processes is snapshot.processes:
        return snapshot
    return replace(snapshot, gpus=gpus, processes=processes)


def plausible_gpus(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """GPUs without impossible values; the same object if they have none."""
    made = tuple([_gpu(gpu) for gpu in gpus])
    return gpus if all(map(_is, made, gpus)) else made


def plausible_processes(
    processes: tuple[GpuProcess, ...], gpus: Iterable[Gpu]
) -> tuple[GpuProcess, ...]:
    """Processes without impossible values; the same object if they have none.

    PID 0 is no process: drivers of Jetson list it.
    """
    # A process of a GPU without memory of its own may have any of the machine's.
    totals = {
        gpu.uuid: gpu.memory_total
        for gpu in gpus
        if gpu.memory_total is not None and not gpu.memory_unified
    }
    highest = GPU_METRIC["memory_used"].possible[1]

    def is_possible(use: GpuUse) -> bool:
        memory = use.memory_used
        return (
            (memory is None or 0 <= memory <= totals.get(use.gpu_uuid, highest))
            and 0 <= (use.sm or 0) <= MOST_ENGINES
            and 0 <= (use.memory_activity or 0) <= MOST_ENGINES
            and 0 <= (use.encoder or 0) <= MOST_ENGINES
            and 0 <= (use.decoder or 0) <= MOST_ENGINES
        )

    if any(process.id.pid <= 0 for process in processes):
        processes = tuple([process for process in processes if process.id.pid > 0])
    if all(is_possible(use) for process in processes for use in process.uses):
        return processes
    return tuple(
        [
            process
            if all(map(is_possible, process.uses))
            else replace(
                process,
                uses=tuple(
                    [
                        use if is_possible(use) else _use(use, totals.get(use.gpu_uuid, highest))
                        for use in process.uses
                    ]
                ),
            )
            for process in processes
        ]
    )


def _is(one: object, other: object) -> bool:
    return one is other


@cache
def _possible() -> Any:
    """A structure of the possible values, which checks those of a GPU in a third of the time."""
    kinds = {
        limits: Annotated[float, Meta(ge=limits[0], le=limits[1])] | None
        for limits in {metric.possible for metric in _BOUNDED}
    }
    return defstruct("Possible", [(metric.field, kinds[metric.possible]) for metric in _BOUNDED])


def _wrong(gpu: Gpu) -> dict[str, Any]:
    """Impossible values, each with ``None`` in its place."""
    with suppress(ValidationError):
        convert(gpu, _possible(), from_attributes=True)
        return {}
    return {
        field: None
        for value, (field, low, high) in zip(_values(gpu), _LIMITS, strict=True)
        if value is not None and not low <= value <= high
    }


def _gpu(gpu: Gpu) -> Gpu:
    wrong = _wrong(gpu)
    for part, whole, (field, of) in zip(_parts(gpu), _wholes(gpu), PARTS, strict=True):
        if part is not None and whole is not None and part > whole and of not in wrong:
            wrong[field] = None
    if gpu.fan_speeds and max(gpu.fan_speeds) > GPU_METRIC["fan_speed"].possible[1]:
        wrong["fan_speeds"] = None
    mig = gpu.mig and tuple(map(_mig, gpu.mig))
    if not wrong and all(map(_is, mig, gpu.mig)):
        return gpu
    unknown = {**gpu.unknown, **dict.fromkeys(wrong, Unknown.IMPOSSIBLE)}
    return replace(gpu, unknown=unknown, mig=mig, **wrong)


def _mig(instance: MigInstance) -> MigInstance:
    wrong: dict[str, Any] = {
        field: None
        for field, low, high in _MIG_LIMITS
        if (value := getattr(instance, field)) is not None and not low <= value <= high
    }
    for field, of in _MIG_PARTS:
        part, whole = getattr(instance, field), getattr(instance, of)
        if part is not None and whole is not None and part > whole and of not in wrong:
            wrong[field] = None
    return replace(instance, **wrong) if wrong else instance


def _use(use: GpuUse, most: float) -> GpuUse:
    wrong: dict[str, Any] = {
        field: None for field in _ENGINES if not 0 <= (getattr(use, field) or 0) <= MOST_ENGINES
    }
    if use.memory_used is not None and not 0 <= use.memory_used <= most:
        wrong["memory_used"] = None
    return replace(use, **wrong)
