"""The command line as a person meets it: what it says, on which stream, with which status."""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest

from gpumon import __version__
from gpumon.cli.commands import COMMANDS
from gpumon.cli.dashboard import DashboardCommand
from gpumon.cli.output import fail
from gpumon.cli.parser import Formatter, make_parser
from gpumon.makers.source import SourceError
from gpumon.sampling.gpu_sampler import take_one
from gpumon.ui.session import SnapshotBuffer
from tests.build import NOON
from tests.build import snapshot as build_snapshot
from tests.command import GPUMON, run_gpumon, run_here, run_program
from tests.driver import Driver, Owner, h100
from tests.known import known
from tests.lives import until
from tests.nvml_source import NvmlSource
from tests.report.logs import write_log
from tests.screen import PATIENCE, Screen
from tests.threads import wait_for_end

README = Path(__file__).parents[2] / "README.md"


def gpumon(
    *arguments: str, env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run gpumon where nothing is a terminal, and where help is 80 columns wide."""
    return run_gpumon(*arguments, env={**env, "COLUMNS": "80", "NO_COLOR": "1"})


@pytest.fixture
def driver() -> Iterator[Driver]:
    """A card with a process of another PID name space; its time stands still."""
    others = set(threading.enumerate())
    with Driver([h100()]) as made:
        made.set_clock(10.0)
        made.cards[0].processes = [Owner(3_999_999, memory=2**30, sm=7)]
        yield made
    # A driver that is gone lets go of whoever hangs in it.
    wait_for_end(lambda it: it not in others and it.name.startswith("gpumon-"))


# Help


@pytest.fixture(scope="module")
def the_help() -> str:
    done = gpumon("--help")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_help_is_grouped_and_names_every_option(the_help: str) -> None:
    headings = re.findall(r"^([a-zA-Z ]+):$", the_help, re.MULTILINE)
    assert headings == [
        *("examples", "commands to look at GPUs", "commands to choose GPUs", "commands to log"),
        *("commands for many machines", "commands for services", "commands for gpumon itself"),
        *("options", "what to show", "how to draw", "how often", "the dashboard", "other machines"),
    ]
    bodies = re.split(r"^[a-zA-Z ]+:$", the_help, flags=re.MULTILINE)[1:]
    groups = dict(zip(headings, bodies, strict=True))
    for group, names in (
        ("options", ("--help", "--version")),
        ("what to show", ("--gpus", "--user", "--filter", "--demo")),
        ("the dashboard", ("--readonly", "--columns")),
        ("how often", ("--interval SECONDS", "0.1 to 3600", "default: 0.5")),
        ("commands to look at GPUs", ("snapshot",)),
        ("commands for services", ("exporter",)),
    ):
        for name in names:
            assert name in groups[group]
    listed = re.findall(r"^  ([a-z]+) +[a-z]", the_help.partition("options:")[0], re.MULTILINE)
    assert [name for name in listed if name != "gpumon"] == list(COMMANDS)


def test_the_help_begins_with_five_examples_of_what_a_newcomer_does(the_help: str) -> None:
    examples = the_help.partition("examples:\n")[2].partition("\n\n")[0].splitlines()
    for line, words in zip(
        examples,
        ("gpumon  ", "CUDA_VISIBLE_DEVICES=$(gpumon select)", "run --wait", "log ", "report "),
        strict=True,
    ):
        assert words in line


def test_every_example_of_help_and_readme_is_a_command_that_can_be_read(the_help: str) -> None:
    examples = the_help.partition("examples:\n")[2] + README.read_text(encoding="utf-8")
    commands = re.findall(r"(?:^ +|\$\()(gpumon(?: [^\s)]+)*)(?:  |$|\))", examples, re.MULTILINE)
    assert len(commands) >= 10
    for command in commands:
        make_parser().parse_args(shlex.split(command)[1:])


def test_the_versions_of_all_that_a_bug_report_needs_are_a_line_each(driver: Driver) -> None:
    # A driver that hangs answers nothing, and need not be asked.
    driver.system.hang("nvmlInit_v2")
    driver.cards[0].hang()
    done = run_gpumon("--version", env=driver.env())
    assert (done.returncode, done.stderr) == (0, "")
    *ours, nvidia = done.stdout.splitlines()
    python, textual = platform.python_version(), metadata.version("textual")
    assert ours == [f"gpumon {__version__}", f"Python {python}", f"Textual {textual}"]
    assert nvidia.startswith("NVIDIA driver 570.124.06")


@pytest.mark.parametrize("words", [["-V"], ["version"]])
def test_the_versions_have_a_command_and_a_short_option(words: list[str]) -> None:
    done, asked = run_here(*words), run_here("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == asked.stdout
    assert done.stdout.startswith(f"gpumon {__version__}\n")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_a_command_too(command: str) -> None:
    words = [command] if command else []
    done, asked = run_here("help", *words), run_here(*words, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == asked.stdout
    assert done.stdout.startswith(f"usage: {' '.join(['gpumon', *words])} [")


def test_the_help_imports_no_command() -> None:
    program = (
        "import sys; from gpumon.cli import main; main(['--help']);"
        "print(*(name[11:] for name in sys.modules if name.startswith('gpumon.cli.')))"
    )
    done = run_program([sys.executable, "-c", program], check=True)
    assert not set(done.stdout.splitlines()[-1].split()) & set(COMMANDS)


@pytest.mark.parametrize(
    "line",
    ["report --demo --help", "doctor --gpus 0 --help", "alert --gpus 0 -h", "log --theme x -h"],
)
def test_help_is_given_behind_an_option_that_the_command_does_not_take(line: str) -> None:
    done, asked = run_here(*line.split()), run_here("help", line.partition(" ")[0])
    assert (done.returncode, done.stdout, done.stderr) == (0, asked.stdout, "")


def test_help_and_completion_are_ascii_in_any_locale() -> None:
    for words in (*(("help", command) for command in COMMANDS), ("help",)):
        assert run_here(*words).stdout.isascii(), words
    for shell in ("bash", "zsh", "fish"):
        assert run_here("completion", shell).stdout.isascii(), shell


@pytest.mark.parametrize("variables", [{"LANG": "C"}, {"GPUMON_ASCII": "1"}])
def test_what_is_wrong_and_the_names_of_themes_are_ascii_in_such_a_locale(
    variables: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "gpumon" / "themes").mkdir(parents=True)
    (tmp_path / "gpumon" / "themes" / "é.toml").write_text('base = "nord"\n')
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), **variables}
    wrong, themes = gpumon("config", "é", env=env), gpumon("theme", "list", env=env)
    assert (wrong.returncode, themes.returncode) == (2, 0)
    assert "invalid choice: '?' " in wrong.stderr
    assert themes.stdout.startswith("? ")
    assert (wrong.stderr + themes.stdout).isascii()


# Flags


def test_a_log_beside_a_screen_that_cannot_be_is_refused(tmp_path: Path) -> None:
    done = gpumon("--demo", "--log", str(tmp_path / "x.csv"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "use gpumon log" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_time_that_cannot_be_read_names_its_option(tmp_path: Path) -> None:
    log = write_log(tmp_path / "run.csv", [(build_snapshot(), 0.0)])
    with Screen([*GPUMON, "replay", str(log), "--at", "foo"], columns=200) as screen:
        assert screen.wait_end() == 2
        assert "gpumon: --at 'foo' is not a time" in screen.text()


@pytest.mark.parametrize(
    ("text", "seconds"), [("0.1", 0.1), ("3600", 3600.0), ("1000.", 1000.0), (".5", 0.5)]
)
def test_an_interval_is_a_number_of_seconds_between_both_bounds(text: str, seconds: float) -> None:
    assert make_parser().parse_args(["-n", text]).interval == seconds
    assert make_parser().parse_args([]).interval is None  # each command has its own


def test_the_shared_flags_stand_on_either_side_of_the_command() -> None:
    before = make_parser().parse_args(["--demo", "--gpus", "1", "--user", "ann", "snapshot"])
    after = make_parser().parse_args(["snapshot", "--demo", "--gpus", "1", "--user", "ann"])
    assert before == after
    assert (after.demo, after.user, after.gpus.indices) == (True, "ann", frozenset({1}))


# Where gpumon runs


def test_bare_gpumon_prints_a_snapshot_where_standard_output_is_no_terminal(driver: Driver) -> None:
    bare, snapshot = gpumon(env=driver.env()), gpumon("snapshot", env=driver.env())
    assert (bare.returncode, bare.stderr) == (0, "")
    # The first line tells the time and the load of this machine.
    assert bare.stdout.splitlines()[1:] == snapshot.stdout.splitlines()[1:]
    assert "NVIDIA" not in bare.stdout
    assert "H100" in bare.stdout
    assert "3999999" in bare.stdout


def test_no_sentence_can_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail("no\x1b[2Jsuch\u202efile") == 1
    assert capsys.readouterr().err == "gpumon: no\ufffd[2Jsuch\ufffdfile\n"


@pytest.mark.parametrize("set_term", [["env", "TERM=dumb"], ["env", "-u", "TERM"]])
def test_a_terminal_that_cannot_move_its_cursor_is_told_what_to_use(set_term: list[str]) -> None:
    with Screen([*set_term, *GPUMON, "--demo"]) as screen:
        assert screen.wait_end() == 1
        assert "gpumon snapshot" in screen.text()
        assert b"\x1b" not in screen.output


# Drivers that cannot be used

NOT_LOADED, LIBRARY_NOT_FOUND, NO_PERMISSION, MISMATCH = 9, 12, 4, 18
WORDS = {
    NOT_LOADED: "driver is not loaded",
    LIBRARY_NOT_FOUND: r"libnvidia-ml\.so\.1 was not found",
    NO_PERMISSION: "no permission",
    MISMATCH: "version",
}


@pytest.mark.parametrize("code", WORDS)
def test_no_driver_is_one_sentence_and_a_way_to_look_around(driver: Driver, code: int) -> None:
    driver.fail_init(code)
    done = gpumon(env=driver.env())
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"gpumon: [^\n]+ gpumon --demo\n", done.stderr)
    assert re.search(WORDS[code], done.stderr)


@pytest.mark.parametrize(
    "line",
    ["snapshot --format json", "log", "select", "run -- true", "wait", "topo", "end 4711 --yes"],
)
def test_no_driver_is_that_sentence_for_every_command(
    driver: Driver, line: str, tmp_path: Path
) -> None:
    driver.fail_init(NOT_LOADED)
    done = run_gpumon(*line.split(), env=driver.env(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"gpumon: [^\n]+not loaded[^\n]+ gpumon --demo\n", done.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("count", "line", "missing", "there_are"),
    [
        (1, "snapshot --gpus 5", "5", "This machine has only GPU 0."),
        (1, "snapshot --gpus 0,9", "9", "This machine has only GPU 0."),
        (1, "snapshot --gpus 0,GPU-nope", "GPU-nope", "This machine has only GPU 0."),
        (4, "select --gpus 1,9", "9", "This machine has GPUs 0 to 3."),
        (8, "--gpus 9,11", "9, 11", "This machine has GPUs 0 to 7."),
        (
            0,
            "snapshot --demo --gpus 0,6-15",
            "8, 9, 10, 11 and 4 more",
            "The demo has GPUs 0 to 7.",
        ),
    ],
)
def test_a_machine_without_the_gpus_asked_for_names_those_it_has(
    count: int, line: str, missing: str, there_are: str
) -> None:
    with Driver([h100()] * count) as machine:
        done = gpumon(*line.split(), env=machine.env())
    said = f"gpumon: There is no GPU {missing}. {there_are}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_a_user_who_has_no_process_is_said_to_have_none() -> None:
    done = gpumon("snapshot", "--demo", "--user", "nobodyhere")
    assert "0 of 18 processes · of nobodyhere, who has none ─" in done.stdout
    said = "gpumon: nobodyhere has no process on these GPUs\n"
    assert (done.returncode, done.stderr) == (0, said)


def test_a_theme_that_is_not_there_is_refused_where_output_is_no_terminal_too() -> None:
    done = gpumon("--demo", "--theme", "ambre")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gpumon: there is no theme 'ambre'; the nearest is 'amber'.\n"


@pytest.mark.parametrize(
    "function", ["nvmlInit_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo_v2"]
)
def test_a_driver_that_hangs_is_told_when_patience_ends(driver: Driver, function: str) -> None:
    driver.system.hang(function)
    driver.cards[0].hang(function)
    driver.attach()
    began = time.monotonic()
    with pytest.raises(SourceError, match=r"not answered for 0s\. ") as caught:
        take_one(NvmlSource(), patience=0.2)
    # Stopping gives the hung call a second to come back.
    assert time.monotonic() - began < PATIENCE / 4
    assert "dmesg" in caught.value.advice


IMPATIENT = """
from functools import partial
from gpumon.sampling import gpu_sampler
gpu_sampler.take_one = partial(gpu_sampler.take_one, patience=0.2)
from gpumon.cli import main
raise SystemExit(main(["snapshot"]))
"""


def test_a_hung_call_does_not_keep_the_program_from_ending(driver: Driver) -> None:
    driver.system.hang("nvmlInit_v2")
    done = run_program([sys.executable, "-c", IMPATIENT], driver.env())
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"gpumon: The driver has not answered [^\n]+ gpumon --demo\n", done.stderr)


def test_control_c_ends_a_snapshot_that_hangs(driver: Driver) -> None:
    # The call before the one that hangs is counted when it comes back: then the wait has begun.
    driver.system.hang("nvmlSystemGetDriverVersion")
    command = [*GPUMON, "snapshot"]
    program = subprocess.Popen(command, env=driver.env(), stdout=PIPE, stderr=PIPE)
    try:
        until(lambda: "nvmlInit_v2" in driver.calls(), "the first call")
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=PATIENCE)
    finally:
        program.kill()
    assert (program.returncode, out, err) == (130, b"", b"")


INTERRUPTED = """
import signal, sys, time, weakref
module, where = sys.argv[1:]
class Interrupts:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGINT)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != module:
            return
        if where == "a class":
            class Owner:
                attribute = Interrupts()
        if where == "a callback":
            signal.setitimer = slow_setitimer
            self.last = weakref.ref(Finder(), lambda _: signal.raise_signal(signal.SIGINT))
            time.sleep(3600)
        signal.raise_signal(signal.SIGINT)
