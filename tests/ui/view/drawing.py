"""What views show, as text: rows, dashboards, and the demo's machine."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.findings import conditions
from gpumon.makers.demo import DemoSource
from gpumon.recording.history import History
from gpumon.text.cells import row_width
from gpumon.ui.view.dashboard_rows import Dashboard, Parts
from gpumon.ui.view.dashboard_view import View
from tests.hosts import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.snapshot import Snapshot
    from gpumon.text.cells import Row

VIEW = View(interval=0.5)


def text_of(row: Row) -> str:
    """The text of a row, with its padding."""
    return "".join(text for text, _ in row)


def lines_of(rows: Iterable[Row], width: int | None = None) -> list[str]:
    """The text of each row; all of them have this width, if one is given."""
    rows = list(rows)
    assert width is None or {row_width(row) for row in rows} <= {width}
    return [text_of(row) for row in rows]


def flat(text: str) -> str:
    """The words of a text with one space between them."""
    return " ".join(text.split())


def history_of(*snapshots: Snapshot) -> History:
    """A history that has seen these snapshots."""
    history = History(conditions())
    for snapshot in snapshots:
        history.add(snapshot)
    return history


def dashboard_of(
    now: Snapshot,
    width: int = 100,
    height: int = 24,
    view: View = VIEW,
    history: History | None = None,
) -> Parts:
    """A new dashboard, by default with no past but this snapshot."""
    return Dashboard(history or history_of(now)).rows(now, view, width, height)


def picture(
    shown: Snapshot | None,
    width: int = 100,
    height: int = 24,
    view: View = VIEW,
    history: History | None = None,
) -> str:
    """The whole dashboard; every row has its width, and there are as many as lines."""
    history = history or (history_of() if shown is None else history_of(shown))
    rows = Dashboard(history).rows(shown, view, width, height).all()
    assert len(rows) == height
    return "\n".join(line.rstrip() for line in lines_of(rows, width))


class Live:
    """A dashboard that draws one snapshot after the other, and the history that it shows."""

    def __init__(
        self,
        view: View = VIEW,
        width: int = 160,
        height: int = 24,
        history: History | None = None,
    ) -> None:
        self.history = history or history_of()
        self.view = view
        self.size = width, height
        self.shown: Snapshot | None = None
        self.dashboard = Dashboard(self.history)

    def see(self, snapshot: Snapshot) -> None:
        """Take a newer snapshot, and show it."""
        self.history.add(snapshot)
        self.shown = snapshot

    def change(self, **fields: object) -> None:
        """Change what is chosen."""
        self.view = replace(self.view, **fields)

    def draw(self, width: int | None = None) -> Parts:
        """The parts of the screen, by default in its usual width."""
        return self.dashboard.rows(self.shown, self.view, width or self.size[0], self.size[1])

    def table(self, width: int | None = None) -> list[str]:
        """The process table, with its heading."""
        return lines_of(self.draw(width).processes)


@functools.cache
def demo() -> tuple[Snapshot, History]:
    """The demo at noon, with all that it has seen; tests share it, and add nothing."""
    return seen_at_noon()


def seen_at_noon() -> tuple[Snapshot, History]:
    """The same, to add to."""
    source = DemoSource(clock=Frozen())
    history = history_of(*source.past(), now := source.sample())
    return now, history


def of_gpus(count: int) -> Snapshot:
    """The demo's machine with fewer GPUs, or with all of them twice."""
    now, _ = demo()
    kept = tuple(replace(now.gpus[index % 8], index=index) for index in range(count))
    uuids = {gpu.uuid for gpu in kept}
    processes = tuple(p for p in now.processes if any(use.gpu_uuid in uuids for use in p.uses))
    return replace(now, gpus=kept, processes=processes)


def demo_dashboard(gpus: int = 8, width: int = 100, height: int = 24, view: View = VIEW) -> Parts:
    """A new dashboard of the demo with so many GPUs, and with all of its past."""
    return dashboard_of(of_gpus(gpus), width, height, view, demo()[1])


def demo_picture(gpus: int = 8, width: int = 100, height: int = 24, view: View = VIEW) -> str:
    """The same as ``picture``."""
    return picture(of_gpus(gpus), width, height, view, demo()[1])
