"""The hosts of a fleet for ``gpumon log``: all that answer, at the same moments."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.fleet.fleet import HostStatus
from gpumon.recording.csv.log_messages import kind_of
from gpumon.sampling.gpu_sampler import PATIENCE
from gpumon.text.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.fleet.fleet import Fleet, HostState
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.csv.log_feed import Take

_MOST_NAMED = 8
"""Hosts of which nothing was sampled that are named at the end."""


class FleetFeed:
    """The hosts of a fleet; implements ``LogFeed``. ``start`` starts the fleet, ``stop`` closes it.

    A sample has the newest values of each host that answers. It has a single time, by the clock of
    this machine; how old the values of a host are is in its log. Hosts that do not answer are left
    out.
    """

    several = True
    name = "hosts"

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._stopping = threading.Event()
        self._waited = threading.Event()
        self._thread: threading.Thread | None = None
        self._said: dict[str, str] = {}
        self._sampled: set[str] = set()

    def start(self, take: Take, failed: Callable[[BaseException], None]) -> None:
        """See ``LogFeed.start``."""
        self._fleet.start()

        def run() -> None:
            try:
                self._sample_until_stopped(take)
            except Exception as error:  # noqa: BLE001 - a thread has nobody above it to see this
                failed(error)

        self._thread = threading.Thread(target=run, name="gpumon-log-hosts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """See ``LogFeed.stop``."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._fleet.close()

    def _sample_until_stopped(self, take: Take) -> None:
        self._wait_for_hosts()
        self._waited.set()
        interval, due = self._fleet.interval, time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            take(self._sample())
            late = max(0.0, time.monotonic() - due)
            due += interval * (1 + late // interval)

    def _wait_for_hosts(self) -> None:
        """Wait until each host has answered or is down, but not for long."""
        changed = threading.Event()
        end = self._fleet.subscribe(changed.set)
        deadline = time.monotonic() + PATIENCE
        try:
            while not self._stopping.is_set() and (left := deadline - time.monotonic()) > 0:
                hosts = self._fleet.latest().hosts
                if all(host.status is not HostStatus.CONNECTING for host in hosts):
                    return
                # ``stop`` must not wait for a change.
                changed.wait(min(left, 0.1))
                changed.clear()
        finally:
            end()

    def _sample(self) -> dict[str | None, Snapshot]:
        fleet = self._fleet.latest()
        found: dict[str | None, Snapshot] = {}
        for host in fleet.hosts:
            if _answers(host) and host.snapshot is not None and host.snapshot.gpus:
                found[host.name] = replace(host.snapshot, time=fleet.time)
                self._sampled.add(host.name)
        return found

    def is_starting(self) -> bool:
        """See ``LogFeed.is_starting``: not any more once each host has answered or is down."""
        return not self._waited.is_set()

    def trouble(self) -> str | None:
        """See ``LogFeed.trouble``: none, because each host has its own; see ``changes``."""
        return None

    def changes(self) -> Sequence[str]:
        """See ``LogFeed.changes``."""
        found = []
        for host in self._fleet.latest().hosts:
            before, sentence = self._said.get(host.name, ""), host.sentence
            if kind_of(sentence) != kind_of(before):
                self._said[host.name] = sentence
                found.append(f"{host.name}: {sentence or 'answers again'}")
        return found

    def parts(self, user: str | None) -> Sequence[str]:
        """See ``LogFeed.parts``."""
        hosts = self._fleet.latest().hosts
        shown = [host.snapshot for host in hosts if _answers(host) and host.snapshot is not None]
        gpus = sum(len(snapshot.gpus) for snapshot in shown)
        processes = sum(
            user is None or process.user == user
            for snapshot in shown
            for process in snapshot.processes
        )
        parts = [
            f"{len(shown)} of {counted(len(hosts), 'host')}",
            f"{counted(gpus, 'GPU')}, {counted(processes, 'process', 'es')}",
        ]
        silent = [host for host in hosts if host.sentence and not _answers(host)]
        if silent:
            more = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
            parts.insert(1, f"{silent[0].name}: {silent[0].sentence}{more}")
        return parts

    def never_sampled(self) -> Sequence[str]:
        """See ``LogFeed.never_sampled``."""
        absent = [host for host in self._fleet.latest().hosts if host.name not in self._sampled]
        found = [
            f"{host.name} was never logged: {host.sentence or 'no answer'}"
            for host in absent[:_MOST_NAMED]
        ]
        if len(absent) > _MOST_NAMED:
            more = len(absent) - _MOST_NAMED
            were = "was" if more == 1 else "were"
            found.append(f"{counted(more, 'more host')} {were} never logged")
        return found


def _answers(host: HostState) -> bool:
    return host.status is HostStatus.LIVE
