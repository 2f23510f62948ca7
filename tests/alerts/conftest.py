"""What the tests of alerts share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _run_by_ann(monkeypatch: pytest.MonkeyPatch) -> None:
    """``user:me`` is ann in every alert."""
    monkeypatch.setattr("gpumon.alerts.filter_languages.own_user", lambda: "ann")
