"""Eligibility: whether a GPU meets the requirements, or the one reason why it does not.

Reasons are checked in the order in which a user would: what the GPU is, whether this program may
use it, who holds it, and its state. A required value that is unknown is a reason too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.availability import (
    FRESH_SECONDS,
    STRANGER,
    Insider,
    allocated_to_others,
    listed_on,
    why_not_free,
)
from gpumon.findings.faults import undated_xid
from gpumon.model.allocations import unplaced_count, unplaced_of
from gpumon.model.arithmetic import known_sum
from gpumon.model.makers import Maker, first_maker, maker_of, makers
from gpumon.model.process_states import ENDED
from gpumon.model.snapshot import Gpu, GpuStatus, MigInstance, ReservationHolder, Unknown
from gpumon.scheduling.locks import holder_sentence
from gpumon.text.formatting import counted, duration, mig_name, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpumon.model.processes import GpuProcess, GpuUse
    from gpumon.model.snapshot import Snapshot
    from gpumon.scheduling.requirements import Requirements

_NAMED = 2
"""Maximum number of holders that are named; the others are counted."""
_HOW_TO_SHARE = "--free SIZE accepts a GPU with at least this much free memory"
_GONE = {
    GpuStatus.LOST: "it is lost: it fell off the bus",
    GpuStatus.RESET_REQUIRED: "it needs a reset",
    GpuStatus.NO_PERMISSION: "this user may not open it",
    GpuStatus.NO_ANSWER: "it does not answer",
    GpuStatus.FAILING: "it fails",
    GpuStatus.ASLEEP: "it is powered down, and reading its values would wake it",
}


class Candidate(Struct, frozen=True):
    """A GPU, or a MIG device, that can be chosen."""

    gpu: Gpu
    mig: MigInstance | None = None

    @property
    def uuid(self) -> str:
        """The UUID, as CUDA knows it."""
        return self.gpu.uuid if self.mig is None else self.mig.uuid

    @property
    def label(self) -> str:
        """The name for the user: ``GPU 3``, ``MIG 3:1``."""
        index = self.gpu.index
        return f"GPU {index}" if self.mig is None else f"MIG {mig_name(index, self.mig.index)}"

    @property
    def memory_free(self) -> int | None:
        """Free memory in bytes."""
        return self.gpu.memory_free if self.mig is None else self.mig.memory_free

    @property
    def memory_used(self) -> int | None:
        """Used memory in bytes."""
        return self.gpu.memory_used if self.mig is None else self.mig.memory_used

    @property
    def memory_total(self) -> int | None:
        """Total memory in bytes."""
        return self.gpu.memory_total if self.mig is None else self.mig.memory_total

    def seen_in(self, snapshot: Snapshot) -> Candidate | None:
        """The same GPU or MIG device in another snapshot, if it is there."""
        for gpu in snapshot.gpus:
            if gpu.uuid == self.gpu.uuid:
                if self.mig is None:
                    return Candidate(gpu)
                found = [mig for mig in gpu.mig if mig.uuid == self.mig.uuid]
                return Candidate(gpu, found[0]) if found else None
        return None

    def use_of(self, process: GpuProcess) -> GpuUse | None:
        """A process's use of it."""
        for use in process.uses:
            if use.gpu_uuid == self.gpu.uuid and (
                self.mig is None
                or use.instance == (self.mig.gpu_instance, self.mig.compute_instance)
            ):
                return use
        return None

    def memory_of(self, process: GpuProcess) -> int | None:
        """Bytes that a process holds on it."""
        use = self.use_of(process)
        return None if use is None else use.memory_used


class Ineligibility(Struct, frozen=True):
    """Why a GPU is not eligible."""

    # The requirement, for programs: ``status``, ``chosen``, ``maker``, ``integrated``,
    # ``allocation``, ``model``, ``architecture``, ``capability``, ``mig``, ``total``, ``mode``,
    # ``allocated``, ``reserved``, ``queue``, ``old``, ``health``, ``processes``, ``memory``,
    # ``busy``, ``utilization``, ``temperature``, ``watching``, ``stable``; ``unknown`` if the GPU's
    # type cannot be read now.
    kind: str
    sentence: str  # for the user, without the GPU's name; safe to print

    @property
    def passing(self) -> bool:
        """Whether the reason may pass with time."""
        return self.kind not in _LASTING


