"""Queries over HTTP: one connection that is kept, bounded time and bounded size."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlencode

from msgspec import DecodeError
from msgspec.json import Decoder

from gpumon.prometheus.endpoint import SecretError
from gpumon.prometheus.series import Answer, Series
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.prometheus.endpoint import Endpoint

PATIENCE = 10.0
"""Seconds that a query may take with everything: connecting, waiting and reading."""
_SERVER_SECONDS = 8
"""Prometheus itself gives up after so many, so that what nobody waits for costs it nothing."""
MOST_BYTES = 64 * 2**20
"""Bytes of an answer: 10,000 GPUs with all labels have 3 MB a metric."""
_MOST_ERROR = 2**16
_PIECE = 2**18
_SHOWN = 160
_decode = Decoder(Answer).decode


class QueryError(Exception):
    """There is no answer.

    Attributes:
        sentence: Why, and what to do, without a full stop. Safe to print; without any secret.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class PrometheusClient:
    """Asks one server. One thread at a time makes queries; any may call ``close``.

    Args:
        endpoint: The server.
        patience: Seconds that a query may take.
    """

    def __init__(self, endpoint: Endpoint, patience: float = PATIENCE) -> None:
        self.endpoint = endpoint
        self._patience = patience
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._late = False
        self._lock = threading.Lock()
        self._is_asking = False
        self._closed = False

    def query(self, expression: str) -> tuple[Series, ...]:
        """The series of an expression at this moment.

        Raises:
            QueryError: There is no answer.
        """
        return self._ask("query", {"query": expression})

    def query_range(
        self, expression: str, start: float, end: float, step: float
    ) -> tuple[Series, ...]:
        """The series of an expression over time.

        Args:
            expression: The expression.
            start: The first moment, by the clock of Prometheus.
            end: The last moment.
            step: Seconds between two.

        Raises:
            QueryError: There is no answer.
        """
        span = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return self._ask("query_range", {"query": expression, **span})

    def close(self) -> None:
        """End the connection. A query in progress fails; no other one can be made."""
        with self._lock:
            self._closed = True
            if not self._is_asking:
                self._drop()
        self._cut()

    def _ask(self, function: str, terms: dict[str, str]) -> tuple[Series, ...]:
        # GET, since the access rules of some proxies take POST for writing.
        text = urlencode({**terms, "timeout": f"{_SERVER_SECONDS}s"})
        target = f"{self.endpoint.path}/api/v1/{function}?{text}"
        with self._lock:
            if self._closed:
                raise QueryError("it is not asked any more")
            self._is_asking, self._late = True, False
        watch = threading.Timer(self._patience, self._expire)
        watch.daemon = True
        watch.start()
        try:
            status, body = self._exchange(target)
        except QueryError:
            self._drop()
            raise
        except Exception as error:  # noqa: BLE001 - http.client lets many kinds through: hostile answers
            self._drop()
            raise QueryError(self._reason(error)) from None
        finally:
            watch.cancel()
            with self._lock:
                self._is_asking = False
                if self._closed:
                    self._drop()
        if self._late:
            # An answer without its length ends when it is cut.
            self._drop()
            raise QueryError(f"no answer within {self._patience:g}s")
        return self._result(status, body)

    def _exchange(self, target: str) -> tuple[int, bytes]:
        """Send a request and read the answer; a kept connection may have ended meanwhile."""
        kept = self._connection is not None
        try:
            response = self._request(target)
        except (ConnectionError, http.client.BadStatusLine):
            if not kept or self._late or self._closed:
                raise
            self._drop()
            response = self._request(target)
        # It owns the connection if that ends after it.
        with response:
            if 300 <= response.status < 400:
                raise QueryError(
                    f"it redirects (status {response.status}), which gpumon does not follow: give"
                    " the URL of Prometheus itself"
                )
            most = MOST_BYTES if response.status == 200 else _MOST_ERROR
            body = b"".join(_pieces(response, most))
        if response.will_close:
            self._drop()
        return response.status, body

    def _request(self, target: str) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = self._new_connection()
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        try:
            authorization = self.endpoint.authorization()
        except SecretError as error:
            raise QueryError(str(error)) from None
        if authorization is not None:
            headers["Authorization"] = authorization
        connection = self._connection
        connection.request("GET", target, headers=headers)
        # The connection forgets it as soon as the answer says that it ends with it.
        self._socket = connection.sock
        return connection.getresponse()

    def _new_connection(self) -> http.client.HTTPConnection:
        end = self.endpoint
        if end.context is None:
            return http.client.HTTPConnection(end.host, end.port, timeout=self._patience)
        return http.client.HTTPSConnection(
            end.host, end.port, timeout=self._patience, context=end.context
        )

    def _result(self, status: int, body: bytes) -> tuple[Series, ...]:
        try:
            answer = _decode(body)
        except (DecodeError, RecursionError, ValueError):
            answer = None
        if status != 200:
            self._refuse(status, "" if answer is None else answer.error)
        if answer is None:
            raise QueryError(
                "its answer is not what Prometheus writes: check the address and its path"
            )
        if answer.status != "success" or answer.data is None:
            raise QueryError(f"it refuses the query: {_short(answer.error)}")
        return answer.data.result

    def _refuse(self, status: int, error: str) -> NoReturn:
        """Raise what a status means."""
        if status == 401:
            raise QueryError(
                "it refuses the password or the token under [prometheus] in the configuration"
                if self.endpoint.authenticates
                else "it asks for a password or a token: set url with user and password_file, or"
                " token_file, under [prometheus] in the configuration"
            )
        if status == 403:
            raise QueryError("it does not allow this user to query (status 403)")
        if status == 404:
            raise QueryError("it has no Prometheus (status 404): check the path of the URL")
        if status in {400, 422} and error:
            raise QueryError(f"it refuses the query: {_short(error)}; check --match")
        said = f": {_short(error)}" if error else ""
        raise QueryError(f"it answers with status {status}{said}")

    def _reason(self, error: Exception) -> str:
        """Why an exchange failed; texts of exceptions are not repeated."""
        if self._late or isinstance(error, TimeoutError):
            return f"no answer within {self._patience:g}s"
        if isinstance(error, socket.gaierror):
            return "its name cannot be resolved: check the spelling and DNS"
        if isinstance(error, ssl.SSLCertVerificationError):
            why = printable(error.verify_message or "certificate verify failed")
            return f"its certificate is not trusted ({why}): name the authority with ca_file"
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
            return "what answers there does not speak HTTP: check the port, or use https://"
        if isinstance(error, OSError) and error.strerror:
            return f"it cannot be reached: {printable(error.strerror).lower()}"
        return "its answer cannot be read"

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


def _pieces(response: http.client.HTTPResponse, most: int) -> Iterator[bytes]:
    """The body, unpacked, as far as it is not too large."""
    packed = response.headers.get("Content-Encoding", "").strip().lower()
    unzip = zlib.decompressobj(16 + zlib.MAX_WBITS) if packed == "gzip" else None
    size = 0
    while piece := response.read(_PIECE):
        if unzip is not None:
            piece = unzip.decompress(piece, most - size + 1)
        size += len(piece)
        if size > most:
            if response.status != 200:
                return
            raise QueryError(f"its answer is larger than {most >> 20} MiB: ask less with --match")
        yield piece
    if response.length:
        raise http.client.IncompleteRead(b"")
    if unzip is not None and not unzip.eof:
        raise zlib.error


def _short(error: str) -> str:
    text = printable(" ".join(error[: 4 * _SHOWN].split()))
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
