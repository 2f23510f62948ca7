"""A machine for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.doctor import access
from tests.doctor.trees import Tree
from tests.makers.nvml_room import join_watchers


@pytest.fixture(autouse=True)
def _nobody_waits_for_errors_any_more() -> Iterator[None]:
    """A simulated driver that still has a client is the one that the next client gets."""
    yield
    join_watchers()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A healthy machine with one card."""
    return Tree(tmp_path)


@pytest.fixture
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is no container, which its files cannot say."""
    monkeypatch.setattr(access, "in_initial_pid_namespace", lambda _: True)
