"""Reads ``when``: the state, the filter or the event that an alert tells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from gpumon.alerts.filter_languages import GPUS, PROCESSES, GpuFacts
from gpumon.alerts.xids import SEVERITY_WORDS, WORTH_TELLING, XidChoice
from gpumon.config.suggestions import nearest
from gpumon.filters.language import Filter, FilterError, Language, Selection, parse
from gpumon.filters.term import F, S, said
from gpumon.findings.finding import FindingKind
from gpumon.findings.registry import PROCESS_RULES, RULES
from gpumon.model.snapshot import Gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GpuFilter: TypeAlias = Selection[Gpu, GpuFacts]


class WhenError(ValueError):
    """A ``when`` cannot be read; the text says why and what is possible."""


class GpuWhen(Struct, frozen=True):
    """A GPU is in a state, or meets a filter.

    Attributes:
        state: The state, or ``None``.
        terms: The GPUs that it is about.
    """

    state: FindingKind | None
    terms: GpuFilter


class ProcessWhen(Struct, frozen=True):
    """A process is in a state, or meets a filter.

    Attributes:
        state: The state, or ``None``.
        terms: The processes that it is about.
    """

    state: FindingKind | None
    terms: Filter


class XidWhen(Struct, frozen=True):
    """The driver reports an XID.

    Attributes:
        choice: Which XIDs.
        terms: The GPUs that it is about.
    """

    choice: XidChoice
    terms: GpuFilter


class EndWhen(Struct, frozen=True):
    """A process ends.

    Attributes:
        terms: Which processes: those that have met this filter while they ran.
    """

    terms: Filter


When: TypeAlias = GpuWhen | ProcessWhen | XidWhen | EndWhen


def plain_name(text: str) -> str:
    """A name as it is compared: small letters, with spaces for ``-`` and ``_``."""
    return " ".join(text.replace("-", " ").replace("_", " ").casefold().split())


STATES = tuple(kind for kind, rule in RULES.items() if rule.is_alert_state)
"""The states that an alert can name."""
STATE_NAMES = {plain_name(kind.value): kind for kind in STATES} | {
    name: kind for kind in STATES for name in RULES[kind].other_names
}
"""The states by every name, as ``plain_name`` writes it."""

_TOKEN = re.compile(r'(?:[^\s"]|"(?:[^"]|"")*"?)+')
_SIGNS = re.compile(r'[<>=:"]')
_ENDS = frozenset({"ends", "end", "ended", "exits"})
_HOW = "write a state such as hot, a filter such as idle>2h mem>10G, xid critical, or ends user:me"


def is_event(when: When) -> bool:
    """Whether it happens, rather than lasts: its usual cooldown is shorter."""
    if isinstance(when, GpuWhen):
        return when.state is FindingKind.FREE
    return not isinstance(when, ProcessWhen)


def parse_when(text: str) -> When:
    """Read a ``when``.

    Args:
        text: A state, a filter, both, XIDs, or the end of processes; see ``docs/alerts.md``.

    Raises:
        WhenError: It is none of these.
    """
    words, terms = _sorted(text)
    if not words and not terms:
        raise WhenError(_HOW)
    first = words[0].casefold() if words else ""
    if first in _ENDS:
        return _ends(words[1:], terms)
    if first in {"xid", "xids"}:
        return XidWhen(_xids(words[1:]), _parsed(terms, GPUS))
    state = _state(words) if words else None
    if state in PROCESS_RULES:
        return ProcessWhen(state, _parsed(terms, PROCESSES))
    if state is not None:
        return GpuWhen(state, _parsed(terms, GPUS))
    return _filter(terms)


def _sorted(text: str) -> tuple[list[str], list[str]]:
    """The words without a sign, and the terms; ``and`` stands for itself and is left out."""
    words: list[str] = []
    terms: list[str] = []
    for token in _TOKEN.findall(text):
        lower = token.casefold()
        if lower in {"and", "&&"}:
            continue
        if lower in {"or", "||"}:
            raise WhenError("or is not possible: make two alerts")
        if token.startswith("!") and lower != "!" and not _SIGNS.search(token):
            raise WhenError(f"{said(token)} is not possible: ! stands before a term, as !user:ann")
        is_term = _SIGNS.search(token) or lower in {"not", "!"}
        (terms if is_term else words).append(token)
    return words, terms


def _state(words: Sequence[str]) -> FindingKind:
    name = plain_name(" ".join(words))
    state = STATE_NAMES.get(name)
    if state is not None:
        return state
    guess = _guess(name, [*STATE_NAMES, "xid", "ends"])
    states = ", ".join(kind.value for kind in STATES)
    raise WhenError(
        f"no state {said(' '.join(words))}: {guess}There are {states}, xid and "
        "ends; "
        'to look for a text in the names of processes, quote it: "train"'
    )


def _xids(words: Sequence[str]) -> XidChoice:
    """The XIDs that the words after ``xid`` name."""
    numbers: set[int] = set()
    least = None
    for word in words:
        for part in filter(None, word.split(",")):
            if part.isascii() and part.isdigit() and len(part) <= 6:
                numbers.add(int(part))
            elif part.casefold() in SEVERITY_WORDS:
                least = SEVERITY_WORDS[part.casefold()]
            else:
                guess = _guess(part, SEVERITY_WORDS)
                raise WhenError(
                    f"no XID {said(part)}: {guess}Write numbers such as xid 79,48, or xid with "
                    f"{', '.join(list(SEVERITY_WORDS)[:-1])} or {list(SEVERITY_WORDS)[-1]}"
                )
    if not numbers and least is None:
        least = WORTH_TELLING
    return XidChoice(least, frozenset(numbers))


def _ends(words: Sequence[str], terms: list[str]) -> EndWhen:
    """The end of processes: by PID, by a filter, or both."""
    for word in words:
        if not (word.isascii() and word.isdigit()):
            raise WhenError(
                f"ends what? {said(word)} is neither a process number nor a filter: write "
                "ends 12345 or ends user:me"
            )
        terms = [f"pid:{word}", *terms]
    if not terms:
        raise WhenError("ends what? Write ends 12345 or ends user:me")
    return EndWhen(_parsed(terms, PROCESSES))


def _filter(terms: list[str]) -> GpuWhen | ProcessWhen:
    """A filter alone: of processes, unless a term of it is one of GPUs only."""
    of_processes = {term.name for term in PROCESSES.terms}
    of_gpus = {term.name for term in GPUS.terms}
    keys = [key for key in map(_key, terms) if key is not None]
    for key in keys:
        if key not in of_processes | of_gpus:
            names = sorted(of_processes | of_gpus)
            raise WhenError(
                f"no term {said(key)}: {_guess(key, names)}There are {', '.join(names)}"
            )
    if any(key not in of_processes for key in keys):
        return GpuWhen(None, _parsed(terms, GPUS))
    return ProcessWhen(None, _parsed(terms, PROCESSES))


def _key(term: str) -> str | None:
    """The key of a term; ``None`` for a text in quotes and for ``not``."""
    match = re.match(r"!*([a-z][\w-]*)[<>=:!]", term, re.IGNORECASE)
    return None if match is None else match[1].casefold()


def _guess(word: str, names: Iterable[str]) -> str:
    near = nearest(word, names)
    return "" if near is None else f"did you mean {near}? "


def _parsed(terms: list[str], language: Language[S, F]) -> Selection[S, F]:
    try:
        return parse(" ".join(terms), language)
    except FilterError as error:
        raise WhenError(error.sentence) from None
