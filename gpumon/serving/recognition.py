"""Recognises inference servers by their command lines and environments, which are untrusted."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.serving.engines import ENGINES, Commands
from gpumon.text.command_lines import started_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MODEL_CHARACTERS, _VALUE_CHARACTERS = 1024, 64
_MOST_SUBCOMMANDS = 2
_HELPERS = (
    "from multiprocessing.spawn import spawn_main",
    "from multiprocessing.forkserver import",
)
_HELPER_MODULES = ("mpi4py.futures.server",)


class Recognised(Struct, frozen=True):
    """What a command line and an environment say of a server; ``None`` is not said there."""

    engine: str  # Its key in ``ENGINES``.
    is_title: bool = False  # Whether it is a title, which says nothing else.
    model: str | None = None
    memory_value: str | None = None  # What its memory setting was set to, as written.
    port: int | None = None  # Of its metrics.
    has_config_file: bool = False


def recognise(command: Sequence[str], environment: Mapping[str, str]) -> Recognised | None:
    """The server that a command starts; ``None`` if it starts none.

    Args:
        command: The argument vector.
        environment: The variables that are known of it.
    """
    found = _start(command)
    if found is None:
        return None
    engine, arguments = found
    if arguments is None:
        return Recognised(engine, is_title=True)
    commands = ENGINES[engine].commands
    return Recognised(
        engine,
        model=_model(commands, arguments, environment),
        memory_value=_set(
            commands.memory, commands.memory_variables, arguments, environment, _VALUE_CHARACTERS
        ),
        port=_port(commands, arguments, environment),
        has_config_file=_option(commands.config_file, arguments) is not None,
    )


def engine_of(command: Sequence[str]) -> str | None:
    """The engine of the server, or of the part of one, that a command starts."""
    found = _start(command)
    return None if found is None else found[0]


def is_helper(command: Sequence[str]) -> bool:
    """Whether a command runs whatever its parent wants it to, as Python's worker processes do."""
    return any(word.startswith(_HELPERS) for word in command[1:8]) or (
        started_program(command)[0] in _HELPER_MODULES
    )


def _start(command: Sequence[str]) -> tuple[str, Sequence[str] | None] | None:
    """The engine that a command starts, and the arguments after the program and its subcommands.

    A title has no arguments.
    """
    if not command:
        return None
    for engine, titles in _titles():
        if command[0].startswith(titles):
            return engine, None
    program, at = started_program(command)
    programs = _programs()
    # The longest comes first: ``trtllm-serve serve``.
    for count in range(_MOST_SUBCOMMANDS, -1, -1):
        end = at + 1 + count
        engine_key = programs.get(" ".join((program, *command[at + 1 : end])))
        if engine_key is not None and end <= len(command):
            return engine_key, command[end:]
    return None


@cache
def _programs() -> Mapping[str, str]:
    return {
        program: engine.key for engine in ENGINES.values() for program in engine.commands.programs
    }


@cache
def _titles() -> Sequence[tuple[str, tuple[str, ...]]]:
    return [
        (engine.key, engine.commands.titles)
        for engine in ENGINES.values()
        if engine.commands.titles
    ]


def _model(
    commands: Commands, arguments: Sequence[str], environment: Mapping[str, str]
) -> str | None:
    if commands.model_follows and arguments and not arguments[0].startswith("-"):
        return arguments[0][:_MODEL_CHARACTERS] or None
    return _set(commands.model, commands.model_variables, arguments, environment, _MODEL_CHARACTERS)


def _port(
    commands: Commands, arguments: Sequence[str], environment: Mapping[str, str]
) -> int | None:
    value = _set(commands.port, commands.port_variables, arguments, environment, _VALUE_CHARACTERS)
    number = "" if value is None else value.rstrip("/").rpartition(":")[2]
    if not (number.isascii() and number.isdecimal()) or len(number) > 5:
        return None
    return int(number) if 0 < int(number) < 2**16 else None


def _set(
    options: Sequence[str],
    variables: Sequence[str],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    most: int,
) -> str | None:
    """What an option sets, else a variable; ``None`` also if it is empty or too long."""
    value = _option(options, arguments)
    if value is None:
        value = next((environment[name] for name in variables if name in environment), None)
    return value if value and len(value) <= most else None


def _option(options: Sequence[str], arguments: Sequence[str]) -> str | None:
    """The value of the last of these options."""
    wanted = frozenset(map(_plain, options))
    value = None
    for name, found in _pairs(arguments):
        if name in wanted:
            value = found
    return value


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each option with what follows it, which may be another option of a flag."""
    for place, word in enumerate(arguments):
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            if equals:
                yield _plain(name), value
            elif place + 1 < len(arguments):
                yield _plain(name), arguments[place + 1]


def _plain(option: str) -> str:
    return option.replace("_", "-")
