"""HTTP over a Unix socket. Imported only if a socket exists, because the import takes 20 ms."""

from __future__ import annotations

import http.client
import socket
from contextlib import closing


def ask(path: str, question: str, seconds: float, most: int) -> bytes | None:
    """The body of the response to a GET request.

    Args:
        path: Path of the socket.
        question: The requested URL.
        seconds: Timeout of each step.
        most: Maximum number of bytes to read.

    Returns:
        ``None`` without a response or if it is not a success.
    """
    with closing(_UnixConnection(path, seconds)) as connection:
        try:
            connection.request("GET", question)
            with closing(connection.getresponse()) as response:
                body = response.read(most)
                return body if response.status == http.client.OK else None
        except (OSError, http.client.HTTPException):
            return None


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
