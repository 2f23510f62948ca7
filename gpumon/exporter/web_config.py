"""The web configuration file: TLS and basic authentication, as in Prometheus' exporter-toolkit.

Every key that the toolkit documents is honoured or refused with a sentence, because a key that is
ignored in silence leaves a page open that somebody believes to be closed. Sentences contain no
value of the file, except names of options: values can be secrets.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpumon.system.regular_files import read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_BYTES = 2**20
_MOST_BCRYPT_COST = 16
"""A password takes about 4 s at this cost, and twice as long at each higher one."""

_BCRYPT = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_GO_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h))+")
_GO_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

_HEADERS = (
    "Content-Security-Policy",
    "X-Frame-Options",
    "X-Content-Type-Options",
    "X-XSS-Protection",
    "Strict-Transport-Security",
)

VERIFY_IF_GIVEN, VERIFY = "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
_CLIENT_AUTH = ("NoClientCert", VERIFY_IF_GIVEN, VERIFY)
_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}

_CIPHERS = {
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
"""OpenSSL's names of the suites that Go considers secure; those of TLS 1.3 are always on."""

_REFUSED = {
    "cert": "Python reads a certificate from a file only: use cert_file",
    "key": "Python reads a key from a file only: use key_file",
    "curve_preferences": "Python cannot order curves: leave it out",
}


class WebConfigError(Exception):
    """The file cannot be used; the message says why and what to do."""


class TlsConfig(NamedTuple):
    """``tls_server_config``, by its keys. Paths are relative to the current directory.

    Attributes:
        cert_file: The certificate and its chain.
        key_file: Its key.
        client_auth_type: One of ``_CLIENT_AUTH``.
        client_ca_file: Certificates of the authorities of clients.
        client_ca: The same as PEM text.
        client_allowed_sans: If set, a client's certificate must have one of these names.
        min_version: The oldest version.
        max_version: The newest version.
        cipher_suites: OpenSSL's names; empty for the default.
        prefer_server_cipher_suites: Whether their order counts, not that of the client.
    """

    cert_file: str
    key_file: str
    client_auth_type: str
    client_ca_file: str | None
    client_ca: str | None
    client_allowed_sans: tuple[str, ...]
    min_version: ssl.TLSVersion
    max_version: ssl.TLSVersion
    cipher_suites: tuple[str, ...]
    prefer_server_cipher_suites: bool


class RateLimit(NamedTuple):
    """``rate_limit``: ``burst`` requests at once, and one more every ``interval`` seconds."""

    interval: float
    burst: int


class WebConfig(NamedTuple):
    """The whole file.

    Attributes:
        tls: ``None`` without TLS.
        users: Hashes of passwords by user; empty without basic authentication.
        headers: Headers of every answer.
        rate_limit: ``None`` without a limit.
    """

    tls: TlsConfig | None
    users: Mapping[str, str]
    headers: Mapping[str, str]
    rate_limit: RateLimit | None


def read_web_config(path: str) -> WebConfig:
    """Read and check the file.

    Raises:
        WebConfigError: It cannot be used.
    """
    try:
        return _parse(path)
    except _Refused as refusal:
        raise WebConfigError(f"{path}: {refusal}") from None


class _Refused(Exception):  # noqa: N818 - not an error of the program
    """What is wrong with the file, without its name."""


def _parse(path: str) -> WebConfig:
    whole = _section(
        _load(path),
        "the file",
        ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"),
    )
    http = _section(whole.get("http_server_config"), "http_server_config", ("http2", "headers"))
    if _flag(http, "http2", default=False):
        raise _Refused("http2 is not available here: set it to false or leave it out")
    return WebConfig(
        _tls(whole, Path(path).parent),
        _users(whole.get("basic_auth_users")),
        _headers(http.get("headers")),
        _rate_limit(whole.get("rate_limit")),
    )


def _load(path: str) -> object:
    """The content of the file, as YAML."""
    try:
        import bcrypt  # noqa: F401 - needed later; said here if it is missing
        import yaml
    except ImportError:
        raise WebConfigError(
            "--web-config needs bcrypt and PyYAML: install gpumon with the extra exporter, in a"
            " checkout with pip install '.[exporter]'"
        ) from None

    class Loader(yaml.SafeLoader):
        """Refuses a key that is there twice, of which PyYAML would use the last."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise _Refused(f"{twice} is there twice: remove one")
            return super().construct_mapping(node, deep)

    try:
        content = read_regular(path, _MOST_BYTES)
    except OSError as error:
        raise _Refused(f"cannot be read: {error.strerror}") from None
    if content is None:
        raise _Refused("is not a regular file")
    if len(content) > _MOST_BYTES:
        raise _Refused("is larger than 1 MiB, which no web configuration is")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise _Refused("is not a text file in UTF-8") from None
    try:
        # Loader is a SafeLoader.
        return yaml.load(text, Loader)  # noqa: S506 - see above
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise _Refused(f"is not valid YAML{line}: {error.problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise _Refused("is not valid YAML") from None


def _section(value: object, name: str, keys: tuple[str, ...]) -> Mapping[str, object]:
    """A mapping with these keys only; an absent one is empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Refused(f"{name} is not a list of keys with values")
    unknown = next((key for key in value if key not in keys), None)
    if unknown is not None:
        raise _Refused(f"{name} has an unknown key {unknown!r}; keys are {', '.join(keys)}")
    return value


