"""Checks of the installation, and what to do about problems: one function per check.

A check examines one thing and returns a ``Result``, or ``None`` if it does not apply. It reads
files and queries the driver; it imports no framework, wakes no GPU and changes nothing. If
something cannot be determined, the result is ``UNKNOWN``, never ``PASS``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping  # noqa: TC003 - msgspec resolves annotations
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from gpumon.model.makers import load
from gpumon.system.resource_errors import lack_behind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.doctor.context import DiagnosticContext
    from gpumon.doctor.frameworks import Build
    from gpumon.model.makers import Maker

    Examine: TypeAlias = Callable[[DiagnosticContext], "Result | None"]


class CheckVerdict(str, Enum):
    """The verdict, from best to worst."""

    PASS = "pass"  # noqa: S105 - a verdict, and no secret
    """It works, or does no harm."""
    UNKNOWN = "unknown"
    """It could not be determined."""
    WARN = "warn"
    """It works, but not as well as it could, or not for everybody."""
    FAIL = "fail"
    """Something does not work for this reason."""


_ORDER = tuple(CheckVerdict)


class Result(Struct, frozen=True, kw_only=True):
    """The result of a check, as in JSON.

    Texts may contain untrusted parts, such as paths: not safe to print.
    """

    section: str = ""  # Set by ``examine``, like ``check``.
    check: str = ""
    verdict: CheckVerdict
    found: str  # For a person.
    todo: str | None = None  # ``None`` if there is nothing to do.
    details: tuple[str, ...] = ()  # What was found, a line each.


def passed(found: str, *details: str) -> Result:
    """The check passed."""
    return Result(verdict=CheckVerdict.PASS, found=found, details=details)


def unknown(found: str, todo: str = "", *details: str) -> Result:
    """It could not be determined."""
    return Result(verdict=CheckVerdict.UNKNOWN, found=found, todo=todo or None, details=details)


def warned(found: str, todo: str, *details: str) -> Result:
    """It works, but could be better."""
    return Result(verdict=CheckVerdict.WARN, found=found, todo=todo, details=details)


def failed(found: str, todo: str, *details: str) -> Result:
    """It does not work."""
    return Result(verdict=CheckVerdict.FAIL, found=found, todo=todo or None, details=details)


def why_failed(error: Exception) -> str:
    """Why something failed that no check expects to fail, as the end of a sentence."""
    lack = lack_behind(error)
    if lack is not None:
        return lack
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}."
    return f"{type(error).__name__}: {error}."


def worst(verdicts: Iterable[CheckVerdict]) -> CheckVerdict:
    """The worst verdict; ``PASS`` if there are none."""
    return max(verdicts, key=_ORDER.index, default=CheckVerdict.PASS)


class Check(Struct, frozen=True):
    """A check of one thing."""

    name: str  # The same in every version of gpumon.
    run: Examine  # ``None`` if the check does not apply.

    def __call__(self, context: DiagnosticContext) -> Result | None:
        """The result, without the name; ``None`` if the check does not apply."""
        return self.run(context)


def check(name: str) -> Callable[[Examine], Check]:
    """Make a check of a function; its docstring is its row in ``docs/doctor.md``."""
    return partial(Check, name)


Slot: TypeAlias = Literal[
    "driver", "device files", "process lists", "modes", "reports", "toolkits", "visible devices"
]
"""Where the checks of makers are among the others; see ``report.SECTIONS``."""


class MakerChecks(Struct, frozen=True, kw_only=True):
    """What there is to examine of a maker's GPUs and driver, and what to do about problems."""

    slots: Mapping[Slot, tuple[Check, ...]] = {}
    # Whether the dynamic linker finds the driver's library, and its version; ``None`` for a driver
    # without one.
    find_library: Callable[[], tuple[bool, str | None]] | None = None
    # Whether the driver is loaded, where that shows even without a GPU.
    is_loaded: Callable[[DiagnosticContext], bool] = lambda _: False
    # The result if a GPU on the bus has a wrong driver; gets all GPUs in words, and in lines.
    fault_on_bus: Callable[[DiagnosticContext, str, tuple[str, ...]], Result | None] = lambda *_: (
        None
    )
    # What helps if the driver reports PIDs of another PID namespace; ``None`` if it does not.
    foreign_pids: Callable[[DiagnosticContext], str | None] = lambda _: None
    container: str = "Start the container with its GPUs."  # What to do if it lacks device files.
    process_note: str = ""  # What else is to be known of its process lists.
    slow: str | None = None  # What to do if the driver takes long to answer.
    lost: str = "Run `sudo dmesg` to see what happened."  # What to do about a lost GPU.
    replace: str = "Show the GPU's vendor the kernel's log."  # What to do about bad memory.
    # What frameworks are built for, see ``frameworks.Build``; as words, with its version.
    platform: str = ""
    platform_words: str = ""
    # How to install each framework for its GPUs.
    frameworks: Mapping[str, str] = {}
    # Whether programs should compute on GPUs that are part of a processor.
    computes_when_integrated: Callable[[DiagnosticContext], bool] = lambda _: False
    # The result for a build for its platform of some version; gets also lines of all builds.
    judge_build: Callable[[DiagnosticContext, Build, str, tuple[str, ...]], Result] | None = None


def checks_of(maker: Maker) -> MakerChecks:
    """What there is to examine of a maker."""
    checks: MakerChecks = MakerChecks() if maker.checks is None else load(maker.checks)
    return checks
