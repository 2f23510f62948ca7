"""Encodes parts of the model as bytes, and restores them unchanged.

The bytes are MessagePack, in which most structures of the model are arrays of their fields. Only
the program that wrote them reads them, so fields may change their order between versions.
"""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec.msgpack import Decoder, Encoder

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_encode = Encoder().encode
_as_bytes = methodcaller("encode", "utf-8", "surrogatepass")
_as_text = methodcaller("decode", "utf-8", "surrogatepass")


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
        return _encode(_encode(_changed(msgspec.to_builtins(value), str, _as_bytes)))


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
            plain = _changed(msgspec.msgpack.decode(value), bytes, _as_text)
            value = msgspec.convert(plain, self._type)
        restored: T = value
        return restored


def _changed(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Plain data with every value of a kind changed, also keys."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {
            _changed(key, kind, change): _changed(part, kind, change) for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_changed(part, kind, change) for part in value]
    return value
