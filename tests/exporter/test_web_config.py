"""The web configuration file: what is honoured, what is refused, and when it is read again."""

from __future__ import annotations

import base64
import http.client
import os
import ssl
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.exporter.access import PageAccess, Rules
from gpumon.exporter.web_config import WebConfigError, read_web_config
from tests.command import run_program
from tests.exporter.certificates import Authority, authority, needs_openssl
from tests.exporter.exporting import Exporter, exporting, run_exporter, wait_until
from tests.exporter.test_server import all_of, connected
from tests.known import known

__all__ = ["authority"]


def hash_of(password: str, prefix: bytes = b"2b") -> str:
    return bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4, prefix)).decode()


OPEN_SESAME = "$2b$04$IHLdMW7TsASJPSsb2J9L4.xtO3NZw4GWHpKoXliNaka3B94XHLRF2"
ANN = f"basic_auth_users:\n  ann: {OPEN_SESAME}\n"
TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"


def write(folder: Path, text: str) -> Path:
    """The file, replaced as a whole."""
    new = folder / "web.new"
    new.write_text(textwrap.dedent(text))
    return new.replace(folder / "web.yml")


@contextmanager
def guarded(folder: Path, text: str) -> Iterator[Exporter]:
    """An exporter of the demo with this file."""
    with exporting("--demo", "--web-config", write(folder, text)) as exporter:
        yield exporter


def no_answer() -> AbstractContextManager[object]:
    """The connection ends without a page."""
    return pytest.raises((http.client.HTTPException, OSError))


# Passwords


def test_only_the_right_password_of_a_known_user_opens_the_page(tmp_path: Path) -> None:
    with guarded(
        tmp_path, f"basic_auth_users:\n  ann: {OPEN_SESAME}\n  bo: {hash_of('x:y')}\n"
    ) as exporter:
        assert exporter.get(user="ann:open sesame").status == 200
        assert exporter.get(user="bo:x:y").status == 200
        for wrong in ("ann:", "ann:open", "bo:open sesame", "nobody:open sesame", "ann", ""):
            answer = exporter.get(user=wrong)
            assert answer.status == 401, wrong
            assert answer.headers["WWW-Authenticate"] == "Basic"
            assert b"gpumon" not in answer.body
        for path_ in ("/", "/metrics", "/-/healthy", "/nothing"):
            assert exporter.get(path_).status == 401
        for header in ("Basic", "Basic !!!", "Bearer x", "Basic \xff", "Basic gICAgA=="):
            assert exporter.get(headers={"Authorization": header}).status == 401
        assert "sesame" not in exporter.said


@pytest.mark.parametrize("prefix", [b"2a", b"2b", b"2y"])
def test_hashes_of_htpasswd_and_others_are_read(tmp_path: Path, prefix: bytes) -> None:
    hashed = OPEN_SESAME.replace("$2b$", f"${prefix.decode()}$")
    path = write(tmp_path, f"basic_auth_users:\n  ann: {hashed}\n")
    rules = Rules(read_web_config(str(path)))
    assert PageAccess(str(path), print).is_password_right(rules, "Basic YW5uOm9wZW4gc2VzYW1l")


def test_a_long_password_is_right_up_to_what_bcrypt_reads(tmp_path: Path) -> None:
    with guarded(tmp_path, f"basic_auth_users:\n  ann: {hash_of('a' * 72)}\n") as exporter:
        assert exporter.get(user=f"ann:{'a' * 100}").status == 200
        assert exporter.get(user=f"ann:{'a' * 71}").status == 401


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """The passwords that are compared from now on, and their hashes."""
    seen: list[tuple[bytes, bytes]] = []
    check = bcrypt.checkpw

    def note(password: bytes, hashed: bytes) -> bool:
        seen.append((password, hashed))
        # A thousand slow hashes would take long.
        return check(password, hashed) if len(seen) < 10 else False

    monkeypatch.setattr(bcrypt, "checkpw", note)
    return seen


