"""Compares what gpumon says with what nvidia-smi says, under load and idle.

    python -m tests.gpu.compare OUT [--pace P]

writes ``OUT/compare.csv``. In each round gpumon samples, nvidia-smi is asked for everything, and
gpumon samples again once every slow value is due. GPM's values, which nvidia-smi does not have, are
compared with bounds that known loads must keep.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gpumon.makers.backend import PERIOD
from gpumon.model.snapshot import GPU_METRIC
from tests.bench.rows import whole_rows
from tests.driver import MIB
from tests.gpu import dcgm, smi
from tests.gpu.agreement import (
    BY_SMI,
    DEPRECATED,
    XML,
    XML_PATHS,
    Verdict,
    as_model,
    element_text,
    element_value,
    is_static,
    judge,
)
from tests.gpu.anonymous import NAMES_A_MACHINE
from tests.gpu.work import Kind, NoWorkError, working
from tests.nvml_source import NvmlSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TextIO

    from gpumon.model.metrics import Metric
    from gpumon.model.snapshot import Gpu, Snapshot
    from tests.gpu.agreement import Judged

ROUNDS = 20
"""With each load, at pace 1."""

LOADED_SECONDS = 45.0
"""When the rounds under load end, at pace 1, however many there were."""

ALL_SECONDS = 106.0
"""When the idle rounds end, at pace 1, which come last."""

SMI_SECONDS = 8.0
"""Within these nvidia-smi answers; at any pace."""

MOST_HANGS = 2
"""After so many calls that did not end, nvidia-smi is not asked again."""

SETTLE_SECONDS = 1.1
"""From the start of a load until the driver's mean values, and a pair of GPM's samples, are all of
it."""

IDLE = "idle"
NO_ELEMENT = "no such element"
NO_GPU = "no such GPU"

T = TypeVar("T")
_UseKey = tuple[int, int]


class Row(NamedTuple):
    """A row of ``compare.csv``."""

    load: str  # A ``Kind`` of work, in small letters, or ``idle``.
    round: int  # From 1.
    gpu: str  # Index; empty where the row is not about a GPU.
    source: str  # query-gpu, xml, compute-apps, pmon or gpm.
    name: str  # nvidia-smi's field for query-gpu and for what no metric has, else the metric's.
    # The first and the last sample, or the one that both are, in the model's unit.
    gpumon: str = ""
    nvidia_smi: str = ""  # As it wrote it; the bound for gpm; the reason of a failure.
    difference: str = ""  # How far nvidia-smi lies outside all samples, in the model's unit.
    verdict: str = ""  # A ``Verdict``.


class Bound(NamedTuple):
    """What a known load must show."""

    load: str  # The ``Kind`` in small letters, or idle.
    field: str  # Of the metric.
    low: float | None  # Lowest value, in the model's unit; ``None``: any.
    high: float | None  # Highest value.
    why: str  # The reason.


BOUNDS = (
    Bound("tensor", "utilization_gpu", 80, None, "matrix products follow one another"),
    Bound("tensor", "sm_active", 60, None, "a large matrix product has blocks for every SM"),
    Bound("tensor", "tensor_active", 20, None, "bf16 products run on the tensor cores"),
    Bound("tensor", "dram_active", 0.5, None, "the operands come from memory"),
    Bound("tensor", "fp64_active", None, 5, "nothing computes in FP64"),
    Bound("copy", "dram_active", 30, None, "a copy within the GPU is bound by its memory"),
    Bound("copy", "tensor_active", None, 2, "a copy computes nothing"),
    Bound("tiny", "utilization_gpu", 30, None, "some kernel runs most of the time"),
    Bound("tiny", "sm_active", None, 30, "a tiny kernel has a block for few SMs"),
    Bound("tiny", "tensor_active", None, 2, "it multiplies no matrices"),
    Bound("sleep", "memory_used", 512 * MIB, None, "it holds 512 MiB"),
    *(
        Bound(load, field, None, 5, "nothing runs")
        for load in ("sleep", IDLE)
        for field in ("utilization_gpu", "sm_active", "tensor_active", "dram_active")
    ),
)
"""Wide on purpose: they find a value of another metric or a wrong unit, not a slow GPU."""


class Table:
    """``compare.csv``, written row by row: what is there survives the end of the process."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(Row._fields)
        self._file.flush()
        self.rows: list[Row] = []  # All so far.

    def write(self, row: Row) -> None:
        """Add a row, without its values if they tell the machine."""
        if NAMES_A_MACHINE.search(row.name):
            row = row._replace(gpumon=_hidden(row.gpumon), nvidia_smi=_hidden(row.nvidia_smi))
        self.rows.append(row)
        self._writer.writerow(row)
        self._file.flush()

    def fail(self, load: str, number: int, source: str, reason: object) -> None:
        """A row that says why there are no others."""
        words = " ".join(str(reason).split())
        self.write(Row(load, number, "", source, "", "", words, "", Verdict.FAILED.value))

    @property
    def failed(self) -> bool:
        return any(row.verdict == Verdict.FAILED.value for row in self.rows)


