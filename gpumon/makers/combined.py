"""Reads the GPUs of several makers as if one driver had them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.makers.backend import (
    RETRY_SECONDS,
    DriverInfo,
    GpuBackend,
    ListedProcess,
    Reading,
    joined_type,
)
from gpumon.makers.source import NoSuchGpuError, SourceError
from gpumon.model.makers import DeviceFiles
from gpumon.model.selection import ALL, GpuSelection
from gpumon.model.snapshot import Gpu, Trouble
from gpumon.model.topology import Links
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.host.kernel_watcher import Heard
    from gpumon.makers.source import Call
    from gpumon.model.processes import GpuUse
    from gpumon.system.system import System

_NONE_SELECTED = "This machine has none of the selected GPUs."


class Member:
    """One of the backends.

    Attributes:
        backend: The backend.
        expected: Number of GPUs that this driver should have: if it does not respond, that is an
            error, and not the absence of such GPUs, and their indices are kept for them.
        label: How a message calls its driver.
        hides_integrated: Whether GPUs that are part of a processor are left out while the machine
            has another one.
        reading: Its newest reading; ``None`` while it is not open.
        trouble: Why it is not open.
        first_index: The index of its first GPU.
    """

    def __init__(
        self, backend: GpuBackend, label: str, *, expected: int, hides_integrated: bool = False
    ) -> None:
        self.backend = backend
        self.label = label
        self.expected = expected
        self.hides_integrated = hides_integrated
        self.reading: Reading | None = None
        self.trouble: Trouble | None = None
        self.first_index = 0
        self.is_open = False
        self.retry_at = -math.inf

    def open(self) -> None:
        """Open it, if that succeeds."""
        try:
            self.backend.open()
        except SourceError as error:
            self.trouble = Trouble(error.sentence, error.advice)
        else:
            self.is_open, self.trouble = True, None

    def close(self) -> None:
        """Close it."""
        self.backend.close()
        self.reading, self.is_open, self.retry_at = None, False, -math.inf

    def hides(self, gpu: Gpu) -> bool:
        """Whether one of its GPUs is left out while the machine has another one."""
        return self.hides_integrated and bool(gpu.memory_unified)

    @property
    def is_hidden(self) -> bool:
        """Whether all of its GPUs are left out while the machine has another one."""
        return self.is_open and self.hides_integrated and self.backend.only_integrated

    @property
    def problem(self) -> Trouble | None:
        """Why its GPUs cannot be read."""
        return self.trouble if self.reading is None else self.reading.trouble

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Its GPUs, numbered as the driver does."""
        return () if self.reading is None else self.reading.gpus


