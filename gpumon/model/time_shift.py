"""Moves the times of snapshots: from another machine's clock to this one's, or after it was set."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import fields, replace

from gpumon.model.number_types import TIMES, Time
from gpumon.model.processes import HolderScan
from gpumon.model.snapshot import Host

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot

T = TypeVar("T", bound=Struct)


class TimeShift:
    """Adds seconds to all times in snapshots that follow each other.

    An object that two of them have in common is one object afterwards, too.

    Args:
        seconds: The seconds.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._last: tuple[Snapshot, Snapshot] | None = None
        self._known: dict[int, tuple[Struct, Struct]] = {}
        self._kept: dict[int, tuple[Struct, Struct]] = {}

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The next snapshot with the other times."""
        if not self.seconds:
            return snapshot
        if self._last is not None and self._last[0] is snapshot:
            return self._last[1]
        self._known, self._kept = self._kept, {}
        moved = replace(
            self.row(snapshot),
            host=self._same(snapshot.host),
            gpus=tuple([self._same(gpu) for gpu in snapshot.gpus]),
            processes=tuple([self._same(process) for process in snapshot.processes]),
            reserved=tuple([self._same(reserved) for reserved in snapshot.reserved]),
            allocations=snapshot.allocations
            and tuple([self._same(allocation) for allocation in snapshot.allocations]),
            holders=snapshot.holders and self._same(snapshot.holders),
            accidents=tuple([self._same(accident) for accident in snapshot.accidents]),
        )
        self._last = snapshot, moved
        return moved

    def row(self, row: T) -> T:
        """A copy of one structure with the other times, without those of structures in it."""
        times = {field: getattr(row, field) for field in time_fields(type(row))}
        return replace(
            row,
            **{
                # A clock that lies does not lead out of the calendar.
                field: min(max(time + self.seconds, TIMES[0]), TIMES[1])
                for field, time in times.items()
                if time is not None
            },
        )

    def _same(self, given: T) -> T:
        """The copy, which is the same object for the same object in the snapshot before."""
        known = self._known.get(id(given))
        if known is not None and known[0] is given:
            pair = known
        elif isinstance(given, HolderScan):
            suspects = tuple([self.row(suspect) for suspect in given.suspects])
            pair = given, replace(self.row(given), suspects=suspects)
        elif isinstance(given, Host):
            nics = given.nics and tuple([self._same(nic) for nic in given.nics])
            pair = given, replace(self.row(given), nics=nics)
        else:
            pair = given, self.row(given)
        self._kept[id(given)] = pair
        moved: T = pair[1]  # type: ignore[assignment]  # a pair has one type on both sides
        return moved


@cache
def time_fields(struct: type[Struct]) -> tuple[str, ...]:
    """The fields of a class of the model that are times."""
    return tuple(
        field.name for field in fields(struct) if field.type == Time or Time in get_args(field.type)
    )
