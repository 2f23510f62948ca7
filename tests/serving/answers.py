"""What a fake server does, as a program of its own: another user may not read these tests."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

HANGS, DRIPS, FLOODS = b"hangs", b"drips", b"floods"
"""Answers that do not end: nothing, a byte every tenth of a second, and gigabytes."""


def reply(connection: socket.socket, wanted: bytes) -> None:
    """Send an answer, until the other end has had enough."""
    with connection, suppress(OSError):
        if wanted == HANGS:
            connection.recv(2**16)
            time.sleep(60)
        elif wanted == DRIPS:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while True:
                connection.sendall(b"x")
                time.sleep(0.1)
        elif wanted == FLOODS:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(b"vllm:num_requests_running 1\n" * 4096)
        else:
            connection.sendall(wanted)


def serve(folder: Path) -> None:
    """Listen at the place in a file of this folder, and answer with what another file has."""
    host, _, port = folder.joinpath("place").read_text().rpartition(":")
    listener = socket.create_server((host, int(port)))
    folder.joinpath("listens").touch()
    while True:
        connection, _ = listener.accept()
        request = connection.recv(2**16)
        with folder.joinpath("requests").open("ab") as requests:
            requests.write(request + b"\0")
        wanted = folder.joinpath("answer").read_bytes()
        threading.Thread(target=reply, args=(connection, wanted), daemon=True).start()


if __name__ == "__main__":
    serve(Path(__file__).parent)
