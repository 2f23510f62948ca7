"""The fleet that Prometheus knows, and each host of it: its values, its past, and no processes."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.fleet.fleet import Fleet, FleetSnapshot, HostMachine, HostSource, HostState, HostStatus
from gpumon.host.process_host import RecordedHost, Refusal, Refused
from gpumon.prometheus.client import PATIENCE, PrometheusClient, QueryError
from gpumon.prometheus.hosts import snapshot
from gpumon.prometheus.poller import PrometheusPoller
from gpumon.prometheus.queries import Queries
from gpumon.prometheus.readings import Readings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpumon.host.process_host import ProcessHandle, Target
    from gpumon.model.snapshot import Snapshot
    from gpumon.prometheus.client import Endpoint
    from gpumon.prometheus.hosts import KnownHost

LEAST_INTERVAL = 5.0
"""Seconds between two rounds over all hosts; Prometheus scrapes every 15 s or less often."""
OPEN_INTERVAL = 2.0
"""Seconds between two readings of a host that a dashboard shows."""
_REST_SHARE = 3
"""A round is followed by a rest that is this many times as long, so that a busy Prometheus has
time for others."""
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 30.0
_STOP_PATIENCE = 2.0
_NO_HOSTS = (
    "Prometheus has no metrics of GPUs: check --match, and whether it scrapes dcgm-exporter or"
    " gpumon exporter"
)
_WHOLE_SECONDS = 0.7
"""How long to wait for every metric after a snapshot with a few."""
_POLL = 0.02
PAST_PATIENCE = 5.0
"""Seconds after which no more of the past is asked for."""
_HOUR = 3600.0
PAST_SPANS = ((24 * _HOUR, 4 * _HOUR, 600.0), (4 * _HOUR, _HOUR / 2, 120.0), (_HOUR / 2, 0.0, 15.0))
"""From how long ago to how long ago, and seconds between two samples: 350 in all."""


class PrometheusFleet(Fleet):
    """Hosts whose metrics Prometheus has.

    The hosts are those that have metrics of GPUs now, or had some within the last hour, and targets
    that do not answer of jobs whose targets mostly are such hosts. A host that is gone stays, with
    its last values.

    Args:
        endpoint: The server.
        match: More matchers of PromQL for the metrics; empty for all.
        interval: Seconds between two readings; at least ``OPEN_INTERVAL`` for an open host, and
            ``LEAST_INTERVAL`` for all.
        patience: Seconds that a query may take.
    """

    def __init__(
        self, endpoint: Endpoint, match: str, interval: float, patience: float = PATIENCE
    ) -> None:
        self._endpoint = endpoint
        self._patience = patience
        super().__init__(max(interval, OPEN_INTERVAL))
        self._queries = Queries(match)
        self._client = PrometheusClient(endpoint, patience)
        self._poller = PrometheusPoller(self._client, self._queries)
        self._server = HostState(endpoint.address, HostStatus.CONNECTING, time.time())
        self._failures = 0
        self._opened: Counter[str] = Counter()
        self._open_due: dict[str, float] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpumon-prometheus", daemon=True)

    def start(self) -> None:
        """See ``Fleet.start``."""
        self._thread.start()

    def close(self) -> None:
        """See ``Fleet.close``."""
        self._stopped.set()
        self._wake.set()
        self._client.close()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(_STOP_PATIENCE)

    def latest(self) -> FleetSnapshot:
        """See ``Fleet.latest``. The hosts are in the order of their names.

        Before any host is known there is one in their place: Prometheus itself, by its address.
        """
        hosts = [host.state for host in list(self._poller.hosts.values())]
        if not hosts or self._server.name in self._opened:
            hosts.insert(0, self._server)
        return FleetSnapshot(time.time(), tuple(hosts))

    def machine(self, name: str, *, readonly: bool = True) -> HostMachine:  # noqa: ARG002 - there is no process to end
        """See ``Fleet.machine``. While its source is open, every metric of the host is read."""
        name = self.state(name).name
        return HostMachine(PrometheusSource(self, name), lambda: NoProcesses(name))

    def state(self, name: str) -> HostState:
        """What is known of a host.

        Raises:
            KeyError: There is no such host.
        """
        if name == self._server.name and name not in self._poller.hosts:
            return self._server
        return self._poller.hosts[name].state

    def keep_open(self, name: str) -> Callable[[], None]:
        """Read every metric of a host, from now on.

        Returns:
            A function that ends that; to be called once.
        """
        with self._lock:
            self._opened[name] += 1
            self._open_due[name] = 0.0
        self._wake.set()

        def end() -> None:
            with self._lock:
                self._opened[name] -= 1
                if not self._opened[name]:
                    del self._opened[name], self._open_due[name]

        return end

    def has_whole(self, name: str) -> bool:
        """Whether every metric of a host was read, as far as there are some."""
        host = self._poller.hosts.get(name)
        return host is None or host.is_whole

    def past(self, name: str, before: float) -> list[Snapshot]:
        """The past of a host, read on this thread, over a connection of its own.

        Args:
            name: The host.
            before: All is older than this time.
        """
        host = self._poller.hosts.get(name)
        if host is None:
            return []
        series = self._queries.host(host.label, host.texts)
        with closing(PrometheusClient(self._endpoint, self._patience)) as client:
            return read_past(client, host, series, self._poller.clock.shift, before)

    def _run(self) -> None:
        due = 0.0
        while not self._stopped.is_set():
            began = time.monotonic()
            is_round = began >= due
            try:
                if is_round:
                    self._poller.read_all(self._opened, self._read_open)
                self._read_open()
                self._failures, trouble, pause = 0, "", max(self.interval, LEAST_INTERVAL)
            except QueryError as error:
                self._failures += 1
                pause = min(_FIRST_PAUSE * 2 ** min(self._failures - 1, 5), _LONGEST_PAUSE)
                trouble = f"Prometheus at {self._endpoint.address}: {error}"
                is_round = True
            now = time.monotonic()
            if is_round:
                due = now + max(pause - (now - began), _REST_SHARE * (now - began))
            if self._poller.judge(trouble) or is_round:
                self._judge_server(trouble)
                self._notify()
            self._rest(due)

    def _judge_server(self, trouble: str) -> None:
        status = HostStatus.DOWN
        if not trouble and self._poller.hosts:
            status = HostStatus.SILENT
        sentence = trouble.partition(": ")[2] or _NO_HOSTS
        before = self._server
        since = before.since if before.status is status else time.time()
        self._server = HostState(before.name, status, since, sentence)

    def _rest(self, due: float) -> None:
        """Wait until the next reading is due."""
        with self._lock:
            # While Prometheus does not answer, one question is asked at a time.
            opened = () if self._failures else tuple(self._open_due.values())
        self._wake.wait(max(0.0, min([due, *opened]) - time.monotonic()))
        self._wake.clear()

    def _read_open(self) -> None:
        """Read the hosts that are open and due.

        Raises:
            QueryError: There is no answer.
        """
        now = time.monotonic()
        with self._lock:
            names = [name for name, due in self._open_due.items() if due <= now]
            for name in names:
                self._open_due[name] = now + self.interval
        for name in names:
            if name in self._poller.hosts:
                self._poller.read_host(name)
        if names:
            self._poller.judge("")
            self._notify()


class PrometheusSource(HostSource):
    """The snapshots of a host as they are scraped; implements ``Source``.

    Args:
        fleet: The fleet, which goes on after this source is closed.
        name: The host.
    """

    def __init__(self, fleet: PrometheusFleet, name: str) -> None:
        super().__init__(fleet, name)
        self._prometheus = fleet
        self._end: Callable[[], None] = lambda: None
        self._first: float | None = None
        self._last = 0.0

    def open(self) -> None:
        """See ``Source.open``; never fails."""
        super().open()
        self._end = self._prometheus.keep_open(self.hostname)

    def sample(self, *, full: bool = True) -> Snapshot:
        """See ``HostSource.sample``.

        Times never run backwards, although a scrape is seen a few seconds after it, when older
        values were already given with later times. ``Gpu.sampled_at`` has the time of the scrape.
        """
        deadline = time.monotonic() + _WHOLE_SECONDS
        while not self._prometheus.has_whole(self.hostname) and time.monotonic() < deadline:
            time.sleep(_POLL)
        snapshot = super().sample(full=full)
        # Only up to now, in case that the clock of this machine was set back.
        at = max(snapshot.time, min(self._last, time.time()))
        self._last = at
        if self._first is None and snapshot.gpus:
            self._first = at
        return replace(snapshot, time=at)

    def _state(self) -> HostState:
        return self._prometheus.state(self.hostname)

    def past(self) -> Iterable[Snapshot]:
        """See ``Source.past``: the last day as Prometheus has it, coarser the longer ago.

        Takes up to ``PAST_PATIENCE`` seconds; what has not come until then is left out.
        """
        first = self._first
        if first is None:
            shown = self._prometheus.state(self.hostname).snapshot
            first = time.time() if shown is None else shown.time
        return self._prometheus.past(self.hostname, first)

    def close(self) -> None:
        """Read only a few metrics of the host again."""
        super().close()
        self._end()
        self._end = lambda: None


class NoProcesses(RecordedHost):
    """See ``ProcessHost``: nothing can be looked up, and no signal is sent."""

    def __init__(self, name: str) -> None:
        self._name = name

    def open_handle(self, target: Target) -> ProcessHandle:
        """See ``ProcessHost.open_handle``.

        Raises:
            Refused: Always.
        """
        raise Refused(
            Refusal.READ_ONLY,
            f"{target.id.pid} is on {self._name}, which is known from Prometheus only, so no"
            " signal can be sent there: use gpumon --hosts.",
        )


def read_past(
    client: PrometheusClient, host: KnownHost, series: str, shift: float, before: float
) -> list[Snapshot]:
    """The snapshots of a host, oldest first; the newest spans if not all could be read in time.

    Args:
        client: Makes the queries.
        host: The host.
        series: The selector of its series.
        shift: Seconds to add to times of Prometheus for this machine's clock.
        before: All are older than this time, by this machine's clock.
    """
    now = before - shift
    deadline = time.monotonic() + PAST_PATIENCE
    spans: list[list[Snapshot]] = []
    # Where there is no answer, the live values go on, and say what is wrong.
    with suppress(QueryError):
        for begin, end, step in reversed(PAST_SPANS):
            if time.monotonic() > deadline:
                break
            by_time = _span(client, series, now - begin, now - end, max(step, host.period or 0.0))
            spans.append(
                [
                    snapshot(host.name, reading, at + shift, whole=True)
                    for at, readings in sorted(by_time.items())
                    if (reading := readings.hosts.get(host.name)) is not None and reading.has_gpus
                ]
            )
    return [past for span in reversed(spans) for past in span]


def _span(
    client: PrometheusClient, series: str, start: float, end: float, step: float
) -> dict[float, Readings]:
    """What was read at each time of a span."""
    by_time: defaultdict[float, Readings] = defaultdict(Readings)
    # Multiples of the step: the same times are in the answer to the next question.
    first = start - start % step + step
    if first >= end:
        return by_time
    for found in client.query_range(series, first, end, step):
        for at, text in found.values:
            if at >= end:
                break
            by_time[at].put(found.metric, at, text)
    return by_time
