"""``gpumon doctor``: runs the checks of a machine, and prints what to do about problems."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from functools import partial
from typing import TYPE_CHECKING, TextIO

import msgspec

from gpumon import __version__
from gpumon.doctor import (
    Check,
    CheckVerdict,
    Result,
    Slot,
    access,
    checks_of,
    frameworks,
    gpus,
    own,
    terminal,
    unknown,
    why_failed,
    worst,
)
from gpumon.doctor.context import DiagnosticContext, ExaminedMachine, ask_driver
from gpumon.model.makers import makers
from gpumon.sampling.gpu_sampler import take_one
from gpumon.text.formatting import counted, fit, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpumon.makers.source import Source
    from gpumon.text.cells import Row

_SECTIONS: dict[str, tuple[Check | Slot, ...]] = {
    "Driver": (gpus.gpus_on_the_bus, "driver", gpus.answer),
    "Access": (
        "device files",
        access.pid_namespace,
        access.hidden_processes,
        access.ended_processes,
        "process lists",
    ),
    "GPUs": (
        gpus.answering,
        "modes",
        gpus.memory_health,
        "reports",
        gpus.asleep,
        gpus.processor_gpus,
    ),
    "Computing": (
        "toolkits",
        "visible devices",
        frameworks.torch,
        frameworks.tensorflow,
        frameworks.jax,
    ),
    "Terminal": tuple(value for value in vars(terminal).values() if isinstance(value, Check)),
    "gpumon": tuple(value for value in vars(own).values() if isinstance(value, Check)),
}
"""The checks in the order of their dependencies; a slot has those of the makers."""


def _filled(entry: Check | Slot) -> Iterator[Check]:
    if isinstance(entry, Check):
        yield entry
    else:
        for maker in makers():
            yield from checks_of(maker).slots.get(entry, ())


# Makers may share a check, which is there once.
SECTIONS: dict[str, tuple[Check, ...]] = {
    title: tuple(dict.fromkeys(check for entry in entries for check in _filled(entry)))
    for title, entries in _SECTIONS.items()
}
"""The checks by section."""


def examine(context: DiagnosticContext) -> Iterator[Result]:
    """Run every check; those that do not apply are left out."""
    for section, checks in SECTIONS.items():
        for check in checks:
            try:
                result = check(context)
            except Exception as error:  # noqa: BLE001 - the other checks must run
                result = unknown(
                    f"The check failed: {why_failed(error)}",
                    "If the reason is not on this machine, please report it with this output.",
                )
            if result is not None:
                yield msgspec.structs.replace(result, section=section, check=check.name)


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


class Report(msgspec.Struct, frozen=True):
    """All checks in JSON."""

    schema: str
    version: str  # Of gpumon.
    scrubbed: bool
    verdict: CheckVerdict  # The worst of all.
    checks: tuple[Result, ...]


def doctor(
    source: Source,
    stream: TextIO,
    *,
    as_json: bool = False,
    scrub: bool = False,
    machine: ExaminedMachine | None = None,
) -> int:
    """Examine the machine, and print each result as soon as it is known; ``scrub`` hides names.

    Returns:
        The exit status: 0, or 1 where a check failed.

    Raises:
        OSError: The stream cannot be written.
    """
    context = DiagnosticContext(
        machine or ExaminedMachine(), partial(ask_driver, partial(take_one, source))
    )
    results = examine(context)
    if scrub:
        results = map(_scrubber(context).result, results)
    if as_json:
        checks = tuple(results)
        verdict = worst(result.verdict for result in checks)
        report = Report(SCHEMA, __version__, scrub, verdict, checks)
        text = msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
        stream.write(f"{text}\n")
    else:
        verdict = _print(results, stream, context.machine.environ)
    stream.flush()
    return EXIT_FAILED if verdict is CheckVerdict.FAIL else 0


def _print(results: Iterable[Result], stream: TextIO, environ: Mapping[str, str]) -> CheckVerdict:
    """Print each result at once, so that a hung check follows the last line.

    Returns:
        The worst verdict.
    """
    on_terminal = stream.isatty()
    width = shutil.get_terminal_size((_COLUMNS, 0)).columns if on_terminal else _COLUMNS
    coloured = on_terminal and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"
    printed: list[Result] = []
    for result in results:
        if not printed or result.section != printed[-1].section:
            stream.write("\n" if printed else "")
            _write(stream, [((f" {result.section}", "strong"),)], coloured)
        _write(stream, result_rows(result, width), coloured)
        stream.flush()
        printed.append(result)
    stream.write("\n")
    _write(stream, summary_rows(printed, width), coloured)
    return worst(result.verdict for result in printed)


def _write(stream: TextIO, rows: Iterable[Row], coloured: bool) -> None:
    for row in rows:
        line = ""
        for text, style in row:
            has_colour = coloured and style in _COLOURS and text.strip()
            line += f"\x1b[{_COLOURS[style]}m{text}\x1b[m" if has_colour else text
        stream.write(f"{line.rstrip()}\n")


def _scrubber(context: DiagnosticContext) -> Scrubber:
    from gpumon.scheduling.lock_folder import user_named

    environ = context.machine.environ
    users = {environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")}
    home = environ.get("HOME", "")
    users |= {home.rstrip("/").rpartition("/")[2], user_named(os.geteuid())}
    node = os.uname().nodename
    return Scrubber(home, users, {node, node.partition(".")[0], environ.get("HOSTNAME", "")})


WIDEST = 100
"""Cells beyond which a sentence is hard to follow to its next line."""
_NAME = 16
_LEFT = 25
"""Where sentences begin."""
_LEAST_TEXT = 30
_MARKS = {
    CheckVerdict.PASS: ("PASS", "state.good"),
    CheckVerdict.WARN: ("WARN", "state.warning"),
    CheckVerdict.FAIL: ("FAIL", "state.critical"),
    CheckVerdict.UNKNOWN: (" ?  ", "state.note"),
}
"""In the order in which they are counted."""


def result_rows(result: Result, width: int) -> Iterator[Row]:
    """The result of a check, its details, and what to do."""
    text = max(_LEAST_TEXT, min(width, WIDEST) - _LEFT)
    mark, style = _MARKS[result.verdict]
    first, *more = _wrapped(result.found, text)
    yield (
        (" ", ""),
        (mark, style),
        ("  ", ""),
        (fit(result.check, _NAME), "dim" if result.verdict is CheckVerdict.PASS else "strong"),
        ("  ", ""),
        (first, ""),
    )
    for line in more:
        yield ((" " * _LEFT, ""), (line, ""))
    for detail in result.details:
        for number, line in enumerate(_wrapped(detail, text - 2)):
            yield ((" " * (_LEFT + 2 * (number > 0)), ""), (line, "dim"))
    for number, line in enumerate(_wrapped(result.todo or "", text)):
        yield ((" " * (_LEFT - 2), ""), ("→ " if number == 0 else "  ", style), (line, ""))


def summary_rows(results: Sequence[Result], width: int) -> Iterator[Row]:
    """The number of each verdict, and where to begin."""
    fields = [(f" {counted(len(results), 'check')}", "")]
    for verdict, (_, style) in _MARKS.items():
        if count := sum(result.verdict is verdict for result in results):
            fields += [("  ", ""), (f"{count} {verdict.value}", style)]
    yield tuple(fields)
    failing = [result.check for result in results if result.verdict is CheckVerdict.FAIL]
    if len(failing) > 1:
        begin = f"Begin with {failing[0]}: it may cause the failures after it."
        for line in _wrapped(begin, min(width, WIDEST) - 1):
            yield ((f" {line}", ""),)


def _wrapped(text: str, width: int) -> list[str]:
    """A text wrapped to lines; a longer path or word stays whole, because it may be copied."""
    return textwrap.wrap(printable(text), width, break_long_words=False, break_on_hyphens=False)


_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-f][0-9a-f/-]{3,}", re.IGNORECASE)
_HOMES = re.compile(r"(/(?:home|Users|data/home|scratch|users)/)[^/\s:;,]+")
_CREDENTIALS = re.compile(r"(//)[^/\s@]+@")
_SHORTEST = 2
"""A name of one letter is in every word."""


class Scrubber:
    """Removes names from texts.

    Home folders become ``~``, other people's ``/home/USER``; users, the machine and GPUs
    lose their names. Versions, numbers and the rest of a path stay: they are what a
    report is for.
    """

    def __init__(self, home: str, users: Iterable[str], hosts: Iterable[str]) -> None:
        self._home = home.rstrip("/")
        names = dict.fromkeys(users, "USER") | dict.fromkeys(hosts, "HOST")
        # Longer names first: `ada-07.example.org` contains `ada-07`.
        self._names = [
            (re.compile(rf"(?<![\w]){re.escape(name)}(?![\w])"), word)
            for name, word in sorted(names.items(), key=lambda item: -len(item[0]))
            if len(name) >= _SHORTEST and name not in {"root", "localhost"}
        ]

    def text(self, text: str) -> str:
        """A text without names."""
        if self._home not in {"", "/"}:
            text = re.sub(rf"{re.escape(self._home)}(?=/|\b)", "~", text)
        text = _CREDENTIALS.sub(r"\1", text)
        text = _HOMES.sub(r"\1USER", text)
        text = _UUID.sub(r"\1-…", text)
        for pattern, word in self._names:
            text = pattern.sub(word, text)
        return text

    def result(self, result: Result) -> Result:
        """A result without names."""
        return msgspec.structs.replace(
            result,
            found=self.text(result.found),
            todo=result.todo and self.text(result.todo),
            details=tuple(map(self.text, result.details)),
        )
