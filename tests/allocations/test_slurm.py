"""Which questions Slurm is asked, and what is concluded from the answers."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.allocations import Allocations
from gpumon.allocations.programs import Printed
from gpumon.allocations.slurm import SlurmAllocations
from gpumon.allocations.slurm_node import SlurmNode
from gpumon.model.allocations import Allocation
from gpumon.model.processes import Workload
from gpumon.model.snapshot import Snapshot
from tests.build import gpu, process, snapshot
from tests.clock import HandClock
from tests.known import known

FOUR = snapshot(0.0, *(gpu(index=index, minor_number=index) for index in range(4)))
NO_SUCH_JOB = Printed(b"", b"slurm_load_jobs error: Invalid job id specified", 1)


def job_text(number: str, gres: str, state: str = "RUNNING") -> bytes:
    return f"""\
JobId={number} JobName=train
   UserId=ann(1001) GroupId=ann(1001) MCS_label=N/A
   JobState={state} Reason=None Dependency=(null)
   RunTime=00:40:00 TimeLimit=1-00:00:00 TimeMin=N/A
   StartTime=2026-09-01T10:00:00 EndTime=2026-09-02T10:00:00 Deadline=N/A
   NodeList=n1
   TRES=cpu=1,node=1,billing=1
   JOB_GRES={gres.partition("(")[0]}
     Nodes=n1 CPU_IDs=0 Mem=0 GRES={gres}
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
""".encode()


class Unreadable(SlurmNode):
    """Files of Slurm that only root may read."""

    def jobs(self) -> None:
        return None


class Machine:
    """A machine of a cluster: its files, and what ``scontrol`` answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = HandClock()
        self.asked: list[tuple[str, ...]] = []
        self.jobs: dict[str, bytes] = {}
        self.in_use = "gpu:0(IDX:N/A)"
        self.is_down = False
        self.configure("PrologFlags=Contain")
        (folder / "gres.conf").write_text("Name=gpu File=/dev/nvidia[0-3]\n")
        (folder / "spool").mkdir()
        self.slurm = SlurmAllocations(
            self.clock, lambda: SlurmNode(str(folder / "slurm.conf")), self.ask
        )

    def configure(self, line: str) -> None:
        (self.folder / "slurm.conf").write_text(
            f"SlurmdSpoolDir={self.folder}/spool\nNodeName=n1 "
            f"NodeHostname={socket.gethostname().partition('.')[0]}\n{line}\n"
        )

    def begin(self, number: str, gres: str | None = None) -> None:
        """A step of a job begins; the job is private without its GPUs."""
        with socket.socket(socket.AF_UNIX) as step:
            step.bind(str(self._step(number)))
        if gres is not None:
            self.jobs[number] = job_text(number, gres)

    def end(self, number: str) -> None:
        self._step(number).unlink()

    def _step(self, number: str) -> Path:
        return self.folder / "spool" / f"n1_{number}.4294967291"

    def ask(self, arguments: Sequence[str], patience: float) -> Printed | None:
        assert patience > 0
        self.asked.append(tuple(arguments))
        if self.is_down:
            return None
        if arguments[0] == "--json":
            return Printed(b"", b"scontrol: unrecognized option '--json'", 1)
        if arguments[:2] == ("show", "node"):
            return Printed(f"NodeName=n1 Arch=x86_64\n   GresUsed={self.in_use}\n".encode())
        told = self.jobs.get(arguments[-1])
        return NO_SUCH_JOB if told is None else Printed(told)

    def look(self, seconds: float = 6.0, seen: Snapshot = FOUR) -> tuple[Allocation, ...]:
        self.clock.now += seconds
        return Allocations({"slurm": lambda: self.slurm}, self.clock).settle(seen, 5.0)

    def questions(self) -> list[tuple[str, ...]]:
        """The questions since the last call."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("n"))


def test_nothing_is_known_before_the_first_look(machine: Machine) -> None:
    unknown = Allocations({"slurm": lambda: machine.slurm}).unknown
    assert unknown == (Allocation("slurm", unplaced=None),)
    assert machine.look() == ()
    assert machine.questions() == []


def test_a_job_is_asked_once_and_again_every_two_minutes(machine: Machine) -> None:
    machine.begin("88123", "gpu:h100:2(IDX:0,3)")
    (found,) = machine.look()
    assert (found.job, found.user, found.unplaced) == ("88123", "ann", 0)
    assert found.devices == (FOUR.gpus[0].uuid, FOUR.gpus[3].uuid)
    assert known(found.until) - known(found.since) == 86400
    # The first is in JSON, which an old version does not know.
    assert len(machine.questions()) == 2
    for _ in range(18):
        assert machine.look() == (found,)
    assert machine.questions() == []
    machine.look(15.0)
    assert machine.questions() == [("show", "job", "-d", "88123")]


def test_a_job_without_gpus_is_not_asked_again(machine: Machine) -> None:
    machine.begin("5", "(null)")
    machine.jobs["5"] = job_text("5", "").replace(b"JOB_GRES=", b"OverSubscribe=")
    assert machine.look() == ()
    machine.questions()
    assert machine.look(1000.0) == ()
    assert machine.questions() == []


def test_a_job_that_ended_holds_nothing_at_once(machine: Machine) -> None:
    machine.begin("7", "gpu:1(IDX:1)")
    assert len(machine.look()) == 1
    machine.end("7")
    machine.questions()
    assert machine.look() == ()
    assert machine.questions() == []


def test_between_two_steps_a_job_keeps_its_gpus(machine: Machine) -> None:
    machine.configure("")
    machine.in_use = "gpu:h100:1(IDX:1)"
    machine.begin("7", "gpu:1(IDX:1)")
    before = machine.look()
    assert len(before) == 1
    machine.end("7")
    assert machine.look() == before
    machine.jobs["7"] = job_text("7", "", "COMPLETED")
    machine.in_use = "gpu:h100:0(IDX:N/A)"
    assert machine.look(16.0) == ()


def test_what_a_private_job_has_is_what_the_node_uses_beside_the_others(machine: Machine) -> None:
    machine.begin("7", "gpu:1(IDX:1)")
    machine.begin("8")
    machine.in_use = "gpu:h100:3(IDX:0-1,3)"
    known, private = machine.look()
    assert known.job == "7"
    assert private == Allocation("slurm", "8", None, (FOUR.gpus[0].uuid, FOUR.gpus[3].uuid))


@pytest.mark.parametrize(
    ("in_use", "devices"),
    [("gpu:h100:1(IDX:2)", (FOUR.gpus[2].uuid,)), pytest.param("gpu(CNT:1)", (), id="how many")],
)
def test_a_new_job_hides_nothing_of_those_without_a_step(
    machine: Machine, in_use: str, devices: tuple[str, ...]
) -> None:
    machine.configure("")
    machine.in_use = in_use
    (unknown,) = machine.look()
    assert (unknown.devices, unknown.unplaced) == (devices, 1 - len(devices))
    machine.begin("7", "gpu:1(IDX:1)")
    known, same = machine.look()
    assert (known.job, same) == ("7", unknown)


def test_one_lost_answer_does_not_end_a_job(machine: Machine) -> None:
    machine.begin("7", "gpu:1(IDX:1)")
    before = machine.look()
    told = machine.jobs.pop("7")
    assert machine.look(121.0) == before
    machine.jobs["7"] = told
    assert machine.look(121.0) == before


def test_where_the_jobs_here_cannot_be_read_the_node_is_asked(machine: Machine) -> None:
    machine.slurm = SlurmAllocations(
        machine.clock, lambda: Unreadable(str(machine.folder / "slurm.conf")), machine.ask
    )
    machine.in_use = "gpu:h100:1(IDX:2)"
    assert machine.look() == (Allocation("slurm", devices=(FOUR.gpus[2].uuid,)),)
    machine.in_use = "gpu:h100:0(IDX:N/A)"
    assert machine.look(61.0) == ()
    assert (machine.folder / "spool").exists()


def test_a_job_without_a_step_is_found_by_what_the_node_has_in_use(machine: Machine) -> None:
    machine.configure("")
    machine.in_use = "gpu:h100:1(IDX:2)"
    assert machine.look() == (Allocation("slurm", devices=(FOUR.gpus[2].uuid,)),)
    assert machine.questions() == [("show", "node", "-d", "n1")]
    machine.look(200.0)
    assert machine.questions() == []
    machine.in_use = "gpu:h100:0(IDX:N/A)"
    assert machine.look(101.0) == ()


def test_a_controller_that_is_down_is_asked_less_and_less(machine: Machine) -> None:
    machine.begin("7", "gpu:1(IDX:1)")
    machine.is_down = True
    times = []
    for _ in range(600):
        found = machine.look(1.0)
        assert found == (Allocation("slurm", "7", unplaced=None),)
        times += [machine.clock.now] * len(machine.questions())
    pauses = [round(later - earlier) for earlier, later in pairwise(times)]
    assert pauses == [10, 20, 40, 80, 160]
    machine.is_down = False
    assert machine.look(400.0)[0].devices == (FOUR.gpus[1].uuid,)


def test_a_known_job_stays_known_while_the_controller_is_down(machine: Machine) -> None:
    machine.begin("7", "gpu:1(IDX:1)")
    before = machine.look()
    machine.is_down = True
    assert machine.look(1000.0) == before


def test_many_jobs_are_asked_slowly(machine: Machine) -> None:
    for number in range(100, 140):
        machine.begin(str(number), "gpu:1(IDX:1)")
    found, pause = machine.slurm.find(FOUR, 5.0)
    for _ in range(15):
        assert pause == 0
        found, pause = machine.slurm.find(FOUR, 5.0)
    assert pause == 0.5
    assert sum(each.unplaced is None for each in found) > 20


@pytest.mark.parametrize(
    ("lines", "minors", "devices"),
    [
        ("Name=gpu File=/dev/nvidia2\nName=gpu File=/dev/nvidia[0-1,3]", (0, 1, 2, 3), (2, 0)),
        ("NodeName=n2 Name=gpu File=/dev/nvidia9\nName=gpu File=/dev/nvidia[0-3]",
         (3, 2, 1, 0), (3, 2)),
        ("AutoDetect=nvml", (3, 2, 1, 0), (0, 1)),
        ("AutoDetect=nvidia", (0, 1, 2, 3), (0, 1)),
        # The order is not known, but all orders are the same.
        ("Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia1", (0, 1, 2, 3), (0, 1)),
        ("AutoDetect=nvidia", (3, 2, 1, 0), None),
        ("AutoDetect=nvml\nName=gpu File=/dev/nvidia[0-3]", (3, 2, 1, 0), None),
        ("Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia1", (3, 2, 1, 0), None),
        ("Name=gpu Count=4", (3, 2, 1, 0), None),
        ("", (3, 2, 1, 0), None),
    ],
)  # fmt: skip
def test_a_place_becomes_a_gpu_only_where_that_is_certain(
    machine: Machine, lines: str, minors: tuple[int, ...], devices: tuple[int, ...] | None
) -> None:
    (machine.folder / "gres.conf").write_text(lines)
    machine.begin("7", "gpu:2(IDX:0-1)")
    seen = snapshot(0.0, *(gpu(index=i, minor_number=minors[i]) for i in range(4)))
    (found,) = machine.look(seen=seen)
    if devices is None:
        assert (found.devices, found.unplaced) == ((), 2)
    else:
        assert found.devices == tuple(seen.gpus[minor].uuid for minor in devices)
        assert found.unplaced == 0


def test_a_gpu_without_its_device_file_makes_the_places_uncertain(machine: Machine) -> None:
    machine.begin("7", "gpu:1(IDX:1)")
    seen = snapshot(0.0, gpu(index=0, minor_number=0), gpu(index=1, minor_number=None))
    (found,) = machine.look(seen=seen)
    assert (found.devices, found.unplaced) == ((), 1)


def test_a_gpu_that_is_not_shown_makes_no_other_one_uncertain(machine: Machine) -> None:
    machine.configure("")
    machine.in_use = "gpu:h100:2(IDX:2-3)"
    machine.begin("7", "gpu:1(IDX:3)")
    seen = snapshot(0.0, gpu(index=0, minor_number=0))
    assert [(each.devices, each.unplaced) for each in machine.look(seen=seen)] == [((), 0), ((), 0)]


def test_a_process_of_the_job_shows_one_of_its_gpus(machine: Machine) -> None:
    (machine.folder / "gres.conf").unlink()
    machine.begin("7", "gpu:2(IDX:0-1)")
    seen = snapshot(
        0.0,
        *(gpu(index=i, minor_number=3 - i) for i in range(4)),
        processes=(replace(process(), place=Workload(slurm_job="7")),),
    )
    (found,) = machine.look(seen=seen)
    assert (found.devices, found.unplaced) == ((seen.processes[0].uses[0].gpu_uuid,), 1)


def test_a_machine_without_slurmd_has_no_jobs(machine: Machine) -> None:
    (machine.folder / "spool").rmdir()
    machine.configure("")
    machine.is_down = True
    assert machine.look() == ()
    assert machine.questions() == []
