"""The web configuration file: TLS and basic authentication, as in Prometheus' exporter-toolkit.

The structs state its format. Every key that the toolkit documents is honoured or refused with a
sentence, because a key that is ignored in silence leaves a page open that somebody believes to be
closed. Sentences contain no value of the file, except names of options: values can be secrets.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from gpumon.system.files import MIB, FileFault, read_text

_MOST_BCRYPT_COST = 16
"""A password takes about 4 s at this cost, and twice as long at each higher one."""

_BCRYPT = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_GO_DURATION = re.compile(r"0|(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h))+")
_GO_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

VERIFY = "RequireAndVerifyClientCert"
VERSIONS = {
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


class WebConfigError(Exception):
    """The file cannot be used; the message says why and what to do."""


class TlsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """``tls_server_config``; a relative path starts in the folder of the file."""

    cert_file: str = ""
    key_file: str = ""
    client_auth_type: Literal[
        "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
    ] = "NoClientCert"
    client_ca_file: str = ""
    # The same as PEM text.
    client_ca: str = ""
    # If there are any, a client's certificate must have one of these names.
    client_allowed_sans: tuple[str, ...] = ()
    min_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = "TLS12"
    max_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    # Whether their order counts, not that of the client.
    prefer_server_cipher_suites: bool = True
    # These are refused.
    cert: str = ""
    key: str = ""
    curve_preferences: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key, advice in _UNAVAILABLE.items():
            if getattr(self, key):
                raise ValueError(f"{key} is not available here: {advice}")
        for key in ("cert_file", "key_file"):
            if not getattr(self, key):
                raise ValueError(f"tls_server_config has no {key}: add it, or remove the section")
        has_authority = bool(self.client_ca_file or self.client_ca)
        if has_authority != (self.client_auth_type != "NoClientCert"):
            raise ValueError("client_auth_type and client_ca_file need each other: add the other")
        if self.client_allowed_sans and self.client_auth_type != VERIFY:
            raise ValueError(f"client_allowed_sans needs client_auth_type: {VERIFY}")
        if self.min_version > self.max_version:
            raise ValueError("min_version is newer than max_version: swap them")
        for suite in self.cipher_suites:
            # Go leaves out the suites of TLS 1.3, which cannot be chosen, in the same way.
            if suite not in _CIPHERS and not re.fullmatch(r"TLS_(AES|CHACHA20)_\w+", suite):
                raise ValueError(
                    f"cipher_suites has {suite!r}, which is unknown or insecure: remove it"
                )

    @property
    def ciphers(self) -> str:
        """The suites in OpenSSL's format; empty for the default."""
        return ":".join(_CIPHERS[suite] for suite in self.cipher_suites if suite in _CIPHERS)


_UNAVAILABLE = {
    "cert": "Python reads a certificate from a file only: use cert_file",
    "key": "Python reads a key from a file only: use key_file",
    "curve_preferences": "Python cannot order curves: leave it out",
}
"""Keys of ``tls_server_config`` that the toolkit has and gpumon refuses."""


