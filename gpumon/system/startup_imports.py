"""Imports packages without optional parts that gpumon does not use and that slow the start.

These packages work without the optional part if it is not installed. So it is hidden while they are
imported; later imports, and those of other threads, find it.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager


def import_msgspec() -> None:
    """Import msgspec without typing_extensions, which takes as long as msgspec itself.

    It would replace ``typing`` for inspecting the types of dictionaries with fixed keys, which
    gpumon does not use.
    """
    with hidden("typing_extensions"):
        import msgspec  # noqa: F401 - so that it is there


def import_asyncio() -> None:
    """Import asyncio without TLS: no connection leaves this machine, and OpenSSL takes 1.6 MiB."""
    with hidden("ssl"):
        import asyncio  # noqa: F401 - so that it is there


def without_ctypes_util() -> AbstractContextManager[None]:
    """A block that imports pynvml: 24 of the 34 ms are of ``ctypes.util``, which it never calls."""
    unused = ModuleType("ctypes.util")
    unused.find_library = None  # type: ignore[attr-defined]  # the one name that pynvml imports
    return replaced("ctypes.util", unused)


@contextmanager
def hidden(name: str) -> Iterator[None]:
    """Make the import of a module fail in this thread, unless it is imported already.

    Another thread may need it meanwhile: servers are asked over HTTP while the screen starts.
    """
    finder = _Hiding(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Hiding:
    def __init__(self, name: str) -> None:
        self._name, self._thread = name, get_ident()

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> None:
        """Find nothing, and keep the finders after this from finding the module.

        Raises:
            ModuleNotFoundError: It is the module.
        """
        if name == self._name and get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is hidden", name=name)


@contextmanager
def replaced(name: str, other: ModuleType) -> Iterator[None]:
    """Replace a module that is not imported yet."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = other
    try:
        yield
    finally:
        del sys.modules[name]
