"""Ends real processes on the first GPU with gpumon, and times how soon their memory is back.

    python -m tests.gpu.ending OUT

writes OUT/ending.json: for each kind of process whether gpumon saw it, what it called it, how its
end went and what came back; an orphan; a second run that fails for want of memory, and the way out.
Only processes that it has started itself are ended.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from gpumon.findings.preallocation import preallocation
from gpumon.kill.local_host import LocalHost
from tests.driver import GIB, MIB
from tests.driver.owners import lives
from tests.gpu.anonymous import anonymous
from tests.gpu.work import ROOT, Kind, NoWorkError, Worker, holder
from tests.nvml_source import NvmlSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, Snapshot

GPUMON = (sys.executable, "-m", "gpumon")

_SEEN_SECONDS = 5.0
_QUIET_SECONDS = 150.0
_END_SECONDS = 40.0
_BACK_SECONDS = 15.0
_LOOK_SECONDS = 0.01
_SLACK = 64 * MIB
"""The driver keeps some memory of a card that was used."""
_LEAST, _LEFT, _WANTED = 6 * GIB, 3 * GIB, 4 * GIB
"""Bytes that must be free, that the first run leaves, and that the second one wants."""
_SERVERS = ("vllm", "sglang", "tensorrt_llm", "lmdeploy")


class Case(NamedTuple):
    """A kind of process."""

    name: str  # In the report.
    kind: Kind  # What it does with the GPU.
    arguments: tuple[str, ...]  # Those of ``tests.gpu.work``.
    orphaned: bool = False  # Whether its parent is killed first, and the child is what is ended.


CASES = (
    Case(
        "PyTorch with four data loaders", Kind.TENSOR, ("--loaders", "4", "--memory", str(4 * GIB))
    ),
    Case("JAX with reserved memory", Kind.SLEEP, ("--with-jax",)),
    Case("orphan", Kind.SLEEP, ("--beside", "--memory", str(2 * GIB)), orphaned=True),
)


class Ended(msgspec.Struct):
    """How the end of a process went; ``None`` is unknown."""

    name: str  # Of the case.
    tried: bool = False  # Whether there was such a process.
    said: str = ""  # Why not, or what was odd.
    # From when it was at work until a sample had it; gpumon asks for the processes once a second,
    # so that this is up to a second by chance.
    seen_ms: float | None = None
    command: list[str] = []  # As gpumon shows it.
    memory_used_bytes: int | None = None  # What it held.
    findings: list[str] = []  # What gpumon says of memory that was reserved in advance.
    end: Any = None  # The object of ``gpumon end --format json``.
    memory_back_ms: float | None = None  # From its end until the GPU had its memory back.
    memory_missing_bytes: int | None = None  # What did not come back.


class OutOfMemory(msgspec.Struct):
    """A run that fails because another one holds the memory, and the way out."""

    tried: bool = False  # Whether it came so far.
    said: str = ""  # Why not, or what was odd.
    error: str = ""  # What the second run failed with.
    holder_seen: bool = False  # Whether gpumon lists who holds the memory.
    refused_select: str = ""  # What ``gpumon select`` said meanwhile; empty if it chose this GPU.
    end: Any = None  # The object of ``gpumon end --format json`` for the holder.
    after_ms: float | None = None  # From ``gpumon end`` until the second run had its memory.
    worked_after: bool = False  # Whether it had.


_Entry = TypeVar("_Entry", Ended, OutOfMemory)


class Endings(msgspec.Struct):
    """What the file holds."""

    cases: list[Ended]
    out_of_memory: OutOfMemory


class Watch:
    """What gpumon sees of the first GPU, sample by sample."""

    def __init__(self) -> None:
        self._source = NvmlSource()
        self._source.open()
        self._host = LocalHost(lambda: self._source.backend.device_files)

    def close(self) -> None:
        self._source.close()

    def gpu(self) -> Gpu:
        return self._source.sample().gpus[0]

    def is_quiet(self) -> bool:
        snapshot = self._source.sample()
        return not any(use.gpu_index == 0 for one in snapshot.processes for use in one.uses)

    def process(self, pid: int, seconds: float) -> tuple[Snapshot, GpuProcess] | None:
        """The first sample that has a process, within so many seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            snapshot = self._source.sample()
            for process in snapshot.processes:
                if process.id.pid == pid:
                    return snapshot, process
            time.sleep(_LOOK_SECONDS)
        return None

    def reserved_by(self, snapshot: Snapshot, process: GpuProcess) -> list[str]:
        """What gpumon says of memory that was reserved in advance."""
        found = preallocation(process, self._host.details(process.id), snapshot.gpus)
        return [found.sentence] if found is not None else []


