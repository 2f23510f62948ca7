"""Checks of the installation, and what to do about problems: one function per check.

A check examines one thing and returns a ``Result``, or ``None`` if it does not apply. It reads
files and queries the driver; it imports no framework, wakes no GPU and changes nothing. If
something cannot be determined, the result is ``UNKNOWN``, never ``PASS``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.doctor import access, computing, driver, frameworks, gpus, own, terminal
from gpumon.doctor.check import Check, unknown, why_failed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.doctor.check import Result
    from gpumon.doctor.context import DiagnosticContext

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
            try:
                result = check(context)
            except Exception as error:  # noqa: BLE001 - the other checks must run
                result = unknown(
                    f"The check failed: {why_failed(error)}",
                    "If the reason is not on this machine, please report it with this output.",
                )
            if result is not None:
                yield replace(result, section=section, check=check.name)
