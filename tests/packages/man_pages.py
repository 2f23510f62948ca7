"""The manual pages in ``packages/man``: one for ``gpumon``, one per command.

They are made from the parser and the keymap, so they say what ``--help`` says.
``python -m tests.packages.man_pages`` writes them; a test checks that they are up to date.
``argparse-manpage`` was tried: it fills the examples of descriptions as if they were sentences, and
puts all commands on one page.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon import __version__
from gpumon.cli.commands import COMMANDS
from gpumon.cli.parser import make_parser
from gpumon.config.keymap import KEYMAP
from gpumon.config.settings import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "packages" / "man"
_COLUMNS = 66
"""Longest line of the source, before it is escaped: mandoc advises fewer than 80 bytes."""

_ABOUT = "show what the GPUs of a machine do and who uses them"

_STATUS = """\
0; 1 if there is nothing to show, such as without a driver or a GPU; 2 for an invalid command line.
A command that has others says so on its page."""

_ENVIRONMENT = {
    "GPUMON_ASCII": "1: draw with ASCII only, as --ascii does.",
    "GPUMON_LOCK_DIR": "The folder of the locks of gpumon run, for all users the same one.",
    "GPUMON_KUBELET_SOCKET": "The socket of a kubelet whose root is another folder than usual.",
    "NO_COLOR": "Any value: use no colours.",
    "XDG_CONFIG_HOME, XDG_STATE_HOME": "Folders that hold the folder gpumon of the files below, in "
    "place of ~/.config and ~/.local/state.",
}

_FILES = {
    "~/.config/gpumon/config.toml": "The configuration; gpumon config init writes one with all "
    "defaults.",
    "~/.config/gpumon/themes/": "Your own themes.",
    "~/.local/state/gpumon/": "The last state of the dashboard, and signals.jsonl, a log of the "
    "sent signals.",
}


def pages() -> dict[str, str]:
    """The text of every page by the name of its file."""
    parser = make_parser()
    commands = _commands_of(parser)
    assert commands is not None
    return {"gpumon.1": _main_page(parser)} | {
        f"gpumon-{name}.1": _command_page(name, parser) for name, parser in commands.choices.items()
    }


def _main_page(parser: argparse.ArgumentParser) -> str:
    return _page(
        "gpumon",
        _ABOUT,
        _section(
            "SYNOPSIS", [_bold("gpumon [options]"), ".br", _bold("gpumon [options] COMMAND ...")]
        ),
        _section("DESCRIPTION", _text(parser.description or "")),
        *_options(parser),
        _section(
            "COMMANDS",
            ["Every command has a page of its own."],
            *(
                _entry([f"{_bold(f'gpumon-{name}')}(1)"], _sentence(COMMANDS[name]))
                for name in COMMANDS
            ),
        ),
        _section("KEYS", ["Keys of the dashboard; ? explains them and what is on the screen."]),
        *_keys(),
        _section("EXIT STATUS", _text(_STATUS)),
        _section(
            "ENVIRONMENT",
            *(
                _entry(
                    [_bold(name)],
                    f"In place of {' and '.join(one.names)} of the configuration, such as "
                    f"{one.example}.",
                )
                for name, one in VARIABLES.items()
            ),
            *(_entry([_bold(name)], about) for name, about in _ENVIRONMENT.items()),
        ),
        _section("FILES", *(_entry([_italic(name)], about) for name, about in _FILES.items())),
        _see_also(["nvidia-smi(1)", *(f"gpumon-{name}(1)" for name in COMMANDS)]),
    )


def _command_page(name: str, parser: argparse.ArgumentParser) -> str:
    return _page(
        f"gpumon-{name}",
        COMMANDS[name],
        _section("SYNOPSIS", [_bold(_synopsis(parser))]),
        _section("DESCRIPTION", _text(parser.description or "")),
        *_options(parser),
        *_subcommands(parser),
        *([_section("NOTES", _text(parser.epilog))] if parser.epilog else ()),
        _see_also(["gpumon(1)"]),
    )


def _page(name: str, about: str, *sections: list[str]) -> str:
    heading = _escaped(name.upper())
    lines = [
        f'.TH {heading} 1 "{_released()}" "gpumon {__version__}" "User Commands"',
        # Names of options and variables are copied: they are not divided, and blanks not widened.
        ".nh",
        ".ad l",
        *_section("NAME", _filled(f"{name} - {about}")),
    ]
    for section in sections:
        lines += section
    return "\n".join(lines) + "\n"


def _released() -> str:
    """The date of the newest version in the changelog."""
    dates = re.findall(
        r"^## .* (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    return dates[0] if dates else ""


def _synopsis(parser: argparse.ArgumentParser) -> str:
    if parser.usage:
        return parser.usage
    operands = [_operand(parser, action) for action in parser._actions if not action.option_strings]
    return " ".join([parser.prog, "[options]", *operands])


def _options(parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    """The operands and options: a section per group, as in the help."""
    for group in parser._action_groups:
        entries = [
            _entry(_names(parser, action), _help(parser, action))
            for action in group._group_actions
            if action.help != argparse.SUPPRESS
            and not isinstance(action, argparse._SubParsersAction)
        ]
        if entries:
            title = {"positional arguments": "operands"}.get(group.title or "", group.title or "")
            about = _text(group.description) if group.description else []
            yield _section(title.upper(), about, *entries)


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    """What a command such as ``gpumon theme`` can be followed by."""
    action = _commands_of(parser)
    if action is None:
        return
    yield _section("COMMANDS")
    about = {one.dest: one.help or "" for one in action._choices_actions}
    for name, parser in action.choices.items():
        yield [f'.SS "{_escaped(_synopsis(parser))}"', *_text(_sentence(about[name]))]
        for option in parser._actions:
            if option.help and option.dest != "help":
                yield _entry(_names(parser, option), _help(parser, option))


def _commands_of(
    parser: argparse.ArgumentParser,
) -> argparse._SubParsersAction[argparse.ArgumentParser] | None:
    found = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return found[0] if found else None


def _names(parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    """The names of an option, each with its value; or the name of an operand."""
    if not action.option_strings:
        return [_italic(_operand(parser, action))]
    value = "" if action.nargs == 0 else f" {_italic(_operand(parser, action))}"
    return [", ".join(f"{_bold(name)}{value}" for name in action.option_strings)]


def _operand(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._format_args(action, action.dest.upper())


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return _sentence(parser._get_formatter()._expand_help(action)) if action.help else ""


def _keys() -> Iterator[list[str]]:
    """The keys of the dashboard, by group."""
    group = ""
    for one in KEYMAP:
        about = one.on.get("dashboard")
        if not about or not one.keys:
            continue
        if one.group != group:
            group = one.group
            yield [f'.SS "{_escaped(group)}"']
        yield _entry([", ".join(_bold(key) for key in one.keys)], _sentence(about))


def _see_also(names: list[str]) -> list[str]:
    linked = [f"{_bold(name.partition('(')[0])}({name.partition('(')[2]}" for name in names]
    return _section("SEE ALSO", [f"{one}," for one in linked[:-1]] + linked[-1:])


def _section(title: str, *parts: list[str]) -> list[str]:
    return [f'.SH "{_escaped(title)}"', *(line for part in parts for line in part)]


def _entry(heading: list[str], about: str) -> list[str]:
    return [".TP", *heading, *_filled(about)]


def _text(text: str) -> list[str]:
    """Sentences, which are filled, and lines that begin with blanks, which are kept."""
    lines: list[str] = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        for kept, run in _runs(part.splitlines()):
            columns = [re.fullmatch(r" +(\S.*?) {2,}(\S.*)", line) for line in run]
            if all(columns):
                lines += [
                    one
                    for line in columns
                    if line is not None
                    for one in _entry([_bold(line[1])], line[2])
                ]
            elif kept:
                literal = [_bold(line) for line in textwrap.dedent("\n".join(run)).splitlines()]
                lines += [".PP", ".RS 2", ".nf", *literal, ".fi", ".RE"]
            else:
                lines += [*([".PP"] if lines else []), *_filled(_begun(" ".join(run)))]
    return lines


def _runs(lines: Iterable[str]) -> Iterator[tuple[bool, list[str]]]:
    """Neighbouring lines that all begin with blanks, or all do not."""
    run: list[str] = []
    for line in lines:
        if run and line.startswith(" ") != run[0].startswith(" "):
            yield run[0].startswith(" "), run
            run = []
        run.append(line)
    if run:
        yield run[0].startswith(" "), run


def _filled(text: str) -> list[str]:
    lines = textwrap.wrap(text, _COLUMNS, break_long_words=False, break_on_hyphens=False)
    return [_escaped(line) for line in lines]


def _sentence(text: str) -> str:
    """A line of the help as a sentence."""
    begun = _begun(" ".join(text.split()))
    return begun if begun.endswith((".", "?", "…")) or not begun else f"{begun}."


def _begun(text: str) -> str:
    """Text with a capital, unless it begins with a name of something."""
    return text if re.match(r"\S*[A-Z_/.=\d]|\w+: ", text) else text[:1].upper() + text[1:]


def _bold(text: str) -> str:
    return f"\\fB{_escaped(text)}\\fR"


def _italic(text: str) -> str:
    return f"\\fI{_escaped(text)}\\fR"


def _escaped(text: str) -> str:
    """Text that roff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    text = (
        text.replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    )
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    # A line that begins with these would be a request.
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for old in FOLDER.iterdir():
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        FOLDER.joinpath(name).write_text(text, encoding="utf-8")
