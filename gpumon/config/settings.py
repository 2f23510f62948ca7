"""All settings, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from typing import Literal, TypeAlias

from msgspec import Struct

from gpumon.model.thresholds import DEFAULTS, Thresholds
from gpumon.text.units import Units

GraphName: TypeAlias = Literal["util", "memory", "power", "temperature", "sm", "dram"]
"""What the small graph of a GPU can show at start."""


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """The initial sort order of the processes.

    Attributes:
        column: Key of the column.
        descending: Largest first.
    """

    column: str = "memory_used"
    descending: bool = True


class Keys(Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the screens.

    Attributes:
        preset: The set of usual keys.
        changed: The keys of each action that has other keys than those of the preset.
    """

    preset: Literal["default", "vim"] = "default"
    changed: Mapping[str, tuple[str, ...]] = {}


class Hosts(Struct, frozen=True, forbid_unknown_fields=True):
    """Other machines. ``gpumon.fleet`` reads the lists of hosts.

    Attributes:
        groups: Lists of hosts by the names of their groups.
        ssh: The command of the ssh client.
        command: The command of gpumon on a host.
        commands: Other commands of gpumon, by lists of the hosts that have them.
    """

    groups: Mapping[str, str] = {}
    ssh: str = "ssh"
    command: str = "gpumon"
    commands: Mapping[str, str] = {}


class Prometheus(Struct, frozen=True, forbid_unknown_fields=True):
    """The Prometheus server of ``--prometheus``.

    Attributes:
        url: Its URL; the only server that gets the password or the token.
        match: Matchers of PromQL that narrow the metrics.
        user: The user of basic authentication; empty for none.
        password_file: The file with the password.
        token_file: The file with a bearer token; empty for none.
        ca_file: The certificates of authorities, instead of those of the system; empty for these.
    """

    url: str = ""
    match: str = ""
    user: str = ""
    password_file: str = ""
    token_file: str = ""
    ca_file: str = ""


class AlertTable(Struct, frozen=True):
    """A table ``[[alerts]]`` of a file as it stands there; ``gpumon.alerts.alert`` reads it.

    Attributes:
        values: Its values by key.
        place: The file and the line of its heading.
        places: The file and the line of each key.
    """

    values: Mapping[str, object]
    place: str
    places: Mapping[str, str]


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
        hosts: Other machines.
        prometheus: The Prometheus server that knows other machines.
        keys: The keys of the screens.
        alerts: The tables of alerts.
    """

    interval: float = 0.5
    columns: tuple[str, ...] | None = None
    theme: str | None = None
    readonly: bool = False
    graph: GraphName = "util"
    host_strip: bool = False
    sort: Order = Order()
    units: Units = Units()
    thresholds: Thresholds = DEFAULTS
    hosts: Hosts = Hosts()
    prometheus: Prometheus = Prometheus()
    keys: Keys = Keys()
    alerts: tuple[AlertTable, ...] = ()


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
        errors: The errors; for each of these the default applies.
        origins: The origin of each setting that is not a default, by name.
    """

    path: str
    settings: Settings = Settings()
    errors: tuple[ConfigError, ...] = ()
    origins: Mapping[str, str] = {}

    @property
    def brief(self) -> str:
        """The errors in one line for a screen; empty if there are none."""
        if not self.errors:
            return ""
        first = self.errors[0]
        folder = self.path.removesuffix("config.toml")
        said = f"{first.place.removeprefix(folder)}: {first.what}"
        if len(self.errors) == 1:
            return said
        return f"{len(self.errors)} mistakes (gpumon config check): {said}"
