"""Why a process gets no signal, in the words that all hosts share."""

from __future__ import annotations

import shlex
import signal
from typing import TYPE_CHECKING

from gpumon.host.process_host import Refusal, Refused
from gpumon.model.process_states import ENDED, STATES
from gpumon.system.system import user_name
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from gpumon.host.process_host import ProcessStatus, Target


def read_only() -> Refused:
    """Gpumon was started with ``--readonly``."""
    return Refused(Refusal.READ_ONLY, "gpumon runs with --readonly: it sends no signal")


def whole_system(pid: int) -> Refused:
    """The PID is 1 or less."""
    return Refused(
        Refusal.PROTECTED,
        f"{pid} is never signalled: that would reach the whole system",
    )


def gpumon_itself(pid: int) -> Refused:
    """The PID is that of this program."""
    return Refused(Refusal.PROTECTED, f"{pid} is gpumon itself: q quits it")


def above_gpumon(pid: int) -> Refused:
    """The PID is that of an ancestor of this program."""
    return Refused(
        Refusal.PROTECTED,
        f"gpumon was started from {pid}: ending it would end gpumon too",
    )


def reused(pid: int) -> Refused:
    """The PID is another process's by now."""
    return Refused(Refusal.REUSED, f"{pid} is another process now; the one you chose has ended")


def gone(pid: int, status: ProcessStatus | None = None) -> Refused:
    """The process has ended."""
    return Refused(Refusal.GONE, f"{pid} had ended already{unreaped(status)}")


def still_listed(pid: int) -> Refused:
    """The process had ended before anybody saw it."""
    return Refused(Refusal.GONE, f"{pid} {STATES[ENDED].about}")


def unreaped(status: ProcessStatus | None) -> str:
    """The end of a sentence on a process that has exited but is still listed; otherwise empty."""
    if status is None or status.parent is None:
        return ""
    name = printable(status.parent_name or "")
    return f"; its parent {status.parent.pid} ({name}) has not reaped it yet"


def not_permitted(target: Target, number: int, own_uid: int) -> Refused:
    """The process belongs to somebody else: whom to ask, and what the user can do.

    Args:
        target: The process.
        number: The signal.
        own_uid: UID of the user who runs gpumon.
    """
    pid = target.id.pid
    kill = f"sudo kill -{signal_name(number)} {pid}"
    owner = owner_name(target)
    ask = "ask an administrator" if target.uid == 0 else f"ask {owner}"
    sentence = f"{pid} is {owner}'s, not yours: {ask}, or {_managed_stop(target) or kill}"
    if target.uid == own_uid:
        sentence = f"{pid} is yours, but this system does not let you signal it: {kill}"
    return Refused(Refusal.NOT_PERMITTED, sentence)


def _managed_stop(target: Target) -> str | None:
    """The regular way to end it, if another program manages it."""
    place = target.place
    if place is None:
        return None
    if place.slurm_job is not None:
        return f"an operator runs scancel {_quoted(place.slurm_job)}"
    container = place.container
    if container is None or container.runtime != "docker":
        # Other runtimes keep containers per user, or under names that only their pods show.
        return None
    name = container.name or container.id
    return f"docker stop {_quoted(name)}, which ends everything in it" if name else None


def _quoted(text: str) -> str:
    return shlex.quote(printable(text))


def signal_name(number: int) -> str:
    """``TERM``, ``KILL``; the number of a signal without a name here."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)


def owner_name(target: Target) -> str:
    """Name of its owner, safe to print."""
    if target.user is not None:
        return printable(target.user)
    return "another user" if target.uid is None else printable(user_name(target.uid))
