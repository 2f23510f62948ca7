"""CUDA on a simulated card, as far as a monitor can see it: memory that a process holds, and load.

A program asks through ``Cuda``, which writes what it holds and does into a file of its own beside
the driver's state. ``serving`` reads these files where the ``Driver`` lives, since only that may
change its cards, and makes the first card look accordingly. A process that ends gives all back.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .driver import Driver, Owner
from .owners import lives
from .repeating import repeating

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SHOWN = (
    *("utilization_gpu", "utilization_memory", "temperature"),
    *("sm_active", "sm_occupancy", "tensor_active", "dram_active"),
)

LOADS: dict[str, tuple[float, tuple[float, ...]]] = {
    "tensor": (0.93, (100, 42, 63, 96, 22, 84, 36)),
    "copy": (0.6, (100, 92, 55, 97, 60, 0, 86)),
    "tiny": (0.25, (88, 0, 44, 1, 0.1, 0, 0.2)),
    "sleep": (0.16, (0, 0, 38, 0, 0, 0, 0)),
}
"""Each kind of load: power as a share of the limit, and the values of ``_SHOWN``."""

_TICK_SECONDS = 0.01
_PATIENCE_SECONDS = 10.0


class Use(NamedTuple):
    """What a process holds, in bytes, and does: a key of ``LOADS``."""

    memory: int
    load: str


class OutOfMemoryError(MemoryError):
    """The card has less free memory than was asked for."""


class Cuda:
    """The first card, as the calling process uses it.

    Needs the environment of ``Driver.env()`` and a ``serving`` where the driver lives.
    """

    def __init__(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml = pynvml
        self._card = pynvml.nvmlDeviceGetHandleByIndex(0)
        self._file = _requests(Path(os.environ["NVML_SIM_STATE"])) / str(os.getpid())
        self._use = Use(0, "sleep")

    def free(self) -> int:
        """Bytes that can be allocated."""
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._card, self._nvml.nvmlMemory_v2).free)

    def hold(self, size: int) -> None:
        """Hold so many bytes in all, from when the driver says so.

        Raises:
            OutOfMemoryError: There are not so many.
            TimeoutError: Nobody serves.
        """
        if size - self._use.memory > self.free():
            raise OutOfMemoryError("CUDA_ERROR_OUT_OF_MEMORY: out of memory")
        self._write(self._use._replace(memory=size))
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._listed() != size:
            if time.monotonic() > deadline:
                raise TimeoutError("the simulated driver does not serve CUDA")
            time.sleep(_TICK_SECONDS)

    def work(self, load: str) -> None:
        """Work so from now on: a key of ``LOADS``."""
        if load != self._use.load:
            self._write(self._use._replace(load=load))

    def _listed(self) -> int | None:
        for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._card):
            if process.pid == os.getpid():
                return int(process.usedGpuMemory)
        return None

    def _write(self, use: Use) -> None:
        self._use = use
        # Renamed into place, so that no half of it is ever read.
        half = self._file.with_suffix(".half")
        half.write_text(json.dumps(use))
        half.replace(self._file)


@contextmanager
def serving(driver: Driver) -> Iterator[None]:
    """Gives processes what they ask of the first card until the block ends."""
    folder = _requests(driver.state_path)
    folder.mkdir()
    before: dict[int, Use] = {}

    def serve() -> None:
        nonlocal before
        now = _living(folder)
        if now != before:
            _apply(driver, before, now)
            before = now

    with repeating(serve, _TICK_SECONDS, "simulated CUDA"):
        yield


def _requests(state: Path) -> Path:
    return state.parent / "cuda"


def _living(folder: Path) -> dict[int, Use]:
    """What each living process holds and does."""
    found = {}
    for file in sorted(folder.iterdir()):
        if file.suffix:
            continue
        if lives(int(file.name)):
            found[int(file.name)] = Use(*json.loads(file.read_text()))
        else:
            file.unlink()
    return found


def _apply(driver: Driver, before: Mapping[int, Use], now: Mapping[int, Use]) -> None:
    card = driver.cards[0]
    load = max((use.load for use in now.values()), key=_weight, default="sleep")
    power, values = LOADS[load]
    sm = int(values[0])
    others = [owner for owner in card.processes if owner.pid not in before and owner.pid not in now]
    mine = [
        Owner(pid, memory=use.memory, sm=sm if use.load == load else 0) for pid, use in now.items()
    ]
    card.processes = [*others, *mine]
    card.memory_used = sum(owner.memory or 0 for owner in card.processes)
    for name, value in zip(_SHOWN, values, strict=True):
        if card.get(name) is not None:
            card.set(name, value)
    card.power_usage = card.power_instant = round(power * (card.power_limit_enforced or 0))
    card.clock_event_reasons = 0x1 if load == "sleep" else 0x4 if load == "tensor" else 0


def _weight(load: str) -> int:
    """The process that works most sets the card's values."""
    return tuple(reversed(LOADS)).index(load)
