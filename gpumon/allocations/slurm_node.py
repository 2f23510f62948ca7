"""What Slurm's files on this machine say: which jobs are here, and which GPU has which place.

Facts are from ``slurm.conf(5)``, ``gres.conf(5)`` and Slurm's ``src/plugins/gres/gpu/gres_gpu.c``.
Nothing here asks the controller.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.allocations.slurm_output import expand_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_CONFIGURATIONS = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    # Where slurmd keeps what it has from the controller ("configless").
    "/run/slurm/conf/slurm.conf",
    "/var/spool/slurmd/conf-cache/slurm.conf",
    "/var/spool/slurm/conf-cache/slurm.conf",
    "/opt/slurm/etc/slurm.conf",
    "/usr/local/etc/slurm.conf",
)
_SPOOL = "/var/spool/slurmd"
"""The default of ``SlurmdSpoolDir``."""
_MOST_BYTES = 2**20
_MOST_INCLUDES = 8
_MOST_ENTRIES = 20_000
_MOST_FOLDERS = 64
_SOCKET = re.compile(r"(.+)_([0-9]{1,10})\.[0-9]{1,10}")
"""``NODENAME_JOBID.STEP``: one for each step that runs here."""
_NUMBER = re.compile(r"[0-9]{1,6}$")
_RANGE = re.compile(r"(.*)\[([0-9,-]+)\]$")


class JobsHere(Struct, frozen=True):
    """The jobs that have a step on this machine."""

    numbers: frozenset[str]
    node: str | None = None  # The name of this machine in Slurm; ``None`` if no step tells it.


class GpuOrder(Struct, frozen=True):
    """How slurmd numbers the GPUs of this machine: their places start at 0."""

    # ``nvml`` or ``nvidia`` if slurmd finds the GPUs itself, ``files`` if they are listed.
    by: str
    files: tuple[int, ...] = ()  # The minor number of each place, where they are listed.


class SlurmNode:
    """Slurm's files on this machine, read anew at each call.

    Args:
        configuration: Path of ``slurm.conf``; by default that of ``SLURM_CONF``, or the first of
            the usual ones.
    """

    def __init__(self, configuration: str | None = None) -> None:
        paths = [configuration or os.environ.get("SLURM_CONF") or "", *_CONFIGURATIONS]
        self._configuration = next((path for path in paths if path and _exists(path)), None)
        self._name: str | None = None
        self._settings = self._read_settings()
        self._folders = _spool_folders(self._settings.get("slurmdspooldir") or _SPOOL)

    @property
    def runs_jobs(self) -> bool:
        """Whether slurmd has run here, as far as can be seen; not so on a machine to log in to."""
        return any(_is_folder(folder) for folder in self._folders)

    def _read_settings(self) -> dict[str, str]:
        """The settings of ``slurm.conf``, by name in small letters."""
        if self._configuration is None:
            return {}
        settings: dict[str, str] = {}
        for line in _lines(self._configuration):
            name, _, value = line.partition("=")
            if name.strip().lower() == "nodename":
                self._name = self._name or _name_of_this(_fields(line))
            settings.setdefault(name.strip().lower(), value.strip().strip('"'))
        return settings

    @property
    def name(self) -> str:
        """The name of this machine in Slurm, by its configuration: mostly its host name."""
        return self._name or _host_name()

    @property
    def is_contained(self) -> bool:
        """Whether each job has a step here as long as it has the machine."""
        flags = self._settings.get("prologflags", "").lower().split(",")
        return not {"contain", "x11"}.isdisjoint(flag.strip() for flag in flags)

    def jobs(self) -> JobsHere | None:
        """The jobs with a step here; ``None`` if the folder of their sockets cannot be read."""
        numbers: set[str] = set()
        nodes: set[str] = set()
        try:
            for node, number in _sockets(self._folders):
                nodes.add(node)
                numbers.add(number)
        except OSError:
            return None
        return JobsHere(frozenset(numbers), nodes.pop() if len(nodes) == 1 else None)

    def gpu_order(self, node: str) -> GpuOrder | None:
        """How slurmd numbers the GPUs of a node, by ``gres.conf``; ``None`` if that is uncertain.

        Args:
            node: The name of this machine in Slurm.
        """
        if self._configuration is None:
            return None
        path = str(Path(self._configuration).with_name("gres.conf"))
        automatic, files = "", list[int]()
        try:
            lines = list(_lines(path, must_exist=True))
        except OSError:
            return None
        for line in lines:
            fields = _fields(line)
            if "nodename" in fields and node not in (expand_hosts(fields["nodename"]) or ()):
                continue
            automatic = fields.get("autodetect", automatic).lower()
            if fields.get("name", "").lower() != "gpu":
                continue
            numbers = None if "multiplefiles" in fields else _minors(fields.get("file"))
            if numbers is None:
                return None
            files += numbers
        if automatic in {"", "off"}:
            return GpuOrder("files", tuple(files)) if files else None
        # Slurm merges what it finds with what is listed, in an order of its own.
        return GpuOrder(automatic) if automatic in {"nvml", "nvidia"} and not files else None


def _host_name() -> str:
    return socket.gethostname().partition(".")[0]


def _name_of_this(fields: Mapping[str, str]) -> str | None:
    """The name that a line ``NodeName=n[1-2] NodeHostname=gpu[1-2]`` gives to this machine."""
    names = expand_hosts(fields["nodename"]) or []
    hosts = expand_hosts(fields.get("nodehostname", fields["nodename"])) or []
    known = [name for name, host in zip(names, hosts, strict=False) if host == _host_name()]
    return known[0] if len(known) == 1 else None


def _sockets(folders: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The name of the node and the number of the job of each socket, without missing folders.

    Raises:
        OSError: A folder cannot be read.
    """
    for folder in folders:
        if not _is_folder(folder):
            continue
        with os.scandir(folder) as entries:
            for _, entry in zip(range(_MOST_ENTRIES), entries, strict=False):
                found = _SOCKET.fullmatch(entry.name)
                if found and _is_socket(entry):
                    yield found[1], found[2]