def _hidden(text: str) -> str:
    return "…" if text else ""


def _shown(first: object, last: object) -> str:
    texts = ["" if value is None else str(value) for value in (first, last)]
    return texts[1] if texts[0] == texts[1] else f"{texts[0]}..{texts[1]}"


class Comparison:
    """The step."""

    def __init__(self, table: Table, source: NvmlSource, pace: float) -> None:
        self._table = table
        self._source = source
        self._pace = pace
        self._began = time.monotonic()
        self._hangs = 0
        self._fields: list[str] = []

    def run(self) -> None:
        """All loads, idle last."""
        self._source.sample()
        self._fields = self._asked("", 0, "query-gpu", smi.fields) or []
        self._under(Kind.TENSOR, self._rounds_under)
        for kind in (Kind.COPY, Kind.TINY, Kind.SLEEP):
            self._under(kind, self._measure)
        self._rounds(IDLE, ALL_SECONDS, None)

    def _under(self, kind: Kind, act: Callable[[str, int], None]) -> None:
        load = kind.name.lower()
        try:
            with working(kind) as pid:
                time.sleep(max(SETTLE_SECONDS, 2 * self._pace))
                act(load, pid)
        except NoWorkError as error:
            self._table.fail(load, 0, "gpm", error)

    # Rounds

    def _rounds_under(self, load: str, pid: int) -> None:
        self._rounds(load, LOADED_SECONDS, pid)

    def _rounds(self, load: str, end: float, holder: int | None) -> None:
        """As many rounds as there should be until so many seconds have gone, at least one."""
        deadline = self._began + end * self._pace
        before = self._source.sample()
        seen: list[Gpu] = []
        for number in range(1, max(1, round(ROUNDS * self._pace)) + 1):
            before = self._round(load, number, before, holder)
            seen += before.gpus[:1]
            if time.monotonic() >= deadline:
                break
        self._keep_bounds(load, seen)

    def _round(self, load: str, number: int, before: Snapshot, holder: int | None) -> Snapshot:
        """A round; the sample at its end."""
        began = time.monotonic()
        queried = None
        # Power may swing within a round, so what is read often is read around each call.
        samples = [before, self._source.sample()]
        if self._fields:
            queried = self._asked(load, number, "query-gpu", self._query)
            samples.append(self._source.sample())
        documents = self._asked(load, number, "xml", smi.documents)
        samples.append(self._source.sample())
        apps = self._asked(load, number, "compute-apps", smi.compute_apps)
        watched = self._asked(load, number, "pmon", smi.pmon)
        time.sleep(max(0.0, began + PERIOD - time.monotonic()))
        after = self._source.sample()
        pair = _Round(load, number, [*samples, after], holder)
        for row in pair.rows(queried, documents, apps, watched):
            self._table.write(row)
        return after

    def _query(self, seconds: float) -> smi.Queried:
        queried = smi.query(self._fields, seconds)
        # What was refused once is not asked again.
        self._fields = [name for name in self._fields if name not in queried.refused]
        return queried

    def _asked(
        self, load: str, number: int, source: str, question: Callable[[float], T]
    ) -> T | None:
        """What nvidia-smi says; ``None`` if it does not, with a row that says why."""
        if self._hangs >= MOST_HANGS:
            if number <= 1:
                self._table.fail(load, number, source, "nvidia-smi hung, and is not asked again")
            return None
        try:
            return question(SMI_SECONDS)
        except smi.HungError as error:
            self._hangs += 1
            self._table.fail(load, number, source, error)
        except smi.SmiError as error:
            self._table.fail(load, number, source, error)
        return None

    # Bounds

    def _measure(self, load: str, pid: int) -> None:
        """The values of GPM under a load, and the memory of its process."""
        before = self._source.sample()
        seen: list[Gpu] = []
        for _ in range(max(1, round(3 * self._pace))):
            time.sleep(SETTLE_SECONDS)
            after = self._source.sample()
            seen += after.gpus[:1]
        self._keep_bounds(load, seen)
        apps = self._asked(load, 1, "compute-apps", smi.compute_apps)
        pair = _Round(load, 1, [before, self._source.sample()], pid)
        for row in pair.rows(None, None, apps, None):
            self._table.write(row)

    def _keep_bounds(self, load: str, seen: Sequence[Gpu]) -> None:
        """Compare what GPM measured with bounds, and with DCGM where it is installed."""
        if seen and dcgm.is_there():
            self._compare_dcgm(load, seen[-1])
        for bound in BOUNDS:
            if bound.load == load:
                self._table.write(_kept(bound, seen))

    def _compare_dcgm(self, load: str, before: Gpu) -> None:
        try:
            shares = dcgm.shares(SMI_SECONDS)
        except dcgm.DcgmError as error:
            self._table.fail(load, 1, "gpm", error)
            return
        after = self._source.sample().gpus[0]
        for field, share in shares.items():
            values = getattr(before, field), getattr(after, field)
            row = Row(load, 1, "0", "gpm", f"{field}, DCGM", _shown(*values), f"{share:g}")
            self._table.write(_with_verdict(row, judge(GPU_METRIC[field], values, share)))


