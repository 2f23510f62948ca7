"""All settings: each is a field with its default, its bounds or values, and a sentence.

From these, ``gpumon.config.table`` derives readers, errors, ``config show``, the template of the
file and the tables of ``docs/config.md``. A number has its sentence, unit and bounds in ``Number``;
others have a ``Meta``, a text besides the words for what it is, and a value with a reader of its
own a ``Marker``.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - the table resolves annotations
from enum import Enum, auto
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from gpumon.model.interval import MAX_INTERVAL, MIN_INTERVAL
from gpumon.model.thresholds import DEFAULTS, SECONDS, Number, Thresholds
from gpumon.text.units import Units

DEFAULT_THEME = "gpumon"
LIGHT_THEME = "gpumon-light"
"""The default on a terminal with a light background."""
GraphName: TypeAlias = Literal["auto", "util", "memory", "power", "temperature", "sm", "dram"]
"""What the graphs of the GPUs can show at start."""
Preset: TypeAlias = Literal["default", "vim"]
"""A set of usual keys."""
Command: TypeAlias = Annotated[str, "a command as in a shell, on one line"]
Line: TypeAlias = Annotated[str, "a text on one line"]


MOST_SHORT = 8
MOST_PRICE = 100_000
"""The highest price of a kilowatt hour, in any currency."""
MOST_CO2 = 10_000
"""The most grams of carbon dioxide for a kilowatt hour; coal causes about 1,000."""


class Marker(Enum):
    """What a value is, where its type does not say it."""

    COLUMN = auto()  # The key of a column.
    COLUMNS = auto()
    SHORT = auto()  # A text of at most ``MOST_SHORT`` characters.
    PORTS = auto()  # Texts by the port of a server.
    APART = auto()  # Not a setting: ``gpumon.config.reading`` reads it.


class Order(Struct, frozen=True):
    """The initial sort order of the processes."""

    column: Annotated[
        str,
        Marker.COLUMN,
        Meta(description="the column by which the processes are sorted at start"),
    ] = "memory_used"
    descending: Annotated[bool, Meta(description="whether the largest come first")] = True


class Hosts(Struct, frozen=True):
    """Other machines. ``gpumon.fleet`` reads the lists of hosts."""

    groups: Annotated[
        Mapping[str, str],
        Meta(
            description="lists of hosts by the names of their groups; --hosts group:lab selects "
            "one, group:all all of them",
            examples=['{ lab = "gpu-[01-16],ann@box" }'],
        ),
    ] = {}
    ssh: Annotated[Command, Meta(description="the ssh client, such as ssh -F lab_config")] = "ssh"
    command: Annotated[
        Command, Meta(description="gpumon on a host, such as /opt/gpumon/bin/gpumon")
    ] = "gpumon"
    commands: Annotated[
        Mapping[str, str],
        Meta(
            description="other commands of gpumon, by lists of the hosts that have them",
            examples=['{ "gpu-[03-04]" = "sudo -n gpumon" }'],
        ),
    ] = {}


class Prometheus(Struct, frozen=True):
    """The Prometheus server of ``--prometheus``; an empty text is a setting without a value."""

    url: Annotated[
        Line,
        Meta(
            description="the server of --prometheus without a URL, and the only one that gets the "
            "password or the token below; the URL must contain neither"
        ),
    ] = ""
    match: Annotated[
        Line, Meta(description='matchers of PromQL, such as job="dcgm", as --match')
    ] = ""
    user: Annotated[Line, Meta(description="the user of basic authentication")] = ""
    password_file: Annotated[Line, Meta(description="the file with the password")] = ""
    token_file: Annotated[Line, Meta(description="the file with a bearer token")] = ""
    ca_file: Annotated[
        Line,
        Meta(
            description="the file with the authorities to trust, instead of those of this machine"
        ),
    ] = ""


class Serving(Struct, frozen=True):
    """What inference servers are asked; see ``docs/serving.md``."""

    ask: Annotated[
        bool,
        Meta(description="whether gpumon queries the metrics of your own inference servers"),
    ] = True
    users: Annotated[
        Line,
        Meta(description="other users whose servers are queried too, such as svc-llm,root"),
    ] = ""
    token_files: Annotated[
        Mapping[str, str],
        Marker.PORTS,
        Meta(
            description="the files with the API keys of servers, by port",
            examples=['{ "8000" = "~/.config/gpumon/vllm.key" }'],
        ),
    ] = {}


class LocalHistory(Struct, frozen=True):
    """The history of this machine that ``gpumon log --local`` keeps; see ``docs/history.md``."""

    use: Annotated[
        bool,
        Meta(
            description="whether a history that is kept of this machine is used: by the dashboard "
            "for the past before its start, by report and by watch"
        ),
    ] = True
    folder: Annotated[
        Line,
        Meta(
            description="the folder of the history, instead of /var/log/gpumon/history or "
            "~/.local/state/gpumon/history; relative to the folder of the configuration"
        ),
    ] = ""


class Report(Struct, frozen=True):
    """What energy costs in ``gpumon report``; see ``docs/report.md``."""

    price: Annotated[
        float,
        Number(
            "the price of a kilowatt hour, as --price; without one (0) no cost is shown",
            "a number",
            0,
            MOST_PRICE,
        ),
    ] = 0.0
    currency: Annotated[
        str, Marker.SHORT, Meta(description="the currency of the price, such as EUR")
    ] = ""
    co2: Annotated[
        float,
        Number(
            "the grams of carbon dioxide for a kilowatt hour, as --co2; without any (0) none "
            "are shown",
            "grams",
            0,
            MOST_CO2,
        ),
    ] = 0.0


class Keys(Struct, frozen=True):
    """The keys of the screens."""

    preset: Annotated[
        Preset, Meta(description="the usual keys; in vim, h j k l g G move the cursor")
    ] = "default"
    # The keys of each action that has other keys than those of the preset.
    changed: Annotated[Mapping[str, tuple[str, ...]], Marker.APART] = {}


class AlertTable(Struct, frozen=True):
    """A table ``[[alerts]]`` of a file, as written; ``gpumon.alerts.alert`` reads it."""

    values: Mapping[str, object]  # By key.
    place: str  # The file and the line of the heading.
    places: Mapping[str, str]  # The file and the line of each key.


class Settings(Struct, frozen=True):
    """The effective settings, without the command line."""

    interval: Annotated[
        float,
        Number("the time between samples of the dashboard", SECONDS, MIN_INTERVAL, MAX_INTERVAL),
    ] = 0.5
    columns: Annotated[
        tuple[str, ...] | None,
        Marker.COLUMNS,
        Meta(description="the columns of the process table, in order, and those of the GPU list"),
    ] = None
    theme: Annotated[
        str | None,
        "the name of a theme",
        Meta(description="the theme: the colours of the screens"),
    ] = None
    readonly: Annotated[
        bool, Meta(description="whether sending signals to processes is disabled")
    ] = False
    graph: Annotated[
        GraphName,
        Meta(
            description="the metric of the graphs at start; auto is power against its cap in small "
            "graphs and utilisation in large ones, sm is SMs active, and dram is DRAM active"
        ),
    ] = "auto"
    host_strip: Annotated[
        bool, Meta(description="whether the line of the host is shown at start")
    ] = False
    sort: Order = Order()
    units: Units = Units()
    thresholds: Thresholds = DEFAULTS
    hosts: Hosts = Hosts()
    prometheus: Prometheus = Prometheus()
    serving: Serving = Serving()
    history: LocalHistory = LocalHistory()
    report: Report = Report()
    keys: Keys = Keys()
    alerts: Annotated[tuple[AlertTable, ...], Marker.APART] = ()


class Variable(Struct, frozen=True):
    """An environment variable."""

    example: str
    names: tuple[str, ...]  # The settings that it overrides; no value is valid for two of them.


VARIABLES = {
    "GPUMON_INTERVAL": Variable("0.2", ("interval",)),
    "GPUMON_COLUMNS": Variable("pid,user,command", ("columns",)),
    "GPUMON_THEME": Variable("gpumon", ("theme",)),
    "GPUMON_READONLY": Variable("1", ("readonly",)),
    "GPUMON_UNITS": Variable("GB,F", ("units.memory", "units.temperature")),
}
"""The environment variables with settings."""


class ConfigError(Struct, frozen=True):
    """An error in the file or a variable."""

    place: str  # The file, with the line if known, or the variable.
    what: str  # The error, and what is valid.

    @property
    def sentence(self) -> str:
        """The whole message."""
        return f"{self.place}: {self.what}"


class Loaded(Struct, frozen=True):
    """The result of loading."""

    path: str  # Of the file, existing or not.
    settings: Settings = Settings()
    errors: tuple[ConfigError, ...] = ()  # For each of these the default applies.
    origins: Mapping[str, str] = {}  # Of each setting that is not a default, by name.

    @property
    def brief(self) -> str:
        """The errors in one line for a screen; empty if there are none."""
        if not self.errors:
            return ""
        first = self.errors[0]
        folder = self.path.removesuffix("config.toml")
        sentence = f"{first.place.removeprefix(folder)}: {first.what}"
        if len(self.errors) == 1:
            return sentence
        return f"{len(self.errors)} mistakes (gpumon config check): {sentence}"
