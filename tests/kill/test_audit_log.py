"""What the log of signals promises."""

from __future__ import annotations

import json
import os
import pwd
import signal
import stat
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gpumon.host.process_host import Target
from gpumon.kill import audit_log as audit_log_module
from gpumon.kill.audit_log import AuditLog
from gpumon.model.processes import ProcessId
from tests import lives
from tests.command import run_program
from tests.known import known

TRAINING = Target(
    ProcessId(41233, 777), 1005, user="chen", command=("python", "train.py", "--lr", "3e-4")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "gpumon"


def written(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "signals.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write(audit_log: AuditLog, target: Target = TRAINING, number: int = signal.SIGTERM) -> None:
    """Write a line, and wait until it is there or has failed."""
    audit_log.write(target, number, "sent")
    assert audit_log.flush(lives.PATIENCE)


def failure(audit_log: AuditLog) -> str:
    """Why a line could not be written."""
    write(audit_log)
    return known(audit_log.failure)


def test_a_line_has_time_user_target_signal_and_outcome(folder: Path) -> None:
    audit_log = AuditLog(folder)
    before = time.time()
    audit_log.write(TRAINING, signal.SIGTERM, "sent")
    audit_log.write(TRAINING, signal.SIGRTMIN + 1, "not permitted")
    assert audit_log.flush(lives.PATIENCE)
    assert audit_log.failure is None
    first, second = written(folder)
    when = datetime.fromisoformat(str(first.pop("time")))
    assert when.tzinfo is not None
    assert before - 0.001 <= when.timestamp() <= time.time()
    uid = os.geteuid()
    assert first == {
        "by": lives.user_name(uid),
        "by_uid": uid,
        "signal": "TERM",
        "pid": 41233,
        "start_time": 777,
        "user": "chen",
        "uid": 1005,
        "command": "python train.py --lr 3e-4",
        "outcome": "sent",
    }
    assert (second["signal"], second["outcome"]) == (str(signal.SIGRTMIN + 1), "not permitted")


def test_the_log_is_in_the_state_folder(tmp_path: Path) -> None:
    program = "from gpumon.kill.audit_log import AuditLog; print(AuditLog().path)"
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = run_program([sys.executable, "-c", program], environment, check=True)
    assert Path(done.stdout.strip()) == tmp_path / "gpumon" / "signals.jsonl"


def test_the_program_waits_at_exit_for_the_last_line(folder: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from gpumon.host.process_host import Target\n"
        "from gpumon.kill.audit_log import AuditLog\n"
        "from gpumon.model.processes import ProcessId\n"
        "audit_log = AuditLog(pathlib.Path(sys.argv[1]))\n"
        "for pid in range(200):\n"
        "    audit_log.write(Target(ProcessId(pid, 1), 0), 15, 'sent')\n"
    )
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True)
    assert [line["pid"] for line in written(folder)] == list(range(200))


def test_other_users_cannot_read_it(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    (folder / "signals.jsonl").touch(0o644)
    write(AuditLog(folder))
    assert (mode(folder), mode(folder / "signals.jsonl")) == (0o700, 0o600)
    assert len(written(folder)) == 1


def test_a_new_log_is_not_readable_by_others_under_any_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        write(AuditLog(folder))
    finally:
        os.umask(before)
    assert (mode(folder), mode(folder / "signals.jsonl")) == (0o700, 0o600)


def test_names_chosen_by_others_cannot_break_a_line(folder: Path) -> None:
    nasty = Target(
        ProcessId(1, None), None, user="a\nb", command=("x\x1b[2J\n{}", "\udc80", "y" * 9000)
    )
    write(AuditLog(folder), nasty)
    (line,) = written(folder)
    command = str(line["command"])
    assert len(command) == 200
    assert "\x1b" not in command
    assert command.endswith("…")
    assert line["user"] == "a b"


def test_a_symbolic_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True)
    prey = tmp_path / "prey"
    (folder / "signals.jsonl").symlink_to(prey)
    assert "it is a symbolic link" in failure(AuditLog(folder))
    assert not prey.exists()


def test_a_named_pipe_does_not_block_the_writer(folder: Path) -> None:
    folder.mkdir(parents=True)
    os.mkfifo(folder / "signals.jsonl")
    assert str(folder / "signals.jsonl") in failure(AuditLog(folder))


@pytest.mark.root
def test_a_file_of_another_user_is_refused(folder: Path) -> None:
    folder.mkdir(parents=True)
    path = folder / "signals.jsonl"
    path.touch()
    os.chown(path, 1, 1)
    assert f"it belongs to {pwd.getpwuid(1).pw_name}" in failure(AuditLog(folder))
    assert path.read_bytes() == b""


@pytest.mark.root
def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    folder.mkdir(parents=True)
    os.chown(folder, 1, 1)
    assert "it belongs to" in failure(AuditLog(folder))
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    told = failure(AuditLog(tmp_path / "state" / "gpumon"))
    assert told == (
        "Signals were sent, but are missing in the log "
        f"{tmp_path}/state/gpumon/signals.jsonl: Not a directory"
    )


FULL = """
import pathlib, subprocess, sys
from gpumon.host.process_host import Target
from gpumon.kill.audit_log import AuditLog
from gpumon.model.processes import ProcessId

folder = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", folder], check=True)
target = Target(ProcessId(41233, 777), 1005, command=("x" * 190,))
audit_log = AuditLog(folder)
lines = 0
while audit_log.failure is None:
    audit_log.write(target, 15, "sent")
    audit_log.flush()
    lines += 1
print(audit_log.failure)
content = (folder / "signals.jsonl").read_bytes()
assert content.endswith(b"\\n"), "half a line"
assert content.count(b"\\n") == lines - 1
(folder / "signals.jsonl").write_bytes(b"")
audit_log.write(target, 15, "sent")
audit_log.flush()
print(audit_log.failure)
"""


@pytest.mark.root
@lives.needs("unshare")
def test_a_full_disk_is_reported_and_leaves_no_partial_line(tmp_path: Path) -> None:
    room = ["unshare", "--mount"]
    if subprocess.run([*room, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a mount of one's own takes root")
    done = run_program([*room, sys.executable, "-c", FULL, str(tmp_path)], check=True)
    told, afterwards = done.stdout.splitlines()
    assert told.endswith("No space left on device")
    assert afterwards == "None"


def test_the_log_stays_small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log_module, "MOST_BYTES", 5000)
    audit_log = AuditLog(folder)
    for pid in range(100):
        audit_log.write(Target(ProcessId(pid, 1), 0), signal.SIGTERM, "sent")
    assert audit_log.flush(lives.PATIENCE)
    assert sorted(path.name for path in folder.iterdir()) == ["signals.jsonl", "signals.jsonl.1"]
    sizes = [path.stat().st_size for path in folder.iterdir()]
    assert max(sizes) <= 5000
    pids = [line["pid"] for line in written(folder)]
    assert pids == list(range(100))[-len(pids) :]


def test_a_log_that_hangs_blocks_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a home directory on a network that does not answer."""
    reader, answer = os.pipe()

    make_folder = Path.mkdir

    def hang(*args: Any, **keywords: Any) -> None:
        os.read(reader, 1)
        make_folder(*args, **keywords)

    monkeypatch.setattr(Path, "mkdir", hang)
    audit_log = AuditLog(folder)
    audit_log.write(TRAINING, signal.SIGTERM, "sent")
    audit_log.write(TRAINING, signal.SIGKILL, "sent")
    assert not audit_log.flush(0.01)
    assert "does not answer" in (audit_log.failure or "")
    os.close(answer)
    assert audit_log.flush(lives.PATIENCE)
    assert audit_log.failure is None
    assert [line["signal"] for line in written(folder)] == ["TERM", "KILL"]
    os.close(reader)


def test_two_programs_write_into_one(folder: Path) -> None:
    audit_logs = [AuditLog(folder), AuditLog(folder)]
    for pid in range(50):
        for audit_log in audit_logs:
            audit_log.write(Target(ProcessId(pid, 1), 0), signal.SIGTERM, "sent")
    assert all(audit_log.flush(lives.PATIENCE) for audit_log in audit_logs)
    assert sorted(str(line["pid"]) for line in written(folder)) == sorted(
        str(pid) for pid in [*range(50), *range(50)]
    )


def test_a_line_without_a_thread_is_reported_and_written_with_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    audit_log = AuditLog(folder)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        said = failure(audit_log)
    assert said.endswith("no thread can be started")
    write(audit_log, number=signal.SIGKILL)
    assert [line["signal"] for line in written(folder)] == ["TERM", "KILL"]
    assert audit_log.failure is None


def test_a_line_that_cannot_be_written_for_any_reason_leaves_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_log = AuditLog(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", Mock(side_effect=MemoryError("no memory")))
        assert failure(audit_log).endswith("no memory")
    write(audit_log, number=signal.SIGKILL)
    assert [line["signal"] for line in written(folder)] == ["KILL"]


def test_a_named_pipe_that_somebody_reads_gets_nothing(folder: Path) -> None:
    folder.mkdir(parents=True)
    os.mkfifo(folder / "signals.jsonl")
    reader = os.open(folder / "signals.jsonl", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert failure(AuditLog(folder)).endswith("it is not a regular file")
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


def test_a_line_is_pending_until_it_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, size_of = threading.Event(), os.fstat

    def slow_disk(descriptor: int) -> os.stat_result:
        assert may_write.wait(lives.PATIENCE)
        return size_of(descriptor)

    monkeypatch.setattr(os, "fstat", slow_disk)
    audit_log = AuditLog(folder)
    assert not audit_log.pending
    audit_log.write(TRAINING, signal.SIGTERM, "sent")
    assert audit_log.pending
    may_write.set()
    began = time.monotonic()
    assert audit_log.flush(lives.PATIENCE)
    assert time.monotonic() - began < lives.PATIENCE / 2, "it does not wait any longer"
    assert not audit_log.pending


@pytest.mark.parametrize(("room", "rotates"), [(0, False), (1, True)])
def test_the_line_for_which_there_is_no_room_begins_the_next_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch, room: int, *, rotates: bool
) -> None:
    audit_log = AuditLog(folder)
    for number in (signal.SIGTERM, signal.SIGTERM):
        audit_log.write(TRAINING, number, "sent")
    assert audit_log.flush(lives.PATIENCE)
    line = (folder / "signals.jsonl").stat().st_size // 2
    monkeypatch.setattr(audit_log_module, "MOST_BYTES", 3 * line - room)
    audit_log.write(TRAINING, signal.SIGTERM, "last")
    assert audit_log.flush(lives.PATIENCE)
    outcomes = [entry["outcome"] for entry in written(folder)]
    assert outcomes == (["last"] if rotates else ["sent", "sent", "last"])
    assert (folder / "signals.jsonl.1").exists() is rotates
