"""Reads what Slurm's own programs print about jobs and nodes, from 21.08 to 26.05.

Users choose the names of their jobs, and names may have spaces, line breaks, even whole records in
them. JSON cannot be forged that way. Of the text only what a name cannot fake is believed: a key at
the start of a line, once in its record, in Slurm's order. ``None`` always means not known.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Struct

from gpumon.allocations.host_lists import MOST_HOSTS, expand_hosts
from gpumon.allocations.slurm_gres import NO_GPUS, Gres, gres_of, names_gpus
from gpumon.allocations.slurm_jobs import (
    Job,
    job_of,
    name_of,
    nodes_of,
    number_of,
    time_of,
    user_of,
)
from gpumon.allocations.slurm_records import MOST_BYTES, Record, fields_of, records_of
from gpumon.model.processes import LARGEST_PID

if TYPE_CHECKING:
    from typing import TypeGuard

__all__ = [
    "Gres",
    "Job",
    "expand_hosts",
    "gres_in_use",
    "job_of_json",
    "job_of_text",
    "jobs_of_json",
    "jobs_of_pids",
    "jobs_of_text",
]

_NUMBER = re.compile(r"[0-9]{1,10}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
_LIMIT = re.compile(r"(?:[0-9]{1,9}-)?[0-9]{2}:[0-9]{2}:[0-9]{2}")
_USER = re.compile(r"([^()]*)\(([0-9]{1,10})\)")

_JOB_KEYS = (
    "UserId",
    "JobState",
    "RunTime",
    "StartTime",
    "NodeList",
    "TRES",
    "AllocTRES",
    "JOB_GRES",
    "MinCPUsNode",
)
"""The lines that are read of a job, in Slurm's order. Up to 21.08 TRES, later AllocTRES."""


class _JsonJob(Struct):
    """A job in JSON; other keys are skipped, and any type is let through."""

    job_id: object = UNSET
    array_job_id: object = UNSET
    array_task_id: object = UNSET
    het_job_id: object = UNSET
    het_job_offset: object = UNSET
    user_name: object = UNSET
    user_id: object = UNSET
    job_state: object = UNSET
    nodes: object = UNSET
    start_time: object = UNSET
    end_time: object = UNSET
    time_limit: object = UNSET
    tres_alloc_str: object = UNSET
    gres_detail: object = UNSET


class _JsonAnswer(Struct):
    jobs: list[_JsonJob]


def job_of_json(data: bytes, number: str, node: str) -> Job | None:
    """A job in the answer of ``scontrol --json show job N`` or ``squeue --json``.

    Args:
        data: What was printed.
        number: The job id.
        node: The name that Slurm has for the node whose GPUs are of interest.

    Returns:
        The job; ``None`` if it is not there, the answer is cut off, as by 23.02 without slurmdbd,
        or it has another form. Nothing is known of a job that is there twice.
    """
    found = [job for job in _objects(data) if _number(job) == number]
    if len(found) > 1:
        return Job(number, number)
    return _job_of_object(found[0], number, node) if found else None


def jobs_of_json(data: bytes, name: str) -> list[Job]:
    """All that a name means in the answer of ``scontrol --json show job NAME``, without GPUs.

    Args:
        data: What was printed.
        name: A job id or what people write for it. That of an array means all its tasks, and that
            of a heterogeneous job all its parts.

    Returns:
        The jobs; none if none is there, the answer is cut off or it has another form.
    """
    jobs = [_job_of_object(job, _number(job) or "", "") for job in _objects(data)]
    return [job for job in jobs if job is not None and _means(name, job)]


