"""Names of GPUs in a narrow column: brief, but different for different models."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import chain, combinations
from typing import TYPE_CHECKING

from gpumon.ui.view.gpu_text import core_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SPELLED = {"PCIE": "PCIe"}


@lru_cache(maxsize=64)
def brief_names(names: frozenset[str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Brief texts for the short names of all GPUs.

    Models with the same core get the words that distinguish them: ``H100 PCIe`` and ``H100 80GB``,
    ``RTX 4090`` and ``RTX 4090 Laptop``.

    Returns:
        Two texts for each name; the second is shorter where models have the same core.
    """
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(core_name(name), []).append(name)
    briefer = dict(chain.from_iterable(_distinct(core, group) for core, group in groups.items()))
    brief = {name: " ".join([core_name(name), *briefer[name]]) for name in names}
    same = Counter(brief.values())
    brief = {name: name if same[text] > 1 else text for name, text in brief.items()}
    tight = {name: " ".join([core_name(name).rpartition(" ")[2], *briefer[name]]) for name in names}
    crowded = len(groups) < len(names) and len({*tight.values()}) == len(names)
    return brief, tight if crowded else brief


def _distinct(core: str, group: list[str]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """For each name with this core the fewest further words that no other one has."""
    pending = {name: _further_words(core, name) for name in group}
    while pending:
        found = {
            name: choice
            for name, words in pending.items()
            if (choice := _choice(words, [pending[it] for it in pending if it != name])) is not None
        }
        # Without an answer, each keeps all of its words.
        for name, choice in (found or dict(pending)).items():
            yield name, choice
            del pending[name]


def _choice(words: tuple[str, ...], others: list[tuple[str, ...]]) -> tuple[str, ...] | None:
    for count in range(len(words) + 1):
        for choice in combinations(words, count):
            if not any(set(choice) <= set(other) for other in others):
                return choice
    return None


def _further_words(core: str, name: str) -> tuple[str, ...]:
    """The words after the core: ``SXM4`` and ``80GB`` of ``A100-SXM4-80GB``.

    NVIDIA writes both ``PCIE`` and ``PCIe``.
    """
    words = name.removeprefix("Quadro ").split()
    last = len(core.split()) - 1
    further = (*words[last].split("-")[1:], *words[last + 1 :])
    return tuple(
        _SPELLED.get(word, word) for word in further if word[:1].isalnum() and word != "with"
    )
