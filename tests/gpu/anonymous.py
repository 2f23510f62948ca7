"""Takes from a text what says whose machine it is about: names of host and users, folders."""

from __future__ import annotations

import os
import pwd
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.doctor.report import Scrubber

if TYPE_CHECKING:
    from collections.abc import Iterable

_PART = r"[\w.+-]+"
_FOLDER = re.compile(
    rf"(?<![\w.~/])(?:[~…](?:/{_PART})+|/(?!proc/|sys/|dev/|usr/|bin/|etc/|lib){_PART}(?:/{_PART})+)"
)
_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)
_SHORTEST = 2
"""A name of one letter is in every word."""
_EVERYWHERE = {"root", "localhost", "/usr"}
NAMES_A_MACHINE = re.compile(
    r"serial|uuid|guid|bus_?id|host|pdi|platform|ib_guid|slot|tray", re.IGNORECASE
)
"""In the name of a value, or of its test: the value identifies the machine."""
_NO_NAMES = {"gpu", "cuda", "nvidia", "host", "node", "vm", "sandbox", "server", "localhost"}
"""Names of hosts that name none of them; the files have such words for other things."""


def anonymous(text: str, others: Iterable[str] = ()) -> str:
    """The text, with ``HOST`` and ``USER``, GPUs without UUID, and the last part of each path only.

    What every Linux has, such as ``/proc`` and ``/usr``, stays; ``others``, such as serial numbers,
    go as well.
    """
    text = _without(text, others)
    scrubber, own = _scrubber()
    for folder in own:
        text = text.replace(folder, "…")
    text = _UUID.sub("…", scrubber.text(text))
    return _FOLDER.sub(lambda found: f"…/{found[0].rsplit('/', 1)[1]}", text)


def _without(text: str, names: Iterable[str]) -> str:
    """The text without these words, the longer ones first, as they may hold others."""
    for name in sorted(set(names) - _EVERYWHERE, key=len, reverse=True):
        if len(name) >= _SHORTEST:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "…", text)
    return text


@cache
def _scrubber() -> tuple[Scrubber, tuple[str, ...]]:
    hosts, users, own = _names()
    return Scrubber(str(Path.home()), users, hosts), own


def _names() -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The host, its users, and folders, the longest first."""
    host = os.uname().nodename
    users = tuple(user.pw_name for user in pwd.getpwall() if user.pw_uid >= 1000)
    own = {str(Path(__file__).parents[2]), sys.prefix, str(Path.cwd())} - {"/", "/usr"}
    hosts = tuple(name for name in (host, host.split(".")[0]) if name not in _NO_NAMES)
    return hosts, users, tuple(sorted(own, key=len, reverse=True))
