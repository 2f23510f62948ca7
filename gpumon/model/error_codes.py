"""Errors that a driver reports as a number: what each means, by the table of its maker."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from gpumon.model.makers import load, maker_of

if TYPE_CHECKING:
    from collections.abc import Mapping


class ErrorSeverity(str, Enum):
    """How severe an error code is; the values are the words of ``xid critical`` and the like."""

    BY_PROGRAM = "by program"
    """A program caused it, or only a program was ended by it: the GPU goes on working."""
    NOTE = "note"
    """The driver or the GPU dealt with it, as with a repair of the memory."""
    WARNING = "warning"
    """It should be looked after, mostly by a reset once the GPU is free."""
    CRITICAL = "critical"
    """The GPU, or what it computes, cannot be relied on."""


class ErrorCode(NamedTuple):
    """An error that a driver reports as a number."""

    label: str  # How the error is cited: ``XID 79``.
    catalogue: str  # Where all errors are explained.
    meaning: str | None = None  # ``None`` for a number that is not in the table, as the other two.
    severity: ErrorSeverity | None = None
    advice: str | None = None  # What to do, in words that follow a colon.

    @property
    def by_program(self) -> bool:
        """Whether a program caused it and the GPU still works."""
        return self.severity is ErrorSeverity.BY_PROGRAM

    @property
    def passing(self) -> bool:
        """Whether the GPU is sound after it, so that it need not be reported for long."""
        return self.severity in (ErrorSeverity.BY_PROGRAM, ErrorSeverity.NOTE)

    @property
    def explanation(self) -> str:
        """The meaning, or where to find it."""
        return self.meaning or f"look it up in {self.catalogue}"


def error_code(number: int, name: str | None = None) -> ErrorCode:
    """The error with the number that is in ``Gpu.xid`` of a GPU with this product name."""
    maker = maker_of(name)
    # Most runs see no error and need not load the table.
    table: Mapping[int, tuple[str, ErrorSeverity, str]]
    table = {} if maker.error_table is None else load(maker.error_table)
    return ErrorCode(f"{maker.error_label} {number}", maker.error_catalogue, *table.get(number, ()))


def error_details(number: int, text: str, name: str | None = None) -> str | None:
    """What the kernel log says of an error beyond its number: ``fatal, link 8, unit NETIR``.

    Args:
        number: See ``error_code``.
        text: ``Accident.text``.
        name: The product name of the GPU.

    Returns:
        Words that follow a comma, safe to print; ``None`` if the text says nothing that is known.
    """
    maker = maker_of(name)
    if maker.error_details is None or not text:
        return None
    details: str | None = load(maker.error_details)(number, text)
    return details
