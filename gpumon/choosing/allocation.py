"""What ``CUDA_VISIBLE_DEVICES`` leaves of the machine, where somebody has set it before.

A Slurm job, a container or a colleague's script that sets it has shared the cards out already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.choosing.judging import Allowance
from gpumon.cuda import visible_devices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.model import Gpu


class UncertainAllocationError(Exception):
    """Which cards the environment leaves cannot be known.

    Attributes:
        sentence: Why, and what to do, for a person.
        passing: Whether it may be known later: a card has not told its model.
    """

    def __init__(self, sentence: str, *, passing: bool) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.passing = passing


def allowance(environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Allowance:
    """Which cards may be taken in an environment.

    Args:
        environment: Variables by name.
        gpus: All cards of the machine.

    Raises:
        UncertainAllocationError: It names cards by indices that only CUDA can read.
    """
    value, order = (environment.get(f"CUDA_{name}") for name in ("VISIBLE_DEVICES", "DEVICE_ORDER"))
    if value is None:
        return Allowance()
    meaning = visible_devices(value, order, gpus)
    # One program sees one MIG device at most; of several that were allotted each may be taken.
    parts = [
        visible_devices(part, order, gpus) for part in value.split(",") if part.startswith("MIG-")
    ]
    if not meaning.devices and not meaning.certain:
        raise UncertainAllocationError(
            f"CUDA_VISIBLE_DEVICES is set, and which cards it leaves is uncertain: {meaning.why}."
            " Set CUDA_DEVICE_ORDER=PCI_BUS_ID too, or name the cards by their UUIDs.",
            passing=any(gpu.name is None for gpu in gpus),
        )
    devices = [device for each in (meaning, *parts) for device in each.devices]
    named = {device.gpu_uuid if device.mig_index is None else device.uuid for device in devices}
    if not value.startswith("MIG-"):
        # A card that is cut up was given with all its devices.
        named |= {device.gpu_uuid for device in devices}
    why = f" ({meaning.why})" if meaning.why else ""
    return Allowance(frozenset(named), f"CUDA_VISIBLE_DEVICES leaves it out{why}")
