"""The cells of a log read back: from text to values in the model's units.

The reverse of ``columns``, and forgiving: a cell may carry its unit, as nvidia-smi writes it, and
what cannot be read is unknown, and so is a value that no hardware can report.
"""

from __future__ import annotations

import math
import re
import shlex
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import structs

from gpumon.log.columns import PROCESS_COLUMNS, heading
from gpumon.log.smi import OTHER_NAMES, unknown_word
from gpumon.metrics import GPU_METRIC, GPU_METRICS, Unit
from gpumon.model import Container, Gpu, MigInstance, ProcessId, Unknown
from gpumon.text import spreadsheet_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.metrics import Metric

CELLS_KEPT = 512
"""Values remembered of a column: most cells of a log say what others said before."""

_FLAGS = {"enabled": True, "yes": True, "disabled": False, "no": False}
EARLIEST, LATEST = -86400.0, 2.0**33
"""Between these every clock is, also one that was never set: 1970, in any zone, to 2242. What is
told of other moments is damaged, and nothing that shows times could show them."""
_LARGEST = 2**64
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
DATE = re.compile(rb"\d{4}[-/]\d\d[-/]\d\d")
"""Stands in every line that has a time, as gpumon and nvidia-smi write it."""
DAMAGED = object()
"""Stands for a cell that cannot be read, where a reader asks for it."""


def gpu_column(metric: Metric) -> str:
    """The name of the column of a card's metric, also of one that gpumon does not log."""
    return heading(metric.smi or metric.field.replace("_", "."), metric.unit)


class Cells(dict[str, object]):
    """The values of a column by the text of their cells, each read once.

    A value is ``None`` where the cell is empty. Bounded; not safe to use from several threads.

    Args:
        read: Makes the value; may raise ``ValueError``, ``OverflowError`` or ``OSError``.
        reasons: Whether a cell that says why there is no value is that ``Unknown``, not ``None``.
        damaged: The value of a cell that cannot be read.
    """

    __slots__ = ("_damaged", "_read", "_reasons")

    def __init__(
        self, read: Callable[[str], object], *, reasons: bool = False, damaged: object = None
    ) -> None:
        super().__init__()
        self._read = read
        self._reasons = reasons
        self._damaged = damaged

    def __missing__(self, text: str) -> object:
        if len(self) >= CELLS_KEPT:
            self.clear()
        value: object = None
        if text:
            try:
                value = self._read(text)
            except (ValueError, OverflowError, OSError):
                value = unknown_word(text)
                # nvidia-smi has more words in brackets than are known here.
                if value is None and not text.strip().startswith("[") and not text.isspace():
                    value = self._damaged
            if value.__class__ is Unknown and not self._reasons:
                value = None
        self[text] = value
        return value


def read_moment(text: str) -> float | None:
    """Seconds since the epoch of ``2026-07-01T14:03:27.512+02:00`` or nvidia-smi's form of it.

    Without a zone it is local time. ``None`` where it is no time, or none of a computer's.
    """
    try:
        return _moment(text)
    except (ValueError, OverflowError, OSError):
        return None


def _moment(text: str) -> float:
    text = text.strip().replace("/", "-")
    if text.endswith(("Z", "z")):
        # Python 3.10 does not know this letter.
        text = text[:-1] + "+00:00"
    if _DATE.match(text) is None:
        # Of the other forms of ISO 8601 Python 3.10 reads none.
        raise ValueError(text)
    moment = datetime.fromisoformat(text).timestamp()
    if not EARLIEST <= moment <= LATEST:
        raise ValueError(text)
    return moment


def _number(text: str, unit: Unit) -> float:
    try:
        number = float(text)
    except ValueError:
        digits, _, after = text.strip().partition(" ")
        if after != (unit.csv or "C"):
            raise
        number = float(digits)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _within(read: Callable[[str], float], possible: tuple[float, float]) -> Callable[[str], float]:
    """The same reader, which refuses a value outside the possible range."""
    lowest, highest = possible

    def read_within(text: str) -> float:
        value = read(text)
        if not lowest <= value <= highest:
            raise ValueError(text)
        return value

    return read_within


def _whole(unit: Unit) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text.isdecimal() and unit.per_csv == 1 and len(text) < len(str(_LARGEST)):
            return int(text)
        return round(_number(text, unit) * unit.per_csv)

    return read


def _real(unit: Unit) -> Callable[[str], float]:
    return lambda text: _number(text, unit) * unit.per_csv


def _flag(text: str) -> bool:
    flag = _FLAGS.get(text.strip().lower())
    if flag is None:
        raise ValueError(text)
    return flag


def _bits(text: str) -> int:
    bits = int(text, 16)
    if not 0 <= bits < _LARGEST:
        raise ValueError(text)
    return bits


def _pstate(text: str) -> int:
    return int(text.strip().removeprefix("P"))


def _card_text(text: str) -> object:
    stripped = text.strip()
    return unknown_word(stripped) or spreadsheet_text(stripped)


_READERS: dict[Unit, Callable[[str], object]] = {
    Unit.TEXT: _card_text,
    Unit.ENABLED: _flag,
    Unit.YES_NO: _flag,
    Unit.BITS: _bits,
    Unit.TIME: _moment,
}
_NO_WHOLE = {
    field.name for field in structs.fields(Gpu) if "float" in str(Gpu.__annotations__[field.name])
}


def _metric_reader(metric: Metric) -> Callable[[str], object]:
    reader = _READERS.get(metric.unit)
    if reader is not None:
        return reader
    if metric.unit is Unit.PSTATE:
        return _within(_pstate, metric.possible)
    number = (_real if metric.field in _NO_WHOLE else _whole)(metric.unit)
    return _within(number, metric.possible)


