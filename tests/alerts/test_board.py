"""The list of what was told."""

from __future__ import annotations

from gpumon.alerts.board import TOLD_KEPT, Told
from gpumon.alerts.notice import Notice
from gpumon.findings.finding import Severity


def test_the_newest_notices_are_kept_and_come_first() -> None:
    told = Told()
    for number in range(TOLD_KEPT + 5):
        told.add(
            Notice(
                alert="hot",
                key="gpu:GPU-0",
                host="ada-07",
                at=float(number),
                severity=Severity.NOTE,
                title="",
                sentence="",
            )
        )
    assert [notice.at for notice in told.notices] == list(range(TOLD_KEPT + 4, 4, -1))