setitimer = signal.setitimer
def slow_setitimer(*given):
    # As on a busy machine: time is up before its caller returns.
    signal.setitimer = setitimer
    setitimer(*given)
    time.sleep(0.05)
sys.meta_path.insert(0, Finder())
from gpumon.cli import main
sys.exit(main(["--demo"]))
"""
"""Control C while a module is imported, perhaps while that makes a class or runs a callback."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "where"),
    [
        ("gpumon.system.resource_errors", "a function"),
        ("gpumon.system.resource_errors", "a callback"),
        *itertools.product(
            ("gpumon.cli.output", "gpumon.cli.parser", "gpumon.makers.demo"),
            ("a function", "a class", "a callback"),
        ),
    ],
)
def test_control_c_in_the_first_instant_ends_it_without_a_word(module: str, where: str) -> None:
    done = run_program([sys.executable, "-c", INTERRUPTED, module, where])
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


# Where the output leads nowhere


@pytest.fixture
def no_reader() -> Iterator[int]:
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        *("--demo", "snapshot --demo", "select --demo", "--help", "--version", "select --help"),
        *(f"snapshot --demo --format {form}" for form in ("json", "csv", "prometheus")),
        *("run --help", "config show", "completion bash", "theme list"),
    ],
)
def test_a_reader_who_has_gone_is_no_error(line: str, no_reader: int) -> None:
    command = [*GPUMON, *line.split()]
    done = subprocess.run(command, stdin=DEVNULL, stdout=no_reader, stderr=PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--nonsense"], 2),
        (["snapshot", "--demo", "--gpus", "99"], 1),
        (["select", "--demo", "--verbose"], 0),
        (["report", "absent.csv"], 1),
    ],
    ids=str,
)
def test_a_message_that_cannot_be_written_leaves_the_exit_status(
    arguments: list[str], status: int, no_reader: int
) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        for stderr in (no_reader, full):
            program = subprocess.Popen(
                [*GPUMON, *arguments], stdin=DEVNULL, stdout=DEVNULL, stderr=stderr
            )
            assert program.wait(PATIENCE) == status


