"""Lists of hosts: ``gpu-01,gpu-[02-16],ann@box,@FILE,group:lab,slurm:88123``.

A part is a name as ``ssh`` takes it, with ranges in brackets; ``@FILE`` is a file with a part on
each line and comments from ``#`` on; ``group:NAME`` is a list of the configuration, and
``group:all`` all lists of it; ``slurm:NUMBER`` are the hosts of a Slurm job.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.fleet.fleet import FleetError
from gpumon.system.files import MIB, FileFault, read_text
from gpumon.text.formatting import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpumon.allocations.job_hosts import JobHosts

MOST_HOSTS = 1000
"""One ssh runs for each host; more hosts are a task for Prometheus."""
ALL = "all"
"""The group of all hosts of the configuration."""
_GROUP, _SLURM = "group:", "slurm:"
_LONGEST = 320
"""Characters of the longest name: 64 of a user, ``@``, 255 of a host."""
_FORBIDDEN = frozenset("'\"`$\\;&<>|(){}[]*?!~,#")
"""Characters that OpenSSH refuses, or that a shell, a pattern or this list gives a meaning."""
_RANGES = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_SHOWN = 60


class HostList(Struct, frozen=True):
    """The hosts of a list."""

    names: tuple[str, ...]  # each once, in order
    jobs: tuple[str, ...] = ()  # the Slurm jobs in the list, as they were written: ``88123``
    # Of each host that is in the list for the sake of jobs only, all names of these.
    jobs_by_host: Mapping[str, frozenset[str]] = {}


def read_hosts(text: str, groups: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The hosts of a list without jobs, each once, in order.

    Raises:
        FleetError: See ``read_host_list``.
    """
    return read_host_list(text, groups, _no_jobs).names


def read_host_list(
    text: str,
    groups: Mapping[str, str] | None = None,
    hosts_of_job: Callable[[str], JobHosts] | None = None,
) -> HostList:
    """The hosts of a list. For a job in it, Slurm is asked, which may take seconds.

    Args:
        text: The list.
        groups: The groups of the configuration.
        hosts_of_job: In place of Slurm; may raise ``FleetError``.

    Raises:
        FleetError: A part is no name, a file or a group cannot be read, the hosts of a job are not
            known, there is no host, or there are more than ``MOST_HOSTS``.
    """
    hosts: dict[str, None] = {}
    jobs: dict[str, None] = {}
    by_name: set[str] = set()
    by_job: dict[str, frozenset[str]] = {}
    for part in _parts(text):
        number = part.removeprefix(_SLURM).strip()
        job = (hosts_of_job or _asked)(number) if part.startswith(_SLURM) else None
        if job is not None:
            jobs[number] = None
        for host in _named(part, groups or {}) if job is None else map(_checked, job.hosts):
            hosts[host] = None
            if job is None:
                by_name.add(host)
            else:
                by_job[host] = by_job.get(host, frozenset()) | job.names
            if len(hosts) > MOST_HOSTS:
                raise FleetError(_too_many())
    if not hosts:
        raise FleetError("the list of hosts has no name: write one such as gpu-01,gpu-[02-16].")
    only_by_job = {host: names for host, names in by_job.items() if host not in by_name}
    return HostList(tuple(hosts), tuple(jobs), only_by_job)


def _asked(number: str) -> JobHosts:
    from gpumon.allocations.job_hosts import JobHostsError, hosts_of_job

    try:
        return hosts_of_job(number)
    except JobHostsError as error:
        raise FleetError(str(error)) from None


def _no_jobs(number: str) -> JobHosts:
    raise FleetError(f"{_quoted(_SLURM + number)} is no name of a host: --hosts takes jobs.")


def _named(part: str, groups: Mapping[str, str]) -> Iterator[str]:
    """The names of a part that is not a job."""
    if part.startswith(_GROUP):
        for inner in _group(part.removeprefix(_GROUP), groups):
            yield from _expanded(inner)
    elif part.startswith("@"):
        for inner in _file(part[1:]):
            yield from _expanded(inner)
    else:
        yield from _expanded(part)