def _kept(bound: Bound, seen: Sequence[Gpu]) -> Row:
    """Whether the median of the samples is within the bound."""
    values = [value for gpu in seen if (value := getattr(gpu, bound.field)) is not None]
    row = Row(bound.load, 1, "0", "gpm", bound.field)
    if not values:
        reasons = {gpu.unknown.get(bound.field) for gpu in seen} - {None}
        words = ", ".join(sorted(reason.words for reason in reasons if reason is not None))
        text = f"gpumon has no value: {words or 'no sample'}"
        return row._replace(nvidia_smi=text, verdict=Verdict.FAILED.value)
    middle = median(values)
    low, high = bound.low, bound.high
    limit = f"at least {low:g}" if low is not None else f"at most {high:g}"
    outside = min(0.0, middle - low) if low is not None else max(0.0, middle - (high or 0.0))
    return row._replace(
        gpumon=f"{middle:g}",
        nvidia_smi=f"{limit}: {bound.why}",
        difference=f"{outside:g}",
        verdict=(Verdict.DIFFERS if outside else Verdict.SAME).value,
    )


class _Round:
    """The samples of gpumon of a round, between which nvidia-smi was asked."""

    def __init__(
        self, load: str, number: int, samples: Sequence[Snapshot], holder: int | None
    ) -> None:
        self._load = load
        self._round = number
        self._holder = holder
        self._before, self._after = samples[0], samples[-1]
        self._gpus = [
            [gpu for snapshot in samples for gpu in snapshot.gpus if gpu.uuid == last.uuid]
            for last in self._after.gpus
        ]
        self._index = {gpu.uuid: gpu.index for gpu in self._after.gpus}

    def rows(
        self,
        queried: smi.Queried | None,
        documents: Sequence[smi.Document] | None,
        apps: Sequence[smi.App] | None,
        watched: Sequence[smi.App] | None,
    ) -> Iterator[Row]:
        """All rows of what nvidia-smi said."""
        if queried is not None:
            for name in queried.refused:
                yield self._row("", "query-gpu", name, "", "refused", Verdict.NOT_IN_GPUMON)
            yield from self._each(queried.gpus, "query-gpu", self._fields)
        if documents is not None:
            yield from self._each([one.elements for one in documents], "xml", self._elements)
            found = [app for document in documents for app in document.apps]
            yield from self._processes("xml", found)
        if apps is not None:
            yield from self._processes("compute-apps", apps)
        if watched is not None:
            yield from self._processes("pmon", watched)

    def _row(
        self, gpu: object, source: str, name: str, gpumon: str, text: str, verdict: Verdict
    ) -> Row:
        return Row(self._load, self._round, str(gpu), source, name, gpumon, text, "", verdict.value)

    def _each(
        self,
        answers: Sequence[Mapping[str, str]],
        source: str,
        compare: Callable[[Sequence[Gpu], Mapping[str, str]], Iterator[Row]],
    ) -> Iterator[Row]:
        """The rows of each GPU, found by its UUID, else by its place in the list."""
        by_uuid = {answer.get("uuid"): answer for answer in answers}
        for place, gpus in enumerate(self._gpus):
            last = gpus[-1]
            answer = by_uuid.get(last.uuid)
            if answer is None and place < len(answers):
                answer = answers[place]
            if answer is None:
                yield self._row(last.index, source, "", last.status.value, NO_GPU, Verdict.FAILED)
            else:
                yield from compare(gpus, answer)

    def _fields(self, gpus: Sequence[Gpu], answer: Mapping[str, str]) -> Iterator[Row]:
        for name, text in answer.items():
            metric = BY_SMI.get(name)
            if metric is not None:
                read = _reading(partial(as_model, metric, text))
                yield self._judged("query-gpu", name, metric, gpus, text, read)
            elif self._round == 1:
                yield self._row(gpus[-1].index, "query-gpu", name, "", text, Verdict.NOT_IN_GPUMON)

    def _elements(self, gpus: Sequence[Gpu], answer: Mapping[str, str]) -> Iterator[Row]:
        for field in XML:
            text = element_text(field, answer)
            read = _reading(partial(element_value, field, answer))
            shown = NO_ELEMENT if text is None else text
            yield self._judged("xml", field, GPU_METRIC[field], gpus, shown, read)
        if self._round == 1:
            for path, text in answer.items():
                if path not in XML_PATHS:
                    yield self._row(gpus[-1].index, "xml", path, "", text, Verdict.NOT_IN_GPUMON)

    def _judged(
        self, source: str, name: str, metric: Metric, gpus: Sequence[Gpu], text: str, read: object
    ) -> Row:
        values = [getattr(gpu, metric.field) for gpu in gpus]
        row = self._row(
            gpus[-1].index, source, name, _shown(values[0], values[-1]), text, Verdict.DIFFERS
        )
        if isinstance(read, ValueError):
            return row
        return _with_verdict(row, judge(metric, values, read))

    # Processes

    def _processes(self, source: str, apps: Iterable[smi.App]) -> Iterator[Row]:
        """The memory of each process, and what ``pmon`` says of its SMs."""
        theirs = {(self._gpu_index(app.gpu), app.pid): app for app in apps}
        computes = source == "compute-apps"
        first, last = (_uses(snapshot, computes) for snapshot in (self._before, self._after))
        for key in sorted({*theirs, *(first.keys() & last.keys())}):
            app = theirs.get(key)
            memory = None if app is None or app.memory is None else app.memory * MIB
            shown = "not listed" if app is None else f"{_text(app.memory)} MiB"
            mine = first.get(key, (None, None)), last.get(key, (None, None))
            yield self._used(source, "memory_used", key, (mine[0][0], mine[1][0]), memory, shown)
            if source == "pmon" and app is not None:
                # pmon writes "-" for a process without a sample, which did nothing.
                yield self._used(
                    source, "utilization_gpu", key, (mine[0][1], mine[1][1]), app.sm or 0, "sm"
                )

    def _used(
        self,
        source: str,
        field: str,
        key: _UseKey,
        mine: tuple[float | None, float | None],
        theirs: float | None,
        shown: str,
    ) -> Row:
        gpu, pid = key
        what = "memory" if field == "memory_used" else "SM utilization"
        whose = "the load's process" if pid == self._holder else f"process {pid}"
        text = f"{theirs:g} %" if shown == "sm" else shown
        row = self._row(gpu, source, f"{what} of {whose}", _shown(*mine), text, Verdict.DIFFERS)
        return _with_verdict(row, judge(GPU_METRIC[field], mine, theirs))

    def _gpu_index(self, gpu: str) -> int:
        return int(gpu) if gpu.isdigit() else self._index.get(gpu, -1)


