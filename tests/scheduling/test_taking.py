"""Between the choice of a card and the command on it somebody may come who uses no gpumon."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, cast

from gpumon.scheduling.choose import Chooser
from gpumon.scheduling.locks import Locks
from gpumon.scheduling.requirements import Requirements
from gpumon.scheduling.run import ReservingWait
from gpumon.scheduling.waiting import WaitResult
from gpumon.text.status_line import StatusLine
from tests.build import GIB, gpu, process, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot
    from gpumon.sampling.gpu_sampler import GpuSampler

FREE = gpu(memory_used=0, memory_reserved=0)
USED = gpu(memory_used=4 * GIB, memory_reserved=0)


class Looks:
    """Stands for what looks at the cards: these snapshots, one after the other."""

    def __init__(self, *snapshots: Snapshot) -> None:
        self._left = list(snapshots)

    def sample(self, patience: float) -> Snapshot:
        assert patience > 0
        return self._left.pop(0)


def waiting_of(looks: Looks, locks: Locks) -> ReservingWait:
    chooser = Chooser(Requirements(), os.environ, locks)
    sampler = cast("GpuSampler", looks)
    return ReservingWait(sampler, chooser, locks, "true", None, StatusLine(None))


def test_changed_memory_is_judged_by_a_newer_process_list(tmp_path: Path) -> None:
    now = time.time()
    before = snapshot(now - 1, FREE)
    newer = snapshot(now + 5, FREE)
    looks = Looks(snapshot(now, USED, processes_at=now - 1), newer)
    locks = Locks(str(tmp_path / "locks"), {})
    waiting = waiting_of(looks, locks)
    assert waiting.judge(before) is WaitResult.FOUND
    assert waiting.reserved is not None
    assert waiting.reserved.snapshot is newer
    waiting.reserved.reservation.close()
    locks.close()


def test_a_gpu_that_became_busy_meanwhile_is_released(tmp_path: Path) -> None:
    now = time.time()
    before = snapshot(now - 1, FREE)
    looks = Looks(snapshot(now + 5, USED, processes=(process(7, memory_used=4 * GIB),)))
    locks = Locks(str(tmp_path / "locks"), {})
    waiting = waiting_of(looks, locks)
    assert waiting.judge(before) is WaitResult.NOTHING_FITS
    assert waiting.reserved is None
    assert waiting.refusal == "no GPU fits; 1 GPU requested."
    assert locks.holders([FREE.uuid]) == {}
    locks.close()
