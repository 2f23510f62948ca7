"""The GPUs of a host by the output of its nvidia-smi, of which any line may be odd.

nvidia-smi has no row for a GPU that fails, or a row of words such as ``[Unknown Error]``. A line
before, between or after the rows, or on standard error, may name the GPU::

    Unable to determine the device handle for GPU1: 0000:02:00.0: Unknown Error
    Unable to determine the device handle for GPU0000:02:00.0: GPU is lost.  Reboot the system to …

(dcgm-exporter#604, open-gpu-kernel-modules#387, nvidia-container-toolkit#69.) Without such a line
the gap in the indices shows that a GPU is missing, because the driver counts it.
"""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.fleet.fleet import STATIC_FIELDS, without_values
from gpumon.model.metrics import Tier
from gpumon.model.snapshot import Gpu, GpuStatus, Unknown
from gpumon.recording.csv.cells import read_moment
from gpumon.recording.csv.columns import readable_columns
from gpumon.recording.csv.gpus import GpuReader
from gpumon.recording.csv.headings import as_header
from gpumon.recording.csv.nvidia_smi import unknown_word
from gpumon.text.csv_cells import csv_text

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from gpumon.recording.csv.gpus import ParsedGpu
    from gpumon.recording.csv.headings import Header

_MOST_GPUS = 256
_ANY_TIME = "2000-01-01"
"""Stands for the timestamp of a row: a sample has the time of its arrival."""
_INNER_STAMP = re.compile(r"(?<=.)(?=\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d)", re.ASCII)
"""Where a row begins behind other text in the same line."""
_BUS = re.compile(
    # The lookahead leaves out a time of day with milliseconds.
    r"([0-9A-F]{1,8}):([0-9A-F]{2}):([01][0-9A-F])\.([0-7])(?![0-9A-F])",
    re.ASCII | re.IGNORECASE,
)
_UUID = re.compile(r"GPU-[0-9a-f]{8}-", re.ASCII | re.IGNORECASE)
_SEPARATOR = re.compile(r",(?: |$)")
"""What nvidia-smi writes between cells. A comma without a space is part of one, as in ``25,02``."""
_DECIMAL_COMMA = re.compile(r"(-?[0-9]+),([0-9]+)")
_NUMBER_IN_MESSAGE = re.compile(
    # Not the domain of a bus id, as in GPU0000:02:00.0.
    r"\bGPU\s*#?([0-9]{1,2})(?=:(?![0-9A-F]{2}:[0-9A-F]{2}\.)|\s+(?:is|has|fell|needs|requires)\b)",
    re.ASCII | re.IGNORECASE,
)
_IS_ABOUT_GPU = re.compile(r"gpu|nvidia|device handle", re.IGNORECASE)
_DEVICE_HANDLE = re.compile(r"device handle for", re.IGNORECASE)
_ERROR = re.compile(
    r"error|fail|unable|no devices|could ?n.t|cannot|not found|mismatch|permission", re.IGNORECASE
)
_STATUS_WORDS = (
    (re.compile(r"requires? (?:a )?reset|reset required", re.IGNORECASE), GpuStatus.RESET_REQUIRED),
    (re.compile(r"permission", re.IGNORECASE), GpuStatus.NO_PERMISSION),
)
_STATUS_OF_REASON = {
    Unknown.NO_ANSWER: GpuStatus.FAILING,
    Unknown.NO_PERMISSION: GpuStatus.NO_PERMISSION,
}
"""The status of a GPU of which most values are unknown for this reason."""
_MOVING_COLUMNS = frozenset(
    column.name
    for column in readable_columns(processes=False)
    if column.metric is not None and column.metric.tier is not Tier.STATIC
)

_BusId = tuple[int, int, int, int]


class _Row(Struct):
    """The cells of a row, and those that identify its GPU; ``None`` is unknown."""

    cells: list[str]
    index: int | None = None
    uuid: str | None = None
    bus: _BusId | None = None
    has_values: bool = False


class _Failure(Struct):
    """A GPU without values, and what identifies it; ``None`` is unknown."""

    status: GpuStatus
    index: int | None = None
    bus: _BusId | None = None


