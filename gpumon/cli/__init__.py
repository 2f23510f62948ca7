"""The command line: reads it, says what is wrong with it, imports a command only when it runs.

Importing this module imports no other: Ctrl+C, or a machine that has run out of something, is
handled from the first line of ``main`` on, and not before.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
"""To import ``typing`` takes longer than all that is imported before ``main``."""
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TextIO

_CHOOSING = ("select", "run", "wait")
_TAKING_MOMENTS = ("report", "replay", "run")
_SOON_THERE = (None, "snapshot", "select", "replay")
"""Commands that end soon, or begin to collect garbage once their screen stands."""
_FOR_THE_DASHBOARD = ("log", "columns", "readonly")
_FOR_SAMPLES = ("gpus", "user", "filter", "demo")
"""What is of no use where nobody looks at the machine."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run gpumon.

    Returns:
        The exit status: 0, 1 when there is nothing to show or nowhere to write, 2 for a command
        line that cannot be read, 130 when interrupted.
    """
    # What is imported stays, and to look through it for garbage takes a tenth of all the time until
    # there is something to see.
    gc.disable()
    try:
        return _flushed(_status(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        gc.enable()


def _status(arguments: Sequence[str]) -> int:
    """Run the command; the exit status if everything it wrote can be flushed."""
    # Needed below, when there may be no file left to read it from.
    from gpumon.lack import causes, lack_behind

    try:
        _open_standard_streams()
        from gpumon.cli.plain import read_plainly

        given = _bound(arguments)
        return _run(read_plainly(given) or _parsed(given))
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        # argparse, after --help and --version too, and run and wait after a signal
        return end.code
    except BrokenPipeError:
        _silence(sys.stdout)
        return 0
    except Exception as error:
        # Where a class is made, Python up to 3.11 raises a RuntimeError in place of what is raised.
        if any(isinstance(one, KeyboardInterrupt) for one in causes(error)):
            return _INTERRUPTED
        lack = lack_behind(error)
        if lack is None:
            raise
        # Without an import: there may be no file left to read one from.
        try:
            sys.stderr.write(f"gpumon: {lack}\n")
        except OSError:
            _silence(sys.stderr)
        return 1


def _flushed(status: int) -> int:
    """Flush both streams; the exit status after that.

    A flush that fails while Python exits is a traceback and the status 120.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
    except OSError as error:
        from gpumon.cli.words import fail

        _silence(sys.stdout)
        status = fail(f"cannot write to standard output: {error.strerror}.")
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        _silence(sys.stderr)
    return status


def _silence(stream: TextIO) -> None:
    from gpumon.cli.common import silence

    silence(stream)


_INTERRUPTED = 128 + 2


def _open_standard_streams() -> None:
    """Open the null device in place of each standard stream that is closed.

    Otherwise the next file that is opened, a log for instance, gets the number of that stream and
    everything that is written there.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # noqa: PERF203 - three times at most
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        # Textual draws on standard error, and fails where there is none.
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the end
        sys.__stderr__ = sys.stderr  # type: ignore[misc]  # final for typeshed, not for Python


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    from gpumon.cli.parser import make_parser

    return make_parser(arguments).parse_args(arguments)


def _bound(arguments: Sequence[str]) -> Sequence[str]:
    # What stands behind run is somebody else's command line.
    if next((one for one in arguments if one in _TAKING_MOMENTS), "run") == "run":
        return arguments
    from gpumon.moments import bind_moments

    return bind_moments(arguments, ("--from", "--to", "--at"))


def _of_no_use(command: str) -> Iterator[str]:
    """What may stand before a command, and does nothing for it."""
    yield from _FOR_THE_DASHBOARD
    if command != "log":
        yield "interval"
    if command != "replay":
        yield "theme"
    if command in _CHOOSING:
        yield from ("user", "filter")
    elif command not in {"snapshot", "log"}:
        yield from _FOR_SAMPLES


def _run(options: argparse.Namespace) -> int:
    from gpumon.lean import import_msgspec

    # Before anything else imports it.
    import_msgspec()
    from gpumon.cli.common import codeset
    from gpumon.cli.words import EXIT_USAGE, fail
    from gpumon.codeset import take_stream

    take_stream(sys.stderr, codeset(options))
    if options.command not in _SOON_THERE:
        gc.enable()
    if options.command is not None:
        for name in _of_no_use(options.command):
            if getattr(options, name, None):
                return fail(
                    f"--{name} does nothing for gpumon {options.command}: leave it out.", EXIT_USAGE
                )
    if options.command == "log":
        from gpumon.cli.commands import run_log

        return run_log(options)
    if options.command == "run":
        from gpumon.cli.choosing import run_job

        return run_job(options)
    if options.command == "wait":
        from gpumon.cli.waiting import run_wait

        return run_wait(options)
    if sys.stdout is None:
        return fail("standard output is closed: there is nowhere to write.")
    if options.command not in {None, "replay"}:
        return _print(options)
    if options.command == "replay" and not sys.stdout.isatty():
        return fail("standard output is no terminal to replay on: use gpumon report.")
    if not sys.stdout.isatty():
        if options.log is not None:
            return fail("standard output is no terminal, so --log has no screen: use gpumon log.")
        from gpumon.cli.commands import run_without_terminal

        return run_without_terminal(options)
    return _show(options)


def _print(options: argparse.Namespace) -> int:
    """Run a command that writes to standard output."""
    if options.command == "select":
        from gpumon.cli.choosing import run_select

        return run_select(options)
    if options.command == "doctor":
        from gpumon.cli.doctor import run_doctor

        return run_doctor(options)
    from gpumon.cli import commands

    run: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "snapshot": commands.run_snapshot,
        "report": commands.run_report,
        "theme": commands.run_theme,
        "config": commands.run_config,
        "completion": commands.run_completion,
    }
    return run[options.command](options)


def _show(options: argparse.Namespace) -> int:
    """Run a command that has a screen."""
    from gpumon.cli.words import fail

    if sys.stdin is None or not sys.stdin.isatty():
        return fail("standard input is no terminal, so no key could be read: use gpumon snapshot.")
    terminal = os.environ.get("TERM", "")
    if terminal in {"", "dumb"}:
        named = "TERM=dumb" if terminal else "TERM is not set"
        return fail(f"this terminal ({named}) cannot move its cursor: use gpumon snapshot.")
    from gpumon.cli import screens

    run = screens.run_replay if options.command == "replay" else screens.run_dashboard
    return run(options)
