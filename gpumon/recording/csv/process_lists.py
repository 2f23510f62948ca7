"""Reads the rows of a list in the process file back into processes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gpumon.model.processes import GpuProcess, GpuUse, ProcessId, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.recording.csv.cells import DAMAGED, IMPOSSIBLE, Cells
from gpumon.recording.csv.columns import HOSTNAME, PROCESS_COLUMNS
from gpumon.recording.csv.damage import flaw_in
from gpumon.recording.csv.parsers import arguments
from gpumon.recording.csv.sample_rows import sample_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.recording.csv.damage import DamageCounter
    from gpumon.recording.csv.headings import Header
    from gpumon.recording.csv.sample_rows import SampleRow

_PLACE, _SERVER, _LOAD = (
    tuple(column.field for column in PROCESS_COLUMNS if column.part == part)
    for part in ("place", "server", "load")
)
_NOWHERE = Workload()
_PLACES_KEPT = 512


class ProcessList(Struct, frozen=True):
    """The processes of all GPUs at one moment.

    Attributes:
        onward: Its onward time in the index of its file.
        processes: The processes.
        counts: Number of processes on each GPU, by UUID.
    """

    onward: float
    processes: tuple[GpuProcess, ...]
    counts: dict[str, int]


class ListReader:
    """Reads the rows below one header. Not thread-safe."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._columns = [
            (column.field, header.places[column.name], Cells(column.parse, damaged=DAMAGED))
            for column in (*PROCESS_COLUMNS, HOSTNAME)
            if column.name in header.places
        ]
        self._commands = Cells(arguments)
        self._places: dict[tuple[object, ...], Workload | None] = {}

    def read(
        self,
        lines: Sequence[bytes],
        onward: float,
        late: float,
        damage: DamageCounter | None = None,
    ) -> ProcessList:
        """The processes of a list.

        Args:
            lines: Its rows, possibly with other lines among them.
            onward: Its onward time.
            late: Seconds by which the recording's times are ahead of the times in its cells.
            damage: Counts what is damaged.
        """
        rows = 0
        first: dict[ProcessId, dict[str, Any]] = {}
        uses: dict[ProcessId, dict[tuple[object, ...], GpuUse]] = {}
        for found in sample_rows(lines, self._header, damage):
            row = self._row(found, damage)
            if row.get("pid") is None:
                continue
            rows += 1
            id_ = ProcessId(row["pid"], row.get("start_ticks"))
            first.setdefault(id_, row)
            use = _use(row)
            # A row that was written twice counts once, as in a report.
            uses.setdefault(id_, {})[use.gpu_uuid, use.instance] = use
        if damage is not None:
            damage.add_repeated(rows - sum(map(len, uses.values())))
        processes = tuple(
            [self._process(id_, row, tuple(uses[id_].values()), late) for id_, row in first.items()]
        )
        counts = Counter(
            uuid for process in processes for uuid in {use.gpu_uuid for use in process.uses}
        )
        return ProcessList(onward, processes, counts)

    def _row(self, row: SampleRow, damage: DamageCounter | None) -> dict[str, Any]:
        """The values of a row by field."""
        cells, width = row.cells, len(row.cells)
        found = {
            field: values[cells[place]] for field, place, values in self._columns if place < width
        }
        flaw = flaw_in(found.values())
        if damage is not None:
            damage.judge(row, flaw)
        if flaw is None:
            return found
        unread = (DAMAGED, IMPOSSIBLE)
        return {field: None if value in unread else value for field, value in found.items()}

    def _process(
        self, id_: ProcessId, row: dict[str, Any], uses: tuple[GpuUse, ...], late: float
    ) -> GpuProcess:
        started = row.get("started_at")
        command: Any = self._commands[row.get("command") or ""]
        return GpuProcess(
            id=id_,
            type=row.get("type") or "C",
            uses=uses,
            visible=row.get("visible") is not False,
            user=row.get("user"),
            uid=row.get("uid"),
            name=row.get("name"),
            command=command or (),
            state=row.get("state"),
            cpu_percent=row.get("cpu_percent"),
            rss=row.get("rss"),
            started_at=None if started is None else started + late,
            place=self._place(row),
            load=_load(row),
        )

    def _place(self, row: dict[str, Any]) -> Workload | None:
        facts = tuple([row.get(field) for field in (*_PLACE, *_SERVER)])
        if facts not in self._places:
            if len(self._places) >= _PLACES_KEPT:
                self._places.clear()
            place = Workload(**_known(row, _PLACE), server=_server(row))
            self._places[facts] = place if place != _NOWHERE else None
        return self._places[facts]


def _known(row: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """The values of these fields that are known."""
    return {field: value for field in fields if (value := row.get(field)) is not None}


def _server(row: dict[str, Any]) -> InferenceServer | None:
    facts = _known(row, _SERVER)
    if "engine" not in facts:
        return None
    outermost: ProcessId | None = facts.pop("server_id", None)
    if outermost is not None:
        facts.update(pid=outermost.pid, start_time=outermost.start_time)
    return InferenceServer(**facts)


def _load(row: dict[str, Any]) -> ServerLoad | None:
    facts = _known(row, _LOAD)
    return ServerLoad(**facts) if facts else None


def _use(row: dict[str, Any]) -> GpuUse:
    gpu, compute = row.get("gpu_instance"), row.get("compute_instance")
    index: int | None = row.get("gpu_index")
    return GpuUse(
        gpu_uuid=row.get("gpu_uuid") or f"GPU {index}",
        gpu_index=-1 if index is None else index,
        instance=None if gpu is None or compute is None else (gpu, compute),
        memory_used=row.get("memory_used"),
        sm=row.get("sm"),
        memory_activity=row.get("memory_activity"),
        encoder=row.get("encoder"),
        decoder=row.get("decoder"),
    )
