"""Creates one argparse parser for the dashboard and all commands, from what these declare."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from gpumon.cli.commands import COMMAND_GROUPS, COMMANDS, Command, command
from gpumon.cli.dashboard import DashboardCommand
from gpumon.cli.option_groups import TimeOption
from gpumon.cli.output import EXIT_USAGE, fail, no_standard_output

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_USUAL_COLUMNS = 80


class Formatter(argparse.HelpFormatter):
    """Argparse's formatter, with a cheaper width: it is created for every added option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


class RawFormatter(Formatter, argparse.RawDescriptionHelpFormatter):
    """Does not wrap descriptions."""


class Parser(argparse.ArgumentParser):
    """The parser of a command. Reports an error in one sentence.

    Args:
        command: What the command declares; the default has no options.
        general: The options that may stand before a command.

    Attributes:
        commands: The parsers of the commands, by name.
        taken: The names of the options that it takes, as in the namespace.
    """

    commands: dict[str, Parser]
    _listed: argparse._SubParsersAction[Parser] | None = None

    def __init__(
        self,
        *,
        command: Command | None = None,
        general: Iterable[argparse.Action] = (),
        **words: Any,
    ) -> None:
        if command is not None:
            words["usage"] = command.usage
            words["description"] = command.description
            words["epilog"] = command.epilog
        lines = "\n" in words.get("description", "")
        super().__init__(
            allow_abbrev=False, formatter_class=RawFormatter if lines else Formatter, **words
        )
        self._headings: dict[str, argparse._ArgumentGroup] = {}
        self._general = general
        self._arguments: Sequence[str] = ()
        self._times: set[str] = set()
        if command is not None:
            command.add_options(self)
            for option in command.options:
                if isinstance(option, TimeOption):
                    self._times.update(option.names)
            for group in command.groups:
                group.add_to(self)
        self.taken = {action.dest for action in self.options()}

    def list_commands(self, commands: argparse._SubParsersAction[Parser]) -> None:
        """Take the parsers of the commands."""
        self.commands = commands.choices
        self._listed = commands

    def format_help(self) -> str:
        """The help; that of gpumon itself has the commands in their groups, before the options."""
        listed = self._listed
        if listed is None:
            return super().format_help()
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        lines = {action.metavar: action for action in listed._choices_actions}  # noqa: SLF001 - argparse lists them nowhere else
        for title, names in COMMAND_GROUPS.items():
            formatter.start_section(f"commands {title}")
            formatter.add_arguments([lines[name] for name in names])
            formatter.end_section()
        for group in self._action_groups:
            actions = [it for it in group._group_actions if it is not listed]  # noqa: SLF001 - the same
            formatter.start_section(group.title)
            formatter.add_arguments(actions)
            formatter.end_section()
        return formatter.format_help()

    def heading(self, title: str) -> argparse._ActionsContainer:
        """The group of the help with this title; the options without a heading if it is empty."""
        if not title:
            return self
        if title not in self._headings:
            self._headings[title] = self.add_argument_group(title)
        return self._headings[title]

    def options(self) -> list[argparse.Action]:
        """The options, without the operands."""
        return [action for action in self._actions if action.option_strings]

    def error(self, message: str) -> NoReturn:
        """Exit with that sentence; see ``argparse.ArgumentParser.error``."""
        from gpumon.text.charset import ASCII, codeset_of, environment, take_stream

        # It quotes what was typed. The options are not known yet.
        is_ascii = "--ascii" in sys.argv
        take_stream(sys.stderr, ASCII if is_ascii else codeset_of(environment()))
        raise SystemExit(fail(f"{message}; see {self.prog} --help", EXIT_USAGE))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, also general options that the command does not take: ``parse`` refuses them.

        See ``argparse.ArgumentParser``.
        """
        self._arguments = args
        for action in self._general:
            names = [
                name for name in action.option_strings if name not in self._option_string_actions
            ]
            # Adding all of them would take longer than those of the command.
            if any(given.startswith(name) for name in names for given in args):
                words: dict[str, Any] = {"nargs": "?", "const": ""}
                self.add_argument(
                    *names,
                    **({"action": "store_true"} if action.nargs == 0 else words),
                    dest=action.dest,
                    default=argparse.SUPPRESS,
                    help=argparse.SUPPRESS,
                )
        options, unknown = super().parse_known_args(self._bound(args), namespace)
        if unknown:
            # Argparse leaves them to the parser of gpumon, whose help has other options.
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def _bound(self, arguments: Iterable[str]) -> list[str]:
        """Turn ``--from -8h`` into ``--from=-8h``."""
        bound: list[str] = []
        for argument in arguments:
            if bound and bound[-1] in self._times and re.match(r"-\d", argument):
                bound[-1] += f"={argument}"
            else:
                bound.append(argument)
        return bound

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # Before Python 3.13 the value of --option=-- is lost, and its type is not asked.
        if action.option_strings and arg_strings == ["--"]:
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Name the nearest command, or the unknown option whose value this is."""
        if action.metavar != "COMMAND" or action.choices is None or value in COMMANDS:
            super()._check_value(action, value)
            return
        for given in self._arguments[: self._arguments.index(value)]:
            name = given.partition("=")[0] if given.startswith("--") else given[:2]
            is_value = given == "-" or self._negative_number_matcher.match(given)
            if name.startswith("-") and not is_value and name not in self._option_string_actions:
                self.error(f"unrecognized arguments: {given}")
        from gpumon.config.suggestions import nearest_or_all

        self.error(f"there is no command {value!r}; {nearest_or_all(value, COMMANDS)}")


