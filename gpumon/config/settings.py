"""All that can be settled, with its defaults."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from typing import Literal

from msgspec import Struct

from gpumon.model.thresholds import DEFAULTS, Thresholds
from gpumon.text.units import Units


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """How the processes are sorted at first.

    Attributes:
        column: Key of the column.
        descending: Largest first.
    """

    column: str = "memory_used"
    descending: bool = True


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """What is in force, the command line left out.

    Attributes:
        interval: Seconds between samples of the dashboard.
        columns: Keys of the process table's columns, in order; ``None`` for the usual ones.
        theme: Name of the colours; ``None`` for the default.
        readonly: Whether no signal is ever sent.
        graph: What the small graph of a card shows.
        host_strip: Whether the strip of the host is shown at first.
        sort: How the processes are sorted at first.
        units: What amounts on screen are told in.
        thresholds: Where the lines are drawn.
        keys: For each action that does not have its usual keys: those it has.
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
    """Something that is wrong with the file or a variable.

    Attributes:
        place: The file, with the line where that is known, or the variable.
        what: What is wrong there, and what to write.
    """

    place: str
    what: str

    @property
    def sentence(self) -> str:
        """All of it."""
        return f"{self.place}: {self.what}"


class Loaded(Struct, frozen=True):
    """What was found.

    Attributes:
        path: The file, whether or not there is one.
        settings: What is in force.
        complaints: What is wrong; for each of these a default holds.
        origins: Where a setting comes from that is not a default, by its name.
    """

    path: str
    settings: Settings = Settings()
    complaints: tuple[ConfigError, ...] = ()
    origins: Mapping[str, str] = {}

    @property
    def brief(self) -> str:
        """What is wrong, for one line of a screen; empty when nothing is."""
        if not self.complaints:
            return ""
        first = self.complaints[0]
        folder = self.path.removesuffix("config.toml")
        said = f"{first.place.removeprefix(folder)}: {first.what}"
        if len(self.complaints) == 1:
            return said
        return f"{len(self.complaints)} mistakes (gpumon config check): {said}"
