"""The default name of a log."""

from __future__ import annotations

import os
import re
from datetime import datetime

_HOST_CHARACTERS = 64
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


def default_name(host: str, time: float) -> str:
    """The default name from host and time: ``gpumon-ada-07-20260701-140327.csv``.

    Args:
        host: Name of the machine; the part after its first dot and characters that are unsafe in
            file names are left out.
        time: Seconds since the epoch; written as the local clock shows it.
    """
    short = _UNFIT.sub("-", host.partition(".")[0]).strip("-")[:_HOST_CHARACTERS]
    parts = ("gpumon", short, f"{datetime.fromtimestamp(time).astimezone():%Y%m%d-%H%M%S}")
    return "-".join(part for part in parts if part) + ".csv"


def log_path(asked: str | None, host: str, time: float) -> str:
    """The path of the log: as requested, or a default name in the requested directory.

    Args:
        asked: What was typed; ``None`` is this directory.
        host: Name of the machine.
        time: Seconds since the epoch.
    """
    if asked is None:
        return default_name(host, time)
    # Not Path.is_dir, which raises for a name that is too long.
    if asked.endswith(os.sep) or os.path.isdir(asked):  # noqa: PTH112 - as said above
        return os.path.join(asked, default_name(host, time))
    return asked
