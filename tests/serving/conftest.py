"""A real inference server, and a simulated GPU on which it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.driver import GIB, Driver, Owner, h100

from .real_server import RealServer, real_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    """A server with ``--metrics``."""
    with real_server(tmp_path) as started:
        yield started


@pytest.fixture
def driver(server: RealServer) -> Iterator[Driver]:
    """A GPU whose only process is the server."""
    with Driver([h100(memory_used=72 * GIB)]) as made:
        made.cards[0].processes = [Owner(server.process.pid, memory=72 * GIB)]
        yield made
