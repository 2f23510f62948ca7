"""The table of settings, made from the fields of ``gpumon.config.settings``.

It reads the values of the file and the variables; errors, the template of the file, ``config show``
and the tables of ``docs/config.md`` use it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

from gpumon.config.columns import COLUMN, COLUMN_SETS, DEFAULT_COLUMNS, GPU_COLUMN, whole_choice
from gpumon.config.settings import DEFAULT_THEME, VARIABLES, Settings
from gpumon.config.suggestions import did_you_mean
from gpumon.config.toml_text import toml
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
    value: object = settings
    for part in name.split("."):
        value = getattr(value, part)
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


def _number(unit: str, least: float, most: float) -> tuple[str, Read]:
    timespan = unit == "seconds"
    words = 'seconds, or a time such as "90s" or "10m",' if timespan else unit
    valid = f"{words} from {least:g} to {most:g}"

    def read(value: object) -> float:
        number = as_number(value, timespan=timespan)
        if not least <= number <= most:
            raise InvalidValue(f"give {valid}")
        return number

    return valid, read


def _choice(valid: str, names: Collection[str]) -> tuple[str, Read]:
    def read(value: object) -> object:
        if not isinstance(value, str) or value not in names:
            near = did_you_mean(value, names) if len(names) > 2 else ""
            raise InvalidValue(f"give {valid}{near}")
        return value

    return valid, read


def _text(valid: str, *, may_be_empty: bool) -> tuple[str, Read]:
    def read(value: object) -> str:
        if (
            not isinstance(value, str)
            or not value.isprintable()
            or not (may_be_empty or value.strip())
        ):
            raise InvalidValue(f"give {valid}")
        return value

    return valid, read


def _texts(example: str) -> tuple[str, Read]:
    valid = f"a table of texts, such as {example}"

    def read(value: object) -> Mapping[str, str]:
        if not isinstance(value, dict) or not all(
            key.strip() and isinstance(text, str) and text.strip() and text.isprintable()
            for key, text in value.items()
        ):
            raise InvalidValue(f"give {valid}")
        return value

    return valid, read


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


def _reader(kind: Any, words: str, stated: Mapping[str, Any], default: object) -> tuple[str, Read]:
    """The valid values of a field, as the object of "give", and what reads them.

    Args:
        kind: Its type.
        words: The string beside the type; empty if there is none.
        stated: What its ``Meta`` states.
        default: Its default.
    """
    if words == "columns":
        return f"a list of columns or sets: {_COLUMN_NAMES}", read_columns
    if words == "a column":
        return _choice(f"a column: {', '.join(COLUMN)}", COLUMN)
    if kind is bool:
        return "true or false", read_switch
    if kind is float:
        return _number(words, stated["ge"], stated["le"])
    if get_origin(kind) is Literal:
        names = get_args(kind)
        return _choice(f"{', '.join(names[:-1])} or {names[-1]}", names)
    if get_origin(kind) is Mapping:
        return _texts(stated["examples"][0])
    return _text(words, may_be_empty=default == "")


def _settings(defaults: Struct, table: str = "") -> Iterator[Setting]:
    """The settings of a struct, and of those in its fields."""
    for key, hint in get_type_hints(type(defaults), include_extras=True).items():
        name, default = f"{table}{key}", getattr(defaults, key)
        notes = getattr(hint, "__metadata__", ())
        stated = {
            fact: value
            for note in notes
            if isinstance(note, Meta)
            for fact in ("description", "examples", "ge", "le")
            if (value := getattr(note, fact)) is not None
        }
        if isinstance(default, Struct):
            yield from _settings(default, f"{key}.")
        elif stated:
            words = next((note for note in notes if isinstance(note, str)), "")
            valid, read = _reader(hint.__origin__, words, stated, default)
            yield Setting(name, stated["description"], valid, read, _USUAL.get(name) or default)


SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _settings(Settings())}

TABLES = tuple(dict.fromkeys(name.partition(".")[0] for name in SETTINGS if "." in name))
"""Tables of the file; all other settings come before them."""

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def read_variable(name: str, text: str) -> Mapping[str, object]:
    """The values of a variable as in the file, by setting.

    Raises:
        InvalidValue: A value is none of the setting's; others are checked like those of the file.
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
