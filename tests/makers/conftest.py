"""What all tests of sources share."""

from __future__ import annotations

import pytest

from gpumon.makers.drm import holders
from tests.makers.nvml_room import furnish as furnish  # noqa: PLC0414 - a fixture
from tests.makers.nvml_room import opened as opened  # noqa: PLC0414 - a fixture
from tests.makers.nvml_room import sampled as sampled  # noqa: PLC0414 - a fixture


@pytest.fixture(autouse=True)
def _time_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than gpumon does to look at what holds a GPU."""
    monkeypatch.setattr(holders, "SCAN_SECONDS", 10.0)
