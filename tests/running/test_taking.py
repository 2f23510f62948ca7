"""Between the choice of a card and the command on it somebody may come who uses no gpumon."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from gpumon.choosing.choosing import Chooser
from gpumon.choosing.requirements import Requirements
from gpumon.commands.run import Terms, _Taking
from gpumon.reserving.locks import Locks
from tests.build import GIB, gpu, process, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.choosing.lookout import Lookout
    from gpumon.model import Snapshot

FREE = gpu(memory_used=0, memory_reserved=0)
USED = gpu(memory_used=4 * GIB, memory_reserved=0)


class Looks:
    """Stands for what looks at the cards: these snapshots, one after the other."""

    def __init__(self, *snapshots: Snapshot) -> None:
        self._left = list(snapshots)

    def look(self, patience: float) -> Snapshot:
        assert patience > 0
        return self._left.pop(0)


def test_memory_that_came_meanwhile_is_not_judged_by_a_list_from_before(tmp_path: Path) -> None:
    now = time.time()
    before = snapshot(now - 1, FREE)
    newer = snapshot(now + 5, USED, processes=(process(7, memory_used=4 * GIB),))
    looks = Looks(snapshot(now, USED, processes_at=now - 1), newer)
    locks = Locks(str(tmp_path / "locks"), {})
    asked = Requirements()
    taking = _Taking(cast("Lookout", looks), locks, Terms(asked, ["true"]), None)
    chooser = Chooser(asked, {})
    choice = chooser.choose(chooser.judge(before))
    assert choice is not None
    assert taking._look_again(before, choice) is newer
    locks.close()


def test_a_card_that_somebody_came_to_meanwhile_is_given_back(tmp_path: Path) -> None:
    now = time.time()
    before = snapshot(now - 1, FREE)
    looks = Looks(snapshot(now + 5, USED, processes=(process(7, memory_used=4 * GIB),)))
    locks = Locks(str(tmp_path / "locks"), {})
    taking = _Taking(cast("Lookout", looks), locks, Terms(Requirements(), ["true"]), None)
    outcome = taking._found(before)
    assert outcome is not None
    assert outcome.taken is None
    assert taking._chooser.refusal(outcome.verdicts) == "no card fits; 1 card asked."
    assert locks.holders([FREE.uuid]) == {}
    locks.close()
