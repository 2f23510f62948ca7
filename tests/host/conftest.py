"""Fixtures of the tests of ``gpumon.host``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """A file in the place of ``/dev/nvidia0``."""
    path = tmp_path / "nvidia0"
    path.touch()
    return path
