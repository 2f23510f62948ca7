"""The command line: parses it, reports what is wrong with it, imports a command when it runs.

This module imports no other, so that ``main`` handles Ctrl+C and exhausted resources from its
first line on.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
"""Importing ``typing`` takes longer than all other imports before ``main``."""
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from types import FrameType
    from typing import TextIO

    from gpumon.system.standard_output import OutputError

_RAISED_AGAIN_AFTER = 0.001
"""Seconds. A callback takes less. The alarm repeats: one that comes just before a wait begins does
not end it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run gpumon.

    Returns:
        The exit status: 0; 1 if there is nothing to show or nowhere to write; 2 for an invalid
        command line; 130 if interrupted.
    """
    # Imported modules stay: searching them for garbage takes a tenth of the time until the first
    # picture.
    gc.disable()
    stdout, hook = sys.stdout, sys.unraisablehook
    sys.unraisablehook = _interrupt_again
    try:
        return _flushed(_status(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        sys.unraisablehook = hook
        sys.stdout = stdout
        gc.enable()


def _interrupt_again(dropped: sys.UnraisableHookArgs) -> None:
    """Raise ``KeyboardInterrupt`` again where Python has dropped it.

    Python drops an exception that a signal handler raises during a callback, such as the one that
    an import ends with. Raised here, it would be dropped too.
    """
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
        return
    import signal

    signal.signal(signal.SIGALRM, _raise_again)
    signal.setitimer(signal.ITIMER_REAL, _RAISED_AGAIN_AFTER, _RAISED_AGAIN_AFTER)


def _raise_again(_: int, frame: FrameType | None) -> None:
    import signal

    # On a busy machine the hook may not have returned yet.
    while frame is not None:
        if frame.f_code is _interrupt_again.__code__:
            return
        frame = frame.f_back
    signal.setitimer(signal.ITIMER_REAL, 0)
    raise KeyboardInterrupt


def _status(arguments: Sequence[str]) -> int:
    """Run the command; the exit status, before standard output is flushed."""
    # Imported now: below there may be no free file descriptor.
    from gpumon.system.resource_errors import causes, lack_behind
    from gpumon.system.standard_output import OutputError, mark_output

    try:
        _open_standard_streams()
        mark_output()
        from gpumon.cli.dashboard import DashboardCommand

        return _run(DashboardCommand().read_plainly(arguments) or _parsed(arguments))
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        # argparse, after --help and --version too, and run and wait after a signal
        return end.code
    except OutputError as failure:
        return _no_output(failure)
    except Exception as error:
        # In a class body Python up to 3.11 replaces the exception with a RuntimeError.
        if any(isinstance(cause, KeyboardInterrupt) for cause in causes(error)):
            return _INTERRUPTED
        lack = lack_behind(error)
        if lack is None and isinstance(error, OSError) and error.filename is not None:
            lack = f"{os.fsdecode(error.filename)}: {error.strerror}."
        if lack is None:
            raise
        # No import: there may be no free file descriptor.
        try:
            sys.stderr.write(f"gpumon: {lack}\n")
        except OSError:
            silence(sys.stderr)
        return 1


def _flushed(status: int) -> int:
    """Flush both streams; the exit status after that.

    A flush that fails while Python exits is a traceback and the status 120.
    """
    from gpumon.system.standard_output import OutputError

    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OutputError as failure:
        status = _no_output(failure) or status
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        silence(sys.stderr)
    return status


def _no_output(failure: OutputError) -> int:
    """Say why standard output cannot be written; the exit status.

    A reader who has closed it wants no more, which is no failure.
    """
    silence(sys.stdout)
    if isinstance(failure.error, BrokenPipeError):
        return 0
    from gpumon.cli.output import fail

    return fail(f"cannot write to standard output: {failure.error.strerror}.")


def silence(stream: TextIO) -> None:
    """Send what is still buffered to ``/dev/null``, so that the flush at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


_INTERRUPTED = 128 + 2


def _open_standard_streams() -> None:
    """Open the null device in place of each standard stream that is closed.

    Otherwise the next opened file, such as a log, gets the descriptor of that stream and everything
    that is written to it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # noqa: PERF203 - three times at most
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        # Textual draws on standard error and fails without it.
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the end
        sys.__stderr__ = sys.stderr  # type: ignore[misc]  # final for typeshed, not for Python


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    from gpumon.cli.parser import parse
    from gpumon.system.startup_imports import hidden

    # Reading a size, and saying what is wrong, imports msgspec: see `import_msgspec`.
    with hidden("typing_extensions"):
        return parse(arguments)


def _run(options: argparse.Namespace) -> int:
    from gpumon.system.startup_imports import import_msgspec

    # Before anything else imports it.
    import_msgspec()
    from gpumon.cli.commands import command
    from gpumon.cli.output import codeset, explain, no_standard_output
    from gpumon.text.charset import take_stream

    take_stream(sys.stderr, codeset(options))
    chosen = command(options.command)
    if not chosen.without_gc:
        gc.enable()
    if chosen.needs_stdout and sys.stdout is None:
        return no_standard_output()
    try:
        return chosen.run(options)
    except Exception as error:
        status = explain(error)
        if status is None:
            raise
        return status
