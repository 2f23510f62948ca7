"""Command lines as text: shortened to one line, or with one option per line."""

from __future__ import annotations

import re
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from gpumon.model.process_states import ENDED, STATES
from gpumon.text.formatting import CACHED_CHARACTERS, ELLIPSIS, UNKNOWN, cell_width, fit, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.model.processes import GpuProcess

SCROLLED = "‹"
"""The first cell of a line that is scrolled sideways."""

_Span: TypeAlias = "tuple[int, int]"
"""A range of arguments: its start and its end."""

_LEAST_INDENTED = 16
_FOLDERS_KEPT = 6
_WORDS_KEPT = 8


def command_line(process: GpuProcess) -> str:
    """The command of a process: the program without its directory, then its arguments."""
    if not process.visible:
        ended = process.state == ENDED
        return f"({STATES[ENDED].about})" if ended else "(not visible here)"
    if not process.command:
        return printable(f"[{process.name}]" if process.name else UNKNOWN)
    return " ".join(_words(process.command))


def fit_command(process: GpuProcess, width: int, offset: int = 0) -> str:
    """The command of a process in exactly ``width`` cells.

    A long command is shortened so that the script's name and its options remain:
    ``python …/train.py --lr 3e-4``. It drops the directories of the script first, then those of
    other paths, then the words between program and script, then the end.

    Args:
        process: The process.
        width: Cells.
        offset: Cells that the line is scrolled to the left; it is not shortened then.
    """
    if offset > 0:
        return _scrolled(command_line(process), width, offset)
    if not process.visible or not process.command:
        return fit(command_line(process), width)
    return shorten_command(process.command, width)


def split_command(arguments: Sequence[str], width: int) -> list[str]:
    """A whole command, printable and quoted for a shell, with one option per line.

    Args:
        arguments: The argument vector.
        width: The maximum width; longer lines are wrapped.
    """
    if width <= 0 or not arguments:
        return []
    groups, head = _options(arguments)
    quoted = [[shlex.quote(printable(word)) for word in group] for group in groups]
    beginning = [word for group in quoted[:head] for word in group]
    if _cells(beginning) <= width:
        quoted[:head] = [beginning]
    indent = "  " if width >= _LEAST_INDENTED else ""
    lines: list[str] = []
    for group in quoted:
        lines += _wrapped(group, width, indent if lines else "", indent * 2)
    return lines


def script_of(arguments: Sequence[str]) -> str | None:
    """The script, module or notebook that a command runs: ``train.py``, ``-m pkg.mod``.

    The text may be unprintable. ``None`` if no interpreter is run, or if the code is an argument.
    """
    span = _script(arguments)
    return None if span is None else " ".join(arguments[slice(*span)])


def started_program(command: Sequence[str]) -> tuple[str, int]:
    """The program, script or module that a command runs, and its place among the arguments.

    Without its folder. Empty without one, as of code that is an argument.
    """
    at = 0
    program = command[0] if command else ""
    if _RUNS_PROGRAMS.fullmatch(_name(program)):
        span = _interpreted(command, 0)
        if span is None:
            return "", 0
        at = span[1] - 1
        # The module may follow without a space: ``-mvllm.entrypoints.api_server``.
        attached = _PYTHON_OPTION.fullmatch(command[at])
        program = command[at] if attached is None else attached[2]
    # slurmstepd and others replace their arguments with a title: "slurmstepd: [3385.0]".
    return _name(program).partition(":")[0], at


def _words(command: Sequence[str]) -> list[str]:
    """The printable arguments, the program without its directory."""
    program = command[0]
    # Programs that set a process title (``sshd: ann@pts/0``) put all of it here.
    if " " not in program or program.startswith(("/", ".")):
        program = _name(program) or program
    return [printable(word) for word in (program, *command[1:])]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _cells(words: Sequence[str]) -> int:
    """Width of the words, separated by spaces."""
    return sum(map(cell_width, words)) + max(0, len(words) - 1)


def _scrolled(line: str, width: int, offset: int) -> str:
    if width <= 0:
        return ""
    # The mark replaces the first visible cell, and a blank replaces half of a wide character.
    place = cells = 0
    while place < len(line) and cells <= offset:
        cells += cell_width(line[place])
        place += 1
    return SCROLLED + fit(" " * (cells - offset - 1) + line[place:], width - 1)


def shorten_command(command: tuple[str, ...], width: int) -> str:
    """An argument vector in exactly ``width`` cells; ``fit_command`` describes how."""
    # The number of arguments counts too: empty ones also take memory.
    long = len(command) + sum(map(len, command)) > CACHED_CHARACTERS
    return (_shorten_long if long else _shorten)(command, width)


