"""What is asked of GPUs, and how many; and the conditions that ``gpumon wait`` can wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gpumon.model.selection import ALL, GpuSelection
from gpumon.model.thresholds import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Callable


class Requirements(Struct, frozen=True):
    """The requirements. ``None`` requires nothing.

    If neither ``free`` nor ``processes`` is given, a GPU must be empty: no process computes on it,
    and it has no unattributed memory.
    """

    least: int = 1  # minimum number of GPUs
    most: int = 1  # maximum number: as many as are eligible, up to this
    free: int | None = None  # minimum bytes of free memory
    total: int | None = None  # minimum bytes of total memory
    utilization: float | None = None  # maximum percent
    temperature: float | None = None  # maximum degrees Celsius
    processes: int | None = None  # maximum number of computing processes
    models: tuple[str, ...] = ()  # parts of a product name in lower case, one of which must match
    architectures: tuple[str, ...] = ()  # in lower case
    capability: tuple[int, int] | None = None  # minimum CUDA compute capability
    only: GpuSelection = ALL  # only these GPUs
    never: GpuSelection = ALL  # none of these GPUs; empty is no GPU, not all
    maker: str | None = None  # its name; ``None`` is the maker of the first GPU that is asked for
    mig: bool = False  # MIG devices instead of whole GPUs
    mine_is_free: bool = False  # ignore this user's own processes, and treat their memory as free
    stable: float | None = None  # seconds for which a GPU must have met the requirements

    @property
    def empty(self) -> bool:
        """Whether no other process may be on a GPU."""
        return self.free is None and self.processes is None

    def counted(self, kind: str = "") -> str:
        """The number in words: ``2 GPUs``, ``1 to 4 idle GPUs``, ``1 MIG device``."""
        many = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
        thing = "MIG device" if self.mig else "GPU"
        return f"{many} {kind and f'{kind} '}{thing}{'' if self.most == 1 else 's'}"


class WaitKind(NamedTuple):
    """A condition that ``gpumon wait`` can wait for."""

    about: str  # its help text
    requirements: Callable[[Requirements], Requirements]  # from those of the command line
    # Whether a job is to use the GPUs: then allocation, reservations and modes matter.
    to_use: bool = False


COOL_CELSIUS = 50.0
"""The default for cool: the temperature of idle GPUs in a machine room."""
_ANY_NUMBER = 10**6


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
