"""What IBM Spectrum LSF has given to jobs of this machine.

``bjobs`` is asked for the jobs of this machine, in JSON, which names cannot forge. The form of its
answer, and of ``gpu_alloc`` in it, is in the tests of ceems (pkg/api/resource/lsf/cli_test.go) and
in Lenovo's LiCO (``convert_gpu_alloc``); the fields are in bjobs(1).
"""

from __future__ import annotations

import re
import socket
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from gpumon.allocations.placement import devices_by_place
from gpumon.allocations.polling import Poll
from gpumon.allocations.programs import printed_by
from gpumon.allocations.scheduler import unknown
from gpumon.model.allocations import LSF, Allocation
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpumon.allocations.programs import Printed
    from gpumon.model.snapshot import Snapshot
    from gpumon.system.system import Clock

_ASK_SECONDS = 60.0
"""Seconds between two questions: a single daemon answers those of the whole cluster."""
_OLD_SECONDS = 300.0
"""Age of an answer from which on other jobs may have got GPUs since."""
_MOST_JOBS = 4096

_FIELDS = "jobid jobindex user stat start_time finish_time gpu_alloc"
_COMMAND = ("bjobs", "-u", "all", "-json", "-o", _FIELDS, "-m")
_BAD_HOST = b"Bad host name"
_NO_JOBS = b"No unfinished job found"

_HOLDS_NOTHING = frozenset(("PEND", "PSUSP", "FWD_PEND", "DONE", "EXIT", "POST_DONE", "POST_ERR"))
_NUMBER = re.compile(r"[0-9]{1,20}")
_GPU = re.compile(r"([0-9]{1,4})(:[0-9/]+)?")
"""A GPU, with the sizes of a GPU instance and a compute instance of MIG."""
_TIME = re.compile(r"([A-Z][a-z]{2}) +([0-9]{1,2}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) ([0-9]{4})")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_AT_LIMIT = " L"
"""Behind a finish time that is the run limit's, and no estimate."""


class _Record(Struct):
    """A job in JSON; other keys are skipped, and any type is let through."""

    number: object = msgspec.field(name="JOBID", default="")
    index: object = msgspec.field(name="JOBINDEX", default="")
    user: object = msgspec.field(name="USER", default="")
    state: object = msgspec.field(name="STAT", default="")
    start: object = msgspec.field(name="START_TIME", default="")
    finish: object = msgspec.field(name="FINISH_TIME", default="")
    gpus: object = msgspec.field(name="GPU_ALLOC", default=None)


class _Answer(Struct):
    records: list[_Record] = msgspec.field(name="RECORDS")


class LsfJob(Struct, frozen=True):
    """A job that holds GPUs of this machine, or may hold some."""

    name: str | None  # As people write it: ``321``, or ``321[4]`` in an array.
    user: str | None = None
    gpus: frozenset[int] | None = None  # LSF's numbers of the GPUs; ``None``: not known.
    is_share: bool = False  # Whether they are MIG devices of these GPUs.
    since: float | None = None
    until: float | None = None


class LsfAllocations:
    """A ``Scheduler``.

    Args:
        clock: The clock.
        run: Runs a program; see ``printed_by``.
    """

    def __init__(
        self,
        clock: Clock = THIS_SYSTEM.clock,
        run: Callable[[Sequence[str], float], Printed | None] = printed_by,
    ) -> None:
        self._run = run
        self._jobs: Poll[list[LsfJob]] = Poll(self._ask, _ASK_SECONDS, clock)

    def find(self, snapshot: Snapshot, patience: float) -> tuple[tuple[Allocation, ...], float]:
        """See ``Scheduler.find``."""
        pause = self._jobs.look(patience)
        # LSF's numbers are certain where all ways to number GPUs are the same.
        places = devices_by_place(None, snapshot.gpus)
        found = [_allocation(job, places) for job in self._jobs.answer or ()]
        if self._jobs.age >= _OLD_SECONDS:
            found.append(unknown(LSF))
        return tuple(found), pause

    def _ask(self, patience: float) -> list[LsfJob] | None:
        name = socket.gethostname()
        short = name.partition(".")[0]
        # LSF may know the machine by either name.
        for host in dict.fromkeys((name, short)):
            printed = self._run((*_COMMAND, host), patience)
            if printed is None:
                return None
            if not printed.has_failed_with(_BAD_HOST):
                return jobs_of(printed, short)
        # A machine that LSF does not know has no jobs.
        return []


def jobs_of(printed: Printed, host: str) -> list[LsfJob] | None:
    """The jobs with GPUs of a machine; ``None`` if the answer is malformed or far too large.

    Args:
        printed: What ``bjobs`` printed.
        host: The machine's name without its domain.
    """
    try:
        records = msgspec.json.decode(printed.output, type=_Answer).records
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return [] if _NO_JOBS in printed.output + printed.errors else None
    if not records and _NO_JOBS in printed.errors:
        return []
    if printed.exit_status or len(records) > _MOST_JOBS:
        return None
    jobs = map(partial(_job, host=host), records)
    return [job for job in jobs if job is not None]


def _job(record: _Record, host: str) -> LsfJob | None:
    """A job; ``None`` if it holds no GPU of this machine."""
    if record.gpus in ("", "-"):
        return None
    if isinstance(record.state, str) and record.state in _HOLDS_NOTHING:
        return None
    since, until = _time(record.start), None
    if isinstance(record.finish, str) and record.finish.endswith(_AT_LIMIT):
        until = _time(record.finish.removesuffix(_AT_LIMIT))
    user = record.user if isinstance(record.user, str) and record.user else None
    gpus, is_share = _gpus(record.gpus, host)
    return LsfJob(_name(record), user, gpus, is_share, since, until)


def _name(record: _Record) -> str | None:
    number, index = str(record.number), str(record.index)
    if not _NUMBER.fullmatch(number):
        return None
    return f"{number}[{index}]" if _NUMBER.fullmatch(index) and int(index) else number


def _gpus(text: object, host: str) -> tuple[frozenset[int] | None, bool]:
    """The GPUs of a machine in a list such as ``n1:0,1;n2:0:3/3``, and whether they are shares."""
    numbers: set[int] = set()
    is_share = False
    for part in text.split(";") if isinstance(text, str) else ():
        name, _, gpus = part.partition(":")
        if name.partition(".")[0] != host:
            continue
        # One item for each task.
        for item in gpus.split(","):
            found = _GPU.fullmatch(item)
            if found is None:
                return None, False
            numbers.add(int(found[1]))
            is_share = is_share or found[2] is not None
    return frozenset(numbers) or None, is_share


def _time(text: object) -> float | None:
    """Seconds since the epoch of a local time in LSF's English form, with its year."""
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[1] not in _MONTHS:
        return None
    day, hour, minute, second, year = map(int, found.groups()[1:])
    try:
        return datetime(year, _MONTHS.index(found[1]) + 1, day, hour, minute, second).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _allocation(job: LsfJob, places: Mapping[int, str]) -> Allocation:
    devices: tuple[str, ...] = ()
    unplaced = None if job.gpus is None else len(job.gpus)
    if job.gpus is not None and places:
        # A number without a device is that of a GPU that is not shown.
        devices = tuple(places[number] for number in sorted(job.gpus) if number in places)
        unplaced = 0
    return Allocation(
        LSF,
        job.name,
        job.user,
        devices,
        unplaced,
        job.since,
        job.until,
        is_share=job.is_share,
    )
