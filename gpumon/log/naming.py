"""What a log is called where nobody named it."""

from __future__ import annotations

import os
import re
from datetime import datetime

_HOST_CHARACTERS = 64
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


def default_name(host: str, time: float) -> str:
    """Which machine and when: ``gpumon-ada-07-20260701-140327.csv``.

    Args:
        host: Name of the machine; what follows its first dot is left out, and so is what is no
            plain part of a file's name.
        time: Seconds since the epoch; written as the local clock shows it.
    """
    short = _UNFIT.sub("-", host.partition(".")[0]).strip("-")[:_HOST_CHARACTERS]
    parts = ("gpumon", short, f"{datetime.fromtimestamp(time).astimezone():%Y%m%d-%H%M%S}")
    return "-".join(part for part in parts if part) + ".csv"


def log_path(asked: str | None, host: str, time: float) -> str:
    """Where to log: what was asked for, in which a directory gets a log with a name of its own.

    Args:
        asked: What was typed; ``None`` is this directory.
        host: Name of the machine.
        time: Seconds since the epoch.
    """
    if asked is None:
        return default_name(host, time)
    # Not Path.is_dir, which raises for a name that is too long.
    if asked.endswith(os.sep) or os.path.isdir(asked):  # noqa: PTH112
        return os.path.join(asked, default_name(host, time))
    return asked
