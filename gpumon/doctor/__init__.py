"""Checks of the installation, and what to do about problems: one function per check.

A check examines one thing and returns a ``Result``, or ``None`` if it does not apply. It reads
files and queries the driver; it imports no framework, wakes no GPU and changes nothing. If
something cannot be determined, the result is ``UNKNOWN``, never ``PASS``.
"""

from gpumon.doctor.context import DiagnosticContext, DriverAnswer, ask_driver
from gpumon.doctor.examination import SECTIONS, examine
from gpumon.doctor.machine import Machine
from gpumon.doctor.result import CheckVerdict, Result, worst

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
