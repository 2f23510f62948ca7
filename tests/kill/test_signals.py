"""What can be signalled and what cannot, on real processes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from gpumon.host.handle import wait_for_any
from gpumon.host.process_host import ProcessHandle, ProcessStatus, Refusal, Refused, Target
from gpumon.kill.signals import open_handle, read_status
from gpumon.model.processes import Container, ProcessId, Workload
from gpumon.system.system import System
from tests import lives
from tests.command import run_program
from tests.host.programs import go_on, until_state
from tests.known import known
from tests.lives import Family

NOBODY = 65534

HOLLOW = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
"""Its main thread exits while another lives."""

PARENT = """
import os
child = os.fork()
if not child:
    os.read(0, 1)
    os._exit(0)
print(child, flush=True)
os.read(0, 1)
os.read(0, 1)
"""
"""It never takes notice of the end of its child."""


@pytest.fixture(params=["pidfd", "psutil"])
def means(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to hold a process."""
    means: str = request.param
    if means == "psutil":
        forbid_pidfds(monkeypatch)
    return means


def forbid_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a seccomp profile that is older than they are."""

    def pidfd_open(*_: int) -> int:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "pidfd_open", pidfd_open)


def refusal(target: Target, number: int | None = None, **options: object) -> Refused:
    """The answer to somebody who tries; only what a test started is ever signalled."""
    with pytest.raises(Refused) as refused:  # noqa: PT012 - either of two steps may refuse
        grip = open_handle(target, **options)  # type: ignore[arg-type]  # keywords pass through
        try:
            if number is not None:
                grip.send(number)
        finally:
            grip.close()
    return refused.value


@pytest.mark.usefixtures("means")
def test_a_signal_reaches_the_process_that_was_chosen(family: Family) -> None:
    process = family.sleeper()
    grip = open_handle(lives.target(process.pid))
    assert not grip.ended()
    grip.send(signal.SIGTERM)
    assert process.wait(lives.PATIENCE) == -signal.SIGTERM
    assert grip.ended()
    assert grip.status() is None
    grip.close()
    grip.close()


@pytest.mark.usefixtures("means")
def test_a_reused_number_is_refused(family: Family) -> None:
    seen = lives.target(family.sleeper().pid)
    earlier = ProcessId(seen.id.pid, known(seen.id.start_time) - 1)
    refused = refusal(msgspec.structs.replace(seen, id=earlier), signal.SIGKILL)
    assert refused.reason is Refusal.REUSED
    assert refused.sentence == (
        f"{seen.id.pid} is another process now; the one you chose has ended"
    )


@pytest.mark.usefixtures("means")
def test_a_process_that_changed_its_user_is_refused(family: Family) -> None:
    seen = lives.target(family.sleeper().pid, uid=os.geteuid() + 1, user="ann")
    refused = refusal(seen, signal.SIGKILL)
    assert refused.reason is Refusal.REUSED
    assert "not as ann: check it and choose it again" in refused.sentence


@pytest.mark.root
@pytest.mark.usefixtures("means")
def test_a_process_that_changes_its_user_while_it_is_held_is_refused(family: Family) -> None:
    change = "import os; print(1, flush=True); input(); os.setuid(1); print(2, flush=True); input()"
    process = family.python(change)
    grip = open_handle(lives.target(process.pid))
    go_on(process)
    assert known(process.stdout).readline()
    with pytest.raises(Refused) as refused:
        grip.send(signal.SIGKILL)
    assert refused.value.reason is Refusal.REUSED
    assert process.poll() is None
    grip.close()


@pytest.mark.usefixtures("means")
def test_an_exited_process_is_reported_as_gone(family: Family) -> None:
    process = family.sleeper()
    seen = lives.target(process.pid)
    grip = open_handle(seen)
    process.kill()
    process.wait()
    with pytest.raises(Refused) as refused:
        grip.send(signal.SIGTERM)
    assert refused.value.reason is Refusal.GONE
    grip.close()
    assert refusal(seen).sentence == f"{seen.id.pid} had ended already"


@pytest.mark.usefixtures("means")
def test_a_zombie_counts_as_gone_and_its_parent_is_named(family: Family) -> None:
    parent = family.python(PARENT)
    (child,) = lives.children(parent.pid)
    seen = lives.target(child)
    grip = open_handle(seen)
    grip.send(signal.SIGKILL)
    lives.until(grip.ended, "the end of the child")
    status = known(grip.status())
    grip.close()
    assert (status.state, status.parent) == ("Z", lives.target(parent.pid).id)
    assert status.parent_name == lives.target(parent.pid).name
    refused = refusal(seen, signal.SIGTERM)
    assert refused.reason is Refusal.GONE
    assert f"its parent {parent.pid} ({status.parent_name}) has not" in refused.sentence


@pytest.mark.usefixtures("means")
def test_a_process_whose_main_thread_has_died_has_not_ended(family: Family) -> None:
    process = family.python(HOLLOW)
    until_state(process.pid, "Z")
    grip = open_handle(lives.target(process.pid))
    assert not grip.ended()
    status = known(grip.status())
    assert (status.state, status.parent) == ("Z", None)
    grip.send(signal.SIGKILL)
    lives.until(grip.ended, "its end")
    grip.close()


@pytest.mark.usefixtures("means")
def test_a_stopped_process_is_told_as_stopped(family: Family) -> None:
    process = family.sleeper()
    grip = open_handle(lives.target(process.pid))
    grip.send(signal.SIGSTOP)
    until_state(process.pid, "T")
    assert known(grip.status()).state == "T"
    grip.close()


def test_the_wait_channel_is_reported_in_state_d(tmp_path: Path) -> None:
    proc = fake_proc(tmp_path, state="D")
    (proc / "wchan").write_text("nvidia_close")
    assert held_status(tmp_path).wait_channel == "nvidia_close"
    (proc / "wchan").write_text("0")
    assert held_status(tmp_path).wait_channel is None


def fake_proc(root: Path, state: str) -> Path:
    """A ``/proc`` with one process, 4711, in any state."""
    directory = root / "4711"
    directory.mkdir()
    fields = [state, "1", *["0"] * 15, "1", "0", "777", *["0"] * 6]
    (directory / "stat").write_text(f"4711 (a (b) c) {' '.join(fields)}\n")
    return directory


def held_status(root: Path) -> ProcessStatus:
    return known(read_status(ProcessId(4711, 777), str(root)))


@pytest.mark.usefixtures("means")
@pytest.mark.parametrize("pid", [1, 0, -1, -4711])
def test_pid_1_and_invalid_pids_are_refused(pid: int) -> None:
    assert refusal(Target(ProcessId(pid, 1), os.geteuid())).reason is Refusal.PROTECTED


@pytest.mark.usefixtures("means")
def test_gpumon_itself_and_its_threads_are_refused() -> None:
    itself = lives.target(os.getpid())
    assert refusal(itself).reason is Refusal.PROTECTED
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert refusal(lives.target(known(thread.native_id))).reason is Refusal.PROTECTED
    finally:
        over.set()
        thread.join()


@pytest.mark.usefixtures("means")
def test_a_thread_id_of_another_process_is_refused(family: Family) -> None:
    process = family.python(HOLLOW)
    threads = {int(path.name) for path in Path(f"/proc/{process.pid}/task").iterdir()}
    refused = refusal(lives.target((threads - {process.pid}).pop()))
    assert refused.reason is Refusal.THREAD
    assert f"is a thread of {process.pid}" in refused.sentence


ATTEMPT = """
import os, sys
from gpumon.host.process_host import Refused
from gpumon.kill.signals import open_handle
from tests import lives