def checker(tmp_path: Path) -> Callable[[bytes], bool]:
    """Whether a user and password open a page that ann may read."""
    access = PageAccess(str(write(tmp_path, ANN)), print)
    rules = known(access.rules())
    return lambda pair: access.is_password_right(rules, f"Basic {base64.b64encode(pair).decode()}")


def test_a_password_is_compared_once(tmp_path: Path, compared: list[tuple[bytes, bytes]]) -> None:
    is_right = checker(tmp_path)
    for _ in range(20):
        assert is_right(b"ann:open sesame")
        assert not is_right(b"ann:wrong")
    assert [password for password, _ in compared] == [b"open sesame", b"wrong"]


def test_a_user_who_is_not_there_takes_as_long_as_one_who_is(
    tmp_path: Path, compared: list[tuple[bytes, bytes]]
) -> None:
    assert not checker(tmp_path)(b"bo:x")
    assert [hashed[4:6] for _, hashed in compared] == [b"04"]


def test_the_results_of_any_number_of_passwords_take_bounded_memory(
    tmp_path: Path, compared: list[tuple[bytes, bytes]]
) -> None:
    """Those of the last hundred are remembered."""
    is_right = checker(tmp_path)
    for number in (*range(1000), *range(900, 1000), 899):
        assert not is_right(b"ann:%d" % number)
    assert [password for password, _ in compared] == [
        b"%d" % number for number in (*range(1000), 899)
    ]


# Changes


def test_a_changed_file_holds_from_the_next_request_on(tmp_path: Path) -> None:
    with guarded(tmp_path, ANN) as exporter:
        assert exporter.get(user="ann:open sesame").status == 200
        write(tmp_path, f"basic_auth_users:\n  bo: {OPEN_SESAME}\n")
        assert exporter.get(user="ann:open sesame").status == 401
        assert exporter.get(user="bo:open sesame").status == 200
        # Another thread says it.
        exporter.wait_said("has changed and was read")
        assert exporter.said.count("has changed and was read") == 1


def test_while_the_file_is_broken_nobody_gets_a_page(tmp_path: Path) -> None:
    with guarded(tmp_path, ANN) as exporter:
        write(tmp_path, "basic_auth_users: [\n")
        for _ in range(3):
            with no_answer():
                exporter.get(user="ann:open sesame")
        exporter.wait_said("web.yml: is not valid YAML in line .* Until then nobody can read")
        assert exporter.said.count("not valid YAML") == 1
        (tmp_path / "web.yml").unlink()
        with no_answer():
            exporter.get(user="ann:open sesame")
        write(tmp_path, ANN)
        assert exporter.get(user="ann:open sesame").status == 200


def test_a_file_that_is_empty_while_it_is_written_does_not_open_the_page(tmp_path: Path) -> None:
    with guarded(tmp_path, ANN) as exporter:
        write(tmp_path, "")
        with no_answer():
            exporter.get()
        exporter.wait_said("no longer has passwords: restore the file, or restart")
        write(tmp_path, ANN)
        assert exporter.get().status == 401
        assert exporter.get(user="ann:open sesame").status == 200


# TLS


def test_with_tls_only_tls_is_spoken(authority: Authority) -> None:
    with guarded(authority.folder, TLS) as exporter:
        assert exporter.wait_said("serving https://")
        trusting = authority.client()
        assert exporter.get("/-/healthy", tls=trusting).status == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            exporter.get(tls=ssl.create_default_context())
        with no_answer():
            exporter.get()
        assert exporter.get(tls=trusting).status == 200
        assert "Traceback" not in exporter.said


@pytest.mark.slow
def test_a_client_that_does_not_finish_its_handshake_holds_nobody_up(authority: Authority) -> None:
    with (
        guarded(authority.folder, TLS) as exporter,
        connected(exporter.port) as silent,
        connected(exporter.port) as half,
    ):
        half.sendall(b"\x16\x03\x01\x02\x00")
        assert exporter.get("/-/healthy", tls=authority.client()).status == 200
        assert all_of(silent) == b""


