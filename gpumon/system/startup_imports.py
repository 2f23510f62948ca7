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
    from contextlib import AbstractContextManager


def import_msgspec() -> None:
    """Import msgspec without typing_extensions, which takes as long as msgspec itself.

    It would replace ``typing`` for inspecting the types of dictionaries with fixed keys, which
    gpumon does not use.
    """
    with replaced("typing_extensions", None):
        import msgspec  # noqa: F401 - so that it is there


def import_asyncio() -> None:
    """Import asyncio without TLS: no connection leaves this machine, and OpenSSL takes 1.6 MiB."""
    with replaced("ssl", None):
        import asyncio  # noqa: F401 - so that it is there


def without_ctypes_util() -> AbstractContextManager[None]:
    """A block that imports pynvml: 24 of the 34 ms are of ``ctypes.util``, which it never calls."""
    unused = ModuleType("ctypes.util")
    unused.find_library = None  # type: ignore[attr-defined]  # the one name that pynvml imports
    return replaced("ctypes.util", unused)


@contextmanager
def replaced(name: str, other: ModuleType | None) -> Iterator[None]:
    """Replace a module that is not imported yet; ``None`` makes its import fail."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = other  # type: ignore[assignment]  # None is allowed, see importlib
    try:
        yield
    finally:
        del sys.modules[name]
