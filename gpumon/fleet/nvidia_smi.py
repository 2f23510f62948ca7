"""Samples of a host without gpumon of the same version, by its nvidia-smi and ``ps``.

A small shell loop there writes one block of lines for each sample::

    #fields timestamp,index,uuid,name,memory.used,…
    #gpus
    timestamp, index, uuid, name, memory.used [MiB], …
    2026/11/23 09:00:00.123, 0, GPU-…, NVIDIA H100 80GB HBM3, 1024, …
    #errors
    #processes
    GPU-…, 4711, 1018, /usr/bin/python3
    #status 0
    #owners
    4711 1000 ann 360 R python3 train.py
    #end

There is no utilisation by process, no workload of a process, and no start time that would identify
a process: nothing can be ended.
"""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpumon.fleet.smi_gpus import SmiGpus
from gpumon.model.processes import LARGEST_PID, GpuProcess, GpuUse, ProcessId
from gpumon.model.snapshot import GpuStatus, Host, Snapshot, Trouble, Unknown
from gpumon.recording.csv.nvidia_smi import unknown_word
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
_MOST_BLOCK = 2**20
"""Bytes of a block: 64 GPUs and 4,000 processes have half of it."""
_MOST_PROCESSES = 4096
_MOST_LINES = 1024
_COMMAND_CHARACTERS = 4096
_NAME_CHARACTERS = 256
_INIT = 1
_SECTIONS = (b"#gpus", b"#errors", b"#processes", b"#owners")
_FIELDS_MARK = b"#fields "
_STATUS_MARK = b"#status "
_HAS_LIST = ("0", "14")
"""The exit statuses of a query of processes that has its answer: 14 is a corrupted infoROM."""
_ERROR = re.compile(r"failed|error|unable|could ?n.t", re.IGNORECASE)
_TROUBLE_CHARACTERS = 200
_ADVICE = "nvidia-smi on that machine reports this; gpumon doctor there may show the reason."


