"""How a GPU's memory is divided: processes, driver, free, and memory without a listed owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.availability import (
    UNLISTED_FIELDS,
    is_full,
    normal_unlisted,
    unlisted_sentence,
)
from gpumon.findings.explanation import (
    AS_ROOT,
    ASK_OWNER,
    README,
    SEE_HOLDERS,
    SMI_PROCESSES,
    TORCH_MEMORY,
    USAGE_SOURCE,
    ExplanationText,
)
from gpumon.findings.finding import BRIEF_CELLS, SHORT_CELLS, FindingKind, Severity
from gpumon.findings.growth import gpu_growth, room
from gpumon.findings.phrases import at_most, count_processes, in_container, spaced
from gpumon.findings.rule import HeldFor, LastingRule, Rule, Words
from gpumon.findings.work import OWNERLESS_SECONDS
from gpumon.model.processes import HoldReason, UnlistedHolder, blamed
from gpumon.text.formatting import UNKNOWN, cell_width, gib, gibibytes, printable

if TYPE_CHECKING:
    from gpumon.findings.rule import Said
    from gpumon.model.processes import HolderScan
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History, Holding, Interval

SCAN_FRESH = 60.0
"""A scan for holders older than this many seconds is shown with its age."""

_REASON_WORDS = {
    HoldReason.ORPHAN: "orphan",
    HoldReason.LEADER_EXITED: "half-dead",
    HoldReason.UNINTERRUPTIBLE: "D-state",
    HoldReason.STOPPED: "stopped",
    HoldReason.OTHER_CONTAINER: "container's",
    HoldReason.CHILD: "child",
}
_SHOWN_AS_ZERO = 0.05 * 2**30
"""Fewer bytes are shown as 0.0 GiB."""
_CAN_BE = "left by a process that ended or is ending, or held by one that gpumon cannot see"
_OLD_CALL = "the used memory may include what this driver reserves for itself"


class Account(Struct, frozen=True):
    """A GPU's memory and its owners, in bytes; ``None`` is unknown."""

    total: int | None
    reserved: int | None
    """Memory that driver and firmware reserve; also ``None`` if an older driver counts it as used,
    as ``sentence`` explains."""
    used: int | None
    """Allocated memory without ``reserved``."""
    processes_sum: int | None
    unattributed: int | None
    """Used memory that none of them holds. 0 if they seem to hold more than is used, which happens
    when the list is older than the other values."""
    tolerance: int
    free: int | None
    suspects: tuple[UnlistedHolder, ...]
    """Processes that have the device file open but are not in the driver's list, most likely
    first."""
    unseen: int | None
    """Number of other users' processes that could not be inspected; ``None`` before the scan."""
    sentence: str


def memory_account(history: History, gpu: Gpu) -> Account:
    """How a GPU's memory is divided in the newest snapshot."""
    holding = history.holding(gpu)
    scan = _scan(history)
    used, own_sum = gpu.memory_used, None if holding is None else holding.memory
    unlisted = None
    if not (used is None or own_sum is None or gpu.memory_unified or history.old(gpu) is not None):
        unlisted = max(0, used - own_sum)
    return Account(
        total=gpu.memory_total,
        reserved=gpu.memory_reserved,
        used=used,
        processes_sum=own_sum,
        unattributed=unlisted,
        tolerance=int(normal_unlisted(gpu)),
        free=gpu.memory_free,
        suspects=_suspects(history, gpu),
        unseen=None if scan is None else scan.unseen,
        sentence=_account_text(history, gpu, unlisted),
    )


