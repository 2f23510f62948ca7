"""The command line as argparse knows it: commands, options, and what help says of them."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from gpumon import __version__
from gpumon.cli import values
from gpumon.cli.help import Parser, RawFormatter
from gpumon.cli.plain import LEAST_INTERVAL, LOG_INTERVAL, LONGEST_INTERVAL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gpumon.cli.help import Command

_DESCRIPTION = "What the GPUs of this machine do, and whose work it is."
_EXAMPLES = """\
examples:
  gpumon                          the dashboard, a sample every half second
  gpumon -n 0.1                   ten samples a second
  gpumon --gpus 0,2-3 --user ann  some cards, one user's processes
  gpumon --demo                   a machine that does not exist, to look around
  gpumon snapshot --format json   one sample for a program to read
  gpumon log run.csv --for 8h     a log without a screen, a sample a second
  gpumon --theme solarized-light  other colours; T chooses them by eye

Where standard output is no terminal, gpumon prints what gpumon snapshot does.
"""
_HEADINGS = """\
headings of the table:
  COVERED             for how long samples tell of the card
  UTIL%, SM%          mean utilisation of a card, SM share of who uses it
  MED, P95            what that did not exceed for 50 and 95 % of the time
  MEAN-GiB, PEAK-GiB  GPU memory in use
  BUSY, IDLE          hours with utilisation, and without though in use
  GPU-H               hours times cards with a process that computes
  kWh, Wh             energy
  HEAT, BRAKE         for how long slowed down by heat, by the power brake,
  HW-SLOW, CAPPED     by the hardware for neither, held at the power limit
  GAPS                how often samples are missing, and for how long

A dash is unknown, * known for a part of the time.
"""


def make_parser(arguments: Collection[str] | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line.

    Args:
        arguments: What it is made to read. A command that is not among them gets nothing but its
            name, which takes a fifth of the time; without this all are whole.
    """
    shown = _common(filtered=True)
    parser = Parser(
        prog="gpumon",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        parents=[shown, _drawing()],
        formatter_class=RawFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gpumon {__version__}")
    pace = parser.add_argument_group("how often")
    pace.add_argument(
        "-n",
        "--interval",
        metavar="SECONDS",
        type=values.interval,
        help=f"seconds between samples, {LEAST_INTERVAL:g} to {LONGEST_INTERVAL:g}, "
        f"as in watch (default: 0.5 or what the configuration says, for a log {LOG_INTERVAL:g})",
    )
    screen = parser.add_argument_group("the dashboard")
    screen.add_argument(
        "--readonly",
        action="store_true",
        help="never send a signal to any process, whatever key is pressed",
    )
    screen.add_argument(
        "--log",
        metavar="FILE",
        help="log to this CSV file from the start; the key L stops and starts it",
    )
    screen.add_argument(
        "--no-commands",
        dest="commands",
        action="store_false",
        help="leave command lines, which can hold secrets, out of the log",
    )
    screen.add_argument(
        "--columns",
        metavar="LIST",
        type=values.columns,
        help="columns of the process table, in order, such as pid,user,memory_used,command",
    )
    _add_theme_choice(screen)
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", parser_class=Parser
    )
    for name, (about, add) in _COMMANDS.items():
        if arguments is None or name in arguments:
            add(partial(commands.add_parser, name, help=about))
        else:
            commands.add_parser(name, help=about)
    return parser


def _drawing() -> Parser:
    """What every command takes: how it writes what a person reads."""
    drawing = Parser(add_help=False)
    drawing.add_argument_group("how to draw").add_argument(
        "--ascii",
        action="store_true",
        default=argparse.SUPPRESS,
        help="draw with ASCII alone (default: as the locale says; GPUMON_ASCII=1 says it too)",
    )
    return drawing


