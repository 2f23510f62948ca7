"""The rows of logs that nvidia-smi and other programs wrote, with the columns of gpumon's.

Every reader gets the rows of a sample from here, so that all of them see the same: which row is of
which GPU, what a value is where several columns have it, and which GPU is lost.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.recording.csv.bursts import SampleRule, keyed_rule, time_before_samples, unkeyed_rule
from gpumon.recording.csv.columns import (
    CLOCK_EVENTS_KNOWN,
    readable_columns,
)
from gpumon.recording.csv.nvidia_smi import (
    POWER,
    bus_id_in,
    clock_event_bit,
    index_in,
    is_lost_gpu,
    is_message,
    is_smi_name,
    lost_cell,
    unknown_word,
)
from gpumon.recording.csv.other_names import heading_words
from gpumon.recording.csv.sample_finder import Ranks
from gpumon.recording.csv.shared_keys import host_place, is_shared, several_hosts
from gpumon.recording.csv.time_formats import TimeFormat, read_any, time_format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpumon.recording.csv.headings import Header
    from gpumon.recording.csv.other_names import Heading

KEYS = ("index", "uuid", "pci.bus_id", "serial")
"""Columns that identify the GPU, the first that there is."""
_KINDS = ("name", "memory.total [MiB]")
"""Columns that differ between kinds of GPUs."""
_IDENTITY = frozenset(("index", "uuid", "name", "pci.bus_id", "serial"))
_STEADY = (*KEYS, *_KINDS)
"""Columns that are the same in all rows of a GPU."""
_MEASURED = tuple(
    column.name
    for column in readable_columns(processes=False)
    if column.metric is not None
    and column.name.startswith(("utilization.", "temperature.", "power.draw", "clocks.current."))
)
"""Columns that have a value on every GPU that answers, unless it does not support them."""
_COMPARED = (*_MEASURED, "memory.used [MiB]", "memory.free [MiB]")
_IMPORTANT = ("utilization.gpu [%]", "memory.used [MiB]", "power.draw [W]")
_MOST_NAMED = 8
_LABEL = re.compile(
    r"(?P<word>(?:[A-Za-z/#][^\d.]{0,11})?)0?(?P<number>\d|[1-5]\d|6[0-3])(?P<zeros>(?:\.0+)?)"
)
"""The index of a GPU, perhaps after a word, or with the zeros of a column of decimals."""
_HIGHEST_INDEX = 63
_RARE = 0.01
"""Share of the rows whose index may be damaged."""
_MOST_GPUS = 16
"""GPUs of a host; of more numbers, one at a time, not each is a GPU."""
_DAMAGED = 10
"""One of so many rows may be damaged."""
_FEWEST_GPUS = 0.65
"""Share of the GPUs that as many rows have at least, in whatever order they come."""
_MEMORY = ("memory.total [MiB]", "memory.used [MiB]", "memory.free [MiB]")
_LEAST_MEMORY = 256
"""Less MiB than any GPU has had for many years."""
_UNIT_UNKNOWN = " (unit unknown)"
_ROWS_LEARNT = 2000
_STATUS, _CLOCK_EVENTS = "status", "clocks_event_reasons.active"


class OtherRow(NamedTuple):
    """A line of a sample.

    Attributes:
        number: Its number in the sample.
        line: The line.
        cells: Its cells, and those that follow from them; ``None`` if it is no row.
        wall: Its time.
        is_whole: Whether all of it could be read.
        is_expected: Whether it is no row but belongs to such logs.
        is_message: Whether it is a message of nvidia-smi.
        is_unassigned: Whether it is a row of which nobody can tell the GPU.
    """

    number: int
    line: bytes
    cells: list[str] | None
    wall: float = 0.0
    is_whole: bool = True
    is_expected: bool = False
    is_message: bool = False
    is_unassigned: bool = False


class _Derived(NamedTuple):
    """A column that follows from others."""

    name: str
    cell: Callable[[Sequence[str]], str]


class OtherLog(Struct):
    """What is particular to the rows below a header that is not of gpumon.

    Attributes:
        delimiter: What separates cells.
        times: The form of the times.
        rule: Where samples begin.
        clock: The column of the time of day, if that of the time has the date only.
        are_times_split: Whether the time has a comma, which makes two cells of it.
    """

    header: Header
    delimiter: str
    headings: Sequence[Heading]
    times: TimeFormat = TimeFormat()
    rule: SampleRule = SampleRule()
    clock: int | None = None
    are_times_split: bool = False
    derived: Sequence[_Derived] = ()
    _gpus: dict[str, list[str]] = {}
    _scaled: Sequence[tuple[int, float]] = ()
    _measured: Sequence[int] = ()
    _host: tuple[int, str] | None = None
    _labels: int | None = None
    _unclear: Sequence[str] = ()

    def __post_init__(self) -> None:
        places = self.header.places
        self._find_clock()
        self._measured = [places[name] for name in _MEASURED if name in places]
        self._scaled = [
            (place, heading.factor)
            for place, heading in enumerate(self.headings)
            if heading.factor != 1
        ]
        self._derive([*self._derive_status(), *self._derive_power(), *self._derive_events()])

    def _derive(self, columns: Sequence[_Derived]) -> None:
        """Add columns after those of the file."""
        self.derived = [*self.derived, *columns]
        for place, column in enumerate(self.derived, self.header.width):
            self.header.places[column.name] = place

    def _find_clock(self) -> None:
        """Find the columns of date and time, if the headings name one each."""
        texts = [text.strip("# ").lower() for text in self.header.texts]
        clock = next((texts.index(word) for word in ("time", "clock") if word in texts), None)
        if "date" in texts and clock is not None and "timestamp" not in texts:
            self.header.time, self.clock = texts.index("date"), clock

    @property
    def is_plain(self) -> bool:
        """Whether its lines are split like those of a log of gpumon."""
        return self.delimiter == "," and not self.are_times_split and self.clock is None

    @property
    def unread(self) -> tuple[str, ...]:
        """The columns that have no meaning for gpumon, if important values are missing."""
        if all(name in self.header.places for name in _IMPORTANT):
            return ()
        unread = [
            text
            for place, (text, name) in enumerate(
                zip(self.header.texts, self.header.names, strict=True)
            )
            if name is None and text not in ("", *self._unclear) and place != self.clock
            if not is_smi_name(text)
        ]
        return (*self._unclear, *unread)[:_MOST_NAMED]

    # Learning from the first rows

    def learn(self, lines: Iterable[bytes]) -> None:
        """Find out from the first rows what the header does not say.

        Args:
            lines: The first lines below the header.

        Raises:
            ValueError: The rows cannot be read; the message continues a sentence that begins with
                the name of the file.
        """
        header, at, lines = self.header, self.header.time, list(lines)
        rows = self._first_rows(lines)
        split = [row for row in rows if len(row) > header.width and _is_split(*row[at : at + 2])]
        if 2 * len(split) > len(rows):
            self.are_times_split = True
            rows = [_joined(row, at) for row in split]
        widths = Counter(len(row) for row in rows if _has_digit(row[at : at + 1]))
        if widths and header.width not in widths:
            raise ValueError(_of_width(widths.most_common(1)[0][0], header.width))
        rows = [row for row in rows if len(row) == header.width]
        if not rows:
            return
        self._find_host(rows)
        self._check_index(rows)
        self._check_units(rows, lines)
        self._find_key(rows)
        whole = [row for row in rows if not self._is_lost_row(row)]
        self.times = time_format([row[at] for row in whole])
        if header.key is None:
            self._learn_order(rows)
            return
        timed = [(row, wall) for row in whole if (wall := self.times.read(row[at])) is not None]
        walls, keys = [wall for _, wall in timed], [row[header.key] for row, _ in timed]
        ranks = self._ranks(keys)
        if header.is_ranked:
            # Scripts may list GPUs in an order of their own.
            header.is_ranked = False
            in_order_of_file = self._ranks(keys)
            if time_before_samples(walls, ranks) < time_before_samples(walls, in_order_of_file):
                ranks = in_order_of_file
            else:
                header.is_ranked = True
        self.rule = keyed_rule(walls, ranks, self.times.precision)
        if self._is_key_shared(timed):
            raise ValueError(_of_shared(header.names[header.key] or "", header.names))
        # In the order of a sample, of which the log may begin in the middle.
        ordered = sorted(zip(ranks, keys, timed, strict=True), key=itemgetter(0))
        for _, key, (row, _) in ordered:
            self._gpus.setdefault(key.strip(), row)

    def _find_host(self, rows: Sequence[Sequence[str]]) -> None:
        """Find the host, whose GPUs have the same index as those of any other.

        Raises:
            ValueError: There are several.
        """
        place = host_place(self.header.texts)
        if place is None:
            return
        hosts = [name for row in rows if (name := row[place].strip()) and _is_known(name)]
        if len(set(hosts)) > 1:
            raise ValueError(several_hosts(self.header.texts[place], place, hosts, self.delimiter))
        self._host = (place, hosts[0]) if hosts else None

    def _check_index(self, rows: Sequence[Sequence[str]]) -> None:
        """Take the column of the index for what its cells are.

        A heading such as ``GPU`` or ``device`` may stand above an index, above words such as
        ``GPU0`` or ``cuda:0``, above names, and above a value such as the utilisation. Scripts may
        log only the GPUs that are busy, so an index need not come again and again.
        """
        header, place = self.header, self.header.places.get("index")
        if place is None or place >= header.width:
            return
        known = [row for row in rows if _is_known(row[place])]
        if not known:
            return
        cells = [row[place].strip() for row in known]
        labels = [found for cell in cells if (found := _LABEL.fullmatch(cell)) is not None]
        least = (1 - 1 / _DAMAGED) * len(cells)
        are_labels = len(labels) >= least and len({found["word"] for found in labels}) == 1
        heading = heading_words(header.texts[place])
        are_numbers = 2 * sum(_number(cell) is not None for cell in cells) > len(cells)
        if not are_labels and not are_numbers and heading != "index":
            are_ids = all(cell.startswith("GPU-") for cell in cells) or "name" in header.places
            self._rename_column("index", "uuid" if are_ids else "name")
        elif heading in ("gpu", "device") and _are_values(
            cells, [row[header.time] for row in known]
        ):
            self._forget_column("index")
        elif are_labels and (labels[0]["word"] or any(found["zeros"] for found in labels)):
            # The cell stays the key, and gives the index.
            self._labels = place
            self._derive([_Derived("index", lambda row: _number_of_label(row[place]))])

    def _check_units(self, rows: Sequence[Sequence[str]], lines: Sequence[bytes]) -> None:
        """Forget columns without a unit whose numbers show that theirs is another one."""

        def numbers(name: str, rows: Sequence[Sequence[str]] = rows) -> list[float]:
            place = self.header.places.get(name, self.header.width)
            if place >= self.header.width or self.headings[place].has_unit:
                return []
            cells = [row[place].strip() for row in rows]
            if any(re.search(r"\d\s*[A-Za-z%]", cell) for cell in cells):
                return []
            known = [number for cell in cells if (number := _number(cell)) is not None]
            return [number for number in known if math.isfinite(number)]

        if 0 < max(numbers("memory.total [MiB]"), default=0) < _LEAST_MEMORY:
            for name in _MEMORY:
                if numbers(name):
                    self._forget_column(name, _UNIT_UNKNOWN)
        if "memory.total [MiB]" not in self.header.places:
            for name in _MEMORY[1:]:
                # MiB are whole numbers, unless a script divides bytes.
                found = numbers(name)
                if max(found, default=math.inf) < _LEAST_MEMORY and _have_decimals(found):
                    self._forget_column(name, _UNIT_UNKNOWN)
        for name in ("utilization.gpu [%]", "utilization.memory [%]"):
            found = numbers(name)
            if not any(found) and any(
                "." in row[self.header.places[name]] for row in rows if found
            ):
                # The GPUs were idle so far.
                further = self._first_rows(lines, len(lines))
                found = numbers(name, [row for row in further if len(row) == self.header.width])
            if max(found, default=math.inf) <= 1 and _have_decimals(found):
                self._forget_column(name, _UNIT_UNKNOWN)

    def _forget_column(self, name: str, why: str = "") -> None:
        place = self.header.places.pop(name)
        self.header.names[place] = None
        self._unclear = [*self._unclear, self.header.texts[place] + why]
        self._measured = [self.header.places[one] for one in _MEASURED if one in self.header.places]

    def _rename_column(self, name: str, new: str) -> None:
        """Take a column for another one; forget it if there is that one already."""
        if new in self.header.places:
            self._forget_column(name)
            return
        place = self.header.places.pop(name)
        self.header.places[new] = place
        self.header.names[place] = new

    def _place(self, name: str) -> int:
        """The place of a column that identifies the GPU in the cells of the file."""
        if name == "index" and self._labels is not None:
            return self._labels
        return self.header.places[name]

    def _is_key_shared(self, timed: Sequence[tuple[Sequence[str], float]]) -> bool:
        """Whether several GPUs have the same key."""
        header, width = self.header, self.header.width
        steady, compared = (
            [place for name in names if (place := header.places.get(name, width)) < width]
            for names in (_STEADY, _COMPARED)
        )
        by_key: dict[str, list[tuple[Sequence[str], float]]] = {}
        for row, wall in timed:
            by_key.setdefault(row[header.key or 0].strip(), []).append((row, wall))
        return any(
            is_shared(
                [wall for _, wall in of_key],
                [tuple(_identity(row[at]) for at in steady) for row, _ in of_key],
                [[_number(row[at]) for at in compared] for row, _ in of_key],
                self.rule.gap,
                self.times.precision,
            )
            for of_key in by_key.values()
        )

    def _ranks(self, keys: Sequence[str]) -> list[bytes]:
        ranks = Ranks()
        return [ranks.of(key.encode(), self.header) for key in keys]

    def _first_rows(self, lines: Iterable[bytes], most: int = _ROWS_LEARNT) -> list[list[str]]:
        """The cells of the first lines that may be rows, also of those for a lost GPU."""
        rows: list[list[str]] = []
        for line in lines:
            cells = self.header.split(line)
            is_said = is_message(line.decode("utf-8", "replace"))
            if line.strip() and not is_said and not self.header.is_same(cells):
                is_longer = any(cells[self.header.width :])
                rows.append(cells if is_longer else cells[: self.header.width])
                if len(rows) == most:
                    break
        return rows

    def _learn_order(self, rows: Sequence[list[str]]) -> None:
        """Find out what tells apart GPUs that have no index or the like: names, or their order.

        Raises:
            AmbiguousRowsError: They are, or may be, of several GPUs that nothing tells apart.
        """
        header = self.header
        named = [header.places[name] for name in _KINDS if name in header.places]
        walls: list[float] = []
        names: list[str] = []
        for row in rows:
            is_lost = self._is_lost_row(row)
            wall = walls[-1] if is_lost and walls else self.times.read(row[header.time])
            if wall is not None:
                walls.append(wall)
                names.append(names[-1] if is_lost and names else " ".join(row[at] for at in named))
        order = list(dict.fromkeys(names))
        if len(order) > 1 and "name" in header.places and _is_cycle(names, len(order)):
            header.set_key("name")
            places = {
                row[header.key or 0].strip(): str(at) for at, row in enumerate(rows[: len(order)])
            }
            if len(places) == len(order):
                self._gpus = {row[header.key or 0].strip(): row for row in rows[: len(order)]}
                self._derive(
                    [
                        _Derived(
                            "index", lambda cells: places.get(cells[header.key or 0].strip(), "")
                        )
                    ]
                )
                return
            header.set_key(None)
        self.rule = unkeyed_rule(walls, names, self.times.precision)
        self._derive([_Derived("index", lambda _: "0")])

    def _find_key(self, rows: Sequence[Sequence[str]]) -> None:
        """Find the column that identifies the GPU, and has a value for most rows."""
        places = self.header.places
        for name in KEYS:
            if name in places:
                place = self._place(name)
                unknown = sum(unknown_word(row[place]) is not None for row in rows)
                if 2 * unknown < len(rows) and not self._is_same_of_all(name, rows):
                    self.header.set_key(name, place)
                    return
        self.header.set_key(None)

    def _is_same_of_all(self, name: str, rows: Sequence[Sequence[str]]) -> bool:
        """Whether a column is the same in all rows, and a later one that identifies GPUs is not."""
        places, later = self.header.places, KEYS[KEYS.index(name) + 1 :]
        place = self._place(name)
        if len({row[place].strip() for row in rows if len(row) > place}) > 1:
            return False
        if name == "serial":
            return {row[place].strip(" 0") for row in rows} == {""}
        return any(
            len({cell for row in rows if _is_known(cell := row[places[other]].strip())}) > 1
            for other in later
            if other in places
        )

    # Cells that follow from others

    def _derive_status(self) -> list[_Derived]:
        if _STATUS in self.header.places or not self._measured:
            return []
        return [_Derived(_STATUS, self._status)]

    def _status(self, cells: Sequence[str]) -> str:
        return str(self._gpu_status(cells).value)

    def _gpu_status(self, cells: Sequence[str]) -> GpuStatus:
        words = [unknown_word(cell) for cell in cells]
        if Unknown.GPU_LOST in words:
            is_lost = any("is lost" in cell.lower() for cell in cells)
            return GpuStatus.LOST if is_lost else GpuStatus.RESET_REQUIRED
        measured = [words[place] for place in self._measured]
        # A single sensor may fail, as that of the power does on some laptops.
        if measured.count(Unknown.NO_ANSWER) > 1 and None not in measured:
            return GpuStatus.LOST
        return GpuStatus.OK

    def _derive_power(self) -> list[_Derived]:
        """The power: where several columns have it, the best that is known."""
        found = [self.header.places[name] for name in POWER if name in self.header.places]
        if not found or (len(found) == 1 and POWER[0] in self.header.places):
            return []

        def power(cells: Sequence[str]) -> str:
            return next((cells[at] for at in found if _is_known(cells[at])), cells[found[0]])

        return [_Derived(POWER[0], power)]

    def _derive_events(self) -> list[_Derived]:
        """The clock event reasons of columns that have a single reason each."""
        header = self.header
        single = [
            (place, bit)
            for place, text in enumerate(header.texts)
            if (bit := clock_event_bit(text)) is not None
        ]
        if not single:
            return []
        mask = header.places.get(_CLOCK_EVENTS)

        @lru_cache
        def bits(*words: str) -> tuple[str, str]:
            """The reasons that are active, and those that are known."""
            found = dict.fromkeys((_ACTIVE, _NOT_ACTIVE), 0)
            for (_, bit), word in zip(single, words, strict=True):
                for kind in found:
                    found[kind] |= bit * (word.strip().lower() in kind)
            known = found[_ACTIVE] | found[_NOT_ACTIVE]
            return hex(found[_ACTIVE]) if known else "", hex(known)

        def read(cells: Sequence[str]) -> tuple[str, str]:
            if mask is not None and _is_known(cells[mask]):
                return cells[mask], ""
            return bits(*[cells[place] for place, _ in single])

        def active(cells: Sequence[str]) -> str:
            return read(cells)[0]

        def known(cells: Sequence[str]) -> str:
            return read(cells)[1]

        return [_Derived(_CLOCK_EVENTS, active), _Derived(CLOCK_EVENTS_KNOWN.name, known)]

    # Rows

    def is_left_by_gpu(self, line: bytes) -> bool:
        """Whether a line stands in place of the row of a lost GPU."""
        return is_lost_gpu(line.decode("utf-8", "replace")) or self._is_lost_row(
            self.header.split(line)
        )

    def is_last_gpu(self, key: bytes) -> bool:
        """Whether the row with a key is the last one of a sample."""
        return bool(self._gpus) and key.decode("utf-8", "replace").strip() == next(
            reversed(self._gpus)
        )

    def split(self, cells: list[str]) -> list[str]:
        """The cells of a line, with a time in one cell, and numbers with a point."""
        if self.are_times_split and len(cells) > self.header.width:
            cells = _joined(cells, self.header.time)
        at, clock = self.header.time, self.clock
        if clock is not None and max(at, clock) < len(cells) and _has_digit([cells[clock]]):
            cells = list(cells)
            cells[at] = f"{cells[at].strip()} {cells[clock].strip()}"
        if self.delimiter != ",":
            cells = [_with_point(cell) for cell in cells]
        return cells

    def rows(self, lines: Iterable[bytes]) -> list[OtherRow]:
        """The lines of a sample, those that are rows with all their cells."""
        found = [self._row(number, line) for number, line in _numbered(lines)]
        if self.rule.rows is not None:
            return self._by_position(found, self.rule.rows)
        if self.header.key is None:
            return found
        if self.rule.gap is not None:
            found = self._without_repeated(found)
        return self._with_lost(found)

    def _is_of_other_host(self, cells: Sequence[str]) -> bool:
        if self._host is None or len(cells) != self.header.width:
            return False
        place, host = self._host
        return cells[place].strip() not in (host, "") and _is_known(cells[place])

    def _row(self, number: int, line: bytes) -> OtherRow:
        header = self.header
        cells = header.split(line)
        is_said = is_message(text := line.decode("utf-8", "replace"))
        if is_said or self._is_lost_row(cells):
            return OtherRow(number, line, None, is_expected=True, is_message=is_said)
        if header.key is not None and header.key < len(cells) - 1 < header.width - 1:
            cells = self._with_rest(cells)
        is_whole = len(cells) >= header.width and not text.count('"') % 2 and "\0" not in text
        if len(cells) != header.width:
            # Of too few cells the last one may be cut off; too many are two rows in one line.
            cells = [] if any(cells[header.width :]) else cells[: min(header.width, len(cells) - 1)]
        wall = self.times.read(cells[header.time]) if len(cells) > header.time else None
        if wall is None:
            return OtherRow(number, line, None)
        if self._is_of_other_host(cells):
            return OtherRow(number, line, None, is_unassigned=True)
        cells += [""] * (header.width - len(cells))
        if self._host is not None:
            cells[self._host[0]] = cells[self._host[0]].strip()
        cells = self._with_lost_words(cells)
        for place, factor in self._scaled:
            cells[place] = _scaled(cells[place], factor)
        return OtherRow(number, line, self._derived(cells), wall, is_whole)

    def _with_rest(self, cells: list[str]) -> list[str]:
        """A short row that ends in the word of a lost GPU, with that word for all that is left."""
        if unknown_word(cells[-1]) is not Unknown.GPU_LOST:
            return cells
        word, names = cells[-1], self.header.names
        gpu = self._gpus.get(cells[self.header.key or 0].strip(), [])
        rest = [
            gpu[at] if names[at] in _IDENTITY and at < len(gpu) else word
            for at in range(len(cells) - 1, self.header.width)
        ]
        return [*cells[:-1], *rest]

    def _with_lost_words(self, cells: list[str]) -> list[str]:
        """The cells, with nvidia-smi's usual word where all measurements are another word."""
        words = {cells[place].strip() for place in self._measured}
        # Most cells are numbers, which need no search.
        lost = next((one for one in words if not one[:1].isdigit() and _is_lost_word(one)), None)
        if lost is not None:
            # It writes 0 MiB for the memory of a GPU that it cannot read.
            used = {self.header.places.get(name) for name in _MEMORY[1:]}
            cells = [
                lost if at in used and _number(cell) == 0 else cell for at, cell in enumerate(cells)
            ]
        if len(words) != 1 or not (word := words.pop()).startswith("["):
            return cells
        about_gpu = re.search(r"(?i)\b(gpu|reset|lost)\b", word) is not None
        if unknown_word(word) is not None or not (about_gpu or len(self._measured) > 1):
            return cells
        return [lost_cell(word) if cell.strip() == word else cell for cell in cells]

    def _derived(self, cells: list[str]) -> list[str]:
        return [*cells, *(column.cell(cells) for column in self.derived)]

    def _is_lost_row(self, cells: Sequence[str]) -> bool:
        """Whether it is the row of a GPU that nvidia-smi could not open, without time or index."""
        if len(cells) != self.header.width:
            return False
        key = self.header.key
        if key is not None and unknown_word(cells[key]) is not None:
            return True
        return all(unknown_word(cell) is not None for cell in cells)

    def _by_position(self, rows: list[OtherRow], expected: int) -> list[OtherRow]:
        """The rows with the index of their GPU, if none is missing."""
        gpus = [
            row
            for row in rows
            if row.cells is not None or self._is_lost_row(self.header.split(row.line))
        ]
        if len(gpus) != expected:
            return [row._replace(cells=None, is_unassigned=row.cells is not None) for row in rows]
        found, model = [], next((row for row in gpus if row.cells is not None), None)
        for row in rows:
            if row in gpus and model is not None:
                cells = row.cells or self._lost_cells(model.cells or [], model, row.line)
                found.append(
                    row._replace(
                        cells=[*cells[:-1], str(gpus.index(row))], wall=row.wall or model.wall
                    )
                )
            else:
                found.append(row)
        return found

    def _without_repeated(self, rows: Iterable[OtherRow]) -> list[OtherRow]:
        """The rows with only the first of each GPU: two programs wrote the file."""
        key, found = self.header.key or 0, []
        seen: set[str | None] = set()
        for row in rows:
            gpu = None if row.cells is None else row.cells[key].strip()
            is_repeated = gpu is not None and gpu in seen
            found.append(row._replace(cells=None, is_expected=True) if is_repeated else row)
            seen.add(gpu)
        return found

    def _with_lost(self, rows: list[OtherRow]) -> list[OtherRow]:
        """The rows, and in place of a line that a lost GPU left, its row."""
        model = next((row for row in rows if row.cells is not None), None)
        if model is None or all(row.cells is not None or not row.is_expected for row in rows):
            return rows
        key = self.header.key or 0
        here = {row.cells[key].strip() for row in rows if row.cells is not None}
        missing = [gpu for gpu in self._gpus if gpu not in here]
        named = [row for row in rows if is_lost_gpu(row.line.decode("utf-8", "replace"))]
        places = [
            row
            for row in rows
            if row.cells is None and self._is_lost_row(self.header.split(row.line))
        ]
        found = {}
        for row, message in zip(places or named, named or places, strict=False):
            gpu = self._named_gpu(message.line, missing)
            if gpu is not None:
                missing.remove(gpu)
                cells = self._lost_cells(self._gpus[gpu], model, message.line)
                found[row.number] = row._replace(cells=cells, wall=model.wall)
            elif not named:
                # Nothing else mentions the line.
                found[row.number] = row._replace(is_expected=False)
        return [found.get(row.number, row) for row in rows]

    def _named_gpu(self, message: bytes, missing: Iterable[str]) -> str | None:
        """The missing GPU of a message: the one that it names, if the log has such a column."""
        text = message.decode("utf-8", "replace")
        for column, word in (("index", index_in(text)), ("pci.bus_id", bus_id_in(text))):
            at = self.header.places.get(column)
            if word and at is not None:
                for gpu in missing:
                    cell = self._derived(self._gpus[gpu][: self.header.width])[at].strip()
                    if word in (cell, bus_id_in(cell)):
                        return gpu
                return None
        return next(iter(missing), None)

    def _lost_cells(self, gpu: Sequence[str], model: OtherRow, line: bytes) -> list[str]:
        """The row of a lost GPU at the time of another row, in whose place a line stands."""
        header, word = self.header, lost_cell(line.decode("utf-8", "replace"))
        cells = [
            cell if header.names[place] in _IDENTITY else word
            for place, cell in enumerate(gpu[: header.width])
        ]
        cells[header.time] = (model.cells or cells)[header.time]
        return self._derived(cells)


