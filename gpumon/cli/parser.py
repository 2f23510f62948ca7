"""Creates one argparse parser for the dashboard and all commands, from what these declare."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn, cast

from gpumon.cli.commands import COMMANDS, Command, command
from gpumon.cli.dashboard import DashboardCommand
from gpumon.cli.output import EXIT_USAGE, fail, no_standard_output

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_USUAL_COLUMNS = 80


class _LineOf(str):
    """The name of a command whose line in the list of commands is read when it is printed."""

    __slots__ = ()


class Formatter(argparse.HelpFormatter):
    """Argparse's formatter, with a cheaper width: it is created for every added option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if isinstance(action.help, _LineOf):
            return command(action.help).about
        return action.help


class RawFormatter(Formatter, argparse.RawDescriptionHelpFormatter):
    """Does not wrap descriptions."""


class Parser(argparse.ArgumentParser):
    """The parser of a command. Reports an error in one sentence.

    Args:
        command: What the command declares; the default has no options.
        general: The options that may stand before a command: those that the command does not take
            are refused behind it in the same words.

    Attributes:
        commands: The parsers of the commands, by name.
    """

    commands: dict[str, Parser]
    SUPPRESS = argparse.SUPPRESS

    def __init__(
        self,
        *,
        command: Command | None = None,
        general: Iterable[argparse.Action] = (),
        **words: Any,
    ) -> None:
        declared = Command() if command is None else command
        words.setdefault("usage", declared.usage)
        words.setdefault("description", declared.description or None)
        lines = "\n" in (words["description"] or "")
        super().__init__(
            allow_abbrev=False,
            epilog=declared.epilog,
            formatter_class=RawFormatter if lines else Formatter,
            **words,
        )
        self._headings: dict[str, argparse._ArgumentGroup] = {}
        self._general = general
        self.command = declared
        declared.add_options(self)
        for group in declared.groups:
            group.add_to(self)

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
        """Parse, and refuse general options that the command does not take.

        See ``argparse.ArgumentParser``.
        """
        taken = {name for action in self.options() for name in action.option_strings}
        for action in self._general:
            names = [name for name in action.option_strings if name not in taken]
            # Adding all of them would take longer than those of the command.
            if any(given.startswith(name) for name in names for given in args):
                self.add_argument(
                    *names,
                    action=_Refuse,
                    nargs="?",
                    dest=argparse.SUPPRESS,
                    default=argparse.SUPPRESS,
                    help=argparse.SUPPRESS,
                )
        return super().parse_known_args(args, namespace)

    def refusal(self, option: argparse.Action) -> str:
        """What is said of an option that the command does not take."""
        name = option.option_strings[-1]
        for group in self.command.groups:
            sentence = group.refusal(name)
            if sentence is not None:
                return sentence.format(command=self.prog)
        return f"{name} has no effect on {self.prog}: leave it out."


class _Unused(Parser):
    """Stands for the parser of a command that the command line does not name."""

    def __init__(self) -> None:
        pass

    def _check_help(self, action: argparse.Action) -> None:
        """Python 3.14 formats the line of each command when that is added, which imports it."""


class _Refuse(argparse.Action):
    """A general option that the command does not take."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, Parser)  # noqa: S101 - it was added to one
        raise SystemExit(fail(parser.refusal(self), EXIT_USAGE))


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
    general, name = parser.options(), options.command
    chosen = parser if name is None else parser.commands[name]
    own = chosen.options()
    taken = {action.dest for action in own}
    for action in _given(general, options):
        if action.dest not in taken:
            return chosen.refusal(action)
    given = _given([*general, *own], options)
    for group in chosen.command.groups:
        fault = group.fault(options, given)
        if fault is not None:
            return fault
    return chosen.command.fault(options)


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
        arguments: The arguments to parse. A command that is not among them gets no parser, as
            twenty take longer than everything else; ``None`` makes all.
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

    def make(*, prog: str, **words: Any) -> Parser:
        name = prog.rpartition(" ")[2]
        if arguments is None or name in arguments:
            return Parser(command=command(name), general=general, prog=prog, **words)
        return _Unused()

    commands = parser.add_subparsers(
        title="commands",
        dest="command",
        metavar="COMMAND",
        prog="gpumon",
        parser_class=cast("type[Parser]", make),  # It is only called.
    )
    for name in COMMANDS:
        commands.add_parser(name, help=command(name).about if arguments is None else _LineOf(name))
    parser.commands = commands.choices
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
