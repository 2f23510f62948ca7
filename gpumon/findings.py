"""What gpumon says of a card: a rule a function, each with its evidence.

A rule takes the history and a card and gives a finding or ``None``. It claims only what was seen:
an unknown value makes no finding, and what held already when gpumon began to look is said to have
held "at least" since then. What has to be followed over time, in every sample, are the conditions;
the history keeps their spells, so make it with ``History(conditions())``.
"""

from __future__ import annotations

import re
import time
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.history import Condition, Spell
from gpumon.metrics import CLOCK_EVENT_REASONS
from gpumon.model import CardStatus
from gpumon.text import UNKNOWN, cell_width, duration, fit, gibibytes, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.history import History, Holding
    from gpumon.model import Gpu

SHORT_CELLS = 32
"""The widest ``Finding.short``."""
BRIEF_CELLS = 10
"""The widest ``Finding.brief``."""


class Severity(IntEnum):
    """How much a finding asks for the eye."""

    QUIET = 0
    """All is well."""
    GOOD = 1
    """Something to take: a free card."""
    NOTE = 2
    """Worth knowing."""
    WARNING = 3
    """Something is probably wrong."""
    CRITICAL = 4
    """The card cannot be used."""


class FindingKind(str, Enum):
    """What is found, in the order in which one is shown before another."""

    LOST = "lost"
    RESET_REQUIRED = "reset required"
    NO_ANSWER = "no answer"
    FAILING = "failing"
    HOT = "hot"
    THROTTLED = "throttled"
    STUCK = "stuck"
    UNATTRIBUTED = "unattributed"
    IDLE = "idle"
    FULL = "full"
    NO_PERMISSION = "no permission"
    ASLEEP = "asleep"
    FREE = "free"
    WORKING = "working"
    UNKNOWN = "unknown"


class Finding(Struct, frozen=True):
    """Something that is said of a card.

    Attributes:
        kind: What.
        subject: UUID of the card.
        severity: How much it asks for the eye.
        sentence: The whole of it, for the details.
        short: For a column, at most ``SHORT_CELLS`` cells, safe to print.
        brief: For a narrow screen, at most ``BRIEF_CELLS`` cells.
        since: Since when, as far as was seen; seconds since the epoch.
        evidence: The facts behind it, with their numbers.
    """

    kind: FindingKind
    subject: str
    severity: Severity
    sentence: str
    short: str
    brief: str
    since: float | None = None
    evidence: tuple[str, ...] = ()


class Thresholds(Struct, frozen=True):
    """Where the lines are drawn.

    Attributes:
        hot_margin: Degrees from the card's own slowdown temperature at which it is hot: near enough
            that a warmer room would slow it down.
        hot_unknown: Degrees Celsius that are hot where the card tells neither that temperature nor
            its margin. A guess: slowdown points of NVIDIA's cards lie around 90.
        full_share: A card is full below this share of free memory: 1 to 4 GB of 24 to 80, of which
            another process's CUDA context and libraries take several hundred MB before its first
            tensor.
        overhead_bytes: Memory that may be in use with no process to show for it. Drivers from 510
            on count what they reserve as used in the older of two calls: 308 MB (gpustat#141), 513
            MiB on an A10G (gpustat#168), and hide clients of their own; half as much again.
        overhead_share: The same as a share of the card, where that is more: what is reserved grows
            with the memory.
        idle_after: Seconds without work after which a card that is held is idle; between two steps,
            or while a checkpoint is read, a job rests for less.
        stuck_utilization: Percent from which on a card counts as fully busy,
        stuck_power_share: and the share of its power limit below which it hardly computes. A rule
            of thumb and no fact of the driver's, hence the question mark: a kernel that waits for
            others counts as running (see ``utilization_gpu``), and draws little.
        stuck_after: Seconds of both together; a collective that waits in vain gives up after ten
            minutes too (PyTorch's default for NCCL), so a job that recovers by itself has by then.
        throttled_after: Seconds of slowdown that are worth a word; one sample may be a change of
            clocks (nvml.h says so of HW slowdown).
        unattributed_after: Seconds for which memory must have no owner: lists of processes are read
            less often than the memory.
    """

    hot_margin: float = 5.0
    hot_unknown: float = 85.0
    full_share: float = 0.05
    overhead_bytes: int = 768 * 2**20
    overhead_share: float = 0.01
    idle_after: float = 60.0
    stuck_utilization: float = 95.0
    stuck_power_share: float = 0.30
    stuck_after: float = 600.0
    throttled_after: float = 2.0
    unattributed_after: float = 10.0


