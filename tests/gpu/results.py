"""What ``facts.json`` holds after a visit, as far as it is reported."""

from __future__ import annotations

import msgspec

from tests.gpu.facts import GpuFacts  # noqa: TC001 - msgspec resolves annotations at run time
from tests.gpu.visit import Outcome  # noqa: TC001 - msgspec resolves annotations at run time


class Facts(msgspec.Struct):
    """What the machine is, if that step could say it, and how each step went.

    Attributes:
        date: YYYY-MM-DD; empty: unknown.
        simulated: Whether the driver was the simulated one.
        gpus: Its GPUs.
        driver_version: ``None``: unknown.
        cores: ``None``: unknown.
        packages: Name -> version.
        steps: All of the visit.
    """

    date: str = ""
    simulated: bool = False
    gpus: list[GpuFacts] = []
    driver_version: str | None = None
    cores: int | None = None
    packages: dict[str, str] = {}
    steps: list[Outcome] = []


class EndedProcess(msgspec.Struct):
    """A process, as ``gpumon end`` reports it (docs/end.md)."""

    pid: int
    outcome: str
    sentence: str | None = None


class End(msgspec.Struct):
    """The JSON object of ``gpumon end``, as far as it is reported."""

    processes: list[EndedProcess] = []
