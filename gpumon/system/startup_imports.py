"""Imports packages without the optional parts of theirs that are of no use to gpumon.

Both packages named here are made to do without: where the part is not installed they leave it out.
To them it is not installed, then, for as long as they are imported; whoever wants it later gets it.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def import_msgspec() -> None:
    """Import msgspec without typing_extensions, which takes as long as msgspec itself.

    It would stand in for ``typing`` in looking at the types of dictionaries with fixed keys, of
    which gpumon has none.
    """
    with _hidden("typing_extensions"):
        import msgspec  # noqa: F401 - so that it is there


def import_asyncio() -> None:
    """Import asyncio without TLS: no connection leaves this machine, and OpenSSL takes 1.6 MiB."""
    with _hidden("ssl"):
        import asyncio  # noqa: F401 - so that it is there


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Have imports fail of a module that is not imported yet: ``None`` in its place says so."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # as Python's own reference has it
    try:
        yield
    finally:
        del sys.modules[name]
