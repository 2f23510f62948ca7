"""What ``gpumon end`` reports, as far as a visit's report needs it."""

from __future__ import annotations

import msgspec


class EndedProcess(msgspec.Struct):
    """A process, as ``gpumon end`` reports it (docs/end.md)."""

    pid: int
    outcome: str
    sentence: str | None = None


class End(msgspec.Struct):
    """The JSON object of ``gpumon end``, as far as it is reported."""

    processes: list[EndedProcess] = []
