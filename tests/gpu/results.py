"""The forms of what a visit writes as JSON. What a file lacks has the value that means unknown."""

from __future__ import annotations

import msgspec


class VisitedGpu(msgspec.Struct):
    """A GPU of the visited machine.

    Attributes:
        name: Its product's name; empty: unknown.
    """

    name: str = ""


class Step(msgspec.Struct):
    """A step of the visit.

    Attributes:
        name: Its module.
        file: What it writes.
        seconds: How long it took; ``None``: it was not begun.
        outcome: done, failed, cut or not begun.
        said: Why.
    """

    name: str
    file: str = ""
    seconds: float | None = None
    outcome: str = ""
    said: str = ""


class Facts(msgspec.Struct):
    """``facts.json``, as far as it is reported.

    Attributes:
        date: Of the visit, YYYY-MM-DD; empty: unknown.
        names: What ``anonymous`` replaces on the visited machine.
        gpus: Its GPUs.
        driver_version: ``None``: unknown.
        cores: ``None``: unknown.
        steps: All of the visit.
    """

    date: str = ""
    names: list[str] = []
    gpus: list[VisitedGpu] = []
    driver_version: str | None = None
    cores: int | None = None
    steps: list[Step] = []


class EndedProcess(msgspec.Struct):
    """A process, as ``gpumon end`` reports it (docs/end.md)."""

    pid: int
    outcome: str
    sentence: str | None = None


class End(msgspec.Struct):
    """The JSON object of ``gpumon end``, as far as it is reported."""

    processes: list[EndedProcess] = []


class Case(msgspec.Struct):
    """A kind of process that was to be ended.

    Attributes:
        name: In the report.
        tried: Whether it could be started.
        said: Why not, or what was odd.
        seen_ms: From its start until gpumon listed it; ``None``: gpumon did not.
        memory_used_bytes: By gpumon; ``None``: unknown.
        end: What ``gpumon end`` said; ``None``: nothing that can be read.
        memory_back_ms: From its end; ``None``: not all of it came back.
        memory_missing_bytes: What did not; ``None``: unknown.
    """

    name: str
    tried: bool = False
    said: str = ""
    seen_ms: float | None = None
    memory_used_bytes: int | None = None
    end: End | None = None
    memory_back_ms: float | None = None
    memory_missing_bytes: int | None = None


class OutOfMemory(msgspec.Struct):
    """A run that finds no memory, and the way out.

    Attributes:
        tried: Whether there was memory to fill.
        said: Why not, or what was odd.
        error: Of the run that found none; empty: it found some.
        holder_seen: Whether gpumon listed the process that held it.
        refused_select: What ``gpumon select`` said; empty: it chose the full GPU.
        worked_after: Whether the run had its memory once the holder was ended.
    """

    tried: bool = False
    said: str = ""
    error: str = ""
    holder_seen: bool = False
    refused_select: str = ""
    worked_after: bool = False


class Ending(msgspec.Struct):
    """``ending.json``."""

    cases: list[Case] = []
    out_of_memory: OutOfMemory = msgspec.field(default_factory=OutOfMemory)
