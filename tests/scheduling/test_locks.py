"""A card that is reserved is nobody else's, whatever lies in the folder of the locks."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpumon.scheduling.lock_folder import FolderError
from gpumon.scheduling.locks import Locks, TakenError, holder_sentence, holders_now, is_locked, lock
from tests.known import known
from tests.scheduling.holding import holder
from tests.screen import PATIENCE

NOBODY = 65534
A, B, C = "GPU-aaaa", "GPU-bbbb", "GPU-cccc"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where locks go that cannot be shared."""
    monkeypatch.setenv("GPUMON_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path / "runtime" / "gpumon"


def locks(folder: Path | str) -> Locks:
    return Locks(str(folder), os.environ)


@contextmanager
def taken(folder: Path | str, *uuids: str) -> Iterator[Locks]:
    """The locks of a program that has reserved these until the end of the block."""
    mine = locks(folder)
    with closing(mine.take(uuids, "x")):
        yield mine


def test_a_reserved_gpu_cannot_be_reserved_again_until_it_is_released(folder: Path) -> None:
    mine, other = locks(folder), locks(folder)
    assert (mine.trouble, mine.holders([A, B])) == ("", {})
    held = mine.take([A], "python train.py")
    with pytest.raises(TakenError) as taken:
        other.take([A], "x")
    assert str(taken.value) == A
    assert list(other.holders([A, B])) == [A]
    held.close()
    held.close()
    assert other.holders([A, B]) == {}
    other.take([A], "x").close()


def test_several_gpus_are_reserved_together_or_not_at_all(folder: Path) -> None:
    other = locks(folder)
    with taken(folder, B):
        with pytest.raises(TakenError):
            other.take([A, B, C], "")
        assert set(other.holders([A, B, C])) == {B}


def test_of_two_jobs_that_want_the_same_gpus_one_gets_all(folder: Path) -> None:
    with taken(folder, A):
        with pytest.raises(TakenError) as refused:
            locks(folder).take([B, A], "")
        assert str(refused.value) == A
        assert not (folder / f"{B}.lock").exists(), "it was never in the way of who has the first"


def test_the_holder_is_known_and_kill_9_frees_its_gpu(folder: Path) -> None:
    before = time.time()
    with holder(folder, A) as process:
        found = locks(folder).holders([A])[A]
        assert found.pid == process.pid
        assert found.since is not None
        assert before <= found.since <= time.time()
        assert holder_sentence(found, found.since + 720) == (
            f"reserved by {known(found.user)} for 12m, gpumon run {process.pid}: python train.py"
        )
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        assert locks(folder).holders([A]) == {}
        locks(folder).take([A], "").close()


def test_a_false_claim_names_no_holder(folder: Path) -> None:
    file = folder / f"{A}.lock"
    with taken(folder, A) as mine:
        never = json.dumps({**json.loads(file.read_text()), "since": 1e300})
        for claim in ('{"pid":1,"start_time":12345,"since":0}', never, "\x1b[2J", "[" * 10000, ""):
            file.write_text(claim)
            told = holder_sentence(mine.holders([A])[A], 0)
            assert told == "reserved by a process that is not visible here"


def test_all_users_can_open_a_lock_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        locks(folder).take([A], "").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder / f"{A}.lock").stat().st_mode) == 0o666


