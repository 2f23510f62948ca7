"""What several views say of a card in the same words: its state, its name, its users, its rates."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from gpumon.findings import FindingKind, Severity
from gpumon.model.snapshot import CardStatus
from gpumon.text.formatting import UNKNOWN, cell_width, fit, memory_size, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Gpu, GpuProcess
    from gpumon.text.cells import Field

GLYPHS = {
    Severity.GOOD: "○",
    Severity.QUIET: "●",
    Severity.NOTE: "◐",
    Severity.WARNING: "▲",
    Severity.CRITICAL: "✖",
}
"""A sign beside each word, so that no state is told by colour alone."""

STATE_STYLES = {
    Severity.GOOD: "state.good",
    Severity.QUIET: "state.quiet",
    Severity.NOTE: "state.note",
    Severity.WARNING: "state.warning",
    Severity.CRITICAL: "state.critical",
}


@lru_cache(maxsize=256)
def short_name(name: str | None) -> str:
    """A card's name without the words that all of them share."""
    if name is None:
        return UNKNOWN
    text = printable(name)
    for word in ("NVIDIA ", "GeForce ", "Tesla ", "Quadro "):
        text = text.removeprefix(word)
    return text.strip() or UNKNOWN


def is_stale(gpu: Gpu, state: Finding) -> bool:
    """Whether a card's numbers are of the past: it does not answer, or nobody could ask it."""
    return gpu.status is not CardStatus.OK or state.kind is FindingKind.OLD


def state_field(
    state: Finding, width: int, *, before: str = "", style: str = "", brief: bool = False
) -> Field:
    """A card's state with its sign, in exactly ``width`` cells.

    Args:
        state: What is said of the card.
        width: Cells; where the short words do not fit there are fewer.
        before: What stands before the sign.
        style: What stands before the state's own style.
        brief: Whether there is never room for more than the brief words.
    """
    start = f"{before}{GLYPHS[state.severity]} "
    words = printable(state.brief if brief else _words_within(state, width - cell_width(start)))
    return fit(start + words, width), style + STATE_STYLES[state.severity]


def _words_within(state: Finding, width: int) -> str:
    """The short words; without their last clause where that is too long; else the brief ones."""
    for words in (state.short, state.short.rpartition(", ")[0], state.short.partition(" (")[0]):
        if words and cell_width(words) <= width:
            return words
    return state.brief


def share(value: float | None, whole: float | None) -> float | None:
    """The fraction for a bar; ``None`` where either is unknown, or there is no whole."""
    return None if value is None or not whole else value / whole


@lru_cache(maxsize=256)
def core_name(name: str) -> str:
    """What tells one model from another: the words up to the first with a digit, its suffix cut.

    ``H100`` of ``H100 80GB HBM3``, ``RTX 4090``, ``A100`` of ``A100-SXM4-80GB``.
    """
    words: list[str] = []
    for word in name.split():
        head = word.partition("-")[0]
        words.append(head or word)
        if any(character.isdigit() for character in head):
            break
    return " ".join(words)


def users_by_card(processes: Sequence[GpuProcess]) -> dict[str, str]:
    """The users on each card, by its UUID, the one holding most first."""
    held: dict[str, dict[str, int]] = {}
    for process in processes:
        user = process.user or UNKNOWN
        for use in process.uses:
            on_card = held.setdefault(use.gpu_uuid, {})
            on_card[user] = on_card.get(user, 0) + (use.memory_used or 0)
    return {
        uuid: printable(" ".join(sorted(users, key=lambda user: (-users[user], user))))
        for uuid, users in held.items()
    }


def rate(value: float | None) -> str:
    """Bytes per second as ``memory_size`` writes bytes."""
    return memory_size(None if value is None else int(value))