def _is_socket(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except FileNotFoundError:
        # The step has ended in this moment.
        return False


def _exists(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:
        return False


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116 - tells a refusal from absence
    except PermissionError:
        return True
    except OSError:
        return False


def _lines(path: str, *, must_exist: bool = False, depth: int = 0) -> Iterator[str]:
    """The lines of a configuration without comments, with those of the files it includes.

    Raises:
        OSError: It cannot be read, if it must exist.
    """
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_BYTES)
    except OSError:
        if must_exist:
            raise
        return
    included = 0
    for line in text.replace("\\\n", " ").splitlines():
        content = line.partition("#")[0].strip()
        word, _, rest = content.partition(" ")
        if word.lower() == "include" and depth == 0 and included < _MOST_INCLUDES:
            included += 1
            yield from _lines(str(Path(path).parent / rest.strip()), depth=1)
        elif content:
            yield content


def _fields(line: str) -> dict[str, str]:
    """The fields of a line such as ``NodeName=n1 Name=gpu File=/dev/nvidia0``."""
    pairs = (word.partition("=") for word in line.split())
    return {name.lower(): value.strip('"') for name, _, value in pairs}


def _minors(files: str | None) -> list[int] | None:
    """The numbers in the names of device files such as ``/dev/nvidia[0-3]``, in order."""
    if files is None:
        return None
    numbers: list[int] = []
    # Commas separate files, and numbers inside of brackets.
    for file in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", files):
        ranged = _RANGE.fullmatch(file)
        names = [file] if ranged is None else expand_hosts(f"x[{ranged[2]}]")
        for name in names or ("",):
            number = _NUMBER.search(name)
            if number is None:
                return None
            numbers.append(int(number[0]))
    return numbers


def _spool_folders(pattern: str) -> list[str]:
    """The folders that ``SlurmdSpoolDir`` may mean: ``%n`` and ``%h`` are names of the machine."""
    if "%" not in pattern:
        return [pattern]
    expression = re.escape(pattern).replace("%n", "[^/]+").replace("%h", "[^/]+")
    parent, _, _ = pattern.partition("%")
    root = Path(parent).parent if not parent.endswith("/") else Path(parent)
    depth = pattern.count("/") - str(root).rstrip("/").count("/")
    found: list[str] = []
    with suppress(OSError):
        for path in root.glob("/".join("*" * depth)):
            if re.fullmatch(expression, str(path)):
                found.append(str(path))
            if len(found) == _MOST_FOLDERS:
                break
    return found