_COUNT = _within(_whole(Unit.NUMBER), Unit.NUMBER.possible)
_MIB = _within(_whole(Unit.BYTES), Unit.BYTES.possible)
_LOAD = _within(_real(Unit.NUMBER), Unit.NUMBER.possible)
_SHARE = _within(_real(Unit.PERCENT), Unit.PERCENT.possible)
_ELAPSED = _within(_real(Unit.SECONDS), (0, LATEST))
_AGE = _within(_real(Unit.SECONDS), (-LATEST, LATEST))
"""Less than 0 where the clock was set back between the reading and the sample."""
# A process may use several engines, and many cores.
_PROCESS_PCT = _within(_whole(Unit.PERCENT), (0, 1000))
_CORES_PCT = _within(_real(Unit.PERCENT), (0, 100 * 2**20))

_GPU_READERS: dict[str, Callable[[str], object]] = {
    **{gpu_column(metric): _metric_reader(metric) for metric in GPU_METRICS},
    "timestamp": _moment,
    "status": spreadsheet_text,
    "processes": _COUNT,
    "age [s]": _AGE,
    "status.since": _moment,
    "mig.devices": spreadsheet_text,
    "host": spreadsheet_text,
    "driver_version": _card_text,
    "cuda_version": spreadsheet_text,
    "host.cpu [%]": _SHARE,
    "host.cpu.count": _COUNT,
    "host.load.1": _LOAD,
    "host.load.5": _LOAD,
    "host.load.15": _LOAD,
    "host.memory.used [MiB]": _MIB,
    "host.memory.total [MiB]": _MIB,
    "elapsed [s]": _ELAPSED,
    "gpumon_log": _COUNT,
}
_PROCESS_READERS: dict[str, Callable[[str], object]] = {
    "timestamp": _moment,
    "index": _COUNT,
    "pid": _COUNT,
    "start_time": _moment,
    "used_gpu_memory [MiB]": _MIB,
    "sm [%]": _PROCESS_PCT,
    "cpu [%]": _CORES_PCT,
    "rss [MiB]": _MIB,
    "memory_activity [%]": _PROCESS_PCT,
    "encoder [%]": _PROCESS_PCT,
    "decoder [%]": _PROCESS_PCT,
    "gpu_instance": _COUNT,
    "compute_instance": _COUNT,
    "uid": _COUNT,
    "start_ticks": _COUNT,
    "visible": _flag,
    "session": _COUNT,
    "elapsed [s]": _ELAPSED,
    "gpumon_log": _COUNT,
}
"""Those that are no text."""

_NAMES = {
    False: {name.partition(" [")[0]: name for name in _GPU_READERS},
    True: {column.name.partition(" [")[0]: column.name for column in PROCESS_COLUMNS},
}


def column_name(text: str, *, processes: bool) -> str | None:
    """The name in ``columns`` of a heading, under whatever name nvidia-smi has for it.

    ``None`` for one that gpumon does not know.
    """
    bare = text.strip().partition(" [")[0]
    names = _NAMES[processes]
    return names.get(OTHER_NAMES.get(bare, bare) if not processes else bare)


LIMITS: dict[str, str] = {
    gpu_column(metric): gpu_column(GPU_METRIC[metric.at_most])
    for metric in GPU_METRICS
    if metric.at_most is not None
}
"""The columns of a card whose value is never above that of another column."""


def column_cells(name: str, *, processes: bool, reasons: bool, damaged: object = None) -> Cells:
    """The values of a column by its name in ``columns``; the rest as for ``Cells``."""
    readers = _PROCESS_READERS if processes else _GPU_READERS
    return Cells(readers.get(name, spreadsheet_text), reasons=reasons, damaged=damaged)


def arguments(command: str) -> tuple[str, ...]:
    """The arguments of a command line quoted for a shell; of one that was cut, its last as it is.

    One that is no such line is a single argument.
    """
    with suppress(ValueError):
        return tuple(shlex.split(command))
    if not command.endswith("\\"):
        with suppress(ValueError):
            return tuple(shlex.split(command + "'"))
    return (command,)


def identity(text: str) -> ProcessId | None:
    """A process of ``PID:start`` or ``PID``."""
    pid, _, start = text.partition(":")
    try:
        return ProcessId(int(pid), int(start) if start else None)
    except ValueError:
        return None


def container(label: str) -> Container | None:
    """The container that has a label, as far as that tells."""
    runtime, _, name = label.partition(" ")
    if not runtime:
        return None
    if runtime == "pod":
        return Container("kubernetes", pod=name)
    if len(name) == 12 and all(digit in "0123456789abcdef" for digit in name):
        return Container(runtime, id=name)
    return Container(runtime, name=name or None)


def mig_devices(cell: str) -> tuple[MigInstance, ...]:
    """The MIG devices of a cell that ``columns.mig_cell`` wrote; none that cannot be read."""
    found = []
    for part in cell.split(";") if cell else ():
        facts = [None if fact == "-" else fact for fact in part.split()]
        try:
            index, uuid, *rest = facts
            gpu_instance, compute_instance, profile, *numbers = rest
            multiprocessors, total, used, free = (_optional(number) for number in numbers)
            found.append(
                MigInstance(
                    uuid or "",
                    int(index or 0),
                    _optional(gpu_instance),
                    _optional(compute_instance),
                    profile,
                    multiprocessors,
                    total,
                    used,
                    free,
                )
            )
        except ValueError:
            continue
    return tuple(found)


def _optional(number: str | None) -> int | None:
    if number is None:
        return None
    fact = int(number)
    if not 0 <= fact <= Unit.BYTES.possible[1]:
        raise ValueError(number)
    return fact