def job_of_text(data: bytes, number: str, node: str) -> Job | None:
    """A job in the answer of ``scontrol show job -d N``, without ``-o``.

    Times must be local, as with ``SLURM_TIME_FORMAT=standard``.

    Args:
        data: What was printed, about this job alone: Slurm adds the other tasks of an array and the
            other parts of a heterogeneous job. Records of strangers are a sign of a forged name.
        number: The job id.
        node: The name that Slurm has for the node whose GPUs are of interest.

    Returns:
        The job; ``None`` if it is not there. Nothing is known of a job that is there twice or whose
        records are not all of one user.
    """
    records = records_of(data, "JobId")
    found = [record for record in records if record.name == number]
    if not found or not _NUMBER.fullmatch(number):
        return None
    record = found[0]
    if len(records) > 1 and (record.name != _leader(record) or not _is_group(records)):
        return Job(number, number)
    return _job_of_record(record, number, node)


def jobs_of_text(data: bytes, name: str) -> list[Job]:
    """The same as ``jobs_of_json`` in the answer of ``scontrol show job -d NAME``, without ``-o``.

    Returns:
        The jobs; none if none is there, or if there are records that do not belong together.
    """
    records = [record for record in records_of(data, "JobId") if _NUMBER.fullmatch(record.name)]
    if len(records) > 1 and not _is_group(records):
        return []
    jobs = [_job_of_record(record, record.name, "") for record in records]
    return [job for job in jobs if _means(name, job)]


def gres_in_use(data: bytes, node: str) -> Gres | None:
    """The GPUs of a node that all jobs have, in the answer of ``scontrol show node -d NODE``.

    Args:
        data: What was printed.
        node: The name that Slurm has for the node.

    Returns:
        They; ``None`` if the node is not there once, or nothing is said about them.
    """
    found = [record for record in records_of(data, "NodeName") if record.name == node]
    if len(found) != 1:
        return None
    used = found[0].value("GresUsed", ("GresUsed",))
    if used is None and found[0].value("Gres", ("Gres",)) == "(null)":
        # A node without any has nothing to give, and says nothing of what is used.
        return NO_GPUS
    return None if used is None else gres_of(used)


def jobs_of_pids(data: bytes) -> dict[int, str]:
    """The job ids of processes, by PID, in the answer of ``scontrol listpids``.

    Args:
        data: What was printed. PIDs of another namespace, -1, are left out; so are those that are
            said to be of two jobs.
    """
    jobs: dict[int, str] = {}
    doubtful = set()
    whole, _, _ = data[:MOST_BYTES].rpartition(b"\n")
    for line in whole.decode(errors="replace").split("\n"):
        fields = line.split()
        # PID JOBID STEPID LOCALID GLOBALID
        if len(fields) != 5 or not all(map(_NUMBER.fullmatch, fields[:2])):
            continue
        pid, job = int(fields[0]), fields[1]
        if 0 < pid <= LARGEST_PID and jobs.setdefault(pid, job) != job:
            doubtful.add(pid)
    return {pid: job for pid, job in jobs.items() if pid not in doubtful}


def _objects(data: bytes) -> list[_JsonJob]:
    """The jobs of an answer in JSON."""
    if len(data) > MOST_BYTES:
        return []
    try:
        return msgspec.json.decode(data, type=_JsonAnswer).jobs
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return []


def _number(job: _JsonJob) -> str | None:
    number = number_of(job.job_id)
    return None if number is None else str(number)


def _means(name: str, job: Job) -> bool:
    """Whether a name means a job: its own, or that of its array or heterogeneous job."""
    return name in (job.number, job.name, re.split(r"[_+]", job.name)[0])


def _job_of_object(job: _JsonJob, number: str, node: str) -> Job | None:
    states = [job.job_state] if isinstance(job.job_state, str) else job.job_state
    details = job.gres_detail
    user = user_of(job.user_name, number_of(job.user_id))
    # What is cut off lacks the keys at the end, of which the user is the last one.
    if user is None or not _is_texts(states) or not states or not _is_texts(details):
        return None
    nodes = nodes_of(job.nodes)
    limit = job.time_limit
    unlimited = limit is None or (isinstance(limit, dict) and limit.get("infinite") is True)
    return job_of(
        number,
        name_of(
            number,
            (number_of(job.array_job_id), number_of(job.array_task_id)),
            (number_of(job.het_job_id), number_of(job.het_job_offset)),
        ),
        user,
        states,
        (time_of(number_of(job.start_time)), time_of(number_of(job.end_time))),
        True if unlimited else None if number_of(limit) is None else False,
        nodes,
        _gres_of_details(details, nodes, node, job.tres_alloc_str),
    )


