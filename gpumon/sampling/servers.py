"""Asks the inference servers of this machine what they do.

A server is asked only if its process belongs to the user of this program, or to a user whom the
configuration names, at a socket that this very process, or a child of it, listens on.
"""

from __future__ import annotations

import math
import os
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from gpumon.host.process_tree import descendants
from gpumon.model.serving import ServerLoad
from gpumon.system.backoff import Backoff
from gpumon.system.files import FileFault, read_secret_line
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpumon.config.settings import Serving
    from gpumon.host.listeners import Listener, Sockets
    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.serving import Engine
    from gpumon.system.system import System

EVERY = 5.0
"""Seconds between two questions to a server at least."""
_LONGEST_PAUSE = 60.0
_CONNECT_SECONDS = 0.5
_MOST_SERVERS = 64
"""Servers that are asked: with a hung one each, a round takes a minute."""


class Servers:
    """Asks repeatedly. Not thread-safe.

    Args:
        settings: Returns what the configuration says; called when there is a server.
        system: The operating system that is read.
    """

    def __init__(self, settings: Callable[[], Serving], system: System = THIS_SYSTEM) -> None:
        self._read_settings = settings
        self._settings: Serving | None = None
        self._system = system
        self._asked: dict[ProcessId, _Server] = {}

    def find(self, processes: Iterable[GpuProcess]) -> tuple[Mapping[ProcessId, ServerLoad], float]:
        """Ask the servers for which it is time.

        Args:
            processes: The processes on GPUs, with their workloads.

        Returns:
            What is known of the server of each process that has one which may be asked; and seconds
            until it is useful to ask again.
        """
        members = _members(processes)
        if not members:
            self._asked.clear()
            return {}, math.inf
        if self._settings is None:
            self._settings = self._read_settings()
        if not self._settings.ask:
            return {}, math.inf
        self._asked = {root: self._asked[root] for root in members if root in self._asked}
        found: dict[ProcessId, ServerLoad] = {}
        pause = math.inf
        for root, of_server in list(members.items())[:_MOST_SERVERS]:
            engine = _reporting_engine(of_server[0])
            if engine is None or not _may_ask(of_server, self._settings):
                continue
            server = self._asked.get(root)
            if server is None:
                server = self._asked[root] = _Server(root, of_server[0], self._system)
            pause = min(pause, server.ask(engine, self._settings))
            if server.load is not None:
                found.update((process.id, server.load) for process in of_server)
        return found, pause


def _members(processes: Iterable[GpuProcess]) -> dict[ProcessId, list[GpuProcess]]:
    """The processes on GPUs of each server, by its outermost process."""
    members: dict[ProcessId, list[GpuProcess]] = {}
    for process in processes:
        if process.visible and (root := process.server_id) is not None:
            members.setdefault(root, []).append(process)
    return members


def _reporting_engine(process: GpuProcess) -> Engine | None:
    """The kind of its server; ``None`` if that reports no metrics."""
    from gpumon.serving import ENGINES

    server = None if process.place is None else process.place.server
    engine = None if server is None else ENGINES.get(server.engine)
    return None if engine is None or engine.metrics_path is None else engine


def _may_ask(processes: Sequence[GpuProcess], settings: Serving) -> bool:
    """Whether all processes of a server belong to users whose servers are asked."""
    named = {name.strip() for name in settings.users.split(",")} - {""}
    return all(
        process.uid is not None and (process.uid == os.geteuid() or process.user in named)
        for process in processes
    )


