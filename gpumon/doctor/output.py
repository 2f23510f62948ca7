"""``gpumon doctor``: checks the installation, and says what to do about problems."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import TYPE_CHECKING, TextIO

import msgspec

from gpumon import __version__
from gpumon.doctor import (
    CheckVerdict,
    DiagnosticContext,
    Machine,
    Result,
    ask_driver,
    examine,
    worst,
)
from gpumon.doctor.page import WIDEST, result_rows, summary_rows, title_row
from gpumon.sampling.gpu_sampler import take_one

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpumon.doctor.scrub import Scrubber
    from gpumon.sources.source import Source
    from gpumon.text.cells import Row

SCHEMA = "gpumon.doctor/1"
EXIT_FAILED = 1
_COLUMNS = 80
"""Width of output to a file, which is read in a browser or an editor."""

# The terminal's own colours, because they fit its background.
_COLOURS = {
    "strong": "1",
    "dim": "2",
    "state.good": "32",
    "state.note": "36",
    "state.warning": "1;33",
    "state.critical": "1;31",
}


class Checked(msgspec.Struct, frozen=True):
    """One check in JSON."""

    section: str
    check: str
    verdict: CheckVerdict
    found: str
    todo: str | None
    details: tuple[str, ...]


class Report(msgspec.Struct, frozen=True):
    """All checks in JSON.

    Attributes:
        schema: The schema's name and version.
        version: Of gpumon.
        scrubbed: Whether names were left out.
        verdict: The worst of all.
        checks: In order.
    """

    schema: str
    version: str
    scrubbed: bool
    verdict: CheckVerdict
    checks: tuple[Checked, ...]


def doctor(
    source: Source,
    stream: TextIO,
    *,
    as_json: bool = False,
    scrub: bool = False,
    machine: Machine | None = None,
) -> int:
    """Examine the machine, and print each result as soon as it is known.

    Args:
        source: The driver.
        stream: Where to.
        as_json: Whether to print JSON.
        scrub: Leave out names.
        machine: The machine to examine; this machine by default.

    Returns:
        The exit status: 0, or 1 where a check failed.

    Raises:
        OSError: The stream cannot be written.
    """
    case = DiagnosticContext(machine or Machine(), partial(ask_driver, partial(take_one, source)))
    found = _scrubbed(examine(case), _scrubber(case)) if scrub else examine(case)
    if as_json:
        everything = list(found)
        results = [result for _, result in everything]
        stream.write(_json(everything, scrub))
    else:
        results = _print(found, stream, case.machine.environ)
    stream.flush()
    return EXIT_FAILED if worst(result.verdict for result in results) is CheckVerdict.FAIL else 0


def _json(found: Iterable[tuple[str, Result]], scrubbed: bool) -> str:
    checks = tuple(
        Checked(
            title, result.check, result.verdict, result.found, result.todo or None, result.details
        )
        for title, result in found
    )
    verdict = worst(check.verdict for check in checks)
    report = Report(SCHEMA, __version__, scrubbed, verdict, checks)
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def _print(
    found: Iterable[tuple[str, Result]], stream: TextIO, environ: Mapping[str, str]
) -> list[Result]:
    """Print each result at once, so that a hung check follows the last line."""
    terminal = stream.isatty()
    width = shutil.get_terminal_size((_COLUMNS, 0)).columns if terminal else _COLUMNS
    coloured = terminal and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"
    results: list[Result] = []
    section = ""
    for title, result in found:
        if title != section:
            stream.write("\n" if section else "")
            _write(stream, [title_row(title)], coloured)
            section = title
        _write(stream, result_rows(result, min(width, WIDEST)), coloured)
        stream.flush()
        results.append(result)
    stream.write("\n")
    _write(stream, summary_rows(results, width), coloured)
    return results


def _write(stream: TextIO, rows: Iterable[Row], coloured: bool) -> None:
    for row in rows:
        if coloured:
            line = "".join(_inked(text, _COLOURS.get(style)) for text, style in row)
        else:
            line = "".join(text for text, _ in row)
        stream.write(f"{line.rstrip()}\n")


def _inked(text: str, colour: str | None) -> str:
    return text if colour is None or not text.strip() else f"\x1b[{colour}m{text}\x1b[m"


def _scrubbed(
    found: Iterable[tuple[str, Result]], scrubber: Scrubber
) -> Iterator[tuple[str, Result]]:
    for title, result in found:
        yield title, scrubber.result(result)


def _scrubber(case: DiagnosticContext) -> Scrubber:
    from gpumon.doctor.scrub import Scrubber
    from gpumon.scheduling.reservation.lock_folder import user_named

    environ = case.machine.environ
    users = {environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")}
    home = environ.get("HOME", "")
    users |= {home.rstrip("/").rpartition("/")[2], user_named(os.geteuid())}
    node = os.uname().nodename
    return Scrubber(home, users, {node, node.partition(".")[0], environ.get("HOSTNAME", "")})
