"""Samples of a host that has no gpumon, by its nvidia-smi and ``ps``.

A small shell loop there writes one block of lines for each sample::

    #gpus
    timestamp, index, uuid, name, memory.used [MiB], …
    2026/11/23 09:00:00.123, 0, GPU-…, NVIDIA H100 80GB HBM3, 1024, …
    #processes
    GPU-…, 4711, 1018, /usr/bin/python3
    #owners
    4711 1000 ann 360 R python3 train.py
    #end

There is no utilisation by process, no place where a process runs, and no start time that would
identify a process: nothing can be ended.
"""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpumon.model.processes import GpuProcess, GpuUse, ProcessId
from gpumon.model.snapshot import GpuStatus, Host, Snapshot, Trouble, Unknown
from gpumon.recording.csv.gpus import GpuReader
from gpumon.recording.csv.headings import as_header
from gpumon.stream import StreamError
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.model.snapshot import Gpu

LEAST_INTERVAL = 2
"""Seconds between samples: each one runs two programs there, which open the driver."""

_FIELDS = (
    *("timestamp", "index", "uuid", "name", "pci.bus_id", "driver_version"),
    *("memory.total", "memory.used", "memory.free", "utilization.gpu", "utilization.memory"),
    *("temperature.gpu", "power.draw", "power.limit", "clocks.sm", "clocks.mem", "clocks.max.sm"),
    *("pstate", "fan.speed", "clocks_throttle_reasons.active", "ecc.mode.current"),
    *("mig.mode.current", "compute_mode", "persistence_mode"),
)
_OLD_FIELDS = _FIELDS[:12]
"""Those that every driver has: one unknown field, and nvidia-smi answers nothing at all."""
_MOST_BLOCK = 2**20
"""Bytes of a block: 64 GPUs and 4,000 processes have half of it."""
_MOST_PROCESSES = 4096
_MOST_GPUS = 1024
_COMMAND_CHARACTERS = 4096
_NAME_CHARACTERS = 256
_SECTIONS = (b"#gpus", b"#processes", b"#owners")
_TROUBLE_CHARACTERS = 200
_ADVICE = "nvidia-smi on that machine says so; gpumon doctor there may say why."


def query_loop(interval: float) -> str:
    """The shell commands that write samples until their output is closed."""
    seconds = max(LEAST_INTERVAL, math.ceil(interval))
    gpus = 'nvidia-smi --query-gpu="$F" --format=csv,nounits'
    apps = "gpu_uuid,pid,used_memory,process_name"
    ps = "ps -ww -o pid= -o uid= -o user:32= -o etimes= -o state= -o args="
    return (
        f"F={','.join(_FIELDS)}; {gpus} >/dev/null 2>&1 || F={','.join(_OLD_FIELDS)}; "
        'echo "#host $(uname -n)"; while :; do '
        f'echo "#gpus"; {gpus} 2>&1; '
        f"P=$(nvidia-smi --query-compute-apps={apps} --format=csv,noheader,nounits 2>/dev/null); "
        'echo "#processes"; echo "$P"; echo "#owners"; '
        "L=$(echo \"$P\" | cut -d, -f2 | tr -cd '0-9\\n' | sort -un | tr '\\n' ','); "
        f'L=${{L#,}}; [ -z "$L" ] || {ps} -p "${{L%,}}" 2>/dev/null; '
        f'echo "#end"; sleep {seconds}; done;'
    )


class _Owner(NamedTuple):
    uid: int | None
    user: str
    started_at: float | None
    state: str
    command: tuple[str, ...]


