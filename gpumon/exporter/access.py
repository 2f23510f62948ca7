"""Who may read the pages: TLS, client certificates, passwords and the rate limit.

The web configuration, certificates and keys are read again when one of the files has changed, so
that a renewed certificate or a removed user needs no restart. While the new files cannot be used,
nobody gets a page: the old rules may be the ones that were meant to end.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import ssl
import threading
import time
from collections import OrderedDict
from functools import cache
from typing import TYPE_CHECKING

from gpumon.exporter.web_config import (
    VERIFY,
    VERSIONS,
    WebConfig,
    WebConfigError,
    read_web_config,
)
from gpumon.system.files import is_special

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpumon.exporter.web_config import RateLimit, TlsConfig

_MOST_REMEMBERED = 100
_CHECK_PATIENCE = 2.0
"""Seconds that a password waits for those before it; under a flood of wrong ones it is refused."""
_BCRYPT_BYTES = 72
"""bcrypt reads no more of a password, and some versions refuse a longer one."""


class Rules:
    """The rules of one version of the files.

    Raises:
        WebConfigError: A certificate, a key or an option of TLS cannot be used.
    """

    def __init__(self, config: WebConfig) -> None:
        tls, limit = config.tls_server_config, config.rate_limit
        # ``None`` without TLS.
        self.context = None if tls is None else _context(tls)
        self.headers = config.http_server_config.headers.by_name
        self.users = config.basic_auth_users
        self._names = () if tls is None else tls.client_allowed_sans
        self._limit = _TokenBucket(limit) if limit.seconds else None
        self._verifies = tls is not None and tls.client_auth_type == VERIFY

    @property
    def authenticates(self) -> bool:
        """Whether only known clients get a page."""
        return bool(self.users) or self._verifies

    @property
    def protections(self) -> frozenset[str]:
        """What protects the page, in words."""
        present = {
            "TLS": self.context is not None,
            "passwords": bool(self.users),
            "client certificates": self._verifies,
        }
        return frozenset(words for words, is_present in present.items() if is_present)

    def knows_client(self, connection: ssl.SSLSocket) -> bool:
        """Whether the client's certificate has one of the names that are asked for, if any."""
        if not self._names:
            return True
        certificate = connection.getpeercert() or {}
        names = certificate.get("subjectAltName", ())
        return any(isinstance(name, tuple) and name[1] in self._names for name in names)

    def has_room(self) -> bool:
        """Whether the rate limit lets one more request pass, which it then counts."""
        return self._limit is None or self._limit.take()


