"""The command line of the ssh client, and what its error messages mean."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from gpumon.fleet.fleet import FleetError
from gpumon.fleet.nvidia_smi import query_loop
from gpumon.text.formatting import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

STREAM_MARK = b"#gpumon stream"
"""The line before the stream of gpumon."""
SMI_MARK = b"#gpumon nvidia-smi"
"""The line before the tables of nvidia-smi."""
NOT_FOUND = 127
"""Exit status of a shell that finds no command, and of ``sh`` there if it finds neither program."""

_SSH_FAILED = 255
_OPTIONS = (
    # Nobody can type a password or confirm a key here.
    "-oBatchMode=yes",
    "-oConnectTimeout=5",
    # A connection that died without a word ends after 15 s.
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
    # An existing shared connection is used; a new one would outlive gpumon.
    "-oControlMaster=no",
    "-oForkAfterAuthentication=no",
    # The host gets a command, and nothing of this machine.
    "-oForwardAgent=no",
    "-oForwardX11=no",
    "-oClearAllForwardings=yes",
    "-oPermitLocalCommand=no",
    # These would take the place of the command, or change what it writes.
    "-oRemoteCommand=none",
    "-oRequestTTY=no",
    "-oStdinNull=no",
    # Errors below this level are not written, and gpumon could not say why a connection ended.
    "-oLogLevel=INFO",
)
"""Options of every connection. Those in the user's own command come first, and ssh takes the first
value of each."""
_PATH = 'PATH="$PATH:$HOME/.local/bin"'
"""Programs that a user installed are often not on the PATH of a command over ssh."""
_SHOWN = 200


class SshClient(NamedTuple):
    """How hosts are reached.

    Attributes:
        client: The client with its options.
        command: The command of gpumon on a host.
        commands: Other commands of gpumon, by host.
    """

    client: tuple[str, ...] = ("ssh",)
    command: str = "gpumon"
    commands: Mapping[str, str] = {}

    def stream(self, host: str, interval: float, *, gpumon: bool = True) -> list[str]:
        """The arguments that start a stream of samples, or of nvidia-smi's tables.

        Args:
            host: The host.
            interval: Seconds between samples.
            gpumon: Whether its gpumon is used, if it has any.
        """
        found = self._command(host)
        stream = (
            f"if command -v {_program(found)} >/dev/null 2>&1; then "
            f"echo {shlex.quote(STREAM_MARK.decode())}; exec {found} stream -n {interval:g}; fi; "
        )
        script = (
            f"{_PATH}; {stream if gpumon else ''}"
            "if command -v nvidia-smi >/dev/null 2>&1; then "
            f"echo {shlex.quote(SMI_MARK.decode())}; {query_loop(interval)} fi; "
            f"exit {NOT_FOUND}"
        )
        return self._arguments(host, script)

    def remote(self, host: str, *, readonly: bool) -> list[str]:
        """The arguments that start ``gpumon remote``, which answers for the host's processes."""
        option = " --readonly" if readonly else ""
        return self._arguments(host, f"{_PATH}; exec {self._command(host)} remote{option}")

    def _command(self, host: str) -> str:
        return self.commands.get(host, self.command)

    def _arguments(self, host: str, script: str) -> list[str]:
        # The login shell of the user may be none that can read the script.
        return [*self.client, *_OPTIONS, "--", host, f"exec sh -c {shlex.quote(script)}"]


def read_client(text: str) -> tuple[str, ...]:
    """The ssh client with its options.

    Raises:
        FleetError: It is no command.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError:
        raise FleetError(
            f"cannot read the command of the ssh client {_shown(text)}: a quote is not closed."
        ) from None
    if not words:
        raise FleetError("the command of the ssh client is empty: write one such as ssh -F FILE.")
    return words


def _program(command: str) -> str:
    """The program of a command of the configuration, quoted for a shell."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    # ``sudo -n gpumon`` and ``env A=1 gpumon`` exist if sudo and env do.
    return shlex.quote(words[0]) if words else "gpumon"


