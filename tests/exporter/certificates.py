"""Certificates that openssl makes, for one test run."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_MISSING = "openssl is not installed"
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason=_MISSING)


class Authority:
    """Makes certificates in a folder; its own is ``ca.pem``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._run(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2"),
            *("-subj", "/CN=authority", "-addext", "keyUsage=critical,keyCertSign"),
            *("-addext", "basicConstraints=critical,CA:TRUE"),
        )

    def make(self, name: str, subject_names: str = "IP:127.0.0.1") -> None:
        self._run(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"),
        )
        self.folder.joinpath("names").write_text(f"subjectAltName={subject_names}\n")
        self._run(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-out", f"{name}.new", "-days", "2", "-extfile", "names"),
        )
        # Replaced at once, so that a reader finds a whole one.
        self.folder.joinpath(f"{name}.new").replace(self.folder / f"{name}.pem")

    def client(self, name: str | None = None) -> ssl.SSLContext:
        """What a client trusts, and shows of itself."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if name is not None:
            context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        return context

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, check=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority, a certificate of a server, and some of clients."""
    if shutil.which("openssl") is None:
        pytest.skip(_MISSING)
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.make("server")
    made.make("prometheus", "DNS:prometheus.example,IP:10.0.0.1")
    made.make("stranger", "DNS:stranger.example")
    return made