class SmiGpus:
    """Reads the GPUs of a host. It remembers them, so that a GPU that fails keeps its identity."""

    def __init__(self) -> None:
        self.driver_version: str | None = None  # once a row had it
        self._header: Header | None = None
        self._reader: GpuReader | None = None
        self._known: dict[str, Gpu] = {}
        self._absent_since: dict[tuple[str, GpuStatus], float] = {}

    def read(
        self, fields: bytes, lines: Iterable[bytes], now: float
    ) -> tuple[tuple[Gpu, ...], str]:
        """The GPUs by index, and a line that is neither heading nor row: if possible, an error.

        Args:
            fields: The names of the requested fields; empty if only the output tells them.
            lines: The output, with that on standard error last.
            now: The time.
        """
        requested = as_header(fields, processes=False)
        has_heading = requested is not None
        if requested is not None:
            self._set_header(requested)
        rows: list[_Row] = []
        named: list[_Failure] = []
        nameless: list[GpuStatus] = []
        unnamed: list[GpuStatus] = []
        messages: list[str] = []
        for text in _texts(lines):
            if (heading := as_header(text.encode(), processes=False)) is not None:
                if requested is None or not _is_cut(heading, requested):
                    self._set_header(heading)
                    has_heading = True
            elif has_heading and (row := self._row(text)) is not None:
                if (row.index, row.uuid, row.bus) == (None, None, None) and not row.has_values:
                    words = " ".join(row.cells[1:])
                    nameless.append(_status(words) if words else GpuStatus.NO_ANSWER)
                else:
                    rows.append(row)
            else:
                messages.append(text)
                if (failure := _failure(text)) is not None:
                    named.append(failure)
                elif _DEVICE_HANDLE.search(text):
                    unnamed.append(_status(text))
        gpus = [self._gpu(row, now) for row in self._identified(rows)]
        # A GPU without a name may have both, a message and a row of words.
        failures = self._failures(gpus, named, nameless + unnamed[len(nameless) :])
        if gpus or failures:
            gpus += self._absent(gpus, failures, now)
        message = min(messages, key=lambda text: _ERROR.search(text) is None, default="")
        # A row that was merged with another line can name a GPU that also has a row of its own.
        by_uuid = {gpu.uuid: gpu for gpu in reversed(gpus)}
        return tuple(sorted(by_uuid.values(), key=lambda gpu: gpu.index)), message

    def _set_header(self, header: Header) -> None:
        """Read the following rows below this heading."""
        if self._header is None or header.names != self._header.names:
            self._header, self._reader = header, GpuReader(header, Unknown.NOT_SUPPORTED)

    def _row(self, text: str) -> _Row | None:
        """The row in a line; ``None`` if the line is no row."""
        header = self._header
        assert header is not None  # noqa: S101 - rows follow a heading
        cells = _fitted(_cells(text), header)
        is_whole = len(cells) == header.width
        stamp = cells[header.time] if header.time < len(cells) else ""
        if read_moment(stamp) is None and not (is_whole and self._is_row(cells)):
            return None
        if not is_whole:
            # The line was cut: its last cell may lack its end.
            cells = cells[:-1]
        values = [cell for index, cell in enumerate(cells) if index != header.time]
        row = _Row(cells, has_values=is_whole and not all(map(_is_word, values)))
        for column in ("index", "uuid", "pci.bus_id"):
            index = header.places.get(column)
            if index is None or index >= len(cells) or unknown_word(cells[index]) is not None:
                continue
            if column == "index":
                row.index = _index(cells[index])
            elif column == "uuid":
                row.uuid = cells[index] or None
            else:
                row.bus = _bus(cells[index])
        return row

    def _is_row(self, cells: list[str]) -> bool:
        """Whether these are the cells of a GPU, although the time among them cannot be read."""
        header = self._header
        assert header is not None  # noqa: S101 - rows follow a heading
        if unknown_word(cells[header.time]) is not None:
            return True
        uuid, bus = (header.places.get(name) for name in ("uuid", "pci.bus_id"))
        return (uuid is not None and _UUID.match(cells[uuid]) is not None) or (
            bus is not None and _BUS.fullmatch(cells[bus]) is not None
        )

    def _identified(self, rows: list[_Row]) -> list[_Row]:
        """The last row of each GPU, each with an index of its own."""
        last: dict[object, _Row] = {}
        for row in _without_parts(rows):
            same = last.get(row.uuid)
            if row.uuid is not None and same is not None and same.bus != row.bus:
                # Of two GPUs with the same UUID the driver's list of processes means neither.
                row.uuid = None
            key = row.uuid or row.bus or row.index
            last[id(row) if key is None else key] = row
        found = list(last.values())[:_MOST_GPUS]
        for row in found:
            if row.index is None and (known := self._remembered(row.uuid, row.bus, None)):
                row.index = known.index
        _number(found, {})
        return found

    def _gpu(self, row: _Row, now: float) -> Gpu:
        header, reader = self._header, self._reader
        assert header is not None  # noqa: S101 - rows follow a heading
        assert reader is not None  # noqa: S101 - as above
        cells = [*row.cells, *[""] * (header.width - len(row.cells))]
        cells[header.time] = _ANY_TIME
        for name, identity in (("index", str(row.index)), ("uuid", row.uuid or "")):
            if (index := header.places.get(name)) is not None:
                cells[index] = identity
        (parsed,), host = reader.read([csv_text([cells]).rstrip("\n").encode()], now, now)
        self.driver_version = host.driver_version or self.driver_version
        values, known = parsed.values, self._remembered(row.uuid, row.bus, row.index)
        values["index"] = row.index
        if known is not None:
            values["uuid"] = known.uuid
            for field in STATIC_FIELDS:
                if values.get(field) is None:
                    values[field] = getattr(known, field)
        if values["status"] is GpuStatus.OK:
            values["status"] = self._status_of(parsed)
        gpu = reader.gpu(parsed, listed=values["status"] is GpuStatus.OK)
        if len(row.cells) < header.width:
            # Its values were in the part that was cut off.
            gpu = replace(gpu, unknown=dict.fromkeys(gpu.unknown, Unknown.NO_ANSWER))
        if row.uuid is not None:
            self._known.pop(gpu.uuid, None)
            self._known[gpu.uuid] = gpu
            if len(self._known) > _MOST_GPUS:
                del self._known[next(iter(self._known))]
        return gpu

    def _remembered(self, uuid: str | None, bus: _BusId | None, index: int | None) -> Gpu | None:
        """The GPU as it was before, by the best that identifies it."""
        if uuid is not None:
            return self._known.get(uuid)
        for gpu in self._known.values():
            if (_bus(gpu.pci_bus_id or "") == bus) if bus is not None else gpu.index == index:
                return gpu
        return None

    def _status_of(self, parsed: ParsedGpu) -> GpuStatus:
        """The status of a GPU by the words that stand instead of its values."""
        assert self._header is not None  # noqa: S101 - rows follow a heading
        columns = len(self._header.places.keys() & _MOVING_COLUMNS)
        reasons = [reason for field, reason in parsed.missing[1] if field not in STATIC_FIELDS]
        for reason, status in _STATUS_OF_REASON.items():
            if 2 * reasons.count(reason) > columns:
                return status
        return GpuStatus.OK

    def _failures(
        self, gpus: list[Gpu], named: list[_Failure], nameless: list[GpuStatus]
    ) -> list[_Failure]:
        """The GPUs without a row that identifies them, each once, with their indices."""
        indices = {gpu.index: _bus(gpu.pci_bus_id or "") for gpu in gpus}
        failures: list[_Failure] = []
        for failure in named:
            known = self._remembered(None, failure.bus, failure.index)
            if known is not None:
                failure.index, failure.bus = known.index, _bus(known.pci_bus_id or "")
            key = (failure.bus, None if failure.bus else failure.index)
            listed = {(bus, None if bus else index) for index, bus in indices.items()}
            listed |= {(other.bus, None if other.bus else other.index) for other in failures}
            if key not in listed and (failure.bus or failure.index not in indices):
                failures.append(failure)
        # A row of words is that of a GPU that a message names; if there are more, of another one.
        for failure, status in zip(failures, nameless, strict=False):
            if status is not GpuStatus.LOST:
                failure.status = status
        failures += [_Failure(status) for status in nameless[len(failures) :]]
        taken = _number(failures, indices)
        gaps = [index for index in range(max(taken, default=0)) if index not in taken]
        # An older nvidia-smi ends at the first GPU that fails: of the others nothing is known.
        status = GpuStatus.LOST if gpus else GpuStatus.NO_ANSWER
        return (failures + [_Failure(status, index) for index in gaps])[:_MOST_GPUS]

    def _absent(self, gpus: list[Gpu], failures: list[_Failure], now: float) -> list[Gpu]:
        """The GPUs without values: those that failed, and those that were there before."""
        listed = {gpu.uuid for gpu in gpus}
        buses = {_bus(gpu.pci_bus_id or "") for gpu in gpus} - {None}
        for uuid, gpu in list(self._known.items()):
            if uuid not in listed and _bus(gpu.pci_bus_id or "") in buses:
                # Another GPU has its slot on the bus.
                del self._known[uuid]
        absent: dict[str, Gpu] = {}
        since, self._absent_since = self._absent_since, {}
        for failure in failures:
            known = self._remembered(None, failure.bus, failure.index)
            if known is not None and known.uuid in listed | absent.keys():
                known = None
            gpu = _without_values(failure, known)
            absent[gpu.uuid] = gpu
        taken = {gpu.index for gpu in (*gpus, *absent.values())}
        for uuid, gpu in self._known.items():
            if uuid not in listed | absent.keys():
                index = gpu.index if gpu.index not in taken else _free(taken)
                absent[uuid] = _without_values(_Failure(GpuStatus.NO_ANSWER, index), gpu)
                taken.add(index)
        for uuid, gpu in absent.items():
            key = uuid, gpu.status
            began = self._absent_since[key] = since.get(key, now)
            absent[uuid] = replace(gpu, status_since=began)
        return list(absent.values())