DEFAULTS = Thresholds()

XID_MEANINGS: dict[int, str] = {
    13: "a program crashed on the graphics engine",
    31: "a program touched memory that it does not own",
    32: "a program's commands arrived corrupted",
    38: "the firmware reported an error",
    43: "a program was stopped after an error of its own",
    44: "a fault while programs took turns",
    45: "a program was ended after an earlier error, or killed",
    46: "the card stopped processing",
    48: "memory error that could not be corrected",
    61: "the card's micro-controller warned",
    62: "the card's micro-controller halted",
    63: "a bad piece of memory was marked for replacement",
    64: "a bad piece of memory could not be replaced",
    68: "the video decoder failed",
    69: "a program used the graphics engine wrongly",
    74: "error on an NVLink",
    79: "the card fell off the bus",
    92: "corrected memory errors are frequent",
    94: "memory error, kept within one program",
    95: "memory error that may have touched every program",
    109: "a program did not make way for another in time",
    119: "the card's system processor (GSP) did not answer",
    120: "the card's system processor (GSP) failed",
    121: "error on the link between chips (C2C)",
    140: "memory error that was not recovered from",
    143: "the card could not be initialised",
    154: "the driver changed its advice on how to recover the card",
}
"""The common ones of NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors), in plain words."""

THERMAL_BITS = (0x40, 0x20)
"""HW and SW thermal slowdown: the card holds itself to be too hot."""
HW_SLOWDOWN, HW_POWER_BRAKE = 0x08, 0x80
"""HW slowdown alone tells no cause; heat and the power brake set it too (nvml.h)."""

_IDLE, _STUCK, _HOT, _UNATTRIBUTED = "idle", "stuck", "hot", "unattributed"
_COMES_AND_GOES = 5.0
"""Slowdowns come and go several times a second: after so many seconds without, one is over."""


def conditions(thresholds: Thresholds = DEFAULTS) -> dict[str, Condition]:
    """What the history must watch for the rules."""
    watched = {
        _IDLE: Condition(_is_idle),
        _STUCK: Condition(lambda gpu, _: _is_stuck(gpu, thresholds)),
        _HOT: Condition(lambda gpu, _: _is_hot(gpu, thresholds), linger=_COMES_AND_GOES),
        _UNATTRIBUTED: Condition(lambda gpu, holding: _is_unattributed(gpu, holding, thresholds)),
    }
    for bit in (*THERMAL_BITS, HW_SLOWDOWN, HW_POWER_BRAKE):
        watched[CLOCK_EVENT_REASONS[bit]] = Condition(_is_slowed_by(bit), linger=_COMES_AND_GOES)
    return watched


def card_findings(history: History, gpu: Gpu, thresholds: Thresholds = DEFAULTS) -> list[Finding]:
    """All that is to be said of a card as it stands in the newest snapshot, most severe first.

    Never empty: when nothing else is to be said it is free, at work, or unknown.
    """
    status = _status(history, gpu)
    if status is not None and gpu.status is not CardStatus.FAILING:
        return [status]
    found = [status] if status is not None else []
    for rule in RULES:
        finding = rule(history, gpu, thresholds)
        if finding is not None:
            found.append(finding)
    rest = free(history, gpu, thresholds)
    if rest is not None:
        found.append(rest)
    if not found:
        return [_working(history, gpu)]
    return found


def card_state(history: History, gpu: Gpu, thresholds: Thresholds = DEFAULTS) -> Finding:
    """The one to show of ``card_findings``."""
    return card_findings(history, gpu, thresholds)[0]


