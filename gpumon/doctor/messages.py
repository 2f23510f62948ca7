"""Text that several checks use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def index_list(indices: Iterable[int]) -> str:
    """Indices as ranges: ``0-3, 5``."""
    spans: list[list[int]] = []
    for index in sorted(set(indices)):
        if spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


def count(number: int, what: str) -> str:
    """A number of things: ``1 GPU``, ``8 GPUs``."""
    return f"{number} {what}{'' if number == 1 else 's'}"
