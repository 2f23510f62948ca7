"""Texts about a GPU that several views share: its state, name, users and rates."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

from gpumon.findings import RULES, FindingKind, Severity
from gpumon.model import makers
from gpumon.model.process_states import ENDED
from gpumon.model.snapshot import GpuStatus, Unknown, lines_of
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    fit,
    gibibytes,
    memory_size,
    printable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.findings import Finding
    from gpumon.model.processes import GpuProcess, GpuUse
    from gpumon.model.snapshot import Gpu
    from gpumon.text.cells import Field
    from gpumon.text.process_columns import DeviceKey, MigIndices

_BELOW = {
    Severity.GOOD: ("○", "free"),
    Severity.QUIET: ("●", "busy, nothing to report"),
}
_ABOVE = {
    Severity.NOTE: ("△", "worth knowing: why it is slow, a program's XID, memory that grows"),
    Severity.WARNING: (
        "▲",
        "needs attention: hot, slowed down, perhaps stuck, unattributed memory",
    ),
    Severity.CRITICAL: ("✖", "the GPU does not answer, or is lost"),
}
_OWN_SIGNS = [rule.sign for rule in RULES.values() if rule.sign is not None]

STATE_SIGNS = tuple(dict.fromkeys((*_BELOW.values(), *_OWN_SIGNS, *_ABOVE.values())))
"""The glyphs of states with their meaning, so that colour is not the only sign of a severity.

Below a warning a kind may have its own; a warning has that of its severity, whatever it is."""

GLYPHS = {severity: glyph for severity, (glyph, _) in (_BELOW | _ABOVE).items()}

STATE_STYLES = {
    Severity.GOOD: "state.good",
    Severity.QUIET: "state.quiet",
    Severity.NOTE: "state.note",
    Severity.WARNING: "state.warning",
    Severity.CRITICAL: "state.critical",
}


@lru_cache(maxsize=256)
def short_name(name: str | None) -> str:
    """A GPU's name without the brand."""
    if name is None:
        return UNKNOWN
    return makers.short_name(printable(name)) or UNKNOWN


def load_word(gpus: Iterable[Gpu], uses: Iterable[GpuUse] | None = None) -> str:
    """What the load of a process is called on these GPUs, in the words of the foremost maker.

    Args:
        gpus: The GPUs.
        uses: Its uses, if only the GPUs of these count.
    """
    used = None if uses is None else {use.gpu_uuid for use in uses}
    found = {makers.maker_of(gpu.name) for gpu in gpus if used is None or gpu.uuid in used}
    return min(found or {makers.first_maker()}, key=makers.makers().index).load_word


def clock_heading(gpus: Sequence[Gpu]) -> str:
    """The heading of the clock: that of the maker if all GPUs are of one."""
    found = makers.makers_of(gpus) or (makers.first_maker(),)
    return (found[0] if len(found) == 1 else makers.Maker).clock_heading


def is_stale(gpu: Gpu, state: Finding) -> bool:
    """Whether a GPU's values are not current: it does not answer, or it was not sampled."""
    return gpu.status is not GpuStatus.OK or state.kind is FindingKind.OLD


def state_glyph(state: Finding) -> str:
    """The glyph of a state."""
    own = RULES[state.kind].sign
    return own[0] if own and state.severity < Severity.WARNING else GLYPHS[state.severity]


def state_field(state: Finding, width: int) -> Field:
    """A GPU's brief state with its glyph, in exactly ``width`` cells."""
    text = f"{state_glyph(state)} {printable(state.brief)}"
    return fit(text, width), STATE_STYLES[state.severity]


def state_fields(
    state: Finding, holder: Sequence[str], width: int, *, style: str = "", holder_style: str = ""
) -> tuple[Field, Field]:
    """A GPU's state with its glyph, and its holder after it, together in ``width`` cells.

    Args:
        state: The state.
        holder: Texts about the holder, longest first; empty if nobody holds the GPU.
        width: Cells.
        style: Prefix of the name of the state's style.
        holder_style: The style of the holder.
    """
    if state.severity is Severity.GOOD:
        # Who only draws on a GPU does not keep it from others.
        holder = ()
    mark = f"{state_glyph(state)} "
    words = mark + _words(state, holder, width - cell_width(mark))
    name = STATE_STYLES[state.severity]
    left = width - cell_width(words)
    if left < 0:
        return (fit(words, width), style + name), ("", holder_style)
    text = next((text for text in holder if cell_width(text) + len(_GAP) <= left), "")
    return (words, style + name), (fit(_GAP + text if text else "", left), holder_style)


_GAP = "  "


