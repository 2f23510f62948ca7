"""Pictures of the lists, tables and pages, to compare two versions of the program cell by cell.

Three kinds: the rows of views, what is written in each theme and with few colours or characters,
and the screens of the whole application after each key of a sequence.

``python -m tests.ui.pictures --save FILE`` in one tree and ``--against FILE`` in the other name
the pictures that differ and show where. ``--renew`` writes the sums that ``test_same_pictures``
expects.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import time
from collections import defaultdict
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.config.columns import COLUMN, GPU_COLUMN, whole_choice
from gpumon.config.keymap import DEFAULT_WINDOW
from gpumon.config.themes.styles import STYLES
from gpumon.findings.groups import jobs
from gpumon.model.snapshot import MigInstance
from gpumon.text.process_columns import PROCESS_COLUMNS, RowContext
from gpumon.text.table import Sort
from gpumon.ui.view.chart_series import SMALL_GRAPHS
from gpumon.ui.view.dashboard_rows import Dashboard
from gpumon.ui.view.dashboard_view import View, Watched
from gpumon.ui.view.fleet_rows import FleetPicture
from gpumon.ui.view.fleet_view import FleetListing, FleetView, lay_out, show_list
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.gpu_page import gpu_rows
from gpumon.ui.view.process_filter import ProcessFilter
from gpumon.ui.view.process_page import job_rows, process_rows
from gpumon.ui.view.process_table import Listing
from gpumon.ui.view.user_table import USER_COLUMNS
from tests.build import GIB, NOON, gpu, process, recording_of, snapshot
from tests.hosts import demo_hosts
from tests.ui.key_pictures import dashboard_keys, fleet_keys
from tests.ui.view.drawing import demo, history_of, of_gpus
from tests.ui.written_pictures import plain_pictures, theme_pictures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.history import History
    from gpumon.text.cells import Row

SUMS = Path(__file__).with_name("pictures.json")
SIZES = ((200, 50), (100, 24), (50, 12))
_BOTH = (True, False)


def views() -> Iterator[tuple[str, list[str]]]:
    """The name and the rows of each picture. The part of a name before the colon is its group."""
    for made in (_dashboards(), _fleets(), _pages()):
        yield from ((name, [_cells(row) for row in rows]) for name, rows in made)


def written() -> Iterator[tuple[str, list[str]]]:
    """What is written of styles and rows, by name."""
    for made in (theme_pictures(), plain_pictures()):
        yield from ((name, [json.dumps(line) for line in lines]) for name, lines in made)


def keys() -> Iterator[tuple[str, list[str]]]:
    """The parts of the screen on top after each key, by number and key."""
    for made in (dashboard_keys(), fleet_keys()):
        for name, parts in made:
            yield name, [line for part in parts for line in _lines(*part)]


def _lines(part: str, content: str | list[str] | list[Row]) -> Iterator[str]:
    """A part of a screen: text, or rows."""
    yield json.dumps(part)
    for line in [content] if isinstance(content, str) else content:
        yield json.dumps(line) if isinstance(line, str) else _cells(line)


KINDS = {"views": views, "written": written, "keys": keys}


def _mig() -> Snapshot:
    """A machine with a GPU in parts, and processes in two of them."""
    parts = tuple(
        MigInstance(f"MIG-{at}", at, 7 + at, 0, "1g.10gb", 10 * GIB, at * GIB) for at in range(3)
    )
    cards = (gpu(), gpu(index=1, uuid="GPU-1", mig_mode=True, mig=parts, utilization_gpu=None))
    use = process().uses[0]
    inside = tuple(
        replace(process(pid), uses=(replace(use, gpu_uuid="GPU-1", gpu_index=1, instance=part),))
        for pid, part in ((100, (8, 0)), (200, (9, 0)), (300, (99, 0)))
    )
    return snapshot(NOON, *cards, processes=(process(50, user="bo"), *inside))


def _machines() -> dict[str, tuple[Snapshot, History]]:
    mig = _mig()
    found = {f"{count} GPUs": (of_gpus(count), demo()[1]) for count in (1, 8, 16)}
    return {**found, "MIG": (mig, history_of(mig))}


def _views(shown: Snapshot) -> Iterator[tuple[str, View]]:
    """What a person can choose on the dashboard, by name."""
    plain = View(interval=0.5)
    first, last = shown.processes[0].id, shown.processes[-1].id
    every = whole_choice([*COLUMN, *GPU_COLUMN])
    for listing in Listing:
        listed = replace(plain, listing=listing)
        yield f"{listing.value}", listed
        columns = USER_COLUMNS if listing is Listing.USERS else PROCESS_COLUMNS
        for column in columns:
            for descending in _BOTH:
                order = replace(listed, sort=Sort(column.key, descending))
                yield f"{listing.value} by {column.key} {descending}", order
        for key in (first, last, "user:ann", "user:erin", *_job_keys(shown)):
            yield f"{listing.value} at {key}", replace(listed, cursor=key)
        watched = Watched(frozenset([shown.gpus[0].uuid]), frozenset([first, last]))
        chosen: dict[str, dict[str, object]] = {
            "tagged": {"tags": frozenset([first, last])},
            "tagged, at one": {"tags": frozenset([first]), "cursor": first},
            "watched": {"watched": watched},
            "scrolled": {"top": 3, "shift": 8, "follows_cursor": False},
            **{
                f"on GPU {card.index}": {"gpu": card.uuid}
                for card in shown.gpus[:: max(1, len(shown.gpus) // 2)]
            },
            "of ann": {"narrowing": ProcessFilter(only_user="ann")},
            "of nobody": {"narrowing": ProcessFilter(only_user="nobody")},
            "folded": {"toggled": frozenset(_job_keys(shown))},
        }
        for name, changes in chosen.items():
            yield f"{listing.value} {name}", replace(listed, **changes)
    yield "all columns", replace(plain, columns=every)
    yield "nvitop's columns", replace(plain, columns=whole_choice(["nvitop"]))
    for series in SMALL_GRAPHS:
        yield f"graph {series.name}", replace(plain, graph=series.name)
    yield "host, cost", replace(plain, host_strip=True, show_cost=True)
    yield "message", replace(plain, message="sorted by AGE, descending")


def _job_keys(shown: Snapshot) -> list[str]:
    found = [job for job in jobs(list(shown.processes)) if len(job.processes) > 1]
    return [f"job:{job.key}" for job in found[:2]]


def _dashboards() -> Iterator[tuple[str, list[Row]]]:
    for machine, (shown, history) in _machines().items():
        dashboard = Dashboard(history)
        for name, view in _views(shown):
            for width, height in SIZES:
                rows = dashboard.rows(shown, view, width, height).all()
                yield f"dashboard, {machine}, {width}x{height}: {name}", rows


def _fleets() -> Iterator[tuple[str, list[Row]]]:
    for count in (3, 16, 100):
        hosts = demo_hosts(count)
        for listing in FleetListing:
            for name, view in _fleet_views(listing, count):
                for width, height in SIZES:
                    parts = FleetPicture().rows(hosts, view, NOON + 1, width, height, "DEMO")
                    rows = [*parts.header, *parts.lines, *parts.rule, *parts.footer]
                    yield f"{count} hosts, {listing.value}, {width}x{height}: {name}", rows


def _fleet_views(listing: FleetListing, count: int) -> Iterator[tuple[str, FleetView]]:
    plain = replace(show_list(FleetView(interval=1.0), listing), job="slurm 88123")
    layout = lay_out(Memo(), demo_hosts(count), plain, NOON + 1, 300, 50)
    yield "plain", plain
    for column in layout.headers:
        for descending in _BOTH:
            order = Sort(column.key, descending)
            yield f"by {column.key} {descending}", replace(plain, sort=order)
    for at in (0, len(layout.entries) - 1):
        yield f"at {at}", replace(plain, cursor=layout.entries[at].key)
    yield "scrolled", replace(plain, top=2, follows_cursor=False)


def _pages() -> Iterator[tuple[str, list[Row]]]:
    for machine, (shown, history) in _machines().items():
        context = RowContext(shown.time, history.process_idle)
        for width, height in SIZES:
            at = f"{machine}, {width}x{height}"
            for card in shown.gpus[:8]:
                about = card, history, shown, DEFAULT_WINDOW, recording_of()
                rows = gpu_rows(Memo(), *about, width, height)
                yield f"page of a GPU, {at}: {card.index}", rows
            for one in shown.processes:
                subject = one, history, shown, DEFAULT_WINDOW
                rows = process_rows(Memo(), *subject, width, reading=True)
                yield f"page of a process, {at}: {one.id.pid}", rows
            for job in jobs(list(shown.processes)):
                rows = job_rows(job, "", shown.gpus, context, width)
                yield f"page of a job, {at}: {job.key}", rows


@lru_cache(maxsize=8192)
def _cells(row: Row) -> str:
    """A row as JSON, in as few fields as look alike: a blank has nothing but a background."""
    return json.dumps(
        [
            ("".join(text for text, _ in fields), look)
            for look, fields in groupby(_parts(row), lambda part: part[1])
        ]
    )


def _parts(row: Row) -> Iterator[tuple[str, str]]:
    for text, style in row:
        for part in re.findall(r" +|[^ ]+", text):
            yield part, style if part.strip() else f"on {STYLES[style][1]}"


def sums(kind: str) -> dict[str, str]:
    """A sum of each group of pictures of a kind."""
    found: dict[str, hashlib._Hash] = defaultdict(hashlib.sha256)
    for name, lines in KINDS[kind]():
        text = f"[{json.dumps(name)}, [{', '.join(lines)}]]"
        found[name.partition(":")[0]].update(text.encode())
    return {group: sum_.hexdigest()[:16] for group, sum_ in found.items()}


def _show_difference(name: str, before: list[str], after: list[str]) -> None:
    print(name)
    if len(before) != len(after):
        print(f"  {len(before)} rows were {len(after)}")
    for number, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            print(f"  row {number}\n    - {old}\n    + {new}")
            break


def main() -> int:
    """Save, compare or sum up the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--save", type=Path, metavar="FILE")
    chosen.add_argument("--against", type=Path, metavar="FILE")
    chosen.add_argument("--renew", action="store_true")
    asked = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    if asked.renew:
        found = {kind: sums(kind) for kind in KINDS}
        SUMS.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    made = {name: lines for kind in KINDS.values() for name, lines in kind()}
    if asked.save is not None:
        asked.save.write_text(json.dumps(made))
        return 0
    known = json.loads(asked.against.read_text())
    differing = [name for name in {**known, **made} if known.get(name) != made.get(name)]
    for name in differing[:20]:
        _show_difference(name, known.get(name, []), made.get(name, []))
    print(f"{len(differing)} of {len(made)} pictures differ")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
