"""The commands without a screen: what each needs, and what its failures are told as."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from gpumon.cli.common import (
    reservations,
    silence,
    source_and_host,
    take_output,
    take_settings,
)
from gpumon.cli.plain import LOG_INTERVAL
from gpumon.cli.words import EXIT_USAGE, explain, fail, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def run_snapshot(options: argparse.Namespace) -> int:
    """``gpumon snapshot``."""
    return print_one(options, options.format, by_process=options.processes)


def run_without_terminal(options: argparse.Namespace) -> int:
    """``gpumon`` where its output goes to no terminal."""
    from gpumon.theming import UnknownThemeError, choose_theme

    try:
        choose_theme(getattr(options, "theme", None))
    except UnknownThemeError as error:
        return fail(f"{error}.", EXIT_USAGE)
    return print_one(options, "table", by_process=False)


def print_one(options: argparse.Namespace, form: str, *, by_process: bool) -> int:
    """Print one sample in a format."""
    from gpumon.commands.snapshot import print_snapshot
    from gpumon.sources import SourceError
    from gpumon.thresholds import DEFAULTS

    if by_process and form != "csv":
        return fail("--processes goes with --format csv; the other formats hold them anyway.", 2)
    # JSON and Prometheus' format are UTF-8 by definition; a person's terminal may be anything.
    # What programs read is the same whatever a person has settled.
    thresholds = take_settings() if form == "table" else DEFAULTS
    take_output(options, form, utf_8=form in {"json", "prometheus"})
    source, host = source_and_host(options)
    user, chosen = getattr(options, "user", None), getattr(options, "filter", None)
    try:
        sentences = print_snapshot(
            source,
            form,
            sys.stdout,
            host=host,
            user=user,
            filter=chosen,
            by_process=by_process,
            thresholds=thresholds,
            reservations=reservations(options),
        )
    except SourceError as error:
        return explain(error)
    except BrokenPipeError:
        raise  # no failure: main ends quietly
    except OSError as error:
        silence(sys.stdout)
        return fail(f"cannot write to standard output: {error.strerror}.")
    for sentence in sentences:
        say(sentence)
    return 0


def run_log(options: argparse.Namespace) -> int:
    """``gpumon log``."""
    if "filter" in options:
        return fail("--filter chooses what is shown; a log takes --user and --gpus.", EXIT_USAGE)
    if options.keep is not None and options.rotate is None:
        return fail("--keep goes with --rotate: nothing is moved aside without.", EXIT_USAGE)
    from gpumon.commands.log import Terms, log
    from gpumon.log.opening import LogError
    from gpumon.sources import SourceError

    source, host = source_and_host(options)
    terms = Terms(
        options.file,
        options.interval or LOG_INTERVAL,
        options.seconds,
        options.rotate,
        options.keep,
        options.commands,
        getattr(options, "user", None),
    )
    try:
        return log(source, host, terms)
    except SourceError as error:
        return explain(error)
    except LogError as error:
        return fail(error.sentence)


def run_report(options: argparse.Namespace) -> int:
    """``gpumon report``."""
    from gpumon.commands.report import print_report

    take_output(options, options.format, utf_8=options.format == "json")
    try:
        return print_report(
            options.files,
            by=options.by,
            first=options.first,
            last=options.last,
            form=options.format,
            plot=options.plot,
        )
    except BrokenPipeError:
        raise  # no failure: main ends quietly
    except OSError as error:
        silence(sys.stdout)
        return fail(f"cannot write to standard output: {error.strerror}.")


def run_theme(options: argparse.Namespace) -> int:
    """``gpumon theme``."""
    from gpumon.commands.theme import check_theme, list_themes, show_theme

    def write() -> int:
        if options.action == "list":
            list_themes(sys.stdout)
            return 0
        if options.action == "check":
            return check_theme(options.file, sys.stdout, say)
        from rich.console import Console

        system = Console(file=sys.stdout).color_system
        fault = show_theme(options.name, sys.stdout, system)
        return fail(fault, EXIT_USAGE) if fault else 0

    return _writing(write)


def run_config(options: argparse.Namespace) -> int:
    """``gpumon config``."""
    from gpumon.commands.config import config

    return _writing(lambda: config(options.what, say))


def run_completion(options: argparse.Namespace) -> int:
    """``gpumon completion``."""
    from gpumon.cli.parser import make_parser
    from gpumon.commands.completion import completion

    def write() -> int:
        sys.stdout.write(completion(make_parser(), options.shell))
        return 0

    return _writing(write)


def _writing(write: Callable[[], int]) -> int:
    """Do what writes to standard output, to the end; the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What stands in somebody's file may be in no locale's alphabet.
        sys.stdout.reconfigure(errors="replace")
    try:
        status = write()
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # no failure: main ends quietly
    except OSError as error:
        silence(sys.stdout)
        return fail(f"cannot write to standard output: {error.strerror}.")
    return status
