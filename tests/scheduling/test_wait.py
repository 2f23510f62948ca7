"""Whether what is waited for has come, and who stands in the way."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.host.handle import wait_for_any
from gpumon.model.processes import ProcessId
from gpumon.model.selection import parse_selection
from gpumon.model.snapshot import Gpu, GpuStatus, ReservationHolder, Snapshot
from gpumon.sampling.gpu_sampler import GpuSampler
from gpumon.scheduling.choose import GAP_SECONDS, Chooser
from gpumon.scheduling.locks import Locks
from gpumon.scheduling.requirements import Requirements
from gpumon.scheduling.run import ReservingWait
from gpumon.scheduling.select import table
from gpumon.scheduling.wait import (
    FASTEST,
    SLOWEST,
    ConditionWait,
    CoolingEstimate,
    gpus_in_use,
    hold,
)
from gpumon.scheduling.waiting import PollInterval, TimeLimit, WaitResult
from gpumon.text.status_line import StatusLine
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known
from tests.screen import PATIENCE


def goal(
    kind: str = "free",
    asked: Requirements | None = None,
    environment: Mapping[str, str] = {},
    locks: Locks | None = None,
) -> ConditionWait:
    """A wait that judges samples, but takes none."""
    sampler = cast("GpuSampler", None)
    more = (environment, locks, None, TimeLimit(math.inf), StatusLine(None))
    return ConditionWait(sampler, kind, asked or Requirements(), *more)


def done(waiting: ConditionWait, seen: Snapshot) -> str:
    """The sentence that the GPUs are there; empty while they are not."""
    result = waiting.judge(seen)
    return "" if result is None else str(waiting.reported(result, verbose=False))


ANY, TWO = Requirements(), Requirements(least=2, most=2)
HELD = gpu(index=1, memory_used=20 * GIB)


@pytest.mark.parametrize(
    ("kind", "asked", "gpus", "told"),
    [
        ("free", ANY, [gpu()], "GPU 0 is free."),
        ("free", ANY, [gpu(status=GpuStatus.LOST)], "GPU 0: it is lost: it fell off the bus"),
        ("free", ANY, [gpu(status=GpuStatus.NO_ANSWER)], "GPU 0: it does not answer"),
        ("free", TWO, [gpu(), HELD], "GPU 1: ann 20.0G for 1d00h"),
        ("free", TWO, [gpu(), gpu(index=1)], "GPU 0, GPU 1 are free."),
        ("cool", ANY, [gpu(temperature_gpu=51)], "GPU 0: 51 °C, at most 50 °C required"),
        ("cool", ANY, [gpu(temperature_gpu=50, utilization_gpu=100)], "GPU 0 is cool."),
        ("cool", Requirements(temperature=60.0), [gpu(temperature_gpu=60)], "GPU 0 is cool."),
        (
            *("cool", Requirements(only=parse_selection("1"))),
            [gpu(temperature_gpu=30), gpu(index=1, temperature_gpu=80)],
            "GPU 1: 80 °C, at most 50 °C required",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_gpus_are_there_or_it_is_said_who_stands_in_the_way(
    kind: str, asked: Requirements, gpus: list[Gpu], told: str
) -> None:
    waiting = goal(kind, asked)
    holder = process(memory_used=20 * GIB, gpus=(1,))
    seen = snapshot(NOON, *gpus, processes=(holder,) if HELD in gpus else ())
    assert (done(waiting, seen) or "\n".join(waiting.holders)) == told


def test_a_busy_gpu_is_reported_with_its_holder() -> None:
    waiting = goal(asked=TWO)
    held = (process(4711, memory_used=20 * GIB, gpus=(1,)),)
    assert done(waiting, snapshot(NOON, gpu(), HELD, processes=held)) == ""
    assert waiting.count == "1 of 2"
    assert waiting.reasons() == ["GPU 1: ann's a process (4711) holds 20.0 GiB"]


def test_the_goal_is_worded_in_singular_or_plural() -> None:
    assert goal().words == "1 free GPU"
    assert goal("idle", Requirements(least=1, most=4)).words == "1 to 4 idle GPUs"
    assert goal(asked=Requirements(least=2, most=2, mig=True)).words == "2 free MIG devices"


def test_an_unknown_condition_is_an_error_and_not_another_condition() -> None:
    with pytest.raises(KeyError):
        goal("warm")


def test_the_holder_of_a_reservation_is_named(tmp_path: Path) -> None:
    mine, theirs = (Locks(str(tmp_path / "locks"), {}) for _ in range(2))
    waiting = goal(locks=mine)
    with closing(mine), closing(theirs):
        with closing(theirs.take(["GPU-0"], "train.py")):
            assert done(waiting, snapshot(time.time(), gpu())) == ""
        assert waiting.holders[0].startswith("GPU 0: reserved by ")
        assert waiting.holders[0].endswith(" for 0s")
        assert done(waiting, snapshot(time.time(), gpu())) == "GPU 0 is free."


def test_the_wait_ends_if_no_gpu_can_ever_qualify() -> None:
    waiting = goal(asked=Requirements(models=("b200",)))
    assert waiting.judge(snapshot(NOON, gpu())) is WaitResult.NOTHING_FITS
    assert waiting.refusal == "no GPU fits; 1 GPU requested. Waiting does not change that."
    assert "not b200" in table(waiting.verdicts)
    two = goal(asked=TWO)
    assert two.judge(snapshot(NOON, gpu())) is WaitResult.NOTHING_FITS


@pytest.mark.parametrize("kind", ["idle", "cool"])
def test_reservations_do_not_matter_for_idle_and_cool(kind: str, tmp_path: Path) -> None:
    held = gpu(
        memory_used=40 * GIB, compute_mode="Exclusive_Process", mig_mode=True, temperature_gpu=40
    )
    environment = {"CUDA_VISIBLE_DEVICES": ""}
    with (
        closing(Locks(str(tmp_path / "locks"), {})) as locks,
        closing(locks.take(["GPU-0"], "train.py")),
    ):
        waiting = goal(kind, Requirements(stable=4.0), environment, locks)
        for second in range(5):
            told = done(waiting, snapshot(NOON + second, held, processes=(process(),)))
    assert told == f"GPU 0 is {kind}."


def test_a_card_is_idle_once_nothing_ran_for_a_minute() -> None:
    waiting = goal("idle")
    left: list[float | None] = []
    for second in range(0, 101, 5):
        busy = 80 if second < 20 else 0
        if done(waiting, snapshot(NOON + second, gpu(utilization_gpu=busy))):
            break
        left.append(waiting.left)
    assert second == 80
    assert left[4] == pytest.approx(60)
    assert left[-1] == pytest.approx(5)
    assert left[0] is None


def test_one_moment_of_work_restarts_the_minute() -> None:
    waiting = goal("idle", Requirements(stable=10.0))
    left = []
    for second, busy in ((0, 0), (5, 0), (7, 1), (9, 0), (14, 0), (16, 0)):
        assert done(waiting, snapshot(NOON + second, gpu(utilization_gpu=busy))) == ""
        left.append(waiting.left)
    assert left == [10, 5, None, 10, 5, 3]
    assert done(waiting, snapshot(NOON + 19, gpu())) == "GPU 0 is idle."


def test_the_time_to_cool_is_estimated_once_there_is_a_trend() -> None:
    waiting = goal("cool")
    left: list[float | None] = []
    for step in range(10):
        waiting.judge(snapshot(NOON + 5 * step, gpu(temperature_gpu=80 - step)))
        left.append(waiting.left)
    assert left[0] is None
    assert left[9] == pytest.approx((71 - 50) * 5, rel=0.05)


def test_the_estimate_for_several_gpus_is_that_of_the_last_needed_one() -> None:
    waiting = goal("cool", TWO)
    for step in range(10):
        cards = gpu(temperature_gpu=70 - step), gpu(index=1, temperature_gpu=80 - step)
        waiting.judge(snapshot(NOON + 5 * step, *cards))
    assert waiting.left == pytest.approx((71 - 50) * 5, rel=0.05)


def test_the_mark_changes_with_the_holders_and_not_with_time() -> None:
    waiting = goal()
    marks = []
    for second, used, pid in ((0, GIB, 1), (9, 2 * GIB, 1), (10, GIB, 2)):
        seen = snapshot(NOON + second, gpu(memory_used=used), processes=(process(pid),))
        waiting.judge(seen)
        marks.append(waiting.mark())
    assert marks[0] == marks[1] != marks[2]


def test_the_gpus_of_a_process_are_described_briefly() -> None:
    seen = snapshot(NOON, gpu(), gpu(index=3), processes=(process(7, gpus=(0, 3)),))
    assert gpus_in_use(seen, 7) == "2 GPUs (0, 3) 2.0G"
    assert gpus_in_use(seen, 8) == ""


# Between the choice of a GPU and the command on it somebody may come who uses no gpumon


FREE = gpu(memory_used=0, memory_reserved=0)
USED = gpu(memory_used=4 * GIB, memory_reserved=0)


class Looks:
    """Stands for what looks at the cards: these snapshots, one after the other."""

    def __init__(self, *snapshots: Snapshot) -> None:
        self._left = list(snapshots)

    def sample(self, patience: float) -> Snapshot:
        assert patience > 0
        return self._left.pop(0)


def judged(
    folder: Path, *later: Snapshot
) -> tuple[WaitResult | None, ReservingWait, dict[str, ReservationHolder]]:
    """What a free GPU, which is then seen so, gives; the wait; who holds it in the end."""
    with closing(Locks(str(folder / "locks"), {})) as locks:
        chooser = Chooser(Requirements(), os.environ, locks)
        sampler = cast("GpuSampler", Looks(*later))
        waiting = ReservingWait(sampler, chooser, locks, "true", None, StatusLine(None))
        result = waiting.judge(snapshot(later[0].time - 1, FREE))
        return result, waiting, locks.holders([FREE.uuid])


def test_changed_memory_is_judged_by_a_newer_process_list(tmp_path: Path) -> None:
    now = time.time()
    newer = snapshot(now + 5, FREE)
    result, waiting, _ = judged(tmp_path, snapshot(now, USED, processes_at=now - 1), newer)
    assert result is WaitResult.FOUND
    with closing(known(waiting.reserved).reservation):
        assert known(waiting.reserved).snapshot is newer


def test_a_gpu_that_became_busy_meanwhile_is_released(tmp_path: Path) -> None:
    busy = snapshot(time.time() + 5, USED, processes=(process(7, memory_used=4 * GIB),))
    result, waiting, holders = judged(tmp_path, busy)
    assert (result, waiting.reserved, holders) == (WaitResult.NOTHING_FITS, None, {})
    assert waiting.refusal == "no GPU fits; 1 GPU requested."


# How often to look, how long it may take, how somebody is told


def test_samples_become_rare_while_nothing_changes_and_frequent_after_a_change() -> None:
    pace = PollInterval(FASTEST, SLOWEST)
    assert pace.after("a")
    seconds = [pace.seconds]
    for _ in range(10):
        assert not pace.after("a")
        seconds.append(pace.seconds)
    assert seconds[0] == FASTEST
    assert seconds == sorted(seconds)
    assert seconds[-1] == SLOWEST
    assert pace.after("b")
    assert pace.seconds == FASTEST


def test_the_slowest_interval_is_short_enough_for_stability() -> None:
    assert SLOWEST < GAP_SECONDS


@pytest.mark.parametrize(
    "celsius",
    [
        [80] * 30,
        [80 + step for step in range(30)],
        [80, 80, 79],
        [80, 60, 80, 60, 80, 61, 79, 60, 78, 59],
        [80, None, 79],
    ],
    ids=["steady", "rising", "too few", "to and fro", "unknown"],
)
def test_without_a_trend_there_is_no_estimate(celsius: list[int | None]) -> None:
    cooling = CoolingEstimate(50.0)
    told = [cooling.left("GPU-0", 2.0 * at, value) for at, value in enumerate(celsius)]
    assert told[-1] is None


@given(st.lists(st.one_of(st.none(), st.integers(20, 110)), max_size=80))
def test_a_cooling_estimate_is_a_time_or_none(celsius: list[int | None]) -> None:
    cooling = CoolingEstimate(50.0)
    for at, value in enumerate(celsius):
        left = cooling.left("GPU-0", float(at), value)
        assert left is None or left >= 0


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


@pytest.fixture(params=[True, False], ids=["pidfd", "no pidfd"])
def _any_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel with file descriptors of processes, or an old one without."""
    if not request.param:
        monkeypatch.delattr(os, "pidfd_open")


