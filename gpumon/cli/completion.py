"""``gpumon completion``: print the completion script for a shell."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from gpumon.cli.common import print_text, take_output

if TYPE_CHECKING:
    from gpumon.cli.help import MakeParser

_THEMES = {"theme", "name"}
"""Arguments that take the name of a theme: ``--theme``, and ``gpumon theme show``."""


def add_options(command: MakeParser) -> None:
    """Add ``gpumon completion`` to the parser."""
    completion = command(
        description="Print the completion script for a shell. For bash, in ~/.bashrc: "
        'eval "$(gpumon completion bash)"; for zsh the same with zsh, in ~/.zshrc after compinit; '
        "for fish, in config.fish: gpumon completion fish | source",
    )
    completion.add_argument(
        "shell",
        metavar="bash|zsh|fish",
        choices=("bash", "zsh", "fish"),
        help="the shell",
    )


def run(options: argparse.Namespace) -> int:
    """Print the script; the exit status."""
    take_output(options, "script")
    return print_text(_script(options.shell))


def _script(shell: str) -> str:
    """The script for a shell that shtab knows, made from the parser."""
    import shtab

    from gpumon.cli.parser import make_parser
    from gpumon.config.themes import ThemeLibrary

    parser = make_parser()
    # A name that needs quoting in a shell is not completed.
    themes = [name for name in ThemeLibrary().names() if re.fullmatch(r"[\w.-]+", name)]
    _add_values(parser, themes, shtab.FILE)
    return f"{shtab.complete(parser, shell=shell).rstrip()}\n"


def _add_values(parser: argparse.ArgumentParser, themes: list[str], files: object) -> None:
    """Mark which arguments are names of files and of themes, in all commands."""
    for action in parser._actions:  # noqa: SLF001 - argparse lists them nowhere else
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the same
            for command in action.choices.values():
                _add_values(command, themes, files)
        elif action.metavar == "FILE":
            action.complete = files  # type: ignore[attr-defined]  # not in its stub
        elif action.dest in _THEMES:
            action.choices = themes
