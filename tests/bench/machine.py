"""The machine that everything is measured on: simulated cards, real processes, values that move."""

from __future__ import annotations

import os
import random
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tests.driver import Driver, a100, owners, settle
from tests.driver.alive import enliven, stir
from tests.driver.repeating import repeating

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TEMPERATURE = 61
"""Of the first card, which stands still, so that it can be looked for on the screen."""

_STIR_SECONDS = 0.5
_WAITING = ("nvmlEventSetWait", "nvmlEventSetWait_v2")
"""A thread is in these to wait, holding nothing: no time that the driver works."""


class Surroundings(Protocol):
    """Where a program is measured."""

    def env(self) -> Mapping[str, str]:
        """The environment in which a program finds the driver, and nobody's configuration."""

    def calls(self) -> tuple[int, float] | None:
        """NVML calls since the last look, and the seconds inside them; ``None`` is unknown."""

    def pcie_is_free(self, free: bool) -> None:
        """Whether asking for PCIe throughput is to take no time."""


class RealMachine:
    """This machine with the driver it has, whose calls nobody counts."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def env(self) -> Mapping[str, str]:
        return _clean(os.environ, self._home)

    def calls(self) -> None:
        """A real driver does not count them."""

    def pcie_is_free(self, free: bool) -> None:
        """A real driver takes what it takes."""


def _clean(env: Mapping[str, str], home: Path) -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, env.get("PYTHONPATH"))))
    homes = {f"XDG_{name}_HOME": str(home) for name in ("CONFIG", "STATE", "CACHE")}
    # An installed program is compiled.
    left = {name: each for name, each in env.items() if name != "PYTHONDONTWRITEBYTECODE"}
    left = {name: each for name, each in left.items() if not name.startswith("GPUMON_")}
    return {**left, **homes, "PYTHONPATH": path}


class Machine:
    """A simulated machine, while ``machine`` lasts."""

    def __init__(self, driver: Driver, home: Path) -> None:
        self.driver = driver
        self._home = home

    def env(self) -> Mapping[str, str]:
        return _clean(self.driver.env(), self._home)

    def calls(self) -> tuple[int, float]:
        """NVML calls since the last look, and the seconds inside them; counts from 0 again."""
        spent = self.driver.calls()
        self.driver.reset_counters()
        counted = [one for name, one in spent.items() if name not in _WAITING]
        return sum(one.calls for one in counted), sum(one.seconds for one in counted)

    def pcie_is_free(self, free: bool) -> None:
        for card in self.driver.cards:
            card.latency("nvmlDeviceGetPcieThroughput", 0.0 if free else 0.020)


@contextmanager
def machine(cards: int = 8, processes: int = 100) -> Iterator[Machine]:
    """A machine of A100s, whose driver has no counters in place of the blocking PCIe call."""
    with (
        tempfile.TemporaryDirectory(prefix="gpumon-bench-") as home,
        Driver([a100()] * cards) as driver,
        owners(processes) as started,
    ):
        settle(driver, [process.pid for process in started])
        for number, card in enumerate(driver.cards):
            enliven(card, number)
        driver.cards[0].temperature = TEMPERATURE
        with _stirred(driver):
            yield Machine(driver, Path(home))


@contextmanager
def _stirred(driver: Driver) -> Iterator[None]:
    dice = random.Random(1)
    with repeating(lambda: stir(driver.cards, dice), _STIR_SECONDS, "stirrer"):
        yield


def described() -> str:
    """The machine that the measuring itself runs on, in a few words."""
    return f"{os.cpu_count()} shared virtual cores, no GPU, simulated driver"
