"""Programs that get into the states in which processes hold a card for no good reason.

Each opens the file named by its first argument, says a line when it is ready, and never ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import lives
from tests.known import known

if TYPE_CHECKING:
    from subprocess import Popen

    from gpumon.model.processes import ProcessId

HOLDING = """
import ctypes, os, signal, sys, threading, time
held = os.open(sys.argv[1], os.O_RDONLY)
def ready(): print("ready", flush=True)
"""

HOLDER = f"{HOLDING}\nready(); signal.pause()"

HOLLOW = f"""{HOLDING}
def live():
    with open(f"/proc/{{os.getpid()}}/stat") as stat:
        while stat.read().rpartition(")")[2].split()[0] != "Z":
            stat.seek(0)
    ready()
    time.sleep(1000)
threading.Thread(target=live).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""
"""Its main thread has ended, by the system call ``exit``, while another lives."""

HANGING = f"""{HOLDING}
ready(); sys.stdin.readline()
open_pipe = (os.POSIX_SPAWN_OPEN, 0, sys.argv[2], os.O_RDONLY, 0)
os.posix_spawn("/bin/true", ["true"], {{}}, file_actions=[open_pipe])
"""
"""At a line of input it waits in state D: for a child that shares its memory until it has opened a
pipe, the second argument, and begun another program."""

PARENT = f"""{HOLDING}
for _ in range(2):
    if os.fork() == 0:
        signal.pause()
ready(); signal.pause()
"""
"""Has two children, who inherit the open file."""

REAPER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
with open("/proc/self/comm", "w") as name:
    name.write(sys.argv[2])
told, tell = os.pipe()
parent = os.fork()
if parent == 0:
    os.setsid()
    if os.fork() == 0:
        held = os.open(sys.argv[1], os.O_RDONLY)
        os.write(tell, b".")
    signal.pause()
os.read(told, 1)
print("ready", flush=True)
sys.stdin.readline()
os.kill(parent, signal.SIGKILL)
os.waitpid(parent, 0)
print("ended", flush=True)
signal.pause()
"""
"""Takes over orphans under the name of its second argument. Its child, in a session of its own, has
a child that holds the file; at a line of input it ends that child, and answers."""


def identity(pid: int) -> ProcessId:
    relative = known(lives.look(pid))
    return relative.id


def go_on(process: Popen[str]) -> None:
    """Give it the line that it waits for."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def state(pid: int) -> str:
    """The letter of its state, or "gone"."""
    relative = lives.look(pid)
    return "gone" if relative is None else relative.state


def until_state(pid: int, *states: str) -> None:
    lives.until(lambda: state(pid) in states, f"state {' or '.join(states)}, but {state(pid)}")
