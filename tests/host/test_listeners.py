"""Where a process listens: its own sockets only, and at an address that leads to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.host.listeners import Listener, Sockets, is_connected, reachable_address, sockets_of
from gpumon.model.processes import ProcessId
from gpumon.system.system import System
from tests.host.programs import identity
from tests.known import known
from tests.lives import needs

_LISTENS = """
import socket
listener = socket.create_server(("", 0))
print(listener.getsockname()[1], flush=True)
input()
"""
ALL = "0.0.0.0"  # noqa: S104 - nothing is bound to it


def own_id() -> ProcessId:
    return identity(os.getpid())


@contextmanager
def listening(*prefix: str) -> Iterator[tuple[int, str]]:
    """Another process, by its number, that listens at a port: "" if it could not start."""
    command = [*prefix, sys.executable, "-c", _LISTENS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process.pid, known(process.stdout).readline().strip()
        process.kill()


@pytest.fixture
def connected() -> Iterator[tuple[int, tuple[str, int]]]:
    """The port of a listener of ours, and where the other end of a connection to it is."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as connection,
    ):
        yield listener.getsockname()[1], connection.getsockname()


def test_the_sockets_of_a_process_are_those_that_it_has_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, listening() as (other, others_port):
        port = listener.getsockname()[1]
        sockets = sockets_of(own_id())
        own = {each.port for each in sockets.own or ()}
        assert port in own
        assert int(others_port) not in own
        assert {port, int(others_port)} <= {each.port for each in sockets.around}
        assert sockets.is_local
        assert sockets.owner == os.geteuid()
        others = sockets_of(identity(other))
        assert [each.port for each in others.own or ()] == [int(others_port)]


def test_a_socket_that_does_not_listen_is_none(connected: tuple[int, tuple[str, int]]) -> None:
    _, (_, port) = connected
    assert port not in {each.port for each in sockets_of(own_id()).own or ()}


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_addresses_of_both_versions_are_read() -> None:
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
        socket.create_server(("127.3.2.1", 0)) as four,
    ):
        found = {(each.address, each.port) for each in sockets_of(own_id()).own or ()}
        assert {six.getsockname()[:2], four.getsockname()} <= found


def test_a_process_that_has_ended_has_no_connection() -> None:
    assert not is_connected(replace(own_id(), start_time=1), 1, ("127.0.0.1", 2))


LOCAL = Sockets(1000, (), (), is_local=True)
TWO = (Listener("::", 8000, 1000, 1), Listener("127.0.0.1", 8000, 1001, 2))
INSIDE = Sockets(1000, (), (), is_local=False, container_address="172.17.0.2")


@pytest.mark.parametrize(
    ("bound", "sockets", "address"),
    [
        (ALL, LOCAL, "127.0.0.1"),
        ("::", LOCAL, "::1"),
        ("::", replace(LOCAL, has_ipv6=False), "127.0.0.1"),
        # Somebody else's listener at 127.0.0.1 would get the question.
        ("::", replace(LOCAL, has_ipv6=False, around=TWO), None),
        ("127.0.0.1", LOCAL, "127.0.0.1"),
        ("10.1.2.3", LOCAL, "10.1.2.3"),
        (ALL, INSIDE, "172.17.0.2"),
        ("::", INSIDE, "172.17.0.2"),
        ("172.17.0.2", INSIDE, "172.17.0.2"),
        ("127.0.0.1", INSIDE, None),
        (ALL, replace(INSIDE, container_address=None), None),
    ],
)
def test_the_address_of_a_listener(bound: str, sockets: Sockets, address: str | None) -> None:
    assert reachable_address(Listener(bound, 8000, 1000, 1), sockets) == address


def test_a_connection_is_seen_at_its_other_end(connected: tuple[int, tuple[str, int]]) -> None:
    port, peer = connected
    assert is_connected(own_id(), port, peer)
    assert not is_connected(own_id(), port, ("127.0.0.1", 1))
    assert not is_connected(own_id(), port + 1, peer)


def row(local: str, uid: str = "1000", inode: str = "77") -> str:
    return f"   0: {local} 00000000:0000 0A 0:0 00:0 0  {uid}        0 {inode}"


def test_a_table_that_lies_gives_nothing(tmp_path: Path) -> None:
    process = tmp_path / "7"
    for folder in (process / "net", process / "fd", tmp_path / str(os.getpid()) / "net"):
        folder.mkdir(parents=True)
    text = Path("/proc/self/stat").read_text()
    process.joinpath("stat").write_text("7" + text[text.index(" ") :])
    tmp_path.joinpath(str(os.getpid()), "stat").write_text(text)
    rows = [
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid",
        "",
        "x" * 5000,
        row("0100007F"),
        row("ZZ00007F:1F90"),
        row("01:1F90"),
        row("0100007F:1F90", uid="many"),
        row("0100007F:1F90", inode=""),
        row("0100007F:1F90"),
    ]
    process.joinpath("net", "tcp").write_text("\n".join(rows))
    (process / "fd" / "3").symlink_to("socket:[77]")
    (process / "fd" / "4").symlink_to("socket:[x]")
    (process / "fd" / "5").symlink_to("/dev/null")
    found = sockets_of(ProcessId(7, own_id().start_time), System(proc=str(tmp_path)))
    assert found.own == (Listener("127.0.0.1", 8080, 1000, 77),)
    assert not found.is_local
    assert found.container_address is None


@pytest.mark.root
@needs("unshare")
def test_a_namespace_of_its_own_is_not_local() -> None:
    with listening("unshare", "--net") as (inside, port):
        if not port:
            pytest.skip("no namespaces can be made here")
        sockets = sockets_of(identity(inside))
    assert [each.port for each in sockets.own or ()] == [int(port)]
    assert not sockets.is_local
    assert reachable_address((sockets.own or ())[0], sockets) is None
