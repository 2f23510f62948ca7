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
    """What is found, in the order in which those of one severity are shown."""

    LOST = "lost"
    RESET_REQUIRED = "reset required"
    NO_ANSWER = "no answer"
    FAILING = "failing"
    MEMORY_ERRORS = "memory errors"
    RECOVERY = "recovery"
    HOT = "hot"
    THROTTLED = "throttled"
    XID = "xid"
    STUCK = "stuck"
    UNATTRIBUTED = "unattributed"
    IDLE = "idle"
    FULL = "full"
    OLD = "old values"
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
        least_samples: How many samples it takes, besides the time, to call a card idle or stuck: at
            one sample in five minutes three of them fill ten minutes and show nothing.
        program_xid_for: Seconds for which an XID that a program causes is told: the card is well
            after it, and who looks for why a job ended looks soon.
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
    least_samples: int = 10
    program_xid_for: float = 600.0


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

PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68})
"""Those that a program brings about and that leave the card well, by the same catalogue."""

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

    Never empty: when nothing else is to be said it is free, at work, or unknown. Of old values, as
    they stand there while another card hangs, their age is said and what does not pass by itself.
    """
    status = _status(history, gpu)
    if status is not None and gpu.status is not CardStatus.FAILING:
        return [status]
    found = [status] if status is not None else []
    stale = old(history, gpu)
    for rule in RULES if stale is None else LASTING:
        finding = rule(history, gpu, thresholds)
        if finding is not None:
            found.append(finding)
    rest = stale or free(history, gpu, thresholds)
    if rest is not None:
        found.append(rest)
    if not found:
        return [_working(history, gpu)]
    return sorted(found, key=lambda finding: -finding.severity)


def card_state(history: History, gpu: Gpu, thresholds: Thresholds = DEFAULTS) -> Finding:
    """The one to show of ``card_findings``."""
    return card_findings(history, gpu, thresholds)[0]


def memory_errors(_history: History, gpu: Gpu, _thresholds: Thresholds) -> Finding | None:
    """Memory that failed, and what is still to be done about it.

    Source: NVIDIA's "GPU Memory Error Management". A row or page that was found bad is replaced at
    the next reset; when none is left to replace it, the card is to be returned. Until then it may
    fail again, so nobody is sent there.
    """
    faults = _memory_faults(gpu)
    if not faults:
        return None
    return Finding(
        kind=FindingKind.MEMORY_ERRORS,
        subject=gpu.uuid,
        severity=Severity.CRITICAL if gpu.remapped_rows_failure else Severity.WARNING,
        sentence="; ".join(fault.sentence for fault in faults),
        short=_at_most(faults[0].short, SHORT_CELLS),
        brief=faults[0].brief,
        evidence=tuple(fault.evidence for fault in faults),
    )


def recovery(_history: History, gpu: Gpu, _thresholds: Thresholds) -> Finding | None:
    """What the driver asks for to make the card whole again (nvmlDeviceGpuRecoveryAction_t)."""
    action = _recovery_action(gpu)
    if action is None:
        return None
    word = next((word for word in _RECOVERY_WORDS if word in action.lower()), "recover")
    return Finding(
        kind=FindingKind.RECOVERY,
        subject=gpu.uuid,
        severity=Severity.WARNING,
        sentence=f"the driver asks for this to make the card whole again: {action}",
        short=_at_most(f"driver asks for: {action}", SHORT_CELLS),
        brief=f"{word}!",
        evidence=(f"recovery action: {action}",),
    )


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


def xid(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """An error that the driver reported, of a card that answers all the same.

    One of the card's own stays: it may be why a job hangs hours later, and it is told before the
    errors of the programs that it ended. It comes after what holds at this moment, such as heat.
    Source: NVIDIA's XID catalogue, see ``XID_MEANINGS``.
    """
    seen = sorted(history.xids(gpu.uuid).items(), key=lambda xid: -(xid[1] or 0))
    own = [xid for xid in seen if xid[0] not in PROGRAM_XIDS]
    recent = [
        (number, at)
        for number, at in seen
        if number in PROGRAM_XIDS
        and at is not None
        and history.now - at <= thresholds.program_xid_for
    ]
    told = own + recent
    if not told:
        return None
    number, at = told[0]
    meaning = XID_MEANINGS.get(number)
    start = _xid_and_when(history, number, at)
    facts = tuple(
        f"{_xid_and_when(history, number, at)}: {XID_MEANINGS.get(number, _LOOK_IT_UP)}"
        for number, at in told
    )
    return Finding(
        kind=FindingKind.XID,
        subject=gpu.uuid,
        severity=Severity.WARNING if own else Severity.NOTE,
        sentence=f"the driver reported an error: {facts[0]}",
        short=_at_most(start if meaning is None else f"{start}: {meaning}", SHORT_CELLS),
        brief=f"XID {number}",
        since=at,
        evidence=facts,
    )


def stuck(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Busy all the time at little power for long: a hung job can look like this, and may be none.

    Utilisation is the share of time in which any kernel ran, so a kernel that only waits reads as
    100 %; the power tells that it computes nothing.
    """
    spell = history.spell(gpu.uuid, _STUCK)
    if spell is None or not _rests(spell, thresholds.stuck_after, thresholds):
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
            f"so in all {spell.samples} samples",
        ),
    )


