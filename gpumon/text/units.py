"""What amounts on screen are told in. Logs, exports and reports have units of their own."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct


class Units(Struct, frozen=True, forbid_unknown_fields=True):
    """The choice.

    Attributes:
        memory: Powers of 1024, as nvidia-smi has them, or of 1000.
        temperature: Celsius or Fahrenheit.
    """

    memory: Literal["GiB", "GB"] = "GiB"
    temperature: Literal["C", "F"] = "C"


class Memory(NamedTuple):
    """How bytes are told.

    Attributes:
        kilo: How many of a unit make one of the next.
        mega: What ``kilo`` twice over is called.
        giga: And three times over.
    """

    kilo: int
    mega: str
    giga: str


_BINARY, _DECIMAL = Memory(1024, "MiB", "GiB"), Memory(1000, "MB", "GB")


class _InForce:
    """One for all of a program's screens: it has one person before it."""

    units = Units()


def use_units(units: Units) -> None:
    """Tell amounts in these from now on; before anything is drawn."""
    _InForce.units = units


def memory_units() -> Memory:
    """How bytes are told now."""
    return _BINARY if _InForce.units.memory == "GiB" else _DECIMAL


def degree() -> str:
    """The unit of temperatures now: ``°C``."""
    return f"°{_InForce.units.temperature}"


def degrees(celsius: float) -> float:
    """A temperature in that unit."""
    return celsius if _InForce.units.temperature == "C" else celsius * 1.8 + 32


def degrees_between(celsius: float) -> float:
    """A difference of temperatures in that unit."""
    return celsius if _InForce.units.temperature == "C" else celsius * 1.8