VERIFY = f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n"
CA_FILE = f"{VERIFY}  client_ca_file: ca.pem\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [CA_FILE, f"{VERIFY}  client_ca: |\n{{ca}}"], ids=["a file", "a text"]
)
def test_who_has_no_certificate_of_the_authority_gets_nothing(
    authority: Authority, text: str
) -> None:
    ca = textwrap.indent(authority.folder.joinpath("ca.pem").read_text(), "    ")
    with guarded(authority.folder, text.format(ca=ca)) as exporter:
        assert exporter.get(tls=authority.client("stranger")).status == 200
        with no_answer():
            exporter.get(tls=authority.client())


@pytest.mark.slow
@pytest.mark.parametrize("allowed", ["prometheus.example", "10.0.0.1"])
def test_only_certificates_of_allowed_names_get_a_page(authority: Authority, allowed: str) -> None:
    with guarded(authority.folder, f"{CA_FILE}  client_allowed_sans: ['{allowed}']\n") as exporter:
        assert exporter.get(tls=authority.client("prometheus")).status == 200
        with no_answer():
            exporter.get(tls=authority.client("stranger"))


def test_a_client_with_a_version_that_is_too_old_gets_nothing(authority: Authority) -> None:
    with guarded(authority.folder, f"{TLS}  min_version: TLS13\n") as exporter:
        old = authority.client()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError, match=r"(?i)alert|eof|reset"):
            exporter.get(tls=old)
        assert exporter.get(tls=authority.client()).status == 200


def test_versions_and_suites_are_those_of_the_file(authority: Authority) -> None:
    path = write(
        authority.folder,
        TLS + "  min_version: TLS12\n  max_version: TLS12\n"
        "  cipher_suites: [TLS_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]\n"
        "  prefer_server_cipher_suites: false\n",
    )
    context = known(Rules(read_web_config(str(path))).context)
    assert not context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    with (
        exporting("--demo", "--web-config", path) as exporter,
        connected(exporter.port) as client,
        authority.client().wrap_socket(client, server_hostname="127.0.0.1") as secured,
    ):
        chosen = known(secured.cipher())
        assert (secured.version(), chosen[0]) == ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384")


@needs_openssl
def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    made = Authority(tmp_path)
    made.make("server")
    with guarded(tmp_path, TLS) as exporter:

        def serial() -> object:
            with (
                connected(exporter.port) as client,
                made.client().wrap_socket(client, server_hostname="127.0.0.1") as secured,
            ):
                return (secured.getpeercert() or {})["serialNumber"]

        before = serial()
        made.make("server")

        def renewed() -> bool:
            try:
                return serial() != before
            except OSError:
                return False  # the key was already new, the certificate not yet

        wait_until(renewed, "the new certificate")


# The rest of the file


