"""Creates one argparse parser for the dashboard and all commands."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from gpumon.cli import dashboard
from gpumon.cli.commands import COMMANDS, module_of
from gpumon.cli.help import Parser, RawFormatter
from gpumon.cli.messages import EXIT_USAGE, fail
from gpumon.cli.plain import OPTIONAL
from gpumon.cli.version import PrintVersions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


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


class _Refuse(argparse.Action):
    """An option for other machines that a command does not take."""

    def __call__(
        self, parser: argparse.ArgumentParser, _: object, __: object, option: str | None = None
    ) -> NoReturn:
        assert isinstance(parser, Parser)  # noqa: S101 - it was added to one
        raise SystemExit(fail(_refusal(str(option), parser), EXIT_USAGE))


def _refuse_machines(command: Parser) -> None:
    """Add the options for other machines that a command does not take.

    The sentence is the one of the same option before the command.
    """
    taken = {name for action in command.options() for name in action.option_strings}
    for name in ("--hosts", "--ssh", "--prometheus", "--match"):
        if name not in taken:
            command.add_argument(
                name,
                action=_Refuse,
                nargs="?",
                dest=argparse.SUPPRESS,
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )


def _refusal(option: str, command: Parser) -> str:
    """What is said of an option that a command does not take."""
    if option == "--prometheus" and command.machines is not None:
        return f"{option} does not work with {command.prog}: use --hosts, which connects by ssh."
    return f"{option} has no effect on {command.prog}: leave it out."


def _fault(parser: Parser, options: argparse.Namespace) -> str | None:
    """What is wrong with the options together, in a sentence.

    A command takes the same options before and after its name: those that its module added.
    """
    general, name = parser.options(), options.command
    command = parser if name is None else parser.commands[name]
    own = command.options()
    taken = {action.dest for action in own}
    for action in _given(general, options):
        if action.dest not in taken:
            return _refusal(action.option_strings[-1], command)
    if options.demo and options.backend is not None:
        return "--backend is a driver of this machine, and --demo needs none: give one of them."
    machines = dashboard.other_machines() if name is None else command.machines
    if machines is None:
        return None
    return machines.fault(options, _given([*general, *own], options))


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
        arguments: The arguments to parse. A command that is not among them gets no options, which
            takes a fifth of the time; ``None`` adds the options of all commands.
    """
    parser = dashboard.make_parser(partial(Parser, prog="gpumon", formatter_class=RawFormatter))
    parser.add_argument(
        "-V",
        "--version",
        action=PrintVersions,
        nargs=0,
        default=argparse.SUPPRESS,
        help="print the versions of gpumon, Python, Textual and the driver, and exit",
    )
    # Only here: with a default of its own a command would hide what stands before it.
    parser.set_defaults(**dict.fromkeys(OPTIONAL))
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", prog="gpumon", parser_class=Parser
    )
    for name, command in COMMANDS.items():
        if arguments is None or name in arguments:
            module_of(name).add_options(partial(commands.add_parser, name, help=command.about))
            _refuse_machines(commands.choices[name])
        else:
            commands.add_parser(name, help=command.about)
    parser.commands = commands.choices
    return parser
