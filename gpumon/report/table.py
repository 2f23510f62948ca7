"""A report as a table that fits the width of the terminal."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.model.makers import first_maker
from gpumon.recording.csv.parsers import arguments
from gpumon.report.figures import (
    BY,
    KILOWATT_HOURS,
    KNOWN,
    PARTLY,
    SHORT,
    EnergyUnit,
    ReportRow,
    UsageReport,
    gpu_indices,
    length,
    user_names,
)
from gpumon.report.owners import ALLOCATION_GROUPINGS, BY_PROCESSES
from gpumon.report.price import digits_for
from gpumon.text.command_lines import shorten_command
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    counted,
    fit,
    fit_right,
    gibibytes,
    number,
    printable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.report.sums import Distribution, Served, Sums, WeightedMean

_BETWEEN = "  "
_MOST_TEXT = 60
_MOST_HOSTS = 4
"""More hosts are counted above the table instead of named."""
_DAY_AND_TIME, _TIME_OF_DAY = "%d %b %H:%M", "%H:%M:%S"
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class Column(Struct, frozen=True):
    """A column of the table."""

    heading: str  # its header
    by: tuple[str, ...]  # groupings that have it
    show: Callable[[ReportRow], str]  # formats the cell of a row
    drop: int = 0  # drop order if room is short: the highest goes first; 0 always stays
    total: bool = False  # whether the row of totals has it
    text: bool = False  # whether it is aligned to the left
    least: int = 0  # minimum width to which it may be cut; 0 if it may not be cut
    cut: Callable[[str, int], str] = fit  # pads or cuts a text of it to exactly this many cells
    # values that carry no information: without any others the column is left out
    quiet: tuple[str, ...] = ()
    # whether the values of users, processes and jobs add up: subjects on one GPU share its energy,
    # but each has the full hours
    each: bool = False


def _marked(name: str, text: Callable[[Sums], str]) -> Callable[[ReportRow], str]:
    """Shows a field of the sums, marked if it is known for only part of the time."""

    def show(line: ReportRow) -> str:
        shown, part = text(line.sums), line.sums.known_share(name)
        return shown if shown == UNKNOWN or part is None or part >= KNOWN else shown + PARTLY

    return show


def time_of(name: str) -> Callable[[ReportRow], str]:
    """Shows the hours of a ``TimeSum``."""

    def text(sums: Sums) -> str:
        time = sums.time(name)
        return length(time.seconds) if time.known > 0 else UNKNOWN

    return _marked(name, text)


def _utilization(value: Callable[[Distribution], float | None]) -> Callable[[ReportRow], str]:
    return _marked("utilization", lambda sums: number(value(sums.utilization)))


def _memory(value: Callable[[WeightedMean], float | None]) -> Callable[[ReportRow], str]:
    def text(sums: Sums) -> str:
        size = value(sums.memory)
        return gibibytes(None if size is None else round(size))

    return _marked("memory", text)


def _energy(unit: EnergyUnit) -> Callable[[ReportRow], str]:
    return _marked(
        "energy", lambda sums: unit.format(sums.energy.joules) if sums.energy.known else UNKNOWN
    )


def _by_energy(amount: float | None, digits: int, line: ReportRow) -> str:
    """An amount that follows from the energy, marked as that is."""
    text = UNKNOWN if amount is None else f"{amount:.{digits}f}"
    return _marked("energy", lambda _: text)(line)


def _cost(largest: float | None) -> Callable[[ReportRow], str]:
    digits = digits_for(largest)
    return lambda line: _by_energy(line.cost, digits, line)


def _co2(largest: float | None) -> Callable[[ReportRow], str]:
    digits = digits_for(largest)
    return lambda line: _by_energy(line.co2, digits, line)


def _amount(name: str) -> Callable[[ReportRow], str]:
    """Shows what inference servers did."""

    def text(sums: Sums) -> str:
        served: Served = getattr(sums, name)
        return f"{served.total:,.0f}" if served.known else UNKNOWN

    return _marked(name, text)


_server_idle = _marked(
    "server_idle",
    lambda sums: length(sums.server_idle.total) if sums.server_idle.known else UNKNOWN,
)


def _gaps(line: ReportRow) -> str:
    sums = line.sums
    if not sums.gaps:
        # The time range may lie within a gap that began before it.
        return length(sums.missing) if sums.missing else "none"
    return f"{sums.gaps}: {length(sums.missing)}"


def _errors(line: ReportRow) -> str:
    sums = line.sums
    errors = [
        f"XID {number}" + (f" x{count}" if count > 1 else "")
        for number, count in sorted(sums.xids.items())
    ]
    if sums.ecc:
        errors.append(f"ECC {sums.ecc}")
    if sums.lost.seconds:
        errors.append(f"lost {length(sums.lost.seconds)}")
    if errors:
        return ", ".join(errors)
    return "none" if sums.watched else UNKNOWN


def _seen(value: Callable[[Sums], float | None], form: str) -> Callable[[ReportRow], str]:
    def show(line: ReportRow) -> str:
        time = value(line.sums)
        return UNKNOWN if time is None else datetime.fromtimestamp(time).strftime(form)

    return show


def _name(line: ReportRow) -> str:
    name = None if line.gpu is None else line.gpu.name
    return UNKNOWN if name is None else printable(name).removeprefix(f"{first_maker().name} ")


def _label(line: ReportRow) -> str:
    return line.gpu_name if line.subject is None else line.subject.label


def _user(line: ReportRow) -> str:
    return printable((line.subject and user_names(line.subject)) or UNKNOWN)


def _command(line: ReportRow) -> str:
    return printable((line.subject and line.subject.command) or UNKNOWN)


def _cut_command(text: str, width: int) -> str:
    words = arguments(text)
    return shorten_command(words, width) if words else fit(text, width)


def _gpus(line: ReportRow) -> str:
    return gpu_indices(line) or UNKNOWN


_GPU, _GPUS = ("gpu",), ("gpu", "host")
_GROUPS = ("process", "job")
_ALLOCATED = (*_GPUS, *ALLOCATION_GROUPINGS)

# One line per column is easier to read here than short lines.
# fmt: off
_HOST = Column("HOST", ("host",), lambda line: printable(line.host or UNKNOWN), text=True, least=8)
_ENERGY = Column(KILOWATT_HOURS.name, BY, _energy(KILOWATT_HOURS), total=True, each=True)
_COST = Column("COST", BY, _cost(None), total=True, each=True, quiet=(UNKNOWN,))
_CO2 = Column("CO2-kg", BY, _co2(None), total=True, each=True, quiet=(UNKNOWN,))
_FIRST = Column("FIRST", BY, _seen(lambda sums: sums.first, _DAY_AND_TIME), drop=30)
_LAST = Column("LAST", BY, _seen(lambda sums: sums.last, _DAY_AND_TIME), drop=31)
COLUMNS = (
    _HOST,
    Column("GPU", _GPU, _label),
    Column("USER", ("user",), _label, text=True, least=14),
    Column("PID", ("process",), _label),
    Column("JOB", ("job",), _label, text=True, least=14),
    Column("NAME", _GPU, _name, drop=25, text=True, least=9),
    Column("USER", ("process",), _user, text=True, least=8),
    Column("USER", ("job",), _user, drop=5, text=True, least=8),
    Column("GPU", ("host", *BY_PROCESSES), _gpus, drop=1, text=True),
    Column("COVERED", _GPU, lambda one: length(one.sums.seconds), drop=23, total=True),
    Column("COVERED", ("host",), lambda one: length(one.sums.present), drop=23),
    Column("UTIL%", _GPUS, _utilization(lambda s: s.mean), total=True),
    Column("SM%", BY_PROCESSES, _utilization(lambda s: s.mean), total=True),
    Column("MED", BY, _utilization(lambda s: s.quantile(0.5)), drop=22),
    Column("P95", BY, _utilization(lambda s: s.quantile(0.95)), drop=24),
    Column("MEAN-GiB", BY, _memory(lambda s: s.mean), drop=8),
    Column("PEAK-GiB", BY, _memory(lambda s: s.peak), drop=3),
    Column("BUSY", BY, time_of("busy"), drop=7, total=True),
    Column("IDLE", BY, time_of("idle"), drop=2, total=True),
    Column("GPU-H", BY, time_of("computing"), total=True),
    Column("ALLOC", _ALLOCATED, time_of("allocated"), drop=12, total=True, quiet=("0s", UNKNOWN)),
    Column("UNUSED", _ALLOCATED, time_of("unused"), drop=4, total=True, quiet=("0s", UNKNOWN)),
    _ENERGY,
    _COST,
    _CO2,
    Column("HEAT", BY, time_of("heat"), drop=16, total=True, quiet=("0s", UNKNOWN)),
    Column("BRAKE", BY, time_of("brake"), drop=26, total=True, quiet=("0s", UNKNOWN)),
    Column("HW-SLOW", BY, time_of("hardware"), drop=27, total=True, quiet=("0s", UNKNOWN)),
    Column("CAPPED", BY, time_of("capped"), drop=28, total=True, quiet=(UNKNOWN,)),
    Column("EMPTY", BY, time_of("empty"), drop=9, total=True, quiet=("0s", UNKNOWN)),
    Column("STARVED", BY, time_of("starved"), drop=11, total=True, quiet=("0s", UNKNOWN)),
    Column("TOKENS", BY_PROCESSES, _amount("tokens"), drop=6, quiet=(UNKNOWN,)),
    Column("REQUESTS", BY_PROCESSES, _amount("requests"), drop=14, quiet=(UNKNOWN,)),
    Column("SERVER-IDLE", BY_PROCESSES, _server_idle, drop=5, quiet=(UNKNOWN,)),
    Column("ERRORS", BY, _errors, drop=6, text=True, least=14, quiet=("none", UNKNOWN)),
    Column("LEFT-OUT", _GROUPS, time_of("left_out"), drop=10, quiet=("0s", UNKNOWN)),
    Column("GAPS", _GPUS, _gaps, drop=18, text=True, quiet=("none",)),
    _FIRST,
    _LAST,
    Column("COMMAND", _GROUPS, _command, drop=1, text=True, least=12, cut=_cut_command),
)
# fmt: on
"""The columns that a table may have, in order. With several hosts, HOST is the first of each."""


_OF_THE_JOB = ("JOB", "USER", "COMMAND")
"""Columns that are left out of the report of a single job."""


def to_table(report: UsageReport, width: int, *, colour: bool) -> str:
    """A report as lines that fit a width, without the least important columns if necessary.

    Args:
        report: The report.
        width: Available cells.
        colour: Whether bold may be used.
    """
    columns = _fitting(report, width)
    cells = [[column.show(line) for column in columns] for line in report.lines]
    total = _totals(report, columns)
    body = cells if total is None else [*cells, total]
    sizes = _sizes(columns, body, width)
    rows = [_row([column.heading for column in columns], columns, sizes)]
    if colour:
        rows[0] = f"{_BOLD}{rows[0]}{_PLAIN}"
    rows += [_row(row, columns, sizes) for row in cells]
    if total is not None:
        rows += ["─" * min(width, len(_row(total, columns, sizes, strip=False)))]
        rows += [_row(total, columns, sizes)]
    return "".join(f"{row}\n" for row in rows)


def left_out(report: UsageReport, width: int) -> list[str]:
    """The columns with information that did not fit, in a sentence."""
    shown = {column.heading for column in _fitting(report, width)}
    names = [one.heading for one in _columns(report) if one.heading not in shown]
    return [f"Columns that did not fit: {', '.join(names)}; --format csv has all."] * bool(names)


def _columns(report: UsageReport) -> list[Column]:
    """The columns that have information."""
    unit = report.energy_unit
    of = {
        _ENERGY: replace(_ENERGY, heading=unit.name, show=_energy(unit)),
        _COST: replace(
            _COST,
            heading=f"COST {printable(report.price.currency)}".rstrip(),
            show=_cost(report.whole.cost),
        ),
        _CO2: replace(_CO2, show=_co2(report.whole.co2)),
    }
    if _is_short(report):
        of[_FIRST] = replace(_FIRST, show=_seen(lambda sums: sums.first, _TIME_OF_DAY))
        of[_LAST] = replace(_LAST, show=_seen(lambda sums: sums.last, _TIME_OF_DAY))
    shown = [(one, of.get(one, one)) for one in COLUMNS if report.by in one.by]
    whole = ReportRow(report.by, None, report.gpus)
    columns = []
    for plain, column in shown:
        # The line above the table says when the log began and ended.
        quiet = (column.show(whole),) if plain in (_FIRST, _LAST) else column.quiet
        if not quiet or any(column.show(line) not in quiet for line in report.lines):
            columns.append(column)
    if report.job is not None:
        # The line above the table has them.
        columns = [column for column in columns if column.heading not in _OF_THE_JOB]
    if report.by != "host" and (
        report.job is not None or len({line.host for line in report.lines}) > 1
    ):
        columns.insert(0, _HOST)
    return columns


def _fitting(report: UsageReport, width: int) -> list[Column]:
    """The columns that fit."""
    columns = _columns(report)
    shown = {
        column.heading: [column.show(line) for line in (*report.lines, report.whole)]
        for column in columns
    }
    needed = {one.heading: _least(one, shown[one.heading]) for one in columns}
    while sum(needed[one.heading] for one in columns) + len(_BETWEEN) * (len(columns) - 1) > width:
        last = max(columns, key=lambda one: one.drop)
        if not last.drop:
            break
        columns.remove(last)
    return columns


def _least(column: Column, shown: Sequence[str]) -> int:
    """Minimum width of a column."""
    widest = max(map(cell_width, [column.heading, *shown]))
    return min(widest, column.least) if column.least else widest


def _sizes(columns: Sequence[Column], body: Sequence[Sequence[str]], width: int) -> list[int]:
    """The width of each column; spare room goes to text columns, from the first."""
    shown = [[row[place] for row in body] for place in range(len(columns))]
    sizes = [_least(column, cells) for column, cells in zip(columns, shown, strict=True)]
    left = width - sum(sizes) - len(_BETWEEN) * (len(sizes) - 1)
    for place, cells in enumerate(shown):
        widest = max(map(cell_width, cells), default=0)
        more = max(0, min(left, min(widest, _MOST_TEXT) - sizes[place]))
        sizes[place] += more
        left -= more
    return sizes


def _row(
    cells: Sequence[str], columns: Sequence[Column], sizes: Sequence[int], *, strip: bool = True
) -> str:
    parts = [
        (column.cut if column.text else fit_right)(cell, size)
        for cell, column, size in zip(cells, columns, sizes, strict=True)
    ]
    row = _BETWEEN.join(parts)
    return row.rstrip() if strip else row


def _totals(report: UsageReport, columns: Sequence[Column]) -> list[str] | None:
    """The row of totals; none for a single row."""
    if len(report.lines) < 2:
        return None
    shown = [
        column.show(report.whole)
        if column.total and (report.by not in BY_PROCESSES or column.each or report.job is not None)
        else ""
        for column in columns
    ]
    return ["all", *shown[1:]]


def heading(report: UsageReport, logs: Sequence[str], width: int) -> str:
    """The logs, machines and times of a report, on one line."""
    hosts = sorted({line.host for line in report.lines if line.host})
    began, ended = report.gpus.first, report.gpus.last
    # The times must stay visible.
    named = ", ".join(hosts) if len(hosts) <= _MOST_HOSTS else counted(len(hosts), "host")
    first_part = ", ".join(logs)
    if report.job is not None:
        users = _owners(report)
        first_part = f"{report.job.label}{f' of {users}' if users else ''}"
    parts = [first_part, named]
    if began is not None and ended is not None:
        clock = "%H:%M:%S" if _is_short(report) else "%H:%M"
        first, last = datetime.fromtimestamp(began), datetime.fromtimestamp(ended)
        until = clock if first.date() == last.date() else f"%Y-%m-%d {clock}"
        span = f"{first.strftime(f'%Y-%m-%d {clock}')} to {last.strftime(until)}"
        parts.append(f"{span} ({length(ended - began)})")
    text = _BETWEEN.join(printable(part) for part in parts if part)
    return (fit(text, width).rstrip() if cell_width(text) > width else text) + "\n"


def _owners(report: UsageReport) -> str:
    """The users of a job for the heading, safe to print; empty if they are not known."""
    users = {line.subject and user_names(line.subject) for line in report.lines}
    return printable(",".join(sorted(user for user in users if user)))


def _is_short(report: UsageReport) -> bool:
    """Whether the time range is so short that minutes would not distinguish its ends."""
    began, ended = report.gpus.first, report.gpus.last
    return began is not None and ended is not None and ended - began < SHORT