class Unattributed(LastingRule):
    """Memory in use that no listed process owns, and which processes may hold it.

    There is no finding while the process list or the memory of any process on the GPU is unknown,
    or if the GPU has no memory of its own. In a container it is normal: other containers may hold
    the memory, and the driver lists only the processes of the caller's namespace (drivers from
    535.113 on). It becomes a warning once it has lasted. Sources: the driver omits its own clients
    from the list, and lists at most 950 processes.
    """

    kind = FindingKind.UNATTRIBUTED
    severity = Severity.WARNING
    hides_memory = True
    sign = ("▚", "memory that no listed process holds, for a moment")
    explanation = ExplanationText(
        "More memory is in use than the listed processes and the driver need.",
        (
            "a process that ended or is ending and still holds the GPU",
            "a process in another container, which the driver does not list here",
        ),
        (SEE_HOLDERS, "End it, if it is yours."),
        SMI_PROCESSES,
        USAGE_SOURCE,
        (AS_ROOT, SEE_HOLDERS, "End it, if it is yours."),
    )
    after = OWNERLESS_SECONDS
    least_samples = 0
    shows_at_once = True
    assumed = UNLISTED_FIELDS

    def holds(self, gpu: Gpu, holding: Holding, memory_used: int) -> bool | None:
        if gpu.memory_unified or holding.memory is None:
            return None
        return memory_used - holding.memory > normal_unlisted(gpu)

    def say(
        self, history: History, gpu: Gpu, held: HeldFor, holding: Holding, memory_used: int
    ) -> Said:
        if holding.memory is None:
            return None
        bytes_ = memory_used - holding.memory
        size = gibibytes(bytes_)
        evidence = (
            f"memory used {gibibytes(memory_used)} {gib()}",
            f"{count_processes(holding.processes)} on it, with {gibibytes(holding.memory)} {gib()}",
            *([f"{holding.hidden} of them not visible here"] if holding.hidden else []),
            *([_OLD_CALL] if gpu.memory_reserved is None else []),
            *_holders_evidence(history, gpu),
        )
        contained = in_container(history)
        named = _named_first(_suspects(history, gpu))
        amount = f"{gibibytes(bytes_, int(bytes_ < 2**30))}G"
        short = f"{amount} unattributed"
        if contained:
            short = f"{size}G not visible from here"
        elif named:
            short = _short_suspects(f"{short}, ", named)
        elif holding.hidden:
            short += ", holder hidden"
        return Words(
            _unattributed_text(history, gpu, bytes_, held.interval if held.lasted else None),
            short,
            at_most(f"{amount} {'other' if contained else 'unattr'}", BRIEF_CELLS),
            evidence,
            severity=Severity.WARNING if held.lasted and not contained else Severity.NOTE,
        )


class Full(Rule):
    """No memory is left for another process.

    Not for GPUs that share the host's memory: they can also use what the host can reclaim.
    """

    kind = FindingKind.FULL
    other_names = ("memory full",)
    is_normal_use = True
    sign = ("■", "full: no memory is left for another process")
    explanation = ExplanationText(
        "Too little memory is left for another process.",
        ("memory that a framework reserved in advance and does not use",),
        ("Select another GPU: `gpumon select --free 10G`.", ASK_OWNER),
        README,
    )

    def say(self, history: History, gpu: Gpu) -> Said:
        if gpu.memory_unified:
            return False
        found = is_full(gpu.memory_free, gpu.memory_total, history.thresholds.full_share)
        if not found:
            return None if found is None else False
        left = f"{gibibytes(gpu.memory_free)} of {gibibytes(gpu.memory_total)} {gib()}"
        return Words(f"full: {left} are free", "full", "full", (f"memory free {left}",))


class Filling(Rule):
    """The used memory of a GPU grows steadily, and will be full in a time that can be foreseen."""

    kind = FindingKind.FILLING
    is_forecast = True
    explanation = ExplanationText(
        "The used memory grows steadily. When it is full, the next allocation fails.",
        (
            "a leak, such as results that are kept with their autograd graph",
            "a cache that stops growing by itself",
        ),
        (
            "See which process grows, on the page of the GPU.",
            "Save a checkpoint before the memory is full.",
        ),
        TORCH_MEMORY,
    )

    def say(self, history: History, gpu: Gpu) -> Said:
        free = room(history, gpu)
        if free is None:
            return None if gpu.memory_free is None else False
        found = gpu_growth(history, gpu)
        if not found:
            return found
        left = found.full_in(free)
        if left is None:
            return False
        return Words(
            f"memory grows by {found.pace}: full in about {left} at this pace",
            f"full in about {left}",
            "filling",
            (*found.evidence, f"{gibibytes(free)} {gib()} free"),
            history.now - found.seconds,
        )


def _scan(history: History) -> HolderScan | None:
    return None if history.latest is None else history.latest.holders


def _suspects(history: History, gpu: Gpu) -> tuple[UnlistedHolder, ...]:
    """Processes that hold a GPU but are not in the newest list; the scan may be older."""
    scan = _scan(history)
    if scan is None or history.latest is None:
        return ()
    here = [suspect for suspect in scan.suspects if gpu.uuid in suspect.gpu_uuids]
    if not here:
        return ()
    # A warning is judged in every sample, and few processes are suspects.
    suspected = {suspect.id for suspect in here}
    listed = {
        process.id
        for process in history.latest.processes
        if process.id in suspected and any(use.gpu_uuid == gpu.uuid for use in process.uses)
    }
    return tuple(suspect for suspect in here if suspect.id not in listed)


def _named_first(suspects: tuple[UnlistedHolder, ...]) -> tuple[UnlistedHolder, ...]:
    """The suspects to name: children are included only if there is no other suspect."""
    children = tuple(suspect for suspect in suspects if suspect.reason is HoldReason.CHILD)
    return blamed(suspects) or children


