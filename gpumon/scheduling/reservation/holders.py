"""Who has reserved which card, for those who only look: nothing is made, nothing is kept open."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumon.scheduling.reservation.locks import Locks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpumon.scheduling.reservation import Holder

_VARIABLE = "GPUMON_LOCK_DIR"


def holders_now(uuids: Iterable[str]) -> Mapping[str, Holder]:
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
