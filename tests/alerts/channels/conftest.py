"""What the tests of channels share."""

from __future__ import annotations

import pytest

from gpumon.alerts.alert import CHANNELS
from tests.screen import PATIENCE


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no failure: every channel has more time than usual."""
    for channel in CHANNELS.values():
        if hasattr(channel, "seconds"):
            monkeypatch.setattr(channel, "seconds", PATIENCE)
