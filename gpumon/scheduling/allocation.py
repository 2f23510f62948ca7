"""The GPUs that an existing variable such as ``CUDA_VISIBLE_DEVICES`` allows.

A Slurm job, a container or a script that sets it has already allocated the GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.makers.visible_devices import visible_devices_of
from gpumon.model.makers import Maker, gpus_of, makers_of
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
        UncertainAllocationError: It names GPUs by indices that gpumon cannot resolve.
    """
    names = {
        maker: visible_devices_of(maker).selecting_variable(environment, gpus)
        for maker in makers_of(gpus)
    }
    if not any(names.values()):
        return Allowance()
    named: set[str] = set()
    reasons: dict[Maker, str] = {}
    for maker, name in names.items():
        if name is None:
            named |= {gpu.uuid for gpu in gpus_of(maker, gpus)}
        else:
            found, reasons[maker] = _allowed(maker, name, environment, gpus)
            named |= found
    return Allowance(frozenset(named), reasons)


def _allowed(
    maker: Maker, name: str, environment: Mapping[str, str], gpus: Sequence[Gpu]
) -> tuple[set[str], str]:
    """The UUIDs of a maker's GPUs that an environment allows, and why the others are not allowed.

    Args:
        maker: The maker.
        name: The variable that selects.
        environment: Variables by name.
        gpus: All GPUs of the machine.

    Raises:
        UncertainAllocationError: See ``allowance``.
    """
    meaning = visible_devices_of(maker).allocated(environment, gpus)
    if not meaning.devices and not meaning.certain:
        raise UncertainAllocationError(
            f"{name} is set, and which GPUs it leaves is uncertain: {meaning.why}. "
            f"{maker.certain_selection}",
            passing=any(gpu.name is None for gpu in gpus),
        )
    devices = meaning.devices
    named = {device.gpu_uuid if device.mig_index is None else device.uuid for device in devices}
    if not environment[name].startswith("MIG-"):
        # A GPU in MIG mode was allocated with all its devices.
        named |= {device.gpu_uuid for device in devices}
    why = f" ({meaning.why})" if meaning.why else ""
    return named, f"{name} leaves it out{why}"
