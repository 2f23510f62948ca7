"""Where a card's memory went: to processes, to the driver, or to nobody in the driver's list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.availability import is_full, normal_unlisted, unlisted_sentence
from gpumon.findings.conditions import UNATTRIBUTED
from gpumon.findings.finding import SHORT_CELLS, Finding, FindingKind, Severity
from gpumon.findings.words import at_most, count_processes, in_container, spaced, told_length
from gpumon.model import HoldReason, Suspect, blamed
from gpumon.text import cell_width, gib, gibibytes, printable

if TYPE_CHECKING:
    from gpumon.history import History, Spell
    from gpumon.model import Gpu, HolderScan
    from gpumon.thresholds import Thresholds

SCAN_FRESH = 60.0
"""Age in seconds from which on it is said how long ago the holders were looked for."""

_REASON_WORDS = {
    HoldReason.ORPHAN: "orphan",
    HoldReason.LEADER_EXITED: "half-dead",
    HoldReason.UNINTERRUPTIBLE: "D-state",
    HoldReason.STOPPED: "stopped",
    HoldReason.OTHER_CONTAINER: "container's",
    HoldReason.CHILD: "child",
}
_NEXT_TO_NONE = 0.05 * 2**30
"""Bytes that would be told as 0.0 GiB."""
_CAN_BE = "left by one that ended or is ending, or held from where gpumon cannot look"
_OLD_CALL = "what the driver keeps for itself may count as used here: it does not tell it apart"


class Account(Struct, frozen=True):
    """A card's memory and whose it is, in bytes; ``None`` is unknown.

    Attributes:
        total: All of it.
        reserved: What driver and firmware keep; ``None`` too where an older driver counts that as
            used, which ``sentence`` says.
        used: What is allocated, ``reserved`` left out.
        processes_sum: What the processes in the driver's list hold of it together.
        unattributed: What is used and held by none of them. 0 where they hold more than is used, as
            it may seem when the list is older than the rest.
        tolerance: Up to how much of that is normal: ``Thresholds.unlisted_bytes`` says why.
        free: What can still be allocated.
        suspects: Who holds the card's device file though the driver does not list it, most suspect
            first.
        unseen: How many processes of other users could not be looked into for that; ``None`` when
            nobody has looked.
        sentence: What it comes to.
    """

    total: int | None
    reserved: int | None
    used: int | None
    processes_sum: int | None
    unattributed: int | None
    tolerance: int
    free: int | None
    suspects: tuple[Suspect, ...]
    unseen: int | None
    sentence: str


def memory_account(history: History, gpu: Gpu, thresholds: Thresholds | None = None) -> Account:
    """Where a card's memory is, as it stands in the newest snapshot."""
    thresholds = thresholds or history.thresholds
    holding = history.holding(gpu)
    scan = _scan(history)
    own_sum = None if holding is None else holding.memory
    stray = None
    if not gpu.memory_unified and history.old(gpu) is None:
        stray = _stray(gpu.memory_used, own_sum)
    return Account(
        total=gpu.memory_total,
        reserved=gpu.memory_reserved,
        used=gpu.memory_used,
        processes_sum=own_sum,
        unattributed=stray,
        tolerance=int(normal_unlisted(gpu, thresholds)),
        free=gpu.memory_free,
        suspects=_suspects(history, gpu),
        unseen=None if scan is None else scan.unseen,
        sentence=_account_words(history, gpu, stray, thresholds),
    )


