"""Measures what gpumon costs beside its peers: ``python -m tests.bench``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from tests.bench import over_time, tables
from tests.bench.machine import described, machine
from tests.bench.measures import Cost, Once, Start, cost, middle, obedience, once, start
from tests.bench.programs import gpumon, gpustat, nvitop, nvtop, peers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.bench.machine import Machine
    from tests.bench.programs import Peers, Program

README = Path(__file__).with_name("README.md")

_SLOW = 20_000
"""Bytes a second of a slow line."""
_HOUR = 3600.0


class Pace(NamedTuple):
    """How thorough the measuring is."""

    rounds: int  # How often each program is measured, in turn with the others.
    seconds: float  # How long at a time.
    starts: int  # How often each is started.
    keys: int  # How many keys are pressed.


SHORT, LONG = Pace(2, 6.0, 5, 40), Pace(5, 12.0, 11, 120)


class Bench:
    """One run of the benchmark."""

    def __init__(self, found: Peers, pace: Pace) -> None:
        self._found = found
        self._pace = pace

    def beside_peers(self) -> Iterator[str]:
        """The same work on the same machine, one program after the other, again and again."""
        yield "### Beside the peers: 8 cards, 100 processes, 200×50"
        ours = [gpumon("-n", "0.1"), gpumon(), gpumon("-n", "2")]
        with machine() as on:
            rows = self._costs([*ours, *self._peers()], on)
            _, grown_read = cost(ours[0], on, self._pace.seconds)
            unread, grown = cost(ours[0], on, self._pace.seconds, unread=True)
        yield from tables.costs(rows, ours[0].name)
        yield ""
        yield (
            f"Nobody reads what `{ours[0].name}` writes: {unread.cpu:.2f} % CPU, and it grows by "
            f"{grown:.1f} MiB in {self._pace.seconds:g} s; where somebody does, by "
            f"{grown_read:.1f} MiB."
        )

    def begin(self) -> Iterator[str]:
        """From the start of a program to the first true data on the screen."""
        yield "### From the start to the first data"
        rows: dict[str, list[Start]] = defaultdict(list)
        with machine() as on:
            for _ in range(self._pace.starts):
                for program in (gpumon("-n", "0.1"), *self._peers()):
                    rows[program.name].append(start(program, on))
        yield from tables.starts({name: _middle_start(each) for name, each in rows.items()})

    def obey(self) -> Iterator[str]:
        """From a key to its effect."""
        yield "### From a key to its effect"
        ours = gpumon("-n", "0.1")
        rows = {}
        with machine() as on:
            for program in (ours, *self._peers()):
                if program.cursor is not None:
                    rows[program.name] = obedience(program, on, self._pace.keys)
            slow = f"{ours.name}, {_SLOW // 1000} kB/s"
            rows[slow] = obedience(ours, on, self._pace.keys, _SLOW)
            rows[f"{ours.name}, a card hung"] = obedience(ours, on, self._pace.keys, hung=True)
        yield from tables.keys(rows)

    def end(self) -> Iterator[str]:
        """Commands that run to their end."""
        yield "### Commands that end"
        commands = {
            "gpumon --version": (*gpumon().command, "--version"),
            "gpumon snapshot": (*gpumon().command, "snapshot"),
            "gpumon snapshot --format json": (*gpumon().command, "snapshot", "--format", "json"),
        }
        if self._found.python is not None:
            commands["nvitop -1"] = (str(self._found.python.with_name("nvitop")), "-1")
            commands["gpustat"] = (str(self._found.python.with_name("gpustat")),)
        rows: dict[str, list[Once]] = defaultdict(list)
        with machine() as on:
            for _ in range(self._pace.starts):
                for name, command in commands.items():
                    rows[name].append(once(command, on))
        middles = {
            name: Once(median(one.wall for one in each), median(one.cpu for one in each))
            for name, each in rows.items()
        }
        yield from tables.ends(middles)

    def grow(self) -> Iterator[str]:
        """What more cards, more processes and shorter intervals cost."""
        ours = gpumon("-n", "0.1")
        cards: dict[str, Cost] = {}
        processes: dict[str, Cost] = {}
        for count in (1, 8, 16, 64):
            with machine(cards=count) as on:
                cards[str(count)] = self._cost(ours, on)
        for count in (10, 100, 1000):
            with machine(processes=count) as on:
                processes[str(count)] = self._cost(ours, on)
        with machine() as on:
            programs = {each: gpumon("-n", each) for each in ("2", "1", "0.5", "0.1")}
            intervals = {f"{each} s": self._cost(one, on) for each, one in programs.items()}
        yield "### Against the number of cards, with 100 processes, at 0.1 s"
        yield from tables.costs(cards, "8")
        yield ""
        yield "### Against the number of processes, with 8 cards, at 0.1 s"
        yield from tables.costs(processes, "100")
        yield ""
        yield "### Against the interval, with 8 cards and 100 processes"
        yield from tables.costs(intervals, "0.5 s")

    def hour(self) -> Iterator[str]:
        """Memory after an hour."""
        yield "### After an hour at 0.1 s"
        with machine() as on:
            after, grown = cost(gpumon("-n", "0.1"), on, _HOUR)
        yield from tables.costs({"gpumon -n 0.1": after}, "gpumon -n 0.1")
        yield ""
        yield f"It grew by {grown:.1f} MiB."

    def _peers(self) -> list[Program]:
        found = self._found
        programs = []
        if found.python is not None:
            programs += [nvitop(found.python), gpustat(found.python)]
        if found.nvtop is not None:
            programs += [nvtop(found.nvtop, pcie_free=free) for free in (False, True)]
        return programs

    def _costs(self, programs: Sequence[Program], on: Machine) -> dict[str, Cost]:
        rows: dict[str, list[Cost]] = defaultdict(list)
        for _ in range(self._pace.rounds):
            for program in programs:
                rows[program.name].append(cost(program, on, self._pace.seconds)[0])
        return {name: middle(each) for name, each in rows.items()}

    def _cost(self, program: Program, on: Machine) -> Cost:
        return self._costs([program], on)[program.name]


def _middle_start(each: Sequence[Start]) -> Start:
    return Start(_median([one.data for one in each]), _median([one.whole for one in each]))


def _median(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return median(known) if 2 * len(known) > len(numbers) else None


def _parts(bench: Bench) -> dict[str, Callable[[], Iterator[str]]]:
    return {
        "peers": bench.beside_peers,
        "start": bench.begin,
        "keys": bench.obey,
        "once": bench.end,
        "growth": bench.grow,
        "hour": bench.hour,
    }


_USUAL = ("peers", "start", "keys", "once", "growth")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measures what gpumon costs beside its peers, on a simulated machine.",
    )
    parser.add_argument("--short", action="store_true", help="in less than eight minutes")
    parser.add_argument(
        "--parts", default=",".join(_USUAL), help="some of peers,start,keys,once,growth,hour"
    )
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="PYTHON",
        help="a Python that has nvitop and gpustat beside it; else they are put into a"
        " throw-away environment",
    )
    parser.add_argument("--no-peers", action="store_true", help="gpumon alone")
    parser.add_argument("--nvtop", metavar="PATH", help="nvtop, where it is not on the path")
    parser.add_argument(
        "--write", action="store_true", help="put the tables into tests/bench/README.md"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="with --short: measure gpumon alone in half a minute, print the figures as JSON, and"
        " report on standard error what differs from earlier runs",
    )
    parser.add_argument(
        "--keep", action="store_true", help="with --json: add this run to tests/bench/figures.jsonl"
    )
    return parser


def _report_json(*, keep: bool) -> int:
    with machine() as on:
        run = over_time.measure(on)
    print(over_time.to_json(run), flush=True)
    runs, problems = over_time.earlier(over_time.FIGURES)
    for sentence in (*problems, *over_time.compare(run, runs)):
        print(sentence, file=sys.stderr)
    if keep:
        over_time.keep(over_time.FIGURES, run)
    return 0


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    if options.keep and not options.json:
        parser.error("--keep needs --json")
    if options.json:
        if not options.short:
            parser.error("--json needs --short: only runs of the same length can be compared")
        if options.write or options.parts != ",".join(_USUAL) or options.peers or options.nvtop:
            parser.error("--json cannot be combined with --parts, --peers, --nvtop or --write")
        return _report_json(keep=options.keep)
    wanted = options.parts.split(",")
    strange = [name for name in wanted if name not in (*_USUAL, "hour")]
    if strange:
        parser.error(f"there is no part {strange[0]}")
    began = time.monotonic()
    with peers(options.peers, options.nvtop, wanted=not options.no_peers) as found:
        bench = Bench(found, SHORT if options.short else LONG)
        lines = [f"{time.strftime('%d %B %Y')}, {described()}; {found.versions()}."]
        for name in wanted:
            for number, line in enumerate(_parts(bench)[name]()):
                if number == 0:
                    lines.append("")
                lines.append(line)
                if line.startswith("###"):
                    lines.append("")
                print(line, flush=True)
            print(flush=True)
    took = time.monotonic() - began
    print(f"{lines[0]} It took {took / 60:.1f} minutes.")
    if options.write:
        tables.put(README, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
