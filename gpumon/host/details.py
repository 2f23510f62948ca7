"""Reads the details of one process, for its page.

psutil is not used: it waits with a process that hangs, reads nothing of one whose main thread alone
has ended (a zombie to it), and lists no open device files.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, TypeVar

from gpumon.host.process_host import Details
from gpumon.host.process_tree import read_relatives
from gpumon.host.procfs import ProcessFiles, Stat, opened, split_strings
from gpumon.system.system import THIS_SYSTEM, user_name
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.makers import DeviceFiles
    from gpumon.model.processes import ProcessId, Workload
    from gpumon.system.system import System

T = TypeVar("T")

LIMIT = 2**20
"""Bytes of a command line, and of an environment, that are read."""

_ENDED = "It has ended, but its parent has not reaped it yet: nothing else is left of it."
_ENDING = "It is ending: its command and environment are gone already."
_HANGS = (
    "It waits inside the kernel: its command and environment are not read, because reading them "
    "may have to wait too."
)


def read_details(
    process: ProcessId,
    files: DeviceFiles,
    system: System = THIS_SYSTEM,
    place: Workload | None = None,
) -> Details | None:
    """The details of one process.

    If its main thread is dead while others live, they are read through a live thread.

    Args:
        process: The process.
        files: The device files of the GPUs.
        system: The operating system that is read.
        place: Where it runs; passed on.

    Returns:
        ``None`` if it has ended or its PID was reused.
    """
    try:
        with opened(system.proc, process.pid) as process_files:
            if process_files.stat().id != process:
                return None
            reader = _ProcessReader(process_files)
            command, environment = reader.strings()
            executable, cwd = reader.link("exe", "program"), reader.link("cwd", "working directory")
            devices = reader.devices(files.prefixes)
            stat = process_files.stat()
            if stat.ending:
                # Files of it can still be opened, but are empty.
                environment = environment or None
                # What it holds open is being closed, which can take long, and is listed no more.
                devices = devices if stat.ended else devices or None
            waits_in = process_files.wait_channel() if stat.state == "D" else None
            unreadable = reader.unreadable(stat)
    except OSError:
        return None
    return Details(
        id=process,
        command=command,
        executable=executable,
        cwd=cwd,
        environment=environment,
        threads=stat.threads,
        state=stat.state,
        wait_channel=waits_in,
        devices=devices,
        place=place,
        family=read_relatives([process], system),
        unreadable=unreadable,
    )


def program_of(
    process: ProcessId, system: System = THIS_SYSTEM
) -> tuple[tuple[str, ...], dict[str, str]] | None:
    """The command and the environment of a process; ``None`` if it has ended.

    The environment is empty if this program may not read it.
    """
    try:
        with opened(system.proc, process.pid) as files:
            if files.stat().id != process:
                return None
            command, environment = _ProcessReader(files).strings()
            return command, dict(environment or ())
    except OSError:
        return None


class _ProcessReader:
    """Reads one process, and remembers what was refused.

    A property that does not exist is ``None``.
    """

    def __init__(self, files: ProcessFiles) -> None:
        self._files = files
        self._hangs = files.hangs()
        self._refused: list[str] = []

    def strings(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...] | None]:
        """Its command and its environment."""
        if self._hangs:
            return (), None
        command = self._files.command(LIMIT)
        environ = self._ask("environment", lambda: self._files.read("environ", LIMIT))
        return command, None if environ is None else _variables(environ)

    def link(self, name: str, meaning: str) -> str | None:
        """The target of one of its links."""
        return self._ask(meaning, lambda: self._files.link(f"{self._files.thread}{name}"))

    def devices(self, prefixes: tuple[str, ...]) -> tuple[str, ...] | None:
        """The open files of all its threads whose paths start with one of ``prefixes``."""
        return self._ask("open files", lambda: self._open_files(prefixes))

    def unreadable(self, stat: Stat) -> tuple[str, ...]:
        """Sentences about what could not be read and why."""
        if stat.ended:
            return (_ENDED,)
        sentences = [_HANGS] if self._hangs else []
        if stat.ending:
            sentences = [_ENDING]
            self._refused = [thing for thing in self._refused if thing != "environment"]
        if self._refused:
            *others, last = self._refused
            things = f"{', '.join(others)} and {last}" if others else last
            verb = "are" if others or last == "open files" else "is"
            sentences.append(f"Its {things} {verb} readable by {self._readers()} only.")
        return tuple(sentences)

    def _ask(self, meaning: str, question: Callable[[], T]) -> T | None:
        try:
            return question()
        except PermissionError:
            self._refused.append(meaning)
        except (FileNotFoundError, ProcessLookupError):
            pass  # A zombie has none. A process that is gone is noticed at the end.
        return None

    def _open_files(self, prefixes: tuple[str, ...]) -> tuple[str, ...]:
        found: set[str] = set()
        # Threads can have files of their own; dead ones have none, which only root can see.
        for thread in self._files.threads():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if self._files.stat(thread).state not in "ZX":
                    for number in self._files.names(f"{thread}fd"):
                        found.add(self._open_file(f"{thread}fd/{number}"))
        return tuple(sorted(path for path in found if path.startswith(prefixes)))

    def _open_file(self, link: str) -> str:
        try:
            return self._files.link(link)
        except FileNotFoundError:
            return ""  # It was closed meanwhile.

    def _readers(self) -> str:
        # These files belong to the user, or to root where the program may not be looked into by
        # its user: see task_dump_owner() in the kernel's fs/proc/base.c.
        path = f"{self._files.thread}environ"
        uid = os.stat(path, dir_fd=self._files.directory).st_uid
        return "root" if uid in (0, os.geteuid()) else f"{printable(user_name(uid))} and root"


def _variables(environ: bytes) -> tuple[tuple[str, str], ...]:
    """The variables of an environment, without parts that the program has overwritten."""
    parts = (entry.partition("=") for entry in split_strings(environ))
    return tuple((name, value) for name, equals, value in parts if name and equals)


_SECRET_PARTS = re.compile(
    r"PASSWO?R?D|PASSPHRASE|SECRET|CREDENTIAL|COOKIE|CONN(ECTION)?_?STR(ING)?|"
    r"(API|ACCESS|AUTH|PRIVATE|SIGNING|ENCRYPTION|LICENSE|ACCOUNT)_?(KEY|TOKEN)"
)
_SECRET_WORDS = re.compile(
    r"(^|_)(AUTH|AUTHORIZATION|BEARER|DSN|JWT|KEYS?|OTP|(SSH)?PASS|PAT|PW|PWD|TOKENS)(_|$)|TOKEN(_|$)"
)
_LOCATION_OR_LENGTH = re.compile(r"(^|_)(DIR|FILE|HOST|LEN|LENGTH|PATH|PORT|SIZE|SOCK|SOCKET)$")
_SWITCH = re.compile(r"\d{1,7}|true|false|yes|no|on|off", re.IGNORECASE)
_WORKING_DIRECTORIES = ("PWD", "OLDPWD")

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+")
# Bounded, because a value may be an arbitrary megabyte.
_SECRET_VALUE = re.compile(
    r"://[^\s/?#@]{0,100}:[^\s@]{1,200}@"  # a password in a URL
    r"|https?://[^\s/?#@:]{1,200}@"  # a token in place of the user
    r"|(pass(word|wd|phrase)?|pwd|secret|token|api[_-]?key|(account|access)key)\s{0,9}=\s{0,9}[^\s;&]"
    r"|bearer\s{1,9}\S"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY",
    re.IGNORECASE,
)


def is_secret(name: str, value: str) -> bool:
    """Whether an environment variable may contain a secret, so that it is hidden by default.

    It depends on the words of its name and on its value: a URL with a password, a connection
    string, a private key. In doubt it is a secret. The path of a secret is none, nor is a number
    or a switch with a name such as ``TOKEN``.
    """
    if not value:
        return False
    return bool(_SECRET_VALUE.search(value)) or _names_a_secret(name, value)


def _names_a_secret(name: str, value: str) -> bool:
    if name in _WORKING_DIRECTORIES:
        return False
    words = "_".join(_WORD.findall(name)).upper()
    if _LOCATION_OR_LENGTH.search(words):
        return False
    if _SECRET_PARTS.search(words):
        return True
    return bool(_SECRET_WORDS.search(words)) and not _SWITCH.fullmatch(value)
