"""A fleet over ssh: one connection to each host."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from gpumon.fleet.fleet import FleetSnapshot
from gpumon.fleet.host_source import HostMachine, HostSource
from gpumon.fleet.listeners import Listeners
from gpumon.fleet.poller import FleetPoller
from gpumon.remote.client import RemoteHost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.fleet.ssh import SshClient


class SshFleet:
    """Hosts that are reached by ssh; implements ``Fleet``.

    Args:
        hosts: The hosts, each as ssh takes it.
        interval: Seconds between samples.
        client: How they are reached.
        patience: Seconds that an answer about a process is waited for at most.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        interval: float,
        client: SshClient,
        patience: float = math.inf,
    ) -> None:
        self.interval = interval
        self._client = client
        self._patience = patience
        self._listeners = Listeners()
        self._poller = FleetPoller(hosts, client, interval, self._listeners.tell)
        self._names = frozenset(hosts)
        self._lock = threading.Lock()
        self._processes: dict[tuple[str, bool], RemoteHost] = {}

    def start(self) -> None:
        """See ``Fleet.start``."""
        self._poller.start()

    def close(self) -> None:
        """See ``Fleet.close``."""
        self._poller.close()
        with self._lock:
            processes = list(self._processes.values())
        for host in processes:
            host.close()

    def latest(self) -> FleetSnapshot:
        """See ``Fleet.latest``."""
        return FleetSnapshot(time.time(), tuple([one.state for one in self._poller.connections]))

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """See ``Fleet.subscribe``."""
        return self._listeners.add(listener)

    def machine(self, name: str, *, readonly: bool = True) -> HostMachine:
        """See ``Fleet.machine``."""
        if name not in self._names:
            raise KeyError(name)
        return HostMachine(HostSource(self, name), lambda: self._remote(name, readonly=readonly))

    def _remote(self, name: str, *, readonly: bool) -> RemoteHost:
        """The processes of a host. Connects at once, on a thread; the fleet ends it."""
        with self._lock:
            host = self._processes.get((name, readonly))
            if host is None:
                command = self._client.remote(name, readonly=readonly)
                host = RemoteHost(name, command, readonly=readonly, patience=self._patience)
                self._processes[name, readonly] = host
                # Whose processes may be signalled there must be known before one is chosen.
                host.connect()
        return host
