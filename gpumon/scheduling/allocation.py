"""The GPUs that an existing ``CUDA_VISIBLE_DEVICES`` allows.

A Slurm job, a container or a script that sets it has already allocated the GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.host.cuda_visible_devices import visible_devices
from gpumon.scheduling.eligibility import Allowance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.model.snapshot import Gpu


class UncertainAllocationError(Exception):
    """It cannot be determined which GPUs the environment allows.

    Attributes:
        sentence: Why, and what to do, for the user.
        passing: Whether it may be known later: a GPU has not reported its model.
    """

    def __init__(self, sentence: str, *, passing: bool) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.passing = passing

    def __reduce__(self) -> tuple[object, ...]:
        return _uncertain, (self.sentence, self.passing)


def _uncertain(sentence: str, passing: bool) -> UncertainAllocationError:
    return UncertainAllocationError(sentence, passing=passing)


def allowance(environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Allowance:
    """The GPUs that an environment allows.

    Args:
        environment: Variables by name.
        gpus: All GPUs of the machine.

    Raises:
        UncertainAllocationError: It names GPUs by indices that only CUDA can resolve.
    """
    value, order = (environment.get(f"CUDA_{name}") for name in ("VISIBLE_DEVICES", "DEVICE_ORDER"))
    if value is None:
        return Allowance()
    meaning = visible_devices(value, order, gpus)
    # A program sees at most one MIG device; of several allocated ones, any may be used.
    parts = [
        visible_devices(part, order, gpus) for part in value.split(",") if part.startswith("MIG-")
    ]
    if not meaning.devices and not meaning.certain:
        raise UncertainAllocationError(
            f"CUDA_VISIBLE_DEVICES is set, and which GPUs it leaves is uncertain: {meaning.why}."
            " Set CUDA_DEVICE_ORDER=PCI_BUS_ID too, or name the GPUs by their UUIDs.",
            passing=any(gpu.name is None for gpu in gpus),
        )
    devices = [device for each in (meaning, *parts) for device in each.devices]
    named = {device.gpu_uuid if device.mig_index is None else device.uuid for device in devices}
    if not value.startswith("MIG-"):
        # A GPU in MIG mode was allocated with all its devices.
        named |= {device.gpu_uuid for device in devices}
    why = f" ({meaning.why})" if meaning.why else ""
    return Allowance(frozenset(named), f"CUDA_VISIBLE_DEVICES leaves it out{why}")