def unattributed(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Memory in use that no process in the driver's list owns, and who may have it.

    ``Thresholds.unlisted_bytes`` says what is normal. Nothing is claimed while the memory of any
    process on the card, or the list itself, is unknown, nor where the card has no memory of its
    own. In a container it is no fault: others may well hold it, and the driver lists the processes
    of the caller's name space only (drivers from 535.113 on). What holds from the first sample on
    is told at once, as of now: it is all that some ask for. It is a warning once it has lasted.
    Sources: the driver keeps its own clients out of the list, and lists 950 processes at most.
    """
    spell = history.spell(gpu.uuid, UNATTRIBUTED)
    if spell is None:
        return None
    lasted = spell.seconds >= thresholds.unattributed_after
    if spell.begin_seen and not lasted:
        return None
    holding = history.holding(gpu)
    if holding is None or holding.memory is None or gpu.memory_used is None:
        return None
    bytes_ = gpu.memory_used - holding.memory
    size = gibibytes(bytes_)
    evidence = (
        f"memory used {gibibytes(gpu.memory_used)} {gib()}",
        f"{count_processes(holding.processes)} on it, with {gibibytes(holding.memory)} {gib()}",
        *([f"{holding.hidden} of them not visible here"] if holding.hidden else []),
        *([_OLD_CALL] if gpu.memory_reserved is None else []),
        *_holders_evidence(history, gpu),
    )
    contained = in_container(history)
    named = _named_first(_suspects(history, gpu))
    brief = f"{gibibytes(bytes_, int(bytes_ < 2**30))}G {'other' if contained else 'stray'}"
    short = brief
    if contained:
        short = f"{size}G not visible from here"
    elif named:
        short = _short_suspects(f"{brief}: ", named)
    elif holding.hidden:
        short = f"{brief}, holder not visible"
    return Finding(
        kind=FindingKind.UNATTRIBUTED,
        subject=gpu.uuid,
        severity=Severity.WARNING if lasted and not contained else Severity.NOTE,
        sentence=_stray_words(history, gpu, bytes_, spell if lasted else None),
        short=short,
        brief=brief,
        since=spell.since,
        evidence=evidence,
    )


def full(_history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """No room for another process; ``Thresholds.full_share`` says why there.

    Not for cards that share the host's memory: what the host can reclaim is free to them too.
    """
    if gpu.memory_unified or not is_full(gpu.memory_free, gpu.memory_total, thresholds.full_share):
        return None
    left = f"{gibibytes(gpu.memory_free)} of {gibibytes(gpu.memory_total)} {gib()}"
    return Finding(
        kind=FindingKind.FULL,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"full: {left} are free",
        short="full",
        brief="full",
        evidence=(f"memory free {left}",),
    )


def _scan(history: History) -> HolderScan | None:
    return None if history.latest is None else history.latest.holders


def _stray(used: int | None, processes_sum: int | None) -> int | None:
    """What is used beyond what processes hold."""
    if used is None or processes_sum is None:
        return None
    return max(0, used - processes_sum)


def _suspects(history: History, gpu: Gpu) -> tuple[Suspect, ...]:
    """Who holds a card besides those in the newest list, which may be newer than the look."""
    scan = _scan(history)
    if scan is None or history.latest is None:
        return ()
    here = [suspect for suspect in scan.suspects if gpu.uuid in suspect.gpu_uuids]
    if not here:
        return ()
    listed = {
        process.id
        for process in history.latest.processes
        if any(use.gpu_uuid == gpu.uuid for use in process.uses)
    }
    return tuple(suspect for suspect in here if suspect.id not in listed)


def _named_first(suspects: tuple[Suspect, ...]) -> tuple[Suspect, ...]:
    """Those to be named: children too where nobody else is to blame."""
    children = tuple(one for one in suspects if one.reason is HoldReason.CHILD)
    return blamed(suspects) or children


def _named(suspect: Suspect) -> str:
    """Who a suspect is: ``orphan 41251 of ann``."""
    word = _REASON_WORDS.get(suspect.reason, "process")
    owner = "" if suspect.user is None else f" of {printable(suspect.user)}"
    return f"{word} {suspect.id.pid}{owner}"


def _short_suspects(start: str, named: tuple[Suspect, ...]) -> str:
    """The first suspect for a column; a question mark where little speaks against it."""
    first = named[0]
    doubt = "?" if first.reason in (HoldReason.CHILD, HoldReason.HOLDS) else ""
    others = f" +{len(named) - 1}" if len(named) > 1 else ""
    end = doubt + others
    return at_most(start + _named(first), SHORT_CELLS - cell_width(end)) + end


def _holders_evidence(history: History, gpu: Gpu) -> tuple[str, ...]:
    """What was found of who holds a card's device file, and what could not be seen."""
    scan = _scan(history)
    if scan is None:
        return ("who else holds the card's device file: not looked for yet",)
    facts = [
        f"{one.id.pid} {printable(one.name or '?')}"
        f"{'' if one.user is None else f' of {printable(one.user)}'}: {printable(one.sentence)}"
        for one in _suspects(history, gpu)
    ]
    if not facts:
        facts.append("nobody else was seen to hold the card's device file")
    if scan.unseen:
        facts.append(
            f"{count_processes(scan.unseen)} of other users could not be looked into: "
            "that takes root"
        )
    if (age := history.now - scan.at) > SCAN_FRESH:
        facts.append(f"looked for {spaced(age)} ago")
    return tuple(facts)


def _stray_words(history: History, gpu: Gpu, bytes_: int, spell: Spell | None) -> str:
    """How much is held by nobody in the list, since when, and by whom perhaps.

    Args:
        history: What was seen.
        gpu: The card.
        bytes_: How much.
        spell: For how long; ``None`` where that is too short to tell.
    """
    what = unlisted_sentence(bytes_, in_container=in_container(history))
    lasting = "at this moment" if spell is None else f"for {told_length(history, spell)}"
    if in_container(history):
        return (
            f"{what}, {lasting}: the driver lists its processes only, and not who else uses the "
            "card"
        )
    named = _named_first(_suspects(history, gpu))
    if named:
        first = named[0]
        why = f"{_named(first)} holds the card's device file: {printable(first.sentence)}"
        if first.reason is HoldReason.CHILD:
            why += "; what a child has is normally counted to its parent"
        return f"{what}, {lasting}; {why}"
    if spell is None:
        return f"{what}, {lasting}: the list is read less often than the memory"
    return f"{what}, {lasting}: {_CAN_BE}"


def _account_words(history: History, gpu: Gpu, stray: int | None, thresholds: Thresholds) -> str:
    """What a card's memory comes to, in a sentence."""
    if gpu.memory_unified:
        return (
            "the card has no memory of its own: it takes the host's, which other programs use too"
        )
    if gpu.memory_used is None:
        return "how much of it is used is not known"
    if stray is None:
        return _not_known_words(history, gpu)
    normal = normal_unlisted(gpu, thresholds)
    if stray < _NEXT_TO_NONE:
        used = f"{gibibytes(gpu.memory_used)} {gib()} used"
        words = f"{used}, all of it by processes the driver lists"
    elif stray <= normal:
        words = (
            f"{gibibytes(gpu.memory_used)} {gib()} used, {gibibytes(stray)} of them by no process "
            f"in the driver's list: up to {gibibytes(int(normal))} {gib()} is normal, for the "
            "driver itself"
        )
    else:
        spell = history.spell(gpu.uuid, UNATTRIBUTED)
        lasted = spell is not None and spell.seconds >= thresholds.unattributed_after
        words = _stray_words(history, gpu, stray, spell if lasted else None)
    return f"{words}; {_OLD_CALL}" if gpu.memory_reserved is None else words


def _not_known_words(history: History, gpu: Gpu) -> str:
    """Why it is not known whether the used memory has owners."""
    age = history.old(gpu)
    if age is not None:
        return f"read {spaced(age)} ago, so it is not held against the list of processes"
    if history.holding(gpu) is None:
        return "whose it is is not known: there is no present list of the card's processes"
    return "whose it is is not known: what some of its processes hold is not told"
