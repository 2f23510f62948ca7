"""What the reader of workloads promises: on real processes, and on a fake /proc."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from gpumon.host import workloads
from gpumon.host.procfs import ProcessFiles, Stat, stat_of
from gpumon.host.workloads import WorkloadReader
from gpumon.model.processes import Container, GpuProcess, ProcessId, Workload
from tests import lives
from tests.absent import ABSENT
from tests.build import process
from tests.host import test_tmux
from tests.host.fakes import FakeWorkloads
from tests.host.programs import identity, until_state
from tests.known import known

NEEDS_TMUX = lives.needs("tmux")

ID = "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"
POD = "2c48913c-b29f-11e7-9350-020968147796"
KERNEL = "af54e26b-6b24-4dfb-ab99-ec125513e605"

SERVANT = """
import json, os, subprocess, sys
commands = json.loads(os.environ["COMMANDS"])
if commands:
    rest = {**os.environ, "COMMANDS": json.dumps(commands[1:])}
    child = subprocess.Popen(commands[0], env=rest)
    sys.stdin.read()
    child.wait()
else:
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""
"""Starts the first of the commands, which starts the next; the last says its number."""


class Line:
    """Real processes, each the child of the one before, that run Python under given commands."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._first: subprocess.Popen[str] | None = None

    def python(self, path: str = "python") -> str:
        """A Python at this path, lest that of the tests lies in an environment with a name."""
        program = self._folder / path
        program.parent.mkdir(parents=True, exist_ok=True)
        program.symlink_to(os.path.realpath(sys.executable))
        return str(program)

    def script(self, path: str) -> str:
        """What each of the line runs, at this path."""
        script = self._folder / path
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(SERVANT)
        return str(script)

    def start(self, *commands: list[str], **environ: str) -> GpuProcess:
        """Start them and return the last. Nothing of our own environment is handed down."""
        first, *others = commands
        self._first = subprocess.Popen(
            first,
            env={"COMMANDS": json.dumps(others), "PYTHONPATH": str(self._folder), **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return seen(int(known(self._first.stdout).readline()))

    @property
    def first(self) -> ProcessId:
        return seen(known(self._first).pid).id

    def end(self) -> None:
        if self._first is not None:
            self._first.communicate()  # they all end when nobody speaks to them any more
            self._first = None


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    line = Line(tmp_path)
    yield line
    line.end()


def seen(pid: int) -> GpuProcess:
    return process(pid, start_time=identity(pid).start_time)


def name_of(pid: int) -> str | None:
    stat = stat_of("/proc", pid)
    return None if stat is None else stat.name


def place_of(one: GpuProcess, reader: WorkloadReader | None = None) -> Workload:
    return (reader or WorkloadReader()).read([one])[one.id]


@pytest.fixture
def fake(tmp_path: Path) -> FakeWorkloads:
    return FakeWorkloads(tmp_path)


def test_a_process_has_its_parent_and_session(line: Line) -> None:
    place = place_of(line.start([line.python(), line.script("train.py")]))
    # In a container, the session may be one from outside, which has no number here.
    assert place == Workload(parent=seen(os.getpid()).id, session=os.getsid(0) or None)


def test_the_environment_of_a_real_process_is_told(line: Line) -> None:
    one = line.start(
        [line.python(), line.script("train.py")],
        VIRTUAL_ENV="/home/ann/llama/.venv",
        SLURM_JOB_ID="88127",
        SLURM_ARRAY_JOB_ID="88123",
        SLURM_ARRAY_TASK_ID="4",
        SLURM_STEP_ID="4294967291",
        JPY_SESSION_NAME="/home/ann/fine tune.ipynb",
    )
    assert place_of(one).labels == ("slurm 88123_4.batch", "jupyter fine tune.ipynb", "env llama")


def test_the_interpreters_own_path_tells_the_environment(line: Line) -> None:
    one = line.start(
        [line.python("llama/.venv/bin/python"), line.script("train.py")], CONDA_DEFAULT_ENV="base"
    )
    assert place_of(one).environment == "llama"


def test_what_a_notebook_started_belongs_to_its_kernel(line: Line) -> None:
    python = line.python()
    line.script("ipykernel_launcher.py")
    one = line.start(
        [python, "-m", "ipykernel_launcher", "-f", f"/run/kernel-{KERNEL}.json"],
        [python, line.script("train.py")],
        JPY_SESSION_NAME="work/ft.ipynb",
    )
    place = place_of(one)
    assert (place.jupyter_kernel, place.notebook) == (KERNEL, "work/ft.ipynb")
    assert place.labels == ("jupyter ft.ipynb",)
    kernel = place_of(seen(line.first.pid))
    assert (kernel.jupyter_kernel, kernel.notebook) == (KERNEL, "work/ft.ipynb")


def test_the_outermost_launcher_is_told(line: Line) -> None:
    python = line.python()
    one = line.start(
        [python, line.script("bin/mpirun"), "-np", "1"],
        [python, line.script("bin/torchrun"), "train.py"],
        [python, line.script("train.py")],
    )
    place = place_of(one)
    assert (place.launcher, place.launcher_name) == (line.first, "mpirun")
    middle = place_of(seen(known(place.parent).pid))
    assert (middle.launcher, middle.launcher_name) == (line.first, "mpirun")


def test_a_launcher_that_holds_a_card_is_its_own(line: Line) -> None:
    one = line.start([line.python(), line.script("bin/torchrun")])
    assert place_of(one).launcher == one.id


def test_an_exec_is_noticed() -> None:
    program = "echo ready; read x; VIRTUAL_ENV=/p/after/.venv exec cat"
    environ = {"VIRTUAL_ENV": "/p/before/.venv", "PATH": os.environ["PATH"]}
    reader = WorkloadReader()
    with subprocess.Popen(
        ["/bin/sh", "-c", program], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"ready\n"
        one = seen(shell.pid)
        assert place_of(one, reader).environment == "before"
        shell.stdin.write(b"go\nhere\n")
        shell.stdin.flush()
        assert shell.stdout.readline() == b"here\n"  # cat runs
        assert place_of(one, reader).environment == "after"


def test_a_process_whose_main_thread_exited_is_told_too(line: Line) -> None:
    hollow = (
        "import ctypes, os, sys, threading; threading.Thread(target=sys.stdin.read).start(); "
        "print(os.getpid(), flush=True); ctypes.CDLL(None).pthread_exit(None)"
    )
    one = line.start([line.python(), "-c", hollow], VIRTUAL_ENV="/p/llama/.venv")
    until_state(one.id.pid, "Z")
    assert place_of(one).environment == "llama"


def test_a_process_that_ended_is_left_out(line: Line) -> None:
    one = line.start([line.python(), line.script("train.py")])
    reader = WorkloadReader()
    assert one.id in reader.read([one])
    line.end()
    assert reader.read([one]) == {}


@pytest.fixture
def tmux() -> Iterator[Callable[..., str]]:
    """Asks a real tmux of its own, with one session, ``träin``, which runs ``cat``."""
    folder = tempfile.mkdtemp(prefix="gm")

    ask = partial(test_tmux.ask, Path(folder, "s"))
    ask("new-session", "-d", "-s", "träin", "exec cat")
    yield ask
    ask("kill-server")
    shutil.rmtree(folder, ignore_errors=True)  # tmux may be taking its socket away just now


@NEEDS_TMUX
def test_what_runs_in_tmux_has_its_sessions_name(tmux: Callable[..., str]) -> None:
    pane = int(tmux("list-panes", "-F", "#{pane_pid}"))
    lives.until(lambda: name_of(pane) == "cat", "cat runs")
    assert place_of(seen(pane)).tmux == "träin"


@NEEDS_TMUX
def test_what_dropped_the_variable_is_in_its_panes_session(tmux: Callable[..., str]) -> None:
    tmux("new-session", "-d", "-s", "bare", "env -u TMUX cat; true")
    shell = int(tmux("list-panes", "-t", "bare", "-F", "#{pane_pid}"))
    children = Path(f"/proc/{shell}/task/{shell}/children")

    def cats() -> list[int]:
        pids = map(int, children.read_text().split())
        return [pid for pid in pids if name_of(pid) == "cat"]

    lives.until(cats, "cat runs")
    (cat,) = cats()
    assert b"\0TMUX=" not in Path(f"/proc/{cat}/environ").read_bytes()
    assert place_of(seen(cat)).tmux == "bare"


def test_a_tmux_that_is_not_ours_goes_by_number(fake: FakeWorkloads) -> None:
    fake.add(50, "tmux new", name="tmux: server")
    assert fake.place(fake.add(51, TMUX=f"{ABSENT}/default,50,3")).tmux == "$3"


def test_a_tmux_variable_from_another_machine_is_not_believed(fake: FakeWorkloads) -> None:
    fake.add(50, "bash")
    job = fake.add(51, TMUX="/tmp/tmux-1000/default,50,3")
    other = fake.add(52, TMUX="/tmp/tmux-1000/default,4000,3")
    assert [place.tmux for place in fake.reader.read([job, other]).values()] == [None, None]


@pytest.mark.root
def test_root_never_speaks_to_a_socket_that_another_user_names(fake: FakeWorkloads) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="gm") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        listener.bind(f"{folder}/s")
        listener.listen()
        listener.setblocking(False)
        fake.add(50, "tmux", name="tmux: server")
        one = fake.add(51, TMUX=f"{folder}/s,50,3")
        os.chown(fake.proc.root / "51", 65534, 65534)
        assert fake.place(one).tmux == "$3"
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_what_is_not_visible_is_left_out(fake: FakeWorkloads) -> None:
    shown = fake.add(50)
    hidden = msgspec.structs.replace(fake.add(51), visible=False)
    unknown = msgspec.structs.replace(fake.add(52), id=ProcessId(52, None))
    assert list(fake.reader.read([shown, hidden, unknown])) == [shown.id]


def test_a_reused_number_never_gets_another_processes_place(fake: FakeWorkloads) -> None:
    first = fake.add(50, start=100, VIRTUAL_ENV="/p/first/.venv")
    assert fake.place(first).environment == "first"
    second = fake.add(50, start=200, VIRTUAL_ENV="/p/second/.venv")
    assert {one: place.environment for one, place in fake.reader.read([first, second]).items()} == {
        second.id: "second"
    }


def test_a_new_parent_is_noticed(fake: FakeWorkloads) -> None:
    fake.add(1, "init", start=1)
    torchrun = fake.add(40, "python torchrun", start=50)
    one = fake.add(50, parent=40)
    place = fake.place(one)
    assert (place.parent, place.launcher) == (torchrun.id, torchrun.id)
    fake.proc.remove(40)
    one = fake.add(50, parent=1)
    place = fake.place(one)
    assert (place.parent, place.launcher) == (ProcessId(1, 1), None)


def test_a_parent_younger_than_its_child_is_a_stranger(fake: FakeWorkloads) -> None:
    fake.add(40, "torchrun", start=101)
    assert fake.place(fake.add(50, parent=40, start=100)).parent is None


def test_ancestors_in_a_circle_come_to_an_end(fake: FakeWorkloads) -> None:
    one, other = fake.add(50, parent=51), fake.add(51, "torchrun", parent=50)
    assert fake.place(one).launcher == other.id


def test_what_the_environment_would_tell_is_unknown_where_it_is_not_ours(
    fake: FakeWorkloads,
) -> None:
    one = fake.add(50, "/home/bo/envs/torch/bin/python a.py", SLURM_JOB_ID="7", HOSTNAME="x")
    fake.hide_environ(50)
    assert fake.place(one).labels == ("env torch",)


def test_the_memory_of_a_process_that_hangs_is_left_alone(
    fake: FakeWorkloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroup = f"0::/system.slice/docker-{ID}.scope\n"
    one = fake.add(50, "torchrun", state="D", cgroup=cgroup, VIRTUAL_ENV="/p/llama/.venv")
    with monkeypatch.context() as patch:
        patch.delattr(ProcessFiles, "command")
        patch.delattr(ProcessFiles, "hangs")  # it would wait for the process
        place = fake.place(one)
    assert place.container == Container("docker", ID)
    assert (place.launcher, place.environment) == (None, None)
    one = fake.add(50, "torchrun", cgroup=cgroup, VIRTUAL_ENV="/p/llama/.venv")
    place = fake.place(one)
    assert (place.launcher, place.environment) == (one.id, "llama")


def test_a_container_has_its_name(fake: FakeWorkloads) -> None:
    folder = fake.root / "var/lib/docker/containers" / ID
    folder.mkdir(parents=True)
    (folder / "config.v2.json").write_text('{"Name": "/llama-ft"}')
    one = fake.add(50, cgroup=f"0::/system.slice/docker-{ID}.scope\n", HOSTNAME=ID[:12])
    assert fake.place(one).labels == ("docker llama-ft",)
    shutil.rmtree(folder)
    assert fake.place(one).labels == ("docker llama-ft",)


def test_a_container_without_a_name_may_get_one(fake: FakeWorkloads) -> None:
    one = fake.add(50, cgroup=f"0::/kubepods/pod{POD}/{ID}\n")
    assert fake.place(one).labels == (f"pod {POD}",)
    (fake.root / f"var/log/pods/ml_train-0_{POD}").mkdir(parents=True)
    fake.clock.now += 60
    assert fake.place(one).labels == ("pod train-0",)


def test_a_pod_goes_by_the_host_name_of_its_processes(fake: FakeWorkloads) -> None:
    one = fake.add(50, cgroup=f"0::/kubepods/pod{POD}/{ID}\n", HOSTNAME="train-0")
    assert fake.place(one).labels == ("pod train-0",)


def test_the_job_of_the_cgroup_and_of_the_environment_are_one(fake: FakeWorkloads) -> None:
    cgroup = "0::/system.slice/slurmstepd.scope/job_88127/step_batch/user/task_0\n"
    one = fake.add(
        50, cgroup=cgroup, SLURM_JOB_ID="88127", SLURM_ARRAY_JOB_ID="88123", SLURM_ARRAY_TASK_ID="4"
    )
    other = fake.add(51, cgroup=cgroup)
    labels = [place.labels for place in fake.reader.read([one, other]).values()]
    assert labels == [("slurm 88123_4.batch",), ("slurm 88127.batch",)]


def test_a_job_without_its_number_in_the_cgroup_is_that_of_slurms_daemon(
    fake: FakeWorkloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroup = "0::/system.slice/slurmstepd.scope/s6MHM8CAJB5900/step_batch/user/task_0\n"
    fake.add(40, "slurmstepd: [88127.batch]", cgroup=cgroup.replace("user", "slurm"))
    fake.add(45, "bash job.sh", parent=40, cgroup=cgroup)
    one = fake.add(50, parent=45, cgroup=cgroup)
    alone = fake.add(51, cgroup=cgroup)
    own = fake.add(52, cgroup=cgroup, SLURM_JOB_ID="5", SLURM_STEP_ID="0")
    elsewhere = fake.add(53, parent=45)
    owner = 0
    monkeypatch.setattr(ProcessFiles, "owner", lambda _: owner)
    labels = [place.labels for place in fake.reader.read([one, alone, own, elsewhere]).values()]
    assert labels == [("slurm 88127.batch",), (), ("slurm 5.0",), ()]
    # Anybody can write such a title.
    owner = 1000
    assert WorkloadReader(fake.proc.system).read([one])[one.id].labels == ()


def test_apptainer_is_believed_where_other_files_are_seen(fake: FakeWorkloads) -> None:
    inside = fake.add(50, mounts="image", APPTAINER_NAME="pytorch.sif")
    handed_down = fake.add(51, APPTAINER_NAME="pytorch.sif", container="podman")
    podman = fake.add(52, mounts="image", container="podman")
    docker = fake.add(53, mounts="image", cgroup=f"0::/docker/{ID}\n", container="podman")
    apptainer = Container("apptainer", name="pytorch.sif")
    assert [fake.place(one).container for one in (inside, handed_down, podman, docker)] == [
        *(apptainer, None, Container("podman"), Container("docker", ID))
    ]


def test_an_environment_overwritten_by_a_title_is_remembered(fake: FakeWorkloads) -> None:
    one = fake.add(50, VIRTUAL_ENV="/p/llama/.venv")
    assert fake.place(one).environment == "llama"
    fake.add(50, "ray::train", name="ray::train")
    assert fake.place(one).environment == "llama"


def test_what_cannot_change_is_read_once(
    fake: FakeWorkloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.add(40, "torchrun")
    many = [fake.add(100 + number, parent=40, VIRTUAL_ENV="/p/x/.venv") for number in range(20)]
    before = fake.reader.read(many)
    looked: list[int] = []

    def look(proc: str, pid: int) -> Stat | None:
        looked.append(pid)
        return stat_of(proc, pid)

    monkeypatch.setattr(workloads, "stat_of", look)
    monkeypatch.delattr(workloads, "opened")
    assert fake.reader.read(many) == before
    assert sorted(looked) == [40, *range(100, 120)]


def test_a_process_not_asked_for_is_forgotten_after_a_while(fake: FakeWorkloads) -> None:
    """Its environment is read once, so a change of it shows whether the process is remembered."""
    first, later = fake.add(50, VIRTUAL_ENV="/p/before/.venv"), fake.add(51)

    def environment_after(seconds: float) -> str | None:
        fake.clock.now += seconds
        fake.place(later)
        return fake.place(first).environment

    assert environment_after(0) == "before"
    fake.add(50, VIRTUAL_ENV="/p/after/.venv")
    assert environment_after(59) == "before", "a call may ask for the new ones only"
    assert environment_after(60) == "after"
