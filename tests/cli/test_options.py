"""Options × commands: each option has its effect, or is refused before anything happens.

An option without effect is worse than none: ``gpumon end 4711 --prometheus URL`` must not end the
process 4711 of this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpumon.cli.commands import COMMANDS
from gpumon.cli.commands import command as command_of
from gpumon.cli.dashboard import DashboardCommand
from gpumon.cli.machine_options import FleetOptions
from gpumon.cli.option_groups import OptionGroup
from gpumon.cli.parser import make_parser
from tests.command import run_gpumon, run_here, write_config
from tests.driver import Driver, Owner, h100
from tests.prometheus.hostile import answering, http

pytestmark = pytest.mark.slow

GENERAL = {
    "--gpus": ["--gpus", "0"],
    "--user": ["--user", "ann"],
    "--filter": ["--filter", "ann"],
    "--backend": ["--backend", "nvml"],
    "--demo": ["--demo"],
    "--ascii": ["--ascii"],
    "--interval": ["--interval", "2"],
    "--readonly": ["--readonly"],
    "--log": ["--log", "log.csv"],
    "--no-commands": ["--no-commands"],
    "--no-history": ["--no-history"],
    "--columns": ["--columns", "pid"],
    "--theme": ["--theme", "nord"],
    "--hosts": ["--hosts", "box"],
    "--ssh": ["--hosts", "box", "--ssh", "ssh -v"],
    "--prometheus": ["--prometheus", "http://127.0.0.1:9"],
    "--match": ["--prometheus", "http://127.0.0.1:9", "--match", 'job="a"'],
}
"""The options that may stand before a command, each with what it needs."""

SAMPLES = "--gpus --user --backend --demo --ascii"
SSH = "--hosts --ssh"
PROMETHEUS = "--prometheus --match"
TAKEN = {
    "snapshot": f"{SAMPLES} --filter {SSH} {PROMETHEUS}",
    "log": f"{SAMPLES} --interval --no-commands {SSH}",
    "exporter": "--gpus --backend --demo --ascii --interval",
    "serve": f"{SAMPLES} --filter --interval --columns --theme {SSH} {PROMETHEUS}",
    "watch": "--gpus --backend --demo --ascii --interval --no-history",
    "alert": "",
    "stream": "--gpus --backend --demo --interval",
    "replay": "--ascii --theme",
    "report": "--ascii",
    "theme": "",
    "config": "",
    "completion": "",
    "select": f"--gpus --backend --demo --ascii {SSH} {PROMETHEUS}",
    "run": "--gpus --backend --demo --ascii",
    "wait": "--gpus --backend --demo --ascii",
    "end": f"--readonly --backend --demo --ascii {SSH}",
    "remote": "--readonly --backend --demo",
    "topo": "--gpus --backend --demo --ascii",
    "doctor": "--ascii",
    "help": "",
    "version": "",
}
"""What each command takes, before its name and after it."""

OPERANDS = {
    "alert": ["list"],
    "replay": ["run.csv"],
    "report": ["run.csv"],
    "theme": ["list"],
    "config": ["path"],
    "completion": ["bash"],
    "run": ["--", "true"],
    "end": ["4711", "--yes"],
}


def line(command: str, option: Sequence[str], *, before: bool) -> list[str]:
    operands = OPERANDS.get(command, [])
    return [*option, command, *operands] if before else [command, *option, *operands]


def test_the_table_has_every_command_and_every_option_before_one() -> None:
    parser = make_parser()
    options = [action.option_strings[-1] for action in parser.options()]
    assert set(TAKEN) == set(COMMANDS)
    assert set(GENERAL) == set(options) - {"--help", "--version"}


def test_an_option_that_is_not_given_is_none_for_every_command() -> None:
    parser = make_parser()
    shared = DashboardCommand().defaults()
    assert {action.dest for action in parser.options()} == {*shared, "help", "version"}
    for command in TAKEN:
        read = vars(parser.parse_args(line(command, [], before=True)))
        assert {name: read[name] for name in shared} == shared


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_two_dashes_behind_an_equals_sign_are_a_value(name: str | None) -> None:
    parser = make_parser()
    chosen = parser if name is None else parser.commands[name]
    for action in chosen.options():
        arguments = [f"{action.option_strings[-1]}=--", *OPERANDS.get(name or "", [])]
        with contextlib.suppress(SystemExit):  # It is not valid for most.
            assert vars(chosen.parse_args(arguments))[action.dest]


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_a_command_takes_the_groups_that_it_names(name: str | None) -> None:
    declared = command_of(name)
    missing = [
        attribute
        for attribute, value in vars(type(declared)).items()
        if isinstance(value, OptionGroup) and value not in declared.groups
    ]
    assert missing == [], "these are not in its groups"


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_what_has_an_effect_on_other_machines_is_an_option_of_the_command(name: str | None) -> None:
    parser = make_parser()
    chosen = parser if name is None else parser.commands[name]
    options = {action.option_strings[-1] for action in chosen.options()}
    for group in command_of(name).groups:
        # The dashboard has other rules for a sample.
        for fleet in (group, *vars(group).values()):
            if isinstance(fleet, FleetOptions):
                assert set().union(*fleet.accepted.values()) <= options


@pytest.mark.parametrize("option", GENERAL)
@pytest.mark.parametrize("command", TAKEN)
def test_an_option_is_taken_on_both_sides_of_a_command_or_refused_on_both(
    command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [line(command, GENERAL[option], before=before) for before in (True, False)]
    if option in TAKEN[command].split():
        before, after = (make_parser(words).parse_args(words) for words in both)
        assert before == after
        assert before != make_parser([command]).parse_args(line(command, [], before=True))
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    if (command, option) == ("run", "--log"):
        both.pop()  # After its name it has a --log of its own.
    said = {run_refused(words) for words in both}
    assert list(tmp_path.iterdir()) == []
    (sentence,) = said
    named = GENERAL[option][0]
    assert sentence.startswith(f"gpumon: {named} ")
    assert f"gpumon {command}" in sentence
    other = named == "--prometheus" and "--hosts" in TAKEN[command].split()
    assert ("use --hosts" in sentence) == other


def run_refused(words: list[str]) -> str:
    """Run a line that is refused, and return the sentence that says why."""
    done = run_here(*words)
    assert (done.returncode, done.stdout) == (2, ""), words
    assert re.fullmatch(r"gpumon: [^\n]+\n", done.stderr), words
    return done.stderr


# With other machines, and with simulated ones

WITH_HOSTS = {
    "snapshot": "--user --filter --format --processes --timeout",
    "log": "--interval --for --rotate --keep --no-commands --user",
    "serve": "--interval --columns --theme --port --address --visitors --demo",
    "select": (
        "--count --free --total --util --temp --processes --model --arch --capability --gpus --not "
        "--mig --stable --format --verbose --timeout"
    ),
    "end": "--signal --children --dry-run --yes --timeout --format --readonly",
}
WITH_PROMETHEUS = {
    "snapshot": "--format --timeout",
    "serve": "--interval --columns --theme --port --address --visitors",
    "select": WITH_HOSTS["select"],
}
VALUES = {
    "--alerts": "alerts.toml",
    "--format": "json",
    "--from": "past.csv",
    "--lock-dir": "locks",
    "--rotate": "100M",
    "--free": "20G",
    "--total": "20G",
    "--model": "h100",
    "--arch": "hopper",
    "--columns": "pid",
    "--theme": "nord",
    "--address": "127.0.0.1",
    "--signal": "KILL",
    "--backend": "nvml",
    "--user": "ann",
    "--filter": "ann",
    "--timeout": "3s",
}
NEEDED = {
    "--from": ["--stable", "5s"],
    "--keep": ["--rotate", "100M"],
    "--processes": ["--format", "csv"],
}


def own_options(command: str) -> list[argparse.Action]:
    """The options of a command but those that name the machines, and --help."""
    names = {"--help", *SSH.split(), *PROMETHEUS.split(), "--ascii"}
    return [
        action
        for action in make_parser().commands[command].options()
        if action.option_strings[-1] not in names and action.help != argparse.SUPPRESS
    ]


@pytest.mark.parametrize(
    ("target", "table"),
    [("--hosts", WITH_HOSTS), ("--prometheus", WITH_PROMETHEUS)],
    ids=["hosts", "prometheus"],
)
@pytest.mark.parametrize("command", WITH_HOSTS)
def test_every_option_has_an_effect_on_other_machines_or_is_refused_with_them(
    target: str,
    table: dict[str, str],
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if command not in table:
        return  # It does not take the target: see the table above.
    monkeypatch.chdir(tmp_path)
    from gpumon.cli.parser import parse

    for option in own_options(command):
        name = option.option_strings[-1]
        value = [] if option.nargs == 0 else [VALUES.get(name, "2")]
        needed = [] if (command, name) == ("select", "--processes") else NEEDED.get(name, [])
        words = line(command, [*GENERAL[target], *needed, name, *value], before=False)
        if name in table[command].split():
            parse(words)
            continue
        assert name in run_refused(words)
    assert list(tmp_path.iterdir()) == []


# What takes other machines reads these, and never this one


@pytest.fixture
def driver() -> Iterator[Driver]:
    with Driver([h100()]) as made:
        made.cards[0].processes = [Owner(os.getpid(), memory=2**30)]
        yield made


def run(driver: Driver, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_gpumon(*words, env={**driver.env(), "XDG_CONFIG_HOME": str(folder)}, cwd=folder)


READING = {
    "dashboard": [],
    "snapshot": ["snapshot"],
    "select": ["select"],
    "log": ["log", "run.csv", "--for", "0.1s"],
    "end": ["end", str(os.getpid()), "--yes"],
}


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_hosts_are_reached_over_ssh(
    command: str, before: bool, driver: Driver, tmp_path: Path
) -> None:
    client = tmp_path / "client"
    client.write_text('#!/bin/sh\necho "$@" >> reached\nexit 255\n')
    client.chmod(0o755)
    named = ["--hosts", "box", "--ssh", shlex.quote(str(client))]
    words = READING[command]
    done = run(driver, tmp_path, *([*named, *words] if before else [*words, *named]))
    assert done.returncode == 1
    assert "box: " in done.stderr
    assert "box" in (tmp_path / "reached").read_text()
    assert not driver.calls()
    assert not (tmp_path / "run.csv").exists()


@pytest.mark.parametrize("command", ["dashboard", "snapshot", "select"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_prometheus_is_asked(command: str, before: bool, driver: Driver, tmp_path: Path) -> None:
    words = READING[command]
    with answering(http(b"", "503 Service Unavailable")) as server:
        named = ["--prometheus", f"http://127.0.0.1:{server.port}"]
        done = run(driver, tmp_path, *([*named, *words] if before else [*words, *named]))
    assert done.returncode == 1
    assert server.requests
    assert not driver.calls()


@pytest.mark.parametrize("words", [["--prometheus"], ["--prometheus", "http://127.0.0.1:9"]])
def test_prometheus_of_the_configuration_ends_no_process_here(
    words: list[str], driver: Driver, tmp_path: Path
) -> None:
    write_config(tmp_path, '[prometheus]\nurl = "http://127.0.0.1:9"\n')
    with subprocess.Popen(["sleep", "3600"]) as victim:
        driver.cards[0].processes = [Owner(victim.pid, memory=2**30)]
        try:
            for line_ in (
                ["end", str(victim.pid), "--yes", *words],
                [*words, "end", str(victim.pid), "--yes"],
            ):
                done = run(driver, tmp_path, *line_)
                assert (done.returncode, done.stdout) == (2, "")
            assert victim.poll() is None
        finally:
            victim.kill()
    assert not driver.calls()
