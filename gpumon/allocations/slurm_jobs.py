"""A job of Slurm, built from what its programs print, whatever they print it as."""

from __future__ import annotations

from msgspec import Struct

from gpumon.allocations.host_lists import expand_hosts
from gpumon.allocations.slurm_gres import Gres  # noqa: TC001 - msgspec resolves annotations

_HOLDING = frozenset(
    {
        "COMPLETING",
        "CONFIGURING",
        "RESIZING",
        "RUNNING",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
        "SUSPENDED",
    }
)
_WAITING = frozenset(
    {
        "PENDING",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
    }
)
_ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)

_EARLIEST, _LATEST = 946_684_800, 4_102_444_800
"""The years 2000 to 2100: Slurm is not older, and no job ends later."""

_LARGEST_ID = 2**32 - 1
"""Ids of jobs, tasks and users have 32 bits."""

_USER_LENGTH = 256
"""``LOGIN_NAME_MAX`` of Linux."""

_NOBODY, _NOBODY_ID = "nobody", 65534
"""What Slurm prints for a user it cannot look up, and who has that name really."""


class Job(Struct, frozen=True):
    """A job of Slurm, as far as it is known.

    Attributes:
        number: Its job id, such as ``91``.
        name: As people write it: ``88_3`` in an array, ``5+1`` for a part of a heterogeneous job,
            else the number.
        user: The name of its user, else the user id.
        holds: Whether its state means that it holds resources.
        since: When it started, seconds since the epoch; a guess for the future is left out.
        until: When its time is over or was, seconds since the epoch; ``None`` without a limit, too.
        has_no_limit: Whether its time is known to be unlimited.
        nodes: Slurm's own list of its nodes, such as ``gpu-[01-02]``; one that can be expanded.
        gres: What it has of the GPUs of the node that was asked for.
        waits: Whether its state means that it has not started.
    """

    number: str
    name: str
    user: str | None = None
    holds: bool | None = None
    since: float | None = None
    until: float | None = None
    has_no_limit: bool = False
    nodes: str | None = None
    gres: Gres | None = None
    waits: bool = False


def job_of(
    number: str,
    name: str,
    user: str | None,
    states: list[str],
    times: tuple[float | None, float | None],
    has_no_limit: bool | None,
    nodes: str | None,
    gres: Gres | None,
) -> Job:
    """A job of what is known of it.

    Args:
        number: The job id.
        name: What people write for it.
        user: Its user.
        states: Its states: a base state and flags; none if they are not known.
        times: When it starts and ends.
        has_no_limit: Whether its time is unlimited; ``None``: not known.
        nodes: Slurm's own list of its nodes.
        gres: Its GPUs.
    """
    holds = _holds(states)
    waits = not _WAITING.isdisjoint(states)
    # Slurm guesses when a waiting job will start.
    is_fact = holds is not None and not waits
    return Job(
        number=number,
        name=name,
        user=user,
        holds=holds,
        since=times[0] if is_fact else None,
        # Unlimited jobs are said to end a year after their start.
        until=times[1] if is_fact and has_no_limit is False else None,
        has_no_limit=has_no_limit is True,
        nodes=nodes,
        gres=gres,
        waits=waits and not holds,
    )


def name_of(
    number: str, array: tuple[int | None, int | None], het: tuple[int | None, int | None]
) -> str:
    """What people write for a job, of the leader and the place in it; a leader 0 is none."""
    for (leader, place), sign in ((array, "_"), (het, "+")):
        if leader and place is not None:
            return f"{leader}{sign}{place}"
    return number


def user_of(name: object, user_id: int | None) -> str | None:
    """The user: a name, else the user id as text."""
    is_name = isinstance(name, str) and 0 < len(name) <= _USER_LENGTH
    if is_name and not (name == _NOBODY and user_id != _NOBODY_ID):
        return str(name)
    return None if user_id is None else str(user_id)


def nodes_of(text: object) -> str | None:
    """A list of nodes, if it is one of at least one node."""
    return text if isinstance(text, str) and expand_hosts(text) else None


def number_of(value: object) -> int | None:
    """A number in JSON: bare, or from 23.02 on with whether it is set."""
    if isinstance(value, dict):
        is_set = value.get("set") is True and value.get("infinite") is not True
        value = value.get("number") if is_set else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _LARGEST_ID else None


def time_of(seconds: float | None) -> float | None:
    """Seconds since the epoch if a job can have started or end then; 0 is Slurm's "not yet"."""
    is_time = seconds is not None and _EARLIEST <= seconds < _LATEST
    return float(seconds or 0) if is_time else None


def _holds(states: list[str]) -> bool | None:
    """Whether a job of these states holds resources: a state may have several flags."""
    if not _HOLDING.isdisjoint(states):
        return True
    return None if (_WAITING | _ENDED).isdisjoint(states) else False