def _text(section: Mapping[str, object], key: str) -> str | None:
    """A text; ``None`` if it is absent or empty, which is the same for the toolkit."""
    value = section.get(key)
    if value is None or isinstance(value, str):
        return value or None
    raise _Refused(f"{key} is not a text: put it in quotes")


def _flag(section: Mapping[str, object], key: str, *, default: bool) -> bool:
    value = section.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _Refused(f"{key} is not true or false")
    return value


def _choice(section: Mapping[str, object], key: str, choices: tuple[str, ...], default: str) -> str:
    value = _text(section, key) or default
    if value not in choices:
        raise _Refused(f"{key} cannot be {value!r} here: use {' or '.join(choices)}")
    return value


def _texts(section: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = section.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _Refused(f"{key} is not a list of texts")
    return tuple(value)


def _tls(whole: Mapping[str, object], folder: Path) -> TlsConfig | None:
    """``tls_server_config``; relative paths in it start in the folder of the file."""
    keys = (*TlsConfig._fields, *_REFUSED)
    section = _section(whole.get("tls_server_config"), "tls_server_config", keys)
    for key, advice in _REFUSED.items():
        if section.get(key):
            raise _Refused(f"{key} is not available here: {advice}")
    if not section:
        return None
    files: dict[str, str | None] = {}
    for key in ("cert_file", "key_file", "client_ca_file"):
        name = _text(section, key)
        files[key] = None if name is None else str(folder / name)
    cert, key_file = files["cert_file"], files["key_file"]
    if cert is None or key_file is None:
        missing = "cert_file" if cert is None else "key_file"
        raise _Refused(f"tls_server_config has no {missing}: add it, or remove the section")
    asked = _choice(section, "client_auth_type", _CLIENT_AUTH, "NoClientCert")
    authority = files["client_ca_file"] or _text(section, "client_ca")
    if (authority is None) != (asked == "NoClientCert"):
        raise _Refused("client_auth_type and client_ca_file need each other: add the other one")
    names = _texts(section, "client_allowed_sans")
    if names and asked != VERIFY:
        raise _Refused(f"client_allowed_sans needs client_auth_type: {VERIFY}")
    versions = tuple(_VERSIONS)
    least = _VERSIONS[_choice(section, "min_version", versions, "TLS12")]
    most = _VERSIONS[_choice(section, "max_version", versions, "TLS13")]
    if least > most:
        raise _Refused("min_version is newer than max_version: swap them")
    suites = _texts(section, "cipher_suites")
    for suite in suites:
        # Go leaves out the suites of TLS 1.3, which cannot be chosen, in the same way.
        if suite not in _CIPHERS and not re.fullmatch(r"TLS_(AES|CHACHA20)_\w+", suite):
            raise _Refused(f"cipher_suites has {suite!r}, which is unknown or insecure: remove it")
    return TlsConfig(
        cert,
        key_file,
        asked,
        files["client_ca_file"],
        _text(section, "client_ca"),
        names,
        least,
        most,
        tuple(_CIPHERS[suite] for suite in suites if suite in _CIPHERS),
        _flag(section, "prefer_server_cipher_suites", default=True),
    )


def _users(value: object) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Refused("basic_auth_users is not a list of names with hashes")
    for user, hashed in value.items():
        if not isinstance(user, str) or not user or ":" in user:
            raise _Refused("basic_auth_users has a name that is empty, has a colon or is no text")
        match = _BCRYPT.fullmatch(hashed) if isinstance(hashed, str) else None
        if match is None:
            raise _Refused(
                f"the password of {user!r} is not a bcrypt hash: make one with htpasswd -nB"
            )
        if not 4 <= int(match[1]) <= _MOST_BCRYPT_COST:
            raise _Refused(
                f"the hash of {user!r} has cost {match[1]}: use 4 to {_MOST_BCRYPT_COST}"
            )
    return value


def _headers(value: object) -> Mapping[str, str]:
    headers = _section(value, "headers", _HEADERS)
    kept = {name: text for name in headers if (text := _text(headers, name)) is not None}
    for name, text in kept.items():
        if not (text.isascii() and text.isprintable()):
            raise _Refused(f"{name} has characters that no header may have")
    if kept.get("X-Frame-Options", "deny").lower() not in {"deny", "sameorigin"}:
        raise _Refused("X-Frame-Options is neither deny nor sameorigin")
    if kept.get("X-Content-Type-Options", "nosniff").lower() != "nosniff":
        raise _Refused("X-Content-Type-Options is not nosniff")
    return kept


def _rate_limit(value: object) -> RateLimit | None:
    section = _section(value, "rate_limit", ("interval", "burst"))
    interval = section.get("interval")
    if not section or interval in (None, 0, "0"):
        return None
    if not isinstance(interval, str) or not _GO_DURATION.fullmatch(interval):
        raise _Refused("rate_limit.interval is not a duration such as 1s or 200ms")
    seconds = sum(
        float(amount) * _GO_UNITS[unit]
        for amount, unit in re.findall(r"([0-9.]+)([a-zµ]+)", interval)
    )
    burst = section.get("burst")
    if not isinstance(burst, int) or isinstance(burst, bool) or burst < 1:
        raise _Refused("rate_limit.burst is not a whole number, 1 or more")
    return RateLimit(seconds, burst) if seconds else None
