"""Reads ``when``: the state, the filter or the event that an alert reports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from msgspec import Struct

from gpumon.alerts.filter_languages import GPUS, PROCESSES
from gpumon.config.suggestions import nearest
from gpumon.filters.language import C, FilterError, Language, S, Selection, parse, said, tokens
from gpumon.findings.registry import GPU_RULES, PROCESS_RULES, RULES
from gpumon.model.accidents import AccidentKind
from gpumon.model.error_codes import ErrorSeverity, error_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.alerts.filter_languages import GpuFilter
    from gpumon.filters.terms import Filter
    from gpumon.findings.finding import FindingKind

EVENT_COOLDOWN = 1800.0
"""Seconds; the default cooldown of events, and of GPUs that become free."""
STATE_COOLDOWN = 21600.0
"""Seconds; the default cooldown of everything that lasts."""

_XID_ORDER = (
    ErrorSeverity.BY_PROGRAM,
    ErrorSeverity.NOTE,
    ErrorSeverity.WARNING,
    ErrorSeverity.CRITICAL,
)
"""From the least to the most severe."""
_XID_WORDS: dict[str, ErrorSeverity] = {
    "critical": ErrorSeverity.CRITICAL,
    "warning": ErrorSeverity.WARNING,
    "note": ErrorSeverity.NOTE,
    "all": ErrorSeverity.BY_PROGRAM,
}
"""The words after ``xid``, each with the least severe XIDs that it selects."""

ACCIDENT_WORDS: dict[str, AccidentKind] = {
    "timeout": AccidentKind.TIMEOUT,
    "reset": AccidentKind.RESET,
    "oom": AccidentKind.OUT_OF_MEMORY,
}
"""The words after ``accident``; for XIDs there is ``xid``."""


class WhenError(ValueError):
    """A ``when`` cannot be read; the text says why and what is possible."""


class GpuWhen(Struct, frozen=True):
    """A GPU is in a state, or meets a filter."""

    state: FindingKind | None
    """``None`` for a filter alone."""
    terms: GpuFilter
    """The GPUs that it is about."""

    @property
    def cooldown(self) -> float:
        """The default cooldown, in seconds."""
        is_event = self.state is not None and GPU_RULES[self.state].is_event
        return EVENT_COOLDOWN if is_event else STATE_COOLDOWN


class ProcessWhen(Struct, frozen=True):
    """A process is in a state, or meets a filter."""

    cooldown: ClassVar[float] = STATE_COOLDOWN

    state: FindingKind | None
    """``None`` for a filter alone."""
    terms: Filter
    """The processes that it is about."""


class XidWhen(Struct, frozen=True):
    """The driver reports an XID."""

    cooldown: ClassVar[float] = EVENT_COOLDOWN

    least: ErrorSeverity | None
    """The least severe XIDs; ``None`` for those of ``numbers`` only."""
    numbers: frozenset[int]
    """Further XIDs."""
    terms: GpuFilter
    """The GPUs that it is about."""

    def includes(self, number: int, name: str | None = None) -> bool:
        """Whether it reports this XID of a GPU with this product name.

        One that no table has counts as the least severe.
        """
        if number in self.numbers:
            return True
        if self.least is None:
            return False
        severity = error_code(number, name).severity or ErrorSeverity.BY_PROGRAM
        return _XID_ORDER.index(severity) >= _XID_ORDER.index(self.least)


class AccidentWhen(Struct, frozen=True):
    """The kernel reports an accident that is no XID."""

    cooldown: ClassVar[float] = EVENT_COOLDOWN

    kinds: frozenset[AccidentKind]
    """Empty for all kinds."""
    terms: GpuFilter
    """The GPUs that it is about, as they were before it: the process is gone afterwards."""

    def includes(self, kind: AccidentKind) -> bool:
        """Whether it reports accidents of this kind."""
        return kind in self.kinds if self.kinds else kind is not AccidentKind.ERROR_CODE


class EndWhen(Struct, frozen=True):
    """A process ends that met a filter while it ran."""

    cooldown: ClassVar[float] = EVENT_COOLDOWN

    terms: Filter


When: TypeAlias = GpuWhen | ProcessWhen | XidWhen | AccidentWhen | EndWhen


def plain_name(text: str) -> str:
    """A name as it is compared: small letters, with spaces for ``-`` and ``_``."""
    return " ".join(text.replace("-", " ").replace("_", " ").casefold().split())


STATES = tuple(kind for kind, rule in RULES.items() if rule.is_alert_state)
"""The states that an alert can name."""
STATE_NAMES = {plain_name(kind.value): kind for kind in STATES} | {
    name: kind for kind in STATES for name in RULES[kind].other_names
}
"""The states by every name, as ``plain_name`` writes it."""

_SIGNS = re.compile(r'[<>=:"]')
"""A token with one of these belongs to a filter; without, it is a word of a state or an event."""
_ENDS = frozenset({"ends", "end", "ended", "exits"})
_XIDS = frozenset({"xid", "xids"})
_ACCIDENTS = frozenset({"accident", "accidents"})
_BEFORE_TERMS = {*STATE_NAMES, *_ENDS, *_XIDS, *_ACCIDENTS, "and", "or", "not"} | {
    f"{event} {word}"
    for events, words in ((_XIDS, _XID_WORDS), (_ACCIDENTS, ACCIDENT_WORDS))
    for event in events
    for word in words
}
"""What a negated term can follow. Without the space before ``!``, as in ``hot!user:ann``, both are
a text to look for."""
_HOW = (
    "write a state such as hot, a filter such as idle>2h mem>10G, xid critical, accident, or "
    "ends user:me"
)


def parse_when(text: str) -> When:
    """Read a ``when``: a state, a filter, both, XIDs, accidents, or the end of processes.

    Raises:
        WhenError: It is none of these.
    """
    words, terms = _split(text)
    if not words and not terms:
        raise WhenError(_HOW)
    first = words[0].casefold() if words else ""
    if first in _ENDS:
        return _ends(words[1:], terms)
    if first in _XIDS:
        return _xids(words[1:], terms)
    if first in _ACCIDENTS:
        return _accidents(words[1:], terms)
    state = _state(words) if words else None
    if state in PROCESS_RULES:
        return ProcessWhen(state, _parsed(terms, PROCESSES))
    if state is not None:
        return GpuWhen(state, _parsed(terms, GPUS))
    return _filter(terms)


def _split(text: str) -> tuple[list[str], str]:
    """The words of a state or an event, and the rest, a filter; ``and`` is left out."""
    words: list[str] = []
    terms = ""
    end, negated = 0, False
    for token in tokens(text):
        gap, end = text[end : token.start], token.start + len(token.text)
        lower = token.text.casefold()
        is_word = not token.negates and not _SIGNS.search(token.text)
        if lower in {"or", "||"}:
            raise WhenError("or is not possible: make two alerts")
        if is_word and negated and not gap:
            shown = said(f"!{token.text}")
            raise WhenError(f"{shown} is not possible: ! stands before a term, as !user:ann")
        if not is_word:
            _check_negation(token.text, words)
        negated = token.negates
        if not is_word:
            terms += gap + token.text
        elif lower not in {"and", "&&"}:
            words.append(token.text)
    return words, terms.strip()


def _check_negation(text: str, words: Sequence[str]) -> None:
    """Refuse a term with ``!`` in the wrong place, or right after these words."""
    before, sign, rest = text.partition("!")
    if not before or not sign or rest.startswith("="):  # != is the sign of a term
        return
    is_term = PROCESSES.term(before.lower()) or GPUS.term(before.lower())
    if is_term and rest.startswith(("<", ">", ":")):
        raise WhenError(f"{said(text)} is not possible: write {said(f'!{before}{rest}')}")
    names = {plain_name(before), plain_name(" ".join([*words, before]))}
    if names & _BEFORE_TERMS:
        raise WhenError(f"{said(text)} is not possible: write a space before !")


def _state(words: Sequence[str]) -> FindingKind:
    name = plain_name(" ".join(words))
    state = STATE_NAMES.get(name)
    if state is not None:
        return state
    advice = (
        f"there are {', '.join(kind.value for kind in STATES)}, xid, accident and ends; "
        'to look for a text in the names of processes, quote it: "train"'
    )
    names = [*STATE_NAMES, "xid", "accident", "ends"]
    raise WhenError(f"no state {said(' '.join(words))}: {_guess(name, names, advice)}")


def _xids(words: Sequence[str], terms: str) -> XidWhen:
    """The XIDs that the words after ``xid`` name: warnings and critical ones without a word."""
    numbers: set[int] = set()
    least = None
    for word in words:
        for part in filter(None, word.split(",")):
            if part.isascii() and part.isdigit() and len(part) <= 6:
                numbers.add(int(part))
            elif part.casefold() in _XID_WORDS:
                least = _XID_WORDS[part.casefold()]
            else:
                *others, last = _XID_WORDS
                advice = (
                    f"write numbers such as xid 79,48, or xid with {', '.join(others)} or {last}"
                )
                raise WhenError(f"no XID {said(part)}: {_guess(part, _XID_WORDS, advice)}")
    if not numbers and least is None:
        least = ErrorSeverity.WARNING
    return XidWhen(least, frozenset(numbers), _parsed(terms, GPUS))


def _accidents(words: Sequence[str], terms: str) -> AccidentWhen:
    """The accidents that the words after ``accident`` name: all without a word."""
    kinds = set()
    for word in words:
        for part in filter(None, word.casefold().split(",")):
            if part not in ACCIDENT_WORDS:
                *others, last = ACCIDENT_WORDS
                advice = f"write accident alone, or with {', '.join(others)} or {last}"
                raise WhenError(f"no accident {said(part)}: {_guess(part, ACCIDENT_WORDS, advice)}")
            kinds.add(ACCIDENT_WORDS[part])
    return AccidentWhen(frozenset(kinds), _parsed(terms, GPUS))


def _ends(words: Sequence[str], terms: str) -> EndWhen:
    """The end of processes: by PID, by a filter, or both."""
    for word in words:
        if not (word.isascii() and word.isdigit()):
            raise WhenError(
                f"ends what? {said(word)} is neither a process number nor a filter: write "
                "ends 12345 or ends user:me"
            )
        terms = f"pid:{word} {terms}".rstrip()
    if not terms:
        raise WhenError("ends what? Write ends 12345 or ends user:me")
    return EndWhen(_parsed(terms, PROCESSES))


def _filter(terms: str) -> GpuWhen | ProcessWhen:
    """A filter alone: of processes, unless a term of it is one of GPUs only."""
    of_processes = {term.name for term in PROCESSES.terms}
    of_gpus = {term.name for term in GPUS.terms}
    keys = [token.key for token in tokens(terms) if token.key is not None]
    for key in keys:
        if key not in of_processes | of_gpus:
            names = sorted(of_processes | of_gpus)
            advice = f"there are {', '.join(names)}"
            raise WhenError(f"no term {said(key)}: {_guess(key, names, advice)}")
    if any(key not in of_processes for key in keys):
        return GpuWhen(None, _parsed(terms, GPUS))
    return ProcessWhen(None, _parsed(terms, PROCESSES))


def _guess(word: str, names: Iterable[str], advice: str) -> str:
    """The advice, after the nearest of the names if one is near."""
    near = nearest(word, names)
    return advice if near is None else f"did you mean {near}? {advice[0].upper()}{advice[1:]}"


def _parsed(terms: str, language: Language[S, C]) -> Selection[S, C]:
    try:
        return parse(terms, language)
    except FilterError as error:
        raise WhenError(error.sentence) from None