class Headers(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``http_server_config.headers``: headers of every answer."""

    content_security_policy: str = field(name="Content-Security-Policy", default="")
    frame_options: str = field(name="X-Frame-Options", default="")
    content_type_options: str = field(name="X-Content-Type-Options", default="")
    xss_protection: str = field(name="X-XSS-Protection", default="")
    transport_security: str = field(name="Strict-Transport-Security", default="")

    def __post_init__(self) -> None:
        for name, text in self.by_name.items():
            if not (text.isascii() and text.isprintable()):
                raise ValueError(f"{name} has characters that no header may have")
        if self.frame_options.lower() not in {"", "deny", "sameorigin"}:
            raise ValueError("X-Frame-Options is neither deny nor sameorigin")
        if self.content_type_options.lower() not in {"", "nosniff"}:
            raise ValueError("X-Content-Type-Options is not nosniff")

    @property
    def by_name(self) -> Mapping[str, str]:
        """The headers that have a value."""
        by_name: Mapping[str, str] = msgspec.to_builtins(self)
        return by_name


class HttpConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """``http_server_config``."""

    http2: bool = False
    headers: Headers = Headers()

    def __post_init__(self) -> None:
        if self.http2:
            raise ValueError("http2 is not available here: set it to false or leave it out")


class RateLimit(Struct, frozen=True, forbid_unknown_fields=True):
    """``rate_limit``: ``burst`` requests at once, and one more every ``interval``."""

    interval: str | int = "0"
    burst: int = 0

    def __post_init__(self) -> None:
        if not _GO_DURATION.fullmatch(str(self.interval)):
            raise ValueError("rate_limit.interval is not a duration such as 1s or 200ms")
        if self.seconds and self.burst < 1:
            raise ValueError("rate_limit.burst is not a whole number, 1 or more")

    @property
    def seconds(self) -> float:
        """The interval; 0 without a limit."""
        amounts = re.findall(r"([0-9.]+)([a-zµ]+)", str(self.interval))
        return sum(float(amount) * _GO_UNITS[unit] for amount, unit in amounts)


class WebConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    tls_server_config: TlsConfig | None = None
    http_server_config: HttpConfig = HttpConfig()
    # Hashes of passwords by user. Any types, because the message names the user.
    basic_auth_users: Mapping[Any, Any] = {}
    rate_limit: RateLimit = RateLimit()

    def __post_init__(self) -> None:
        for user, hashed in self.basic_auth_users.items():
            if not isinstance(user, str) or not user or ":" in user:
                raise ValueError(
                    "basic_auth_users has a name that is empty, has a colon or is no text"
                )
            match = _BCRYPT.fullmatch(hashed) if isinstance(hashed, str) else None
            if match is None:
                raise ValueError(
                    f"the password of {user!r} is not a bcrypt hash: make one with htpasswd -nB"
                )
            if not 4 <= int(match[1]) <= _MOST_BCRYPT_COST:
                raise ValueError(
                    f"the hash of {user!r} has cost {match[1]}: use 4 to {_MOST_BCRYPT_COST}"
                )


def read_web_config(path: str) -> WebConfig:
    """Read and check the file.

    Raises:
        WebConfigError: It cannot be used.
    """
    try:
        content = _load(read_text(path, MIB, "web configuration"))
        config = msgspec.convert({} if content is None else _without_empty(content), WebConfig)
    except RecursionError:
        raise WebConfigError(f"{path}: is not valid YAML") from None
    except FileFault as error:
        raise WebConfigError(f"{path}: {error}") from None
    except msgspec.ValidationError as error:
        raise WebConfigError(f"{path}: {_sentence(str(error))}") from None
    tls = config.tls_server_config
    if tls is None:
        return config
    folder = Path(path).parent
    files = {
        key: str(folder / name)
        for key in ("cert_file", "key_file", "client_ca_file")
        if (name := getattr(tls, key))
    }
    return replace(config, tls_server_config=replace(tls, **files))


def _load(text: str) -> object:
    """The content of the file, as YAML."""
    try:
        import bcrypt  # noqa: F401 - needed later; reported here if it is missing
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
                raise FileFault(f"{twice} is there twice: remove one")
            return super().construct_mapping(node, deep)

    try:
        # Loader is a SafeLoader.
        return yaml.load(text, Loader)  # noqa: S506 - see above
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise FileFault(f"is not valid YAML{line}: {error.problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise FileFault("is not valid YAML") from None


_SECTIONS: Mapping[str, type[Struct]] = {
    "": WebConfig,
    "tls_server_config": TlsConfig,
    "http_server_config": HttpConfig,
    "http_server_config.headers": Headers,
    "rate_limit": RateLimit,
}
_EMPTY: Mapping[str, object] = {
    "tls_server_config": {},
    "client_auth_type": "",
    "min_version": "",
    "max_version": "",
}
"""What the toolkit takes for no value besides nothing; other empty texts are defaults."""


def _without_empty(content: object, section: str = "") -> object:
    """A section without the known keys that have no value, which the toolkit ignores.

    Unknown keys are left to be refused, and not followed: aliases in YAML may lead back to
    themselves, or repeat each other any number of times. So are users, which need a hash.
    """
    if not isinstance(content, dict) or section not in _SECTIONS:
        return content
    kept = dict(content)
    for key in _SECTIONS[section].__struct_encode_fields__:
        value = kept.pop(key, None)
        if value not in (None, _EMPTY.get(key)):
            kept[key] = _without_empty(value, f"{section}.{key}".lstrip("."))
    return kept


_FAULT = re.compile(
    r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$\.?(?P<path>[^`[]*)(?P<item>\[\d+\])?`)?",
    re.DOTALL,
)
"""The messages of msgspec."""
_UNKNOWN_KEY, _NO_CHOICE = "Object contains unknown field `", "Invalid enum value "
_TYPES = {
    "object": "a list of keys with values",
    "array": "a list of texts",
    "str": "a text: put it in quotes",
    "bool": "true or false",
    "int": "a whole number, 1 or more",
}


def _sentence(message: str) -> str:
    """A message of msgspec as a sentence that names the key."""
    found = _FAULT.fullmatch(message)
    assert found is not None  # noqa: S101 - it matches any text
    what, path = found["what"], found["path"] or ""
    name = path or "the file"
    section, _, key = path.rpartition(".")
    if found["key"]:
        return f"{name} has a key that is no text"
    if what.startswith(_UNKNOWN_KEY):
        keys = ", ".join(_SECTIONS[path].__struct_encode_fields__)
        return f"{name} has an unknown key {what[len(_UNKNOWN_KEY) : -1]!r}; keys are {keys}"
    if what.startswith(_NO_CHOICE):
        choices = get_args(get_type_hints(_SECTIONS[section])[key])
        given = what.removeprefix(_NO_CHOICE)
        return f"{name} cannot be {given} here: use {' or '.join(choices)}"
    if what.startswith("Expected `"):
        kinds = [kind for kind in what.split("`")[1].split(" | ") if kind != "null"]
        return f"{name} is not {_TYPES['array' if found['item'] else kinds[-1]]}"
    return what
