"""Who holds a card that the driver does not list there, and why: on real processes if possible."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpumon.host.holders import HolderScanner
from gpumon.host.procfs import read_table
from gpumon.model.makers import DeviceFiles
from gpumon.model.processes import (
    Container,
    GpuProcess,
    HolderScan,
    HoldReason,
    ProcessId,
    UnlistedHolder,
    Workload,
)
from gpumon.model.snapshot import Gpu, Snapshot, Unknown
from gpumon.system.system import System
from tests import build, lives
from tests.clock import HandClock
from tests.driver import owners
from tests.host import programs
from tests.host.fakes import FakeProc
from tests.host.programs import identity
from tests.known import known
from tests.lives import Family


@pytest.fixture
def clock() -> HandClock:
    return HandClock(now=0.0, epoch=build.NOON)


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    """A folder with what stands for two cards; their minor numbers are not their indices."""
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("nvidia4", "nvidia5", "nvidiactl"):
        (folder / name).touch()
    return folder


@pytest.fixture
def scanner(cards: Path, clock: HandClock) -> HolderScanner:
    return HolderScanner(build.device_files(cards), System(clock=clock))


class Fakes:
    """A ``/proc`` of files with a scanner that is itself process 10, and holders of the GPU."""

    def __init__(self, root: Path, cards: Path, clock: HandClock) -> None:
        self.proc, self._gpu = FakeProc(root), cards / "nvidia4"
        self.proc.add(1, 0, session=0, group=0, name="systemd")
        self.proc.add(10)
        system = System(str(root), clock=clock)
        self.scanner = HolderScanner(build.device_files(cards), system, own_pid=10)

    def hold(self, pid: int, parent: int = 1, **facts: Any) -> ProcessId:
        """Add a process that holds the first GPU."""
        return self.proc.add(pid, parent, files={0: Path("/dev/null"), 7: self._gpu}, **facts)


@pytest.fixture
def fakes(tmp_path: Path, cards: Path, clock: HandClock) -> Fakes:
    return Fakes(tmp_path / "proc", cards, clock)


GPUS = (build.gpu(index=0, minor_number=4), build.gpu(index=1, minor_number=5))


def snapshot(*listed: GpuProcess, gpus: tuple[Gpu, ...] = GPUS, **changes: object) -> Snapshot:
    """Two cards, with these processes listed just now."""
    return build.snapshot(time.time() + 60, *gpus, processes=listed, **changes)  # type: ignore[arg-type]  # keywords pass through


def listed(pid: int, *gpus: int) -> GpuProcess:
    """A process as the driver lists it."""
    return build.process(pid, gpus=gpus or (0,), start_time=identity(pid).start_time)


def scan(scanner: HolderScanner, given: Snapshot | None = None) -> HolderScan:
    return known(scanner.scan(given or snapshot()))


def only(scanner: HolderScanner, given: Snapshot | None = None) -> UnlistedHolder:
    (suspect,) = scan(scanner, given).suspects
    return suspect


def test_a_holder_that_the_driver_does_not_list_is_named(
    scanner: HolderScanner, cards: Path
) -> None:
    with owners(1, ["python", "train.py"], device=str(cards / "nvidia4")) as (owner,):
        found = scan(scanner)
        (suspect,) = found.suspects
        assert suspect.id == identity(owner.pid)
    assert suspect.gpu_uuids == ("GPU-0",)
    assert (suspect.reason, suspect.sentence) == (
        HoldReason.HOLDS,
        "it has the GPU open; the driver does not list it",
    )
    assert (suspect.name, suspect.command) == ("python", ("python", "train.py"))
    assert suspect.uid == os.geteuid()
    assert suspect.state in ("R", "S")
    assert known(suspect.parent).pid == os.getpid()
    assert found.at == build.NOON


def test_who_is_listed_on_the_card_is_no_suspect(scanner: HolderScanner, cards: Path) -> None:
    with owners(1, device=str(cards / "nvidia4")) as (owner,):
        assert scan(scanner, snapshot(listed(owner.pid))).suspects == ()


def test_a_reused_number_in_the_list_names_another(scanner: HolderScanner, cards: Path) -> None:
    with owners(1, device=str(cards / "nvidia4")) as (owner,):
        suspect = only(scanner, snapshot(build.process(owner.pid, start_time=1)))
        assert suspect.id.pid == owner.pid


def test_who_is_listed_on_another_card_is_told_as_such(scanner: HolderScanner, cards: Path) -> None:
    with owners(1, device=str(cards / "nvidia4")) as (owner,):
        suspect = only(scanner, snapshot(listed(owner.pid, 1)))
    assert suspect.gpu_uuids == ("GPU-0",)
    assert suspect.sentence == "it has the GPU open; the driver lists it on GPU 1 only"


def test_one_that_holds_two_cards_is_told_once(family: Family, cards: Path) -> None:
    program = programs.HOLDING + "os.open(sys.argv[2], os.O_RDONLY)\nready(); signal.pause()"
    family.python(program, str(cards / "nvidia5"), str(cards / "nvidia4"))
    assert only(HolderScanner(build.device_files(cards))).gpu_uuids == ("GPU-0", "GPU-1")


NOT_LISTED = build.gpu(index=0, minor_number=4, unknown={"processes": Unknown.NOT_READ})


@pytest.mark.parametrize(
    ("device", "changes"),
    [
        pytest.param("nvidiactl", {}, id="another file of the driver"),
        pytest.param("nvidia7", {}, id="a GPU that is not shown"),
        pytest.param("nvidia4", {"gpus": (NOT_LISTED, GPUS[1])}, id="its processes are not listed"),
        pytest.param("nvidia4", {"processes_at": build.NOON}, id="it is younger than the list"),
    ],
)
def test_who_cannot_be_known_to_be_unlisted_is_no_suspect(
    scanner: HolderScanner, cards: Path, device: str, changes: dict[str, Any]
) -> None:
    (cards / device).touch()
    with owners(1, device=str(cards / device)):
        assert scan(scanner, snapshot(**changes)).suspects == ()


def test_a_device_is_known_by_its_number_under_any_path(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every machine has these, and nobody may make another device.
    monkeypatch.setattr(DeviceFiles, "name_pattern", lambda _: re.compile("/(null|zero)$"))
    folder = tmp_path / "dev"
    folder.mkdir()
    (folder / "nvidia4").symlink_to("/dev/null")
    holder = family.python(programs.HOLDER, "/dev/null")
    other = family.python(programs.HOLDER, "/dev/zero", stderr=subprocess.STDOUT)
    found = [one.id.pid for one in scan(HolderScanner(build.device_files(folder))).suspects]
    assert holder.pid in found
    assert other.pid not in found


def test_gpumon_itself_is_no_suspect(scanner: HolderScanner, cards: Path) -> None:
    with (cards / "nvidia4").open():
        assert scan(scanner).suspects == ()


def test_a_child_that_inherited_the_card_is_told_as_a_child(
    family: Family, scanner: HolderScanner, cards: Path
) -> None:
    parent = family.python(programs.PARENT, str(cards / "nvidia4"))
    name = known(lives.look(parent.pid))
    found = scan(scanner, snapshot(listed(parent.pid)))
    assert [one.id.pid for one in found.suspects] == lives.children(parent.pid)
    assert {one.reason for one in found.suspects} == {HoldReason.CHILD}
    sentence = f"it is a child of {parent.pid} ({name.name}), which the driver lists"
    assert {one.sentence for one in found.suspects} == {sentence}


def test_an_orphan_is_found_by_the_session_it_was_started_in(
    family: Family, scanner: HolderScanner, cards: Path
) -> None:
    reaper = family.python(programs.REAPER, str(cards / "nvidia4"), "systemd")
    (parent,) = lives.children(reaper.pid)
    end_the_parent(reaper)
    suspect = only(scanner)
    assert suspect.reason is HoldReason.ORPHAN
    assert suspect.sentence == (
        f"its parent has ended, and so has {parent}, which led its process group; "
        f"{reaper.pid} (systemd) took it over"
    )
    assert known(suspect.parent).pid == reaper.pid


def test_an_orphan_that_was_seen_with_its_parent_names_it(
    family: Family, scanner: HolderScanner, cards: Path, clock: HandClock
) -> None:
    reaper = family.python(programs.REAPER, str(cards / "nvidia4"), "anything")
    (parent,) = lives.children(reaper.pid)
    assert only(scanner).reason is HoldReason.HOLDS
    end_the_parent(reaper)
    clock.now += 10
    suspect = only(scanner)
    assert suspect.reason is HoldReason.ORPHAN
    took_over = f"{reaper.pid} (anything) took it over"
    assert suspect.sentence == f"its parent {parent} ended just now; {took_over}"
    clock.now += 180
    assert only(scanner).sentence == f"its parent {parent} ended 3m ago; {took_over}"


def test_an_orphan_of_a_listed_process_is_remembered_from_before(
    family: Family, scanner: HolderScanner, cards: Path
) -> None:
    reaper = family.python(programs.REAPER, str(cards / "nvidia4"), "anything")
    (parent,) = lives.children(reaper.pid)
    (orphan,) = lives.children(parent)
    assert scan(scanner, snapshot(listed(orphan))).suspects == ()
    end_the_parent(reaper)
    assert only(scanner).sentence.startswith(f"its parent {parent} ended")


def end_the_parent(reaper: subprocess.Popen[str]) -> None:
    programs.go_on(reaper)
    assert known(reaper.stdout).readline() == "ended\n"


def test_one_whose_main_thread_ended_is_found_by_its_other_thread(
    family: Family, scanner: HolderScanner, cards: Path
) -> None:
    process = family.python(programs.HOLLOW, str(cards / "nvidia4"))
    suspect = only(scanner)
    assert (suspect.id.pid, suspect.state) == (process.pid, "Z")
    assert suspect.reason is HoldReason.LEADER_EXITED
    assert suspect.sentence == "its main thread has ended, but another lives on"
    assert suspect.command[-1] == str(cards / "nvidia4")


def test_one_that_waits_in_the_kernel_says_where_and_for_how_long(
    family: Family, scanner: HolderScanner, cards: Path, clock: HandClock
) -> None:
    pipe = cards / "pipe"
    os.mkfifo(pipe)
    process = family.python(programs.HANGING, str(cards / "nvidia4"), str(pipe))
    before = only(scanner)
    programs.go_on(process)
    programs.until_state(process.pid, "D")
    scan(scanner)
    clock.now += 240
    hanging = {one.id.pid: one for one in scan(scanner).suspects}[process.pid]
    assert (hanging.reason, hanging.state) == (HoldReason.UNINTERRUPTIBLE, "D")
    channel = Path(f"/proc/{process.pid}/wchan").read_text()
    where = f" in {channel}" if channel != "0" else ""
    assert hanging.sentence == (
        f"it waits inside the kernel{where} for at least 4m: no signal reaches it"
    )
    assert hanging.command == before.command != ()


def test_one_that_is_stopped_says_for_how_long(
    family: Family, scanner: HolderScanner, cards: Path, clock: HandClock
) -> None:
    process = family.python(programs.HOLDER, str(cards / "nvidia4"))
    process.send_signal(signal.SIGSTOP)
    programs.until_state(process.pid, "T")
    end = "it ends by SIGKILL only, or once continued"
    assert only(scanner).sentence == f"it is stopped: {end}"
    clock.now += 3600
    suspect = only(scanner)
    assert suspect.reason is HoldReason.STOPPED
    assert suspect.sentence == f"it is stopped for at least 1h00m: {end}"
    process.send_signal(signal.SIGCONT)
    programs.until_state(process.pid, "S")
    process.send_signal(signal.SIGSTOP)
    programs.until_state(process.pid, "T")
    assert only(scanner).sentence == f"it is stopped: {end}"


def test_a_zombie_holds_nothing(scanner: HolderScanner, cards: Path) -> None:
    with owners(1, device=str(cards / "nvidia4")) as (owner,):
        assert only(scanner).id.pid == owner.pid
        owner.kill()
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
        assert scan(scanner).suspects == ()


@lives.needs("unshare")
def test_one_in_another_pid_name_space_is_told_as_such(
    family: Family, scanner: HolderScanner, cards: Path
) -> None:
    isolated = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*isolated, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no name spaces to be had here")
    command = [sys.executable, "-S", "-c", programs.HOLDER, str(cards / "nvidia4")]
    family.start(*isolated, *command)
    suspect = only(scanner)
    assert suspect.reason is HoldReason.OTHER_CONTAINER
    assert suspect.sentence == "it runs in another PID namespace, as in a container"


@pytest.mark.root
def test_a_process_of_another_user_is_named_with_its_owner(
    family: Family, scanner: HolderScanner, cards: Path
) -> None:
    with (cards / "nvidia4").open() as card:
        family.start("sh", "-c", "echo; read line", user=1, pass_fds=[card.fileno()])
    suspect = only(scanner)
    assert (suspect.uid, suspect.user) == (1, "daemon")


AS_ANOTHER = """
import os, pwd, sys
import msgspec
from gpumon.model.makers import DeviceFiles
from gpumon.host.holders import HolderScanner
from gpumon.host.procfs import read_table
from gpumon.model.snapshot import Snapshot
given = msgspec.json.decode(sys.argv[1], type=Snapshot)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
files = DeviceFiles(sys.argv[2] + "/nvidia{minor}", sys.argv[2] + "/nvidia")
print(msgspec.json.encode(HolderScanner(files).scan(given)).decode())
"""


@lives.NEEDS_OTHERS
def test_who_could_not_be_looked_into_is_counted(family: Family) -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # As /dev is.
        card = Path(name, "nvidia4")
        card.touch()
        process = family.python(programs.HOLDER, str(card))
        given = msgspec.json.encode(snapshot()).decode()
        done = subprocess.run(
            [sys.executable, "-c", AS_ANOTHER, given, name], capture_output=True, check=True
        )
    found = msgspec.json.decode(done.stdout, type=HolderScan)
    others = [stat for stat in read_table("/proc").values() if not stat.kernel_thread]
    seen = [suspect.id.pid for suspect in found.suspects]
    assert seen == ([] if os.geteuid() == 0 else [process.pid])
    assert 1 <= found.unseen <= len(others) + 10


def test_where_nobody_can_look_there_is_no_answer(tmp_path: Path, cards: Path) -> None:
    absent, files = str(tmp_path / "absent"), build.device_files(cards)
    assert HolderScanner(files, System(absent)).scan(snapshot()) is None
    assert HolderScanner(build.device_files(absent)).scan(snapshot()) is None
    without_minors = snapshot(gpus=(build.gpu(index=0), build.gpu(index=1)))
    assert HolderScanner(files).scan(without_minors) is None
    assert HolderScanner(files).scan(snapshot(processes_at=None)) is None


@pytest.mark.slow
def test_processes_that_end_meanwhile_raise_nothing(
    family: Family, scanner: HolderScanner, cards: Path
) -> None:
    forking = programs.HOLDING + "ready()\nwhile True:\n"
    forking += "    if os.fork() == 0: os._exit(0)\n    os.wait()\n"
    process = family.python(forking, str(cards / "nvidia4"))
    for _ in range(30):
        assert process.pid in [suspect.id.pid for suspect in scan(scanner).suspects]


SERVICE = "0::/system.slice/trainer.service\n"
SESSION = "12:pids:/\n1:name=systemd:/user.slice/user-1000.slice/session-3.scope\n0::/\n"
TERMINAL = "0::/user.slice/user-1.slice/user@1.service/app.slice/vte-spawn-1.scope/sub\n"
"""Cgroups of a service, of a login under version 1, and of a terminal of the desktop."""


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"session": 50, "group": 50}, "so has 50, which led its process group; init took it over"),
        ({"session": 50, "group": 100}, "its parent has ended; init took it over"),
        ({"cgroup": SESSION}, "its parent has ended; init took it over"),
        ({"cgroup": SESSION, "state": "D"}, "init took it over; it waits inside the kernel: no"),
        (
            {"session": 0, "group": 50},
            "50, which led its process group, has ended; its parent is i",
        ),
        ({"cgroup": TERMINAL, "parent": 20}, "its parent has ended; 20 (systemd) took it over"),
        ({"session": 50, "parent": 30}, "its parent has ended; 30 (tini) took it over"),
    ],
)
def test_an_orphan_is_known_by_what_its_parent_cannot_be(
    fakes: Fakes, facts: dict[str, Any], sentence: str
) -> None:
    fakes.proc.add(20, name="systemd")
    fakes.proc.add(30, name="tini", status="Name:\ttini\nNSpid:\t30\t1\nNSpgid:\t30\t1\n")
    fakes.hold(100, **facts)
    suspect = only(fakes.scanner)
    assert suspect.reason is HoldReason.ORPHAN
    assert sentence in suspect.sentence


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"cgroup": SERVICE},
        {"cgroup": "0::/\n"},
        {"session": 0, "group": 0},
        {"session": 20, "group": 100, "parent": 20, "cgroup": SESSION},
        {"session": 50, "group": 50, "parent": 30},
        {"session": 0, "group": 0, "parent": 40},
        {"session": 0, "group": 20},
        # What only speaks of a monitor is none.
        {"name": "python3", "command": b"python3\0train.py\0nvitop\0"},
        {"name": "nvidia-cuda-mps", "command": b"nvidia-cuda-mps-server\0"},
        {"name": "bash", "command": b"bash\0nvtop\0"},
    ],
)
def test_nobody_is_called_an_orphan_or_a_monitor_without_a_reason(
    fakes: Fakes, facts: dict[str, Any]
) -> None:
    fakes.proc.add(20, name="bash")
    fakes.proc.add(30, name="ssh-agent", session=20)
    fakes.proc.add(40, name="systemd")
    fakes.hold(100, **facts)
    assert only(fakes.scanner).reason is HoldReason.HOLDS


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("nvidia-smi", b"nvidia-smi\0dmon\0"),
        ("nvidia-persiste", b"/usr/bin/nvidia-persistenced\0--user\0x\0"),
        ("nv-hostengine", b""),
        ("dcgm-exporter", b"/usr/bin/dcgm-exporter\0"),
        ("nvidia_gpu_expo", b"/opt/nvidia_gpu_exporter\0"),
        ("python3", b"/venv/bin/python3\0/venv/bin/nvitop\0-m\0full\0"),
        ("python3", b"python3.12\0-u\0-m\0gpustat\0"),
        ("Xorg", b"/usr/lib/xorg/Xorg\0:0\0"),
    ],
)
def test_a_monitor_is_told_as_one_even_where_it_was_left_by_its_parent(
    fakes: Fakes, name: str, command: bytes
) -> None:
    fakes.hold(100, session=50, group=50, name=name, command=command)
    suspect = only(fakes.scanner)
    assert suspect.reason is HoldReason.OBSERVER
    assert suspect.sentence == "by its name it is a monitor or a service of the machine"


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        pytest.param(
            {"name": "nvidia-smi", "state": "D", "wait_channel": "rm_ioctl"},
            "it waits inside the kernel in rm_ioctl: no signal reaches it",
            id="a monitor that hangs",
        ),
        pytest.param(
            {"state": "D", "flags": 0x4, "wait_channel": "nvidia_close"},
            "it is ending and waits inside the kernel in nvidia_close: no signal reaches it",
            id="hangs while it ends",
        ),
        pytest.param({"state": "t"}, "it is stopped by a debugger", id="stopped by a debugger"),
    ],
)
def test_a_state_is_said(fakes: Fakes, facts: dict[str, Any], sentence: str) -> None:
    fakes.hold(100, **facts)
    assert only(fakes.scanner).sentence == sentence


def test_a_thread_that_keeps_a_process_from_ending_is_named(fakes: Fakes) -> None:
    fakes.hold(100, state="Z", threads=3)
    fakes.proc.add_thread(100, 101, state="S")
    fakes.proc.add_thread(100, 102, state="D", wait_channel="nvidia_close")
    assert only(fakes.scanner).sentence == (
        "its main thread has ended, but 2 others live on; "
        "thread 102 waits inside the kernel in nvidia_close"
    )


def test_a_container_is_named_where_its_cgroup_tells(fakes: Fakes) -> None:
    fakes.hold(100, 20, cgroup=f"0::/system.slice/docker-{'ab' * 32}.scope\n", namespace=7)
    suspect = only(fakes.scanner)
    assert suspect.reason is HoldReason.OTHER_CONTAINER
    assert suspect.sentence == "it runs in docker abababababab"
    assert suspect.place == Workload(container=Container("docker", "ab" * 32))
    assert suspect.started_at is not None


def test_a_descendant_of_a_listed_process_is_told_through_the_generations(fakes: Fakes) -> None:
    trainer = fakes.hold(100, 20, name="train\x1b[2J")
    fakes.proc.add(200, 100)
    fakes.hold(300, 200)
    given = snapshot(build.process(100, gpus=(1,), start_time=trainer.start_time))
    assert [one.sentence for one in scan(fakes.scanner, given).suspects] == [
        "it descends from 100 (train\N{REPLACEMENT CHARACTER}[2J), which the driver lists",
        "it has the GPU open; the driver lists it on GPU 1 only",
    ]


def test_the_most_suspect_come_first_and_monitors_last(fakes: Fakes) -> None:
    fakes.hold(100, name="nvtop")
    fakes.hold(101)
    fakes.hold(102, state="T")
    fakes.hold(103, state="D")
    fakes.hold(104, session=50)
    fakes.hold(106, 101)
    fakes.hold(107, namespace=7)
    found = scan(fakes.scanner, snapshot(build.process(101, start_time=101)))
    assert [one.id.pid for one in found.suspects] == [104, 103, 102, 107, 106, 100]


def test_a_number_that_may_mean_another_process_is_said(fakes: Fakes) -> None:
    fakes.hold(100)
    foreign = build.process(4711, start_time=None, visible=False)
    given = snapshot(foreign, pids_are_ours=False)
    doubt = "; the driver may list it under its number in another PID namespace"
    assert only(fakes.scanner, given).sentence.endswith(doubt)
    assert not only(fakes.scanner, snapshot(foreign)).sentence.endswith(doubt)


def test_who_lets_go_of_the_card_is_forgotten(fakes: Fakes) -> None:
    fakes.hold(100, 20)
    assert only(fakes.scanner).reason is HoldReason.HOLDS
    fakes.proc.remove(100)
    assert scan(fakes.scanner) == HolderScan(build.NOON, (), unseen=0)
    fakes.hold(100, 30)
    assert only(fakes.scanner).reason is HoldReason.HOLDS


def test_another_file_of_the_same_name_is_no_card(fakes: Fakes, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "nvidia4").touch()
    fakes.proc.add(100, files={3: other / "nvidia4"})
    assert scan(fakes.scanner).suspects == ()