def _common(*, filtered: bool) -> Parser:
    """What most commands take: which cards and processes, of which machine."""
    common = Parser(add_help=False)
    what = common.add_argument_group("what to show")
    what.add_argument(
        "--gpus",
        metavar="LIST",
        type=values.selection,
        default=argparse.SUPPRESS,
        help="only these cards: indices, ranges, UUIDs or their beginnings, such as 0,2-3,GPU-1a2b",
    )
    what.add_argument(
        "--user",
        metavar="NAME",
        type=values.user,
        default=argparse.SUPPRESS,
        help="only this user's processes",
    )
    if filtered:
        what.add_argument(
            "--filter",
            metavar="TERMS",
            type=values.filter_terms,
            default=argparse.SUPPRESS,
            help="only the processes that match, such as 'user:ann mem>10G !idle>1h'; the help "
            "page of the dashboard lists the terms",
        )
    what.add_argument(
        "--demo",
        action="store_true",
        default=argparse.SUPPRESS,
        help="a simulated machine with eight cards; needs no GPU",
    )
    return common


def _add_snapshot(command: Command) -> None:
    snapshot = command(
        parents=[_common(filtered=True), _drawing()],
        description="Print one sample and exit. docs/snapshot.md describes the formats.",
    )
    snapshot.add_argument(
        "--format",
        choices=("table", "json", "csv", "prometheus"),
        default="table",
        help="for a person, or for a program (default: %(default)s)",
    )
    snapshot.add_argument(
        "--processes",
        action="store_true",
        help="with --format csv: a row for each process and card in place of a row for each card",
    )


def _add_log(command: Command) -> None:
    log = command(
        parents=[_common(filtered=False), _drawing()],
        description="Log to two CSV files, the cards' and the processes', until the time is over, "
        "Ctrl+C or SIGTERM; standard error says how it goes. docs/log.md describes the files.",
    )
    log.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="the cards' file, run.csv for instance, with run.processes.csv beside it; a log that "
        "is there is continued; a directory gets one with the default name (default: "
        "gpumon-HOST-DATE-TIME.csv)",
    )
    log.add_argument(
        "-n",
        "--interval",
        metavar="SECONDS",
        type=values.interval,
        default=argparse.SUPPRESS,
        help=f"seconds between samples, {LEAST_INTERVAL:g} to {LONGEST_INTERVAL:g} "
        f"(default: {LOG_INTERVAL:g})",
    )
    log.add_argument(
        "--for",
        metavar="TIME",
        dest="seconds",
        type=values.timespan,
        help="end after this long, counted from the first sample: 90, 30s, 15m, 1h30m, 2d",
    )
    log.add_argument(
        "--rotate",
        metavar="SIZE",
        type=values.rotation,
        help="move the files aside, to run.part0001.csv and so on, whenever one of them is longer "
        "than this: 100M, 1.5G; powers of 1024",
    )
    log.add_argument(
        "--keep",
        metavar="NUMBER",
        type=values.keep,
        help="with --rotate: remove the oldest of those when there are more (default: keep all)",
    )
    log.add_argument(
        "--no-commands",
        dest="commands",
        action="store_false",
        default=argparse.SUPPRESS,
        help="leave out command lines, which can hold secrets",
    )


def _add_replay(command: Command) -> None:
    replay = command(
        parents=[_drawing()],
        description="Show a log as it was: gpumon's own, its rotated and compressed parts with it, "
        "or what nvidia-smi --query-gpu=timestamp,... --format=csv -l wrote. p plays and pauses.",
    )
    replay.add_argument(
        "file",
        metavar="FILE",
        help="any file of the log, a rotated part too: the whole log is shown",
    )
    replay.add_argument(
        "--at",
        metavar="TIME",
        help="begin there, not at the beginning: 03:00, '2025-03-01 03:00', or -8h from the end",
    )
    replay.add_argument(
        "--speed",
        metavar="TIMES",
        type=values.speed,
        default=1.0,
        help="how many times as fast as it happened, 0.1 to 1000 (default: %(default)g)",
    )
    replay.add_argument("--paused", action="store_true", help="begin held still")
    _add_theme_choice(replay)


