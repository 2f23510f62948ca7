"""The conditions that ``gpumon wait`` can wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpumon.model.thresholds import DEFAULTS
from gpumon.scheduling.requirements import Requirements  # noqa: TC001 - a type of a named tuple

if TYPE_CHECKING:
    from collections.abc import Callable

COOL_CELSIUS = 50.0
"""The default for cool: the temperature of idle GPUs in a machine room."""
_ANY_NUMBER = 10**6


class WaitKind(NamedTuple):
    """A condition.

    Attributes:
        about: Its help text.
        requirements: The requirements for a GPU, from those of the command line.
        to_use: Whether a job is to use the GPUs: then allocation, reservations and modes matter.
    """

    about: str
    requirements: Callable[[Requirements], Requirements]
    to_use: bool = False


def _free(asked: Requirements) -> Requirements:
    return asked


def _idle(asked: Requirements) -> Requirements:
    return replace(
        _with_any_processes(asked),
        utilization=0.0 if asked.utilization is None else asked.utilization,
        stable=DEFAULTS.idle_after if asked.stable is None else asked.stable,
    )


def _cool(asked: Requirements) -> Requirements:
    celsius = COOL_CELSIUS if asked.temperature is None else asked.temperature
    return replace(_with_any_processes(asked), temperature=celsius)


def _with_any_processes(asked: Requirements) -> Requirements:
    return asked if asked.processes is not None else replace(asked, processes=_ANY_NUMBER)


DEFAULT_KIND = "free"
KINDS = {
    "free": WaitKind("gpumon select would take it", _free, to_use=True),
    "idle": WaitKind("nothing ran on it for a minute, or for --stable", _idle),
    "cool": WaitKind(f"at most {COOL_CELSIUS:g} degrees Celsius, or --temp", _cool),
}
