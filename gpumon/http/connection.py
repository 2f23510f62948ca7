"""A connection to one HTTP server: bounded time and bounded size, and errors in sentences.

Redirections are not followed: what is sent, such as a password, is for this server alone. Proxies
of the environment are not used.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ERROR = 2**16
"""Bytes that are read of an answer that is no success."""
_PIECE = 2**18


class HttpError(Exception):
    """There is no answer; the message says why, and what to do, without a full stop.

    It is safe to print, and without any secret.

    Attributes:
        lasting: Whether the same request will fail again until somebody changes something.
    """

    def __init__(self, sentence: str, *, lasting: bool = False) -> None:
        super().__init__(sentence)
        self.lasting = lasting


class HttpRequest(NamedTuple):
    """A request; the target is the path with the query."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None


class HttpAnswer(NamedTuple):
    """An answer.

    Attributes:
        status: Its status.
        body: Its body, unpacked, as far as it was read.
        is_whole: Whether it was read to its end.
    """

    status: int
    body: bytes
    is_whole: bool

    @property
    def is_success(self) -> bool:
        """Whether its status is one of success."""
        return _is_success(self.status)


class HttpConnection:
    """A connection, which is kept if the server allows it.

    One thread at a time makes requests; any may call ``close``.

    Args:
        host: Name or address of the server.
        port: Its port.
        context: ``None`` without TLS.
        patience: Seconds that a request may take with everything: connecting, waiting and reading;
            but looking up the name takes as long as the system allows.
        authority: How the user names another authority of certificates.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext | None,
        patience: float,
        *,
        authority: str,
    ) -> None:
        self._host = host
        self._port = port
        self._context = context
        self._patience = patience
        self._authority = authority
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._late = False
        self._lock = threading.Lock()
        self._is_asking = False
        self._closed = False

    def ask(self, request: HttpRequest, most: int) -> HttpAnswer:
        """Send a request and wait for its answer.

        Args:
            request: The request.
            most: Bytes of the body that are read if it is a success; 0 for none.

        Raises:
            HttpError: There is no answer.
        """
        with self._lock:
            if self._closed:
                raise HttpError("the connection is closed", lasting=True)
            self._is_asking, self._late = True, False
        watch = threading.Timer(self._patience, self._expire)
        watch.daemon = True
        watch.start()
        try:
            answer = self._exchange(request, most)
        except Exception as error:  # noqa: BLE001 - http.client lets many kinds through: hostile answers
            self._drop()
            raise self._failure(error) from None
        finally:
            watch.cancel()
            with self._lock:
                self._is_asking = False
                if self._closed:
                    self._drop()
        if self._late:
            # An answer without its length ends when it is cut.
            self._drop()
            raise self._no_answer()
        return answer

    def close(self) -> None:
        """End the connection. A request in progress fails; no other one can be made."""
        with self._lock:
            self._closed = True
            if not self._is_asking:
                self._drop()
        self._cut()

    def _exchange(self, request: HttpRequest, most: int) -> HttpAnswer:
        """Send a request and read the answer; a kept connection may have ended meanwhile."""
        kept = self._connection is not None
        try:
            response = self._send(request)
        except (ConnectionError, http.client.BadStatusLine):
            if not kept or self._late or self._closed:
                raise
            self._drop()
            response = self._send(request)
        # It owns the connection if that ends after it.
        with response:
            if not _is_success(response.status):
                most = min(most, MOST_ERROR) if most else MOST_ERROR
            body, is_whole = _read(response, most)
        if response.will_close or not is_whole:
            self._drop()
        return HttpAnswer(response.status, body, is_whole)

    def _send(self, request: HttpRequest) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = self._new_connection()
            self._connection.connect()
            # Before it has a socket, nothing can be cut: a host may have many silent addresses.
            if self._late or self._closed:
                raise TimeoutError
        connection = self._connection
        connection.request(request.method, request.target, request.body, dict(request.headers))
        # The connection forgets it as soon as the answer says that it ends with it.
        self._socket = connection.sock
        return connection.getresponse()

    def _new_connection(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._patience)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._patience, context=self._context
        )

    def _no_answer(self) -> HttpError:
        return HttpError(f"no answer within {self._patience:g}s")

    def _failure(self, error: Exception) -> HttpError:
        """Why an exchange failed; texts of exceptions are not repeated."""
        if self._late or isinstance(error, TimeoutError):
            return self._no_answer()
        if isinstance(error, ssl.SSLCertVerificationError):
            why = printable(error.verify_message or "certificate verify failed")
            return HttpError(
                f"its certificate is not trusted ({why}): name the authority with"
                f" {self._authority}",
                lasting=True,
            )
        return HttpError(_reason(error))

    def _expire(self) -> None:
        self._late = True
        self._cut()

    def _cut(self) -> None:
        """End what another thread waits for in the connection."""
        connection = self._connection
        sock = None if connection is None else connection.sock or self._socket
        if sock is not None:
            with suppress(OSError):
                # Closing would not wake the other thread.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _drop(self) -> None:
        connection, self._connection, self._socket = self._connection, None, None
        if connection is not None:
            connection.close()


def _is_success(status: int) -> bool:
    return 200 <= status < 300


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved: check the spelling and DNS"
    if isinstance(error, ssl.SSLError):
        return "TLS fails: does it speak http:// only, or another version of TLS?"
    if isinstance(error, ConnectionRefusedError):
        return "it refuses connections: it does not run, or listens on another port"
    if isinstance(error, (http.client.IncompleteRead, zlib.error)):
        return "its answer was cut off"
    if isinstance(error, http.client.RemoteDisconnected) or (
        isinstance(error, ConnectionError) and not isinstance(error, http.client.HTTPException)
    ):
        return "it closed the connection without an answer"
    if isinstance(error, http.client.HTTPException):
        return "the server does not speak HTTP: check the port, or use https://"
    if isinstance(error, OSError) and error.strerror:
        return f"it cannot be reached: {printable(error.strerror).lower()}"
    return "its answer cannot be read"


def _read(response: http.client.HTTPResponse, most: int) -> tuple[bytes, bool]:
    """The body, unpacked, and whether it is whole: no more than ``most`` bytes are kept."""
    if most == 0:
        return b"", False
    packed = response.headers.get("Content-Encoding", "").strip().lower()
    unzip = zlib.decompressobj(16 + zlib.MAX_WBITS) if packed == "gzip" else None
    pieces: list[bytes] = []
    size = 0
    while piece := response.read(_PIECE):
        if unzip is not None:
            piece = unzip.decompress(piece, most - size + 1)
        size += len(piece)
        if size > most:
            return b"".join(pieces), False
        pieces.append(piece)
    if response.length:
        raise http.client.IncompleteRead(b"")
    if unzip is not None and not unzip.eof:
        raise zlib.error
    return b"".join(pieces), True
