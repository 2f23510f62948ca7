"""Where Prometheus is, and what gpumon shows it to be let in.

No secret is in a command line, which every user of the machine can read, nor in any text that is
printed: passwords and tokens are read from files, when they are sent.
"""

from __future__ import annotations

import base64
import os
import ssl
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from gpumon.fleet.fleet import FleetError
from gpumon.http.listening import authority
from gpumon.system.files import FileFault, is_special, read_secret, read_secret_line
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from gpumon.config.settings import Prometheus

_PORTS = {"http": 80, "https": 443}
_EXAMPLE = "such as http://prometheus:9090"


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
