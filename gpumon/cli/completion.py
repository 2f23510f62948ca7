"""``gpumon completion``: print the completion script for a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.option_groups import Option
from gpumon.cli.output import configure_output, print_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence


class CompletionCommand(Command):
    description = (
        "Print the completion script for a shell. For bash, in ~/.bashrc: "
        'eval "$(gpumon completion bash)"; for zsh the same with zsh, in ~/.zshrc after compinit; '
        "for fish, in config.fish: gpumon completion fish | source"
    )
    options = (
        Option(
            "shell",
            metavar="bash|zsh|fish",
            choices=("bash", "zsh", "fish"),
            help="the shell",
        ),
    )

    def run(self, options: argparse.Namespace) -> int:
        configure_output(options, "script")
        return print_text(_script(options.shell))


def _script(shell: str) -> str:
    """The script for a shell that shtab knows, made from the parser."""
    import shtab

    from gpumon.cli.parser import make_parser

    parser = make_parser()
    offered: dict[str, object] = {"FILE": shtab.FILE, "FOLDER": shtab.DIRECTORY}
    themes = _function("themes", _themes())
    signals = _function("signals", _signals())
    alerts = _function("alerts", _alerts(), after="test")
    _add_values(parser, offered | {"--theme": themes, "--signal": signals})
    _add_values(parser.commands["theme"], offered | {"name": themes})
    _add_values(parser.commands["alert"], offered | {"name": alerts})
    return f"{shtab.complete(parser, shell=shell).rstrip()}\n"


def _themes() -> Sequence[str]:
    from gpumon.config.themes import ThemeLibrary

    return ThemeLibrary().names()


def _alerts() -> Sequence[str]:
    """The names of the valid alerts; of mistakes is said elsewhere, not in each new shell."""
    from gpumon.alerts.alert import read_alerts
    from gpumon.config import load

    return [alert.name for alert in read_alerts(load().settings.alerts).alerts]


def _signals() -> Sequence[str]:
    import signal

    from gpumon.kill.target import ends

    return [number.name.removeprefix("SIG") for number in signal.Signals if ends(number)]


def _function(name: str, values: Sequence[str], after: str = "") -> dict[str, object]:
    """Values of an argument for shtab: a function in each shell, which quotes what needs it.

    They are offered only behind the word ``after``.
    """
    import shlex

    function = f"_gpumon_{name}"
    # What the terminal would act on is not offered.
    words = " ".join(shlex.quote(value) for value in values if value.isprintable())
    listed = f"printf '%s\\n' {words}" if words else "true"
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({function})",
        "preamble": {
            "bash": f"""\
{function}() {{
  [[ " ${{COMP_WORDS[*]}} " == *" {after}"* ]] || return
  local value
  for value in {words}; do
    value=$(printf %q "$value")
    [[ $value == "$1"* ]] && printf '%s\\n' "$value"
  done
}}
""",
            "zsh": f"""\
{function}() {{
  [[ " $words " == *" {after}"* ]] || return
  local -a values=({words})
  compadd -a values
}}
""",
            "fish": f"""\
function {function}
  string match -q "* {after}*" " "(commandline -opc | string join " ") && {listed}
end
""",
        },
    }


def _add_values(parser: argparse.ArgumentParser, offered: Mapping[str, object]) -> None:
    """Add what is offered by the name of an option, its metavar or the name of an operand."""
    import argparse

    for action in parser._actions:  # noqa: SLF001 - argparse lists them nowhere else
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the same
            for command in action.choices.values():
                _add_values(command, offered)
            continue
        if action.nargs == "?":
            # Otherwise shtab offers its values for ever.
            action.nargs = None
        names = (*action.option_strings, str(action.metavar), action.dest)
        found = next((offered[name] for name in names if name in offered), None)
        if found is not None:
            action.complete = found  # type: ignore[attr-defined]  # not in its stub
        if isinstance(action.metavar, str):
            # zsh takes what follows a colon for what to do.
            action.metavar = action.metavar.replace(":", " and ")