def _named(suspect: UnlistedHolder, *, with_pid: bool = True) -> str:
    """A suspect's name: ``orphan 41251 of ann``."""
    word = _REASON_WORDS.get(suspect.reason, "process")
    if not with_pid:
        kind = word.removesuffix("'s")
        return f"{kind} of {printable(suspect.user or UNKNOWN)}"
    owner = "" if suspect.user is None else f" of {printable(suspect.user)}"
    return f"{word} {suspect.id.pid}{owner}"


def _short_suspects(start: str, named: tuple[UnlistedHolder, ...]) -> str:
    """The first suspect, for a column; with a question mark if the evidence is weak."""
    first = named[0]
    doubt = "?" if first.reason in (HoldReason.CHILD, HoldReason.HOLDS) else ""
    others = f" +{len(named) - 1}" if len(named) > 1 else ""
    end = doubt + others
    room = SHORT_CELLS - cell_width(start) - cell_width(end)
    name = _named(first)
    if cell_width(name) > room and first.user is not None:
        # Whom to ask matters more than the PID, which the page of the GPU has.
        name = _named(first, with_pid=False)
    return start + at_most(name, room) + end


def _holders_evidence(history: History, gpu: Gpu) -> tuple[str, ...]:
    """What the scan of the device files found, and what it could not read."""
    scan = _scan(history)
    if scan is None:
        return ("other holders of the device file: not scanned yet",)
    found = [
        f"{suspect.id.pid} {printable(suspect.name or '?')}"
        f"{'' if suspect.user is None else f' of {printable(suspect.user)}'}: "
        f"{printable(suspect.sentence)}"
        for suspect in _suspects(history, gpu)
    ]
    if not found:
        found.append("no other holder of the device file was found")
    if scan.unseen:
        found.append(
            f"{count_processes(scan.unseen)} of other users could not be inspected: "
            "this requires root"
        )
    if (age := history.now - scan.at) > SCAN_FRESH:
        found.append(f"scanned {spaced(age)} ago")
    return tuple(found)


def _unattributed_text(history: History, gpu: Gpu, bytes_: int, interval: Interval | None) -> str:
    """How much memory has no listed owner, since when, and who may hold it.

    Without an ``interval`` it has had none for too short a time to report.
    """
    what = unlisted_sentence(bytes_, in_container=in_container(history))
    lasting = "at this moment" if interval is None else f"for {HeldFor(history, interval)}"
    if in_container(history):
        return (
            f"{what}, {lasting}: the driver lists only its own processes, not other users of the "
            "GPU"
        )
    named = _named_first(_suspects(history, gpu))
    if named:
        first = named[0]
        why = f"{_named(first)} holds the GPU's device file: {printable(first.sentence)}"
        if first.reason is HoldReason.CHILD:
            why += "; the memory of a child is normally attributed to its parent"
        return f"{what}, {lasting}; {why}"
    if interval is None:
        return f"{what}, {lasting}: the process list is read less often than the memory"
    return f"{what}, {lasting}: {_CAN_BE}"


def _account_text(history: History, gpu: Gpu, unlisted: int | None) -> str:
    """A sentence on how a GPU's memory is divided."""
    if gpu.memory_unified:
        return "the GPU has no memory of its own: it uses the host's, as other programs do"
    if gpu.memory_used is None:
        return "the used memory is unknown"
    if unlisted is None:
        return _unknown_text(history, gpu)
    normal = normal_unlisted(gpu)
    if unlisted < _SHOWN_AS_ZERO:
        used = f"{gibibytes(gpu.memory_used)} {gib()} used"
        words = f"{used}, all of it by processes the driver lists"
    elif unlisted <= normal:
        words = (
            f"{gibibytes(gpu.memory_used)} {gib()} used, of which no listed process holds "
            f"{gibibytes(unlisted)}: up to {gibibytes(int(normal))} {gib()} is normal, for the "
            "driver itself"
        )
    else:
        interval = history.interval(gpu.uuid, FindingKind.UNATTRIBUTED.value)
        lasted = interval is not None and interval.seconds >= OWNERLESS_SECONDS
        words = _unattributed_text(history, gpu, unlisted, interval if lasted else None)
    return f"{words}; {_OLD_CALL}" if gpu.memory_reserved is None else words


def _unknown_text(history: History, gpu: Gpu) -> str:
    """Why it is unknown whether the used memory has owners."""
    age = history.old(gpu)
    if age is not None:
        return f"read {spaced(age)} ago, so it is not compared with the process list"
    if history.holding(gpu) is None:
        return "its owners are unknown: there is no current list of the GPU's processes"
    return "its owners are unknown: the memory of some of its processes is not reported"