_ACTIVE, _NOT_ACTIVE = ("active", "yes", "1", "true"), ("not active", "no", "0", "false")


def _are_values(cells: Sequence[str], times: Sequence[str]) -> bool:
    """Whether numbers are measured on one GPU, and are not the indices of several."""
    known = [number for cell in cells if (number := _number(cell)) is not None]
    if sum(not _may_be_index(number) for number in known) > max(1, _RARE * len(cells)):
        return True
    # The indices of several GPUs stand beside the same time.
    if len(set(times)) < (1 - 1 / _DAMAGED) * len(times):
        return False
    count = len(set(cells))
    # A row may be written twice.
    cells = [cell for cell, _ in groupby(cells)]
    groups = [cells[at : at + count] for at in range(0, len(cells) - count + 1, count)]
    # GPUs come again and again, whether in order or not.
    are_gpus = sum(len(set(group)) for group in groups) >= _FEWEST_GPUS * count * len(groups)
    return count > _MOST_GPUS and not are_gpus


def _have_decimals(numbers: Iterable[float]) -> bool:
    return not all(map(float.is_integer, numbers))


def _may_be_index(number: float) -> bool:
    return number.is_integer() and 0 <= number <= _HIGHEST_INDEX


def _is_lost_word(cell: str) -> bool:
    return unknown_word(cell) is Unknown.GPU_LOST


