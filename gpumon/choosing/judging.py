"""Judges each card by what is asked of one: it fits, or there is one reason why it does not.

The reasons are looked for in the order in which a person would: what the card is, whether it is
this program's to take, who has it, how it does. What is asked about and not known is a reason too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.availability import FRESH_SECONDS, listed_on, why_not_free
from gpumon.choosing.words import gib, holders_named, many
from gpumon.model import CardStatus, Gpu, GpuProcess, MigInstance, Unknown
from gpumon.reserving import Holder  # noqa: TC001 - msgspec resolves annotations at run time
from gpumon.text import duration, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpumon.choosing.requirements import Requirements
    from gpumon.model import GpuUse, Snapshot

_HOW_TO_SHARE = "--free SIZE says how much free memory will do"
_GONE = {
    CardStatus.LOST: "it is lost: it fell off the bus",
    CardStatus.RESET_REQUIRED: "it needs a reset",
    CardStatus.NO_PERMISSION: "this user may not open it",
    CardStatus.NO_ANSWER: "it does not answer",
    CardStatus.FAILING: "it fails",
    CardStatus.ASLEEP: "it is powered down, and asking how it does would wake it",
}


class Candidate(Struct, frozen=True):
    """What can be taken: a whole card, or a MIG device of it."""

    gpu: Gpu
    mig: MigInstance | None = None

    @property
    def uuid(self) -> str:
        """What CUDA knows it by."""
        return self.gpu.uuid if self.mig is None else self.mig.uuid

    @property
    def label(self) -> str:
        """What to call it to a person: ``GPU 3``, ``GPU 3 MIG 1``."""
        return f"GPU {self.gpu.index}" + ("" if self.mig is None else f" MIG {self.mig.index}")

    @property
    def memory_free(self) -> int | None:
        """Bytes."""
        return self.gpu.memory_free if self.mig is None else self.mig.memory_free

    @property
    def memory_used(self) -> int | None:
        """Bytes."""
        return self.gpu.memory_used if self.mig is None else self.mig.memory_used

    @property
    def memory_total(self) -> int | None:
        """Bytes."""
        return self.gpu.memory_total if self.mig is None else self.mig.memory_total

    def seen_in(self, snapshot: Snapshot) -> Candidate | None:
        """The same as it is in another snapshot, if it is there."""
        for gpu in snapshot.gpus:
            if gpu.uuid == self.gpu.uuid:
                if self.mig is None:
                    return Candidate(gpu)
                found = [mig for mig in gpu.mig if mig.uuid == self.mig.uuid]
                return Candidate(gpu, found[0]) if found else None
        return None

    def use_of(self, process: GpuProcess) -> GpuUse | None:
        """What a process has of it."""
        for use in process.uses:
            if use.gpu_uuid == self.gpu.uuid and (
                self.mig is None
                or use.instance == (self.mig.gpu_instance, self.mig.compute_instance)
            ):
                return use
        return None


class Refusal(Struct, frozen=True):
    """Why something does not fit.

    Attributes:
        kind: The requirement in a word, for programs: ``status``, ``chosen``, ``allocation``,
            ``model``, ``architecture``, ``capability``, ``mig``, ``total``, ``mode``,
            ``reserved``, ``queue``, ``old``, ``health``, ``processes``, ``memory``, ``busy``,
            ``utilization``, ``temperature``, ``watching``, ``stable``; ``unknown`` where what the
            card is cannot be read now.
        sentence: For a person, without the card's name; safe to print.
    """

    kind: str
    sentence: str

    @property
    def passing(self) -> bool:
        """Whether time may mend it."""
        return self.kind not in _LASTING


_LASTING = frozenset(
    ("chosen", "allocation", "model", "architecture", "capability", "mig", "total", "mode")
)


class Verdict(Struct, frozen=True):
    """What is thought of one candidate.

    Attributes:
        candidate: Which.
        refusal: Why it does not fit; ``None``: it does.
        free: Bytes that a job would find, its owner's own counted in where that was asked for.
        others: Who computes on it, whom that was asked for left out, most memory first.
        holder: Who has reserved it.
    """

    candidate: Candidate
    refusal: Refusal | None
    free: int | None
    others: tuple[GpuProcess, ...] = ()
    holder: Holder | None = None

    @property
    def may_come(self) -> bool:
        """Whether it fits or may fit later; a lost card may come back."""
        return self.refusal is None or self.refusal.passing


class Allowance(Struct, frozen=True):
    """Which cards a program of this environment may take.

    Attributes:
        uuids: Of cards and MIG devices; ``None`` is all.
        reason: Why not the others.
    """

    uuids: frozenset[str] | None = None
    reason: str = ""

    def allows(self, candidate: Candidate) -> bool:
        """Whether it may be taken; a MIG device also as part of its card."""
        return self.uuids is None or not self.uuids.isdisjoint((candidate.uuid, candidate.gpu.uuid))


class Circumstances(Struct, frozen=True):
    """What besides the cards themselves decides.

    Attributes:
        allowance: What the environment leaves.
        held: Who has reserved which card or MIG device, by its UUID.
        owed: What waits for somebody who came before, by its UUID: for whom, in a few words.
        uid: The number of the user who asks.
    """

    allowance: Allowance = Allowance()
    held: Mapping[str, Holder] = {}
    owed: Mapping[str, str] = {}
    uid: int | None = None


def judge(
    snapshot: Snapshot, requirements: Requirements, circumstances: Circumstances
) -> tuple[Verdict, ...]:
    """What is thought of each card, or each MIG device where those are asked for, in their order.

    A card that is refused as a whole has one verdict, whatever it is cut into.
    """
    return tuple(
        _verdict(candidate, snapshot, requirements, circumstances)
        for gpu in snapshot.gpus
        for candidate in _candidates(gpu, requirements)
    )


def _candidates(gpu: Gpu, requirements: Requirements) -> Iterator[Candidate]:
    if requirements.mig and gpu.mig:
        yield from (Candidate(gpu, mig) for mig in gpu.mig)
    else:
        yield Candidate(gpu)


def _verdict(
    candidate: Candidate,
    snapshot: Snapshot,
    requirements: Requirements,
    circumstances: Circumstances,
) -> Verdict:
    look = _Look(candidate, snapshot, requirements, circumstances)
    reason = next(look.reasons(), None)
    return Verdict(
        candidate,
        None if reason is None else Refusal(*reason),
        look.free,
        look.others,
        look.holder,
    )


class _Look:
    """One candidate being looked at."""

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
        self._on_it = [one for one in snapshot.processes if candidate.use_of(one) is not None]
        self._listed = (
            snapshot.processes_at is not None and "processes" not in candidate.gpu.unknown
        )
        read_at = (candidate.gpu.sampled_at, snapshot.processes_at)
        self._age = max(snapshot.time - (snapshot.time if at is None else at) for at in read_at)
        uid = circumstances.uid if requirements.mine_is_free else None
        self._mine = [one for one in self._on_it if uid is not None and one.uid == uid]
        computing = [one for one in self._on_it if one.type != "G" and one not in self._mine]
        self.others = tuple(
            sorted(computing, key=lambda one: -(self._memory_of([one]) or 0)),
        )
        self.free = self._free()
        held = circumstances.held
        self.holder = held.get(candidate.uuid) or held.get(candidate.gpu.uuid)

    def _memory_of(self, processes: Sequence[GpuProcess]) -> int | None:
        """Bytes that they hold here; ``None`` where that of any is unknown."""
        total = 0
        for process in processes:
            use = self._candidate.use_of(process)
            if use is None or use.memory_used is None:
                return None
            total += use.memory_used
        return total

    def _free(self) -> int | None:
        free, mine = self._candidate.memory_free, self._memory_of(self._mine)
        return None if free is None or mine is None else free + mine

    def reasons(self) -> Iterator[tuple[str, str]]:
        """Kind and sentence of each reason against it, the first one first."""
        # What lasts comes first: it must not be hidden by what may pass.
        yield from self._of_what_it_is()
        yield from self._of_what_cannot_be_read()
        yield from self._of_its_slices()
        yield from self._of_whose_it_is()
        yield from self._of_who_is_on_it()
        yield from self._of_how_it_does()

    def _of_what_it_is(self) -> Iterator[tuple[str, str]]:
        gpu, asked = self._gpu, self._asked
        by_uuid = is_identified(gpu)
        if not asked.only.includes(gpu.index, gpu.uuid) and (by_uuid or not asked.only.prefixes):
            yield "chosen", "it is none of those that --gpus names"
        if asked.never and asked.never.includes(gpu.index, gpu.uuid):
            yield "chosen", "--not names it"
        if by_uuid and not self._circumstances.allowance.allows(self._candidate):
            yield "allocation", self._circumstances.allowance.reason
        for kind, known, sentence in self._of_its_kind():
            if known:
                yield kind, sentence
        if gpu.compute_mode == "Prohibited":
            yield "mode", "its compute mode prohibits computing"

    def _of_what_cannot_be_read(self) -> Iterator[tuple[str, str]]:
        if self._gpu.status in _GONE:
            yield "status", _GONE[self._gpu.status]
        for _, known, sentence in self._of_its_kind():
            if not known:
                yield "unknown", sentence

    def _of_its_kind(self) -> Iterator[tuple[str, bool, str]]:
        """Kind of each mismatch, whether the card told what it is, and a sentence."""
        gpu, asked = self._gpu, self._asked
        if asked.models and not any(part in (gpu.name or "").lower() for part in asked.models):
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
                told = _named(gpu.compute_capability)
                sentence = f"its compute capability is {told}, {least} asked"
                yield "capability", has is not None, sentence
        total = self._candidate.memory_total
        if asked.total is not None and (total is None or total < asked.total):
            sentence = f"{_size(total)} in all, {gib(asked.total)} asked"
            yield "total", total is not None, sentence

    def _of_its_slices(self) -> Iterator[tuple[str, str]]:
        gpu = self._gpu
        unknown = gpu.unknown.get("mig_mode") is Unknown.NO_ANSWER
        if self._asked.mig and self._candidate.mig is None:
            yield "unknown" if unknown else "mig", "it has no MIG device"
        elif not self._asked.mig and (gpu.mig or gpu.mig_mode):
            yield "mig", "it is cut into MIG devices: --mig chooses among those"
        elif not self._asked.mig and unknown:
            yield "unknown", "whether it is cut into MIG devices is unknown"

    def _of_whose_it_is(self) -> Iterator[tuple[str, str]]:
        if self.holder is not None:
            yield "reserved", self.holder.sentence(time.time())
        owed = self._circumstances.owed.get(self._candidate.uuid)
        if owed is not None:
            yield "queue", owed

    def _of_who_is_on_it(self) -> Iterator[tuple[str, str]]:
        asked = self._asked
        if self._age > FRESH_SECONDS:
            yield "old", f"what is known of it was read {duration(self._age)} ago"
        if asked.empty:
            yield from self._of_not_being_free()
            return
        most = asked.processes
        if self._gpu.compute_mode == "Exclusive_Process":
            most = 0
        if most is not None:
            if not self._listed:
                yield "processes", "who computes on it is unknown"
            elif len(self.others) > most:
                yield "processes", self._occupied(most)
        if asked.free is not None and (self.free is None or self.free < asked.free):
            held = holders_named(self.others, self._candidate.use_of)
            yield (
                "memory",
                f"{_size(self.free)} free, {gib(asked.free)} asked" + (held and f"; {held}"),
            )

    def _occupied(self, most: int) -> str:
        held = holders_named(self.others, self._candidate.use_of)
        if most == 0:
            return held
        return f"{many(len(self.others), 'process')} compute on it, {most} may; {held}"

    def _of_not_being_free(self) -> Iterator[tuple[str, str]]:
        gpu, mig = self._candidate.gpu, self._candidate.mig
        others = [one for one in self._on_it if one not in self._mine]
        reason = why_not_free(
            gpu,
            listed_on(others, gpu, mig) if self._listed else None,
            mig=mig,
            mine=listed_on(self._mine, gpu, mig),
            in_container=self._in_container,
        )
        # Whoever names a utilisation has said what is too busy.
        if reason is None or (reason.kind == "busy" and self._asked.utilization is not None):
            return
        if reason.kind == "processes" and self.others:
            yield reason.kind, self._occupied(0)
        elif reason.kind == "memory":
            yield reason.kind, f"{reason.sentence}; {_HOW_TO_SHARE}"
        else:
            yield reason.kind, reason.sentence

    def _of_how_it_does(self) -> Iterator[tuple[str, str]]:
        gpu, asked = self._gpu, self._asked
        busy, warm = gpu.utilization_gpu, gpu.temperature_gpu
        if asked.utilization is not None and (busy is None or busy > asked.utilization):
            told = "its utilisation is unknown" if busy is None else f"{busy} % utilised"
            yield "utilization", f"{told}, at most {asked.utilization:g} % asked"
        if asked.temperature is not None and (warm is None or warm > asked.temperature):
            told = "its temperature is unknown" if warm is None else f"{warm} °C"
            yield "temperature", f"{told}, at most {asked.temperature:g} °C asked"


def judge_over_time(
    looks: Sequence[tuple[float, tuple[Verdict, ...]]],
) -> tuple[Verdict, ...]:
    """The last of several looks, where whatever did not fit in an earlier one does not fit.

    Args:
        looks: Time and verdicts of each, oldest first, one at least.
    """
    now = looks[-1][0]
    earlier: dict[str, tuple[float, Refusal]] = {}
    always = set.intersection(*({one.candidate.uuid for one in each} for _, each in looks))
    for at, verdicts in looks[:-1]:
        for verdict in verdicts:
            # A card that somebody had reserved and gave back was in use, or it would show.
            if verdict.refusal is not None and verdict.refusal.kind not in ("reserved", "queue"):
                earlier[verdict.candidate.uuid] = at, verdict.refusal
    told = []
    for verdict in looks[-1][1]:
        uuid = verdict.candidate.uuid
        sentence = ""
        if uuid in earlier:
            at, refusal = earlier[uuid]
            sentence = f"it fits now, but {duration(now - at)} ago: {refusal.sentence}"
        elif uuid not in always:
            sentence = "it fits now, but was not there all the time"
        unsteady = sentence and verdict.refusal is None
        told.append(replace(verdict, refusal=Refusal("stable", sentence)) if unsteady else verdict)
    return tuple(told)


def is_identified(gpu: Gpu) -> bool:
    """Whether its UUID is its own: a card that never answered has none, and no name either."""
    return gpu.name is not None or gpu.status is CardStatus.OK


def _capability(text: str | None) -> tuple[int, int] | None:
    major, _, minor = (text or "").partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _named(text: str | None) -> str:
    return "unknown" if text is None else printable(text)


def _either(words: Sequence[str]) -> str:
    return " or ".join(printable(word) for word in words)


def _size(size: int | None) -> str:
    return "an unknown amount" if size is None else gib(size)