def unattributed(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Memory in use that no process in the driver's list owns.

    ``Thresholds.overhead_bytes`` says what is normal. Nothing is claimed while the memory of any
    process on the card, or the list itself, is unknown, nor where the card has no memory of its
    own. In a container it is no fault: others may well hold it, and the driver lists the processes
    of the caller's name space only (drivers from 535.113 on).
    Sources: the driver keeps its own clients out of the list, and lists 950 processes at most.
    """
    spell = history.spell(gpu.uuid, _UNATTRIBUTED)
    if spell is None or spell.seconds < thresholds.unattributed_after:
        return None
    holding = history.holding(gpu)
    if holding is None or holding.memory is None or gpu.memory_used is None:
        return None
    bytes_ = gpu.memory_used - holding.memory
    size, lasting = gibibytes(bytes_), _long(history, spell)
    evidence = (
        f"memory used {gibibytes(gpu.memory_used)} GiB",
        f"{_processes(holding.processes)} on it, with {gibibytes(holding.memory)} GiB",
        *([f"{holding.hidden} of them not visible here"] if holding.hidden else []),
    )
    if history.latest is not None and history.latest.host.in_container:
        return Finding(
            kind=FindingKind.UNATTRIBUTED,
            subject=gpu.uuid,
            severity=Severity.NOTE,
            sentence=f"{size} GiB not visible from this container, for {lasting}: the driver lists "
            "its processes only, and not who else uses the card",
            short=f"{size}G not visible from here",
            brief=f"{bytes_ / 2**30:.0f}G other",
            since=spell.since,
            evidence=evidence,
        )
    where = "no process visible here" if holding.hidden else "no process"
    return Finding(
        kind=FindingKind.UNATTRIBUTED,
        subject=gpu.uuid,
        severity=Severity.WARNING,
        sentence=f"{size} GiB held by {where}, for {lasting}: left by one that ended or is ending, "
        "or held from where gpumon cannot look",
        short=f"{size}G: {where}" if holding.hidden else f"{size}G held by no process",
        brief=f"{bytes_ / 2**30:.0f}G stray",
        since=spell.since,
        evidence=evidence,
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
        samples = history.samples(gpu.uuid, "utilization_gpu", holding.owner_since)
        spell = Spell(holding.owner_since, spell.last, begin_seen=True, samples=samples)
    if not _rests(spell, thresholds.idle_after, thresholds):
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
            f"utilisation 0 % in all {spell.samples} samples",
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
    and the sentence says so. Without a list of processes no card is called free, nor is one that is
    not sound.
    """
    if _memory_faults(gpu) or _recovery_action(gpu) is not None:
        return None
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


def old(history: History, gpu: Gpu) -> Finding | None:
    """Not read for too long, though nothing is known against the card.

    One thread reads all cards in turn: while it waits for another, this one is not read either.
    """
    age = history.old(gpu)
    if age is None:
        return None
    length = _spaced(age)
    return Finding(
        kind=FindingKind.OLD,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"read {length} ago: what is shown of it was so then; gpumon waits for another "
        "card, or for this machine",
        short=f"read {length} ago",
        brief=f"{_first_part(age)} ago",
        since=gpu.sampled_at,
        evidence=(f"newest values {length} old",),
    )


RULES = (memory_errors, recovery, hot, throttled, xid, stuck, unattributed, idle, full)
"""What may be said of a card that answers and is not simply free or at work.

In the order of ``FindingKind``: first the card that cannot be trusted, then what happens to it now,
then what did, which may be the cause of what follows.
"""
LASTING = (memory_errors, recovery, xid)
"""Those of what does not pass by itself, and so is true of old values too."""

_PART = re.compile(r"(\d+)([a-z])")
"""A number and its unit in what ``duration`` writes."""

_SLOWDOWN_WORDS = {
    CLOCK_EVENT_REASONS[HW_POWER_BRAKE]: "the machine's power supply asked for it",
    CLOCK_EVENT_REASONS[HW_SLOWDOWN]: "heat, the power supply or a sudden draw can be the cause",
}


_LOOK_IT_UP = "look it up in XID Errors"
_RECOVERY_WORDS = ("reset", "reboot", "drain")


class _Fault(Struct, frozen=True):
    """Something wrong with a card's memory, in words."""

    sentence: str
    short: str
    brief: str
    evidence: str


def _memory_faults(gpu: Gpu) -> list[_Fault]:
    """What is wrong with a card's memory, the worst first."""
    faults = []
    if gpu.remapped_rows_failure:
        faults.append(
            _Fault(
                "a bad memory row could not be replaced: the card should be returned",
                "row remap failed: replace card",
                "bad memory",
                "row remap failure: yes",
            )
        )
    if gpu.remapped_rows_pending:
        faults.append(
            _Fault(
                "a bad memory row is replaced at the next reset of the card",
                "row remap pending: reset",
                "reset!",
                "row remap pending: yes",
            )
        )
    if gpu.retired_pages_pending:
        faults.append(
            _Fault(
                "a bad memory page is given up at the next reset of the card",
                "page retirement pending: reset",
                "reset!",
                "page retirement pending: yes",
            )
        )
    if errors := gpu.ecc_uncorrected_volatile:
        words = f"{errors} uncorrected ECC error{'' if errors == 1 else 's'}"
        faults.append(
            _Fault(
                f"{words} since the driver was loaded: what was in that memory is lost",
                words,
                "ECC errors",
                f"uncorrected ECC errors since the driver was loaded: {errors}",
            )
        )
    return faults


def _recovery_action(gpu: Gpu) -> str | None:
    """What the driver asks for, safe to print; ``None`` when that is nothing or unknown."""
    action = gpu.recovery_action
    return None if action is None or action.lower() == "none" else printable(action)


def _xid_and_when(history: History, number: int, at: float | None) -> str:
    """An XID with its time of day, or how long ago it was when that is more than a day."""
    if at is None:
        return f"XID {number}"
    if history.now - at < 86400:
        return f"XID {number} at {_moment(history, at)}"
    return f"XID {number} {duration(history.now - at)} ago"


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
        "most calls to it have failed{length}, though the driver does not say that it is lost or "
        "must be reset",
        "failing{length}",
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
        error = f"last XID {gpu.xid}: {XID_MEANINGS.get(gpu.xid, _LOOK_IT_UP)}"
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


def _rests(spell: Spell, seconds: float, thresholds: Thresholds) -> bool:
    """Whether a spell has lasted for so long, and in samples enough to say so."""
    return spell.seconds >= seconds and spell.samples >= thresholds.least_samples


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
    return f"{'' if spell.begin_seen else '≥'}{_first_part(history.now - spell.since)}"


def _first_part(seconds: float) -> str:
    """A length of time in one unit: ``15s``, ``3h``."""
    first = _PART.match(duration(seconds))
    return first[0] if first else ""


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
