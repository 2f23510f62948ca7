"""The HTTP server: one request per connection, on a bounded number of threads.

A slow client delays nobody: its connection ends at a deadline in any case, and earlier if all
threads are in use. A TLS handshake runs on the thread of its connection, because on the accepting
thread one silent client would stop all others.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from socketserver import BaseServer, TCPServer
from typing import TYPE_CHECKING

from prometheus_client.exposition import gzip_accepted

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpumon.exporter.access import PageAccess, Rules
    from gpumon.exporter.metrics_page import Page

MOST_CONNECTIONS = 64
_PAUSE = 0.05
_HEAD_BYTES = 16384
_BODY_BYTES = 65536

_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_HTML = "text/html; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_ROOT = b"""<!DOCTYPE html>
<html lang="en"><head><title>gpumon exporter</title></head>
<body><h1>gpumon exporter</h1><p><a href="/metrics">Metrics</a> for Prometheus</p></body></html>
"""


class MetricsServer(TCPServer):
    """Answers scrapes; ``serve_forever`` runs it, and ``shutdown`` ends it.

    It closes the listening socket.

    Args:
        listener: The listening socket.
        newest: Gives the newest page.
        access: Who may read it.
        deadline: Seconds for a whole connection: handshake, request and answer.
        room_after: While all threads are in use, the oldest connection ends if it has lasted this
            many seconds.
    """

    def __init__(
        self,
        listener: socket.socket,
        newest: Callable[[], Page],
        access: PageAccess,
        *,
        deadline: float = 10.0,
        room_after: float = 1.0,
    ) -> None:
        BaseServer.__init__(self, listener.getsockname(), BaseHTTPRequestHandler)
        self.socket = listener
        self.newest = newest
        self.access = access
        self.room_after = room_after
        self._deadline = deadline
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._changing = threading.Lock()
        self._began: dict[socket.socket, float] = {}
        self._stopping = False

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return len(self._began)

    def get_request(self) -> tuple[socket.socket, Any]:
        """See ``TCPServer``."""
        try:
            return super().get_request()
        except OSError:
            # Without a free descriptor it fails at once, again and again.
            time.sleep(_PAUSE)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own, when one is free. See ``TCPServer``."""
        while not self._free.acquire(timeout=_PAUSE):
            if self._stopping:
                request.close()
                return
            self._end_oldest()
        with self._changing:
            self._began[request] = time.monotonic()
        thread = threading.Thread(
            target=self._answer, args=(request, client_address), name="gpumon-http", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            # No thread can be started now: the client may try again.
            self._end(request)

    def service_actions(self) -> None:
        """End connections that have lasted too long. Called several times a second."""
        self._end_older_than(self._deadline)

    def shutdown(self) -> None:
        """See ``BaseServer``. Does not wait for threads that are all in use."""
        self._stopping = True
        super().shutdown()

    def server_close(self) -> None:
        """Close the listening socket and all connections."""
        super().server_close()
        self._end_older_than(0.0)

    def _end_oldest(self) -> None:
        with self._changing:
            oldest = min(self._began.values(), default=0.0)
        age = time.monotonic() - oldest
        if age > self.room_after:
            self._end_older_than(age)

    def _end_older_than(self, seconds: float) -> None:
        """Shut down these connections: what their threads wait for then fails at once."""
        latest = time.monotonic() - seconds
        with self._changing:
            for connection, began in self._began.items():
                if began <= latest:
                    with suppress(OSError):
                        # A TLS connection's own method would change it under its thread.
                        socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def _answer(self, request: socket.socket, client_address: Any) -> None:
        connection = request
        try:
            rules = self.access.rules()
            if rules is None:
                return
            request.settimeout(self._deadline)
            if rules.context is not None:
                connection = self._secured(request, rules.context)
                connection.do_handshake()
                if not rules.knows_client(connection):
                    return
            _Handler(connection, client_address, self, rules)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            # The client is gone, too slow, or does not speak TLS: that is its own affair.
            pass
        finally:
            self._end(connection)

    def _secured(self, request: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
        """The connection with TLS, before its handshake, in place of that without."""
        with self._changing:
            began = self._began.pop(request)
            secured = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            self._began[secured] = began
        return secured

    def _end(self, connection: socket.socket) -> None:
        with self._changing:
            # With the lock, so that no other connection gets this descriptor while it is shut down.
            self._began.pop(connection, None)
            connection.close()
        self._free.release()


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: MetricsServer
    disable_nagle_algorithm = True
    wbufsize = -1

    def __init__(
        self, request: socket.socket, client_address: Any, server: MetricsServer, rules: Rules
    ) -> None:
        self._rules = rules
        super().__init__(request, client_address, server)

    def handle(self) -> None:
        """Read the head of a request, of a bounded size, and answer it."""
        head = self._read_head()
        if head is None:
            return
        self.rfile = BytesIO(head)
        self.raw_requestline = self.rfile.readline()
        if self.parse_request():
            self._answer()
            self._read_body()

    def version_string(self) -> str:
        """The header ``Server``, without a version."""
        return "gpumon"

    def log_message(self, *_: object) -> None:
        """Log nothing: a scrape every few seconds is no news."""

    def _read_head(self) -> bytes | None:
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head:
            if len(head) >= _HEAD_BYTES:
                self.request_version = "HTTP/1.0"
                self.requestline = self.command = ""
                self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return None
            more = self.connection.recv(_HEAD_BYTES)
            if not more:
                return None
            head += more
        return head

    def _read_body(self) -> None:
        """Read a body that nobody asked for: closing before it is read would discard the answer."""
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.wfile.flush()
            self.connection.settimeout(self.server.room_after)
            self.connection.recv(_BODY_BYTES)

    def _answer(self) -> None:
        # The headers of a request without a version are a plain dictionary from Python 3.14 on.
        rules = self._rules
        if not rules.has_room():
            self._send(HTTPStatus.TOO_MANY_REQUESTS)
        elif not self.server.access.is_password_right(rules, self.headers.get("Authorization")):
            self._send(HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": "Basic"})
        else:
            self._answer_path(self.path.partition("?")[0])

    def _answer_path(self, path: str) -> None:
        if path not in {"/", "/metrics", "/-/healthy"}:
            self._send(HTTPStatus.NOT_FOUND)
        elif self.command not in {"GET", "HEAD"}:
            self._send(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "GET, HEAD"})
        elif path == "/metrics":
            self._send_metrics()
        elif path == "/":
            self._send(HTTPStatus.OK, _ROOT, _HTML)
        else:
            self._send(HTTPStatus.OK, b"gpumon exporter is healthy.\n")

    def _send_metrics(self) -> None:
        page = self.server.newest()
        headers = {"Vary": "Accept-Encoding"}
        if gzip_accepted(self.headers.get("Accept-Encoding") or ""):
            headers["Content-Encoding"] = "gzip"
            self._send(HTTPStatus.OK, page.zipped, _METRICS, headers)
        else:
            self._send(HTTPStatus.OK, page.text, _METRICS, headers)

    def _send(
        self,
        status: HTTPStatus,
        body: bytes | None = None,
        kind: str = _TEXT,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send an answer; without a body its text is that of the status."""
        content = f"{status.value} {status.phrase}\n".encode() if body is None else body
        self.send_response(status)
        for name, value in {**self._rules.headers, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