_LASTING = frozenset(
    (
        *("chosen", "maker", "integrated", "allocation", "model", "architecture", "capability"),
        *("mig", "total", "mode"),
    )
)


class Eligibility(Struct, frozen=True):
    """The eligibility of one candidate."""

    candidate: Candidate
    refusal: Ineligibility | None  # why it is not eligible; ``None`` if it is
    free: int | None  # bytes available to a job, including the user's own memory if requested
    # The processes that compute on it, without the user's own if requested, most memory first.
    others: tuple[GpuProcess, ...] = ()
    holder: ReservationHolder | None = None  # of its reservation

    @property
    def fits(self) -> bool:
        """Whether it is eligible."""
        return self.refusal is None

    @property
    def kind(self) -> str:
        """The kind of the refusal; empty if it is eligible."""
        return "" if self.refusal is None else self.refusal.kind

    @property
    def may_come(self) -> bool:
        """Whether it is eligible, now or possibly later; a lost GPU may come back."""
        return self.refusal is None or self.refusal.passing


class Allowance(Struct, frozen=True):
    """The GPUs that a program in this environment may use."""

    uuids: frozenset[str] | None = None  # of GPUs and MIG devices; ``None`` allows all
    reasons: Mapping[Maker, str] = {}  # why the others are not allowed, by their maker

    def allows(self, candidate: Candidate) -> bool:
        """Whether a GPU is allowed; a MIG device is also allowed as part of its GPU."""
        return self.uuids is None or not self.uuids.isdisjoint((candidate.uuid, candidate.gpu.uuid))


class Circumstances(Struct, frozen=True):
    """Conditions of eligibility outside the GPUs themselves."""

    allowance: Allowance = Allowance()  # what the environment allows
    held: Mapping[str, ReservationHolder] = {}  # reservations, by UUID of the GPU or MIG device
    # GPUs kept for earlier waiters, by UUID: the waiter in a few words.
    reserved_for: Mapping[str, str] = {}
    uid: int | None = None  # of the caller
    asker: Insider = STRANGER  # the caller, as schedulers know it


def judge(
    snapshot: Snapshot, requirements: Requirements, circumstances: Circumstances
) -> tuple[Eligibility, ...]:
    """The eligibility of each GPU, or of each MIG device if those are requested, in order.

    If a whole GPU is ineligible, it has one result, even if it is divided into MIG devices.
    """
    evaluations = [
        _Evaluation(candidate, snapshot, requirements, circumstances)
        for gpu in snapshot.gpus
        for candidate in _candidates(gpu, requirements)
    ]
    verdicts = tuple(evaluation.verdict() for evaluation in evaluations)
    return _leave_enough(verdicts, evaluations)


def _leave_enough(
    verdicts: tuple[Eligibility, ...], evaluations: Sequence[_Evaluation]
) -> tuple[Eligibility, ...]:
    """Leave as many GPUs as jobs have of which it is not known which ones: the last ones."""
    unsure = [
        index
        for index, evaluation in enumerate(evaluations)
        if evaluation.perhaps is not None and verdicts[index].fits
    ]
    if not unsure:
        return verdicts
    left = evaluations[0].unplaced
    kept = unsure if left is None else unsure[max(0, len(unsure) - left) :]
    judged = list(verdicts)
    for index in kept:
        perhaps = evaluations[index].perhaps
        if perhaps is not None:
            refusal = Ineligibility(perhaps.kind, perhaps.sentence)
            judged[index] = replace(judged[index], refusal=refusal)
    return tuple(judged)


def _candidates(gpu: Gpu, requirements: Requirements) -> Iterator[Candidate]:
    if requirements.mig and gpu.mig:
        yield from (Candidate(gpu, mig) for mig in gpu.mig)
    else:
        yield Candidate(gpu)


