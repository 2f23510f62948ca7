"""What several views say of a card in the same words: its state, its name, its users, its rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings import Severity
from gpumon.text import UNKNOWN, memory_size, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model import Gpu, GpuProcess

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


def short_name(name: str | None) -> str:
    """A card's name without the words that all of them share."""
    if name is None:
        return UNKNOWN
    text = printable(name)
    for word in ("NVIDIA ", "GeForce ", "Tesla ", "Quadro "):
        text = text.removeprefix(word)
    return text.strip() or UNKNOWN


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


def holders(gpu: Gpu, processes: Sequence[GpuProcess]) -> str:
    """The users on a card, the one holding most first."""
    held: dict[str, int] = {}
    for process in processes:
        for use in process.uses:
            if use.gpu_uuid == gpu.uuid:
                user = process.user or UNKNOWN
                held[user] = held.get(user, 0) + (use.memory_used or 0)
    order = sorted(held, key=lambda user: (-held[user], user))
    return printable(" ".join(order))


def rate(value: float | None) -> str:
    """Bytes per second as ``memory_size`` writes bytes."""
    return memory_size(None if value is None else int(value))
