"""Commands: what they get, and that each failure is a sentence in bounded time and memory."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.alerts.channels import command
from gpumon.alerts.channels.channel import Attempt, DeliveryError
from gpumon.alerts.channels.command import Command
from tests.alerts.sending import NOTICE, alert_with, failure, refusal
from tests.command import write_program
from tests.exporter.exporting import wait_until
from tests.known import known

PYTHON = sys.executable


def shell(script: str) -> Command:
    return Command(("sh", "-c", script))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"


def pid_in(path: Path) -> int:
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), "its PID")
    return int(path.read_text())


def test_a_command_gets_the_notice_in_its_environment_and_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUMON_PID", "of another notice")
    monkeypatch.setenv("KEPT", "as it is")
    output = tmp_path / "output"
    write = (
        "import json, os, sys; json.dump([dict(os.environ), json.load(sys.stdin), sys.argv[2:]],"
        " open(sys.argv[1], 'w'))"
    )
    arguments = ("; echo $HOME", "{title}", "*")
    assert failure(Command((PYTHON, "-c", write, str(output), *arguments))) is None
    environment, given, got = json.loads(output.read_text())
    assert got == list(arguments)
    assert environment["KEPT"] == "as it is"
    assert {name: value for name, value in environment.items() if name.startswith("GPUMON_")} == {
        "GPUMON_ALERT": "broken",
        "GPUMON_KEY": "gpu:GPU-1a2b",
        "GPUMON_HOST": "gpu-04",
        "GPUMON_AT": "1700000000",
        "GPUMON_SINCE": "1699999940",
        "GPUMON_ENDED": "0",
        "GPUMON_SEVERITY": "critical",
        "GPUMON_TITLE": NOTICE.title,
        "GPUMON_SENTENCE": NOTICE.sentence,
        "GPUMON_GPU": "3",
        "GPUMON_GPU_UUID": "GPU-1a2b",
        "GPUMON_TEST": "0",
    } | {name: value for name, value in os.environ.items() if name == "GPUMON_LOCK_DIR"}
    assert given.pop("id").isalnum()
    assert given == {
        "schema": "gpumon.notice/1",
        "alert": "broken",
        "key": "gpu:GPU-1a2b",
        "host": "gpu-04",
        "at_unix_seconds": 1_700_000_000.25,
        "since_unix_seconds": 1_699_999_940.0,
        "ended": False,
        "severity": "critical",
        "title": NOTICE.title,
        "sentence": NOTICE.sentence,
        "gpu_index": 3,
        "gpu_uuid": "GPU-1a2b",
        "pid": None,
        "user": None,
        "command": None,
        "test": False,
    }


def test_hostile_texts_reach_a_command_in_bounds_and_safe(tmp_path: Path) -> None:
    output = tmp_path / "output"
    hostile = replace(
        NOTICE, host="a\0b\ud800\x1b[31m", sentence="x" * 1_000_000, user="\n\x9b;", pid=7
    )
    shell(f"env > '{output}'; cat >> '{output}'").send(Attempt(alert_with(), hostile))
    lines = output.read_text().splitlines()
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) < 4000
    assert "GPUMON_HOST=a�b��[31m" in lines
    assert "GPUMON_PID=7" in lines


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("true",), None),
        (("sh", "-c", "exit 3"), "it ended with status 3"),
        (("sh", "-c", "echo first; echo no recipient >&2; exit 1"), "with status 1: no recipient"),
        (("sh", "-c", "printf 'a\\033[31mb\\n\\n'; exit 1"), "status 1: a�[31mb"),
        (("sh", "-c", "kill -SEGV $$"), "it was ended by SIGSEGV"),
        (("no-such-program",), "there is no program no-such-program, or its interpreter is"),
        (("/etc/passwd",), "/etc/passwd is not an executable file"),
        (("/",), "/ is not an executable file"),
        (("a\0b",), "a�b cannot be started: ValueError"),
        (("true", "x" * 2**22), "true cannot be started: Argument list too long"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_why_a_command_failed_is_one_sentence(
    arguments: tuple[str, ...], sentence: str | None
) -> None:
    found = failure(Command(arguments))
    assert (found is None) if sentence is None else (found is not None and sentence in found)


def test_a_script_that_names_a_missing_interpreter(tmp_path: Path) -> None:
    script = write_program(tmp_path / "hook", "#!/no/such/interpreter\n")
    assert "its interpreter is missing" in (failure(Command((str(script),))) or "")


def test_a_command_that_hangs_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, child = tmp_path / "mine", tmp_path / "child"

    class Clock:
        """Jumps after the start when both run, so that the test waits for no limit."""

        now = -1.0

        def monotonic(self) -> float:
            both = all(path.exists() and path.read_text() for path in (mine, child))
            self.now = 1000.0 if both and self.now == 0.0 else max(self.now, 0.0)
            return self.now

    monkeypatch.setattr(command, "time", Clock())
    monkeypatch.setattr(Command, "seconds", 10.0)
    script = f"sleep 1000 & echo $! > '{child}'; echo $$ > '{mine}'; trap '' TERM; wait"
    error = known(refusal(shell(script)))
    assert (error.sentence, error.again) == ("it did not end within 10 s and was killed", False)
    assert not is_running(pid_in(mine))
    wait_until(lambda: not is_running(pid_in(child)), "the end of its child")


def test_what_a_command_leaves_behind_ends_with_it_and_delays_nothing(tmp_path: Path) -> None:
    """It also holds the pipe of the output."""
    child = tmp_path / "child"
    assert failure(shell(f"sleep 1000 & echo $! > '{child}'")) is None
    pid = pid_in(child)
    wait_until(lambda: not is_running(pid), "the end of its child")


def test_huge_output_and_input_that_is_not_read_take_no_memory() -> None:
    tracemalloc.start()
    try:
        sentence = failure(shell("exec 0<&-; yes | head -c 200000000; echo; echo last; exit 1"))
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()
    assert sentence == "it ended with status 1: last"


def test_a_command_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    output = tmp_path / "output"
    assert failure(shell(f"exec 1>&- 2>&-; sleep 0.3; echo done > '{output}'")) is None
    assert output.read_text() == "done\n"


def test_a_command_has_no_terminal_and_no_descriptor_of_gpumon(tmp_path: Path) -> None:
    output = tmp_path / "output"
    script = (
        "import json, os, sys\n"
        "try:\n    os.open('/dev/tty', os.O_RDWR); tty = True\n"
        "except OSError:\n    tty = False\n"
        "mine = sorted(map(int, os.listdir('/proc/self/fd')))[:-1]\n"
        "json.dump([tty, os.getsid(0) == os.getpid(), mine], open(sys.argv[1], 'w'))"
    )
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        assert failure(Command((PYTHON, "-c", script, str(output)))) is None
    finally:
        os.close(reader)
        os.close(writer)
    has_terminal, leads_session, descriptors = json.loads(output.read_text())
    assert not has_terminal
    assert leads_session
    assert descriptors == [0, 1, 2]


def test_an_attempt_that_is_cancelled_kills_its_command(tmp_path: Path) -> None:
    attempt, mine = Attempt(alert_with(), NOTICE), tmp_path / "mine"
    failed: list[str] = []

    def run() -> None:
        try:
            waiting = shell(f"echo $$ > {shlex.quote(str(mine))}; sleep 1000")
            waiting.send(attempt)
        except DeliveryError as error:
            failed.append(error.sentence)

    thread = threading.Thread(target=run)
    thread.start()
    pid = pid_in(mine)
    begun = time.monotonic()
    attempt.cancel()
    thread.join(60)
    assert time.monotonic() - begun < 30
    assert failed == ["gpumon ended before it was sent"]
    assert not is_running(pid)
    with pytest.raises(DeliveryError):
        shell("true").send(attempt)
