"""Parses the cells of a log into values in the model's units.

Tolerant: a cell may carry its unit, as nvidia-smi writes it. A parser raises ``ValueError``,
``OverflowError`` or ``OSError`` for a cell that it cannot parse, and for a value that no hardware
can report.
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from gpumon.model.metrics import Unit
from gpumon.model.processes import Container, ProcessId
from gpumon.model.snapshot import MigInstance
from gpumon.recording.csv.nvidia_smi import unknown_word
from gpumon.text.formatting import spreadsheet_text

if TYPE_CHECKING:
    from collections.abc import Callable

EARLIEST, LATEST = -86400.0, 2.0**33
"""The range of plausible times: from 1970, in any zone, for a clock that was never set, to 2242."""
_FLAGS = {"enabled": True, "yes": True, "disabled": False, "no": False}
_LARGEST = 2**64
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class ImpossibleValueError(ValueError):
    """No hardware has this value."""


def parse_time(text: str) -> float:
    """Seconds since the epoch from ``2026-07-01T14:03:27.512+02:00`` or nvidia-smi's format.

    Without a zone it is local time.
    """
    text = text.strip().replace("/", "-")
    if text.endswith(("Z", "z")):
        # Python 3.10 does not accept this letter.
        text = text[:-1] + "+00:00"
    if _DATE.match(text) is None:
        # Python 3.10 reads no other forms of ISO 8601.
        raise ValueError(text)
    moment = datetime.fromisoformat(text).timestamp()
    if not EARLIEST <= moment <= LATEST:
        raise ValueError(text)
    return moment


def parse_text(text: str) -> object:
    """Text of gpumon's own columns."""
    return spreadsheet_text(text)


def parse_smi_text(text: str) -> object:
    """Text of a column that nvidia-smi has too, or the reason why it is unknown."""
    stripped = text.strip()
    return unknown_word(stripped) or spreadsheet_text(stripped)


def parser(unit: Unit, possible: tuple[float, float], *, real: bool) -> Callable[[str], object]:
    """The parser for the values of a unit, except text.

    Args:
        unit: The unit.
        possible: The lowest and the highest possible value.
        real: Whether numbers may have a fraction.
    """
    known = _PARSERS.get(unit)
    if known is not None:
        return known
    lowest, highest = possible
    number = _pstate if unit is Unit.PSTATE else _real(unit) if real else _whole(unit)

    def parse(text: str) -> float:
        value = number(text)
        # False for NaN too.
        if not lowest <= value <= highest:
            raise ImpossibleValueError(text)
        return value

    return parse


def _flag(text: str) -> bool:
    flag = _FLAGS.get(text.strip().lower())
    if flag is None:
        raise ValueError(text)
    return flag


def _bits(text: str) -> int:
    bits = int(text, 16)
    if not 0 <= bits <= Unit.BITS.possible[1]:
        raise ImpossibleValueError(text)
    return bits


_PARSERS: dict[Unit, Callable[[str], object]] = {
    Unit.ENABLED: _flag,
    Unit.YES_NO: _flag,
    Unit.BITS: _bits,
    Unit.TIME: parse_time,
}


def _pstate(text: str) -> int:
    return int(text.strip().removeprefix("P"))


def _real(unit: Unit) -> Callable[[str], float]:
    scale, after = unit.per_csv, unit.csv or "C"

    def parse(text: str) -> float:
        try:
            return float(text) * scale
        except ValueError:
            stripped = text.strip()
            if not stripped.endswith(after):
                raise
            # Scripts write 97% for nvidia-smi's 97 %.
            return float(stripped[: -len(after)]) * scale

    return parse


def _whole(unit: Unit) -> Callable[[str], int]:
    real = _real(unit)

    def parse(text: str) -> int:
        if text.isdecimal() and unit.per_csv == 1 and len(text) < len(str(_LARGEST)):
            return int(text)
        return round(real(text))

    return parse


def arguments(command: str) -> tuple[str, ...]:
    """The arguments of a shell-quoted command line; the last one unparsed if the line was cut.

    Text that is not a valid command line is one argument.
    """
    with suppress(ValueError):
        return tuple(shlex.split(command))
    if not command.endswith("\\"):
        with suppress(ValueError):
            return tuple(shlex.split(command + "'"))
    return (command,)


def parse_quoted(cell: str) -> tuple[str, ...]:
    """The texts of a cell of ``columns.quoted_cell``."""
    return arguments(spreadsheet_text(cell))


def identity(text: str) -> ProcessId | None:
    """The process identity from ``PID:start`` or ``PID``; ``None`` for any other text."""
    pid, _, start = spreadsheet_text(text).partition(":")
    try:
        found = ProcessId(int(pid), int(start) if start else None)
    except ValueError:
        return None
    lowest, highest = Unit.NUMBER.possible
    is_possible = all(lowest <= part <= highest for part in (found.pid, found.start_time or 0))
    return found if is_possible else None


def container(label: str) -> Container | None:
    """The container with a label, as far as the label identifies it."""
    runtime, _, name = spreadsheet_text(label).partition(" ")
    if not runtime:
        return None
    if runtime == "pod":
        return Container("kubernetes", pod=name)
    if len(name) == 12 and all(digit in "0123456789abcdef" for digit in name):
        return Container(runtime, id=name)
    return Container(runtime, name=name or None)


def mig_devices(cell: str) -> tuple[MigInstance, ...]:
    """The MIG devices from a cell of ``columns.mig_cell``, without those that cannot be parsed."""
    found = []
    for part in spreadsheet_text(cell).split(";"):
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