def end_case(case: Case, watch: Watch) -> Ended:
    """Start it, see it, end it, and wait for its memory."""
    entry = Ended(case.name)
    before = watch.gpu().memory_used
    try:
        with holder(case.kind, *case.arguments) as worker:
            ready, pid = time.monotonic(), worker.pid
            if case.orphaned:
                worker.process.kill()
                worker.process.wait()
            entry.tried = True
            found = watch.process(pid, _SEEN_SECONDS)
            if found is None:
                entry.said = "gpumon does not list the process"
                return entry
            entry.seen_ms = _milliseconds(ready)
            _, seen = found
            entry.command = [anonymous(word) for word in seen.command]
            entry.memory_used_bytes = seen.memory_used
            entry.findings = watch.reserved_by(*found)
            _end(entry, pid, before, watch)
    except NoWorkError as error:
        entry.said = anonymous(str(error))
    return entry


def _end(entry: Ended, pid: int, before: int | None, watch: Watch) -> None:
    """End it as a user would; when its memory is back after its end, and what is missing."""
    command = [*GPUMON, "end", str(pid), "--children", "--yes", "--format", "json"]
    ending = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    until = time.monotonic() + _END_SECONDS
    gone = _when(lambda: not lives(pid), until)
    back = None
    if gone is not None and before is not None:
        back = _when(lambda: _is_back(watch, before), gone + _BACK_SECONDS)
    try:
        output, said = ending.communicate(timeout=max(1.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        ending.kill()
        output, said = ending.communicate()
    entry.said = anonymous(said.decode(errors="replace").strip())
    with suppress(msgspec.DecodeError):
        entry.end = msgspec.json.decode(anonymous(output.decode(errors="replace")))
    if back is not None and gone is not None:
        entry.memory_back_ms = round(1000 * (back - gone), 1)
        entry.memory_missing_bytes = 0
        return
    now = watch.gpu().memory_used
    if now is not None and before is not None:
        entry.memory_missing_bytes = max(0, now - before)


def _is_back(watch: Watch, before: int) -> bool:
    used = watch.gpu().memory_used
    return used is not None and used <= before + _SLACK


def _when(holds: Callable[[], bool], until: float) -> float | None:
    """When it first holds; ``None`` if not until then."""
    while True:
        now = time.monotonic()
        if holds():
            return now
        if now > until:
            return None
        time.sleep(_LOOK_SECONDS)


def server_case() -> Ended:
    """Whether an inference server is installed; starting one needs a model, which nobody brings."""
    found = [name for name in _SERVERS if find_spec(name) is not None]
    said = f"installed, but without a model: {', '.join(found)}" if found else "none is installed"
    return Ended("inference server", said=said)


def out_of_memory(watch: Watch) -> OutOfMemory:
    """A run takes nearly all; a second one fails; gpumon shows whose it is, and ends it."""
    entry = OutOfMemory()
    before = watch.gpu()
    if before.memory_free is None or before.memory_free < _LEAST:
        entry.said = f"the GPU has not {_LEAST // GIB} GiB free"
        return entry
    most = before.memory_free - _LEFT
    again = ("--memory", str(_WANTED), "--again", str(_END_SECONDS))
    try:
        with holder(Kind.SLEEP, "--memory", str(most)) as first:
            entry.tried = True
            # It goes on trying, so that what it takes to start is not measured.
            second = Worker(Kind.SLEEP, *again)
            try:
                entry.error = anonymous(second.refusal())
                entry.holder_seen = watch.process(first.pid, _SEEN_SECONDS) is not None
                entry.refused_select = _select_refusal(_WANTED)
                began = time.monotonic()
                ended = Ended("holder")
                _end(ended, first.pid, None, watch)
                entry.end = ended.end
                entry.said = anonymous(second.refusal()) if entry.error else ""
                entry.after_ms = None if entry.said else _milliseconds(began)
                entry.worked_after = not entry.said
            finally:
                second.close()
    except NoWorkError as error:
        entry.said = anonymous(str(error))
    return entry


def _select_refusal(size: int) -> str:
    """What ``gpumon select`` says of the first GPU and so much memory; empty if it chooses it."""
    command = [*GPUMON, "select", "--gpus", "0", "--free", f"{size // GIB}G"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    return anonymous(done.stderr.strip()) if done.returncode else ""


def _milliseconds(since: float) -> float:
    return round(1000 * (time.monotonic() - since), 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.ending", description=__doc__)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "ending.json"
    written = Endings([], OutOfMemory(said="not begun"))
    watch = Watch()
    try:
        # What others hold or give back meanwhile would be taken for what is measured.
        if _when(watch.is_quiet, time.monotonic() + _QUIET_SECONDS) is None:
            written.out_of_memory.said = "others are on the GPU"
            return 1
        for case in CASES:
            written.cases.append(_tried(partial(end_case, case, watch), Ended(case.name)))
            file.write_bytes(msgspec.json.encode(written))
        written.cases.append(server_case())
        written.out_of_memory = _tried(partial(out_of_memory, watch), OutOfMemory())
    finally:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(written)))
        watch.close()
    return 0


def _tried(attempt: Callable[[], _Entry], failed: _Entry) -> _Entry:
    """What came of it; one that goes wrong in a way nobody thought of is no obstacle to others."""
    try:
        return attempt()
    except Exception as error:  # noqa: BLE001 - see above
        failed.said = anonymous(f"{type(error).__name__}: {error}")
        return failed


if __name__ == "__main__":
    sys.exit(main())
