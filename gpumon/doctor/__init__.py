"""Checks of the installation, and what to do about problems: one function per check.

A check examines one thing and returns a ``Result``, or ``None`` if it does not apply. It reads
files and queries the driver; it imports no framework, wakes no GPU and changes nothing. If
something cannot be determined, the result is ``UNKNOWN``, never ``PASS``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.doctor import access, computing, driver, frameworks, gpus, own, terminal
from gpumon.doctor.check import Check, CheckVerdict, Result, unknown, why_failed, worst
from gpumon.doctor.context import DiagnosticContext, DriverAnswer, Machine, ask_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "SECTIONS",
    "CheckVerdict",
    "DiagnosticContext",
    "DriverAnswer",
    "Machine",
    "Result",
    "ask_driver",
    "examine",
    "worst",
]

_MODULES = {
    "Driver": (driver,),
    "Access": (access,),
    "GPUs": (gpus,),
    "Computing": (computing, frameworks),
    "Terminal": (terminal,),
    "gpumon": (own,),
}
SECTIONS: dict[str, tuple[Check, ...]] = {
    title: tuple(
        value for module in modules for value in vars(module).values() if isinstance(value, Check)
    )
    for title, modules in _MODULES.items()
}
"""The checks by section, in the order of their dependencies, which is that of the functions."""


def examine(context: DiagnosticContext) -> Iterator[Result]:
    """Run every check; those that do not apply are left out."""
    for section, checks in SECTIONS.items():
        for check in checks:
            result = _result(check, context)
            if result is not None:
                yield replace(result, section=section, check=check.name)


def _result(check: Check, context: DiagnosticContext) -> Result | None:
    """The result of a check; if the check itself fails, the result says so."""
    try:
        return check(context)
    except Exception as error:  # noqa: BLE001 - the other checks must run
        return unknown(
            f"The check failed: {why_failed(error)}",
            "If the reason is not on this machine, please report it with this output.",
        )
