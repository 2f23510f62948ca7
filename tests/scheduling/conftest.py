"""Fixtures of the tests of ``gpumon.scheduling``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.scheduling.lock_folder import shared_folder
from tests.known import known

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpumon.scheduling.lock_folder import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = known(shared_folder(str(tmp_path / "locks")))
    yield made
    made.close()
