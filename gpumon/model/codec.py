"""Encodes parts of the model as bytes, and restores them unchanged.

MessagePack, in which the structures of the model are arrays of their fields: short, and as quick to
write as to compress. Bytes are read by the version of gpumon that wrote them, so a new field may
stand anywhere.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from msgspec.msgpack import Decoder, Encoder

T = TypeVar("T")

_encode = Encoder().encode


def encode(value: Any) -> bytes:
    """The bytes of a structure, or of a tuple or list of structures.

    Raises:
        OverflowError: An integer has more than 64 bits.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        # Command lines that are not UTF-8 have halves of surrogate pairs, which MessagePack cannot
        # express: bytes in place of texts can.
        return _encode(_encode(_with_bytes(msgspec.to_builtins(value))))


class Codec(Generic[T]):
    """Restores values of one type.

    Args:
        type_: The type.
    """

    def __init__(self, type_: Any) -> None:
        self._type = type_
        self._decode = Decoder(type_ | bytes).decode

    def decode(self, data: bytes) -> T:
        """The value that ``encode`` made these bytes of.

        Raises:
            msgspec.MsgspecError: They are not of such a value.
        """
        value: Any = self._decode(data)
        if isinstance(value, bytes):
            value = msgspec.convert(_with_texts(msgspec.msgpack.decode(value)), self._type)
        restored: T = value
        return restored


def _with_bytes(value: Any) -> Any:
    """Plain data with the bytes of each text in its place."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict):
        return {_with_bytes(key): _with_bytes(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_with_bytes(part) for part in value]
    return value


def _with_texts(value: Any) -> Any:
    """What ``_with_bytes`` made of plain data, as it was."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogatepass")
    if isinstance(value, dict):
        return {_with_texts(key): _with_texts(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_texts(part) for part in value]
    return value