def _gres_of_details(
    details: list[str], nodes: str | None, node: str, allocated: object
) -> Gres | None:
    """What the node of a job in JSON has, whose list has an entry per node."""
    if not details:
        has_gpus = not isinstance(allocated, str) or names_gpus(allocated)
        return None if has_gpus else NO_GPUS
    hosts = expand_hosts(nodes or "") or []
    if len(details) != len(hosts) or hosts.count(node) != 1:
        return None
    return gres_of(details[hosts.index(node)])


def _job_of_record(record: Record, number: str, node: str) -> Job:
    state = record.value("JobState", _JOB_KEYS)
    run = record.fields("RunTime", _JOB_KEYS)
    times = record.fields("StartTime", _JOB_KEYS)
    limit = run.get("TimeLimit", "")
    user = record.value("UserId", _JOB_KEYS)
    found = _USER.fullmatch((user or "").partition(" GroupId=")[0])
    nodes = nodes_of(record.value("NodeList", _JOB_KEYS))
    return job_of(
        number,
        name_of(
            number,
            (_id(record.first.get("ArrayJobId")), _id(record.first.get("ArrayTaskId"))),
            (_id(record.first.get("HetJobId")), _id(record.first.get("HetJobOffset"))),
        ),
        None if found is None else user_of(found[1], _id(found[2])),
        [] if state is None else [state.partition(" ")[0]],
        (_local_time(times.get("StartTime", "")), _local_time(times.get("EndTime", ""))),
        True if limit == "UNLIMITED" else False if _LIMIT.fullmatch(limit) else None,
        nodes,
        _gres_of_record(record, node),
    )


def _gres_of_record(record: Record, node: str) -> Gres | None:
    """What the node of a job in text has: one line per group of nodes with the same."""
    # The line after the last of them: without it they are cut off.
    if record.value("MinCPUsNode", _JOB_KEYS) is None:
        return None
    total = record.value("JOB_GRES", _JOB_KEYS)
    lines = record.details_between("JOB_GRES", "MinCPUsNode")
    if lines is None:
        return Gres(None)
    found = []
    most = MOST_HOSTS
    for line in lines:
        fields = fields_of(line)
        hosts = expand_hosts(fields.get("Nodes", ""), most)
        if not hosts or "GRES" not in fields:
            return None
        most -= len(hosts)
        found += [fields["GRES"]] * hosts.count(node)
    if found:
        return gres_of(found[0]) if len(found) == 1 else Gres(None)
    if lines or total is not None:
        return None if names_gpus(total or "gpu") else NO_GPUS
    allocated = record.value("AllocTRES", _JOB_KEYS)
    if allocated is None:
        allocated = record.value("TRES", _JOB_KEYS)
    return None if allocated is None or names_gpus(allocated) else NO_GPUS


def _id(text: str | None) -> int | None:
    return number_of(int(text)) if text is not None and _NUMBER.fullmatch(text) else None


def _local_time(text: str) -> float | None:
    if not _TIME.fullmatch(text):
        return None
    try:
        return time_of(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        return None


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_group(records: list[Record]) -> bool:
    """Whether records are the tasks of one array, or the parts of one job, all of one user."""
    leaders = {_leader(record) for record in records}
    users = {user for record in records for user in record.values("UserId")}
    names = {record.name for record in records}
    is_one = len(leaders) == 1 and None not in leaders and len(users) <= 1
    return is_one and len(names) == len(records)


def _leader(record: Record) -> str | None:
    """The job id of the array, or of the heterogeneous job, that a job is a part of."""
    return record.first.get("ArrayJobId") or record.first.get("HetJobId")
