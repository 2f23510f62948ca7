"""The rows of a sample in the cards' file, made into cards and their host again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from gpumon.log.cells import Cells, column_cells, gpu_column, mig_devices, read_moment
from gpumon.log.headings import row_of, whole_lines
from gpumon.metrics import GPU_METRICS
from gpumon.model import CardStatus, Gpu, Host, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.log.headings import Header

_HOST_COLUMNS = (
    "host",
    "driver_version",
    "cuda_version",
    "host.cpu [%]",
    "host.cpu.count",
    "host.load.1",
    "host.load.5",
    "host.load.15",
    "host.memory.used [MiB]",
    "host.memory.total [MiB]",
)
_COLUMNS = {metric.field: gpu_column(metric) for metric in GPU_METRICS}
_LIMITS = [(metric.field, metric.at_most) for metric in GPU_METRICS if metric.at_most is not None]
_STATUSES = {status.value: status for status in CardStatus}
_EVENTS = frozenset(("xid", "xid_at"))
"""Fields that are empty as long as nothing has happened: gpumon writes them whenever it has."""
_PATTERNS_KEPT = 256


class Card(Struct, frozen=True):
    """A card of a sample, but for whether its processes are known.

    Attributes:
        values: Its fields by name.
        missing: The fields that are unknown, and those whose row says why.
        listed: How many processes its list held; ``None`` where there was no list.
    """

    values: dict[str, Any]
    missing: tuple[tuple[str, ...], tuple[tuple[str, Unknown], ...]]
    listed: int | None

    @property
    def uuid(self) -> str:
        """What tells it from the others."""
        uuid: str = self.values["uuid"]
        return uuid


class _Column(NamedTuple):
    field: str
    place: int
    cells: Cells


class CardReader:
    """Reads the rows below one heading. Not safe to use from several threads."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._is_ours = "gpumon_log" in header.places
        self._columns = [
            _Column(field, header.places[name], column_cells(name, processes=False, reasons=True))
            for field, name in _COLUMNS.items()
            if name in header.places
        ]
        self._fields = [column.field for column in self._columns]
        absent = [field for field in _COLUMNS if field not in self._fields]
        self._never = (*absent, "fan_speeds")
        self._events = _EVENTS if self._is_ours else frozenset()
        self._status = self._column("status")
        self._since = self._column("status.since")
        self._age = self._column("age [s]")
        self._listed = self._column("processes")
        self._mig = self._column("mig.devices")
        self._host_columns = [self._column(name) for name in _HOST_COLUMNS]
        self._hosts: dict[tuple[object, ...], Host] = {}
        self._unknown: dict[tuple[object, ...], Mapping[str, Unknown]] = {}
        self._migs = Cells(mig_devices)

    def read(self, lines: Sequence[bytes], time: float, wall: float) -> tuple[list[Card], Host]:
        """The cards of a sample, and the host around them.

        Args:
            lines: Its rows, and what else stands among them.
            time: When it was taken, on the tape.
            wall: The same by the clock of its time, which the times in its cells are by.
        """
        header = self._header
        stamp = header.stamp(lines[0])[0]
        cards: list[Card] = []
        host = None
        for line in whole_lines(lines, header):
            if header.key is None and header.stamp(line)[0] != stamp:
                continue
            cells = row_of(line, header)
            if len(cells) > header.time and read_moment(cells[header.time]) is not None:
                cards.append(self._card(cells, len(cards), time, wall))
                host = host or self._host(cells)
        return cards, host or Host("")

    def gpu(self, card: Card, *, listed: bool) -> Gpu:
        """The card, whose processes are known or not."""
        key = (card.missing, listed)
        unknown = self._unknown.get(key)
        if unknown is None:
            if len(self._unknown) >= _PATTERNS_KEPT:
                self._unknown.clear()
            fields, told = card.missing
            reasons = dict.fromkeys((*self._never, *fields), Unknown.NOT_RECORDED)
            reasons.update(told)
            if not listed:
                reasons["processes"] = Unknown.NOT_RECORDED
            unknown = self._unknown[key] = reasons
        return Gpu(**card.values, unknown=unknown)

    def _column(self, name: str) -> tuple[int, Cells] | None:
        place = self._header.places.get(name)
        return (
            None if place is None else (place, column_cells(name, processes=False, reasons=False))
        )

    def _card(self, cells: list[str], number: int, time: float, wall: float) -> Card:
        width = len(cells)
        read = [
            column.cells[cells[column.place]] if column.place < width else None
            for column in self._columns
        ]
        values: dict[str, Any] = dict(zip(self._fields, read, strict=True))
        told: tuple[tuple[str, Unknown], ...] = ()
        if not self._is_ours:
            told = tuple(
                (field, value) for field, value in values.items() if isinstance(value, Unknown)
            )
            for field, _ in told:
                values[field] = None
        for field, whole in _LIMITS:
            value, most = values.get(field), values.get(whole)
            if value is not None and most is not None and value > most:
                values[field] = None
        missing = tuple(
            [
                field
                for field, value in values.items()
                if value is None and field not in self._events
            ]
        )
        if values.get("index") is None:
            values["index"] = number
        if values.get("uuid") is None:
            values["uuid"] = values.get("pci_bus_id") or f"GPU {values['index']}"
        late = time - wall
        if values.get("xid_at") is not None:
            values["xid_at"] += late
        since = _value(self._since, cells)
        age = _value(self._age, cells)
        values["status"] = self._status_of(cells, told)
        values["status_since"] = None if since is None else since + late
        values["sampled_at"] = _sampled_at(time, age, is_ours=self._is_ours)
        mig = _value(self._mig, cells)
        if mig:
            values["mig"] = self._migs[mig] or ()
        return Card(values, (missing, told), _value(self._listed, cells))

    def _status_of(self, cells: list[str], told: tuple[tuple[str, Unknown], ...]) -> CardStatus:
        status = _STATUSES.get(_value(self._status, cells) or "")
        if status is not None:
            return status
        if any(reason is Unknown.CARD_LOST for _, reason in told):
            lost = any("is lost" in cell for cell in cells)
            return CardStatus.LOST if lost else CardStatus.RESET_REQUIRED
        return CardStatus.OK

    def _host(self, cells: list[str]) -> Host:
        found = tuple([_value(column, cells) for column in self._host_columns])
        host = self._hosts.get(found)
        if host is None:
            if len(self._hosts) >= _PATTERNS_KEPT:
                self._hosts.clear()
            name, driver, cuda, cpu, count, *load, used, total = found
            host = self._hosts[found] = Host(
                name=name or "",
                driver_version=driver,
                cuda_version=cuda,
                cpu_percent=cpu,
                cpu_count=count,
                load=None if None in load else (load[0], load[1], load[2]),
                memory_used=used,
                memory_total=total,
            )
        return host


def _value(column: tuple[int, Cells] | None, cells: list[str]) -> Any:
    if column is None or column[0] >= len(cells):
        return None
    return column[1][cells[column[0]]]


def _sampled_at(time: float, age: float | None, *, is_ours: bool) -> float | None:
    if age is None:
        return None if is_ours else time
    return time - age
