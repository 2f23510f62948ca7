"""A server that answers as a test says, byte by byte."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator


class HostileServer:
    """Gives the same answer to every request.

    It is bytes, or a function that writes to the connection; ``None`` closes the connection.
    """

    def __init__(
        self,
        answer: bytes | Callable[[socket.socket], None] | None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.answer = answer
        self.requests: list[str] = []
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            with connection:
                asked = b""
                while data := connection.recv(65536):
                    asked += data
                    # A client that begins with TLS where there is none gets an answer, too.
                    if b"\r\n\r\n" not in asked and not asked.startswith(b"\x16"):
                        continue
                    self.requests.append(asked.decode("latin-1"))
                    asked = b""
                    if self.answer is None:
                        return
                    if isinstance(self.answer, bytes):
                        connection.sendall(self.answer)
                    else:
                        self.answer(connection)
                        return

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def answering(
    answer: bytes | Callable[[socket.socket], None] | None, context: ssl.SSLContext | None = None
) -> Iterator[HostileServer]:
    server = HostileServer(answer, context)
    try:
        yield server
    finally:
        server.close()


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def drip(begin: bytes, more: bytes) -> Callable[[socket.socket], None]:
    """Write the beginning, and then a byte now and then, without end."""

    def write(connection: socket.socket) -> None:
        connection.sendall(begin)
        while True:
            time.sleep(0.05)
            connection.sendall(more)

    return write
