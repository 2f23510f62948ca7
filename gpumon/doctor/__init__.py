"""What is installed, whether it can work, and what to do where it cannot: a check a function.

A check looks at one thing and gives a ``Result``, or ``None`` where the question does not arise. It
reads files and asks the driver; it imports no framework, wakes no card and changes nothing. What
cannot be found out is ``UNKNOWN``, never ``PASS``.
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
