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
    gpus = _list_function("gpus", _GPUS, _GPUS[1:])
    columns = _quoted(_columns())
    lists = {
        "--gpus": gpus,
        "--not": gpus,
        "--columns": _list_function("columns", columns, columns),
    }
    _add_values(parser, offered | lists | {"--theme": themes, "--signal": signals})
    _add_values(parser.commands["theme"], offered | {"name": themes})
    _add_values(parser.commands["alert"], offered | {"name": alerts})
    for name, operand in (("replay", "file"), ("report", "files")):
        _add_values(parser.commands[name], {operand: _LOG_FILES})
    return f"{shtab.complete(parser, shell=shell).rstrip()}\n"


def _themes() -> Sequence[str]:
    from gpumon.config.themes import ThemeLibrary

    return ThemeLibrary().names()


def _alerts() -> Sequence[str]:
    """The names of the valid alerts; of mistakes is said elsewhere, not in each new shell."""
    from gpumon.alerts.alert import read_alerts
    from gpumon.config import load

    return [alert.name for alert in read_alerts(load().settings.alerts).alerts]


def _columns() -> Sequence[str]:
    from gpumon.config.columns import COLUMN, COLUMN_SETS, GPU_COLUMN

    return [*COLUMN_SETS, *COLUMN, *GPU_COLUMN]


def _signals() -> Sequence[str]:
    import signal

    from gpumon.kill.target import ends

    return [number.name.removeprefix("SIG") for number in signal.Signals if ends(number)]


def _function(name: str, values: Sequence[str], after: str = "") -> dict[str, object]:
    """Values of an argument for shtab: a function in each shell, which quotes what needs it.

    They are offered only behind the word ``after``.
    """
    function = f"_gpumon_{name}"
    words = _quoted(values)
    listed = f"printf '%s\\n' {words}" if words else "true"
    return _in_shells(
        function,
        bash=f"""\
{function}() {{
  [[ " ${{COMP_WORDS[*]}} " == *" {after}"* ]] || return
  local value
  for value in {words}; do
    value=$(printf %q "$value")
    [[ $value == "$1"* ]] && printf '%s\\n' "$value"
  done
}}
""",
        zsh=f"""\
{function}() {{
  [[ " $words " == *" {after}"* ]] || return
  local -a values=({words})
  compadd -a values
}}
""",
        fish=f"""\
function {function}
  string match -q "* {after}*" " "(commandline -opc | string join " ") && {listed}
end
""",
    )


def _in_shells(function: str, **definitions: str) -> dict[str, object]:
    """A function for shtab that each shell calls by the same name."""
    calls = {"bash": function, "zsh": function, "fish": f"({function})"}
    return {**calls, "preamble": definitions}


def _quoted(values: Sequence[str]) -> str:
    """The values as words of each shell, without those that the terminal would act on."""
    import shlex

    return " ".join(shlex.quote(value) for value in values if value.isprintable())


def _list_function(name: str, words: str, fish_words: str) -> dict[str, object]:
    """Values of which an argument has several, with commas between them, as ``_function``."""
    function = f"_gpumon_{name}"
    return _in_shells(
        function,
        bash=f"""\
{function}() {{
  local value before="${{1%"${{1##*,}}"}}"
  for value in {words}; do
    [[ ,$before != *,"$value",* && $before$value == "$1"* ]] && printf '%s\\n' "$before$value"
  done
}}
""",
        zsh=f"""\
{function}() {{
  local -a values=({words})
  compset -P '*,'
  compadd -S '' -a values
}}
""",
        fish=f"""\
function {function}
  set -l before (string replace -r '[^,]*$' '' -- (commandline -ct))
  for value in {fish_words}
    string match -q -- "*,$value,*" ",$before"; or echo "$before$value"
  end
end
""",
    )


_GPUS = "$(gpumon snapshot --format csv 2>/dev/null | tail -n +2 | cut -d, -f2)"
"""The indices of the GPUs, when they are asked for."""

# Of a function with "files" in its name bash marks folders.
_LOG_FILES = _in_shells(
    "_gpumon_log_files",
    bash=r"""_gpumon_log_files() {
  compgen -d -- "$1"
  compgen -f -- "$1" | grep -E '\.csv(\.gz|\.zst)?$'
}
""",
    zsh="""_gpumon_log_files() {
  # _files would offer every file where no log fits.
  _alternative 'logs:log:_path_files -g "*.csv(|.gz|.zst)(-.)"' 'folders:folder:_path_files -/'
}
""",
    fish=r"""function _gpumon_log_files
  for value in (commandline -ct)*
    if test -d $value
      echo $value/
    else
      string match -r '.*\.csv(?:\.gz|\.zst)?$' -- $value
    end
  end
end
""",
)


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
