"""The classes that findings are: each states its texts and limits, and finds itself.

A ``Rule`` is about a GPU, a ``LastingRule`` has a condition that must last, a ``ProcessRule`` is
about a process. Everything else follows from the class: the order of the findings, the conditions
that a history tracks, the states of alerts, the exporter's words, the help page and the tables of
the documentation.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

from gpumon.findings.finding import SHORT_CELLS, Finding, Severity
from gpumon.findings.phrases import first_part, spaced
from gpumon.model.snapshot import Gpu
from gpumon.recording.history import Condition, ServerCondition
from gpumon.text.formatting import cell_width, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from gpumon.findings.explanation import ExplanationText
    from gpumon.findings.finding import Answer, FindingKind
    from gpumon.host.process_host import Details
    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.serving import ServerLoad
    from gpumon.model.snapshot import GpuStatus
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import History, Holding, Interval

HYSTERESIS = 5.0
"""Seconds. Slowdowns start and end several times a second; one ends after so long without it."""


class Words(NamedTuple):
    """The texts of a finding; see ``Finding``.

    Without a severity it has that of its rule, and without a time that of its condition.
    """

    sentence: str
    short: str
    brief: str
    evidence: tuple[str, ...] = ()
    since: float | None = None
    severity: Severity | None = None


Said: TypeAlias = Words | Literal[False] | None
"""``False`` if there is no finding, ``None`` if that is unknown."""


class HeldFor(NamedTuple):
    """For how long a condition has held; as text for a sentence."""

    history: History
    interval: Interval
    lasted: bool = True
    """Whether that is as long as the rule wants, in enough samples."""

    def __str__(self) -> str:
        known, started = spaced(self._seconds), self.history.started
        if self.interval.start_observed:
            return known
        if started is not None and self.interval.since > started:
            return f"at least {known} (unknown before that)"
        return f"at least {known} (since gpumon started)"

    @property
    def _seconds(self) -> float:
        return self.history.now - self.interval.since

    @property
    def samples(self) -> int:
        """The number of samples in which it held."""
        return self.interval.samples

    @property
    def short(self) -> str:
        """The duration for a column: ``4m``, or ``≥4m`` if the start was not observed."""
        return f"{'' if self.interval.start_observed else '≥'}{duration(self._seconds)}"

    @property
    def brief(self) -> str:
        """``short`` in one unit."""
        return f"{'' if self.interval.start_observed else '≥'}{first_part(self._seconds)}"

    def after(self, words: str) -> str:
        """Words for a column, with the duration, precise to the minute if there is room."""
        exact = words + self.short
        return exact if cell_width(exact) <= SHORT_CELLS else words + self.brief


_OF_HOLDS = ("thresholds", "gpu", "holding")
_OF_SAY: dict[str, Callable[[History, Gpu, HeldFor], Any]] = {
    "history": lambda history, _, __: history,
    "gpu": lambda _, gpu, __: gpu,
    "held": lambda _, __, held: held,
    "holding": lambda history, gpu, _: history.holding(gpu),
}
"""What ``holds`` and ``say`` may ask for, in this order, before fields of a GPU."""


class _Needs(NamedTuple):
    """What a function needs."""

    given: tuple[str, ...]
    """The parameters that are not fields of a GPU."""
    values: Callable[[Gpu], tuple[Any, ...]]
    """Reads the fields of a GPU."""


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the parameters, without ``self``; ``*`` for those that have no position."""
    # ``inspect`` takes longer to import than all rules. A decorated function, such as mutmut makes
    # of each, has the parameters of the one that it wraps.
    code = getattr(function, "__wrapped__", function).__code__
    names = code.co_varnames[1 : code.co_argcount]
    is_open = code.co_flags & 0x0C  # *args or **kwargs
    return (*names, "*") if is_open or code.co_kwonlyargcount else names


def _needs(function: Callable[..., Any], allowed: Collection[str]) -> _Needs:
    names = _parameters(function)
    given = tuple(name for name in allowed if name in names)
    fields = names[len(given) :]
    wrong = [name for name in fields if name not in Gpu.__struct_fields__]
    if wrong or names[: len(given)] != given:
        raise TypeError(
            f"{function.__qualname__} may ask for {', '.join(allowed)}, in this order, then for "
            f"fields of Gpu; it asks for {', '.join(names)}"
        )
    if len(fields) == 1:
        only = attrgetter(*fields)
        return _Needs(given, lambda gpu: (only(gpu),))
    return _Needs(given, attrgetter(*fields) if fields else lambda _: ())


def _check_attributes(cls: type[_AnyRule]) -> None:
    cls._known = cls._known | cls.__annotations__.keys()
    for name, value in vars(cls).items():
        if name not in cls._known and name[0] != "_" and not hasattr(value, "__get__"):  # a method
            raise TypeError(
                f"{cls.__name__} has an unknown attribute {name}: gpumon/findings/rule.py "
                f"describes those of rules; a new one has a type, such as {name}: ClassVar[float]"
            )
        if type(value) is str and name in _TUPLES:
            raise TypeError(f'{cls.__name__}.{name} must be a tuple, such as ("{value}",)')


