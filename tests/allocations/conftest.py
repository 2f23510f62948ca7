"""The zone of times in text."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _utc(utc: None) -> None:
    """The zone of the machine where the files were made."""