def _add_report(command: Command) -> None:
    report = command(
        parents=[_drawing()],
        description="What logs come to: memory, utilisation, hours busy and idle, energy, errors.\n"
        "docs/report.md describes the figures.",
        epilog=_HEADINGS,
        formatter_class=RawFormatter,
    )
    report.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="any file of each log, a rotated part too: the whole log is read",
    )
    report.add_argument(
        "--by",
        choices=("gpu", "user", "process", "job"),
        default="gpu",
        help="whom the figures are of (default: %(default)s)",
    )
    times = "2025-03-01, '2025-03-01 03:00', 03:00, 'yesterday 03:00' or -8h"
    report.add_argument("--from", metavar="TIME", dest="first", help=f"not before: {times}")
    report.add_argument("--to", metavar="TIME", dest="last", help="nor after, likewise")
    report.add_argument(
        "--format",
        choices=("table", "json", "csv"),
        default="table",
        help="for a person, or for a program (default: %(default)s)",
    )
    report.add_argument(
        "--plot", action="store_true", help="draw utilisation and memory of the cards as well"
    )


def _add_theme_choice(to: argparse._ActionsContainer) -> None:
    to.add_argument(
        "--theme",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help="colours of the dashboard; gpumon theme list names them, the key T chooses",
    )


def _add_theme(command: Command) -> None:
    theme = command(
        description="Themes: gpumon's own, Textual's, and yours, which are TOML files. "
        "docs/themes.md describes them.",
    )
    actions = theme.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="every theme's name")
    show = actions.add_parser(
        "show",
        help="a sample in colours on a terminal, else the theme as a file",
    )
    show.add_argument("name", metavar="NAME")
    check = actions.add_parser(
        "check",
        help="say what is wrong with a theme file; the exit status is 0 when it can be used, 1 "
        "when not, 2 when there is no such file",
    )
    check.add_argument("file", metavar="FILE")


def _add_config(command: Command) -> None:
    config = command(
        description="The configuration; docs/config.md describes it. The command line goes over "
        "the environment (GPUMON_INTERVAL, ...), the environment over the file, the file over "
        "the defaults.",
    )
    config.add_argument(
        "what",
        metavar="path|init|check|show",
        choices=("path", "init", "check", "show"),
        help="tell where the file is; write one with all defaults, commented out; say what is "
        "wrong, with status 1 if anything is; tell what holds and where it comes from",
    )


def _add_completion(command: Command) -> None:
    completion = command(
        description="Print what a shell needs to complete gpumon's command line. "
        'For bash, in ~/.bashrc: eval "$(gpumon completion bash)"; for zsh likewise with zsh, in '
        "~/.zshrc after compinit; for fish, in config.fish: gpumon completion fish | source",
    )
    completion.add_argument(
        "shell",
        metavar="bash|zsh|fish",
        choices=("bash", "zsh", "fish"),
        help="the shell it is for",
    )


def _add_select(command: Command) -> None:
    from gpumon.cli.scheduling import add_select

    add_select(command, [_drawing()])


def _add_run(command: Command) -> None:
    from gpumon.cli.scheduling import add_run

    add_run(command, [_drawing()])


def _add_wait(command: Command) -> None:
    from gpumon.cli.wait import add_wait

    add_wait(command, [_drawing()])


def _add_doctor(command: Command) -> None:
    from gpumon.cli.doctor import add_doctor

    add_doctor(command, [_drawing()])


_COMMANDS: dict[str, tuple[str, Callable[[Command], None]]] = {
    "snapshot": ("print one sample and exit", _add_snapshot),
    "log": (
        "log to CSV files without a screen, for tmux, nohup, a service or a job script",
        _add_log,
    ),
    "replay": ("show a log as it was, in the same screens", _add_replay),
    "report": ("what logs come to: by card, user, process or job", _add_report),
    "theme": ("which themes there are, what one looks like, whether a file is one", _add_theme),
    "config": (
        "the configuration: where it is, a first one, what is wrong with it, what holds",
        _add_config,
    ),
    "completion": ("print what a shell needs to complete gpumon's command line", _add_completion),
    "select": ("print cards that are free, for CUDA_VISIBLE_DEVICES", _add_select),
    "run": ("run a command on cards that are free, and keep them for it", _add_run),
    "wait": ("wait until cards are free, idle or cool, or until a process has ended", _add_wait),
    "doctor": (
        "what is installed, whether it can work, and what to do where it cannot",
        _add_doctor,
    ),
}
"""Each command: its line in the list of all, and what adds it."""