def _words(state: Finding, holder: Sequence[str], width: int) -> str:
    """The longest text of a state that fits, without its last clause if necessary."""
    short = state.short
    texts = (short, short.rpartition(", ")[0], short.partition(" (")[0], state.brief)
    fitting = [printable(text) for text in texts if text and cell_width(text) <= width]
    if holder and RULES[state.kind].holder_first:
        room = width - len(_GAP) - cell_width(holder[-1])
        fitting = [text for text in fitting if cell_width(text) <= room] or fitting
    return fitting[0] if fitting else printable(state.brief)


def share(value: float | None, whole: float | None) -> float | None:
    """The fraction for a bar; ``None`` if a value is unknown or the whole is 0."""
    return None if value is None or not whole else value / whole


@lru_cache(maxsize=256)
def core_name(name: str) -> str:
    """The model: the words up to the first one with a digit, without that word's suffix.

    ``H100`` of ``H100 80GB HBM3``, ``RTX 4090``, ``A100`` of ``A100-SXM4-80GB``, ``RTX 6000`` of
    ``Quadro RTX 6000``.
    """
    words: list[str] = []
    for word in name.removeprefix("Quadro ").split():
        head = word.partition("-")[0]
        words.append(head or word)
        if any(character.isdigit() for character in head):
            break
    return " ".join(words)


def memory_share(used: int | None, total: int | None) -> float | None:
    """The fraction for a memory bar: 0 if the amount beside it reads 0."""
    return share(0 if used is not None and float(gibibytes(used)) == 0 else used, total)


def mig_indices(gpus: Iterable[Gpu]) -> MigIndices:
    """The indices by which processes name their MIG devices."""
    return {
        (line.gpu.uuid, (line.mig.gpu_instance, line.mig.compute_instance)): line.mig.index
        for line in lines_of(gpus)
        if line.mig is not None
    }


def holders(processes: Sequence[GpuProcess]) -> dict[DeviceKey, tuple[str, ...]]:
    """Who holds each GPU and MIG device: texts for ``state_fields``, longest first.

    All users, then only the one with the most memory with an amount, or alone with the number of
    others.
    """
    held: defaultdict[DeviceKey, dict[str | None, list[int | None]]] = defaultdict(dict)
    hidden: set[DeviceKey] = set()
    for process in processes:
        may_run = process.user is None and process.state != ENDED
        for use in process.uses:
            places: tuple[DeviceKey, ...] = (use.gpu_uuid,)
            if use.instance is not None:
                places = (use.gpu_uuid, (use.gpu_uuid, use.instance))
            for place in places:
                held[place].setdefault(process.user, []).append(use.memory_used)
            if may_run:
                hidden.update(places)
    return {
        place: _holder_texts(users, _HIDDEN if place in hidden else _ENDED)
        for place, users in held.items()
    }


def users_of_gpu(processes: Sequence[GpuProcess], uuid: str) -> list[str | None]:
    """The users with a process on a GPU, most memory first; ``None`` is an unknown user."""
    held: defaultdict[str | None, list[int | None]] = defaultdict(list)
    for process in processes:
        for use in process.uses:
            if use.gpu_uuid == uuid:
                held[process.user].append(use.memory_used)
    return _by_memory(_known_memory(held))


def _known_memory(held: Mapping[str | None, Sequence[int | None]]) -> dict[str | None, int]:
    return {user: sum(size for size in sizes if size) for user, sizes in held.items()}


def _by_memory(known: Mapping[str | None, int]) -> list[str | None]:
    return sorted(known, key=lambda user: (-known[user], user or ""))


def _holder_texts(held: Mapping[str | None, Sequence[int | None]], nobody: str) -> tuple[str, ...]:
    known = _known_memory(held)
    users = _by_memory(known)
    names = {user: nobody if user is None else printable(user) for user in users}
    amounts = {user: "" if None in held[user] else f" {memory_size(known[user])}" for user in users}
    first = users[0]
    name, amount = names[first], amounts[first]
    others = f" +{len(users) - 1}" if len(users) > 1 else ""
    every = ", ".join(names[user] + amounts[user] for user in users)
    rest = "".join(f", {names[user]}" for user in users[1:])
    return tuple(
        dict.fromkeys((every, name + amount + rest, name + amount + others, name + others, name))
    )


_HIDDEN = "not visible"
"""Stands for the name of a user that is hidden from this one."""
_ENDED = "ended process"
"""Stands for the user of a process that ended before it was seen."""


def unlisted_holder(gpu: Gpu) -> tuple[str, ...]:
    """The text for ``state_fields`` if the driver does not list the processes of a GPU."""
    why = gpu.unknown.get("processes")
    # An exporter tells of no process: that is no sign of memory without an owner.
    if why in {None, Unknown.NOT_EXPORTED}:
        return ()
    if not memory_share(gpu.memory_used, gpu.memory_total):
        return ()
    return (f"unattributed {memory_size(gpu.memory_used)}", "unattributed")


def rate(value: float | None) -> str:
    """Bytes per second, in the form of ``memory_size``."""
    return memory_size(None if value is None else int(value))
