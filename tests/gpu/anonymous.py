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
    users = [user.pw_name for user in pwd.getpwall() if user.pw_uid >= 1000]
    host = os.uname().nodename
    own = {str(Path(__file__).parents[2]), sys.prefix, str(Path.cwd())} - {"/", "/usr"}
    scrubber = Scrubber(str(Path.home()), users, {host, host.split(".")[0]})
    return scrubber, tuple(sorted(own, key=len, reverse=True))
