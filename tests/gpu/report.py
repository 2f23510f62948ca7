"""Makes a report of what a visit to a machine with a GPU left in a folder.

    python -m tests.gpu.report OUT [--write]

prints Markdown: the tables of the READMEs, and what differs from what it should be. It names
neither the machine nor its users and folders. ``--write`` puts the tables into
``tests/bench/README.md`` and ``tests/driver/README.md``. That a file is missing, or was cut short,
is said in a line, and the rest is reported.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
from collections import Counter
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpumon.text.formatting import counted, shortened
from tests.bench import watching
from tests.bench.tables import put
from tests.gpu import compare, latency, screen
from tests.gpu.anonymous import anonymous
from tests.gpu.differing import COMPARED, FACTS, groups, sentence
from tests.gpu.facts import Facts
from tests.gpu.folder import Folder, whole_text
from tests.gpu.work import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

WATCHED, RUN = "watching.csv", "run.tar"

WATCHING_README, LATENCY_README = "tests/bench/README.md", "tests/driver/README.md"
"""From the root of the checkout."""

_MOST = 500
"""Characters of a sentence."""
_TRAINERS = (("torch", "PyTorch"), ("jax", "JAX"))
"""The first of these that is there does the training."""
_HEAD = 2
"""Lines of a table without rows."""


class Report(NamedTuple):
    lines: list[str]  # All of it.
    # What watching costs, for its README; empty: it was not measured, or on unknown GPUs.
    watching: list[str]
    latency: list[str]  # The times of NVML's calls, for theirs; empty: they were not measured.


def report(out: Path) -> Report:
    folder = Folder(out)
    facts = folder.read(FACTS, lambda path: msgspec.json.decode(path.read_bytes(), type=Facts))
    compared = folder.read(COMPARED, compare.read)
    watched = _watched(folder, facts or Facts())
    calls = _calls(folder)
    programs = folder.read(screen.FILE, _programs) or []
    differing = [line for group in groups(folder, facts, compared) for line in group.lines()]
    folder.read(RUN, _require_whole_tar)
    remarks = [f"- {sentence(text)}" for text in folder.remarks.values()]
    lines = [
        f"# A visit: {_where(facts or Facts())}",
        *(["", *remarks] if remarks else []),
        *("", "## What watching costs the watched", "", *(watched or ["Not measured."])),
        *("", "## NVML's calls", "", *(calls or ["Not measured."])),
        *("", "## First data, processor time and memory", "", *(programs or ["Not measured."])),
        *("", "## What differs", *differing),
    ]
    is_real = facts is not None and bool(facts.gpus) and not facts.simulated
    kept = (watched, calls) if is_real else ([], [])
    return Report(*(_anonymous(part) for part in (lines, *kept)))


def _anonymous(lines: Sequence[str]) -> list[str]:
    """The lines without names; a long sentence is cut only then, as it might be within a name."""
    if not lines:
        return []
    return [_cut(line) for line in anonymous("\n".join(lines)).split("\n")]


def _cut(line: str) -> str:
    if not line.startswith("- ") or len(line) <= _MOST:
        return line
    text = shortened(line, _MOST)
    return f"{text}`" if text.count("`") % 2 else text


def _where(facts: Facts) -> str:
    """``26 November 2026, 2 × NVIDIA H100 80GB HBM3, driver 580.95.05, 16 cores``."""
    cards = Counter(gpu.name or "GPU without a name" for gpu in facts.gpus)
    parts = [name if count == 1 else f"{count} × {name}" for name, count in cards.items()]
    kind = "simulated driver" if facts.simulated else "driver"
    driver = [f"{kind} {facts.driver_version}"] if facts.driver_version else []
    cores = [counted(facts.cores, "core")] if facts.cores else []
    return ", ".join([_day(facts.date), *(parts or ["GPU unknown"]), *driver, *cores])


def _day(text: str) -> str:
    try:
        return f"{date.fromisoformat(text):%d %B %Y}".lstrip("0")
    except ValueError:
        return "Date unknown"


def _watched(folder: Folder, facts: Facts) -> list[str]:
    """The table of what watching costs, headed with where it was measured."""
    turns = folder.read(WATCHED, watching.read)
    if not turns:
        folder.has_nothing(WATCHED)
        return []
    rounds = counted(len({turn.round for turn in turns}), "round")
    trained = [f"{name} {facts.packages[key]}" for key, name in _TRAINERS if key in facts.packages]
    where = ", ".join([_where(facts), *trained[:1]])
    return [f"{where}; {rounds}:", "", *watching.lines(turns)]


def _calls(folder: Folder) -> list[str]:
    """The table of the times of NVML's calls."""
    calls = folder.read(latency.FILE, latency.rows_for_readme) or []
    if len(calls) > _HEAD:
        return calls
    folder.has_nothing(latency.FILE)
    return []


def _programs(path: Path) -> list[str]:
    """The beginning of ``screen.txt``, up to the screens."""
    return f"\n{whole_text(path)}".partition("\n## ")[0].strip().splitlines()


def _require_whole_tar(path: Path) -> None:
    """Read where each member ends.

    Raises:
        tarfile.TarError: It does not end in the file.
    """
    with tarfile.open(path) as found:
        found.getnames()


def write(found: Report, root: Path = ROOT) -> list[str]:
    """Put the tables into the READMEs of a checkout.

    Returns:
        The READMEs that stay as they are.
    """
    parts = (
        (WATCHING_README, "watching", found.watching),
        (LATENCY_README, "latency", found.latency),
    )
    for readme, name, lines in parts:
        if lines:
            put(root / readme, lines, name)
    return [readme for readme, _, lines in parts if not lines]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.report", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--write", action="store_true", help="put the tables into the READMEs")
    options = parser.parse_args()
    if not options.out.is_dir():
        parser.error(f"{options.out} is no folder")
    found = report(options.out)
    print("\n".join(found.lines))
    if options.write:
        for readme in write(found):
            print(
                f"{readme} stays as it is: there is no table of a real GPU for it.", file=sys.stderr
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
