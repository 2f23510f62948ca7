"""Listening sockets for HTTP, and words about them."""

from __future__ import annotations

import os
import socket
from ipaddress import ip_address

_BACKLOG = 128


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Args:
        host: A name or an address; empty for every address of this machine.
        port: 0 for one that is free.

    Raises:
        OSError: It cannot listen there; ``listen_fault`` says why.
    """
    if host in {"", "::"} and socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
        )
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)


def listen_fault(host: str, port: int, error: OSError) -> str:
    """Why ``listen`` failed: ``cannot listen at 127.0.0.1:80: Permission denied``."""
    reason = error.strerror or str(error)
    if error.errno is not None and not isinstance(error, socket.gaierror):
        # create_server has added the address.
        reason = os.strerror(error.errno)
    return f"cannot listen at {authority(host, port)}: {reason}"


def authority(host: str, port: int) -> str:
    """An address and a port as in a URL: ``[::1]:80``, ``*:80``."""
    return f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """Whether only programs on this machine can connect."""
    address = ip_address(listener.getsockname()[0].partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
