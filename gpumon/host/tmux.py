"""The names of tmux sessions."""

from __future__ import annotations

import os
import stat

from msgspec import Struct

from gpumon.host.containers import RETRY_SECONDS

_TMUX_SECONDS = 1.0
_TMUX_SESSIONS = 256


class TmuxSession(Struct, frozen=True):
    """The content of the variable ``TMUX`` of a process inside tmux."""

    socket: str  # path of the server's socket
    server: int  # PID of the server
    session: str  # the session's number, which does not change when it is renamed


def tmux_session(value: str) -> TmuxSession | None:
    """Parse a ``TMUX`` variable: ``/tmp/tmux-1000/default,3912,0``."""
    parts = value.rsplit(",", 2)
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() for part in parts[1:]):
        return None
    socket, server, session = parts
    return TmuxSession(socket, int(server[:10]), session[:10])


class TmuxNames:
    """Reads session names from tmux servers, from each at most once in ``RETRY_SECONDS``.

    The environment of a process has only the number of its session.

    Not thread-safe.

    Args:
        patience: Seconds to wait for a server.
    """

    def __init__(self, patience: float = _TMUX_SECONDS) -> None:
        self._patience = patience
        self._names: dict[tuple[str, int], tuple[float, dict[str, str]]] = {}

    def name(self, session: TmuxSession, now: float) -> str | None:
        """The session's name; ``None`` if its server belongs to another user or does not respond.

        Args:
            session: From the environment of a process of this user: gpumon must never connect to a
                socket that another user chose.
            now: Seconds on the monotonic clock.
        """
        server = session.socket, session.server
        asked_at, names = self._names.get(server, (None, {}))
        if asked_at is None or now - asked_at >= RETRY_SECONDS:
            ours = _is_our_socket(session.socket)
            names = _sessions(session, self._patience) if ours else {}
            fresh = now - RETRY_SECONDS
            self._names = {key: known for key, known in self._names.items() if known[0] > fresh}
            self._names[server] = now, names
        return names.get(session.session)


def _is_our_socket(path: str) -> bool:
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid()


def _sessions(session: TmuxSession, patience: float) -> dict[str, str]:
    """Names by number, if the server is still the one that created the session."""
    # Imported here because few users run tmux.
    import subprocess

    # Without -u, tmux writes underscores for what the locale of its client cannot show.
    command = ["tmux", "-u", "-S", session.socket, "list-sessions"]
    try:
        answer = subprocess.run(
            [*command, "-F", "#{pid} #{session_id} #{session_name}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=patience,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    names = {}
    for line in answer.decode(errors="replace").splitlines()[:_TMUX_SESSIONS]:
        server, _, rest = line.partition(" ")
        number, _, name = rest.partition(" ")
        if server == str(session.server) and name:
            names[number.removeprefix("$")] = name
    return names
