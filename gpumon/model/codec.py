"""Encodes parts of the model as bytes, and restores them.

The bytes are MessagePack, in which most structures of the model are arrays of their fields. Fields
may change their order between versions: bytes of another program come with its ``layout_of``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache, cached_property, lru_cache
from itertools import repeat
from operator import methodcaller
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Raw, Struct, defstruct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import fields

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

Layout: TypeAlias = Mapping[str, Sequence[str]]
"""The names of the fields of each structure that is an array, in order."""

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
        return _encode(_encode(_changed(_plain(value), str, _as_bytes)))


def encode_for_others(value: Any) -> bytes:
    """The bytes for another program, with replacement characters where a text is not UTF-8.

    Raises:
        OverflowError: An integer has more than 64 bits.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(readable(_plain(value)))


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))


class Codec(Generic[T]):
    """Restores values of one type.

    Args:
        type_: The type.
        layout: That of the program that wrote the bytes with ``encode_for_others``; ``None`` for
            the bytes of ``encode`` of this program.

    Raises:
        ValueError: The layout is impossible.
    """

    def __init__(self, type_: Any, layout: Layout | None = None) -> None:
        self._type = type_
        self._layout = layout
        self._converts = layout is not None and any(
            layout.get(struct) != names for struct, names in layout_of(type_).items()
        )
        if layout is not None:
            _ = self._decoder

    @cached_property
    def _decoder(self) -> Decoder[Any]:
        if self._layout is None:
            return Decoder(self._type | bytes)
        return Decoder(_laid_out(self._type, self._layout) if self._converts else self._type)

    def decode(self, data: bytes) -> T:
        """The value that these bytes were made of.

        Bytes of this program are always restored, also with numbers out of their bounds.

        Raises:
            msgspec.MsgspecError: They are not of such a value, or a number or a list is out of its
                bounds.
            ValueError: A text is not UTF-8.
            RecursionError: They are nested too deeply.
        """
        value: Any
        if self._layout is None:
            value = self._own(data)
        else:
            value = self._decoder.decode(data)
            if self._converts:
                value = msgspec.convert(value, self._type, from_attributes=True)
        restored: T = value
        return restored

    def _own(self, data: bytes) -> Any:
        try:
            value = self._decoder.decode(data)
        except msgspec.ValidationError:
            return _built(self._type, msgspec.msgpack.decode(data))
        if not isinstance(value, bytes):
            return value
        return _built(self._type, _changed(msgspec.msgpack.decode(value), bytes, _as_text))


def shared_codec(type_: Any, layout: Layout | None = None) -> Codec[Any]:
    """The codec of a type and a layout, made once: for one that is not ours that takes 10 ms.

    Raises:
        ValueError, TypeError: The layout is impossible.
    """
    ordered = None if layout is None else tuple((name, tuple(layout[name])) for name in layout)
    return _shared_codec(type_, ordered)


@lru_cache(maxsize=32)
def _shared_codec(type_: Any, layout: tuple[tuple[str, tuple[str, ...]], ...] | None) -> Codec[Any]:
    return Codec(type_, None if layout is None else {name: list(names) for name, names in layout})


@cache
def layout_of(type_: Any) -> Layout:
    """The layout of this program for a type and all types in it."""
    found: dict[str, Sequence[str]] = {}

    def note(struct: type[Struct]) -> type[Struct]:
        if struct.__struct_config__.array_like:
            found[struct.__name__] = list(struct.__struct_fields__)
        for field in fields(struct):
            _with_structs(field.type, note)
        return struct

    _with_structs(type_, note)
    return found


def _laid_out(type_: Any, layout: Layout) -> Any:
    """A type whose structures that are arrays have the fields of a layout, known or not.

    Raises:
        ValueError: A structure has a field twice.
    """

    def other(struct: type[Struct]) -> type[Struct]:
        if not struct.__struct_config__.array_like:
            return struct
        known = {field.name: field.type for field in fields(struct)}
        names = layout.get(struct.__name__, struct.__struct_fields__)
        if len(set(names)) < len(names):
            raise ValueError(f"{struct.__name__} has a field twice")
        return defstruct(
            struct.__name__,
            [
                (name, _with_structs(known[name], other)) if name in known else (f"_{number}", Raw)
                for number, name in enumerate(names)
            ],
            array_like=True,
        )

    return _with_structs(type_, other)


def _with_structs(type_: Any, change: Callable[[type[Struct]], Any]) -> Any:
    """A type in which each structure is changed."""
    if isinstance(type_, type) and issubclass(type_, Struct):
        return change(type_)
    origin, parts = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return Annotated[_with_structs(parts[0], change), parts[1]]
    changed = tuple(part if part is ... else _with_structs(part, change) for part in parts)
    if changed == parts:
        return type_
    return Union[changed] if origin in (Union, UnionType) else origin[changed]  # noqa: UP007 - types known at run time only


def _built(type_: Any, plain: Any) -> Any:
    """A value of plain data that this program encoded, without checking it."""
    if plain is None:
        return None
    origin, parts = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return _built(parts[0], plain)
    if origin in (Union, UnionType):
        (known,) = [part for part in parts if part is not type(None)]
        return _built(known, plain)
    if origin is tuple:
        kinds = repeat(parts[0]) if parts[-1] is ... else parts
        return tuple([_built(kind, item) for kind, item in zip(kinds, plain, strict=False)])
    if parts:
        return {_built(parts[0], key): _built(parts[1], item) for key, item in plain.items()}
    if issubclass(type_, Struct):
        if isinstance(plain, list):
            plain = dict(zip(type_.__struct_fields__, plain, strict=True))
        types = {field.name: field.type for field in fields(type_)}
        return type_(**{name: _built(types[name], item) for name, item in plain.items()})
    return type_(plain) if issubclass(type_, Enum) else plain


def readable(value: Any) -> Any:
    """Plain data with a replacement character for each byte of a text that was not UTF-8.

    Halves of surrogate pairs stand for them.
    """
    return _changed(value, str, _whole)


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
