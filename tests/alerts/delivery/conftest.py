"""What the tests of deliveries share."""

from __future__ import annotations

import pytest

from gpumon.alerts.delivery.apprise import run_apprise
from gpumon.alerts.delivery.command import run_command
from gpumon.alerts.delivery.webhook import post
from tests.screen import PATIENCE


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no failure: every way has more time than usual."""
    for way in (run_apprise, run_command, post):
        monkeypatch.setattr(way, "__defaults__", (PATIENCE,))
