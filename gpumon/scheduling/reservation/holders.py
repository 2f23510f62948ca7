"""Read-only access to reservations: creates nothing, and keeps nothing open."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumon.scheduling.reservation.locks import Locks
from gpumon.text.formatting import duration, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpumon.model.snapshot import ReservationHolder


def holders_now(uuids: Iterable[str]) -> Mapping[str, ReservationHolder]:
    """The holders of these GPUs and MIG devices.

    The folder is opened anew each time, because a cleanup tool may have replaced it.

    Args:
        uuids: UUIDs of GPUs and MIG devices.
    """
    if os.name != "posix":
        return {}
    locks = Locks(None, os.environ, make=False)
    try:
        return locks.holders(uuids)
    finally:
        locks.close()


def holder_sentence(holder: ReservationHolder, now: float) -> str:
    """Describe a holder, safe to print: ``reserved by ann for 12m: python train.py``.

    Args:
        holder: The holder of the reservation.
        now: Seconds since the epoch.
    """
    if holder.pid is None:
        return "reserved by a process that cannot be seen here"
    words = "reserved"
    if holder.user is not None:
        words += f" by {printable(holder.user)}"
    if holder.since is not None:
        words += f" for {duration(now - holder.since)}"
    words += f", gpumon run {holder.pid}"
    return f"{words}: {printable(holder.command)}" if holder.command else words