_TUPLES = frozenset({"other_names", "exported_briefs", "assumed"})


class _AnyRule:
    """What rules about GPUs and about processes share."""

    kind: ClassVar[FindingKind]
    severity: ClassVar[Severity] = Severity.NOTE
    """The usual one; that of the kind where only the kind is known, as from an exporter."""
    explanation: ClassVar[ExplanationText]
    other_names: ClassVar[tuple[str, ...]] = ()
    """Its other names in ``when`` of an alert, in small letters, without ``-`` and ``_``."""
    is_alert_state: ClassVar[bool] = True
    """Whether an alert can name it."""
    is_forecast: ClassVar[bool] = False
    """Whether it looks ahead: it begins before it can be seen."""
    is_normal_use: ClassVar[bool] = False
    """Whether it only says that the GPU is used as it should be."""
    sign: ClassVar[tuple[str, str] | None] = None
    """Its own glyph with the meaning, for a finding less severe than a warning; others have that of
    their severity."""
    hides_memory: ClassVar[bool] = False
    """Whether its glyph says more than the memory, where one cell shows a GPU."""
    holder_first: ClassVar[bool] = False
    """Whether the holder's name goes before the rest of its text in a narrow row, as that has only
    numbers."""
    exported_briefs: ClassVar[tuple[str, ...]] = ()
    """What the exporter says instead of the kind: brief texts of the finding."""
    _known: ClassVar[frozenset[str]]
    """The attributes that the class and its bases declare."""

    def __init_subclass__(cls) -> None:
        # A mistake must fail at import: a rule may be asked first when a GPU has a fault.
        _check_attributes(cls)
        if "kind" in vars(cls):
            _require(cls, "explanation")

    def conditions(
        self, thresholds: Thresholds
    ) -> Mapping[str, Condition] | Mapping[str, ServerCondition]:
        """The conditions that a history must track for it, by name."""
        return {}

    def _finding(
        self, subject: str | ProcessId, words: Words, held: HeldFor | None = None
    ) -> Finding:
        since = words.since
        if since is None and held is not None:
            since = held.interval.since
        return Finding(
            kind=self.kind,
            subject=subject,
            severity=self.severity if words.severity is None else words.severity,
            sentence=words.sentence,
            short=words.short,
            brief=words.brief,
            since=since,
            evidence=words.evidence,
        )


_AnyRule._known = frozenset(_AnyRule.__annotations__)  # noqa: SLF001 - its own module


class Rule(_AnyRule):
    """A finding about a GPU."""

    is_permanent: ClassVar[bool] = False
    """Whether it does not pass by itself, so that old values still prove it."""
    is_detail: ClassVar[bool] = False
    """Whether it is never the state of a GPU, but listed with the others."""
    is_fallback: ClassVar[bool] = False
    """Whether it is for a GPU without any other finding."""
    is_event: ClassVar[bool] = False
    """Whether alerts repeat it as soon as an event, rather than as a lasting state."""
    status: ClassVar[GpuStatus | None] = None
    """The status that the GPU reports then; such a rule is asked only for GPUs with this status."""
    assumed: ClassVar[tuple[str, ...]] = ()
    """Fields that count as 0 on a GPU that never had them. While a GPU that had one reports none,
    it is unknown whether it has the finding."""
    say: ClassVar[Callable[..., Said]]
    """Takes ``history`` and ``gpu``."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" not in vars(cls) or cls.answer is not Rule.answer:
            return
        _require(cls, "say")
        names = _parameters(cls.say)
        if names != ("history", "gpu"):
            raise TypeError(
                f"{cls.say.__qualname__} must ask for history, gpu; it asks for {', '.join(names)}"
            )

    def answer(self, history: History, gpu: Gpu) -> Answer:
        """The finding of a GPU in the newest snapshot; ``None`` if that is unknown."""
        words = self.say(history, gpu)
        return words and self._finding(gpu.uuid, words)


class LastingRule(Rule):
    """A finding whose condition has lasted, in enough samples.

    The parameters of ``holds`` and ``say`` name what they need, in this order:

    - ``holds``: ``thresholds``, ``gpu``, ``holding``, then fields of ``Gpu``;
    - ``say``: ``history``, ``gpu``, ``held`` (for how long the condition has held), ``holding``,
      then fields of ``Gpu``.

    ``holding`` is what processes have on the GPU. The methods are called only if ``holding`` and
    all these fields are known; otherwise the answer is unknown. Other names fail at import.
    """

    after: ClassVar[float]
    """Seconds for which the condition must have held; if users can change them, ``least_seconds``
    returns them instead."""
    least_samples: ClassVar[int] = 10
    """In how many samples it must have held, too, so that with 5 s between samples nothing is found
    before 45 s. At one sample every five minutes, three cover ten minutes and prove nothing."""
    hysteresis: ClassVar[float] = 0.0
    """Seconds for which the condition may be absent without ending."""
    shows_at_once: ClassVar[bool] = False
    """Whether a condition that holds at the first sample is a finding at once, as of now: some
    users look only once."""
    holds: ClassVar[Callable[..., bool | None]]
    _needs_of_say: ClassVar[_Needs]
    _condition: ClassVar[str]
    """The name of its condition; ``Enum.value`` is slow."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" not in vars(cls):
            return
        cls._condition = cls.kind.value
        if cls.conditions is LastingRule.conditions:
            _require(cls, "holds")
            _needs(cls.holds, _OF_HOLDS)
        if cls.answer is LastingRule.answer:
            _require(cls, "say")
            cls._needs_of_say = _needs(cls.say, _OF_SAY)
        if cls.least_seconds is LastingRule.least_seconds:
            _require(cls, "after")

    def conditions(self, thresholds: Thresholds) -> dict[str, Condition]:
        holds = bound(self.holds, thresholds)
        return {self._condition: Condition(holds, self.hysteresis, assumed=self.assumed)}

    def least_seconds(self, thresholds: Thresholds) -> float:
        """For how long the condition must have held."""
        return self.after

    def answer(self, history: History, gpu: Gpu) -> Answer:
        held = self.held(history, gpu, self._condition)
        if not held:
            return held
        needs = self._needs_of_say
        values = *[_OF_SAY[name](history, gpu, held) for name in needs.given], *needs.values(gpu)
        words = None if None in values else self.say(*values)
        return words and self._finding(gpu.uuid, words, held)

    def held(self, history: History, gpu: Gpu, condition: str) -> HeldFor | Literal[False] | None:
        """For how long a condition has held.

        ``False`` if not for long enough, ``None`` if that is unknown.
        """
        interval = history.interval(gpu.uuid, condition)
        if interval is not None:
            interval = self.relevant(history, gpu, interval)
        if interval is None:
            return False if history.holds(gpu.uuid, condition) is False else None
        least = self.least_seconds(history.thresholds)
        lasted = interval.seconds >= least and interval.samples >= self.least_samples
        if lasted or (self.shows_at_once and not interval.start_observed):
            return HeldFor(history, interval, lasted)
        # It was unknown until it was seen, and may have held before.
        return False if interval.start_observed else None

    def relevant(self, history: History, gpu: Gpu, interval: Interval) -> Interval | None:
        """The part of the interval in which its condition holds that counts, if any."""
        return interval