@pytest.mark.usefixtures("_any_kernel")
def test_a_process_is_held_until_it_ends(child: subprocess.Popen[bytes]) -> None:
    life = known(hold(child.pid))
    assert not life.ended()
    assert f"({child.pid})" in life.words
    child.send_signal(signal.SIGKILL)
    until = time.monotonic() + PATIENCE
    while not life.ended():
        assert time.monotonic() < until
        wait_for_any([life], 1.0)
    # Not waited for yet, so a zombie: it has ended all the same, and none is taken hold of.
    assert hold(child.pid) is None
    life.close()


@pytest.mark.usefixtures("_any_kernel")
def test_the_number_of_a_thread_means_its_process() -> None:
    go = threading.Event()
    with ThreadPoolExecutor() as pool:
        number = pool.submit(threading.get_native_id).result(PATIENCE)
        waits = pool.submit(go.wait)
        held = known(hold(number))
        go.set()
        waits.result(PATIENCE)
    assert held.id.pid == os.getpid() != number
    assert not held.ended()
    held.close()


def test_the_exit_of_a_process_is_noticed_at_once(child: subprocess.Popen[bytes]) -> None:
    life = known(hold(child.pid))
    child.kill()
    before = time.monotonic()
    wait_for_any([life], PATIENCE)
    assert time.monotonic() - before < PATIENCE / 2
    life.close()


def test_a_reused_pid_means_that_the_process_has_exited(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    life = known(hold(child.pid))
    assert not life.ended()
    life.id = ProcessId(child.pid, known(life.id.start_time) - 1)
    assert life.ended()


def test_a_process_that_does_not_exist_cannot_be_held() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    assert hold(process.pid) is None
    itself = known(hold(os.getpid()))
    itself.close()
