"""Where a process listens for TCP connections.

``/proc/PID/net`` shows the sockets of the network namespace of any process, with the user and the
inode of each: see ``tcp4_seq_show`` in the kernel's ``net/ipv4/tcp_ipv4.c``. Whose socket it is
only the open files show, which only the user of the process and root may read.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.host.procfs import opened, read_file
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gpumon.host.procfs import ProcessFiles
    from gpumon.model.processes import ProcessId
    from gpumon.system.system import System

_LISTEN, _ESTABLISHED = "0A", "01"
_LISTENING_BYTES, _TABLE_BYTES = 2**17, 2**20
"""Bytes of a table that are read: some 800 sockets, and 7000. Those that listen come first."""
_ROUTES_BYTES = 2**18
_SOCKET = "socket:["
_IPV6_LOOPBACK = "00000000000000000000000000000001"
_MOST_FILES = 2**16
_ANY = ("0.0.0.0", "::")  # noqa: S104 - compared, and never bound


class Listener(Struct, frozen=True):
    """A listening TCP socket.

    Attributes:
        address: The address that it is bound to; ``0.0.0.0`` and ``::`` are all.
        port: Its port.
        uid: Its user.
        inode: Its number, which no other socket of the machine has meanwhile.
    """

    address: str
    port: int
    uid: int
    inode: int


class Sockets(Struct, frozen=True):
    """The listening sockets around a process.

    Attributes:
        owner: The UID of the process.
        own: Those that it has open; ``None`` if its open files may not be read.
        around: All those of its network namespace.
        is_local: Whether that namespace is this program's.
        has_ipv6: Whether it has the loopback address of IPv6.
        container_address: An address of that namespace if it is another one and has one.
    """

    owner: int
    own: tuple[Listener, ...] | None
    around: tuple[Listener, ...]
    is_local: bool
    has_ipv6: bool = True
    container_address: str | None = None


def sockets_of(process: ProcessId, system: System = THIS_SYSTEM) -> Sockets:
    """Where a process listens now.

    Raises:
        OSError: It has ended.
    """
    with opened(system.proc, process.pid) as files:
        if files.stat().id != process:
            raise ProcessLookupError
        around = tuple(_listeners(files))
        inodes = _socket_inodes(files)
        own = None if inodes is None else tuple(each for each in around if each.inode in inodes)
        is_local = _is_local(around, system.proc)
        return Sockets(
            owner=files.owner(),
            own=own,
            around=around,
            is_local=is_local,
            has_ipv6=_IPV6_LOOPBACK in files.text("net/if_inet6"),
            container_address=None if is_local else _address_inside(files),
        )


def reachable_address(listener: Listener, sockets: Sockets) -> str | None:
    """The address at which this program reaches a listener of ``sockets``, if there is one."""
    if sockets.is_local:
        if listener.address not in _ANY:
            return listener.address
        if listener.address == "::" and sockets.has_ipv6:
            return "::1"
        # Of two listeners at this port, the other one may be meant.
        is_alone = sum(each.port == listener.port for each in sockets.around) <= 1
        return "127.0.0.1" if listener.address != "::" or is_alone else None
    address = sockets.container_address
    return address if listener.address in (*_ANY, address) else None


def is_connected(
    process: ProcessId, port: int, peer: tuple[str, int], system: System = THIS_SYSTEM
) -> bool:
    """Whether the namespace of a process has a connection to its port from this peer.

    An address inside of a container may be another machine's outside of it, so a connection to it
    says nothing by itself.

    Args:
        process: The process.
        port: The port that it listens on.
        peer: Address and port of the other end.
        system: The operating system that is read.
    """
    with suppress(OSError), opened(system.proc, process.pid) as files:
        if files.stat().id != process:
            return False
        return any(
            (local[1], remote, state) == (port, peer, _ESTABLISHED)
            for local, remote, state, _, _ in _rows(files, _TABLE_BYTES)
        )
    return False


def _listeners(files: ProcessFiles) -> Iterator[Listener]:
    for (address, port), _, state, uid, inode in _rows(files, _LISTENING_BYTES):
        if state == _LISTEN:
            yield Listener(address, port, uid, inode)


_Address = tuple[str, int]


def _rows(files: ProcessFiles, limit: int) -> Iterator[tuple[_Address, _Address, str, int, int]]:
    """Local and remote address, state, UID and inode of the sockets in a process' namespace."""
    for table in ("net/tcp", "net/tcp6"):
        with suppress(OSError):
            # The last line may be cut.
            for line in files.read(table, limit).decode("ascii", "replace").splitlines()[1:]:
                with suppress(ValueError, IndexError):
                    cells = line.split(None, 10)
                    local, remote = _address(cells[1]), _address(cells[2])
                    yield local, remote, cells[3], int(cells[7]), int(cells[9])


def _address(cell: str) -> _Address:
    """An address as the kernel writes it: words of 32 bits in the byte order of the machine.

    Raises:
        ValueError: It is none.
    """
    host, _, port = cell.partition(":")
    packed = bytes.fromhex(host)
    if len(packed) not in {4, 16}:
        raise ValueError(cell)
    words = struct.unpack(f">{len(packed) // 4}I", packed)
    packed = struct.pack(f"={len(words)}I", *words)
    if len(packed) == 16 and packed.startswith(b"\0" * 10 + b"\xff\xff"):
        packed = packed[12:]
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, packed), int(port, 16)


def _socket_inodes(files: ProcessFiles) -> Collection[int] | None:
    """The numbers of its open sockets; ``None`` if they may not be read."""
    found: set[int] = set()
    try:
        names = files.names(f"{files.thread}fd")[:_MOST_FILES]
        for name in names:
            with suppress(FileNotFoundError, ValueError):
                target = files.link(f"{files.thread}fd/{name}")
                if target.startswith(_SOCKET):
                    found.add(int(target[len(_SOCKET) : -1]))
    except PermissionError:
        return None
    return found


def _is_local(around: Collection[Listener], proc: str) -> bool:
    """Whether sockets are of this program's namespace: the numbers of others are not seen here.

    The link to the namespace, which would say it, is readable for the user of the process only.
    """
    with opened(proc, os.getpid()) as files:
        here = {listener.inode for listener in _listeners(files)}
    return any(listener.inode in here for listener in around)


def _address_inside(files: ProcessFiles) -> str | None:
    """The first IPv4 address of its namespace that is not of the loopback interface."""
    with suppress(OSError):
        address = ""
        routes = read_file("net/fib_trie", _ROUTES_BYTES, files.directory)
        for line in routes.decode("ascii", "replace").splitlines():
            kind, _, rest = line.strip().partition(" ")
            if kind == "|--":
                address = rest
            elif kind == "/32" and rest == "host LOCAL" and not address.startswith("127."):
                return address
    return None