def hot(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Slowed down by heat, or close to it.

    A thermal clock event is the card's own word for being too hot. Without one, its margin or its
    slowdown temperature says how close it is.
    """
    slowed = _slowed(history, gpu, THERMAL_BITS, thresholds)
    degrees = f"{_number(gpu.temperature_gpu)} °C"
    if slowed is not None:
        name, lasting, names = slowed
        return Finding(
            kind=FindingKind.HOT,
            subject=gpu.uuid,
            severity=Severity.WARNING,
            sentence=f"too hot ({degrees}): slowed down by {names} for {_long(history, lasting)}",
            short=_lasting(f"hot: {name} ", history, lasting),
            brief="hot",
            since=lasting.since,
            evidence=(f"clock event reasons: {names}", *_heat(gpu)),
        )
    spell = history.spell(gpu.uuid, _HOT)
    if spell is None:
        return None
    short = f"hot: {degrees}"
    margins = _margins(gpu)
    if not margins:
        why = "where it slows down is not known, but this is hot for any card"
    elif gpu.temperature_margin == min(margins):
        short += f", margin {gpu.temperature_margin} °C"
        why = f"its margin to slowing down is {gpu.temperature_margin} °C"
    else:
        short += f", slows at {gpu.temperature_slowdown} °C"
        why = f"it slows down at {gpu.temperature_slowdown} °C"
    return Finding(
        kind=FindingKind.HOT,
        subject=gpu.uuid,
        severity=Severity.WARNING,
        sentence=f"hot, {degrees}, for {_long(history, spell)}: {why}",
        short=short,
        brief="hot",
        since=spell.since,
        evidence=_heat(gpu),
    )


def throttled(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Slowed down by its hardware for another reason than heat.

    A software power cap is how a busy card keeps to its limit, and no finding. HW slowdown beside a
    thermal reason is the same slowdown again.
    """
    slowed = _slowed(history, gpu, (HW_POWER_BRAKE,), thresholds)
    if slowed is None and _slowed(history, gpu, THERMAL_BITS, thresholds) is None:
        slowed = _slowed(history, gpu, (HW_SLOWDOWN,), thresholds)
    if slowed is None:
        return None
    name, spell, names = slowed
    return Finding(
        kind=FindingKind.THROTTLED,
        subject=gpu.uuid,
        severity=Severity.WARNING,
        sentence=f"slowed down by {names} for {_long(history, spell)}: {_SLOWDOWN_WORDS[name]}",
        short=_lasting(f"throttled: {name} ", history, spell),
        brief="throttled",
        since=spell.since,
        evidence=(f"clock event reasons: {names}", f"SM clock {_number(gpu.clock_sm)} MHz"),
    )


def stuck(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Busy all the time at little power for long: a hung job can look like this, and may be none.

    Utilisation is the share of time in which any kernel ran, so a kernel that only waits reads as
    100 %; the power tells that it computes nothing.
    """
    spell = history.spell(gpu.uuid, _STUCK)
    if spell is None or spell.seconds < thresholds.stuck_after:
        return None
    if gpu.utilization_gpu is None or gpu.power_draw is None or not gpu.power_limit:
        return None
    busy, share = gpu.utilization_gpu, 100 * gpu.power_draw / gpu.power_limit
    return Finding(
        kind=FindingKind.STUCK,
        subject=gpu.uuid,
        severity=Severity.WARNING,
        sentence=f"{busy} % busy at {share:.0f} % of its power limit for {_long(history, spell)}: "
        "a hung job can look like this",
        short=_lasting(f"stuck? {busy}% at {share:.0f}% power, ", history, spell),
        brief="stuck?",
        since=spell.since,
        evidence=(
            f"utilisation {busy} %",
            f"power {gpu.power_draw:.0f} W of {gpu.power_limit:.0f} W",
        ),
    )


def unattributed(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Memory in use that no process in the driver's list owns.

    ``Thresholds.overhead_bytes`` says what is normal. Nothing is claimed while the memory of any
    process on the card, or the list itself, is unknown, nor where the card has no memory of its
    own. Sources: the driver keeps its own clients out of the list, and lists 950 processes at most.
    """
    spell = history.spell(gpu.uuid, _UNATTRIBUTED)
    if spell is None or spell.seconds < thresholds.unattributed_after:
        return None
    holding = history.holding(gpu)
    if holding is None or holding.memory is None or gpu.memory_used is None:
        return None
    size = gpu.memory_used - holding.memory
    where = "no process visible here" if holding.hidden else "no process"
    return Finding(
        kind=FindingKind.UNATTRIBUTED,
        subject=gpu.uuid,
        severity=Severity.WARNING,
        sentence=f"{gibibytes(size)} GiB held by {where}, for {_long(history, spell)}: left by one "
        "that ended or is ending, or held from where gpumon cannot look",
        short=f"{gibibytes(size)}G: {where}"
        if holding.hidden
        else f"{gibibytes(size)}G held by no process",
        brief=f"{size / 2**30:.0f}G lost",
        since=spell.since,
        evidence=(
            f"memory used {gibibytes(gpu.memory_used)} GiB",
            f"{_processes(holding.processes)} on it, with {gibibytes(holding.memory)} GiB",
            *([f"{holding.hidden} of them not visible here"] if holding.hidden else []),
        ),
    )


def idle(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Held by a computing process, and nothing has run for a while.

    Who came later than the card fell idle is not blamed for what was before: the time counts from
    when the one named began.
    """
    spell = history.spell(gpu.uuid, _IDLE)
    holding = history.holding(gpu)
    if spell is None or holding is None or not holding.owners:
        return None
    if holding.owner_since is not None and holding.owner_since > spell.since:
        spell = Spell(holding.owner_since, spell.last, begin_seen=True)
    if spell.seconds < thresholds.idle_after:
        return None
    length = _length(history, spell)
    owner = holding.owners[0]
    others = f" +{len(holding.owners) - 1}" if len(holding.owners) > 1 else ""
    if owner is None:
        short = f"idle {length}, holder not visible"
    else:
        start = f"idle {length}, held by "
        room = SHORT_CELLS - cell_width(start) - len(others)
        short = start + _at_most(printable(owner), room) + others
    who = "a process not visible here" if owner is None else printable(owner)
    size = "memory" if holding.memory is None else f"{gibibytes(holding.memory)} GiB"
    return Finding(
        kind=FindingKind.IDLE,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"idle for {_long(history, spell)} while {who}{others} holds {size}",
        short=short,
        brief=f"idle {_coarse(history, spell)}",
        since=spell.since,
        evidence=(
            "utilisation 0 % all that time",
            f"{_processes(holding.processes)} on it, with {size}",
        ),
    )


def full(_history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """No room for another process; ``Thresholds.full_share`` says why there.

    Not for cards that share the host's memory: what the host can reclaim is free to them too.
    """
    if gpu.memory_unified or gpu.memory_free is None or not gpu.memory_total:
        return None
    if gpu.memory_free >= thresholds.full_share * gpu.memory_total:
        return None
    left = f"{gibibytes(gpu.memory_free)} of {gibibytes(gpu.memory_total)} GiB"
    return Finding(
        kind=FindingKind.FULL,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"full: {left} are free",
        short="full",
        brief="full",
        evidence=(f"memory free {left}",),
    )


def free(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Nobody's: no process, no work, no memory beyond what the driver keeps.

    Where the utilisation is not reported, as on a card in MIG mode, memory and processes decide,
    and the sentence says so. Without a list of processes no card is called free.
    """
    holding = history.holding(gpu)
    if holding is None or holding.processes or gpu.utilization_gpu:
        return None
    used = gpu.memory_used
    if used is None and (gpu.utilization_gpu is None or not gpu.memory_unified):
        return None
    if used is not None and not gpu.memory_unified and used > _overhead(gpu, thresholds):
        return None
    busy = "utilisation is not reported" if gpu.utilization_gpu is None else "utilisation 0 %"
    return Finding(
        kind=FindingKind.FREE,
        subject=gpu.uuid,
        severity=Severity.GOOD,
        sentence=f"free: no process is on it; {busy}",
        short="free",
        brief="free",
        evidence=("no process", f"memory used {gibibytes(used)} GiB", busy),
    )


RULES = (hot, throttled, stuck, unattributed, idle, full)
"""What may be said of a card that answers and is not simply free or at work, most severe first."""

_PART = re.compile(r"(\d+)([a-z])")
"""A number and its unit in what ``duration`` writes."""

_SLOWDOWN_WORDS = {
    CLOCK_EVENT_REASONS[HW_POWER_BRAKE]: "the machine's power supply asked for it",
    CLOCK_EVENT_REASONS[HW_SLOWDOWN]: "heat, the power supply or a sudden draw can be the cause",
}


class _StatusWords(Struct, frozen=True):
    """How a status is told; what stands in braces is filled in where it is known."""

    kind: FindingKind
    severity: Severity
    sentence: str
    short: str
    brief: str


_STATUS_WORDS = {
    CardStatus.LOST: _StatusWords(
        FindingKind.LOST,
        Severity.CRITICAL,
        "lost{since}: the driver says that the card is gone",
        "LOST{at}{xid}",
        "LOST",
    ),
    CardStatus.RESET_REQUIRED: _StatusWords(
        FindingKind.RESET_REQUIRED,
        Severity.CRITICAL,
        "must be reset before it can be used{since}: `nvidia-smi --gpu-reset` as root once nothing "
        "uses it, or a reboot",
        "reset required{xid}",
        "RESET",
    ),
    CardStatus.NO_ANSWER: _StatusWords(
        FindingKind.NO_ANSWER,
        Severity.CRITICAL,
        "no answer{length}: a call to the card has not come back",
        "no answer{length}",
        "no answer",
    ),
    CardStatus.FAILING: _StatusWords(
        FindingKind.FAILING,
        Severity.WARNING,
        "most calls to it fail{since}, for a reason that the driver calls unknown",
        "most calls fail{length}",
        "failing",
    ),
    CardStatus.NO_PERMISSION: _StatusWords(
        FindingKind.NO_PERMISSION,
        Severity.NOTE,
        "this user may not open the card, or this container was not given it",
        "no permission",
        "no access",
    ),
    CardStatus.ASLEEP: _StatusWords(
        FindingKind.ASLEEP,
        Severity.NOTE,
        "powered down while nobody uses it; gpumon does not wake it",
        "asleep",
        "asleep",
    ),
}


def _status(history: History, gpu: Gpu) -> Finding | None:
    """What a status other than OK comes to."""
    if gpu.status is CardStatus.OK:
        return None
    words = _STATUS_WORDS[gpu.status]
    since = gpu.status_since
    blanks = {"at": "", "since": "", "length": "", "xid": ""}
    if since is not None:
        blanks |= _status_times(history, since)
    if gpu.xid is not None:
        blanks["xid"] = f" (XID {gpu.xid})"
    sentence = words.sentence.format_map(blanks)
    evidence: tuple[str, ...] = (f"status: {gpu.status.value}",)
    if gpu.xid is not None and words.severity is Severity.CRITICAL:
        error = f"last XID {gpu.xid}: {XID_MEANINGS.get(gpu.xid, 'look it up in XID Errors')}"
        at = "" if gpu.xid_at is None else f", at {_moment(history, gpu.xid_at)}"
        sentence, evidence = f"{sentence}; {error}", (*evidence, error + at)
    return Finding(
        kind=words.kind,
        subject=gpu.uuid,
        severity=words.severity,
        sentence=sentence,
        short=words.short.format_map(blanks),
        brief=words.brief,
        since=since,
        evidence=evidence,
    )


def _working(history: History, gpu: Gpu) -> Finding:
    """A card of which nothing else is to be said."""
    holding = history.holding(gpu)
    held = holding is not None and holding.processes > 0
    unknown = gpu.utilization_gpu is None and gpu.memory_used is None and not held
    facts = [
        "utilisation unknown" if gpu.utilization_gpu is None else f"{gpu.utilization_gpu} % busy",
        f"memory used {gibibytes(gpu.memory_used)} GiB",
        "processes unknown" if holding is None else f"{_processes(holding.processes)} on it",
    ]
    return Finding(
        kind=FindingKind.UNKNOWN if unknown else FindingKind.WORKING,
        subject=gpu.uuid,
        severity=Severity.QUIET,
        sentence=f"{'unknown' if unknown else 'in use'}: {', '.join(facts)}",
        short="unknown" if unknown else "ok",
        brief="unknown" if unknown else "ok",
        evidence=tuple(facts),
    )


def _is_idle(gpu: Gpu, holding: Holding | None) -> bool | None:
    """Whether a card does nothing while a process that computes is on it."""
    if gpu.utilization_gpu is None or holding is None:
        return None
    return gpu.utilization_gpu == 0 and holding.computing > 0


def _is_stuck(gpu: Gpu, thresholds: Thresholds) -> bool | None:
    """Whether a card is fully busy at a power that does not look like it."""
    if gpu.utilization_gpu is None or gpu.power_draw is None or not gpu.power_limit:
        return None
    return (
        gpu.utilization_gpu >= thresholds.stuck_utilization
        and gpu.power_draw < thresholds.stuck_power_share * gpu.power_limit
    )


def _is_hot(gpu: Gpu, thresholds: Thresholds) -> bool | None:
    """Whether a card is close to slowing itself down."""
    margins = _margins(gpu)
    if margins:
        return min(margins) <= thresholds.hot_margin
    return None if gpu.temperature_gpu is None else gpu.temperature_gpu >= thresholds.hot_unknown


def _margins(gpu: Gpu) -> list[int]:
    """Degrees to slowing down, by the card's own word and by its slowdown temperature."""
    margins = []
    if gpu.temperature_margin is not None:
        margins.append(gpu.temperature_margin)
    if gpu.temperature_gpu is not None and gpu.temperature_slowdown is not None:
        margins.append(gpu.temperature_slowdown - gpu.temperature_gpu)
    return margins


def _is_slowed_by(bit: int) -> Callable[[Gpu, Holding | None], bool | None]:
    """Whether a clock event reason is active."""

    def holds(gpu: Gpu, _: Holding | None) -> bool | None:
        reasons = gpu.clock_event_reasons
        return None if reasons is None else bool(reasons & bit)

    return holds


def _is_unattributed(gpu: Gpu, holding: Holding | None, thresholds: Thresholds) -> bool | None:
    """Whether more memory is used than processes and the driver account for."""
    if gpu.memory_used is None or gpu.memory_unified or holding is None or holding.memory is None:
        return None
    return gpu.memory_used - holding.memory > _overhead(gpu, thresholds)


def _overhead(gpu: Gpu, thresholds: Thresholds) -> float:
    """Bytes that may be in use with no process to show for it."""
    return max(thresholds.overhead_bytes, thresholds.overhead_share * (gpu.memory_total or 0))


def _slowed(
    history: History, gpu: Gpu, bits: tuple[int, ...], thresholds: Thresholds
) -> tuple[str, Spell, str] | None:
    """The longest of some slowdowns that have lasted: its name, its spell, the names of all."""
    lasting = [
        (name, spell)
        for name in (CLOCK_EVENT_REASONS[bit] for bit in bits)
        if (spell := history.spell(gpu.uuid, name)) is not None
        and spell.seconds >= thresholds.throttled_after
    ]
    if not lasting:
        return None
    name, spell = min(lasting, key=lambda slowdown: slowdown[1].since)
    return name, spell, " and ".join(name for name, _ in lasting)


def _heat(gpu: Gpu) -> tuple[str, ...]:
    """What a card tells of its temperature."""
    facts = [f"GPU temperature {_number(gpu.temperature_gpu)} °C"]
    if gpu.temperature_slowdown is not None:
        facts.append(f"slows down at {gpu.temperature_slowdown} °C")
    if gpu.temperature_margin is not None:
        facts.append(f"{gpu.temperature_margin} °C from slowing down")
    return tuple(facts)


def _processes(count: int) -> str:
    if count == 0:
        return "no process"
    return "1 process" if count == 1 else f"{count} processes"


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _at_most(text: str, width: int) -> str:
    """The text, cut with an ellipsis where it is wider."""
    return text if cell_width(text) <= width else fit(text, width).rstrip()


def _length(history: History, spell: Spell) -> str:
    """How long, for a column: ``4m``, or ``≥4m`` when the beginning was not seen."""
    return f"{'' if spell.begin_seen else '≥'}{duration(history.now - spell.since)}"


def _lasting(words: str, history: History, spell: Spell) -> str:
    """Words for a column and how long: to the minute where there is room for it."""
    exact = words + _length(history, spell)
    return exact if cell_width(exact) <= SHORT_CELLS else words + _coarse(history, spell)


def _coarse(history: History, spell: Spell) -> str:
    """``_length`` in one unit."""
    first = _PART.match(duration(history.now - spell.since))
    return f"{'' if spell.begin_seen else '≥'}{first[0] if first else ''}"


def _long(history: History, spell: Spell) -> str:
    """How long, for a sentence, and what is not known of it."""
    length = _spaced(history.now - spell.since)
    if spell.begin_seen:
        return length
    if history.started is not None and spell.since > history.started:
        return f"at least {length} (what was before is not known)"
    return f"at least {length} (as long as gpumon looks)"


def _spaced(seconds: float) -> str:
    """A length of time for a sentence: ``4 s``, ``22 m``, ``3 h 12 m``."""
    return _PART.sub(r"\1 \2 ", duration(seconds)).rstrip()


def _status_times(history: History, since: float) -> dict[str, str]:
    """The ways to say since when a status holds.

    What held when gpumon began to look began before that. Another day's time of day says little,
    so a length takes its place.
    """
    age = history.now - since
    unseen = history.started is None or since <= history.started
    if age < 86400:
        moment = _moment(history, since)
        at = f" before {moment}" if unseen else f" since {moment}"
        told = f" since before {moment}" if unseen else at
    else:
        at = f" for {'≥' if unseen else ''}{duration(age)}"
        told = f" for {'at least ' if unseen else ''}{_spaced(age)}"
    return {"at": at, "since": told, "length": f" for {_spaced(age)}"}


def _moment(history: History, at: float) -> str:
    """A time of day here, with its date when it is more than a day ago."""
    format_ = "%H:%M" if history.now - at < 86400 else "%Y-%m-%d %H:%M"
    return time.strftime(format_, time.localtime(at))
