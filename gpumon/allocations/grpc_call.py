"""Calls a method of a gRPC server that takes no arguments, over a Unix socket.

This is as much of HTTP/2 (RFC 9113) as such a call needs. The request is always the same few bytes.
The headers of the answer are not read: a method that fails sends no message. The packages for gRPC
bring a compiled library and threads of their own, which is much for a single method.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES = 4 * 2**20
"""The longest message that gRPC's own clients take by default."""
_MOST_RECEIVED = 2 * MOST_BYTES
"""The same with all frames around it, and with those that carry nothing of it."""

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
_END_STREAM = _ACKNOWLEDGED = 0x1
_END_HEADERS = 0x4
_PADDED = 0x8
_STREAM = 1
_LONGEST_FRAME = 2**14
"""Bytes that a server may put into a frame unless a client allows more."""
_FIRST_WINDOW = 2**16 - 1
"""Bytes that a server may send on a connection until a client allows more."""
_HEADER_TABLE, _PUSH, _STREAM_WINDOW = 1, 2, 4
"""Settings: the dynamic table of headers, server push, and bytes of each answer."""
_PREFIX = struct.Struct(">?I")
"""In front of a message: whether it is compressed, and its length."""


def call(path: str, method: str, patience: float) -> bytes | None:
    """Call a method.

    Args:
        path: The path of the socket.
        method: The method with its service, such as ``v1.PodResourcesLister/List``.
        patience: Seconds that everything may take.

    Returns:
        The message that it answers; ``None`` if it cannot be reached, fails, answers anything else
        or more than 4 MiB, or takes longer.
    """
    deadline = time.monotonic() + patience
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(patience)
            connection.connect(path)
            connection.sendall(_request(method))
            body = _body(connection, deadline)
    except OSError:
        return None
    if len(body) < _PREFIX.size:
        return None
    is_compressed, length = _PREFIX.unpack_from(body)
    if is_compressed or length > MOST_BYTES or length != len(body) - _PREFIX.size:
        return None
    return bytes(body[_PREFIX.size :])


def _request(method: str) -> bytes:
    """All that is sent but acknowledgements."""
    settings = b"".join(
        struct.pack(">HI", *setting)
        for setting in ((_HEADER_TABLE, 0), (_PUSH, 0), (_STREAM_WINDOW, _MOST_RECEIVED))
    )
    # Headers without compression (RFC 7541), with numbers for names and pairs of its static table:
    # 3 is ":method: POST", 6 ":scheme: http", 4 ":path", 1 ":authority", 31 "content-type".
    headers = (
        b"\x83\x86"
        + (b"\x04" + _text(f"/{method}"))
        + (b"\x01" + _text("localhost"))
        + (b"\x0f\x10" + _text("application/grpc"))
        + (b"\x00" + _text("te") + _text("trailers"))
    )
    return (
        _PREFACE
        + _frame(_SETTINGS, 0, 0, settings)
        + _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _MOST_RECEIVED - _FIRST_WINDOW))
        + _frame(_HEADERS, _END_HEADERS, _STREAM, headers)
        + _frame(_DATA, _END_STREAM, _STREAM, _PREFIX.pack(False, 0))
    )


def _text(text: str) -> bytes:
    """A text of at most 126 bytes with its length."""
    return bytes([len(text)]) + text.encode("ascii")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def _body(connection: socket.socket, deadline: float) -> bytearray:
    """The data of the answer.

    Raises:
        OSError: The connection breaks, takes longer, or carries anything else than such an answer.
    """
    body = bytearray()
    for kind, flags, stream, payload in _frames(connection, deadline):
        if kind in (_SETTINGS, _PING) and not flags & _ACKNOWLEDGED:
            # The payload of a ping is repeated.
            repeated = payload if kind == _PING else b""
            connection.sendall(_frame(kind, _ACKNOWLEDGED, 0, repeated))
        if stream != _STREAM:
            continue
        if kind == _RESET:
            raise ConnectionResetError
        if kind == _DATA:
            padding = payload[0] if flags & _PADDED and payload else 0
            body += payload[bool(flags & _PADDED) : len(payload) - padding]
        if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            break
    return body


def _frames(connection: socket.socket, deadline: float) -> Iterator[tuple[int, int, int, bytes]]:
    """The type, flags, stream and payload of each frame, without end.

    Raises:
        OSError: See ``_body``.
    """
    received = bytearray()
    total = 0
    while True:
        while len(received) >= 9 and len(received) >= 9 + (
            length := int.from_bytes(received[:3], "big")
        ):
            kind, flags, stream = struct.unpack_from(">BBI", received, 3)
            payload = bytes(received[9 : 9 + length])
            del received[: 9 + length]
            yield kind, flags, stream & 0x7FFFFFFF, payload
        if len(received) > 9 + _LONGEST_FRAME or total > _MOST_RECEIVED:
            raise ConnectionError
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        data = connection.recv(2**16)
        if not data:
            raise ConnectionError
        total += len(data)
        received += data