seen = lives.look(os.getpid())
# Where /proc hides the processes of others, those among the ancestors end the way up.
while seen.parent > 1 and (seen := lives.look(seen.parent)):
    try:
        open_handle(lives.target(seen.id.pid))
    except Refused as refused:
        print(seen.id.pid, refused.reason.name)
    else:
        print(seen.id.pid, "HELD")
"""


def test_every_ancestor_is_refused() -> None:
    """A helper tries them all: the shell between, this test, and what started it, up to init."""
    done = run_program(
        ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", ATTEMPT], check=True
    )
    tried = dict(line.split() for line in done.stdout.splitlines())
    assert set(tried.values()) == {"PROTECTED"}
    assert str(os.getpid()) in tried
    assert len(tried) >= 2


def test_an_invisible_process_is_refused(family: Family) -> None:
    seen = lives.target(family.sleeper().pid)
    refused = refusal(msgspec.structs.replace(seen, id=ProcessId(seen.id.pid, None)))
    assert refused.reason is Refusal.NOT_VISIBLE


def test_a_proc_of_another_pid_namespace_is_not_trusted(family: Family, tmp_path: Path) -> None:
    seen = lives.target(family.sleeper().pid)
    (tmp_path / "self").symlink_to("1")
    (tmp_path / str(seen.id.pid)).symlink_to(f"/proc/{seen.id.pid}")
    refused = refusal(seen, system=System(str(tmp_path)))
    assert refused.reason is Refusal.NOT_VISIBLE


def test_without_proc_every_signal_is_refused_with_the_reason(
    family: Family, tmp_path: Path
) -> None:
    seen = lives.target(family.sleeper().pid)
    refused = refusal(seen, system=System(str(tmp_path)))
    assert refused.reason is Refusal.NOT_VISIBLE
    assert f"there is no {tmp_path} here" in refused.sentence


def test_a_process_hidden_by_proc_is_refused(family: Family, tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to(str(os.getpid()))
    refused = refusal(lives.target(family.sleeper().pid), system=System(str(tmp_path)))
    assert refused.reason is Refusal.NOT_VISIBLE


@pytest.mark.usefixtures("means")
def test_readonly_refuses_at_the_function_itself(family: Family) -> None:
    process = family.sleeper()
    refused = refusal(lives.target(process.pid), signal.SIGKILL, readonly=True)
    assert refused.reason is Refusal.READ_ONLY
    assert process.poll() is None


AS_ANOTHER = """
import os, signal, sys
import msgspec
from gpumon.host.process_host import Refused, Target
from gpumon.kill.signals import open_handle

