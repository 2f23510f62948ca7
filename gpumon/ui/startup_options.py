"""The options of the dashboard from the command line and the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.config.columns import DEFAULT_COLUMNS
from gpumon.text.table import Sort
from gpumon.ui.view.graph_choices import UTIL
from gpumon.ui.view.view import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.config.themes import ThemeChoice
    from gpumon.ui.view.table_entries import ProcessFilter


class StartupOptions(NamedTuple):
    """The initial state of the dashboard.

    Attributes:
        columns: Keys of the columns.
        sort: Its sort order.
        keys: The keys of each action that has other keys than the default ones, by its id.
        config_error: The errors in the configuration, shown at start; empty if there are none.
        theme: The theme; ``None`` for the default.
        graph: Key of the metric in the small graphs.
        host_strip: Whether the host line is shown, unless the user has toggled it before.
        visitor: Whether the user only looks on, in a browser: everything else is refused, and
            nothing is saved.
    """

    columns: tuple[str, ...] = DEFAULT_COLUMNS
    sort: Sort = Sort()
    keys: Mapping[str, tuple[str, ...]] = {}
    config_error: str = ""
    theme: ThemeChoice | None = None
    graph: str = UTIL.key
    host_strip: bool = False
    visitor: bool = False


DEFAULT_OPTIONS = StartupOptions()


def first_view(
    interval: float, narrowing: ProcessFilter, options: StartupOptions, *, readonly: bool
) -> View:
    """The view before the first key.

    Args:
        interval: Seconds between samples.
        narrowing: The process filter.
        options: The options.
        readonly: Whether every signal is refused.
    """
    return View(
        interval=interval,
        narrowing=narrowing,
        columns=options.columns,
        sort=options.sort,
        readonly=readonly,
        graph=options.graph,
        host_strip=options.host_strip,
    )