def _with_verdict(row: Row, found: Judged) -> Row:
    difference = "" if found.difference is None else f"{found.difference:g}"
    return row._replace(difference=difference, verdict=found.verdict.value)


def _text(value: object) -> str:
    return "unknown" if value is None else str(value)


def _reading(read: Callable[[], object]) -> object:
    """What it reads, or the error that says that nvidia-smi wrote no value of the metric."""
    try:
        return read()
    except ValueError as error:
        return error


def _uses(snapshot: Snapshot, computes: bool) -> dict[_UseKey, tuple[float | None, float | None]]:
    """GPU and PID -> bytes and percent of the SMs; only of those that compute, or of all."""
    return {
        (use.gpu_index, process.id.pid): (use.memory_used, use.sm)
        for process in snapshot.processes
        if not computes or process.type != "G"
        for use in process.uses
    }


# The summary


class Difference(NamedTuple):
    name: str  # As in the rows.
    source: str  # As in the rows.
    load: str  # As in the rows.
    verdict: str  # Of the example.
    rounds: int  # In how many rounds, of any GPU.
    of: int  # Out of how many.
    gpumon: str  # An example; empty for what names a machine.
    nvidia_smi: str  # The same.


_AGREES = {Verdict.SAME, Verdict.NEAR, Verdict.BOTH_UNKNOWN, Verdict.NOT_IN_GPUMON}


