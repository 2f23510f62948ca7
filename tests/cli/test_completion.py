"""What the completion scripts offer: for each argument of a command what it takes, and no more."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpumon.cli.commands import COMMANDS
from gpumon.cli.parser import make_parser
from gpumon.config.columns import COLUMN, COLUMN_SETS, GPU_COLUMN
from gpumon.config.themes import ThemeLibrary
from gpumon.model.makers import backends
from tests.command import run_gpumon, write_config
from tests.lives import needs
from tests.screen import PATIENCE, Screen

CONFIG = """
[[alerts]]
name = "hot-gpu"
when = "hot"
[[alerts]]
name = "too hot; $(touch /tmp/x) 'it''s"
when = "hot"
[[alerts]]
when = "temp>=85"
[[alerts]]
name = "invalid"
when = "no such state"
"""
ALERTS = {"hot-gpu", "too hot; $(touch /tmp/x) 'it''s", "temp>=85"}
LOGS = {"run.csv", "old.csv.gz", "folder"}
FILES = {*LOGS, "notes.txt"}
GPUMON = """\
#!/bin/sh
[ "$*" = "snapshot --format csv" ] && printf 'now,%s,name\\n' index 0 1 10
"""
"""Stands for gpumon where the completion of a shell calls it."""

OPTIONS = {
    "--backend": set(backends()),
    "--theme": set(ThemeLibrary().names()),
    "--signal": {"TERM", "INT", "KILL", "HUP"},
    "--by": {"gpu", "host", "user", "process", "job"},
    "--lock-dir": {"folder"},
    "--gpus": {"0", "1", "10"},
    "--not": {"0", "1", "10"},
    "--columns": {*COLUMN_SETS, *COLUMN, *GPU_COLUMN},
    **dict.fromkeys(["--log", "--web-config", "--alerts", "--from"], FILES),
}
"""What is offered for the value of an option, in all commands; nothing for the others."""
FORMATS = {
    "snapshot": {"table", "json", "csv", "prometheus"},
    "report": {"table", "json", "csv"},
    "end": {"table", "json"},
    "topo": {"table", "json"},
    "select": {"uuid", "index", "env", "json"},
    "stream": {"stream", "json"},
}
OPERANDS = {
    "": set(COMMANDS),
    "alert": {"list", "test"},
    "alert test": ALERTS,
    "log": FILES,
    "replay": LOGS,
    "report": LOGS,
    "report run.csv": LOGS,
    "theme": {"list", "show", "check"},
    "theme show": set(ThemeLibrary().names()),
    "theme check": FILES,
    "config": {"path", "init", "check", "show"},
    "completion": {"bash", "zsh", "fish"},
    "wait": {"free", "idle", "cool"},
    "help": set(COMMANDS),
    "--prometheus http://h": set(COMMANDS),
}
"""What is offered after these words, where no option was begun; nothing after other commands."""
NOTHING = ["alert list", "alert test hot-gpu", "log run.csv", "theme list", "wait free", "help log"]
"""Words after which nothing is offered."""

ASK = """
source "$1"
function=$(complete -p gpumon) && function=${function#*-F } && function=${function%% *}
while IFS= read -r line; do
  eval "COMP_WORDS=(gpumon $line '')"
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  "$function" gpumon "" "${COMP_WORDS[$COMP_CWORD - 1]}" 2>/dev/null
  for word in "${COMPREPLY[@]}"; do printf '%s\\t' "$word"; done
  echo
done
"""
"""What readline does when Tab is pressed, for each line of words."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts, and what may be completed in it."""
    made = tmp_path_factory.mktemp("completion")
    write_config(made, CONFIG)
    for shell in ("bash", "zsh", "fish"):
        done = run_gpumon("completion", shell, env={**os.environ, "XDG_CONFIG_HOME": str(made)})
        # A mistake in the configuration is not said in each new shell.
        assert (done.returncode, done.stderr) == (0, "")
        (made / shell).write_text(done.stdout)
    (made / "here" / "folder").mkdir(parents=True)
    for name in FILES - {"folder"}:
        (made / "here" / name).touch()
    (made / "bin").mkdir()
    (made / "bin" / "gpumon").write_text(GPUMON)
    (made / "bin" / "gpumon").chmod(0o755)
    return made


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def offered_by_bash(folder: Path, lines: Sequence[str], ask: str = ASK) -> list[set[str]]:
    done = subprocess.run(
        ["bash", "--norc", "-c", ask, "bash", str(folder / "bash")],
        input="\n".join(lines) + "\n",
        cwd=folder / "here",
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr == ""
    return [
        {shlex.split(word)[0] for word in line.split("\t") if word}
        for line in done.stdout.splitlines()
    ]


def values() -> Iterator[tuple[str, str, str]]:
    """Each option that takes a value: its command, and its name as it is typed."""
    root = make_parser()
    for name, parser in (("", root), *root.commands.items()):
        for action in parser.options():
            if action.nargs != 0 and action.help != argparse.SUPPRESS:
                for option in action.option_strings:
                    yield name, action.option_strings[-1], f"{name} {option}"


@pytest.mark.slow
@needs("bash")
def test_bash_offers_for_each_value_what_the_option_takes(folder: Path) -> None:
    asked = list(values())
    answers = offered_by_bash(folder, [line for *_, line in asked])
    assert len(answers) == len(asked) > 100
    for (command, option, line), offered in zip(asked, answers, strict=True):
        if option == "--signal":
            assert offered > OPTIONS[option]
            assert "STOP" not in offered
            continue
        taken = FORMATS.get(command) if option == "--format" else OPTIONS.get(option)
        # Of a report, --from is a time.
        expected = None if (command, option) == ("report", "--from") else taken
        assert offered == (expected or set()), line


@pytest.mark.slow
@needs("bash")
def test_bash_offers_for_each_operand_what_the_command_takes(folder: Path) -> None:
    lines = sorted({*COMMANDS, *OPERANDS, *NOTHING, "--prometheus"})
    for line, offered in zip(lines, offered_by_bash(folder, lines), strict=True):
        assert offered == OPERANDS.get(line, set()), line


@needs("bash")
@pytest.mark.parametrize(
    ("before", "typed", "expected"),
    [
        ("", "sn", {"snapshot"}),
        ("snapshot", "--fo", {"--format"}),
        ("snapshot --format", "j", {"json"}),
        ("completion", "z", {"zsh"}),
        ("--theme", "am", {"amber"}),
        ("theme show", "nor", {"nord"}),
        ("--columns", "pid,us", {"pid,user"}),
        ("--columns", "user,us", set()),
        ("--columns", "comm", {"command"}),
        ("--gpus", "1", {"1", "10"}),
        ("--gpus", "0,1", {"0,1", "0,10"}),
        ("--gpus", "1,1", {"1,10"}),
    ],
)
def test_bash_completes_what_was_begun_and_each_part_of_a_list(
    folder: Path, before: str, typed: str, expected: set[str]
) -> None:
    ask = ASK.replace(" '')", ")").replace('gpumon "" ', f'gpumon "{typed}" ')
    assert offered_by_bash(folder, [f"{before} {typed}"], ask) == [expected]


@needs("bash")
def test_what_bash_offers_is_taken(folder: Path) -> None:
    """Each name that is offered for an option stands on its command line."""
    lines = [f"{name} -" for name in ("", *COMMANDS)]
    ask = ASK.replace(" '')", ")").replace('"$function" gpumon ""', '"$function" gpumon "-"')
    root = make_parser()
    parsers = [root, *(root.commands[name] for name in COMMANDS)]
    for parser, offered in zip(parsers, offered_by_bash(folder, lines, ask), strict=True):
        shown = [action for action in parser.options() if action.help != argparse.SUPPRESS]
        assert offered == {name for action in shown for name in action.option_strings}


@pytest.mark.slow
@needs("zsh")
def test_zsh_offers_what_the_command_takes(folder: Path) -> None:
    with Screen(
        ["zsh", "-f", "-i"], {**environment(folder), "PS1": "ready> "}, cwd=folder / "here"
    ) as screen:
        screen.wait_for("ready>")
        setup = 'autoload -Uz compinit; compinit -u -D; eval "$(<../zsh)"'
        screen.send(f"{setup}; echo set''up\r".encode())
        screen.wait_for(r"(?m)^setup\nready>")
        for typed, completed in (
            ("alert test hot", r"alert test hot-gpu"),
            ("alert test too", r"alert test too\\ hot\\;\\ "),
            ("theme show nor", "theme show nord"),
            ("help snap", "help snapshot"),
            ("end --signal KI", "end --signal KILL"),
            ("log run.c", r"log run\.csv"),
            ("log no", r"log notes\.txt"),
            ("replay ru", r"replay run\.csv"),
            ("replay ol", r"replay old\.csv\.gz"),
            ("replay fo", "replay folder/"),
            ("replay no", "replay noX"),
            ("--gpus 0,10,", "--gpus 0,10,X"),
            ("--columns pid,comm", "--columns pid,command"),
        ):
            # What is typed next stands behind what was completed, or behind what was typed.
            screen.send(f"\x15gpumon {typed}\tX".encode())
            screen.wait_for(rf"gpumon {completed}")


def test_fish_has_the_same_values(folder: Path) -> None:
    script = (folder / "fish").read_text()
    assert script.count("(_gpumon_alerts)") == 1
    assert script.count("(_gpumon_signals)") == 1
    alerts = script.partition("function _gpumon_alerts\n")[2].partition("\nend")[0]
    assert set(shlex.split(alerts.partition("printf '%s\\n'")[2])) == ALERTS


@pytest.mark.parametrize(
    "shell", [pytest.param(name, marks=needs(name)) for name in ("zsh", "fish")]
)
def test_other_shells_can_read_their_scripts(shell: str, folder: Path, tmp_path: Path) -> None:
    # fish creates its folder there.
    env = os.environ | {"XDG_CONFIG_HOME": str(tmp_path)}
    subprocess.run([shell, "-n", str(folder / shell)], env=env, check=True)
