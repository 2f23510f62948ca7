"""The options of the dashboard from the command line and the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.config.columns import DEFAULT_COLUMNS
from gpumon.text.table import Sort
from gpumon.ui.view.chart_series import UTIL
from gpumon.ui.view.dashboard_view import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.config.themes import ThemeChoice
    from gpumon.ui.view.table_entries import ProcessFilter


class StartupOptions(NamedTuple):
    """The initial state of the dashboard."""

    columns: tuple[str, ...] = DEFAULT_COLUMNS  # Keys of the columns.
    sort: Sort = Sort()
    # The keys of each action that has other keys than the default ones, by its id.
    keys: Mapping[str, tuple[str, ...]] = {}
    config_error: str = ""  # The errors in the configuration, shown at start.
    theme: ThemeChoice | None = None  # ``None`` for the default.
    graph: str = UTIL.name  # Key of the metric in the small graphs.
    # Whether the host line is shown, unless the user has toggled it before.
    host_strip: bool = False
    # Whether the user only looks on, in a browser: everything else is refused, nothing is saved.
    visitor: bool = False


DEFAULT_OPTIONS = StartupOptions()


def first_view(
    interval: float, narrowing: ProcessFilter, options: StartupOptions, *, readonly: bool
) -> View:
    """The view before the first key; ``readonly`` if every signal is refused."""
    return View(
        interval=interval,
        narrowing=narrowing,
        columns=options.columns,
        sort=options.sort,
        readonly=readonly,
        graph=options.graph,
        host_strip=options.host_strip,
    )
