"""The server: its address, what it gets as a password, and queries to it over HTTP.

No secret is in a command line, which every user of the machine can read, nor in any text that is
printed: passwords and tokens are read from files, when they are sent.

One connection is kept, and a query has bounded time and size. The structures have what gpumon uses
of an answer. Other labels and keys are skipped.
"""

from __future__ import annotations

import base64
import os
import ssl
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import SplitResult, urlencode, urlsplit

from msgspec import DecodeError, Struct, field
from msgspec.json import Decoder

from gpumon.fleet.fleet import FleetError
from gpumon.http.connection import HttpConnection, HttpError, HttpRequest
from gpumon.http.listening import authority
from gpumon.system.files import FileFault, is_special, read_secret, read_secret_line
from gpumon.text.formatting import printable, shortened

if TYPE_CHECKING:
    from gpumon.config.settings import Prometheus
    from gpumon.http.connection import HttpAnswer

_PORTS = {"http": 80, "https": 443}
_EXAMPLE = "such as http://prometheus:9090"
PATIENCE = 10.0
"""Seconds that a query may take with everything: connecting, waiting and reading."""
_SERVER_SECONDS = 8
"""Prometheus itself gives up after so many, so that what nobody waits for costs it nothing."""
MOST_BYTES = 64 * 2**20
"""Bytes of an answer: 10,000 GPUs with all labels have 3 MB a metric."""
_SHOWN = 160


class Endpoint:
    """A Prometheus server, by its checked URL."""

    def __init__(
        self, url: SplitResult, settings: Prometheus | None, context: ssl.SSLContext | None
    ) -> None:
        self.host = url.hostname or ""
        self.port = url.port or _PORTS[url.scheme]
        # What comes before ``/api/v1``; empty for most.
        self.path = url.path.rstrip("/")
        # ``None`` without TLS.
        self.context = context
        # With the password or the token; ``None`` if it gets neither.
        self._settings = settings
        self.authenticates = settings is not None and bool(settings.user or settings.token_file)

    @property
    def address(self) -> str:
        """Its host and port, safe to print."""
        return printable(authority(self.host, self.port))

    def authorization(self) -> str | None:
        """The header ``Authorization``; ``None`` if none is sent. Files may change meanwhile.

        Raises:
            FleetError: The file of the password or the token cannot be used; without the secret.
        """
        settings = self._settings
        if settings is None or not self.authenticates:
            return None
        name = settings.token_file or settings.password_file
        path = os.path.expanduser(name)  # noqa: PTH111 - os.open takes a text
        try:
            if settings.token_file:
                token = read_secret_line(path)
                if " " in token:
                    raise FileFault("has a space, and should have a token")
                return f"Bearer {token}"
            password = read_secret(path).removesuffix(b"\n").removesuffix(b"\r")
        except FileFault as fault:
            raise FleetError(f"{printable(name)} {fault}") from None
        pair = settings.user.encode() + b":" + password
        return f"Basic {base64.b64encode(pair).decode()}"


def read_endpoint(text: str, settings: Prometheus) -> Endpoint:
    """The server of a URL, with its password or token if the configuration has one for it.

    The password or token is for the server of the configured ``url`` alone, which is also that of
    an empty text.

    Raises:
        FleetError: The URL, or what the configuration says of this server, cannot be used.
    """
    configured = _read_url(settings.url, "url under [prometheus]") if settings.url else None
    if text:
        url = _read_url(text, "--prometheus")
    elif configured is None:
        raise FleetError(
            f"--prometheus has no URL, and the configuration has no url under [prometheus]: give"
            f" one, {_EXAMPLE}"
        )
    else:
        url = configured
    known = settings if configured is not None and _origin(url) == _origin(configured) else None
    secrets = bool(settings.user or settings.password_file or settings.token_file)
    if secrets and configured is None:
        raise FleetError(
            "[prometheus] in the configuration has a user, a password or a token, but no url that"
            " says which server may get them: add it"
        )
    if known is not None:
        _check_secrets(known)
    endpoint = Endpoint(url, known, _context(url, settings))
    endpoint.authorization()
    return endpoint


