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
# The second is Open MPI's daemon, between a program and the processes that MPI starts for it.
_HELPER_PROGRAMS = ("mpi4py.futures.server", "orted")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LEAST_ABBREVIATION = 4


class Recognised(Struct, frozen=True):
    """What a command line and an environment say of a server; ``None`` is not said there."""

    engine: str  # Its key in ``ENGINES``.
    model: str | None = None
    memory_value: str | None = None  # What its memory setting was set to, as written.
    # Whether it is known if that was set, apart from a configuration file. A title does not say it,
    # nor does a command alone if an environment variable may set it.
    knows_memory: bool = True
    port: int | None = None  # Of its metrics.
    has_config_file: bool = False


def recognise(command: Sequence[str], environment: Mapping[str, str] | None) -> Recognised | None:
    """The server that a command starts; ``None`` if it starts none.

    Args:
        command: The argument vector.
        environment: Its variables, at least those in ``Commands.variables``; ``None`` if it cannot
            be read.
    """
    found = _start(command)
    if found is None:
        return None
    engine, arguments = found
    if arguments is None:
        return Recognised(engine, knows_memory=False)
    commands = ENGINES[engine].commands
    variables = environment or {}
    memory = _set(
        commands.memory, commands.memory_variables, arguments, variables, _VALUE_CHARACTERS
    )
    may_be_set = environment is None and bool(commands.memory_variables)
    return Recognised(
        engine,
        model=_model(commands, arguments, variables),
        memory_value=memory,
        knows_memory=memory is not None or not may_be_set,
        port=_port(commands, arguments, variables),
        has_config_file=_option(commands.config_file, arguments) is not None,
    )


def engine_of(command: Sequence[str]) -> str | None:
    """The engine of the server, or of the part of one, that a command starts."""
    found = _start(command)
    return None if found is None else found[0]


def is_helper(command: Sequence[str]) -> bool:
    """Whether a command runs whatever its parent wants it to, as Python's worker processes do."""
    return any(word.startswith(_HELPERS) for word in command[1:8]) or (
        started_program(command)[0] in _HELPER_PROGRAMS
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
        return _kept(arguments[0], _MODEL_CHARACTERS)
    return _set(commands.model, commands.model_variables, arguments, environment, _MODEL_CHARACTERS)


def _port(
    commands: Commands, arguments: Sequence[str], environment: Mapping[str, str]
) -> int | None:
    value = _set(commands.port, commands.port_variables, arguments, environment, _VALUE_CHARACTERS)
    if value is None:
        return None
    scheme, _, address = value.strip("\"' ").rpartition("://")
    host, _, number = address.partition("/")[0].rpartition(":")
    # The colons of an IPv6 address without brackets are its own.
    is_number = number.isascii() and number.isdecimal() and len(number) <= 5
    if not is_number or (":" in host and not host.endswith("]")):
        return _DEFAULT_PORTS.get(scheme)
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
    return _kept(value, most)


def _kept(value: str | None, most: int) -> str | None:
    return value if value and len(value) <= most else None


def _option(options: Sequence[str], arguments: Sequence[str]) -> str | None:
    """The value of the last of these options, which may be abbreviated.

    Python's and the C library's parsers take the beginning of a long option for it. A server whose
    parser does not, or that has several such options, does not start.
    """
    wanted = tuple(map(_plain, options))
    value = None
    for name, found in _pairs(arguments):
        is_beginning = len(name) >= _LEAST_ABBREVIATION and name.startswith("--")
        if name in wanted or (is_beginning and any(each.startswith(name) for each in wanted)):
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
