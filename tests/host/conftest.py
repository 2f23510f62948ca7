"""Fixtures of the tests of ``gpumon.host``."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """A file in the place of ``/dev/nvidia0``."""
    path = tmp_path / "nvidia0"
    path.touch()
    return path
