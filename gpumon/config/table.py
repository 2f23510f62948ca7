"""The table of settings, made from the fields of ``gpumon.config.settings``.

It reads the values of the file and the variables; errors, the template of the file, ``config show``
and the tables of ``docs/config.md`` use it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

from gpumon.config.columns import COLUMN, COLUMN_SETS, DEFAULT_COLUMNS, GPU_COLUMN, whole_choice
from gpumon.config.settings import DEFAULT_THEME, MOST_SHORT, VARIABLES, Marker, Settings
from gpumon.config.suggestions import did_you_mean
from gpumon.config.toml_text import toml
from gpumon.model.thresholds import SECONDS, Number
from gpumon.text.unit_parsing import TIMESPAN, QuantityError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_SHOWN = 40
_USUAL: Mapping[str, object] = {"columns": DEFAULT_COLUMNS, "theme": DEFAULT_THEME}
"""The values that apply if a setting is ``None``."""

Read: TypeAlias = "Callable[[object], object]"


class InvalidValue(Exception):  # noqa: N818 - becomes a ConfigError once its place is known
    """A value is invalid; the text says what is valid."""


class Setting(Struct, frozen=True):
    """A setting."""

    name: str  # With its table: ``units.memory``.
    about: str  # What it does, without a full stop.
    valid: str  # The valid values, as the object of "give".
    read: Read  # Converts the value of the file; raises ``InvalidValue``.
    default: object


def value_of(settings: Settings, name: str) -> object:
    """The value of a setting."""
    value: object = attrgetter(name)(settings)
    return value


def shown(value: object) -> str:
    """The written value, shortened."""
    try:
        text = repr(value) if isinstance(value, str) else toml(value)
    except RecursionError:
        return "a value that is nested so deeply"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def as_number(value: object, *, timespan: bool) -> float:
    """A number in the file, or with ``timespan`` a time as text; not a number for all else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # An integer may have more digits than a float can hold.
        return float(value) if abs(value) < 1e300 else math.inf
    if timespan and isinstance(value, str):
        with suppress(QuantityError):
            return TIMESPAN.read(value)[0]
    return math.nan


def read_switch(value: object) -> bool:
    """True or false; raises ``InvalidValue``."""
    if not isinstance(value, bool):
        raise InvalidValue("give true or false")
    return value


def _number(number: Number) -> tuple[str, Read]:
    timespan = number.unit == SECONDS
    words = 'seconds, or a time such as "90s" or "10m",' if timespan else number.unit
    valid = f"{words} from {number.least:g} to {number.most:g}"

    def read(value: object) -> float:
        amount = as_number(value, timespan=timespan)
        if not number.least <= amount <= number.most:
            raise InvalidValue(f"give {valid}")
        return amount

    return valid, read


def _choice(valid: str, names: Collection[str]) -> tuple[str, Read]:
    def read(value: object) -> object:
        if not isinstance(value, str) or value not in names:
            near = did_you_mean(value, names) if len(names) > 2 else ""
            raise InvalidValue(f"give {valid}{near}")
        return value

    return valid, read


def _valid_if(valid: str, is_valid: Callable[[object], bool]) -> tuple[str, Read]:
    def read(value: object) -> object:
        if not is_valid(value):
            raise InvalidValue(f"give {valid}")
        return value

    return valid, read


def _is_text(value: object, *, may_be_empty: bool = False) -> bool:
    if not isinstance(value, str) or not value.isprintable():
        return False
    return may_be_empty or bool(value.strip())


def _is_short(value: object) -> bool:
    return (
        isinstance(value, str) and _is_text(value, may_be_empty=True) and len(value) <= MOST_SHORT
    )


def _are_texts(value: object) -> bool:
    return isinstance(value, dict) and all(
        key.strip() and _is_text(text) for key, text in value.items()
    )


def _are_texts_by_port(value: object) -> bool:
    return isinstance(value, dict) and _are_texts(value) and all(map(_is_port, value))


def _is_port(text: str) -> bool:
    is_number = text.isascii() and text.isdecimal() and not text.startswith("0")
    return is_number and len(text) <= 5 and int(text) < 2**16


_COLUMN_NAMES = (
    f"{', '.join(COLUMN)}, for the GPUs {', '.join(GPU_COLUMN)}, and the sets "
    f"{' and '.join(COLUMN_SETS)}"
)


