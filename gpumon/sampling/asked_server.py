"""An inference server that is asked, at a socket on which one of its own processes listens.

Whose socket it is cannot be read of another user's process: then the user and the port decide.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from gpumon.host.details import program_of
from gpumon.host.listeners import is_connected, reachable_address, sockets_of
from gpumon.host.process_tree import descendants
from gpumon.http.listening import authority
from gpumon.model.serving import ServerLoad
from gpumon.serving.client import ask
from gpumon.serving.metrics_text import AnswerError
from gpumon.serving.rates import Rates
from gpumon.serving.recognition import recognise
from gpumon.system.backoff import Backoff
from gpumon.system.files import FileFault, read_secret_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpumon.config.settings import Serving
    from gpumon.host.listeners import Listener, Sockets
    from gpumon.model.processes import ProcessId
    from gpumon.serving import Engine
    from gpumon.system.system import System

EVERY = 5.0
"""Seconds between two questions to a server at least."""
_LONGEST_PAUSE = 60.0
_UNTIL_IT_LISTENS = 10.0
"""Seconds between two looks for the socket of a server: some load their model for minutes."""
_CONNECT_SECONDS = 0.5
_MOST_DESCENDANTS = 64
"""Processes of a server whose sockets are read: each takes some milliseconds."""


class _NotListeningError(AnswerError):
    """The server does not listen yet: it was not asked."""


class AskedServer:
    """What one server reports.

    Args:
        root: Its outermost process.
        engine: Its kind, which reports metrics.
        uid: The user of all its processes.
        system: The operating system that is read.
    """

    def __init__(self, root: ProcessId, engine: Engine, uid: int | None, system: System) -> None:
        self._root, self._engine, self._uid, self._system = root, engine, uid, system
        self._rates = Rates()
        self._backoff = Backoff(EVERY, _LONGEST_PAUSE)
        self.due = 0.0  # When to ask it again.
        self._listening = root
        self.load: ServerLoad | None = None  # ``None`` before it was asked.

    @property
    def pause(self) -> float:
        """Seconds until it may be asked again."""
        return max(0.0, self.due - self._system.clock.monotonic())

    @property
    def has_failed(self) -> bool:
        """Whether it did not answer the last question."""
        return self.load is not None and self.load.problem is not None

    def ask(self, settings: Serving) -> None:
        """Ask it."""
        began = self._system.clock.monotonic()
        try:
            load = self._answer(settings, began)
        except AnswerError as error:
            self._rates.forget()
            load = ServerLoad(problem=str(error))
            if isinstance(error, _NotListeningError):
                self.due = began + _UNTIL_IT_LISTENS
            else:
                self._backoff.failed(began)
                self.due = self._backoff.until
        else:
            self._backoff.answered()
            self.due = began + EVERY
        # The same object while nothing has changed: processes are compared in each sample.
        if load != self.load:
            self.load = load

    def _answer(self, settings: Serving, now: float) -> ServerLoad:
        """What it reports now.

        Raises:
            AnswerError: It reports nothing; the message says why.
        """
        engine = self._engine
        address, port = self._address(self._port())
        token = _token(settings.token_files.get(str(port)))
        return self._rates.load(
            ask(engine, address, port, token),
            now,
            tokens_while_generating=engine.tokens_while_generating,
        )

    def _port(self) -> int | None:
        """The port of its metrics, by its command line and environment.

        Raises:
            AnswerError: It has neither any more.
        """
        program = program_of(self._root, self._system)
        if program is None or not program[0]:
            raise AnswerError("it has ended")
        found = recognise(*program)
        if found is None or found.port is None:
            return self._engine.default_port
        return found.port

    def _address(self, port: int | None) -> tuple[str, int]:
        """Where it listens, as this program reaches it.

        Raises:
            AnswerError: That is not known, or this program does not reach it.
        """
        listeners, sockets = self._listeners(port)
        for listener in listeners:
            address = reachable_address(listener, sockets)
            if address is None:
                continue
            if sockets.is_local or _leads_into(
                (address, listener.port), partial(is_connected, self._listening, listener.port)
            ):
                return address, listener.port
        where = ", ".join(authority(each.address, each.port) for each in listeners)
        raise AnswerError(f"it listens at {where} inside its container, which gpumon cannot reach")

    def _listeners(self, port: int | None) -> tuple[Sequence[Listener], Sockets]:
        """Its sockets for this port, in the first of its processes that has any.

        Raises:
            AnswerError: None has.
        """
        for process in self._processes():
            try:
                sockets = sockets_of(process, self._system)
            except OSError:
                continue
            if all(each.port != port for each in sockets.around):
                # Nor does another of its processes: they are in the same network namespace.
                break
            if sockets.owner != self._uid:
                continue
            own = sockets.own
            if own is None:
                # Of another user: its files are closed to this program, the table is not.
                own = tuple(each for each in sockets.around if each.uid == sockets.owner)
            found = [listener for listener in own if listener.port == port]
            if found:
                self._listening = process
                return found, sockets
        raise _NotListeningError(f"none of its processes listens on port {port}")

    def _processes(self) -> Iterator[ProcessId]:
        """The processes that may listen, the likeliest first."""
        yield self._listening
        if self._listening != self._root:
            yield self._root
        # Of TGI, the router does, which is neither above nor below the process on the GPU.
        yield from descendants(self._root, self._system)[:_MOST_DESCENDANTS]


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
    try:
        return read_secret_line(os.path.expanduser(path))  # noqa: PTH111 - os.open takes a text
    except FileFault as fault:
        raise AnswerError(f"the file with its key {fault}") from None