def test_a_reader_may_stop_after_the_first_line() -> None:
    command = shlex.join([*GPUMON, "snapshot", "--demo", "--format", "prometheus"])
    done = run_program(["sh", "-c", f"{command} | head -n 1"], check=True)
    assert done.stdout.startswith("# HELP DCGM_FI_DEV_")
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        *("--demo", "snapshot --demo --format json", "stream --demo", "config show"),
        *("completion bash", "theme list", "--help", "--version"),
    ],
)
def test_an_output_that_cannot_be_written_is_one_sentence(line: str) -> None:
    done = run_program(["sh", "-c", f"{shlex.join(GPUMON)} {line} >/dev/full"])
    said = "gpumon: cannot write to standard output: No space left on device.\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["--demo", "snapshot --demo --format json"])
def test_an_output_that_is_closed_is_one_sentence(line: str) -> None:
    done = run_program(["sh", "-c", f"{shlex.join(GPUMON)} {line} >&-"])
    assert done.returncode == 1
    assert re.fullmatch(r"gpumon: [^\n]+\n", done.stderr)


@pytest.mark.parametrize("command", ["snapshot", "log", "select", "run", "wait", "theme"])
def test_a_command_reads_the_same_whether_or_not_others_were_made(command: str) -> None:
    arguments = {
        "log": ["--for", "8h"],
        "run": ["-n", "2", "--", "log"],
        "theme": ["show", "gpumon"],
    }.get(command, [])
    line = ["--demo", command, *arguments] if command != "theme" else [command, *arguments]
    assert make_parser(line).parse_args(line) == make_parser().parse_args(line)


