"""One thread that reads from all hosts; none of them can make the others wait."""

from __future__ import annotations

import os
import selectors
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from gpumon.fleet.connection import HostConnection
from gpumon.system.piped_program import OPEN_FILES, end_all
from gpumon.system.resource_errors import allow_open_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.fleet.ssh import SshClient

_TICK = 0.1
"""Seconds between two looks at what has not happened in time."""
_HANDSHAKES = 8
"""So many clients connect at the same time: sshd refuses connections at random from 10 on
(MaxStartups), which matters behind a jump host."""
_FIRST_HANDSHAKE, _USUAL_HANDSHAKES = 2.0, 3.0
_LEAST_HANDSHAKE, _LONGEST_HANDSHAKE = 0.7, 5.0
"""A client that connects for longer than three times the usual does not count any more, so that
hosts that are down do not keep the others waiting; before any host has answered, for two seconds.
"""
_ENDING_SECONDS = 1.0
"""How long the clients may take to end when the fleet is closed."""


class FleetPoller:
    """Connects to hosts and reads what they send, on its own thread.

    Attributes:
        connections: The connections, in the order of the hosts. Any thread may read their states.

    Args:
        hosts: The hosts.
        client: How they are reached.
        interval: Seconds between samples.
        changed: Called on the thread after states have changed.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        client: SshClient,
        interval: float,
        changed: Callable[[], None],
    ) -> None:
        self._selector = selectors.DefaultSelector()
        self.connections = tuple(
            HostConnection(host, client, interval, self._selector) for host in hosts
        )
        self._changed = changed
        self._stopping = False
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ, lambda _: None)
        self._thread = threading.Thread(target=self._run, name="gpumon-fleet", daemon=True)
        self._closing = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Begin to connect."""
        allow_open_files(OPEN_FILES * len(self.connections))
        self._thread.start()

    def close(self) -> None:
        """End all connections and wait for their processes. May be called more than once."""
        with self._closing:
            if self._closed:
                return
            self._closed = self._stopping = True
            # After an error of the thread, which was told, nobody reads.
            with suppress(BrokenPipeError):
                os.write(self._wake_write, b"x")
            if self._thread.ident is not None:
                self._thread.join()
            else:
                self._release()
            os.close(self._wake_write)

    def _run(self) -> None:
        try:
            self._poll()
        finally:
            self._release()

    def _release(self) -> None:
        clients = [client for connection in self.connections if (client := connection.close())]
        for client in clients:
            client.signal(signal.SIGTERM)
        end_all(clients, _ENDING_SECONDS)
        self._selector.close()
        os.close(self._wake_read)

    def _poll(self) -> None:
        next_tick = time.monotonic()
        states = [connection.state for connection in self.connections]
        while not self._stopping:
            ready = self._selector.select(max(0.0, next_tick - time.monotonic()))
            now = time.monotonic()
            for key, _ in ready:
                # One that was read before may have ended this one's client.
                if key.fd in self._selector.get_map():
                    key.data(now)
            if now >= next_tick:
                self._tick(now)
                next_tick = now + _TICK
            new = [connection.state for connection in self.connections]
            # States are replaced, never changed: comparing them by value would cost more.
            if any(map(_differ, new, states)):
                states = new
                self._changed()

    def _tick(self, now: float) -> None:
        for connection in self.connections:
            connection.tick(now)
        due = [connection for connection in self.connections if connection.is_due(now)]
        if not due:
            return
        patience = self._handshake_seconds()
        opening = sum(connection.is_opening(now, patience) for connection in self.connections)
        # Hosts that answered, or were not tried yet, come before those that failed.
        due.sort(key=lambda connection: connection.has_failed)
        for connection in due[: max(0, _HANDSHAKES - opening)]:
            connection.open(now)

    def _handshake_seconds(self) -> float:
        """How long a client that connects is expected to take at most."""
        taken = [
            seconds
            for connection in self.connections
            if (seconds := connection.handshake_seconds) is not None
        ]
        if not taken:
            return _FIRST_HANDSHAKE
        usual = _USUAL_HANDSHAKES * sum(taken) / len(taken)
        return min(max(usual, _LEAST_HANDSHAKE), _LONGEST_HANDSHAKE)


def _differ(one: object, other: object) -> bool:
    return one is not other