def _find_shortened(command: tuple[str, ...], width: int) -> str:
    words: list[str] = []
    for words in _shorter_and_shorter(command, width):
        if _cells(words) <= width:
            break
    return fit(" ".join(words), width)


_shorten = lru_cache(2048)(_find_shortened)
_shorten_long = lru_cache(128)(_find_shortened)


def _shorter_and_shorter(command: tuple[str, ...], width: int) -> Iterator[list[str]]:
    """Ever shorter forms of a command; if the last is still too long, its end is cut."""
    words = _words(command)
    yield words
    # Without a script, the program's name takes its place; it has no directory any more.
    start, end = _script(command) or (0, 1)
    program, between, after = words[: min(start, 1)], words[1:start], words[end:]
    *option, name = words[start:end]
    forms = list(_shorter_names(name, "." if option == ["-m"] else "/")) if start else [name]
    for form in forms:
        yield [*program, *between, *option, form, *after]
    between, after = [_short(word) for word in between], [_short(word) for word in after]
    for form in forms:
        yield [*program, *between, *option, form, *after]
    script = [*option, forms[-1]]
    if between:
        script[-1] = script[-1].removeprefix(f"{ELLIPSIS}/")
        for kept in range(min(len(between) - 1, _WORDS_KEPT), -1, -1):
            value_follows = kept and between[kept - 1][0:1] == "-" != between[kept][0:1]
            if not value_follows:
                yield [*program, *between[:kept], ELLIPSIS, *script, *after]
        program.append(ELLIPSIS)
    # If more follows, the ellipsis takes a cell.
    if program and _cells([*program, *script]) + bool(after) > width:
        yield [script[-1].removeprefix(f"{ELLIPSIS}/"), *after]


def _shorter_names(path: str, separator: str) -> Iterator[str]:
    """Ever shorter forms of a path or module, without its middle: ``/home/…/llm/train.py``."""
    yield path
    *folders, name = path.rstrip(separator).split(separator)
    # The empty name before the first slash belongs to the next one.
    head = separator.join(folders[: 1 if folders[:1] != [""] else 2])
    gap = f"/{ELLIPSIS}/" if separator == "/" else ELLIPSIS
    kept = range(min(_FOLDERS_KEPT, len(folders)), -1, -1)
    tails = [separator.join([*folders[len(folders) - count :], name]) for count in kept]
    size = cell_width(path)
    for form in (*(head + gap + tail for tail in tails), gap.lstrip("/") + name):
        if cell_width(form) < size:
            size = cell_width(form)
            yield form


def _short(word: str) -> str:
    """A word without the directories of its path; it may be ``option=path``."""
    key, equals, path = word.partition("=")
    if "/" in key:
        key, equals, path = "", "", word
    if "/" not in path or "://" in path or " " in path:
        return word
    *_, shortest = _shorter_names(path, "/")
    return key + equals + shortest


def _options(arguments: Sequence[str]) -> tuple[list[list[str]], int]:
    """The arguments grouped by option, and the number of groups up to the script."""
    span = _script(arguments) or (0, 1)
    groups: list[list[str]] = []
    head = 0
    for place, word in enumerate(arguments):
        previous = arguments[place - 1]
        option = _OPTION.match(word) or (_SETTING.match(word) and not _OPTION.match(previous))
        within = span[0] < place < span[1]
        if place in {0, span[0]} or (option and not within):
            groups.append([])
        if place == span[0]:
            head = len(groups)
        groups[-1].append(word)
    return groups, head


# A minus before a digit is a number.
_OPTION = re.compile(r"-[^\d.]")
_SETTING = re.compile(r"[a-z_+~][\w./@-]*=", re.IGNORECASE)


def _wrapped(words: list[str], width: int, indent: str, further: str) -> list[str]:
    """Wrap words into lines, between words if possible."""
    lines: list[str] = []
    line = indent
    begun = False
    for word in words:
        gap = " " if begun else ""
        if begun and cell_width(line + gap + word) > width:
            lines.append(line)
            line, gap = further, ""
        rest = gap + word
        while cell_width(line + rest) > width:
            part, rest = _part(rest, width - cell_width(line))
            lines.append(line + part)
            line = further
        line += rest
        begun = True
    lines.append(line)
    return lines


def _part(text: str, width: int) -> tuple[str, str]:
    """Split a text after the part that fits, which has at least one character."""
    cells = 0
    for place, character in enumerate(text):
        cells += cell_width(character)
        if cells > width:
            return (text[:place], text[place:]) if place else (ELLIPSIS, text[1:])
    return text, ""


