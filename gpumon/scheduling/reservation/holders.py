"""Who has reserved which card, for those who only look: nothing is made, nothing is kept open."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumon.scheduling.reservation.locks import Locks
from gpumon.text.formatting import duration, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpumon.model.snapshot import ReservationHolder

_VARIABLE = "GPUMON_LOCK_DIR"


def holders_now(uuids: Iterable[str]) -> Mapping[str, ReservationHolder]:
    """Who has which of these cards and MIG devices.

    The folder is opened anew each time: what tidies up may have put another in its place.

    Args:
        uuids: Of cards and MIG devices.
    """
    if os.name != "posix":
        return {}
    locks = Locks(os.environ.get(_VARIABLE) or None, os.environ, make=False)
    try:
        return locks.holders(uuids)
    finally:
        locks.close()


def holder_sentence(holder: ReservationHolder, now: float) -> str:
    """Describe a holder, safe to print: ``reserved by ann for 12m: python train.py``.

    Args:
        holder: Who has reserved the card.
        now: Seconds since the epoch.
    """
    if holder.pid is None:
        return "reserved; by whom cannot be seen here"
    words = "reserved"
    if holder.user is not None:
        words += f" by {printable(holder.user)}"
    if holder.since is not None:
        words += f" for {duration(now - holder.since)}"
    words += f", gpumon run {holder.pid}"
    return f"{words}: {printable(holder.command)}" if holder.command else words
