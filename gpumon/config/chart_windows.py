"""The time windows of a GPU's charts, and the keys that choose them."""

from __future__ import annotations

from msgspec import Struct


class ChartWindow(Struct, frozen=True):
    """A time window of the charts.

    Attributes:
        key: The key that chooses it.
        label: Its name in the footer.
        title: Its name over the charts.
        seconds: Its length; ``None`` is the whole history.
    """

    key: str
    label: str
    title: str
    seconds: float | None


WINDOWS = (
    ChartWindow("1", "1m", "The last minute", 60.0),
    ChartWindow("2", "5m", "The last 5 minutes", 300.0),
    ChartWindow("3", "30m", "The last 30 minutes", 1800.0),
    ChartWindow("4", "all", "All that was seen", None),
)
DEFAULT_WINDOW = WINDOWS[1]
