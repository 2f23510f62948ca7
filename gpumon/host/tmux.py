"""The names of our own tmux sessions.

tmux leaves every process the number of its session; the name is the server's to tell.
"""

from __future__ import annotations

import os
import stat

from msgspec import Struct

from gpumon.host.containers import RETRY_SECONDS

_ANSWER_SECONDS = 1.0
_SESSIONS = 256


class TmuxSession(Struct, frozen=True):
    """What ``TMUX`` holds in the environment of a process inside tmux.

    Attributes:
        socket: Path of the server's socket.
        server: The server's process number.
        session: The session's number; it stays with a session that is renamed.
    """

    socket: str
    server: int
    session: str


def tmux_session(value: str) -> TmuxSession | None:
    """Read a ``TMUX`` variable: ``/tmp/tmux-1000/default,3912,0``."""
    parts = value.rsplit(",", 2)
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() for part in parts[1:]):
        return None
    socket, server, session = parts
    return TmuxSession(socket, int(server[:10]), session[:10])


class TmuxNames:
    """Asks tmux servers for their sessions' names, each at most once in ``RETRY_SECONDS``.

    Not safe to use from several threads.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[str, int], tuple[float, dict[str, str]]] = {}

    def name(self, session: TmuxSession, now: float) -> str | None:
        """The session's name; ``None`` where its server is not ours or does not say.

        Args:
            session: From the environment of one of our own processes. A program of ours is never
                to speak to a socket that another user chose.
            now: Seconds on the monotonic clock.
        """
        server = session.socket, session.server
        asked_at, names = self._names.get(server, (None, {}))
        if asked_at is None or now - asked_at >= RETRY_SECONDS:
            names = _sessions(session) if _is_our_socket(session.socket) else {}
            fresh = now - RETRY_SECONDS
            self._names = {key: one for key, one in self._names.items() if one[0] > fresh}
            self._names[server] = now, names
        return names.get(session.session)


def _is_our_socket(path: str) -> bool:
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid()


def _sessions(session: TmuxSession) -> dict[str, str]:
    """Name by number, of the server that made the session and no later one at its place."""
    # Few have a tmux to ask.
    import subprocess

    # Without -u, tmux writes underscores for what the locale of its client cannot show.
    command = ["tmux", "-u", "-S", session.socket, "list-sessions"]
    try:
        answer = subprocess.run(
            [*command, "-F", "#{pid} #{session_id} #{session_name}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_ANSWER_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    names = {}
    for line in answer.decode(errors="replace").splitlines()[:_SESSIONS]:
        server, _, rest = line.partition(" ")
        number, _, name = rest.partition(" ")
        if server == str(session.server) and name:
            names[number.removeprefix("$")] = name
    return names
