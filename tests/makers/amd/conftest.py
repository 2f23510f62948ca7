"""Fixtures of the tests of AMD GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.makers.amd import names
from gpumon.makers.amd.backend import AmdBackend
from tests.makers.drm.trees import SampledTree


@pytest.fixture
def tree(tmp_path: Path) -> SampledTree:
    """A machine without GPUs."""
    return SampledTree(tmp_path, AmdBackend)


@pytest.fixture(autouse=True)
def no_table_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out libdrm's table, of which each machine has another version, or none."""
    monkeypatch.setattr(names, "IDS_PATHS", ())
