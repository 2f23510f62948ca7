"""The MIG devices of a card: slices that NVML gives handles of their own."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model import MigInstance
from gpumon.sources.nvml.library import Code
from gpumon.sources.nvml.reading import REACTIONS, Pace, Reaction, Reading, pause_after
from gpumon.sources.nvml.structures import DeviceAttributes, Memory, MemoryV2

if TYPE_CHECKING:
    from gpumon.sources.nvml.card import Card

_SEPARATOR = " MIG "
"""Between the card's name and the profile's in the name of a MIG device."""


class _Slice(Struct, frozen=True):
    """What never changes of a MIG device.

    Attributes:
        retry_at: When what it did not tell is asked again, on the monotonic clock; ``None`` where
            it told everything.
        refusals: How often in a row it did not tell everything.
    """

    uuid: str
    gpu_instance: int | None
    compute_instance: int | None
    profile: str | None
    multiprocessors: int | None
    retry_at: float | None
    refusals: int


def mig_question(card: Card) -> Reading:
    """Whether MIG is on, and which instances there are.

    Handles of MIG devices go stale whenever one is made or destroyed, so they are asked for anew
    each time; what they stand for is kept by UUID.
    """
    known: dict[str, _Slice] = {}
    mode, pending, most = c_uint(), c_uint(), c_uint()

    def ask() -> int:
        code = card.call("nvmlDeviceGetMigMode", card.handle, byref(mode), byref(pending))
        if code:
            return code
        was_on = card.facts.values.get("mig_mode")
        is_on = card.facts.values["mig_mode"] = bool(mode.value)
        if was_on is not None and was_on is not is_on:
            card.mig_changed = True
        if not is_on:
            card.mig, card.mig_handles = (), ()
            return Code.SUCCESS
        code = card.call("nvmlDeviceGetMaxMigDeviceCount", card.handle, byref(most))
        if code:
            return code
        code, found = _instances(card, most.value, known)
        if code:
            return code
        if found and not card.mig:
            card.ask_about_processes_again()
        card.mig = tuple(instance for instance, _ in found)
        card.mig_handles = tuple(handle for _, handle in found)
        return Code.SUCCESS

    return Reading(("mig_mode",), ask, Pace.SLOW)


def _instances(
    card: Card, most: int, known: dict[str, _Slice]
) -> tuple[int, list[tuple[MigInstance, ctypes.c_void_p]]]:
    """The instances there are, and a code where it is not about one of them but about all."""
    before = {
        instance.index: (instance, handle)
        for instance, handle in zip(card.mig, card.mig_handles, strict=True)
    }
    found = []
    for index in range(most):
        handle = ctypes.c_void_p()
        code = card.call(
            "nvmlDeviceGetMigDeviceHandleByIndex", card.handle, c_uint(index), byref(handle)
        )
        uuid = ""
        if not code:
            code, uuid = card.text("nvmlDeviceGetUUID", handle)
        reaction = REACTIONS.get(code, Reaction.FAILING)
        if not code:
            what = known.get(uuid)
            if what is None or (
                what.retry_at is not None and what.retry_at <= card.clock.monotonic()
            ):
                what = known[uuid] = _describe(card, handle, uuid, what)
            found.append((_measure(card, handle, index, what), handle))
        elif reaction in {Reaction.CARD, Reaction.DRIVER}:
            return code, []
        elif reaction in {Reaction.PASSING, Reaction.FAILING} and index in before:
            found.append(before[index])
        # NOT_FOUND is a gap. Whatever else ails one instance is no reason to lose the others.
    return Code.SUCCESS, found


def _describe(card: Card, handle: ctypes.c_void_p, uuid: str, before: _Slice | None) -> _Slice:
    """What an instance is; ``before`` is what it told the last time."""
    gpu_instance, compute_instance = c_uint(), c_uint()
    no_gpu = card.call("nvmlDeviceGetGpuInstanceId", handle, byref(gpu_instance))
    no_compute = card.call("nvmlDeviceGetComputeInstanceId", handle, byref(compute_instance))
    attributes = DeviceAttributes()
    no_attributes = card.call("nvmlDeviceGetAttributes_v2", handle, byref(attributes))
    no_name, name = card.text("nvmlDeviceGetName", handle)
    _, separator, profile = name.partition(_SEPARATOR)
    retry_at, refusals = None, 0
    errors = [code for code in (no_gpu, no_compute, no_attributes, no_name) if code]
    if errors:
        refusals = 1 if before is None else before.refusals + 1
        reactions = {REACTIONS.get(code, Reaction.FAILING) for code in errors}
        passes = not reactions.isdisjoint({Reaction.PASSING, Reaction.FAILING})
        retry_at = card.clock.monotonic()
        retry_at += 0.0 if passes else pause_after(refusals, answered=False)
    return _Slice(
        uuid=uuid,
        gpu_instance=None if no_gpu else gpu_instance.value,
        compute_instance=None if no_compute else compute_instance.value,
        profile=profile if separator and not no_name else None,
        multiprocessors=None if no_attributes else attributes.multiprocessorCount,
        retry_at=retry_at,
        refusals=refusals,
    )


def _measure(card: Card, handle: ctypes.c_void_p, index: int, what: _Slice) -> MigInstance:
    memory: MemoryV2 | Memory = MemoryV2(version=MemoryV2.VERSION)
    code = card.call("nvmlDeviceGetMemoryInfo_v2", handle, byref(memory))
    if code and not card.has("nvmlDeviceGetMemoryInfo_v2"):
        memory = Memory()
        code = card.call("nvmlDeviceGetMemoryInfo", handle, byref(memory))
    return MigInstance(
        uuid=what.uuid,
        index=index,
        gpu_instance=what.gpu_instance,
        compute_instance=what.compute_instance,
        profile=what.profile,
        multiprocessors=what.multiprocessors,
        memory_total=None if code else memory.total,
        memory_used=None if code else memory.used,
        memory_free=None if code else memory.free,
    )
