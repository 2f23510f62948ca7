"""Help and usage errors of the command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from gpumon.cli.messages import EXIT_USAGE, fail

MakeParser: TypeAlias = Callable[..., argparse.ArgumentParser]
"""Creates the parser of a command, whose name and line in the list of commands are set."""

_USUAL_COLUMNS = 80


class Formatter(argparse.HelpFormatter):
    """Argparse's formatter, with a cheaper width: it is created for every added option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


class RawFormatter(Formatter, argparse.RawDescriptionHelpFormatter):
    """Does not wrap descriptions."""


class Parser(argparse.ArgumentParser):
    """Reports an error in one sentence."""

    def __init__(self, **words: Any) -> None:
        words.setdefault("formatter_class", Formatter)
        super().__init__(allow_abbrev=False, **words)

    def error(self, message: str) -> NoReturn:
        """Exit with that sentence; see ``argparse.ArgumentParser.error``."""
        raise SystemExit(fail(f"{message}; see {self.prog} --help", EXIT_USAGE))


def _columns() -> int:
    """Same as ``shutil.get_terminal_size``, whose import takes 2 ms."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(1).columns or _USUAL_COLUMNS
    except OSError:
        return _USUAL_COLUMNS