def test_headers_are_sent_and_the_rate_is_limited(tmp_path: Path) -> None:
    with guarded(
        tmp_path,
        """
        http_server_config:
          http2: false
          headers:
            X-Frame-Options: deny
            Strict-Transport-Security: max-age=3600
        rate_limit:
          interval: 1h0m30s
          burst: 3
        """,
    ) as exporter:
        answers = [exporter.get() for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
        assert answers[0].headers["X-Frame-Options"] == "deny"
        assert answers[4].headers["Strict-Transport-Security"] == "max-age=3600"


REFUSED = {
    "a: 1": "the file has an unknown key 'a'; keys are tls_server_config, http_server_config,",
    "basic_auth_user:": "the file has an unknown key 'basic_auth_user'; keys are",
    "'': &x {'': *x}": "the file has an unknown key ''",
    "tls_server_config: {x: ''}": "tls_server_config has an unknown key 'x'",
    "tls_server_config: &x {y: *x}": "tls_server_config has an unknown key 'y'",
    "tls_server_config: ''": "tls_server_config is not a list of keys with values",
    "http_server_config: {headers: {X-Frame-Option: }}": "an unknown key 'X-Frame-Option'",
    "http_server_config: {headers: ''}": "headers is not a list of keys with values",
    "http_server_config: {http2: ''}": "http_server_config.http2 is not true or false",
    "rate_limit: {interval: '', burst: 5}": "rate_limit.interval is not a duration",
    "rate_limit: {interval: 1s, burst: ''}": "rate_limit.burst is not a whole number",
    "1: 2": "the file has a key that is no text",
    "text": "the file is not a list of keys with values",
    "basic_auth_users: ''": "basic_auth_users is not a list of keys with values",
    "basic_auth_users: {ann: }": "the password of 'ann' is not a bcrypt hash",
    "tls_server_config: {cert_file: }": "has no cert_file",
    "http_server_config: {http2: 3}": "http_server_config.http2 is not true or false",
    "http_server_config: {headers: {X-Frame-Options: 3}}": (
        "http_server_config.headers.X-Frame-Options is not a text: put it in quotes"
    ),
    "rate_limit: {interval: 1.5, burst: 1}": "rate_limit.interval is not a text: put it in quotes",
    "rate_limit: {interval: 1s, burst: true}": "rate_limit.burst is not a whole number, 1 or more",
    "[]": "not a list of keys",
    "basic_auth_users: {ann: secret-word}": "the password of 'ann' is not a bcrypt hash",
    "basic_auth_users: {ann: 5}": "the password of 'ann' is not a bcrypt hash",
    f"basic_auth_users: {{1: '{OPEN_SESAME}'}}": "a name that is empty",
    f"basic_auth_users: {{'a:b': '{OPEN_SESAME}'}}": "has a colon",
    f"basic_auth_users: {{ann: '$2b$31${'a' * 53}'}}": "has cost 31: use 4 to 16",
    "basic_auth_users:\n  ann: x\n  ann: y": "ann is there twice",
    "tls_server_config: {key_file: a}": "has no cert_file",
    "tls_server_config: {cert_file: a}": "has no key_file",
    "tls_server_config: {client_auth_type: NoClientCert}": "has no cert_file",
    "tls_server_config: {cert: a, key: b}": "use cert_file",
    "tls_server_config: {cert_file: a, key: secret-word}": "use key_file",
    "tls_server_config: {cert_file: missing, key_file: b}": "No such file or directory",
    "tls_server_config: {cert_file: web.yml, key_file: web.yml}": "OpenSSL",
    "tls_server_config: {cert_file: pipe, key_file: web.yml}": "is not a regular file",
    "tls_server_config: {cert_file: web.yml, key_file: pipe}": "is not a regular file",
    "http_server_config: {http2: true}": "http2 is not available",
    "http_server_config: {headers: {Server: x}}": "unknown key 'Server'",
    "http_server_config: {headers: {X-Frame-Options: allow}}": "neither deny nor sameorigin",
    'http_server_config: {headers: {X-XSS-Protection: "a\\r\\nX: y"}}': "no header may have",
    "rate_limit: {interval: 5, burst: 1}": "rate_limit.interval is not a duration",
    "rate_limit: {interval: 1s}": "rate_limit.burst is not a whole number",
    "rate_limit: {interval: 1s, burst: 0}": "rate_limit.burst is not a whole number",
    "a: [": "is not valid YAML in line",
    "&a [*a": "is not valid YAML",
    "!!python/object/apply:os.system [true]": "is not valid YAML",
    "\x00": "is not valid YAML",
    "x" * 2_000_000: "larger than 1 MiB",
}
_TLS_REFUSED = {
    "client_ca_flie: ": (
        "tls_server_config has an unknown key 'client_ca_flie'; keys are cert_file, key_file,"
    ),
    "cipher_suites: ''": "not a list of texts",
    "cipher_suites: [3]": "tls_server_config.cipher_suites is not a list of texts",
    "client_auth_type: RequestClientCert": "cannot",
    "client_auth_type: RequireAnyClientCert": (
        "client_auth_type cannot be 'RequireAnyClientCert' here"
    ),
    "client_ca_file: c": "need each other",
    "client_auth_type: VerifyClientCertIfGiven": "need each other",
    "client_allowed_sans: [x]": (
        "client_allowed_sans needs client_auth_type: RequireAndVerifyClientCert"
    ),
    "min_version: TLS9": "min_version cannot be",
    "min_version: TLS13, max_version: TLS12": "min_version is newer than max_version",
    "cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]": "unknown or insecure",
    "cipher_suites: x": "not a list of texts",
    "curve_preferences: [X25519]": "cannot order",
    "prefer_server_cipher_suites: 3": "true or",
}
REFUSED |= {
    f"tls_server_config: {{cert_file: a, key_file: b, {setting}}}": said
    for setting, said in _TLS_REFUSED.items()
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:60])
def test_what_cannot_be_honoured_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WebConfigError) as refused:
        Rules(read_web_config(str(path)))
    sentence = str(refused.value)
    assert REFUSED[text] in sentence
    assert "secret-word" not in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "text",
    [
        "",
        "basic_auth_users:\n",
        "tls_server_config: {}",
        "http_server_config: {headers: {Content-Security-Policy: ''}}",
        "rate_limit: {interval: 0, burst: 0}",
        "rate_limit: {interval: 0s, burst: 0}",
        "rate_limit: {interval: , burst: }",
    ],
)
def test_what_says_nothing_changes_nothing(tmp_path: Path, text: str) -> None:
    config = read_web_config(str(write(tmp_path, text)))
    rules = Rules(config)
    assert (rules.context, rules.authenticates, rules.headers) == (None, False, {})
    assert all(rules.has_room() for _ in range(10))


