"""Options that several commands have: a group declares them, checks them and opens what they name.

A command lists its groups; the options of all others are refused with it. Nothing here imports
argparse, because plain ``gpumon`` does without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpumon.cli import values
from gpumon.cli.output import say
from gpumon.model.interval import MAX_INTERVAL, MIN_INTERVAL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from gpumon.alerts.alert import Alert
    from gpumon.cli.parser import Parser
    from gpumon.config import ConfigError, Loaded, Settings
    from gpumon.config.themes import ThemeChoice
    from gpumon.recording.archive import FoundArchive
    from gpumon.ui.view.dashboard_view import StartupOptions


class Option:
    """An option or an operand, as argparse takes it; without ``help`` it is hidden."""

    def __init__(self, *names: str, **words: Any) -> None:
        self.names = names
        self.words = words

    def add_to(self, heading: argparse._ActionsContainer) -> None:
        """Add it to a heading of a parser."""
        from argparse import SUPPRESS

        heading.add_argument(*self.names, **{"help": SUPPRESS, **self.words})


class TimeOption(Option):
    """An option whose value may be ``-8h``, which argparse takes for an option."""


class SharedOption(Option):
    """An option that may stand before a command, too.

    Without it the namespace has ``None``, which the parser of gpumon sets: a default in the parser
    of a command would hide what stands before the command.
    """

    @property
    def name(self) -> str:
        """Its name in the namespace."""
        return self.names[-1].removeprefix("--").replace("-", "_")

    def add_to(self, heading: argparse._ActionsContainer) -> None:
        """See ``Option``."""
        from argparse import SUPPRESS

        heading.add_argument(*self.names, default=SUPPRESS, **self.words)


class OptionGroup:
    """Options that belong together; ``title`` is their heading in the help, empty for none."""

    def __init__(self, *options: Option, title: str = "") -> None:
        self.options = options
        self.title = title

    def add_to(self, parser: Parser) -> None:
        """Add the options to the parser of a command."""
        for option in self.options:
            option.add_to(parser.heading(self.title))

    def fault(
        self,
        options: argparse.Namespace,  # noqa: ARG002 - for subclasses
        given: Iterable[argparse.Action],  # noqa: ARG002 - the same
    ) -> str | None:
        """What is wrong with the options together, in a sentence.

        ``given`` are all on the command line, those of other groups, too.
        """
        return None

    def refusal(self, name: str) -> str | None:  # noqa: ARG002 - for subclasses
        """Why a command with this group does not take an option, if there is more to say."""
        return None


ASCII = OptionGroup(
    SharedOption(
        "--ascii",
        action="store_true",
        help="draw with ASCII only (default: what the locale can show; GPUMON_ASCII=1 does the "
        "same)",
    ),
    title="how to draw",
)
NO_COMMANDS = SharedOption(
    "--no-commands",
    action="store_true",
    help="leave command lines, which can hold secrets, out of the log",
)


def output_format(*formats: str) -> Option:
    """``--format``: a table, which is the default, or one of these."""
    return Option(
        "--format",
        choices=("table", *formats),
        default="table",
        help="for a person, or for a program (default: %(default)s)",
    )


def interval_option(about: str = "") -> SharedOption:
    """``--interval``; ``about`` is added to its help."""
    return SharedOption(
        "-n",
        "--interval",
        metavar="SECONDS",
        type=values.interval,
        help=f"seconds between samples, {MIN_INTERVAL:g} to {MAX_INTERVAL:g}{about}",
    )


class IntervalOption(OptionGroup):
    """How often to sample, whatever the configuration says."""

    def __init__(self, default: float) -> None:
        super().__init__(interval_option(f" (default: {default:g})"))
        self._default = default

    def seconds(self, options: argparse.Namespace) -> float:
        """Seconds between samples."""
        chosen: float = options.interval or self._default
        return chosen


class ReadonlyOption(OptionGroup):
    """Whether signals are sent; ``about`` is its help."""

    def __init__(self, about: str, title: str = "") -> None:
        super().__init__(SharedOption("--readonly", action="store_true", help=about), title=title)

    @staticmethod
    def holds(options: argparse.Namespace, settings: Settings) -> bool:
        """Whether every signal is refused."""
        return bool(options.readonly or settings.readonly)


class HistoryOption(OptionGroup):
    """Whether the history of this machine is used."""

    def __init__(self, title: str = "") -> None:
        super().__init__(
            SharedOption(
                "--no-history",
                action="store_true",
                help="do not use the history that gpumon log --local keeps of this machine",
            ),
            title=title,
        )

    @staticmethod
    def finder(
        options: argparse.Namespace, settings: Settings, host: str
    ) -> Callable[[], FoundArchive] | None:
        """What finds the history of this machine; ``None`` if it is not to be used."""
        if options.no_history or not settings.history.use:
            return None

        def find() -> FoundArchive:
            from gpumon.recording.archive import find_archive

            return find_archive(host, settings.history.folder or None)

        return find


_COLUMNS = SharedOption(
    "--columns",
    metavar="LIST",
    type=values.columns,
    help="columns of the process table, in order, such as pid,user,memory_used,command, and of the "
    "list of GPUs, such as fan_speed; or a set: default, nvitop",
)
_THEME = SharedOption(
    "--theme",
    metavar="NAME",
    help="colours of the dashboard; gpumon theme list prints them, the key T changes them",
)


class ScreenOptions(OptionGroup):
    """What a screen looks like; with ``columns`` also which columns it has."""

    TITLE = "the dashboard"

    def __init__(self, *, columns: bool = True) -> None:
        super().__init__(*([_COLUMNS] if columns else []), _THEME, title=self.TITLE)

    @staticmethod
    def theme(options: argparse.Namespace, settings: Settings | None = None) -> ThemeChoice:
        """The theme, of the command line or of the configuration.

        Raises:
            UnknownThemeError: There is no such theme.
        """
        from gpumon.config.themes import choose_theme

        return choose_theme(options.theme, None if settings is None else settings.theme)

    @staticmethod
    def open(
        options: argparse.Namespace, loaded: Loaded, theme: ThemeChoice, *, visitor: bool = False
    ) -> StartupOptions:
        """The initial state of the screens: of the command line, then of the configuration.

        A ``visitor`` only watches, in a browser.
        """
        from gpumon.config.columns import DEFAULT_COLUMNS
        from gpumon.config.key_changes import keys_in_force
        from gpumon.text.table import Sort
        from gpumon.text.units import use_units
        from gpumon.ui.view.dashboard_view import StartupOptions

        settings = loaded.settings
        use_units(settings.units)
        return StartupOptions(
            columns=options.columns or settings.columns or DEFAULT_COLUMNS,
            sort=Sort(settings.sort.column, settings.sort.descending),
            keys=keys_in_force(settings.keys.preset, settings.keys.changed),
            config_error=loaded.brief,
            theme=theme,
            graph=settings.graph,
            host_strip=settings.host_strip,
            visitor=visitor,
        )


class AlertFileOption(OptionGroup):
    """Which alerts."""

    def __init__(self) -> None:
        super().__init__(
            Option(
                "--alerts",
                metavar="FILE",
                help="read the [[alerts]] of this file, not those of the configuration",
            )
        )

    @staticmethod
    def open(options: argparse.Namespace, settings: Settings, *, terminal: bool) -> Sequence[Alert]:
        """The valid alerts; if there are none, standard error says why, as it reports mistakes.

        ``terminal`` is that of ``read_alerts``.
        """
        from gpumon.alerts.alert import read_alerts
        from gpumon.config import config_path

        tables, path = settings.alerts, config_path()
        errors: Sequence[ConfigError] = ()
        if options.alerts is not None:
            from gpumon.config.reading import read_alert_file

            path = options.alerts
            loaded = read_alert_file(path)
            tables, errors = loaded.settings.alerts, loaded.errors
        found = read_alerts(tables, terminal=terminal)
        for error in (*errors, *found.errors):
            say(error.sentence)
        # A mistake in the file has a line; without one, the file cannot be read.
        if not found.alerts and all(error.place != path for error in errors):
            say(
                f"there is no alert in {path}: write a table [[alerts]] with a line such as "
                'when = "hot" into it; docs/alerts.md has examples.'
            )
        return found.alerts