def _parts(text: str) -> Iterator[str]:
    """The parts between commas that are not in brackets."""
    for part in re.split(r",(?![^\[\]]*\])", text):
        if stripped := part.strip():
            yield stripped


def _group(name: str, groups: Mapping[str, str]) -> Iterator[str]:
    """The names of a group; the files in it are read."""
    if name == ALL and name not in groups:
        if not groups:
            raise FleetError(
                "the configuration names no hosts: write them under [hosts], see docs/fleet.md."
            )
        chosen = list(groups.values())
    elif name in groups:
        chosen = [groups[name]]
    else:
        known = ", ".join(map(printable, groups))
        there = f"there are {known} and {ALL}" if known else "the configuration has no groups"
        raise FleetError(f"there is no group of hosts {_quoted(name)}: {there}.")
    for text in chosen:
        for part in _parts(text):
            if part.startswith("@"):
                yield from _file(part[1:])
            elif part.startswith(_GROUP):
                raise FleetError(
                    f"the group of hosts {_quoted(name)} names {_quoted(part)}: write the names of"
                    " that group instead, because groups cannot be nested."
                )
            else:
                yield part


def _file(name: str) -> Iterator[str]:
    """The parts on the lines of a file."""
    path = os.path.expanduser(name)  # noqa: PTH111 - the name is a text, and may be none
    try:
        text = read_text(path, MIB, "list of hosts")
    except FileFault as fault:
        raise FleetError(f"the file of hosts {_quoted(name)} {fault}.") from None
    for number, line in enumerate(text.splitlines(), 1):
        part = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        if part.startswith(("@", _GROUP)):
            raise FleetError(
                f"{_quoted(name)}, line {number}: {_quoted(part)} is no name of a host; a file has"
                " only names."
            )
        yield from _parts(part)


def _expanded(part: str) -> Iterator[str]:
    """The names that a part with ranges stands for."""
    pieces = _RANGES.split(part)
    texts, ranges = pieces[::2], [_numbers(piece, part) for piece in pieces[1::2]]
    total = 1
    for numbers in ranges:
        total *= sum(last - first + 1 for first, last, _ in numbers)
    if total > MOST_HOSTS:
        raise FleetError(_too_many())
    names = [texts[0]]
    for numbers, text in zip(ranges, texts[1:], strict=True):
        names = [
            f"{name}{number:0{width}}{text}"
            for name in names
            for first, last, width in numbers
            for number in range(first, last + 1)
        ]
    for name in names:
        yield _checked(name)


def _numbers(piece: str, part: str) -> list[tuple[int, int, int]]:
    """The first number, the last and the number of digits of each range in a pair of brackets."""
    found = []
    for text in piece.split(","):
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            raise FleetError(
                f"{_quoted(part)} has no range of numbers in its brackets: write gpu-[02-16]."
            )
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise FleetError(
                f"the range in {_quoted(part)} runs backwards: write [{last}-{first}]."
            )
        found.append((int(first), int(last), len(first)))
    return found


def _checked(name: str) -> str:
    """A name that is safe to print and to give to ssh."""
    wrong = ""
    if name.startswith("-"):
        wrong = "ssh would take it for an option"
    elif name.startswith(_SLURM):
        wrong = "a job is named in the list itself, not in a file or group"
    elif len(name) > _LONGEST:
        wrong = f"it has more than {_LONGEST} characters"
    elif printable(name) != name or " " in name:
        wrong = "it has blanks or invisible characters"
    elif found := sorted(set(name) & _FORBIDDEN):
        wrong = f"it has the character {found[0]}"
    elif name.endswith("@") or not name:
        wrong = "it names no host"
    if wrong:
        raise FleetError(f"{_quoted(name)} is no name of a host: {wrong}.")
    return name


def _quoted(text: str) -> str:
    """A text of the user, short and safe to print."""
    return repr(printable(shortened(text, _SHOWN)))


def _too_many() -> str:
    return (
        f"the list has more than {MOST_HOSTS:,} hosts: name fewer, because gpumon holds a"
        " connection to each."
    )