def _texts(lines: Iterable[bytes]) -> Iterator[str]:
    """The lines without blank ones; a row behind other text is a line of its own."""
    for line in lines:
        for part in line.decode("utf-8", "replace").replace("\0", "").split("\r"):
            for text in _INNER_STAMP.split(part):
                if text.strip():
                    yield text.strip()


def _without_parts(rows: list[_Row]) -> list[_Row]:
    """The rows without the beginnings of rows that follow as a whole."""
    whole = [row for row in rows if row.uuid is not None]
    buses, indices = {row.bus for row in whole}, {row.index for row in whole}
    return [
        row
        for row in rows
        if row.uuid is not None
        or (row.index not in indices if row.bus is None else row.bus not in buses)
    ]


def _is_cut(heading: Header, whole: Header) -> bool:
    """Whether a heading is the beginning of another one, up to a name that may lack its end."""
    before = heading.width - 1
    return heading.width < whole.width and heading.names[:before] == whole.names[:before]


def _cells(text: str) -> list[str]:
    """The cells of a row, with numbers as the C locale writes them."""
    is_spaced = 2 * text.count(", ") > text.count(",")
    cells = _SEPARATOR.split(text) if is_spaced else text.split(",")
    return [
        cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell
        for cell in map(str.strip, cells)
    ]