class PageAccess:
    """The rules that hold now; without a web configuration everybody may read the page.

    Raises:
        WebConfigError: The files cannot be used.
    """

    def __init__(self, path: str | None, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say
        self._lock = threading.Lock()
        self._passwords = _Passwords()
        self._files: tuple[str, ...] = () if path is None else (path,)
        self._seen: list[object] = []
        self._protections: frozenset[str] = frozenset()
        self._rules: Rules | None = None
        self._read()

    def rules(self) -> Rules | None:
        """The rules; ``None`` while the files cannot be used."""
        with self._lock:
            if list(map(_version, self._files)) != self._seen:
                self._rules = None
                try:
                    self._read()
                except WebConfigError as error:
                    self._say(f"{error}. Until then nobody can read the metrics.")
                else:
                    self._say(f"{self._path} or a file that it names has changed and was read")
            return self._rules

    def is_password_right(self, rules: Rules, authorization: str | None) -> bool:
        """Whether the header ``Authorization`` has a user and the right password, if needed."""
        return not rules.users or self._passwords.are_right(rules.users, authorization)

    def _read(self) -> None:
        if self._path is None:
            self._rules = Rules(WebConfig())
            return
        # Versions are taken before reading: what changes meanwhile is read again.
        self._seen = list(map(_version, self._files))
        version = _version(self._path)
        config = read_web_config(self._path)
        tls = config.tls_server_config
        named = () if tls is None else (tls.cert_file, tls.key_file, tls.client_ca_file)
        others = tuple(filter(None, named))
        self._files = (self._path, *others)
        self._seen = [version, *map(_version, others)]
        rules = Rules(config)
        # A file that is being written is empty for a short time, and must not open the page.
        dropped = self._protections - rules.protections
        if dropped:
            raise WebConfigError(
                f"{self._path} no longer has {' and '.join(sorted(dropped))}: restore the file, or"
                " restart gpumon exporter if this is intended"
            )
        self._protections = rules.protections
        self._rules = rules


def _version(path: str) -> object:
    """What changes with the content of a file; ``None`` if there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - called for each connection
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev


def _context(tls: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.minimum_version = VERSIONS[tls.min_version]
        context.maximum_version = VERSIONS[tls.max_version]
        if tls.ciphers:
            context.set_ciphers(tls.ciphers)
    except (ValueError, ssl.SSLError):
        raise WebConfigError(
            "this machine's OpenSSL refuses min_version, max_version or cipher_suites: leave"
            " them out"
        ) from None
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    for name in (tls.cert_file, tls.key_file, tls.client_ca_file):
        if name is not None and is_special(name):
            raise WebConfigError(f"{name} is not a regular file")
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(tls.cert_file, tls.key_file, password="")
    except (OSError, ValueError) as error:
        raise WebConfigError(
            f"{tls.cert_file} with {tls.key_file} cannot be used as a certificate and its key:"
            f" {_reason(error)}"
        ) from None
    if tls.client_auth_type != "NoClientCert":
        try:
            context.load_verify_locations(tls.client_ca_file or None, cadata=tls.client_ca or None)
        except (OSError, ValueError) as error:
            raise WebConfigError(
                f"{tls.client_ca_file or 'client_ca'} cannot be used as certificates of"
                f" authorities: {_reason(error)}"
            ) from None
        required = tls.client_auth_type == VERIFY
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def _reason(error: OSError | ValueError) -> str:
    """The cause in OpenSSL's or the system's words."""
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "no PEM data").replace("_", " ").lower()
        return f"{reason} (OpenSSL)"
    return str(getattr(error, "strerror", None) or error)


class _TokenBucket:
    """Lets ``burst`` requests pass at once, and one more after each ``interval``."""

    def __init__(self, limit: RateLimit) -> None:
        self._limit = limit
        self._tokens = float(limit.burst)
        self._at = time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take a token; whether there was one."""
        with self._lock:
            now = time.monotonic()
            self._tokens += (now - self._at) / self._limit.seconds
            self._tokens = min(self._tokens, self._limit.burst)
            self._at = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


class _Passwords:
    """Checks passwords, and remembers results: one check takes bcrypt a tenth of a second.

    Only one check runs at a time, so that wrong passwords use at most one core.
    """

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._known: OrderedDict[bytes, bool] = OrderedDict()
        self._knowing = threading.Lock()
        self._checking = threading.Lock()

    def are_right(self, users: Mapping[str, str], authorization: str | None) -> bool:
        """Whether the header has a user of these and the right password."""
        given = _credentials(authorization)
        if given is None:
            return False
        user, password = given
        hashed = users.get(user)
        # A keyed digest: no password stays in memory.
        parts = (user.encode(), (hashed or "").encode(), password)
        key = hmac.digest(self._secret, b"\0".join(parts), hashlib.sha256)
        known = self._remembered(key)
        if known is not None:
            return known
        if not self._checking.acquire(timeout=_CHECK_PATIENCE):
            return False
        try:
            known = self._remembered(key)
            if known is None:
                known = self._check(password, hashed, next(iter(users.values())))
                self._remember(key, right=known)
            return known
        finally:
            self._checking.release()

    def _check(self, password: bytes, hashed: str | None, example: str) -> bool:
        """Compare a password; one of an unknown user takes as long as that of a known one."""
        import bcrypt

        compared = hashed or _decoy(int(example[4:6]))
        try:
            equal = bcrypt.checkpw(password[:_BCRYPT_BYTES], compared.encode())
        except ValueError:
            return False
        return equal and hashed is not None

    def _remembered(self, key: bytes) -> bool | None:
        with self._knowing:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
            return known

    def _remember(self, key: bytes, *, right: bool) -> None:
        with self._knowing:
            self._known[key] = right
            if len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)


@cache
def _decoy(cost: int) -> str:
    """The hash of no password."""
    import bcrypt

    return bcrypt.gensalt(cost).decode() + "." * 31


def _credentials(authorization: str | None) -> tuple[str, bytes] | None:
    """User and password of a header of basic authentication."""
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None