def job_maker(gpus: Sequence[Gpu], requirements: Requirements, allowance: Allowance) -> Maker:
    """The maker of a job's GPUs: of those that are asked for and allowed, the first one's.

    A program uses the GPUs of one maker, and a CUDA program that is given others runs without any.
    What the environment names comes before what it does not mention.
    """
    for maker in makers():
        if maker.name == requirements.maker:
            return maker
    if gpus and gpus[0].index > 0 and not requirements.only and not requirements.models:
        # The first indices are kept for the first maker, whose driver does not respond now.
        return first_maker()
    asked = [
        gpu
        for gpu in gpus
        if requirements.only.includes(gpu.index, gpu.uuid) and _is_one_of(requirements.models, gpu)
    ]
    allowed = [gpu for gpu in asked if any(map(allowance.allows, _all_candidates(gpu)))]
    mentioned = [gpu for gpu in allowed if maker_of(gpu.name) in allowance.reasons]
    first = next(iter(mentioned or allowed or asked or gpus), None)
    return first_maker() if first is None else maker_of(first.name)


def _is_one_of(models: Sequence[str], gpu: Gpu) -> bool:
    return not models or any(part in (gpu.name or "").lower() for part in models)


def _all_candidates(gpu: Gpu) -> list[Candidate]:
    return [Candidate(gpu), *(Candidate(gpu, mig) for mig in gpu.mig)]


def _other_maker(maker: Maker, wanted: Maker) -> str:
    selects = f"--backend {maker.backend} selects it"
    return f"it is {maker.name}'s, and a job gets {wanted.name}'s: {selects}"