@pytest.mark.parametrize("told", ["37", "", "0", "wide"])
def test_help_is_as_wide_as_everybody_elses(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv("COLUMNS", told)
    assert Formatter("gpumon")._width == argparse.HelpFormatter("gpumon")._width


@pytest.mark.parametrize(
    "line", [[], ["-n", "0.1"], ["--interval", "5"], ["-n", "1000."], ["-n", ".5"]], ids=" ".join
)
def test_what_is_read_without_argparse_is_what_argparse_reads(line: list[str]) -> None:
    read = known(DashboardCommand().read_plainly(line))
    assert vars(read) == vars(make_parser().parse_args(line))


@pytest.mark.parametrize(
    "line",
    [
        *(["-n", value] for value in ("0.05", "nan", ".", "٣", "1e3", "1_0", "", "--demo")),
        *(["-n"], ["-n0.1"], ["snapshot"], ["--demo"], ["-n", "1", "--demo"]),
    ],
    ids=" ".join,
)
def test_what_takes_argparse_is_left_to_it(line: list[str]) -> None:
    assert DashboardCommand().read_plainly(line) is None


@pytest.mark.parametrize("line", [[], ["-n", "2"]], ids=" ".join)
def test_the_dashboards_own_line_needs_no_argparse(line: list[str]) -> None:
    program = (
        "import sys; from gpumon.cli import main; status = main(sys.argv[1:]);"
        "print(status, 'argparse' in sys.modules, file=sys.stderr)"
    )
    with Driver([h100()]) as driver:
        command = [sys.executable, "-c", program, *line]
        done = run_program(command, driver.env(), cwd="/", check=True)
    assert done.stderr == "0 False\n"


def test_what_comes_before_its_listener_is_there_comes_first_and_once() -> None:
    early, got = SnapshotBuffer(), list[object]()
    one, two, three = (build_snapshot(NOON + second) for second in range(3))
    early.on_snapshot(one)
    early.on_snapshot(two)
    early.hand_to(got.append)
    early.on_snapshot(three)
    assert got == [one, two, three]
