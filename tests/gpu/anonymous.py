"""Takes from a text what says whose machine it is about: names of host and users, folders."""

from __future__ import annotations

import os
import pwd
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpumon.doctor.scrub import Scrubber

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


class _Own(NamedTuple):
    """The names of this machine.

    Attributes:
        home: The home folder.
        users: Names of users.
        hosts: Names of the machine.
        folders: The checkout, the environment and the working directory, the longest first.
    """

    home: str
    users: list[str]
    hosts: list[str]
    folders: list[str]


def anonymous(text: str, names: Iterable[str] = ()) -> str:
    """The text, with ``HOST`` and ``USER``, GPUs without UUID, and the last part of each path only.

    What every Linux has, such as ``/proc`` and ``/usr``, stays.

    Args:
        text: About this machine, or about another one.
        names: Of that other machine, replaced too: what its ``replaced_names`` gives.
    """
    text = _without(text, names)
    for folder in _own().folders:
        text = text.replace(folder, "…")
    text = _UUID.sub("…", _scrubber().text(text))
    return _FOLDER.sub(lambda found: f"…/{found[0].rsplit('/', 1)[1]}", text)


def replaced_names() -> list[str]:
    """What is replaced on this machine: users, hosts and folders, without duplicates."""
    own = _own()
    names = dict.fromkeys((own.home, *own.folders, *own.users, *own.hosts))
    return [name for name in names if _is_name(name)]


def _is_name(name: str) -> bool:
    return len(name) >= _SHORTEST and name not in _EVERYWHERE


def _without(text: str, names: Iterable[str]) -> str:
    """The text without names of another machine, the longer ones first: they may hold others."""
    for name in sorted(filter(_is_name, names), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "…", text)
    return text


@cache
def _own() -> _Own:
    users = [user.pw_name for user in pwd.getpwall() if user.pw_uid >= 1000]
    host = os.uname().nodename
    folders = {str(Path(__file__).parents[2]), sys.prefix, str(Path.cwd())} - {"/", "/usr"}
    hosts = list(dict.fromkeys((host, host.split(".")[0])))
    return _Own(str(Path.home()), users, hosts, sorted(folders, key=len, reverse=True))


@cache
def _scrubber() -> Scrubber:
    own = _own()
    return Scrubber(own.home, own.users, own.hosts)