def _number_of_label(cell: str) -> str:
    found = _LABEL.fullmatch(cell.strip())
    return "" if found is None else found["number"]


def _of_width(found: int, width: int) -> str:
    why = "numbers with a decimal comma" if found > width else "columns that were left out"
    return (
        f"has rows of {found} cells below {width} headings, perhaps because of {why}: write as many"
        " cells as headings, with a point in numbers (LC_ALL=C) or semicolons between cells"
    )


def _of_shared(key: str, columns: Sequence[str | None]) -> str:
    missing = next((name for name in ("index", "uuid") if name not in columns), None)
    add = "" if missing is None else f"add {missing} to the query, and "
    return (
        f"has rows of one sample that share the same {key}, which may be of several GPUs or of"
        f" several programs: {add}let each program write a file of its own"
    )


def _has_digit(cells: Sequence[str]) -> bool:
    return any(character.isdigit() for cell in cells for character in cell)


def _is_cycle(names: Sequence[str], count: int) -> bool:
    """Whether the same names come again and again, each once and in the same order."""
    return all(name == names[at % count] for at, name in enumerate(names))


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    for line in lines:
        yield number, line
        number += 1 + line.count(b"\n")


def _is_known(cell: str) -> bool:
    text = cell.strip()
    return bool(text) and unknown_word(text) is None and not text.startswith("[")


def _identity(cell: str) -> str:
    """What a cell says of which GPU it is; the size of the memory is 0 while a GPU is lost."""
    text = cell.strip()
    return "" if text in ("0", "0 MiB") else text


def _number(cell: str) -> float | None:
    try:
        return float(cell.strip().partition(" ")[0].rstrip("%MiBWCHz"))
    except ValueError:
        return None


def _is_split(first: str, rest: str) -> bool:
    """Whether two cells are a time such as ``2026-05-01T10:00:00,123+00:00``, as from ``date``."""
    return ":" in first and rest[:1].isdigit() and read_any(f"{first}.{rest}") is not None


def _joined(cells: Sequence[str], place: int) -> list[str]:
    return [*cells[:place], f"{cells[place]}.{cells[place + 1]}", *cells[place + 2 :]]


def _with_point(cell: str) -> str:
    """A number with a decimal comma, perhaps with a unit, with a point."""
    whole, comma, rest = cell.partition(",")
    if comma and whole.strip().lstrip("+-").isdecimal() and rest[:1].isdecimal():
        return f"{whole}.{rest}"
    return cell


def _scaled(cell: str, factor: float) -> str:
    try:
        return repr(float(cell.strip().partition(" ")[0]) * factor)
    except ValueError:
        return cell
