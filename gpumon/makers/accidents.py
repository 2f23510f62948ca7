"""The accidents of the last minutes, from the kernel log and from drivers: ``RecentAccidents``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.host.kernel_watcher import KernelWatcher
from gpumon.host.oom import OomLines
from gpumon.host.pci import slot_of
from gpumon.model.accidents import (
    ACCIDENT_SECONDS,
    ACCIDENTS_KEPT,
    SAME_SECONDS,
    Accident,
    AccidentKind,
)
from gpumon.model.makers import load, makers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.host.cgroup_memory import OomKills
    from gpumon.host.kernel_log import LineParser
    from gpumon.host.kernel_watcher import Heard
    from gpumon.model.snapshot import Gpu
    from gpumon.system.system import System


def watcher_of(system: System) -> KernelWatcher:
    """Watches for what the drivers of all makers and the OOM killer write to the kernel log."""
    parsers: list[LineParser] = [
        load(maker.log_parser)() for maker in makers() if maker.log_parser is not None
    ]
    return KernelWatcher([*parsers, OomLines()], system)


class RecentAccidents:
    """The accidents that a snapshot has, see ``Snapshot.accidents``."""

    def __init__(self) -> None:
        self._accidents: tuple[Accident, ...] = ()
        self._uuids: dict[str, str] = {}
        self._xids: dict[str, float | None] = {}

    def add(self, heard: Sequence[Heard], gpus: Sequence[Gpu], now: float) -> None:
        """Add what the kernel reported of these GPUs, or of the machine's memory.

        What it reported of other GPUs, which are not selected, is left out.
        """
        for gpu in gpus if heard or not self._uuids else ():
            if gpu.pci_bus_id is not None and (slot := slot_of(gpu.pci_bus_id)) is not None:
                self._uuids[slot] = gpu.uuid
        for each in heard:
            report = each.report
            if report.slot is not None and report.slot not in self._uuids:
                continue
            if now - each.time < ACCIDENT_SECONDS:
                self._add(
                    Accident(
                        each.time,
                        report.kind,
                        None if report.slot is None else self._uuids[report.slot],
                        report.number,
                        report.pid,
                        report.process_name,
                        report.channel,
                        report.text,
                        report.cgroup,
                        report.memory,
                    ),
                    is_past=each.is_past,
                )

    def add_error_codes(self, gpus: Sequence[Gpu]) -> None:
        """Add the error codes of drivers since the last call that the kernel log does not have.

        Call it after ``add``. Where the log may be read, a line can be late in a flood of others.
        """
        for gpu in gpus:
            before, at = self._xids.get(gpu.uuid), gpu.xid_at
            self._xids[gpu.uuid] = at
            if gpu.xid is None or at in {None, before}:
                continue
            if not any(known.is_error(gpu.uuid, gpu.xid, at) for known in self._accidents):
                self._add(Accident(at, AccidentKind.ERROR_CODE, gpu.uuid, gpu.xid))

    def add_kills(self, kills: Sequence[OomKills], now: float) -> None:
        """Add what the counters of cgroups say, if the kernel log may not be read."""
        for kill in kills:
            self._add(
                Accident(
                    now,
                    AccidentKind.OUT_OF_MEMORY,
                    text=f"oom_kill {kill.count}",
                    cgroup=kill.cgroup,
                )
            )

    def at(self, now: float) -> tuple[Accident, ...]:
        """Those of the last ``ACCIDENT_SECONDS``; the same tuple while nothing has changed."""
        if self._accidents and now - self._accidents[0].time >= ACCIDENT_SECONDS:
            recent = [each for each in self._accidents if now - each.time < ACCIDENT_SECONDS]
            self._accidents = tuple(recent)
        return self._accidents

    def _add(self, accident: Accident, *, is_past: bool = False) -> None:
        if is_past and any(_is_same(accident, known) for known in self._accidents):
            return
        # A line of the kernel log says more than the event of the driver for the same error.
        others = [
            known
            for known in self._accidents
            if known != known.bare()
            or not known.is_error(accident.gpu_uuid, accident.number, accident.time)
        ]
        ordered = sorted((*others, accident), key=lambda each: each.time)
        self._accidents = tuple(ordered[-ACCIDENTS_KEPT:])


def _is_same(accident: Accident, known: Accident) -> bool:
    apart = abs(accident.time - known.time)
    return apart <= SAME_SECONDS and replace(accident, time=known.time) == known
