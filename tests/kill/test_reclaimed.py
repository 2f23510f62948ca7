"""When the memory of ended processes counts as come back: each limit at its edge."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.host.process_host import Target
from gpumon.kill.memory_reclaimed import MemoryWatch
from gpumon.kill.outcome import MemoryReclaimed, Outcome
from gpumon.kill.target import TargetState
from gpumon.model.processes import GpuUse, ProcessId
from gpumon.model.snapshot import Snapshot
from tests.build import GIB, NOON, gpu, process, snapshot

USED, HELD, PAGE = 40 * GIB, 30 * GIB, 2 * 2**20
OTHER = process(9, memory_used=9 * GIB)


def signalled(pid: int, memory: int | None = None) -> TargetState:
    """A process that got TERM at noon, with so much memory on GPU 0 or none."""
    uses = () if memory is None else (GpuUse("GPU-0", 0, memory_used=memory),)
    state = TargetState(Target(ProcessId(pid, 1), 1001, uses=uses))
    state.sent(15, 0.0)
    return state


def end(state: TargetState, second: float) -> None:
    state.outcome = Outcome.ENDED
    state.ended_at, state.ended_time = second, NOON + second


def sample(second: float, used: int) -> Snapshot:
    now = NOON + second
    return snapshot(now, gpu(memory_used=used, sampled_at=now), processes=(OTHER,))


class Watch:
    """The memory of GPU 0, after noon."""

    def __init__(self, *states: TargetState) -> None:
        listed = (OTHER, process(1, memory_used=HELD))
        self._watch = MemoryWatch(snapshot(NOON, gpu(memory_used=USED), processes=listed), NOON)
        self._states = states

    def at(self, second: float, newest: Snapshot | None) -> MemoryReclaimed:
        (gpu,) = self._watch.update(newest, self._states, second, NOON + second)
        return gpu


def test_missing_memory_is_waited_for_again_after_another_process_has_ended() -> None:
    run, loader = signalled(1, HELD), signalled(2)
    watch = Watch(run, loader)
    end(run, 1.0)
    watch.at(2.0, sample(2.0, USED - 20 * GIB))
    newest = sample(3.0, USED - 20 * GIB)
    assert watch.at(3.0, newest).settled
    end(loader, 4.0)
    assert not watch.at(4.0, newest).settled
    back = watch.at(5.0, sample(5.0, USED - HELD))
    assert (back.settled, back.returned) == (True, HELD)


@pytest.mark.parametrize(
    ("changed", "seconds", "settled"),
    [(0, 0.5, True), (0, 0.25, False), (PAGE, 0.5, True), (PAGE + 1, 0.5, False)],
)
def test_missing_memory_is_given_up_once_it_no_longer_changes(
    changed: int, seconds: float, *, settled: bool
) -> None:
    run = signalled(1, HELD)
    end(run, 1.0)
    watch = Watch(run)
    assert not watch.at(2.0, sample(2.0, USED)).settled
    assert watch.at(2.0 + seconds, sample(2.0 + seconds, USED - changed)).settled is settled


@pytest.mark.parametrize(("second", "settled"), [(10.75, False), (11.0, True)])
def test_a_gpu_without_a_new_value_is_given_up_ten_seconds_after_the_last_end(
    second: float, *, settled: bool
) -> None:
    run = signalled(1, HELD)
    end(run, 1.0)
    back = Watch(run).at(second, None)
    assert (back.settled, back.now) == (settled, None)


@pytest.mark.parametrize(("sampled", "known"), [(6.0, True), (5.75, False)])
def test_a_value_older_than_five_seconds_is_not_believed_at_the_end(
    sampled: float, *, known: bool
) -> None:
    run = signalled(1, HELD)
    watch = Watch(run)
    newest = sample(sampled, USED)
    watch.at(sampled, newest)
    end(run, 1.0)
    assert watch.at(11.0, newest).now == (USED if known else None)


@pytest.mark.parametrize(
    ("sampled", "listed", "settled"), [(1, 2, False), (2, 1, False), (2, 2, True)]
)
def test_only_what_was_read_after_the_last_end_settles(
    sampled: float, listed: float, *, settled: bool
) -> None:
    run = signalled(1, HELD)
    end(run, 1.0)
    newest = sample(2.0, USED - HELD)
    (card,) = newest.gpus
    newest = replace(
        newest,
        gpus=(replace(card, sampled_at=NOON + sampled),),
        processes_at=NOON + listed,
    )
    assert Watch(run).at(2.0, newest).settled is settled


def test_a_value_from_before_the_signal_is_none_of_now() -> None:
    run = signalled(1, HELD)
    newest = sample(1.0, USED - HELD)
    newest = replace(newest, gpus=(replace(newest.gpus[0], sampled_at=NOON),))
    assert Watch(run).at(1.0, newest).now is None


@pytest.mark.parametrize("memory", [HELD, None])
def test_nothing_settles_while_a_process_with_memory_lives(memory: int | None) -> None:
    run, other = signalled(1, HELD), signalled(2, memory)
    watch = Watch(run, other)
    end(run, 1.0)
    watch.at(2.0, sample(2.0, USED))
    assert watch.at(20.0, sample(20.0, USED)).settled is (memory is None)


@pytest.mark.parametrize("lost", [{"index": 1}, {"memory_used": None}])
def test_a_gpu_that_is_gone_or_says_nothing_has_no_value_now(lost: dict[str, int | None]) -> None:
    run = signalled(1, HELD)
    watch = Watch(run)
    assert watch.at(1.0, sample(1.0, USED - GIB)).now == USED - GIB
    seen = gpu(**{"memory_used": USED, "sampled_at": NOON + 2.0, **lost})
    back = watch.at(2.0, snapshot(NOON + 2.0, seen))
    assert (back.now, back.others) == (None, 0)
