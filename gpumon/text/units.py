"""The units on screen. Logs, exports and reports have fixed units."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct


class Units(Struct, frozen=True):
    """The configured units."""

    memory: Annotated[
        Literal["GiB", "GB"],
        Meta(
            description="GiB, powers of 1024 as nvidia-smi counts, or GB, powers of 1000; on "
            "screen only"
        ),
    ] = "GiB"
    temperature: Annotated[
        Literal["C", "F"], Meta(description="Celsius or Fahrenheit; on screen only")
    ] = "C"


class Memory(NamedTuple):
    """The names and sizes of memory units."""

    kilo: int  # How many of a unit make one of the next.
    mega: str  # The name of ``kilo`` squared.
    giga: str  # The name of ``kilo`` cubed.


_BINARY, _DECIMAL = Memory(1024, "MiB", "GiB"), Memory(1000, "MB", "GB")


class _InForce:
    """One setting for all screens of the program, which has one user."""

    units = Units()


def use_units(units: Units) -> None:
    """Use these units from now on; call it before anything is drawn."""
    _InForce.units = units


def memory_units() -> Memory:
    """The current memory units."""
    return _BINARY if _InForce.units.memory == "GiB" else _DECIMAL


def degree() -> str:
    """The current unit of temperatures: ``°C``."""
    return f"°{_InForce.units.temperature}"


def degrees(celsius: float) -> float:
    """A temperature in that unit."""
    return celsius if _InForce.units.temperature == "C" else celsius * 1.8 + 32


def degrees_between(celsius: float) -> float:
    """A difference of temperatures in that unit."""
    return celsius if _InForce.units.temperature == "C" else celsius * 1.8