class _Server:
    """One server.

    Args:
        root: Its outermost process.
        member: A process of it on a GPU, of the same user.
        system: The operating system that is read.
    """

    def __init__(self, root: ProcessId, member: GpuProcess, system: System) -> None:
        # The parts are imported when there is a server.
        from gpumon.serving.rates import Rates

        self._root, self._member, self._system = root, member, system
        self._rates = Rates()
        self._backoff = Backoff(EVERY, _LONGEST_PAUSE)
        self._due = 0.0
        self._listening = root
        self.load: ServerLoad | None = None  # ``None`` before it was asked.

    def ask(self, engine: Engine, settings: Serving) -> float:
        """Ask if it is time. Returns seconds until the next question."""
        clock = self._system.clock
        if clock.monotonic() >= self._due:
            from gpumon.serving.metrics_text import AnswerError

            began = clock.monotonic()
            try:
                load = self._answer(engine, settings, began)
            except AnswerError as error:
                self._rates.forget()
                load = ServerLoad(problem=str(error))
                self._backoff.failed(began)
                self._due = self._backoff.until
            else:
                self._backoff.answered()
                self._due = began + EVERY
            # The same object while nothing has changed: processes are compared in each sample.
            if load != self.load:
                self.load = load
        return max(0.0, self._due - clock.monotonic())

    def _answer(self, engine: Engine, settings: Serving, now: float) -> ServerLoad:
        """What it reports now.

        Raises:
            AnswerError: It reports nothing; the message says why.
        """
        from gpumon.serving.client import ask

        address, port = self._address(self._port(engine))
        token = _token(settings.token_files.get(str(port)))
        return self._rates.load(
            ask(engine, address, port, token),
            now,
            tokens_while_generating=engine.tokens_while_generating,
        )

    def _port(self, engine: Engine) -> int | None:
        """The port of its metrics, by its command line and environment."""
        from gpumon.host.details import program_of
        from gpumon.serving.recognition import recognise

        program = program_of(self._root, self._system)
        found = None if program is None else recognise(*program)
        return engine.default_port if found is None or found.port is None else found.port

    def _address(self, port: int | None) -> tuple[str, int]:
        """Where it listens, as this program reaches it.

        Raises:
            AnswerError: That is not known, or this program does not reach it.
        """
        from gpumon.host.listeners import is_connected, reachable_address
        from gpumon.http.listening import authority
        from gpumon.serving.metrics_text import AnswerError

        listeners, sockets = self._listeners(port)
        for listener in listeners:
            address = reachable_address(listener, sockets)
            if address is None:
                continue
            if sockets.is_local or _leads_into(
                (address, listener.port), partial(is_connected, self._root, listener.port)
            ):
                return address, listener.port
        where = ", ".join(authority(each.address, each.port) for each in listeners)
        raise AnswerError(f"it listens at {where} inside of its container, out of reach")

    def _listeners(self, port: int | None) -> tuple[Sequence[Listener], Sockets]:
        """Its sockets for this port, in the first of its processes that has any.

        Raises:
            AnswerError: None has.
        """
        from gpumon.host.listeners import sockets_of
        from gpumon.serving.metrics_text import AnswerError

        for process in self._processes():
            try:
                sockets = sockets_of(process, self._system)
            except OSError:
                continue
            if sockets.owner != self._member.uid:
                continue
            own = sockets.own
            if own is None:
                # Of another user: its files are closed to this program, the table is not.
                own = tuple(each for each in sockets.around if each.uid == sockets.owner)
            found = [listener for listener in own if listener.port == port]
            if found:
                self._listening = process
                return found, sockets
        raise AnswerError(f"none of its processes listens on port {port}")

    def _processes(self) -> Iterator[ProcessId]:
        """The processes that may listen, the likeliest first."""
        yield self._listening
        yield self._root
        # Of TGI, the router does, which is neither above nor below the process on the GPU.
        yield from descendants(self._root, self._system)


def _leads_into(address: tuple[str, int], is_connected: Callable[[tuple[str, int]], bool]) -> bool:
    """Whether a connection to an address arrives in the container that has it.

    Outside of the container the same address may be another machine's.
    """
    with suppress(OSError), socket.create_connection(address, _CONNECT_SECONDS) as probe:
        return is_connected(probe.getsockname()[:2])
    return False


def _token(path: str | None) -> str | None:
    """The API key in a file.

    Raises:
        AnswerError: The file cannot be used.
    """
    if path is None:
        return None
    from gpumon.serving.metrics_text import AnswerError

    try:
        return read_secret_line(os.path.expanduser(path))  # noqa: PTH111 - os.open takes a text
    except FileFault as fault:
        raise AnswerError(f"the file with its key {fault}") from None
