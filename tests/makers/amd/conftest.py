"""Fixtures of the tests of AMD GPUs."""

from __future__ import annotations

import pytest

from gpumon.makers.amd import names
from tests.clock import HandClock


@pytest.fixture
def clock() -> HandClock:
    """A clock that stands until a test moves it."""
    return HandClock()


@pytest.fixture(autouse=True)
def no_table_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out libdrm's table, of which each machine has another version, or none."""
    monkeypatch.setattr(names, "IDS_PATHS", ())
