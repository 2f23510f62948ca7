"""Real sshds on loopback ports, started as ordinary processes with keys made for the test.

Each ``Sshd`` is a host of its own: it has a name, a host key, a port, and an environment for the
commands that it runs, such as that of a simulated driver.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from gpumon.fleet.ssh import SshClient
from tests.known import known
from tests.ports import free_place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
PATIENCE = 60.0
_SEPARATION = Path("/run/sshd")
"""sshd, started as root, wants this folder, which the service's unit makes."""


def fault() -> str:
    """Why no sshd can be started here; empty if one can."""
    missing = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None]
    if SSHD is None:
        missing.append("sshd")
    if missing:
        return f"needs {', '.join(missing)} (Debian: openssh-server)"
    if os.geteuid() == 0:
        try:
            _SEPARATION.mkdir(mode=0o755, exist_ok=True)
        except OSError as error:
            return f"{_SEPARATION} cannot be made: {error.strerror}"
    return ""


def make_key(path: Path) -> None:
    path.unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)],
        check=True,
        stdin=subprocess.DEVNULL,
    )


class Sshd:
    """An sshd of one host."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], options: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.place = free_place()
        make_key(folder / "host_key")
        variables = " ".join(f'"{name}={value}"' for name, value in environment.items())
        lines = [
            *options,
            f"Port {self.place.port}",
            f"ListenAddress {self.place.host}",
            f'HostKey "{folder}/host_key"',
            f"AuthorizedKeysFile {_word(folder.parent / 'authorized_keys')}",
            *("PidFile none", "StrictModes no", "UsePAM no", "PermitRootLogin yes"),
            *("KbdInteractiveAuthentication no", "PasswordAuthentication no"),
            *("PrintMotd no", "LogLevel ERROR"),
            *([f"SetEnv {variables}"] if variables else []),
        ]
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [known(SSHD), "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            with socket.socket() as client:
                if client.connect_ex(self.place) == 0:
                    return
            log_text = (self.folder / "log").read_text()
            assert self._process.poll() is None, log_text
            assert time.monotonic() < deadline, log_text
            time.sleep(0.02)

    def sessions(self) -> list[psutil.Process]:
        """All processes below it: its sessions, and what they run."""
        if self._process is None:
            return []
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self._process.pid).children(recursive=True)
        return []

    def running(self, word: str) -> list[psutil.Process]:
        """The processes below it with a word among their arguments, without shells."""
        found = []
        for process in self.sessions():
            with suppress(psutil.NoSuchProcess):
                command = process.cmdline()
                if word in command and not command[0].endswith("sh"):
                    found.append(process)
        return found

    def stop(self) -> None:
        if self._process is None:
            return
        below = self.sessions()
        self._process.kill()
        self._process.wait()
        self._process = None
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _word(path: Path) -> str:
    """A path in a configuration of ssh, where a percent sign begins a name to replace."""
    return f'"{str(path).replace("%", "%%")}"'


class Lab(ExitStack):
    """Hosts and a client that reaches them by their names; the hosts stop with the block."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        make_key(folder / "key")
        (folder / "authorized_keys").write_text((folder / "key.pub").read_text())
        self.config = folder / "ssh_config"
        self.config.write_text(
            f"IdentityFile {_word(folder / 'key')}\nIdentitiesOnly yes\nIdentityAgent none\n"
            f"UserKnownHostsFile {_word(folder / 'known_hosts')}\nGlobalKnownHostsFile none\n"
            "StrictHostKeyChecking yes\n"
        )
        (folder / "known_hosts").write_text("")
        self.hosts: dict[str, Sshd] = {}

    @property
    def client(self) -> SshClient:
        return SshClient(("ssh", "-F", str(self.config)))

    @property
    def ssh(self) -> str:
        return shlex.join(["ssh", "-F", str(self.config)])

    def host(
        self,
        name: str,
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        *,
        running: bool = True,
        also: str = "",
    ) -> Sshd:
        """A host that the client can reach, by patterns of more names ``also``.

        Commands there have this environment, and its ``sshd_config`` has these lines.
        """
        folder = self.folder / name
        folder.mkdir()
        sshd = Sshd(folder, environment or {}, options)
        with self.config.open("a") as config:
            config.write(f"Host {name} {also}\n HostName {sshd.place.host}\n")
            config.write(f" Port {sshd.place.port}\n HostKeyAlias {name}\n")
        self.trust(name, sshd)
        self.hosts[name] = sshd
        self.callback(sshd.stop)
        if running:
            sshd.start()
        return sshd

    def trust(self, name: str, sshd: Sshd) -> None:
        key = (sshd.folder / "host_key.pub").read_text()
        with (self.folder / "known_hosts").open("a") as known:
            known.write(f"{name} {key}")
