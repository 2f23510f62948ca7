"""What a person has settled for the screens before they start."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.config.columns import CHOSEN
from gpumon.ui.view.graphs import UTIL
from gpumon.ui.view.processes import Sort
from gpumon.ui.view.view import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.config.themes import ThemeChoice
    from gpumon.ui.view.listing import ProcessFilter


class StartupOptions(NamedTuple):
    """How the dashboard begins.

    Attributes:
        columns: Keys of the process table's columns.
        sort: How it is sorted.
        keys: For each action that does not have its usual keys: those it has.
        complaint: What is wrong with the configuration, to be said at first.
        theme: The theme to begin with; gpumon's default where there is none.
        graph: Key of what the small graph of a card shows.
        host_strip: Whether the strip of the host is shown where nobody has opened or closed it yet.
    """

    columns: tuple[str, ...] = CHOSEN
    sort: Sort = Sort()
    keys: Mapping[str, tuple[str, ...]] = {}
    complaint: str = ""
    theme: ThemeChoice | None = None
    graph: str = UTIL.key
    host_strip: bool = False


USUAL = StartupOptions()
"""Where nothing is settled."""


def first_view(
    interval: float, narrowing: ProcessFilter, chosen: StartupOptions, *, readonly: bool
) -> View:
    """What the dashboard shows before a key is pressed.

    Args:
        interval: Seconds between samples.
        narrowing: Which of the processes are shown.
        chosen: What is settled.
        readonly: Whether every signal is refused.
    """
    return View(
        interval=interval,
        narrowing=narrowing,
        columns=chosen.columns,
        sort=chosen.sort,
        readonly=readonly,
        graph=chosen.graph,
        host_strip=chosen.host_strip,
    )
