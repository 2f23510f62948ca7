"""A state that a GPU may be in is neither claimed nor denied while a value for it is unknown."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.findings import FindingKind, conditions, gpu_answer, gpu_findings
from gpumon.model.processes import HolderScan
from gpumon.model.snapshot import Gpu, GpuStatus, Snapshot, Unknown
from gpumon.recording.history import History
from tests.build import GIB, NOON, gpu, process, snapshot


def seen(*parts: tuple[Snapshot, int]) -> History:
    """Samples a second apart, each so many times."""
    history = History(conditions())
    for second, sample in enumerate(sample for sample, times in parts for _ in range(times)):
        now = NOON + second
        listed = None if sample.processes_at is None else now
        history.add(replace(sample, time=now, processes_at=listed))
    return history


def of(*gpus: tuple[Gpu, int], listed: bool = True) -> History:
    """A GPU without a process in these states, each for so many seconds."""
    at = NOON if listed else None
    return seen(*((snapshot(NOON, gpu, processes_at=at), times) for gpu, times in gpus))


def answer(history: History, kind: FindingKind) -> bool | None:
    """Whether the GPU is in a state; ``None`` is unknown."""
    assert history.latest is not None
    found = gpu_answer(history, history.latest.gpus[0], kind)
    return found if found is None else bool(found)


BUSY, IDLE, SILENT = gpu(utilization_gpu=50), gpu(utilization_gpu=0), gpu(utilization_gpu=None)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (of((BUSY, 20)), True),
        (of((IDLE, 20)), False),
        (of((SILENT, 20)), None),
        (of((BUSY, 20), (SILENT, 1)), None),
        (of((BUSY, 20), (IDLE, 1)), False),
        (of((BUSY, 20), listed=False), None),
        (of((IDLE, 20), listed=False), None),
    ],
    ids=["busy", "idle", "silent", "silent now", "idle now", "no list", "idle, no list"],
)
def test_whether_a_gpu_is_busy_by_nobody(history: History, expected: bool | None) -> None:
    assert answer(history, FindingKind.BUSY_UNLISTED) is expected


FREE = replace(IDLE, memory_used=0, remapped_rows_failure=False)
UNSURE = replace(FREE, remapped_rows_failure=None)
SILENT_NOW = replace(UNSURE, unknown={"remapped_rows_failure": Unknown.NO_ANSWER})


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (of((FREE, 20)), True),
        (of((UNSURE, 20)), True),
        (of((FREE, 20), (SILENT_NOW, 1)), None),
        (of((FREE, 20), (replace(SILENT_NOW, utilization_gpu=50), 1)), False),
        (of((FREE, 20), (replace(FREE, status=GpuStatus.LOST), 1)), None),
    ],
    ids=["all is known", "it never says", "not now", "in use", "lost"],
)
def test_a_gpu_whose_health_is_unknown_now_is_not_called_free(
    history: History, expected: bool | None
) -> None:
    assert answer(history, FindingKind.FREE) is expected


@pytest.mark.parametrize(("age", "is_said"), [(60.0, False), (60.5, True)])
def test_a_scan_for_holders_is_shown_with_its_age_after_a_minute(
    age: float, *, is_said: bool
) -> None:
    unlisted = gpu(memory_used=40 * GIB)
    history = seen((snapshot(NOON, unlisted, processes=(process(),)), 20))
    assert history.latest is not None
    scan = HolderScan(history.latest.time - age)
    history.add(replace(history.latest, holders=scan))
    (found,) = [
        finding
        for finding in gpu_findings(history, unlisted)
        if finding.kind is FindingKind.UNATTRIBUTED
    ]
    assert any(line.startswith("scanned ") for line in found.evidence) is is_said
