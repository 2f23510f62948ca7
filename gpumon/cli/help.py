"""How the command line helps: where help breaks its lines, what is said of a mistake."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from gpumon.cli.messages import EXIT_USAGE, fail

MakeParser: TypeAlias = Callable[..., argparse.ArgumentParser]
"""Makes the parser of a command; its name and its line in the list of commands are set already."""

_USUAL_COLUMNS = 80


class Formatter(argparse.HelpFormatter):
    """Argparse's own, which is made anew for every option that is added."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


class RawFormatter(Formatter, argparse.RawDescriptionHelpFormatter):
    """Leaves descriptions as they are."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence."""

    def __init__(self, **words: Any) -> None:
        words.setdefault("formatter_class", Formatter)
        super().__init__(allow_abbrev=False, **words)

    def error(self, message: str) -> NoReturn:
        """Leave with that sentence; see ``argparse.ArgumentParser.error``."""
        raise SystemExit(fail(f"{message}; see {self.prog} --help", EXIT_USAGE))


def _columns() -> int:
    """As ``shutil.get_terminal_size`` has it, without the 2 ms that it takes to import."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(1).columns or _USUAL_COLUMNS
    except OSError:
        return _USUAL_COLUMNS