def test_a_choice_without_a_value_is_the_usual_one(tmp_path: Path) -> None:
    named = "tls_server_config: {cert_file: c, key_file: k"
    written = f"{named}, client_auth_type: '', min_version: , max_version: '', client_ca: ''}}"
    path = write(tmp_path, f"{named}}}")
    usual = read_web_config(str(path))
    assert read_web_config(str(write(tmp_path, written))) == usual


def test_aliases_of_aliases_are_not_followed(tmp_path: Path) -> None:
    """Each line has the line before it twice: to read all values would take for ever."""
    nested = "".join(f"k{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}\n" for n in range(1, 70))
    with pytest.raises(WebConfigError, match="unknown key 'k0'"):
        read_web_config(str(write(tmp_path, f"k0: &a0 {{x: 1}}\n{nested}")))


@given(st.one_of(st.binary(), st.text("{}[]:,&*!|>'\"%@`\n -#?abtls_1").map(str.encode)))
def test_any_bytes_are_a_configuration_or_are_refused(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        with suppress(WebConfigError):
            read_web_config(file.name)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "web.yml")
    with pytest.raises(WebConfigError, match="not a regular file"):
        read_web_config(str(tmp_path / "web.yml"))


def test_a_mistake_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    done = run_exporter("--demo", "--listen", "127.0.0.1:0", "--web-config", tmp_path / "none.yml")
    assert done.returncode == 2
    assert done.stderr == (
        f"gpumon: {tmp_path}/none.yml: cannot be read: No such file or directory\n"
    )


_WITHOUT = """
import sys
sys.modules["yaml"] = None
from gpumon.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_without_the_extra_the_sentence_names_it(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    command = [sys.executable, "-c", _WITHOUT, "exporter", "--demo", "--web-config", str(path)]
    done = run_program(command)
    assert done.returncode == 2
    assert "install gpumon with the extra exporter" in done.stderr
    assert done.stderr.count("\n") == 1
