"""Notifications by key and by the configuration, without a screen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.alerts.alert import Alert
from gpumon.alerts.channels.terminal import Bell
from gpumon.alerts.notice import Notice
from gpumon.findings import conditions
from gpumon.findings.groups import jobs
from gpumon.model.processes import GpuProcess, Workload
from gpumon.model.snapshot import Gpu, Reserved
from gpumon.recording.history import History
from gpumon.ui.alert_controller import AlertController
from gpumon.ui.session import SessionAlerts
from gpumon.ui.view.dashboard_view import Watched
from tests.build import GIB, NOON, gpu, process, snapshot

BUSY = gpu(memory_used=20 * GIB, utilization_gpu=90)
HOT = Alert(name="heat", when="hot", channels=(Bell(),))


class Machine:
    """A history that grows, and the notices of its controller."""

    def __init__(self, *alerts: Alert) -> None:
        self.history = History(conditions())
        self.time = NOON
        self.delivered: list[tuple[Alert, Notice]] = []
        self.shown: list[tuple[str, int]] = []
        self.said: list[str] = []
        self.changes = 0
        self.controller = AlertController(
            SessionAlerts(alerts),
            self.history,
            lambda alert, notice: self.delivered.append((alert, notice)),
            lambda notice, others: self.shown.append((notice.sentence, others)),
            self._change,
            self.said.append,
        )

    def _change(self) -> None:
        self.changes += 1

    def see(
        self, *cards: Gpu, processes: tuple[GpuProcess, ...] = (), times: int = 1, **fields: object
    ) -> None:
        for _ in range(times):
            self.time += 1
            now = snapshot(self.time, *cards, processes=processes)
            self.history.add(replace(now, **fields))
            self.controller.check()

    @property
    def sentences(self) -> list[str]:
        return [notice.sentence for _, notice in self.delivered]

    @property
    def sentence(self) -> str:
        """The only one; nothing is watched after it."""
        assert self.controller.watched == Watched()
        (sentence,) = self.sentences
        return sentence


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.see(BUSY, processes=(process(),))
    return machine


def test_a_free_gpu_is_reported_once(machine: Machine) -> None:
    assert "when GPU 0 is free" in machine.controller.toggle(BUSY)
    assert machine.controller.watched == Watched(gpus=frozenset({"GPU-0"}))
    machine.see(BUSY, processes=(process(),))
    assert machine.delivered == []
    machine.see(gpu())
    assert "free" in machine.sentence
    assert machine.controller.unread == 1
    machine.see(gpu())
    assert len(machine.delivered) == 1


def test_the_same_key_again_stops_watching(machine: Machine) -> None:
    machine.controller.toggle(BUSY)
    assert machine.controller.toggle(BUSY) == "GPU 0 is no longer watched"
    machine.see(gpu(), times=2)
    assert machine.delivered == []


def test_a_free_gpu_is_not_watched(machine: Machine) -> None:
    machine.see(gpu())
    assert machine.controller.toggle(gpu()) == "GPU 0 is free"
    assert machine.controller.watched == Watched()


@pytest.mark.parametrize(
    ("index", "reserved"),
    [(0, (Reserved("GPU-0", user="bo"),)), (1, ())],
    ids=["reserved", "missing"],
)
def test_a_reserved_or_missing_gpu_is_watched_until_it_is_free(
    index: int, reserved: tuple[Reserved, ...], machine: Machine
) -> None:
    machine.controller.toggle(BUSY)
    machine.see(gpu(index=index), reserved=reserved)
    assert machine.delivered == []
    machine.see(gpu())
    assert len(machine.delivered) == 1


@pytest.mark.parametrize(
    ("held", "left", "others", "said"),
    [
        (20 * GIB, GIB // 2, (), "its 20.0 GiB came back"),
        (20 * GIB, 12 * GIB, (), "12.0 GiB stay in use on GPU 0"),
        # Another process may have taken it.
        (20 * GIB, 19 * GIB, (process(pid=9, memory_used=GIB),), ""),
        (None, GIB // 2, (), ""),
    ],
    ids=["comes back", "stays", "may be another's", "unknown"],
)
def test_the_end_of_a_process_says_how_long_it_ran_and_what_became_of_its_memory(
    held: int | None, left: int, others: tuple[GpuProcess, ...], said: str, machine: Machine
) -> None:
    watched = process(memory_used=held)
    machine.see(BUSY, processes=(watched, *others))
    machine.controller.toggle(watched)
    assert machine.controller.watched.processes == {watched.id}
    machine.see(BUSY, processes=(watched, *others))
    machine.see(gpu(memory_used=left), processes=others, times=3)
    ended, _, memory = machine.sentence.partition("; ")
    assert "has ended after" in ended
    assert memory == said


def ranks_of(count: int) -> tuple[GpuProcess, ...]:
    """The processes of a job."""
    place = Workload(slurm_job="88123")
    ranks = (process(pid=10 + rank, memory_used=5 * GIB) for rank in range(count))
    return tuple(replace(rank, place=place) for rank in ranks)


def test_a_job_is_reported_once_when_its_last_process_has_ended(machine: Machine) -> None:
    ranks = ranks_of(3)
    machine.see(BUSY, processes=ranks)
    (job,) = jobs(ranks)
    assert "will notify when job" in machine.controller.toggle(job)
    assert machine.controller.watched.processes == {rank.id for rank in ranks}
    for left in (ranks[1:], ranks[2:]):
        machine.see(BUSY, processes=left, times=3)
    assert machine.delivered == []
    assert machine.controller.watched.processes == {ranks[2].id}
    machine.see(gpu(), times=3)
    assert machine.sentence.startswith(f"job {job.label} has ended after ")


def test_a_key_on_a_process_of_a_watched_job_cancels_the_job(machine: Machine) -> None:
    ranks = ranks_of(2)
    machine.see(BUSY, processes=ranks)
    machine.controller.toggle(jobs(ranks)[0])
    assert "no longer watched" in machine.controller.toggle(ranks[0])
    machine.see(gpu(), times=3)
    assert machine.delivered == []


def test_a_process_that_has_left_is_not_watched(machine: Machine) -> None:
    machine.see(gpu())
    assert machine.controller.toggle(process()).endswith("is no longer on a GPU")
    assert machine.controller.watched == Watched()


def test_alerts_of_the_configuration_and_keys_work_side_by_side() -> None:
    ends = Alert(name="my jobs", when="ends user:ann", channels=(Bell(),))
    machine = Machine(HOT, ends)
    watched = process(memory_used=20 * GIB)
    machine.see(BUSY, processes=(watched,))
    machine.controller.toggle(watched)
    machine.see(gpu(), times=3)
    assert {alert.name for alert, _ in machine.delivered} == {"my jobs", f"{watched.id.pid} ends"}
    notices = machine.controller.notices
    assert machine.controller.unread == len(notices) == 2
    assert [notice.alert for notice in notices] == [f"{watched.id.pid} ends", "my jobs"]
    assert machine.shown[-1][1] == 1
    changes = machine.changes
    for _ in range(2):
        machine.controller.read()
    assert (machine.controller.unread, machine.changes) == (0, changes + 1)


def test_a_sample_is_checked_once() -> None:
    machine = Machine(HOT)
    machine.see(gpu(), processes=())
    machine.see(gpu(temperature_gpu=91, clock_event_reasons=0x60))
    delivered = len(machine.delivered)
    machine.controller.check()
    assert len(machine.delivered) == delivered == 1
