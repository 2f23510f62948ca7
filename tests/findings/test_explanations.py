"""Every finding can be explained: what was seen, since when, what else it could be, what to do."""

from __future__ import annotations

import pytest

from gpumon.findings import FindingKind, conditions, explain
from gpumon.recording.history import History
from tests.build import NOON, gpu, process
from tests.findings.test_findings import see

pytestmark = pytest.mark.usefixtures("utc")


def test_an_explanation_says_what_was_seen_and_since_when() -> None:
    history = History(conditions())
    see(history, 5, gpu(utilization_gpu=60), process())
    state = see(history, 120, gpu(), process(memory_used=8 * 2**30))
    told = explain(history, state)
    assert state.since == NOON + 6
    assert (told.since, told.seen) == ("since 12:00, for 2 m", state.evidence)
    assert "notebook" in told.causes[0]


def test_an_explanation_without_a_beginning_says_none() -> None:
    history = History(conditions())
    told = explain(history, see(history, 5, gpu()))
    assert told.finding.kind is FindingKind.FREE
    assert told.since is None