def query_loop(interval: float) -> str:
    """The shell commands that write samples until their output is closed."""
    seconds = max(LEAST_INTERVAL, math.ceil(interval))
    # On standard error apart: what a buffer holds back would be written into the middle of a row.
    gpus = (
        '$({ E=$(nvidia-smi --query-gpu="$F" --format=csv,nounits 2>&1 >&3); } 3>&1; '
        "printf '\\n#errors\\n%s\\n' \"$E\")"
    )
    # An older nvidia-smi answers nothing but the name of the first field that it does not know.
    unknown = (
        "$(printf '%s\\n' \"$G\" | "
        "sed -n 's/^Field \"\\([A-Za-z0-9_.]*\\)\" is not a valid field.*/\\1/p' | sed 1q)"
    )
    apps = "gpu_uuid,pid,used_memory,process_name"
    # A number that is no PID, and ps says nothing of all others.
    pids = r"sed -n 's/^[^,]*, *\([1-9][0-9]\{0,8\}\) *,.*/\1/p'"
    ps = "ps -ww -o pid= -o uid= -o user:32= -o etimes= -o state= -o args="
    return (
        f"F={','.join(_FIELDS)}; "
        'echo "#host $(uname -n)"; echo "#kernel $(uname -r)"; while :; do '
        f"G={gpus}; B={unknown}; "
        'N=$(echo ",$F," | sed "s/,$B,/,/;s/^,//;s/,$//"); [ "$N" = "$F" ] || { F=$N; continue; }; '
        "echo \"#fields $F\"; echo '#gpus'; printf '%s\\n' \"$G\"; "
        f"P=$(nvidia-smi --query-compute-apps={apps} --format=csv,noheader,nounits 2>/dev/null); "
        "S=$?; echo '#processes'; printf '%s\\n' \"$P\"; echo \"#status $S\"; echo '#owners'; "
        f"L=$(printf '%s\\n' \"$P\" | {pids} | sort -un | tr '\\n' ','); "
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

    ``host`` is the name of the machine until its own name arrives.
    """

    def __init__(self, host: str) -> None:
        self._host = Host(host)
        self._rest = b""
        self._fields = b""
        self._in_wsl = False
        self._status = "0"
        self._gpus = SmiGpus()

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
        gpu_lines, error_lines, process_lines, owner_lines = self._sections(block)
        lines = [*gpu_lines[:_MOST_LINES], *error_lines[:_MOST_LINES]]
        gpus, message = self._gpus.read(self._fields, lines, now)
        if not gpus:
            said = printable(message)[:_TROUBLE_CHARACTERS]
            none = "nvidia-smi lists no GPU." if lines else "nvidia-smi wrote nothing."
            trouble = Trouble(said or none, _ADVICE)
            return Snapshot(now, self._host, source="nvidia-smi", trouble=trouble)
        self._host = replace(self._host, driver_version=self._gpus.driver_version)
        gpus = _with_unlisted(gpus, process_lines, self._status)
        indices = {gpu.uuid: gpu.index for gpu in gpus}
        owners = _owners(owner_lines, now)
        processes = _processes(process_lines, owners, indices, in_wsl=self._in_wsl)
        return Snapshot(now, self._host, gpus, processes, now, source="nvidia-smi")

    def _sections(self, block: bytes) -> list[list[bytes]]:
        """The lines of each section."""
        found: list[list[bytes]] = [[] for _ in _SECTIONS]
        section: int | None = None
        for line in block.split(b"\n"):
            if line in _SECTIONS:
                section = _SECTIONS.index(line)
            elif line.startswith(b"#host "):
                name = line[6:].decode("utf-8", "replace").strip()[:_NAME_CHARACTERS]
                self._host = replace(self._host, name=name or self._host.name)
            elif line.startswith(b"#kernel "):
                self._in_wsl = b"microsoft" in line.lower()
            elif line.startswith(_FIELDS_MARK):
                self._fields = line.removeprefix(_FIELDS_MARK)
            elif line.startswith(_STATUS_MARK):
                self._status = line.removeprefix(_STATUS_MARK).decode("ascii", "replace")
            elif section is not None and line.strip():
                found[section].append(line)
        return found


def _with_unlisted(gpus: tuple[Gpu, ...], lines: Sequence[bytes], status: str) -> tuple[Gpu, ...]:
    """The GPUs, with the reason where their processes are unknown.

    ``lines`` is what nvidia-smi wrote when it was asked for the processes, ``status`` its exit
    status. An empty list means no process only if the query had its answer.
    """
    found: Unknown | None = None if status in _HAS_LIST else Unknown.NO_ANSWER
    of_gpu: dict[str, Unknown] = {}
    has_rows = False
    for line in lines:
        text = line.decode("utf-8", "replace").strip()
        uuid, _, rest = text.partition(",")
        pid = rest.split(",", 1)[0]
        if _number(pid) is not None:
            has_rows = True
        elif (word := unknown_word(pid)) is not None:
            of_gpu[uuid.strip()] = word
        elif (word := unknown_word(text)) is not None:
            found = word
        elif _ERROR.search(text) is not None:
            found = Unknown.NO_ANSWER
    # With an error for a GPU that fails, the processes of the others are listed.
    if has_rows:
        found = None
    return tuple(
        gpu
        if (reason := of_gpu.get(gpu.uuid, found)) is None or gpu.status is not GpuStatus.OK
        else replace(gpu, unknown={**gpu.unknown, "processes": reason})
        for gpu in gpus
    )


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
                None if seconds is None or seconds > now else now - seconds,
                cells[4][:1],
                tuple(cells[5][:_COMMAND_CHARACTERS].split()),
            )
    return owners


def _processes(
    lines: Sequence[bytes], owners: dict[int, _Owner], indices: dict[str, int], *, in_wsl: bool
) -> tuple[GpuProcess, ...]:
    uses: dict[int, dict[str, GpuUse]] = {}
    names: dict[int, str] = {}
    for pid, use, name in _uses(lines[:_MOST_PROCESSES], indices):
        by_gpu = uses.setdefault(pid, {})
        # A row that was written twice counts once.
        known = by_gpu.get(use.gpu_uuid)
        if known is None or (use.memory_used or 0) >= (known.memory_used or 0):
            by_gpu[use.gpu_uuid] = use
        names[pid] = name
    for pid, owner in list(owners.items()):
        if (in_wsl or pid == _INIT) and not _is_same_process(names.get(pid, ""), owner):
            del owners[pid]
    return tuple(
        _process(pid, tuple(by_gpu.values()), names[pid], owners.get(pid))
        for pid, by_gpu in uses.items()
    )


def _uses(lines: Sequence[bytes], indices: dict[str, int]) -> Iterator[tuple[int, GpuUse, str]]:
    for line in lines:
        cells = line.decode("utf-8", "surrogateescape").split(",", 3)
        # The last cell of a line that was cut may lack its end.
        pid = _number(cells[1]) if len(cells) > 2 else None
        uuid = cells[0].strip()
        if not pid or pid > LARGEST_PID or uuid not in indices:
            continue
        size = _number(cells[2]) if len(cells) == 4 else None
        memory = None if size is None else size * 2**20
        path = cells[3].strip() if len(cells) == 4 else ""
        name = "" if path.startswith("[") else re.split(r"[/\\]", path)[-1][:_NAME_CHARACTERS]
        yield pid, GpuUse(uuid, indices[uuid], memory_used=memory), name


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


def _is_same_process(name: str, owner: _Owner) -> bool:
    """Whether the process of a PID can be the one that the driver names.

    Under WSL and in containers the driver may list PIDs of another namespace, where the same number
    is another process; in the own one PID 1 never computes.
    """
    word = re.match(r"[A-Za-z]+", name)
    return word is None or word[0].lower() in " ".join(owner.command).lower()


def _number(cell: str) -> int | None:
    text = cell.strip()
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None
