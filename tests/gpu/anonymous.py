"""Takes from a text what says whose machine it is about: names of host and users, folders."""

from __future__ import annotations

import os
import pwd
import re
import sys
from functools import cache
from pathlib import Path

from gpumon.doctor.scrub import Scrubber

_FOLDER = re.compile(r"(?<![\w.~/])/(?!proc/|sys/|dev/|usr/|bin/|etc/|lib)[\w.+-]+(?:/[\w.+-]+)+")


def anonymous(text: str) -> str:
    """The text, with ``HOST`` and ``USER``, GPUs without UUID, and the last part of each path only.

    What every Linux has, such as ``/proc`` and ``/usr``, stays.
    """
    scrubber, own = _scrubber()
    for folder in own:
        text = text.replace(folder, "…")
    return _FOLDER.sub(lambda found: f"…/{found[0].rsplit('/', 1)[1]}", scrubber.text(text))


@cache
def _scrubber() -> tuple[Scrubber, tuple[str, ...]]:
    hosts, users, own = _names()
    return Scrubber(str(Path.home()), users, hosts), own


def _names() -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The host, its users, and folders, the longest first."""
    host = os.uname().nodename
    users = tuple(user.pw_name for user in pwd.getpwall() if user.pw_uid >= 1000)
    own = {str(Path(__file__).parents[2]), sys.prefix, str(Path.cwd())} - {"/", "/usr"}
    return (host, host.split(".")[0]), users, tuple(sorted(own, key=len, reverse=True))