if sys.argv[2] == "psutil":
    del os.pidfd_open
    import psutil  # the other user may not read where it lies
target = msgspec.json.decode(sys.argv[1], type=Target)
os.setuid(1)
grip = open_handle(target)
try:
    grip.send(signal.SIGTERM)
except Refused as refused:
    print(refused.reason.name, refused.sentence)
"""

PLACES = {
    None: "ask nobody, or sudo kill -TERM {pid}",
    Workload(slurm_job="88123"): "ask nobody, or an operator runs scancel 88123",
    Workload(container=Container("docker", "a" * 64, "llama-ft")): (
        "ask nobody, or docker stop llama-ft, which ends everything in it"
    ),
    Workload(container=Container("docker", name="$(reboot)\x1b[0m")): (
        "ask nobody, or docker stop '$(reboot)\N{REPLACEMENT CHARACTER}[0m', "
        "which ends everything in it"
    ),
    Workload(container=Container("podman", "a" * 64, "llama-ft")): (
        "ask nobody, or sudo kill -TERM {pid}"
    ),
}


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize("place", PLACES)
def test_what_is_not_permitted_names_the_owner_and_a_way(
    family: Family, place: Workload | None, means: str
) -> None:
    process = family.python(f"import os; os.setuid({NOBODY}); print(1, flush=True); input()")
    seen = lives.target(process.pid, place=place, user="nobody")
    encoded = msgspec.json.encode(seen).decode()
    done = run_program([sys.executable, "-c", AS_ANOTHER, encoded, means], check=True)
    pid = process.pid
    advice = PLACES[place].format(pid=pid)
    assert done.stdout == f"NOT_PERMITTED {pid} is nobody's, not yours: {advice}\n"
    assert process.poll() is None


NAMESPACE = """
import os, signal, subprocess, sys
from gpumon.host.process_host import Refused
from gpumon.kill.signals import open_handle
from tests import lives

