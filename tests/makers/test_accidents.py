"""Accidents in the snapshots of a machine, from its kernel log and from events of its driver."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.model.accidents import ACCIDENT_SECONDS, Accident, AccidentKind
from gpumon.model.processes import CgroupMemory
from gpumon.model.selection import GpuSelection
from gpumon.model.snapshot import Snapshot
from tests.driver import GIB, Owner, h100
from tests.makers.hanging import wait_until
from tests.makers.nvml_room import Furnish, Room, kernel_thread
from tests.makers.test_xids import line


def has_accidents(snapshot: Snapshot) -> bool:
    return bool(snapshot.accidents)


def until(room: Room, true: Callable[[Snapshot], object] = has_accidents) -> Snapshot:
    """Sample until something is so, without time passing for the machine."""
    seen: list[Snapshot] = []

    def is_so() -> object:
        seen[:] = [room.sample(0.0)]
        return true(seen[0])

    wait_until(is_so)
    return seen[0]


@pytest.mark.slow
def test_the_kernel_log_is_in_snapshots_at_its_own_times_for_ten_minutes(furnish: Furnish) -> None:
    room = furnish(h100(), h100())
    card = room.driver.cards[1]
    room.write_log(
        line(card.pci_bus, 31, 100),  # More than ten minutes ago.
        line(card.pci_bus, 31, 700, "pid=1234, name=python, Ch 00000008, intr 0"),
        line(0xEE, 62, 701),  # A GPU that this machine does not have.
        "3,9,800000000,-;Memory cgroup out of memory: Killed process 7 (sh) total-vm:9kB, "
        "anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n",
    )
    room.open()
    snapshot = until(room)
    now = room.clock.time() - 1000  # The hand clock says that it began 1,000 s ago.
    error = (card.uuid, 31, 1234, "python", "00000008", "Ch 00000008, intr 0")
    assert snapshot.accidents == (
        Accident(now + 700, AccidentKind.ERROR_CODE, *error),
        Accident(
            now + 800,
            AccidentKind.OUT_OF_MEMORY,
            pid=7,
            process_name="sh",
            text="Memory cgroup out of memory",
            memory=8192,
        ),
    )
    assert room.sample(1.0).accidents is snapshot.accidents
    later = room.sample(ACCIDENT_SECONDS - 250).accidents
    assert [accident.pid for accident in later] == [7]
    assert room.sample(200.0).accidents == ()


def test_a_new_line_is_an_accident_within_two_seconds(furnish: Furnish) -> None:
    room = furnish(h100())
    bus = room.card.pci_bus
    room.write_log(line(bus, 31, 100))  # More than ten minutes ago.
    room.open()
    assert until(room, lambda snapshot: snapshot.gpus[0].xid == 31).accidents == ()
    began = time.monotonic()
    room.write_log(line(bus, 79, 1000, "GPU has fallen off the bus."))
    until(room)
    assert time.monotonic() - began < 2


def test_an_error_that_only_an_event_reported_is_an_accident_once(furnish: Furnish) -> None:
    room = furnish(h100())
    room.kernel_log.symlink_to("/dev/zero")
    room.open()
    until(room, lambda _: room.calls("nvmlDeviceRegisterEvents") == 1)
    room.card.xid(94)
    (accident,) = until(room).accidents
    assert (accident.kind, accident.number, accident.pid) == (AccidentKind.ERROR_CODE, 94, None)
    assert accident.gpu_uuid == room.card.uuid
    assert room.samples(5).accidents == (accident,)


def test_an_error_that_both_reported_is_an_accident_once(furnish: Furnish) -> None:
    room = furnish(h100())
    room.write_log("")
    room.open()
    until(room, lambda _: room.calls("nvmlDeviceRegisterEvents") == 1)
    room.card.xid(94)
    room.write_log(line(room.card.pci_bus, 94, 1000, "pid=5, name=a, Contained"))
    snapshot = until(room)
    (accident,) = snapshot.accidents
    assert (accident.pid, snapshot.gpus[0].xid) == (5, 94)
    assert room.samples(5).accidents == (accident,)


def test_accidents_of_gpus_that_are_not_selected_are_left_out(furnish: Furnish) -> None:
    room = furnish(h100(), h100())
    first, second = (card.pci_bus for card in room.driver.cards)
    room.write_log(line(first, 79, 900), line(second, 48, 901))
    room.open(GpuSelection(frozenset({1})))
    assert [accident.number for accident in until(room).accidents] == [48]


def test_the_same_lines_read_again_are_the_same_accidents(furnish: Furnish) -> None:
    room = furnish(h100())
    room.write_log(line(room.card.pci_bus, 48, 900))
    source = room.open()
    before = until(room).accidents
    source.close()
    room.write_log(line(room.card.pci_bus, 63, 950))
    room.clock.now += 0.001
    source.open()
    again = until(room, lambda snapshot: 63 in [one.number for one in snapshot.accidents])
    assert again.accidents[:-1] == before


def test_a_flood_leaves_the_newest(furnish: Furnish) -> None:
    room = furnish(h100())
    room.write_log(*(line(room.card.pci_bus, 31, 700 + count / 10) for count in range(2000)))
    room.open()
    newest = pytest.approx(room.clock.time() - 100.1)
    # The log is read bit by bit.
    snapshot = until(room, lambda it: has_accidents(it) and it.accidents[-1].time == newest)
    assert len(snapshot.accidents) == 32


@pytest.fixture
def made_proc(tmp_path: Path) -> Path:
    """A ``/proc`` that says that this process is in the cgroup of a job."""
    proc = tmp_path / "proc"
    proc.mkdir()
    for name in ("self", "stat", "meminfo", "sys"):
        (proc / name).symlink_to(f"/proc/{name}")
    own = proc / str(os.getpid())
    own.mkdir()
    for name in ("stat", "cmdline"):
        (own / name).write_bytes(Path(f"/proc/self/{name}").read_bytes())
    (own / "cgroup").write_text("0::/job_91/step_0\n")
    return proc


@pytest.mark.parametrize("readable", [False, True])
def test_a_counter_of_a_cgroup_is_an_accident_where_the_log_may_not_be_read(
    furnish: Furnish, made_proc: Path, *, readable: bool
) -> None:
    room = furnish(h100(), owners=[Owner(os.getpid(), memory=GIB)])
    if readable:
        room.write_log("")
    else:
        room.kernel_log.symlink_to("/dev/zero")
    job = room.sys / "fs/cgroup/job_91"
    job.mkdir(parents=True)
    (job / "memory.max").write_text("64000\n")
    (job / "memory.current").write_text("62000\n")
    (job / "memory.events").write_text("oom 1\noom_kill 1\n")
    room.open(proc=str(made_proc))
    (process,) = room.samples(3, 2.5).processes
    assert process.cgroup_memory == CgroupMemory("/job_91", 62000, 64000)
    until(room, lambda _: (kernel_thread() is not None) is readable)
    assert room.samples(2, 2.5).accidents == ()
    (job / "memory.events").write_text("oom 2\noom_kill 2\n")
    found = [
        (accident.kind, accident.cgroup, accident.pid, accident.text)
        for accident in room.samples(3, 2.5).accidents
    ]
    counted = (AccidentKind.OUT_OF_MEMORY, "/job_91", None, "oom_kill 1")
    assert found == ([] if readable else [counted])