def _is_word(cell: str) -> bool:
    """Whether a cell has a word instead of a value."""
    return not cell or cell.startswith("[") or unknown_word(cell) is not None


def _fitted(cells: list[str], header: Header) -> list[str]:
    """The cells of a row, of which there may be too many."""
    surplus = len(cells) - header.width
    name, bus = header.places.get("name"), header.places.get("pci.bus_id")
    if surplus <= 0 or name is None:
        return cells
    # Only the product name may contain commas, and nvidia-smi does not quote it.
    end = name + surplus + 1
    joined = [*cells[:name], ", ".join(cells[name:end]), *cells[end:]]
    if bus is None or _bus(joined[bus]) is not None or _bus(cells[bus]) is None:
        return joined
    # The bus id is where it should be without that: other text follows the row.
    return cells[: header.width]


def _failure(text: str) -> _Failure | None:
    """The GPU that a message names; ``None`` if it names none."""
    if _UUID.search(text) is not None:
        # A row that cannot be read, not a message.
        return None
    index = _NUMBER_IN_MESSAGE.search(text)
    bus = _bus(text) if _IS_ABOUT_GPU.search(text) else None
    if index is None and bus is None:
        return None
    return _Failure(_status(text), None if index is None else int(index[1]), bus)


def _status(text: str) -> GpuStatus:
    """The status of a GPU that has no values, by what nvidia-smi writes of it."""
    for pattern, status in _STATUS_WORDS:
        if pattern.search(text):
            return status
    return GpuStatus.LOST


def _number(
    gpus: Sequence[_Row | _Failure], indices: dict[int, _BusId | None]
) -> dict[int, _BusId | None]:
    """Give each GPU an index of its own: indices are in the order of the bus.

    ``indices`` has the bus ids of other GPUs, by index. Returns the bus ids of all, by index.
    """
    taken = dict(indices)
    unnumbered = []
    for gpu in gpus:
        if gpu.index is None or gpu.index in taken:
            unnumbered.append(gpu)
        else:
            taken[gpu.index] = gpu.bus
    # Those without a bus id last.
    for gpu in sorted(unnumbered, key=lambda gpu: (gpu.bus is None, gpu.bus or ())):
        bus = gpu.bus
        before = [i for i, other in taken.items() if bus and other is not None and other < bus]
        gpu.index = _free(taken, max(before, default=-1) + 1)
        taken[gpu.index] = bus
    return taken


def _free(taken: Container[int], first: int = 0) -> int:
    return next(index for index in count(first) if index not in taken)


def _without_values(failure: _Failure, known: Gpu | None) -> Gpu:
    """A GPU with what never changes of it."""
    assert failure.index is not None  # noqa: S101 - all were numbered
    bus = None if failure.bus is None else "{:08X}:{:02X}:{:02X}.{:X}".format(*failure.bus)
    if known is None:
        gpu = Gpu(failure.index, bus or f"GPU {failure.index}", pci_bus_id=bus)
    else:
        gpu = replace(known, index=failure.index, pci_bus_id=known.pci_bus_id or bus)
    return without_values(gpu, failure.status)


def _bus(text: str) -> _BusId | None:
    """The bus id in a text, however many digits its domain has."""
    match = _BUS.search(text)
    if match is None:
        return None
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    return domain, bus, device, function


def _index(text: str) -> int | None:
    match = re.fullmatch(r"[0-9]{1,3}", text)
    return int(text) if match is not None and int(text) < _MOST_GPUS else None
