"""How tmux sessions get their names, from a real tmux and from sockets that are none."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.host.containers import RETRY_SECONDS
from gpumon.host.tmux import TmuxNames, TmuxSession, tmux_session
from tests import lives
from tests.absent import ABSENT

NEEDS_TMUX = lives.needs("tmux")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: that of a socket may have 107 characters."""
    path = tempfile.mkdtemp(prefix="gm")
    yield Path(path)
    shutil.rmtree(path, ignore_errors=True)  # tmux may be taking its socket away just now


def ask(path: Path, *command: str) -> str:
    whole = ["tmux", "-u", "-S", str(path), "-f", "/dev/null", *command]
    return subprocess.run(whole, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@pytest.fixture
def server(folder: Path) -> Iterator[Path]:
    """The socket of a real tmux with the sessions 0, ``träin me``, and 1, ``other``."""
    path = folder / "s"
    ask(path, "new-session", "-d", "-s", "träin me", "cat")
    try:
        ask(path, "new-session", "-d", "-s", "other", "cat")
        yield path
    finally:
        ask(path, "kill-server")


@pytest.fixture
def silent(folder: Path) -> Iterator[socket.socket]:
    """A socket of ours that accepts and says nothing."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()
        listener.setblocking(False)
        yield listener


def was_asked(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@NEEDS_TMUX
def test_a_session_of_ours_has_its_name(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    pid = int(ask(server, "display-message", "-p", "-t", "other", "#{pid}"))
    names = TmuxNames()
    assert names.name(TmuxSession(str(server), pid, "0"), 0.0) == "träin me"
    assert names.name(TmuxSession(str(server), pid, "1"), 0.0) == "other"
    assert names.name(TmuxSession(str(server), pid, "2"), 0.0) is None
    assert names.name(TmuxSession(str(server), pid + 1, "0"), 0.0) is None, "an earlier server's"


@NEEDS_TMUX
def test_a_renamed_session_has_its_new_name_after_a_minute(server: Path) -> None:
    pid = int(ask(server, "display-message", "-p", "-t", "other", "#{pid}"))
    session = TmuxSession(str(server), pid, "1")
    names = TmuxNames()
    assert names.name(session, 0.0) == "other"
    ask(server, "rename-session", "-t", "other", "new")
    assert names.name(session, RETRY_SECONDS - 1) == "other"
    assert names.name(session, RETRY_SECONDS) == "new"


@NEEDS_TMUX
def test_a_server_that_hangs_is_asked_once_a_minute(folder: Path, silent: socket.socket) -> None:
    names = TmuxNames(patience=0.1)
    for now in range(int(RETRY_SECONDS)):
        assert names.name(TmuxSession(str(folder / "s"), 1, "0"), float(now)) is None
    assert was_asked(silent)
    assert not was_asked(silent)


@pytest.mark.root
def test_a_socket_of_another_user_is_never_spoken_to(folder: Path, silent: socket.socket) -> None:
    os.chown(folder / "s", 65534, 65534)
    assert TmuxNames().name(TmuxSession(str(folder / "s"), 1, "0"), 0.0) is None
    assert not was_asked(silent)


def test_a_link_to_a_socket_is_not_followed(folder: Path, silent: socket.socket) -> None:
    (folder / "link").symlink_to("s")
    assert TmuxNames().name(TmuxSession(str(folder / "link"), 1, "0"), 0.0) is None
    assert not was_asked(silent)


@pytest.mark.parametrize("path", [f"{ABSENT}/default", "/etc/passwd", "", "a\0b"])
def test_a_path_without_a_socket_is_no_name(path: str) -> None:
    assert TmuxNames().name(TmuxSession(path, 1, "0"), 0.0) is None


def test_the_variable_is_taken_apart() -> None:
    assert tmux_session("/tmp/a,b/default,3912,0") == TmuxSession("/tmp/a,b/default", 3912, "0")
    assert tmux_session("/tmp/tmux-0/default,٣,0") is None
    assert tmux_session("/tmp/tmux-0/default,1") is None
    assert tmux_session("") is None


@given(st.text())
def test_no_variable_makes_it_fail(value: str) -> None:
    tmux_session(value)
    tmux_session(f"{value},{'9' * 5000},1")
