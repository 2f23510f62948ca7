"""Notifications by key and by the configuration, without a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from gpumon.alerts.alert import Alert
from gpumon.alerts.channels.terminal import Bell
from gpumon.findings import conditions
from gpumon.findings.groups import jobs
from gpumon.model.processes import GpuProcess, Workload
from gpumon.model.snapshot import Gpu, Reserved, Snapshot
from gpumon.recording.history import History
from gpumon.ui.alert_controller import AlertController
from gpumon.ui.session import SessionAlerts
from gpumon.ui.view.dashboard_view import Watched
from tests.build import GIB, NOON, gpu, process, snapshot

if TYPE_CHECKING:
    from gpumon.alerts.notice import Notice

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
        self, *cards: Gpu, processes: tuple[GpuProcess, ...] = (), **fields: object
    ) -> Snapshot:
        self.time += 1
        seen = msgspec.structs.replace(snapshot(self.time, *cards, processes=processes), **fields)
        self.history.add(seen)
        self.controller.check()
        return seen

    @property
    def sentences(self) -> list[str]:
        return [notice.sentence for _, notice in self.delivered]


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
    (sentence,) = machine.sentences
    assert "free" in sentence
    assert machine.controller.watched == Watched()
    assert machine.controller.unread == 1
    machine.see(gpu())
    assert len(machine.delivered) == 1


def test_the_same_key_again_stops_watching(machine: Machine) -> None:
    machine.controller.toggle(BUSY)
    assert machine.controller.toggle(BUSY) == "GPU 0 is no longer watched"
    machine.see(gpu())
    machine.see(gpu())
    assert machine.delivered == []


def test_a_free_gpu_is_not_watched(machine: Machine) -> None:
    machine.see(gpu())
    assert machine.controller.toggle(gpu()) == "GPU 0 is free"
    assert machine.controller.watched == Watched()


def test_a_reserved_gpu_is_not_free(machine: Machine) -> None:
    machine.controller.toggle(BUSY)
    machine.see(gpu(), reserved=(Reserved("GPU-0", user="bo"),))
    assert machine.delivered == []
    machine.see(gpu())
    assert len(machine.delivered) == 1


def test_a_missing_gpu_is_watched_until_it_is_back(machine: Machine) -> None:
    machine.controller.toggle(BUSY)
    machine.see(gpu(index=1))
    assert machine.delivered == []
    machine.see(gpu())
    assert len(machine.delivered) == 1


def run_to_its_end(machine: Machine, after: Gpu, *others: GpuProcess) -> str:
    watched = process(memory_used=20 * GIB)
    machine.see(BUSY, processes=(watched, *others))
    machine.controller.toggle(watched)
    assert machine.controller.watched.processes == {watched.id}
    machine.see(BUSY, processes=(watched, *others))
    for _ in range(3):
        machine.see(after, processes=others)
    (sentence,) = machine.sentences
    assert machine.controller.watched == Watched()
    return sentence


def test_the_end_of_a_process_says_how_long_it_ran_and_that_its_memory_came_back(
    machine: Machine,
) -> None:
    sentence = run_to_its_end(machine, gpu(memory_used=GIB // 2))
    assert "has ended after" in sentence
    assert "; its 20.0 GiB came back" in sentence.replace("19.5", "20.0")


def test_memory_that_stays_in_use_is_named(machine: Machine) -> None:
    sentence = run_to_its_end(machine, gpu(memory_used=12 * GIB))
    assert sentence.endswith("; 12.0 GiB stay in use on GPU 0")


def test_nothing_is_said_of_memory_that_another_process_may_have_taken(machine: Machine) -> None:
    sentence = run_to_its_end(machine, gpu(memory_used=19 * GIB), process(pid=9, memory_used=GIB))
    assert "GiB" not in sentence


def test_nothing_is_said_of_memory_that_is_unknown(machine: Machine) -> None:
    watched = process(memory_used=None)
    machine.see(BUSY, processes=(watched,))
    machine.controller.toggle(watched)
    for _ in range(3):
        machine.see(gpu())
    (sentence,) = machine.sentences
    assert "GiB" not in sentence
    assert "–" not in sentence


def test_a_job_is_reported_once_when_its_last_process_has_ended(machine: Machine) -> None:
    place = Workload(slurm_job="88123")
    ranks = tuple(
        msgspec.structs.replace(process(pid=10 + rank, memory_used=5 * GIB), place=place)
        for rank in range(3)
    )
    machine.see(BUSY, processes=ranks)
    (job,) = jobs(ranks)
    assert "will notify when job" in machine.controller.toggle(job)
    assert machine.controller.watched.processes == {rank.id for rank in ranks}
    for left in (ranks[1:], ranks[2:]):
        for _ in range(3):
            machine.see(BUSY, processes=left)
    assert machine.delivered == []
    assert machine.controller.watched.processes == {ranks[2].id}
    for _ in range(3):
        machine.see(gpu())
    (sentence,) = machine.sentences
    assert sentence.startswith(f"job {job.label} has ended after ")
    assert machine.controller.watched == Watched()


def test_a_key_on_a_process_of_a_watched_job_cancels_the_job(machine: Machine) -> None:
    place = Workload(slurm_job="88123")
    ranks = tuple(msgspec.structs.replace(process(pid=10 + rank), place=place) for rank in range(2))
    machine.see(BUSY, processes=ranks)
    machine.controller.toggle(jobs(ranks)[0])
    assert "no longer watched" in machine.controller.toggle(ranks[0])
    for _ in range(3):
        machine.see(gpu())
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
    for _ in range(3):
        machine.see(gpu())
    assert {alert.name for alert, _ in machine.delivered} == {"my jobs", f"{watched.id.pid} ends"}
    notices = machine.controller.notices
    assert machine.controller.unread == len(notices) == 2
    assert [notice.alert for notice in notices] == [f"{watched.id.pid} ends", "my jobs"]
    assert machine.shown[-1][1] == 1
    changes = machine.changes
    machine.controller.read()
    machine.controller.read()
    assert (machine.controller.unread, machine.changes) == (0, changes + 1)


def test_a_sample_is_checked_once() -> None:
    machine = Machine(HOT)
    machine.see(gpu(), processes=())
    machine.see(gpu(temperature_gpu=91, clock_event_reasons=0x60))
    delivered = len(machine.delivered)
    machine.controller.check()
    assert len(machine.delivered) == delivered == 1