def client_fault(client: str, error: OSError) -> str:
    """Why the client does not start."""
    if isinstance(error, FileNotFoundError):
        return (
            f"{_shown(client)} was not found on this machine: install OpenSSH's client, or name"
            " another with --ssh"
        )
    return f"{_shown(client)} cannot be started on this machine: {error.strerror}"


def ending(host: str, status: int, said: bytes, *, began: bool) -> str:
    """Why a connection ended, and what to do, as a sentence without a full stop.

    Args:
        host: The host.
        status: The exit status of ssh, or of the command on the host; negative for a signal.
        said: The end of what was written to standard error, by ssh or by the host.
        began: Whether the command had begun on the host.
    """
    text = said.decode("utf-8", "replace")
    last = _last_line(text)
    if began:
        if status == NOT_FOUND:
            return _NOT_FOUND_THERE
        if status == _SSH_FAILED:
            if "not responding" in last:
                return "the connection was lost: nothing came back for 15s"
            # Only of a command that a signal ended does ssh say nothing.
            return "the connection was lost" if last else "gpumon was killed there"
        if "invalid choice: 'stream'" in text:
            return "gpumon there is too old to send samples: update it"
        return f"gpumon ended there: {last}" if last else "gpumon ended there"
    for pattern, sentence in _MEANINGS:
        if re.search(pattern, text, re.IGNORECASE):
            return sentence.replace("HOST", host)
    if status == NOT_FOUND:
        return _NOT_FOUND_THERE
    if last:
        return f"ssh: {last}" if status == _SSH_FAILED else f"the host sent no samples: {last}"
    return f"the host sent no samples; ssh {_status(status)}"


def _status(status: int) -> str:
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    if not lines:
        return ""
    return shortened(printable(lines[-1].removeprefix("gpumon: ")).rstrip("."), _SHOWN)


def _shown(text: str) -> str:
    return printable(shortened(text, _SHOWN))


_NOT_FOUND_THERE = (
    "neither gpumon nor nvidia-smi was found there: install gpumon, or name its path under [hosts]"
    " in the configuration"
)
_MEANINGS: tuple[tuple[str, str], ...] = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key has changed: find out why, then ssh-keygen -R and ssh HOST once",
    ),
    (
        "Host key verification failed|No [A-Z0-9-]+ host key is known",
        "its host key is not known: ssh HOST once, and compare the fingerprint",
    ),
    (
        "Too many authentication failures",
        "ssh offered too many keys: choose one with IdentityFile and IdentitiesOnly in ssh_config",
    ),
    (
        r"Permission denied \([^)]*(?:password|keyboard-interactive)",
        "it wants a password, which gpumon cannot type: ssh-copy-id HOST",
    ),
    (
        r"Permission denied \(",
        "it refuses every key of this user: test with ssh HOST",
    ),
    (
        "Could not resolve hostname",
        "its name cannot be resolved: check the spelling, ssh_config and DNS",
    ),
    (
        "Connection refused",
        "it refuses connections: sshd does not run there, or listens on another port",
    ),
    (
        "No route to host|Network is unreachable|Host is down",
        "there is no route to it: it is off, or the network is",
    ),
    (
        "timed out during banner exchange|kex_exchange_identification.*timed out",
        "it accepts connections, but sshd does not greet: it may be overloaded",
    ),
    (
        "(?:Connection|Operation) timed out",
        "it did not answer within 5s: it is off, or a firewall is in between",
    ),
    (
        "kex_exchange_identification|Connection (?:closed|reset) by",
        "sshd closed the connection: it may be restarting, or limit connections (MaxStartups)",
    ),
    (
        "Unable to negotiate",
        "ssh and sshd have no algorithm in common: update the older one",
    ),
    (
        "Bad owner or permissions on|Bad configuration option|terminating, [0-9]+ bad",
        "the ssh configuration of this machine has a mistake: test with ssh HOST",
    ),
    (
        "account is (?:currently )?not available|account has expired|not allowed at this time",
        "this user may not log in there",
    ),
)
"""What to search in the messages of OpenSSH, in this order, and what it means."""