def test_a_planted_link_is_not_followed(folder: Path, tmp_path: Path, own: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    locks(folder).close()
    (folder / f"{A}.lock").symlink_to(victim)
    os.link(victim, folder / f"{B}.lock")
    (folder / f"{C}.lock").symlink_to(tmp_path / "to be made")
    for uuid, words in ((A, "is a symbolic link that"), (B, "other names"), (C, "symbolic link")):
        with taken(folder, uuid) as mine:
            assert words in mine.trouble
            assert (own / f"{uuid}.lock").exists()
            assert set(locks(folder).holders([A, B, C])) == {uuid}
    assert victim.read_text() == "precious"
    assert not (tmp_path / "to be made").exists()


def test_a_link_that_is_planted_between_the_look_and_the_opening_is_not_followed(
    folder: Path, tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    locks(folder).take([A], "x").close()
    file = folder / f"{A}.lock"
    look = os.stat

    def plant(path: str, **options: Any) -> os.stat_result:
        found = look(path, **options)
        if path == file.name and not file.is_symlink():
            file.unlink()
            file.symlink_to(victim)
        return found

    monkeypatch.setattr(os, "stat", plant)
    with taken(folder, A) as mine:
        assert file.is_symlink()
        assert (own / file.name).exists()
        assert str(file) in mine.trouble
    assert victim.read_text() == "precious"


def test_an_entry_that_is_no_file_is_not_opened(folder: Path) -> None:
    locks(folder).close()
    os.mkfifo(folder / f"{A}.lock")
    (folder / f"{B}.lock").mkdir()
    with taken(folder, A, B) as mine:
        assert "is no plain file that" in mine.trouble


def test_an_unsafe_folder_is_not_used(tmp_path: Path) -> None:
    loose, real, link = tmp_path / "loose", tmp_path / "real", tmp_path / "link"
    loose.mkdir()
    loose.chmod(0o777)
    real.mkdir()
    link.symlink_to(real)
    (tmp_path / "file").write_text("")
    for path, words in (
        (loose, "not sticky"),
        (link, "cannot be used: it is a symbolic link"),
        (tmp_path / "file", "cannot be used"),
        (tmp_path / "no" / "folder", "cannot be used"),
    ):
        with taken(path, A) as mine:
            assert words in mine.trouble
            # This user's own programs keep out of one another's way all the same.
            with pytest.raises(TakenError):
                locks(path).take([A], "")


def test_without_a_writable_folder_locks_work_for_this_user_only() -> None:
    with taken("/proc/self/task", A) as mine:
        assert "cannot be made" in mine.trouble
        assert set(locks("/proc/self/task").holders([A])) == {A}


def test_an_unreadable_folder_is_reported(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(NOBODY)
        assert "Permission denied" in locks(closed / "locks").trouble
    finally:
        os.seteuid(user)
        closed.chmod(0o700)


def test_the_default_folder_is_open_to_all_users_or_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o1777)
    monkeypatch.delenv("GPUMON_LOCK_DIR", raising=False)
    monkeypatch.setattr("gpumon.scheduling.lock_folder.SHARED_PARENTS", (str(tmp_path),))
    (tmp_path / "gpumon").mkdir(mode=0o755)
    assert "is not open to everybody (mode 1777)" in Locks(None, os.environ).trouble


def test_a_private_folder_of_another_is_not_used(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: own.stat().st_uid + 1)
    with pytest.raises(FolderError):
        locks("/proc/self/task").take([A], "")
    assert list(own.iterdir()) == []


def test_a_full_disk_does_not_matter(folder: Path) -> None:
    with holder(folder, A, size=0):
        with pytest.raises(TakenError):
            locks(folder).take([A], "")
        assert locks(folder).holders([A])[A].pid is None
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0


def test_a_lock_whose_file_was_removed_is_taken_again(folder: Path) -> None:
    mine = locks(folder)
    mine.take([A], "").close()
    (folder / f"{A}.lock").unlink()
    with closing(mine.take([A], "")):
        assert set(mine.holders([A])) == {A}


def test_a_lock_whose_file_is_removed_meanwhile_is_taken_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def locked_and_gone(descriptor: int, **how: int) -> bool:
        tries.append(descriptor)
        done = lock(descriptor, **how)
        if len(tries) == 1:
            (folder / f"{A}.lock").unlink()
        return done

    monkeypatch.setattr("gpumon.scheduling.locks.lock", locked_and_gone)
    with taken(folder, A):
        assert set(locks(folder).holders([A])) == {A}


def test_a_uuid_cannot_lead_out_of_the_folder(folder: Path) -> None:
    locks(folder).take(["../../x/y\n"], "").close()
    assert [path.name for path in folder.iterdir()] == ["______x_y_.lock"]


def test_readers_do_not_mistake_each_other_for_holders(folder: Path) -> None:
    folder.mkdir()
    with (folder / "a").open("w") as one, (folder / "a").open() as other:
        fcntl.flock(one, fcntl.LOCK_SH)
        assert not is_locked(other.fileno())
        fcntl.flock(one, fcntl.LOCK_EX)
        assert is_locked(other.fileno())


def test_reading_creates_no_folder(folder: Path, own: Path) -> None:
    looking = Locks(str(folder), os.environ, make=False)
    assert looking.holders([A, B]) == {}
    assert looking.trouble == ""
    assert holders_now([A]) == {}
    assert not folder.exists()
    assert not own.exists()


WITHIN = """
import os, subprocess, sys
from gpumon.scheduling.locks import Locks
folder, uuid, inside = sys.argv[1:]
locks = Locks(folder, os.environ)
assert locks.others([uuid]) == {}, locks.others([uuid])
with_it = locks.take([uuid], "x")
if inside:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-x," + uuid}
    subprocess.run([sys.executable, "-c", inside, folder, uuid, ""], env=env, check=True)
"""


def test_inside_a_run_its_gpus_are_available(folder: Path) -> None:
    command = [sys.executable, "-c", WITHIN, str(folder), A, WITHIN]
    assert subprocess.run(command, check=False, timeout=PATIENCE).returncode == 0
    # Where the variable does not name the card it is somebody else's.
    alone = WITHIN.replace('"GPU-x," + uuid', '"GPU-x"')
    command = [sys.executable, "-c", alone, str(folder), A, WITHIN]
    refused = subprocess.run(command, check=False, timeout=PATIENCE, capture_output=True)
    assert b"AssertionError: {'GPU-aaaa'" in refused.stderr


@pytest.mark.root
def test_all_users_share_the_locks() -> None:
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        folder = Path(parent, "locks")
        mine = locks(folder)
        held = mine.take([A], "")
        (folder / f"{B}.lock").touch()
        (folder / f"{B}.lock").chmod(0o644)
        os.seteuid(NOBODY)
        try:
            other = locks(folder)
            with pytest.raises(TakenError):
                other.take([A], "")
            # Not to be written by everybody, and locked all the same.
            of_other = other.take([B, C], "")
            assert other.trouble == ""
        finally:
            os.seteuid(0)
        assert set(mine.holders([A, B, C])) == {A, B, C}
        with pytest.raises(TakenError):
            mine.take([C], "")
        of_other.close()
        held.close()
        mine.take([A, B, C], "").close()


# Whoever only looks for reservations leaves nothing behind


def test_the_holder_is_known_until_the_release(folder: Path) -> None:
    with closing(locks(folder).take([A], "python train.py")):
        held = holders_now([A, B])
        assert list(held) == [A]
        assert (held[A].pid, held[A].command) == (os.getpid(), "python train.py")
    assert holders_now([A, B]) == {}


def test_a_replaced_folder_is_found(folder: Path) -> None:
    locks(folder).close()
    assert holders_now([A]) == {}
    folder.rename(folder.with_name("old"))
    with taken(folder, A):
        assert list(holders_now([A])) == [A]


def test_reading_keeps_no_file_open(folder: Path) -> None:
    locks(folder).close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        holders_now([A, B])
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
