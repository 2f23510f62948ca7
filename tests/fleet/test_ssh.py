"""The command line of ssh, and what its messages mean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.fleet.fleet import FleetError
from gpumon.fleet.ssh import SshClient, ending, read_client
from gpumon.text.formatting import printable
from tests.command import run_program
from tests.lives import needs


def told_by_ssh(arguments: list[str]) -> set[str]:
    command = [arguments[0], "-G", *arguments[1 : arguments.index("--") + 2]]
    return set(run_program(command, check=True).stdout.splitlines())


@needs("ssh")
def test_the_options_of_the_user_come_first_and_ours_forward_nothing(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "ForwardAgent yes\nForwardX11 yes\nLocalForward 9999 x:1\nPermitLocalCommand yes\n"
        "LocalCommand touch /tmp/x\nControlMaster auto\nConnectTimeout 77\nRequestTTY force\n"
        "RemoteCommand reboot\nLogLevel QUIET\n"
    )
    client = SshClient(read_client(f"ssh -F '{config}'"))
    arguments = client.stream("ann@gpu-01", 1.0)
    assert arguments[arguments.index("--") + 1] == "ann@gpu-01"
    told = told_by_ssh(arguments)
    assert {
        *("forwardagent no", "forwardx11 no", "clearallforwardings yes", "permitlocalcommand no"),
        *("batchmode yes", "controlmaster false", "requesttty false", "loglevel INFO"),
        *("connecttimeout 5", "user ann"),
    } <= told
    assert not any(line.startswith(("localforward", "remotecommand reboot")) for line in told)
    asked = read_client(f"ssh -F '{config}' -oForwardAgent=yes -oConnectTimeout=33")
    told = told_by_ssh(SshClient(asked).stream("x", 1.0))
    assert {"forwardagent yes", "connecttimeout 33"} <= told


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "fish", "tcsh"])
def test_any_login_shell_reads_the_command(shell: str, tmp_path: Path) -> None:
    try:
        done = run_program(
            [shell, "-c", SshClient(command="echo 'a b'").stream("x", 0.5)[-1]],
            # fish creates its folder there.
            os.environ | {"XDG_CONFIG_HOME": str(tmp_path)},
        )
    except FileNotFoundError:
        pytest.skip(f"there is no {shell} here")
    assert done.stdout == "#gpumon stream\na b stream -n 0.5\n"


@pytest.mark.parametrize(("text", "said"), [("", "empty"), ("ssh 'x", "quote is not closed")])
def test_what_is_no_client_is_refused(text: str, said: str) -> None:
    with pytest.raises(FleetError, match=said):
        read_client(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ssh: connect to host x port 22: Connection timed out", "within 5s"),
        ("Connection timed out during banner exchange", "does not greet"),
        ("ssh: connect to host x port 22: No route to host", "no route"),
        ("kex_exchange_identification: Connection closed by remote host", "MaxStartups"),
        ("Received disconnect from x port 22:2: Too many authentication failures", "too many keys"),
        ("x: Permission denied (publickey,password).", "wants a password"),
        ("x: Permission denied (publickey).", "refuses every key"),
        ("/root/.ssh/config: line 3: Bad configuration option: foo", "has a mistake"),
        ("something new in OpenSSH 12", "ssh: something new in OpenSSH 12"),
        ("", "ssh ended with status 255"),
    ],
)
def test_messages_of_ssh_are_told_with_what_to_do(text: str, said: str) -> None:
    banner = b"Authorized use only.\r\nEverything is logged.\r\n\r\n" if text else b""
    assert said in ending("x", 255, banner + text.encode(), began=False)


def test_a_connection_that_broke_is_not_told_as_a_command_that_ended() -> None:
    lost = b"Timeout, server x not responding.\r\n"
    assert "nothing came back" in ending("x", 255, lost, began=True)
    assert ending("x", 255, b"Connection to x closed by remote host.", began=True) == (
        "the connection was lost"
    )
    assert ending("x", 3, b"gpumon: no driver.\n", began=True) == "gpumon ended there: no driver"
    old = b"gpumon: argument COMMAND: invalid choice: 'stream' (choose from ...)"
    assert "too old" in ending("x", 2, old, began=True)


@given(st.binary(max_size=300), st.integers(-64, 255), st.booleans())
def test_whatever_a_host_says_the_sentence_is_safe_and_short(
    said: bytes, status: int, began: bool
) -> None:
    sentence = ending("gpu-01", status, said, began=began)
    assert sentence == printable(sentence)
    assert 0 < len(sentence) < 300
    assert not sentence.endswith(".")