class _Evaluation:
    """The evaluation of one candidate."""

    def __init__(
        self,
        candidate: Candidate,
        snapshot: Snapshot,
        requirements: Requirements,
        circumstances: Circumstances,
    ) -> None:
        self._candidate, self._gpu = candidate, candidate.gpu
        self._asked, self._circumstances = requirements, circumstances
        self._in_container = bool(snapshot.host.in_container)
        self._on_it = [process for process in snapshot.processes if candidate.use_of(process)]
        self._listed = (
            snapshot.processes_at is not None and "processes" not in candidate.gpu.unknown
        )
        read_at = (candidate.gpu.sampled_at, snapshot.processes_at)
        self._age = max(snapshot.time - (snapshot.time if at is None else at) for at in read_at)
        uid = circumstances.uid if requirements.mine_is_free else None
        self._mine = [process for process in self._on_it if uid is not None and process.uid == uid]
        self._not_mine = [process for process in self._on_it if process not in self._mine]
        computing = (process for process in self._not_mine if process.type != "G")
        self._others = tuple(
            sorted(computing, key=lambda process: -(candidate.memory_of(process) or 0))
        )
        self._free = known_sum((candidate.memory_free, *map(candidate.memory_of, self._mine)))
        self._maker = job_maker(snapshot.gpus, requirements, circumstances.allowance)
        # A processor's own GPU is for jobs only where it is the only one.
        self._is_spare = bool(self._gpu.memory_unified) and any(
            gpu.memory_unified is False and maker_of(gpu.name) is self._maker
            for gpu in snapshot.gpus
        )
        held = circumstances.held
        self._holder = held.get(candidate.uuid) or held.get(candidate.gpu.uuid)
        asker = circumstances.asker
        allocated = allocated_to_others(
            snapshot.allocations, candidate.gpu, snapshot.time, candidate.mig, asker
        )
        unsure = allocated is not None and allocated.is_unknown
        self._allocated = None if unsure else allocated
        # Why it may be somebody else's, and how many GPUs are; ``None`` if that is not known.
        self.perhaps = allocated if unsure else None
        others = [each for each in snapshot.allocations or () if not asker.has(each)]
        self.unplaced = unplaced_count(unplaced_of(others))

    def verdict(self) -> Eligibility:
        """The result."""
        reason = next(self._reasons(), None)
        refusal = None if reason is None else Ineligibility(*reason)
        return Eligibility(self._candidate, refusal, self._free, self._others, self._holder)

    def _reasons(self) -> Iterator[tuple[str, str]]:
        """The kind and sentence of each reason against it, most important first."""
        # Permanent reasons come first: a temporary one must not hide them.
        yield from self._type_reasons()
        yield from self._unreadable_reasons()
        yield from self._mig_reasons()
        yield from self._reservation_reasons()
        yield from self._process_reasons()
        yield from self._state_reasons()

    def _type_reasons(self) -> Iterator[tuple[str, str]]:
        gpu, asked = self._gpu, self._asked
        by_uuid = is_identified(gpu)
        if not asked.only.includes(gpu.index, gpu.uuid) and (by_uuid or not asked.only.prefixes):
            yield "chosen", "it is not among --gpus"
        if asked.never and asked.never.includes(gpu.index, gpu.uuid):
            yield "chosen", "--not names it"
        if maker_of(gpu.name) is not self._maker:
            yield "maker", _other_maker(maker_of(gpu.name), self._maker)
        if self._is_spare and not asked.only:
            yield "integrated", "it is integrated into the processor: select it with --gpus"
        if by_uuid and not self._circumstances.allowance.allows(self._candidate):
            yield "allocation", self._circumstances.allowance.reasons.get(maker_of(gpu.name), "")
        for kind, known, sentence in self._mismatches():
            if known:
                yield kind, sentence
        if gpu.compute_mode == "Prohibited":
            yield "mode", "its compute mode prohibits computing"

    def _unreadable_reasons(self) -> Iterator[tuple[str, str]]:
        if self._gpu.status in _GONE:
            yield "status", _GONE[self._gpu.status]
        if (xid := undated_xid(self._gpu)) is not None:
            yield "health", xid
        for _, known, sentence in self._mismatches():
            if not known:
                yield "unknown", sentence

    def _mismatches(self) -> Iterator[tuple[str, bool, str]]:
        """For each mismatch: its kind, whether the GPU reported the value, and a sentence."""
        gpu, asked = self._gpu, self._asked
        if not _is_one_of(asked.models, gpu):
            sentence = f"it is {_named(gpu.name)}, not {_either(asked.models)}"
            yield "model", gpu.name is not None, sentence
        if asked.architectures and (gpu.architecture or "").lower() not in asked.architectures:
            wanted = _either(asked.architectures)
            sentence = f"its architecture is {_named(gpu.architecture)}, not {wanted}"
            yield "architecture", gpu.architecture is not None, sentence
        if asked.capability is not None:
            has = _capability(gpu.compute_capability)
            if has is None or has < asked.capability:
                least = ".".join(map(str, asked.capability))
                known = _named(gpu.compute_capability)
                sentence = f"its compute capability is {known}, {least} required"
                yield "capability", has is not None, sentence
        total = self._candidate.memory_total
        if asked.total is not None and (total is None or total < asked.total):
            sentence = f"{gib(total)} in all, {gib(asked.total)} required"
            yield "total", total is not None, sentence

    def _mig_reasons(self) -> Iterator[tuple[str, str]]:
        gpu = self._gpu
        unknown = gpu.unknown.get("mig_mode") is Unknown.NO_ANSWER
        if self._asked.mig and self._candidate.mig is None:
            yield "unknown" if unknown else "mig", "it has no MIG device"
        elif not self._asked.mig and (gpu.mig or gpu.mig_mode):
            yield "mig", "it is cut into MIG devices: --mig chooses among those"
        elif not self._asked.mig and unknown:
            yield "unknown", "whether it is cut into MIG devices is unknown"

    def _reservation_reasons(self) -> Iterator[tuple[str, str]]:
        if self._allocated is not None:
            yield self._allocated.kind, self._allocated.sentence
        if self._holder is not None:
            yield "reserved", holder_sentence(self._holder, time.time())
        reserved_for = self._circumstances.reserved_for.get(self._candidate.uuid)
        if reserved_for is not None:
            yield "queue", reserved_for

    def _process_reasons(self) -> Iterator[tuple[str, str]]:
        asked = self._asked
        if self._age > FRESH_SECONDS:
            yield "old", f"its values were read {duration(self._age)} ago"
        if asked.empty:
            yield from self._not_free_reasons()
            return
        most = asked.processes
        if self._gpu.compute_mode == "Exclusive_Process":
            most = 0
        if most is not None:
            if not self._listed:
                yield "processes", "who computes on it is unknown"
            elif len(self._others) > most:
                yield "processes", self._occupied(most)
        if asked.free is not None and (self._free is None or self._free < asked.free):
            held = _holders_named(self._others, self._candidate.memory_of)
            yield (
                "memory",
                f"{gib(self._free)} free, {gib(asked.free)} required" + (held and f"; {held}"),
            )

    def _occupied(self, most: int) -> str:
        held = _holders_named(self._others, self._candidate.memory_of)
        if most == 0:
            return held
        computing = counted(len(self._others), "process", "es")
        return f"{computing} compute on it, at most {most} allowed; {held}"

    def _not_free_reasons(self) -> Iterator[tuple[str, str]]:
        gpu, mig = self._candidate.gpu, self._candidate.mig
        reasons = why_not_free(
            gpu,
            listed_on(self._not_mine, gpu, mig) if self._listed else None,
            mig=mig,
            mine=listed_on(self._mine, gpu, mig),
            in_container=self._in_container,
        )
        reason = next(reasons, None)
        # A user who gives a utilisation limit has defined what is too busy.
        if reason is None or (reason.kind == "busy" and self._asked.utilization is not None):
            return
        if reason.kind == "processes" and self._others:
            yield reason.kind, self._occupied(0)
        elif reason.kind == "memory":
            yield reason.kind, f"{reason.sentence}; {_HOW_TO_SHARE}"
        else:
            yield reason.kind, reason.sentence

    def _state_reasons(self) -> Iterator[tuple[str, str]]:
        gpu, asked = self._gpu, self._asked
        busy, warm = gpu.utilization_gpu, gpu.temperature_gpu
        if asked.utilization is not None and (busy is None or busy > asked.utilization):
            known = "its utilisation is unknown" if busy is None else f"{busy} % utilised"
            yield "utilization", f"{known}, at most {asked.utilization:g} % required"
        if asked.temperature is not None and (warm is None or warm > asked.temperature):
            known = "its temperature is unknown" if warm is None else f"{warm} °C"
            yield "temperature", f"{known}, at most {asked.temperature:g} °C required"