class SmiReader:
    """Makes snapshots of the lines of ``query_loop``. They have the times of their arrival.

    Args:
        host: The name of the machine, until it says its own.
    """

    def __init__(self, host: str) -> None:
        self._host = Host(host)
        self._rest = b""
        self._header = b""
        self._reader: GpuReader | None = None

    def feed(self, data: bytes) -> list[Snapshot]:
        """The snapshots of all blocks that these bytes complete, oldest first; often none.

        Raises:
            StreamError: The bytes are not such blocks.
        """
        *blocks, self._rest = (self._rest + data).split(b"#end\n")
        if len(self._rest) > _MOST_BLOCK or any(len(block) > _MOST_BLOCK for block in blocks):
            raise StreamError(
                "it has nvidia-smi, but writes something else without end: check its login files"
            )
        return [self._snapshot(block) for block in blocks]

    def _snapshot(self, block: bytes) -> Snapshot:
        now = time.time()
        gpu_lines, process_lines, owner_lines = self._sections(block)
        gpus, trouble = self._gpus(gpu_lines, now)
        if trouble is not None:
            return Snapshot(now, self._host, source="nvidia-smi", trouble=trouble)
        indices = {gpu.uuid: gpu.index for gpu in gpus}
        processes = _processes(process_lines, _owners(owner_lines, now), indices)
        return Snapshot(now, self._host, gpus, processes, now, source="nvidia-smi")

    def _sections(self, block: bytes) -> list[list[bytes]]:
        """The lines of each section."""
        found: list[list[bytes]] = [[] for _ in _SECTIONS]
        place: int | None = None
        for line in block.split(b"\n"):
            if line in _SECTIONS:
                place = _SECTIONS.index(line)
            elif line.startswith(b"#host "):
                name = line[6:].decode("utf-8", "replace").strip()[:_NAME_CHARACTERS]
                self._host = replace(self._host, name=name or self._host.name)
            elif place is not None and line.strip():
                found[place].append(line)
        return found

    def _gpus(self, lines: Sequence[bytes], now: float) -> tuple[tuple[Gpu, ...], Trouble | None]:
        if not lines:
            return (), Trouble("nvidia-smi wrote nothing.", _ADVICE)
        if self._reader is None or lines[0] != self._header:
            header = as_header(lines[0], processes=False)
            if header is None:
                said = printable(lines[0].decode("utf-8", "replace").strip())
                return (), Trouble(said[:_TROUBLE_CHARACTERS], _ADVICE)
            self._reader, self._header = GpuReader(header, Unknown.NOT_SUPPORTED), lines[0]
        if len(lines) == 1:
            return (), Trouble("nvidia-smi lists no GPU.", _ADVICE)
        rows, facts = self._reader.read(lines[1 : _MOST_GPUS + 1], now, now)
        self._host = replace(self._host, driver_version=facts.driver_version)
        return tuple(self._reader.gpu(row, listed=_answers(row.values)) for row in rows), None


def _answers(values: dict[str, object]) -> bool:
    return values["status"] is GpuStatus.OK


def _owners(lines: Sequence[bytes], now: float) -> dict[int, _Owner]:
    """What ``ps`` says of the processes, by PID."""
    owners: dict[int, _Owner] = {}
    for line in lines[:_MOST_PROCESSES]:
        cells = line.decode("utf-8", "surrogateescape").split(None, 5)
        if len(cells) == 6 and (pid := _number(cells[0])) is not None:
            seconds = _number(cells[3])
            owners[pid] = _Owner(
                _number(cells[1]),
                cells[2][:_NAME_CHARACTERS],
                None if seconds is None else now - seconds,
                cells[4][:1],
                tuple(cells[5][:_COMMAND_CHARACTERS].split()),
            )
    return owners


def _processes(
    lines: Sequence[bytes], owners: dict[int, _Owner], indices: dict[str, int]
) -> tuple[GpuProcess, ...]:
    uses: dict[int, list[GpuUse]] = {}
    names: dict[int, str] = {}
    for pid, use, name in _uses(lines[:_MOST_PROCESSES], indices):
        uses.setdefault(pid, []).append(use)
        names[pid] = name
    return tuple(
        _process(pid, tuple(of_it), names[pid], owners.get(pid)) for pid, of_it in uses.items()
    )


def _uses(lines: Sequence[bytes], indices: dict[str, int]) -> Iterator[tuple[int, GpuUse, str]]:
    for line in lines:
        cells = line.decode("utf-8", "surrogateescape").split(", ", 3)
        pid = _number(cells[1]) if len(cells) == 4 else None
        index = indices.get(cells[0].strip())
        if pid is not None and index is not None:
            size = _number(cells[2])
            memory = None if size is None else size * 2**20
            path = "" if cells[3].startswith("[") else cells[3].strip()
            yield (
                pid,
                GpuUse(cells[0].strip(), index, memory_used=memory),
                path.rpartition("/")[2][:_NAME_CHARACTERS],
            )


def _process(pid: int, uses: tuple[GpuUse, ...], name: str, owner: _Owner | None) -> GpuProcess:
    if owner is None:
        return GpuProcess(ProcessId(pid, None), "C", uses, visible=False)
    return GpuProcess(
        ProcessId(pid, None),
        "C",
        uses,
        user=owner.user,
        uid=owner.uid,
        name=name or None,
        command=owner.command,
        state=owner.state,
        started_at=owner.started_at,
    )


def _number(cell: str) -> int | None:
    text = cell.strip()
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text, re.ASCII) else None
