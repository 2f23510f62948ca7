"""Keeps what was drawn, for as long as it would be drawn the same again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from typing_extensions import TypeVar, TypeVarTuple, Unpack

    _Args = TypeVarTuple("_Args")
    _Made = TypeVar("_Made")


class Memo:
    """The newest result of each function, with what it was made of.

    One result a function keeps memory bounded, for functions of a module; those that are called for
    several cards or processes have a part for each.
    """

    __slots__ = ("_made", "_parts")

    def __init__(self) -> None:
        # Functions of any type share one table; the signatures below hold each to its own.
        self._made: dict[Callable[..., Any], tuple[object, Any]] = {}
        self._parts: dict[Hashable, Memo] = {}

    def __call__(self, make: Callable[[Unpack[_Args]], _Made], *args: Unpack[_Args]) -> _Made:
        """Return the result of a function, called only when an argument has changed."""
        known = self._made.get(make)
        if known is None or known[0] != args:
            known = self._made[make] = (args, make(*args))
        made: _Made = known[1]
        return made

    def by(
        self, key: object, make: Callable[[Unpack[_Args]], _Made], *args: Unpack[_Args]
    ) -> _Made:
        """Return the result of a function, called only when the key has changed."""
        known = self._made.get(make)
        if known is None or known[0] != key:
            known = self._made[make] = (key, make(*args))
        made: _Made = known[1]
        return made

    def newest(self, make: Callable[..., _Made]) -> _Made | None:
        """Return the newest result of a function, whatever it was made of."""
        known = self._made.get(make)
        return None if known is None else known[1]

    def part(self, name: Hashable) -> Memo:
        """Return the memo of one thing among several, such as a card."""
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = Memo()
        return part

    def keep(self, names: Iterable[Hashable]) -> None:
        """Forget all parts but these."""
        self._parts = {name: self._parts[name] for name in names if name in self._parts}