def is_identified(gpu: Gpu) -> bool:
    """Whether the GPU has its own UUID: one that never responded has neither UUID nor name."""
    return gpu.name is not None or gpu.status is GpuStatus.OK


def _capability(text: str | None) -> tuple[int, int] | None:
    major, _, minor = (text or "").partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _named(text: str | None) -> str:
    return "unknown" if text is None else printable(text)


def _either(words: Sequence[str]) -> str:
    return " or ".join(printable(word) for word in words)


def gib(size: float | None) -> str:
    """Bytes as ``41.2 GiB``."""
    return "an unknown amount" if size is None else f"{size / 2**30:.1f} GiB"


def _holders_named(
    processes: Sequence[GpuProcess], memory_of: Callable[[GpuProcess], int | None]
) -> str:
    """The holders of a GPU: ``ann's python (4711) holds 41.2 GiB, and 2 more``; empty if none."""
    texts = [
        f"{process_name(process)} holds {gib(memory_of(process))}" for process in processes[:_NAMED]
    ]
    if len(processes) > _NAMED:
        texts.append(f"and {len(processes) - _NAMED} more")
    return ", ".join(texts)


def process_name(process: GpuProcess) -> str:
    """The name of a process for the user: ``ann's python (4711)``."""
    unseen = "a process that has ended" if process.state == ENDED else "a process"
    name = printable(process.name or unseen)
    whose = "" if process.user is None else f"{printable(process.user)}'s "
    return f"{whose}{name} ({process.id.pid})"
