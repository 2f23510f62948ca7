"""Fixtures of the tests of AMD GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.makers.amd import names
from gpumon.makers.amd.backend import AmdBackend
from tests.makers.drm.trees import SampledTree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tree(tmp_path: Path) -> SampledTree:
    """A machine without GPUs."""
    return SampledTree(tmp_path, AmdBackend)


@pytest.fixture(autouse=True)
def no_table_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out libdrm's table, of which each machine has another version, or none."""
    monkeypatch.setattr(names, "IDS_PATHS", ())
