"""Accidents, joined with whose processes and jobs they concerned.

``report_of`` joins an accident with the snapshots around it, so that the present, the past, a
replay, a report and other hosts say the same. ``first_lines`` joins the lines of one accident.
``AccidentFollower`` finds the new ones of a machine from snapshot to snapshot.
"""

from gpumon.accidents.details import details_of
from gpumon.accidents.join import LEFT_SECONDS, AccidentReport, report_of
from gpumon.accidents.latest import LISTS_BYTES, AccidentFollower, NewAccident
from gpumon.accidents.lines import first_lines

__all__ = [
    "LEFT_SECONDS",
    "LISTS_BYTES",
    "AccidentFollower",
    "AccidentReport",
    "NewAccident",
    "details_of",
    "first_lines",
    "report_of",
]
