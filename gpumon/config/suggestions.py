"""Suggestions for misspelled names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(word: object, names: Iterable[str], likeness: float = 0.6) -> str | None:
    """The most similar known name, if it is similar enough; 0 accepts any."""
    # Imported here, because most names are known.
    from difflib import get_close_matches

    if not isinstance(word, str):
        return None
    lower = {name.lower(): name for name in names}
    found = get_close_matches(word.lower(), lower, n=1, cutoff=likeness)
    return lower[found[0]] if found else None


def did_you_mean(word: object, names: Iterable[str]) -> str:
    """`` (did you mean interval?)``, or nothing if no name is similar."""
    near = nearest(word, names)
    return "" if near is None else f" (did you mean {near}?)"


def nearest_or_all(word: str, names: Iterable[str]) -> str:
    """The most similar known name, or all known names, as part of a sentence."""
    known = list(names)
    near = nearest(word, known)
    return f"there are {', '.join(known)}" if near is None else f"the nearest is {near!r}"
