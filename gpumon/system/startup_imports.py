"""Imports packages without optional parts that gpumon does not use and that slow the start.

These packages work without the optional part if it is not installed. So it is hidden while they are
imported; later imports find it again.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def import_msgspec() -> None:
    """Import msgspec without typing_extensions, which takes as long as msgspec itself.

    It would replace ``typing`` for inspecting the types of dictionaries with fixed keys, which
    gpumon does not use.
    """
    with _hidden("typing_extensions"):
        import msgspec  # noqa: F401 - so that it is there


def import_asyncio() -> None:
    """Import asyncio without TLS: no connection leaves this machine, and OpenSSL takes 1.6 MiB."""
    with _hidden("ssl"):
        import asyncio  # noqa: F401 - so that it is there


def import_pynvml() -> None:
    """Import pynvml without ``ctypes.util``, which takes 24 of its 34 ms and is never called."""
    if "pynvml" in sys.modules:
        return
    unused = ModuleType("ctypes.util")
    unused.find_library = None  # type: ignore[attr-defined]  # the one name that pynvml imports
    with _in_place_of("ctypes.util", unused):
        import pynvml  # noqa: F401 - so that it is there


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Make imports of a module fail if it is not imported yet: Python's ``None`` entry."""
    with _in_place_of(name, None):
        yield


@contextmanager
def _in_place_of(name: str, other: ModuleType | None) -> Iterator[None]:
    """Replace a module that is not imported yet by another one."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = other  # type: ignore[assignment]  # None is allowed, see importlib
    try:
        yield
    finally:
        del sys.modules[name]
