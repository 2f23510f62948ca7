"""Cells that say to which jobs a GPU is allocated, and the allocations of a sample from them."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from gpumon.model.allocations import SLURM, Allocation, allocations_of, unplaced_of
from gpumon.text.formatting import printable, spreadsheet_safe, spreadsheet_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.snapshot import Gpu

_Owner = tuple[str, "str | None", "str | None", "str | None"]
"""Scheduler, job, user and number."""
_SOMEBODY: _Owner = (SLURM, None, None, None)
_BETWEEN = ";"
_UNKNOWN = "-"
CELL_CHARACTERS = 2000
"""The longest cell; the jobs that follow are left out."""
_JOB_CHARACTERS, _USER_CHARACTERS = 320, 256
"""A longer name is no name. A pod has a namespace of 63 characters and a name of 253, a user
``LOGIN_NAME_MAX``."""
_NO_PART_OF_NAMES = re.compile(r"[\s;?=]+")
_JOB = re.compile(
    r"([^\s;?=]+) ([^\s;?=]+)(?:=([^\s;?=]+))?(?: mig ([0-9]{1,4}(?:,[0-9]{1,4})*))?(\?)?"
)


class LoggedJob(NamedTuple):
    """A job in a cell."""

    scheduler: str
    job: str | None
    number: str | None = None  # see ``Allocation.number``
    mig: tuple[int, ...] = ()  # indices of its MIG devices; empty if it has the whole GPU
    is_certain: bool = True  # False if it may have other GPUs of the machine instead


Jobs = tuple[LoggedJob, ...]
Users = tuple["str | None", ...]


class AllocatedGpu(NamedTuple):
    """What the cells of a row say; ``None`` is an empty cell."""

    number: int | None = None  # number of jobs that certainly have the GPU
    jobs: Jobs | None = None
    users: Users | None = None  # in the order of the jobs

    def each(self) -> list[tuple[LoggedJob, str | None]]:
        """The jobs, each with its user."""
        jobs = self.jobs or ()
        pairs = zip_longest(jobs, (self.users or ())[: len(jobs)])
        return [(job, user) for job, user in pairs if job is not None]


def allocation_count(allocations: Iterable[Allocation] | None, gpu: Gpu) -> int | None:
    """How many allocations a GPU has; ``None`` if that is not known, or without a scheduler."""
    certain = allocations_of(allocations, gpu)
    if allocations is None or (not certain and unplaced_of(allocations)):
        return None
    return len(certain)


def allocations_in_row(allocations: Iterable[Allocation] | None, gpu: Gpu) -> list[Allocation]:
    """The allocations that a GPU has; if none certainly has it, those that may have it."""
    return allocations_of(allocations, gpu) or unplaced_of(allocations)


def jobs_cell(allocations: Iterable[Allocation], gpu: Gpu) -> str:
    """``SCHEDULER JOB[=NUMBER][ mig INDEX,INDEX][?]`` with semicolons between; ``-`` is unknown.

    A question mark follows a job that may have other GPUs of the machine instead.
    """
    return _joined(_job(allocation, gpu) for allocation in allocations)


def _job(allocation: Allocation, gpu: Gpu) -> str:
    devices = frozenset(allocation.devices)
    indices = [mig.index for mig in gpu.mig if mig.uuid in devices]
    text = f"{_name(allocation.scheduler, _JOB_CHARACTERS) or _UNKNOWN} "
    text += _name(allocation.job, _JOB_CHARACTERS) or _UNKNOWN
    if number := _name(allocation.number, _JOB_CHARACTERS):
        text += f"={number}"
    if gpu.uuid in devices:
        return text
    return f"{text} mig {','.join(map(str, indices))}" if indices else f"{text}?"


def users_cell(allocations: Iterable[Allocation]) -> str:
    """The users in the order of ``jobs_cell``, separated by semicolons; unknown ones are empty."""
    return _joined(_name(allocation.user, _USER_CHARACTERS) for allocation in allocations)


def _name(text: str | None, most: int) -> str:
    """A name without what separates names in a cell; empty if it is unknown."""
    name = "" if text is None else _NO_PART_OF_NAMES.sub("_", printable(text[: most + 1]))
    return name if len(name) <= most else ""


def _joined(items: Iterable[str]) -> str:
    """As many of the items as a cell takes."""
    cell = ""
    for place, item in enumerate(items):
        longer = f"{cell}{_BETWEEN}{item}" if place else item
        if len(longer) > CELL_CHARACTERS:
            break
        cell = longer
    return spreadsheet_safe(cell)


def parse_jobs(cell: str) -> Jobs:
    """The jobs of a ``jobs_cell``.

    Raises:
        ValueError: It is none.
    """
    jobs = []
    for item in spreadsheet_text(cell).split(_BETWEEN):
        found = _JOB.fullmatch(item)
        if found is None:
            raise ValueError(cell)
        scheduler, job, number, mig, doubt = found.groups()
        indices = tuple([int(index) for index in mig.split(",")]) if mig else ()
        name = None if job == _UNKNOWN else job
        jobs.append(LoggedJob(scheduler, name, number, indices, is_certain=not doubt))
    return tuple(jobs)


def parse_users(cell: str) -> Users:
    """The users of a ``users_cell``."""
    return tuple([user or None for user in spreadsheet_text(cell).split(_BETWEEN)])


def sample_allocations(
    gpus: Iterable[tuple[Gpu, AllocatedGpu]],
) -> tuple[Allocation, ...] | None:
    """The allocations of a sample from what the rows of its GPUs say.

    The number of GPUs of a job that has no certain place is unknown: the cells do not have it.

    Returns:
        ``None`` if no row says anything.
    """
    rows = list(gpus)
    if all(row.number is None and row.jobs is None for _, row in rows):
        return None
    devices: dict[_Owner, list[str]] = {}
    unsure: set[_Owner] = set()
    for gpu, row in rows:
        of_mig = {mig.index: mig.uuid for mig in gpu.mig}
        for job, user in row.each():
            key = job.scheduler, job.job, user, job.number
            known = devices.setdefault(key, [])
            parts = [of_mig[index] for index in job.mig if index in of_mig]
            if job.is_certain:
                # A MIG device that the log lacks is a part of its GPU.
                known += parts or [gpu.uuid]
            else:
                unsure.add(key)
        if row.jobs is None and row.number != 0:
            # A damaged cell: the GPU is not free for that.
            devices.setdefault(_SOMEBODY, []).extend([gpu.uuid] if row.number else [])
            unsure |= set() if row.number else {_SOMEBODY}
    return tuple(
        [
            Allocation(
                *(scheduler, job, user, tuple(dict.fromkeys(known))),
                unplaced=None if key in unsure else 0,
                number=number,
            )
            for key, known in devices.items()
            for scheduler, job, user, number in [key]
        ]
    )
