"""What a command line may not have is one sentence, before anything is read or written."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from argparse import SUPPRESS, Action
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.cli.commands import COMMANDS
from gpumon.cli.parser import make_parser, parse
from tests.absent import ABSENT
from tests.cli.test_options import GENERAL, OPERANDS, TAKEN
from tests.command import run_here

ROOT = Path(__file__).parents[2]
SENTENCE = re.compile(r"gpumon: [^\n]+\n")
VALUES = ("", "no-such", "a\nb", "\x1b]0;x\x07\x9b2J\u202e", "9" * 5000, "-1", "nan", "٣", "\udcff")


def options_of(command: str) -> list[Action]:
    """The options of a command, or of the dashboard, that ``--help`` shows."""
    parser = make_parser()
    options = (parser.commands[command] if command else parser).options()
    return [action for action in options if action.help != SUPPRESS and action.nargs != "?"]


EVERY_COMMAND = ["", *COMMANDS]
OPTIONS = {
    f"{command} {action.option_strings[-1]}".strip(): action
    for command in EVERY_COMMAND
    for action in options_of(command)
}
"""Every option, as it is typed behind its command."""
WITH_VALUE = [line for line, action in OPTIONS.items() if action.nargs != 0]
READERS = {(OPTIONS[line].dest, repr(OPTIONS[line].type)): line for line in WITH_VALUE}
"""An option for each way to read a value: those that all commands share are the same object."""


def fault_of(line: list[str]) -> str | None:
    """What is said of a line that is refused; nothing of one that is valid."""
    status: object = 0
    with contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            parse(line)
        except SystemExit as ended:
            status = ended.code
    assert status == (2 if err.getvalue() else 0), line
    return err.getvalue() or None


@pytest.mark.parametrize("option", READERS.values())
def test_any_value_of_any_option_is_valid_or_a_printable_sentence(option: str) -> None:
    *command, name = option.split()
    for value in VALUES:
        said = fault_of([*command, f"{name}={value}", *OPERANDS.get("".join(command), [])])
        assert said is None or SENTENCE.fullmatch(said), value
        assert said is None or said[:-1].isprintable(), value


@pytest.mark.parametrize("option", READERS.values())
def test_an_option_without_its_value_is_a_sentence_that_names_it(option: str) -> None:
    said = fault_of(option.split())
    assert said is not None
    assert SENTENCE.fullmatch(said)
    assert f"{'/'.join(OPTIONS[option].option_strings)}: expected " in said


@pytest.mark.parametrize("command", EVERY_COMMAND)
def test_the_help_names_every_option_and_the_page_of_its_command(command: str) -> None:
    shown = run_here(*command.split(), "--help").stdout
    names = [action.option_strings[-1] for action in options_of(command)]
    assert [name for name in names if name not in shown] == []
    page = f"docs/{command}.md"
    assert page in shown or not (ROOT / page).exists()


@pytest.mark.parametrize("command", EVERY_COMMAND)
def test_the_help_fits_eighty_columns(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = run_here(*command.split(), "--help").stdout
    assert max(map(len, shown.splitlines())) <= 80


def test_a_switch_may_be_given_twice_and_of_two_choices_the_last_counts() -> None:
    parser = make_parser()
    for option, action in OPTIONS.items():
        *command, name = option.split()
        values = [[name], [name]]
        if action.choices is not None:
            first, *_, last = action.choices
            values = [[name, first], [name, last]]
        elif action.nargs != 0 or action.dest in {"help", "version"}:
            continue
        end = OPERANDS.get("".join(command), [])
        once = parser.parse_args([*command, *values[1], *end])
        assert parser.parse_args([*command, *values[0], *values[1], *end]) == once, option


@pytest.mark.slow
@settings(max_examples=20)
@given(st.data())
def test_the_order_of_options_and_their_side_of_the_command_mean_nothing(
    data: st.DataObject,
) -> None:
    command = data.draw(st.sampled_from([name for name in TAKEN if " " in TAKEN[name]]))
    options = [GENERAL[name] for name in TAKEN[command].split()]
    shuffled = data.draw(st.permutations(options))
    before = data.draw(st.integers(0, len(options)))
    first, then, sorted_ = (
        list(chain(*part)) for part in (shuffled[:before], shuffled[before:], options)
    )
    parser, end = make_parser(), OPERANDS.get(command, [])
    line = [*first, command, *then, *end]
    assert parser.parse_args(line) == parser.parse_args([command, *sorted_, *end])


# Each kind of mistake once, by what is said of it

NO_COMMAND = "gpumon: there is no command"
UNKNOWN = "gpumon: unrecognized arguments:"


REFUSED = {
    # The line as a whole.
    "helo": f"{NO_COMMAND} 'helo'; the nearest is 'help'; see gpumon --help",
    "snapsot": f"{NO_COMMAND} 'snapsot'; the nearest is 'snapshot'",
    "help snapsot": f"{NO_COMMAND} 'snapsot'; the nearest is 'snapshot'; see gpumon help",
    "help no-such-command": f"{NO_COMMAND} 'no-such-command'",
    "xyz": f"{NO_COMMAND} 'xyz'; there are {', '.join(COMMANDS)}; see gpumon --help",
    "-n 2 helo --nope": f"{NO_COMMAND} 'helo'; ",
    "--filter - helo": f"{NO_COMMAND} 'helo'; ",
    "--log -8 snapshit": f"{NO_COMMAND} 'snapshit'; ",
    "--nonsense": f"{UNKNOWN} --nonsense",
    "--config a.toml alert list": f"{UNKNOWN} --config; see gpumon --help",
    "--demo -c a.toml alert list": f"{UNKNOWN} -c; see gpumon --help",
    "--config=a.toml alert list": f"{UNKNOWN} --config=a.toml; see gpumon --help",
    "log -8h": f"{UNKNOWN} -8h; see gpumon log --help",
    "run -8h": f"{UNKNOWN} -8h; see gpumon run --help",
    "log --demo --fo 5": f"{UNKNOWN} --fo",
    "log one.csv two.csv": f"{UNKNOWN} two.csv",
    "version x": f"{UNKNOWN} x; see gpumon version --help",
    "theme list x": f"{UNKNOWN} x; see gpumon theme list --help",
    "--user -8h": "gpumon: argument --user: expected one argument; see gpumon --help",
    "end -1": "gpumon: ",
    "run": "there is no command to run: write it after --",
    # Numbers, times and sizes.
    "-n 0.09": "'0.09' is not a number of seconds from 0.1 to 3600",
    "-n 3600.1": "'3600.1' is not a number of seconds from 0.1 to 3600",
    "-n nan": "'nan' is not a number of seconds",
    "-n inf": "'inf' is not a number of seconds",
    "-n -1": "'-1' is not a number of seconds",
    "-n ''": "'' is not a number of seconds",
    "-n soon": "'soon' is not a number of seconds",
    "--interval=0": "'0' is not a number of seconds",
    "log -n 0.01": "'0.01' is not a number of seconds from 0.1 to 3600",
    "stream -n 0.01": "'0.01' is not a number of seconds from 0.1 to 3600",
    "exporter -n 0": "'0' is not a number of seconds from 0.1 to 3600",
    "log --for 0": "'0' is not a length of time",
    "log --for 1y": "cannot read '1y': write seconds, or a time such as 30s, 15m",
    f"log --for {'9' * 400}": "is not a length of time",
    "log --rotate 100": "cannot read '100': write a number with K, M, G or T",
    "log --rotate 1K": "'1K' is not a size for a file: give 64K or more",
    f"log --rotate {'9' * 400}G": "is not a size for a file",
    "log --rotate 1M --keep 0": "'0' is not a number of files to keep",
    "log --local --size 1M": "is not a size for a history",
    "log --local --days 0": "is not a number of days",
    "select -n 0": "'0' is not a number of GPUs: write 2, or 1-4",
    "select -n 4-1": "runs backwards: write 1-4",
    "select -n x": "not a number of GPUs",
    "select --free much": "cannot read 'much': write a number with K, M, G or T",
    "select --total -1": "cannot read '-1'",
    "select --util 101": "more than 100 %",
    "select --temp hot": "not a temperature",
    "select --processes -1": "not a number of processes",
    "select --capability new": "such as 8.0 or 9",
    "select --stable 'a while'": "cannot read 'a while'",
    "select --stable 0": "not a length of time",
    "wait --timeout soon": "cannot read 'soon'",
    "wait --timeout 0": "'0' is not a length of time",
    "wait -n 0": "'0' is not a number of GPUs",
    "run --wait=soon -- true": "cannot read 'soon'",
    "run --wait=0 -- true": "'0' is not a length of time",
    "end 4711 --timeout 0": "is not a length of time",
    # Names.
    "--gpus 3-1": "'3-1'",
    "--gpus 0,eins": "'eins'",
    "--gpus ''": "''",
    "snapshot --gpus x": "'x'",
    "select --gpus a": "cannot read 'a' as a GPU",
    "stream --gpus x-": "x-",
    "--hosts gpu-[9-1]": "gpu-[9-1]",
    "--columns ''": "'' names no column",
    "--columns ' , '": "names no column",
    "snapshot --format xml": "'xml'",
    "select --format yaml": "invalid choice",
    "select --model ,": "contains no name",
    "select --lock-dir ''": "'' is not a folder",
    "wait hot": "'hot'",
    "wait --pid x": "'x' is not a list of PIDs",
    "wait --pid 0": "'0' is not a list of PIDs",
    "wait --pid 1,,2": "'1,,2' is not a list of PIDs",
    "wait --pid 99999999999": "'99999999999'",
    "end 0": "'0' is not a process such as 4711 or 4711:88214033",
    "end 4711:x": "is not a process such as",
    "end 99999999999": "is not a process such as",
    "end 4711 --signal STOP": "STOP ends no process: use kill -STOP",
    "end 4711 --signal _IGN": "'_IGN' is not a signal such as TERM, INT or KILL",
    "exporter --demo --listen nowhere": "'nowhere' is not an address with a port, such as",
    "exporter --demo --listen 127.0.0.1:65536": "is not an address with a port",
    "exporter --demo --listen ::1:9835": "is not an address with a port",
    "exporter --demo --listen http://127.0.0.1:1": "is not an address with a port",
    "exporter --demo --listen 192.0.2.1:0": "cannot listen at 192.0.2.1:0: Cannot assign",
    f"exporter --demo --web-config {ABSENT}/web.yml": "web.yml: cannot be read: No such file",
    "exporter --demo --web-config /dev/null": "/dev/null: is not a regular file",
    # What does not go together.
    "--readonly report y.csv": "gpumon: --readonly has no effect on gpumon report: leave it out.",
    "log y.csv --filter ann": "gpumon: --filter has no effect on gpumon log: leave it out.",
    "log y.csv --log x.csv": "gpumon: --log has no effect on gpumon log: leave it out.",
    "snapshot --processes": "--processes",
    "snapshot --processes --format json": "--processes",
    "snapshot --format csv --user ann": "add --processes",
    "--filter ann snapshot --format csv": "add --processes",
    "--hosts a select --from a.csv": "gpumon: --from means this machine: leave out --hosts.",
    "snapshot --hosts a --backend amdgpu": "--backend means this machine: leave out --hosts.",
    "log --keep 3": "--keep needs --rotate",
    "log run.csv --days 3": "--days needs --local",
    "log --local run.csv": "not with a FILE",
    "log --local --keep 3 --rotate 1M": "not with --rotate",
    "log --local --user ann": "not with --user",
    "log --local --hosts a": "--local",
    "log --local --demo": "not with --demo",
    **dict.fromkeys(
        (
            f"--demo --backend nvml {line}"
            for line in (
                "snapshot",
                "select",
                "log",
                "end 4711 --yes",
                "exporter",
                "watch",
                "stream",
            )
        ),
        "--backend",
    ),
    "--demo --backend auto": "--backend",
    "--demo --ssh ssh --hosts a serve": "--ssh",
    "--demo wait --pid 1": "--demo",
    "wait --pid 1 --lock-dir locks": "--pid waits for processes, the other options wait for GPUs",
    "wait --pid 1 --verbose": "--pid waits for processes, the other options wait for GPUs",
    "select --from run.csv": "--from needs --stable",
    "wait --from x.csv": "--from needs --stable",
    "wait --pid 1 idle": "--pid",
    "wait --pid 1 -n 2": "--pid",
    "run --mig -n 2 -- true": "CUDA gives a program only one MIG device",
    "run --demo -- true": "a simulated machine cannot run a command",
}
"""Lines, and what is said of them."""


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_wrong_is_what_is_named(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_here(*shlex.split(line))
    assert (done.returncode, done.stdout) == (2, "")
    assert SENTENCE.fullmatch(done.stderr)
    assert REFUSED[line] in done.stderr
    assert list(tmp_path.iterdir()) == []