class CombinedBackend(GpuBackend):
    """The GPUs of several backends.

    The GPUs of the first backend keep their indices; those of each further one follow the highest
    index before them. A process on GPUs of two makers is one process. The first backend defines the
    machine's device files, if a GPU is of none of the makers.
    """

    def __init__(
        self,
        members: Sequence[Member],
        selection: GpuSelection = ALL,
        system: System = THIS_SYSTEM,
    ) -> None:
        self._members = tuple(members)
        self._selection = selection
        self._system = system
        first, *rest = (member.backend.device_files for member in self._members)
        further = [each for files in rest for each in (files, *files.others)]
        self.name = self._members[0].backend.name
        others = (*first.others, *further)
        self.device_files = DeviceFiles(first.gpu, first.prefix, first.maker, others)
        self._lists: tuple[object, ...] = ()
        self._listed: Mapping[int, ListedProcess] | None = None
        self._driver = DriverInfo()

    def open(self) -> None:
        """See ``Source.open``."""
        for member in self._members:
            if not member.is_open:
                member.open()
        if not any(member.is_open and not self._is_superfluous(member) for member in self._members):
            self.close()
            self._raise_trouble()
        if self._selection:
            self._check_selection()

    def _check_selection(self) -> None:
        """Raise ``NoSuchGpuError`` if a selected GPU does not exist."""
        self._read_members(full=False)
        gpus = [gpu for _, gpu in self._numbered()]
        count = max((gpu.index + 1 for gpu in gpus), default=0)
        missing = self._selection.missing(count, [gpu.uuid for gpu in gpus])
        if missing:
            self.close()
            raise NoSuchGpuError(missing, count)

    def _raise_trouble(self) -> None:
        """Raise the error of the driver that the machine should have, or else of the first."""
        for member in sorted(self._members, key=lambda member: not member.expected):
            if member.trouble is not None:
                raise SourceError(member.trouble.sentence, member.trouble.advice)

    def hear(self, heard: Sequence[Heard] | None, *, is_readable: bool) -> None:
        """See ``GpuBackend.hear``."""
        for member in self._members:
            member.backend.hear(heard, is_readable=is_readable)

    def read(self, *, full: bool = True) -> Reading:
        """See ``GpuBackend.read``."""
        self._read_members(full=full)
        shown = self._shown()
        readings = [member.reading for member in self._members if member.reading is not None]
        used = {gpu.uuid for gpu in shown}
        return Reading(
            time=readings[0].time if readings else self._system.clock.time(),
            gpus=shown,
            driver=self._joined_driver(),
            listed=self._joined_lists(used),
            listed_at=min(
                (at for reading in readings if (at := reading.listed_at) is not None), default=None
            ),
            trouble=None if shown else self._why_empty(),
        )

    def close(self) -> None:
        """See ``Source.close``."""
        for member in self._members:
            member.close()

    def links(self) -> Links:
        """See ``GpuBackend.links``; there is none between GPUs of two makers."""
        parts = [member.backend.links() for member in self._members]
        return Links({gpus: joint for part in parts for gpus, joint in part.between.items()})

    def give_up(self, call: Call, /) -> bool:
        """See ``Source.give_up``."""
        return any(member.backend.give_up(call) for member in self._members)

    @property
    def current_call(self) -> Call | None:
        """See ``Source.current_call``."""
        for member in self._members:
            call = member.backend.current_call
            if call is not None:
                return call
        return None

    @property
    def driver_seconds(self) -> float:
        """See ``Source.driver_seconds``."""
        return sum(member.backend.driver_seconds for member in self._members)

    # Reading

    def _read_members(self, *, full: bool) -> None:
        now = self._system.clock.monotonic()
        for member in self._members:
            if not member.is_open and member.expected and now >= member.retry_at:
                member.open()
                member.retry_at = now + RETRY_SECONDS
            if self._is_superfluous(member):
                member.reading = None
            elif member.is_open:
                member.reading = member.backend.read(full=full)
        index = 0
        for member in self._members:
            member.first_index = max(member.first_index, index)
            index = max(
                [member.first_index + gpu.index + 1 for gpu in member.gpus]
                + [member.first_index + (0 if member.gpus else member.expected)]
            )
        names = [member.backend.name for member in self._members if member.gpus]
        self.name = "+".join(names) or self._members[0].backend.name

    def _is_superfluous(self, member: Member) -> bool:
        """Whether nothing of it would be shown, so that it is not read."""
        return member.is_hidden and self._has_others()

    def _has_others(self) -> bool:
        """Whether the machine has a GPU that is never left out, or should have one."""
        return any(
            (bool(member.expected) and member.problem is not None)
            or (member.is_open and not member.is_hidden and (member.reading is None or member.gpus))
            for member in self._members
        )

    def _numbered(self) -> list[tuple[Member, Gpu]]:
        """All GPUs with their indices on this machine."""
        return [
            (member, replace(gpu, index=gpu.index + first) if first else gpu)
            for member in self._members
            for first in (member.first_index,)
            for gpu in member.gpus
        ]

    def _shown(self) -> tuple[Gpu, ...]:
        has_others = self._has_others()
        return tuple(
            gpu
            for member, gpu in self._numbered()
            if self._selection.includes(gpu.index, gpu.uuid)
            and not (has_others and member.hides(gpu))
        )

    def _why_empty(self) -> Trouble:
        """Why there is nothing to show."""
        has_gpus = any(member.gpus for member in self._members)
        for member in sorted(self._members, key=lambda member: not member.expected):
            if member.problem is not None and (member.expected or not has_gpus):
                return member.problem
        return Trouble(_NONE_SELECTED, "`gpumon snapshot` lists its GPUs.")

    def _joined_lists(self, shown: set[str]) -> Mapping[int, ListedProcess] | None:
        """The processes of all drivers: the same object as before while no driver has new lists."""
        lists = [
            (member.first_index, member.reading.listed)
            for member in self._members
            if member.reading is not None and member.reading.listed is not None
        ]
        if not lists:
            return None
        key = (*(id(listed) for _, listed in lists), *(first for first, _ in lists), *sorted(shown))
        if self._listed is None or key != self._lists[:-1]:
            joined: dict[int, ListedProcess] = {}
            for first, listed in lists:
                for pid, process in listed.items():
                    uses = tuple(_uses(process, first, shown))
                    if uses:
                        joined[pid] = _merged(joined.get(pid), process.type, uses)
            # The lists are kept, so that no other object gets the identity of one of them.
            self._lists = (*key, [listed for _, listed in lists])
            self._listed = joined
        return self._listed

    def _joined_driver(self) -> DriverInfo:
        """What is known of all drivers with GPUs, and which driver does not respond.

        The same object as before while they are the same.
        """
        members = [
            member
            for member in self._members
            if member.gpus or (member.expected and member.problem)
        ]
        known = [
            member.reading.driver
            for member in members
            if member.reading is not None and member.problem is None
        ]
        joined = DriverInfo()
        if known:
            versions = [driver.version for driver in known if driver.version is not None]
            versions += [f"{member.label} does not respond" for member in members if member.problem]
            joined = replace(
                known[0],
                version=", ".join(versions) or None,
                since=min(
                    (at for driver in known if (at := driver.since) is not None), default=None
                ),
                pids_are_ours=all(driver.pids_are_ours for driver in known),
            )
        if joined != self._driver:
            self._driver = joined
        return self._driver


def _uses(process: ListedProcess, first: int, shown: set[str]) -> Iterable[GpuUse]:
    """Its uses of GPUs that are shown, with the indices of this machine."""
    for use in process.uses:
        if use.gpu_uuid in shown:
            yield replace(use, gpu_index=use.gpu_index + first) if first else use


def _merged(before: ListedProcess | None, kind: str, uses: tuple[GpuUse, ...]) -> ListedProcess:
    if before is None:
        return ListedProcess(kind, uses)
    return ListedProcess(joined_type(before.type + kind), (*before.uses, *uses))