class ProcessRule(_AnyRule):
    """A finding about a process."""

    is_slow: ClassVar[bool] = False
    """Whether an answer takes some 0.3 ms: an alert asks it of a few processes at a time."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in vars(cls):
            _require(cls, "answer")

    def answer(
        self, history: History, process: GpuProcess, details: Details | None = None
    ) -> Answer:
        """The finding of a process in the newest list; ``None`` if that is unknown."""
        raise NotImplementedError


class ServerRule(ProcessRule):
    """A finding about an inference server, whose condition has lasted."""

    after: ClassVar[float]
    """Seconds for which the condition must have held."""
    least_samples: ClassVar[int] = 3
    """In how many process lists it must have held, too."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in vars(cls):
            _require(cls, "after")

    def conditions(self, thresholds: Thresholds) -> Mapping[str, ServerCondition]:
        return {self.kind.value: ServerCondition(self.holds)}

    def holds(self, process: GpuProcess) -> bool | None:
        """Whether the condition holds for the server of a process; ``None`` if that is unknown."""
        raise NotImplementedError

    def say(self, process: GpuProcess, load: ServerLoad, held: HeldFor) -> Words:
        """The texts; ``held`` is for how long the condition has held."""
        raise NotImplementedError

    def answer(
        self, history: History, process: GpuProcess, details: Details | None = None
    ) -> Answer:
        if process.load is None:
            return None
        holds = self.holds(process)
        if not holds:
            return None if holds is None else False
        interval = history.server_interval(process.id, self.kind.value)
        if interval is None:
            return None
        if interval.seconds < self.after or interval.samples < self.least_samples:
            return False if interval.start_observed else None
        held = HeldFor(history, interval)
        return self._finding(process.id, self.say(process, process.load, held), held)


def bound(
    holds: Callable[..., bool | None], thresholds: Thresholds
) -> Callable[[Gpu, Holding | None], bool | None]:
    """A condition for ``Condition``: unknown while something that the method needs is unknown."""
    given, values = _needs(holds.__func__, _OF_HOLDS)  # type: ignore[attr-defined] # a method
    if "thresholds" in given:
        holds = partial(holds, thresholds)
    needs_gpu, needs_holding = "gpu" in given, "holding" in given

    def condition(gpu: Gpu, holding: Holding | None) -> bool | None:
        fields = values(gpu)
        if None in fields or (needs_holding and holding is None):
            return None
        if needs_gpu:
            return holds(gpu, holding, *fields) if needs_holding else holds(gpu, *fields)
        return holds(holding, *fields) if needs_holding else holds(*fields)

    return condition


def _require(cls: type[_AnyRule], name: str) -> None:
    # ``ProcessRule.answer`` is there only to describe what a class must have.
    if getattr(cls, name, None) is getattr(ProcessRule, name, None):
        raise TypeError(f"{cls.__name__} lacks {name}: gpumon/findings/rule.py describes it")