def _read_url(text: str, place: str) -> SplitResult:
    """A URL that was checked. No message repeats it: it may hold a password."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise FleetError(f"{place} is not a URL, {_EXAMPLE}") from None
    if url.username is not None or url.password is not None:
        raise FleetError(
            f"{place} has a user or a password, which every user of this machine could read: put"
            " user and password_file under [prometheus] in the configuration"
        )
    if url.scheme not in _PORTS or not url.hostname or port == 0:
        raise FleetError(f"{place} is not a URL of http or https, {_EXAMPLE}")
    if url.query or url.fragment:
        raise FleetError(f"{place} has a ? or a #: give the address of Prometheus, {_EXAMPLE}")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise FleetError(f"{place} has characters that no URL has")
    return url


def _origin(url: SplitResult) -> tuple[str, str | None, int]:
    return url.scheme, url.hostname, url.port or _PORTS[url.scheme]


def _check_secrets(settings: Prometheus) -> None:
    if settings.token_file and (settings.user or settings.password_file):
        raise FleetError(
            "[prometheus] in the configuration has a token and a user or password: keep one"
        )
    if bool(settings.user) != bool(settings.password_file):
        missing = "password_file" if settings.user else "user"
        raise FleetError(f"[prometheus] in the configuration has no {missing}: add it")
    if ":" in settings.user:
        raise FleetError("user under [prometheus] has a colon, which no name may have")


def _context(url: SplitResult, settings: Prometheus) -> ssl.SSLContext | None:
    if url.scheme == "http":
        return None
    path = os.path.expanduser(settings.ca_file)  # noqa: PTH111 - the file functions here take texts
    name = f"ca_file {printable(settings.ca_file)}"
    if is_special(path):
        raise FleetError(f"{name} is not a regular file")
    try:
        return ssl.create_default_context(cafile=path or None)
    except ssl.SSLError:
        raise FleetError(f"{name} has no certificates in PEM") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "this is not the name of a file"
        raise FleetError(f"{name} cannot be read: {reason}") from None


class Labels(Struct, frozen=True, gc=False):
    """The labels of a series; an absent label is empty. Values are as hostile as any text."""

    metric: str = field(default="", name="__name__")
    job: str = ""
    instance: str = ""
    Hostname: str = ""
    hostname: str = ""  # as dcgm-exporter spells ``Hostname`` since 2026
    gpu: str = ""
    UUID: str = ""
    uuid: str = ""  # nvidia_gpu_exporter's, without ``GPU-``
    pci_bus_id: str = ""
    modelName: str = ""  # noqa: N815 - dcgm-exporter's name
    name: str = ""  # nvidia_gpu_exporter's product name
    GPU_I_ID: str = ""
    GPU_I_PROFILE: str = ""
    DCGM_FI_DRIVER_VERSION: str = ""
    driver_version: str = ""
    pod: str = ""
    exported_pod: str = ""  # the pod that has the GPU, where ``pod`` is that of the exporter
    pod_name: str = ""  # an older spelling
    namespace: str = ""
    exported_namespace: str = ""
    pod_namespace: str = ""
    container: str = ""
    hpc_job: str = ""  # number of the job that has the GPU, on clusters
    user: str = ""
    status: str = ""
    state: str = ""
    xid: str = ""


class TimeSeries(Struct, frozen=True, gc=False):
    """A series with its samples, each a time in seconds and a number as text."""

    metric: Labels
    value: tuple[float, str] = (0.0, "NaN")  # at the time of the query
    values: tuple[tuple[float, str], ...] = ()  # over time, oldest first


class _Data(Struct, frozen=True, gc=False):
    """The result of a query."""

    result: tuple[TimeSeries, ...] = ()


class _Response(Struct, frozen=True, gc=False):
    """The whole answer."""

    status: str  # ``success`` or ``error``
    data: _Data | None = None
    error: str = ""  # what is wrong, if anything is


_decode = Decoder(_Response).decode


class QueryError(Exception):
    """There is no answer; the message says why, and what to do, without a full stop.

    It is safe to print, and without any secret.
    """


class PrometheusClient:
    """Asks one server. One thread at a time makes queries; any may call ``close``.

    Args:
        endpoint: The server.
        patience: Seconds that a query may take.
    """

    def __init__(self, endpoint: Endpoint, patience: float = PATIENCE) -> None:
        self.endpoint = endpoint
        self._connection = HttpConnection(
            endpoint.host, endpoint.port, endpoint.context, patience, authority="ca_file"
        )

    def query(self, expression: str) -> tuple[TimeSeries, ...]:
        """The series of an expression at this moment.

        Raises:
            QueryError: There is no answer.
        """
        return self._ask("query", {"query": expression})

    def query_range(
        self, expression: str, start: float, end: float, step: float
    ) -> tuple[TimeSeries, ...]:
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
        self._connection.close()

    def _ask(self, function: str, terms: dict[str, str]) -> tuple[TimeSeries, ...]:
        # GET, since the access rules of some proxies take POST for writing.
        text = urlencode({**terms, "timeout": f"{_SERVER_SECONDS}s"})
        target = f"{self.endpoint.path}/api/v1/{function}?{text}"
        try:
            answer = self._connection.ask(HttpRequest("GET", target, self._headers()), MOST_BYTES)
        except HttpError as error:
            raise QueryError(str(error)) from None
        return self._result(answer)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        try:
            authorization = self.endpoint.authorization()
        except FleetError as error:
            raise QueryError(str(error)) from None
        if authorization is not None:
            headers["Authorization"] = authorization
        return headers

    def _result(self, given: HttpAnswer) -> tuple[TimeSeries, ...]:
        if given.status == 200 and not given.is_whole:
            raise QueryError(
                f"its answer is larger than {MOST_BYTES >> 20} MiB: select less with --match"
            )
        try:
            answer = _decode(given.body)
        except (DecodeError, RecursionError, ValueError):
            answer = None
        if given.status != 200:
            self._refuse(given.status, "" if answer is None else answer.error)
        if answer is None:
            raise QueryError(
                "its answer is not in the format of Prometheus: check the address and its path"
            )
        if answer.status != "success" or answer.data is None:
            raise QueryError(f"it refuses the query: {_short(answer.error)}")
        return answer.data.result

    def _refuse(self, status: int, error: str) -> NoReturn:
        """Raise what a status means."""
        if 300 <= status < 400:
            raise QueryError(
                f"it redirects (status {status}), which gpumon does not follow: give the URL of"
                " Prometheus itself"
            )
        if status == 401:
            raise QueryError(
                "it refuses the password or the token under [prometheus] in the configuration"
                if self.endpoint.authenticates
                else "it requires a password or a token: set url with user and password_file, or"
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


def _short(error: str) -> str:
    return shortened(printable(" ".join(error[: 4 * _SHOWN].split())), _SHOWN)