def sleeper():
    return subprocess.Popen(["sleep", "1000"])

def give_the_number_to_another():
    chosen.kill()
    chosen.wait()
    while True:
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:
            last.write(str(chosen.pid - 1))
        stranger = sleeper()
        assert stranger.pid == chosen.pid
        if lives.target(stranger.pid).id != seen.id:
            return stranger
        stranger.kill()
        stranger.wait()

really_open = os.pidfd_open
strangers = []

def pidfd_open(pid, flags=0):
    if pid == chosen.pid and not strangers:
        strangers.append(give_the_number_to_another())
    return really_open(pid, flags)

chosen = sleeper()
seen = lives.target(chosen.pid)
if sys.argv[1] == "before":
    strangers.append(give_the_number_to_another())
elif sys.argv[1] == "just before it is held":
    os.pidfd_open = pidfd_open
else:
    really_send = signal.pidfd_send_signal

    def send(descriptor, number):
        if number:
            strangers.append(give_the_number_to_another())
        really_send(descriptor, number)

    signal.pidfd_send_signal = send
try:
    open_handle(seen).send(signal.SIGKILL)
except Refused as refused:
    print(refused.reason.name, strangers[0].poll())
strangers[0].kill()
strangers[0].wait()
"""


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ("before", "REUSED"),
        ("just before it is held", "REUSED"),
        ("just before it is sent", "GONE"),
    ],
)
@pytest.mark.root
@lives.needs("unshare")
def test_a_number_that_was_really_reused_is_refused(when: str, reason: str) -> None:
    """In a small PID name space, where the next number can be chosen."""
    room = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*room, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a PID name space of one's own takes root")
    done = run_program([*room, sys.executable, "-c", NAMESPACE, when], check=True)
    assert done.stdout.split() == [reason, "None"]


def test_psutil_is_imported_only_where_there_are_no_pidfds() -> None:
    program = (
        "import os, subprocess, sys\n"
        "from gpumon.kill.signals import open_handle\n"
        "from tests import lives\n"
        "process = subprocess.Popen(['sleep', '1000'])\n"
        "try:\n"
        "    open_handle(lives.target(process.pid)).close()\n"
        "    print('psutil' in sys.modules)\n"
        "    del os.pidfd_open\n"
        "    open_handle(lives.target(process.pid)).close()\n"
        "    print('psutil' in sys.modules)\n"
        "finally:\n"
        "    process.kill()\n"
        "    process.wait()\n"
    )
    done = run_program([sys.executable, "-c", program], check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.usefixtures("means")
def test_waiting_ends_with_the_first_exit(family: Family) -> None:
    processes = [family.sleeper() for _ in range(3)]
    grips = [open_handle(lives.target(process.pid)) for process in processes]
    wait_and_kill(grips, processes[1])
    assert [grip.ended() for grip in grips] == [False, True, False]
    began = time.monotonic()
    wait_for_any(grips, lives.PATIENCE)
    assert time.monotonic() - began < lives.PATIENCE, "one had ended already"
    wait_for_any([grips[0], grips[2]], 0.01)
    for grip in grips:
        grip.close()


def wait_and_kill(grips: list[ProcessHandle], victim: subprocess.Popen[str]) -> None:
    """Wait in a thread for one that is killed once the wait has begun."""
    began = threading.Event()

    def wait() -> None:
        began.set()
        wait_for_any(grips, lives.PATIENCE)

    thread = threading.Thread(target=wait)
    thread.start()
    began.wait()
    victim.kill()
    victim.wait()
    thread.join(lives.PATIENCE)
    assert not thread.is_alive()


def test_no_descriptor_is_left_open(family: Family) -> None:
    seen = lives.target(family.sleeper().pid)
    open_handle(seen).close()
    before = open_descriptors()
    open_handle(seen).close()
    refusal(msgspec.structs.replace(seen, uid=os.geteuid() + 1))
    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