def differences(rows: Iterable[Row]) -> list[Difference]:
    """What differs in more than a third of the rounds, or, if it never moves, in any.

    A value that moves may leap between the samples. A failure counts always. What nvidia-smi no
    longer answers is no difference.
    """
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.load, row.source, row.name].append(row)
    found = []
    for (load, source, name), group in groups.items():
        wrong = [row for row in group if not _is_fine(row)]
        count, of = (len({row.round for row in part}) for part in (wrong, group))
        if wrong and (3 * count > of or _counts_once(wrong, source, name)):
            row = wrong[0]
            example = ("", "") if NAMES_A_MACHINE.search(name) else (row.gpumon, row.nvidia_smi)
            found.append(Difference(name, source, load, row.verdict, count, of, *example))
    return found


def _is_fine(row: Row) -> bool:
    no_answer = DEPRECATED in row.nvidia_smi or row.nvidia_smi == NO_ELEMENT
    return Verdict(row.verdict) in _AGREES or (
        row.verdict == Verdict.ONLY_GPUMON.value and no_answer
    )


def _counts_once(wrong: Sequence[Row], source: str, name: str) -> bool:
    metric = BY_SMI.get(name) if source == "query-gpu" else GPU_METRIC.get(name)
    failed = any(row.verdict == Verdict.FAILED.value for row in wrong)
    return failed or (metric is not None and is_static(metric))


def read(path: Path) -> list[Row]:
    """The rows of a file that this step wrote."""
    cells = (row.values() for row in whole_rows(path))
    return [Row(load, int(number), *rest) for load, number, *rest in cells]


def compare(out: Path, pace: float) -> bool:
    """Write ``compare.csv``; whether all of it could be done."""
    with (out / "compare.csv").open("w", newline="") as file:
        table = Table(file)
        source = NvmlSource(profiled=True)
        source.open()
        try:
            Comparison(table, source, pace).run()
        finally:
            source.close()
    return not table.failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.compare", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pace", type=float, default=1.0)
    options = parser.parse_args()
    return 0 if compare(options.out, options.pace) else 1


if __name__ == "__main__":
    sys.exit(main())