class _PrintVersions(argparse.Action):
    """``--version``: print the versions and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        nothing = argparse.Namespace()
        parser.exit(no_standard_output() if sys.stdout is None else command("version").run(nothing))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line.

    Raises:
        SystemExit: It is invalid, or ``--help`` or the like printed what was asked.
    """
    parser = make_parser(arguments)
    options = parser.parse_args(arguments)
    fault = _fault(parser, options)
    if fault is not None:
        raise SystemExit(fail(fault, EXIT_USAGE))
    return options


def _fault(parser: Parser, options: argparse.Namespace) -> str | None:
    """What is wrong with the options together, in a sentence.

    A command takes the same options before and after its name: those of its groups.
    """
    declared = command(options.command)
    chosen = parser if options.command is None else parser.commands[options.command]
    # Other machines, the last group, come first: an option that they refuse needs no other one.
    groups = declared.groups[::-1]
    for action in _given(parser.options(), options):
        if action.dest not in chosen.taken:
            name = action.option_strings[-1]
            said = next(filter(None, (group.refusal(name) for group in groups)), None)
            said = said or f"{name} has no effect on {{command}}: leave it out."
            return said.format(command=chosen.prog)
    given = _given([*parser.options(), *chosen.options()], options)
    faults = (group.fault(options, given) for group in groups)
    return next(filter(None, faults), None) or declared.fault(options)


def _given(
    actions: Iterable[argparse.Action], options: argparse.Namespace
) -> list[argparse.Action]:
    """The options that the command line has, with a value that is not their default."""
    values = vars(options)
    return [
        action
        for action in actions
        if action.dest in values
        and (
            values[action.dest] == action.const
            if action.nargs == 0
            else values[action.dest] not in (None, action.default)
        )
    ]


def make_parser(arguments: Collection[str] | None = None) -> Parser:
    """The parser of the whole command line.

    Args:
        arguments: The arguments to parse. A command that is not among them gets no options, as
            those of twenty take longer than everything else; ``None`` makes all.
    """
    dashboard = DashboardCommand()
    parser = Parser(command=dashboard, prog="gpumon")
    parser.add_argument(
        "-V",
        "--version",
        action=_PrintVersions,
        nargs=0,
        default=argparse.SUPPRESS,
        help="print the versions of gpumon, Python, Textual and the driver, and exit",
    )
    # Only here: with a default of its own a command would hide what stands before it.
    defaults = dashboard.defaults()
    parser.set_defaults(**defaults)
    general = [option for option in parser.options() if option.dest in defaults]
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", prog="gpumon"
    )
    for name, line in COMMANDS.items():
        if arguments is None or name in arguments:
            commands.add_parser(name, help=line, command=command(name), general=general)
        else:
            commands.add_parser(name, help=line, add_help=False)
    parser.list_commands(commands)
    return parser


def _columns() -> int:
    """Same as ``shutil.get_terminal_size``, whose import takes 2 ms."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(1).columns or _USUAL_COLUMNS
    except OSError:
        return _USUAL_COLUMNS
