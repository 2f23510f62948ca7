"""All settings, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from typing import Literal

from msgspec import Struct

from gpumon.model.thresholds import DEFAULTS, Thresholds
from gpumon.text.units import Units


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """The initial sort order of the processes.

    Attributes:
        column: Key of the column.
        descending: Largest first.
    """

    column: str = "memory_used"
    descending: bool = True


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The effective settings, without the command line.

    Attributes:
        interval: Seconds between samples of the dashboard.
        columns: Keys of the process table's columns, in order; ``None`` for the default ones.
        theme: Name of the theme; ``None`` for the default.
        readonly: Whether no signal is ever sent.
        graph: The metric of a GPU's small graph.
        host_strip: Whether the host line is shown at start.
        sort: The initial sort order.
        units: The units on screen.
        thresholds: The thresholds for findings.
        keys: The keys of each action with changed keys.
    """

    interval: float = 0.5
    columns: tuple[str, ...] | None = None
    theme: str | None = None
    readonly: bool = False
    graph: Literal["util", "memory", "power", "temperature"] = "util"
    host_strip: bool = False
    sort: Order = Order()
    units: Units = Units()
    thresholds: Thresholds = DEFAULTS
    keys: Mapping[str, tuple[str, ...]] = {}


class ConfigError(Struct, frozen=True):
    """An error in the file or a variable.

    Attributes:
        place: The file, with the line if known, or the variable.
        what: The error, and what is valid.
    """

    place: str
    what: str

    @property
    def sentence(self) -> str:
        """The whole message."""
        return f"{self.place}: {self.what}"


class Loaded(Struct, frozen=True):
    """The result of loading.

    Attributes:
        path: The path of the file, existing or not.
        settings: The effective settings.
        complaints: The errors; for each of these the default applies.
        origins: The origin of each setting that is not a default, by name.
    """

    path: str
    settings: Settings = Settings()
    complaints: tuple[ConfigError, ...] = ()
    origins: Mapping[str, str] = {}

    @property
    def brief(self) -> str:
        """The errors in one line for a screen; empty if there are none."""
        if not self.complaints:
            return ""
        first = self.complaints[0]
        folder = self.path.removesuffix("config.toml")
        said = f"{first.place.removeprefix(folder)}: {first.what}"
        if len(self.complaints) == 1:
            return said
        return f"{len(self.complaints)} mistakes (gpumon config check): {said}"
