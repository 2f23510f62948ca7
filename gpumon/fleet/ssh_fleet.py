"""A fleet over ssh: one connection to each host, and one thread that reads them all.

No host can make the others wait.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import threading
import time
from contextlib import suppress
from operator import is_not
from typing import TYPE_CHECKING

from gpumon.fleet.connection import HostConnection
from gpumon.fleet.fleet import Fleet, FleetSnapshot, HostMachine, HostSource
from gpumon.remote.client import RemoteHost
from gpumon.system.piped_program import OPEN_FILES, end_all
from gpumon.system.resource_errors import allow_open_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.fleet.ssh import SshClient

_TICK = 0.1
"""Seconds between two checks for what has not happened in time."""
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


class SshFleet(Fleet):
    """Hosts that are reached by ssh.

    Args:
        hosts: The hosts, each as ssh takes it.
        interval: Seconds between samples.
        client: How they are reached.
        patience: Seconds that an answer about a process is waited for at most.
    """

    def __init__(
        self, hosts: Sequence[str], interval: float, client: SshClient, patience: float = math.inf
    ) -> None:
        super().__init__(interval)
        self._client = client
        self._patience = patience
        self._selector = selectors.DefaultSelector()
        self._connections = {
            host: HostConnection(host, client, interval, self._selector) for host in hosts
        }
        self._stopping = False
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ, lambda _: None)
        self._thread = threading.Thread(target=self._run, name="gpumon-fleet", daemon=True)
        self._closing = threading.Lock()
        self._closed = False
        self._processes_lock = threading.Lock()
        self._processes: dict[tuple[str, bool], RemoteHost] = {}

    def start(self) -> None:
        """See ``Fleet.start``."""
        allow_open_files(OPEN_FILES * len(self._connections))
        self._thread.start()

    def close(self) -> None:
        """See ``Fleet.close``; waits for the processes of the connections."""
        with self._closing:
            if not self._closed:
                self._closed = self._stopping = True
                # After an error of the thread, which was reported, nobody reads.
                with suppress(BrokenPipeError):
                    os.write(self._wake_write, b"x")
                if self._thread.ident is not None:
                    self._thread.join()
                else:
                    self._release()
                os.close(self._wake_write)
        with self._processes_lock:
            processes = list(self._processes.values())
        for host in processes:
            host.close()

    def latest(self) -> FleetSnapshot:
        """See ``Fleet.latest``."""
        states = [connection.state for connection in self._connections.values()]
        return FleetSnapshot(time.time(), tuple(states))

    def machine(self, name: str, *, readonly: bool = True) -> HostMachine:
        """See ``Fleet.machine``."""
        if name not in self._connections:
            raise KeyError(name)
        return HostMachine(HostSource(self, name), lambda: self._remote(name, readonly=readonly))

    def _remote(self, name: str, *, readonly: bool) -> RemoteHost:
        """The processes of a host. Connects at once, on a thread; the fleet ends it."""
        with self._processes_lock:
            host = self._processes.get((name, readonly))
            if host is None:
                command = self._client.remote(name, readonly=readonly)
                host = RemoteHost(name, command, readonly=readonly, patience=self._patience)
                self._processes[name, readonly] = host
                # Whose processes may be signalled there must be known before one is chosen.
                host.connect()
        return host

    def _run(self) -> None:
        try:
            self._poll()
        finally:
            self._release()

    def _release(self) -> None:
        connections = self._connections.values()
        clients = [client for connection in connections if (client := connection.close())]
        for client in clients:
            client.signal(signal.SIGTERM)
        end_all(clients, _ENDING_SECONDS)
        self._selector.close()
        os.close(self._wake_read)

    def _poll(self) -> None:
        next_tick = time.monotonic()
        connections = tuple(self._connections.values())
        states = [connection.state for connection in connections]
        while not self._stopping:
            ready = self._selector.select(max(0.0, next_tick - time.monotonic()))
            now = time.monotonic()
            for key, _ in ready:
                # Another one that was read before may have ended this one's client.
                if key.fd in self._selector.get_map():
                    key.data(now)
            if now >= next_tick:
                self._tick(now)
                next_tick = now + _TICK
            new = [connection.state for connection in connections]
            # States are replaced, never changed: comparing them by value would cost more.
            if any(map(is_not, new, states)):
                states = new
                self._notify()

    def _tick(self, now: float) -> None:
        connections = self._connections.values()
        for connection in connections:
            connection.tick(now)
        due = [connection for connection in connections if connection.is_due(now)]
        if not due:
            return
        patience = self._handshake_seconds()
        opening = sum(connection.is_opening(now, patience) for connection in connections)
        # Hosts that answered, or were not tried yet, come before those that failed.
        due.sort(key=lambda connection: connection.has_failed)
        for connection in due[: max(0, _HANDSHAKES - opening)]:
            connection.open(now)

    def _handshake_seconds(self) -> float:
        """How long a client that connects is expected to take at most."""
        taken = [
            seconds
            for connection in self._connections.values()
            if (seconds := connection.handshake_seconds) is not None
        ]
        if not taken:
            return _FIRST_HANDSHAKE
        usual = _USUAL_HANDSHAKES * sum(taken) / len(taken)
        return min(max(usual, _LEAST_HANDSHAKE), _LONGEST_HANDSHAKE)