class _Interpreter(Struct, frozen=True):
    """The options of an interpreter."""

    code: str  # A pattern of options that are followed by code.
    valued: frozenset[str] = frozenset()  # Options that are followed by a value.
    naming: frozenset[str] = frozenset()  # Options that are followed by the script.


_SHELL = _Interpreter("-[a-z]*c", frozenset({"-o", "-O", "--rcfile", "--init-file"}))
_INTERPRETERS: dict[str, _Interpreter] = {
    **dict.fromkeys(("bash", "sh", "dash", "zsh", "ksh"), _SHELL),
    "node": _Interpreter(
        "-[ep]|-pe|--eval|--print", frozenset({"-r", "--require", "--import", "--loader"})
    ),
    "java": _Interpreter(
        "(?!)",
        frozenset({"-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules"}),
        frozenset({"-jar", "-m", "--module"}),
    ),
    "Rscript": _Interpreter("-e"),
    "julia": _Interpreter("-[eE]|--eval|--print", frozenset({"-t", "-p", "-J", "-L", "-C"})),
    "perl": _Interpreter("-[a-z]*[eE]"),
    "ruby": _Interpreter("-[a-z]*e", frozenset({"-I", "-r", "-C"})),
}
_RUNS_PROGRAMS = re.compile(r"(?:python|pypy)[\d.]*|sh|bash|dash")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*[a-z]?")
_PYTHON_OPTION = re.compile(r"-[bBdEhiIOPqRsSuvVx]*([cmWX])(.*)", re.DOTALL)
_LAUNCHER = re.compile(
    r"mpirun|mpiexec(\.hydra)?|orterun|prterun|srun|horovodrun"
    r"|torchrun|torch\.distributed\.(run|launch)|accelerate(\.commands\.launch)?"
    r"|deepspeed(\.launcher\.launch)?|jupyter(-nbconvert)?|papermill"
    r"|uv|poetry|conda|env|nohup|nice|numactl|taskset|timeout|sudo|nsys|ncu"
)
"""Programs, scripts and modules that start another program given in their arguments."""
_SCRIPTS = (".py", ".sh", ".R", ".r", ".js", ".mjs", ".jl", ".pl", ".rb", ".jar", ".ipynb")


def _script(arguments: Sequence[str]) -> _Span | None:
    """The arguments that name the script that is finally run."""
    found: _Span | None = None
    place: int | None = 0
    while place is not None and place < len(arguments):
        span = _interpreted(arguments, place)
        if span is not None:
            found = span
            place = span[1] - 1
        if not _LAUNCHER.fullmatch(_name(arguments[place])):
            return found
        started = _started(arguments, place + 1)
        if isinstance(started, tuple):
            return started
        place = started
    return found


def _started(arguments: Sequence[str], begin: int) -> _Span | int | None:
    """What a launcher starts: the range of a script or module, or the index of an interpreter."""
    for place in range(begin, len(arguments)):
        word = arguments[place]
        if word in {"-m", "--module"} and place + 1 < len(arguments):
            return place, place + 2
        name = _name(word)
        if name in _INTERPRETERS or _PYTHON.fullmatch(name):
            return place
        if word.endswith(_SCRIPTS) and not word.startswith("-"):
            return place, place + 1
    return None


def _interpreted(arguments: Sequence[str], place: int) -> _Span | None:
    """The script of the interpreter at an index; ``None`` without interpreter or script."""
    name = _name(arguments[place])
    if _PYTHON.fullmatch(name):
        return _run_by_python(arguments, place + 1)
    interpreter = _INTERPRETERS.get(name)
    if interpreter is None:
        return None
    place += 1
    while place < len(arguments):
        word = arguments[place]
        if word in interpreter.naming:
            return (place, place + 2) if place + 1 < len(arguments) else None
        if word == "-" or re.fullmatch(interpreter.code, word):
            return None
        if not word.startswith("-"):
            return place, place + 1
        place += 2 if word in interpreter.valued else 1
    return None


def _run_by_python(arguments: Sequence[str], place: int) -> _Span | None:
    """The script of a Python command: https://docs.python.org/3/using/cmdline.html."""
    while place < len(arguments):
        word = arguments[place]
        if not word.startswith("-"):
            return place, place + 1
        option = _PYTHON_OPTION.fullmatch(word)
        if word == "-" or (option and option[1] == "c"):
            return None
        if option and option[1] == "m":
            end = place + (1 if option[2] else 2)
            return (place, end) if end <= len(arguments) else None
        place += 2 if option and not option[2] else 1
    return None