def read_columns(value: object) -> tuple[str, ...]:
    """The columns for a list of keys, or for the name of a set; raises ``InvalidValue``."""
    keys = [value] if isinstance(value, str) else value
    if not isinstance(keys, list) or not keys:
        raise InvalidValue('give a list of columns, such as ["pid", "user", "memory_used"]')
    known = (*COLUMN, *GPU_COLUMN, *COLUMN_SETS)
    for key in keys:
        if not isinstance(key, str) or key not in known:
            near = did_you_mean(key, known)
            raise InvalidValue(f"{shown(key)} is no column{near}; there are {_COLUMN_NAMES}")
    return whole_choice(keys)


def _reader(kind: Any, note: object, meta: Meta, default: object) -> tuple[str, Read] | None:
    """The valid values of a field, as the object of "give", and what reads them.

    ``None`` if neither its type nor the note beside its ``Meta`` says which are valid.
    """
    if note is Marker.COLUMNS:
        return f"a list of columns or sets: {_COLUMN_NAMES}", read_columns
    if note is Marker.COLUMN:
        return _choice(f"a column: {', '.join(COLUMN)}", COLUMN)
    if note is Marker.SHORT:
        return _valid_if(f"a text of at most {MOST_SHORT} characters", _is_short)
    if isinstance(note, str):
        return _valid_if(note, partial(_is_text, may_be_empty=default == ""))
    if kind is bool:
        return "true or false", read_switch
    if get_origin(kind) is Literal:
        names = get_args(kind)
        return _choice(f"{', '.join(names[:-1])} or {names[-1]}", names)
    if note is Marker.PORTS and meta.examples:
        valid = f"a table of texts by port, such as {meta.examples[0]}"
        return _valid_if(valid, _are_texts_by_port)
    if get_origin(kind) is Mapping and meta.examples:
        return _valid_if(f"a table of texts, such as {meta.examples[0]}", _are_texts)
    return None


def settings_of(defaults: Struct, table: str = "") -> Iterator[Setting]:
    """The settings of a struct, and of those in its fields.

    Raises:
        TypeError: A field does not say what the setting does, or which values are valid.
    """
    for key, hint in get_type_hints(type(defaults), include_extras=True).items():
        name, default = f"{table}{key}", getattr(defaults, key)
        notes = getattr(hint, "__metadata__", ())
        number = next((note for note in notes if isinstance(note, Number)), None)
        meta = next((note for note in notes if isinstance(note, Meta)), Meta())
        if isinstance(default, Struct):
            yield from settings_of(default, f"{key}.")
        elif number is not None:
            yield Setting(name, number.about, *_number(number), default)
        elif Marker.APART not in notes:
            note = next((note for note in notes if note is not meta), None)
            reader = _reader(getattr(hint, "__origin__", hint), note, meta, default)
            if meta.description is None or reader is None:
                raise TypeError(
                    f"the setting {name} needs Annotated with a Number, or with a Meta that has a "
                    "description and what says which values are valid: see gpumon.config.settings"
                )
            yield Setting(name, meta.description, *reader, _USUAL.get(name) or default)


SETTINGS: dict[str, Setting] = {setting.name: setting for setting in settings_of(Settings())}

TABLES = tuple(dict.fromkeys(name.partition(".")[0] for name in SETTINGS if "." in name))
"""Tables of the file; all other settings come before them."""

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def read_variable(name: str, text: str) -> Mapping[str, object]:
    """The values of a variable as in the file, by setting.

    Raises:
        InvalidValue: A value is not valid for any of the settings; that of a single setting is
            checked like one of the file.
    """
    example, names = VARIABLES[name].example, VARIABLES[name].names
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(names) > 1:
        return {_setting_of(part, names, example): part for part in parts}
    setting = names[0]
    default = SETTINGS[setting].default
    if isinstance(default, tuple):
        return {setting: parts}
    if not isinstance(default, bool):
        return {setting: text}
    if text.lower() not in _TRUE + _FALSE:
        raise InvalidValue("give 1 or 0")
    return {setting: text.lower() in _TRUE}


def _setting_of(part: str, names: tuple[str, ...], example: str) -> str:
    """The setting among these that can have this value."""
    for name in names:
        with suppress(InvalidValue):
            SETTINGS[name].read(part)
            return name
    choices = ", ".join(SETTINGS[name].valid for name in names)
    raise InvalidValue(f"give {choices}, or one of each with a comma between: {example}")
