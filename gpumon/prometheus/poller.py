"""Rounds of questions about all hosts, and about a single host. On one thread."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING

from gpumon.fleet.remote_clock import RemoteClock
from gpumon.prometheus.client import Labels
from gpumon.prometheus.hosts import KnownHost, Target
from gpumon.prometheus.readings import MOST_HOSTS, Readings, complete, holder, host_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gpumon.prometheus.client import PrometheusClient, TimeSeries
    from gpumon.prometheus.queries import Queries
    from gpumon.prometheus.readings import HostReading

_RARE_SECONDS = 30.0
"""Seconds between two questions about labels and sizes of memories."""
_LEAST_WINDOW, _MOST_WINDOW = 30.0, 300.0
_WINDOW_PERIODS = 4
"""So far back the last scrape of a host is searched."""
_DEFAULT_PERIOD = 60.0
_STALE_PERIODS, _STALE_SECONDS = 2.5, 5.0
"""A series that has missed so much has ended, such as one of a pod that has ended."""
_MOST_GONE = 64
"""Targets whose last values are searched in one round."""
_MOSTLY = 0.5
"""A target that is down counts as a host with GPUs if so large a part of its job has some."""


class PrometheusPoller:
    """Asks, and keeps what is known of the hosts."""

    def __init__(self, client: PrometheusClient, queries: Queries) -> None:
        # The hosts by name, in order. It is replaced when a host was added; hosts change.
        self.hosts: dict[str, KnownHost] = {}
        self.clock = RemoteClock()  # of Prometheus
        self._client = client
        self._queries = queries
        self._up: dict[Target, bool] = {}
        self._own_pods: dict[Target, str] = {}
        self._searched: set[Target] = set()
        self._rare: dict[str, HostReading] = {}
        self._rare_due = 0.0
        self._unlabelled: set[tuple[str, str]] = set()
        self._late: set[str] = set()

    def read_all(self, opened: Collection[str], between: Callable[[], None]) -> None:
        """Ask about all hosts, in several questions.

        Args:
            opened: Names of hosts that must stay, and of which every metric is read.
            between: Called between two questions, each of which takes a fraction of a second.

        Raises:
            QueryError: There is no answer.
        """
        if time.monotonic() >= self._rare_due:
            self._read_rare(between)
        readings = self._read_fleet(between)
        missing = self._complete(readings)
        # A GPU that is lost has no memory, and so stays without its labels: it is asked once.
        if not missing <= self._unlabelled:
            between()
            self._read_rare(between)
            missing = self._complete(readings)
        self._unlabelled = missing
        between()
        times = self._sample_times()
        between()
        self._read_up(self._jobs(readings))
        hosts = dict(self.hosts)
        for name, reading in readings.hosts.items():
            at = times.get(name, reading.newest)
            if at and reading.has_gpus:
                self._leave_out_own(reading)
                host = _of(hosts, name, reading)
                # A host that is open has every metric, and soon the next values.
                if not (name in opened and host.is_whole):
                    host.take(reading, at, self.clock.shift, self._up, whole=False)
        between()
        self._find_down(hosts)
        _drop_renamed(hosts, opened)
        self.hosts = {name: hosts[name] for name in sorted(hosts, key=_natural)}

    def _read_fleet(self, between: Callable[[], None]) -> Readings:
        """Ask for what the screen of all hosts shows."""
        for _ in range(2):
            readings, measured = Readings(), None
            for question in self._queries.fleet():
                between()
                readings.add(self._client.query(question))
                measured = set(readings.hosts) if measured is None else measured
            late = readings.hosts.keys() - (measured or set())
            # Prometheus may have scraped a host for the first time between two questions: without
            # the answer to each, a GPU with an error would look sound. A host whose GPUs are all
            # lost has no answer to the first, and is asked for twice only once.
            if late <= self._late:
                break
            self._late = late
        self._late = late
        return readings

    def _read_rare(self, between: Callable[[], None]) -> None:
        """Ask for what changes rarely: labels, and the sizes of memories."""
        readings = Readings()
        asked_at = time.time()
        used = self._client.query(self._queries.memory_used())
        self._learn_time(used, asked_at)
        readings.add(used)
        between()
        readings.add(self._client.query(self._queries.sizes()))
        self._rare = readings.hosts
        self._rare_due = time.monotonic() + _RARE_SECONDS

    def _complete(self, readings: Readings) -> set[tuple[str, str]]:
        """Add what changes rarely; the GPUs, each a host and a UUID, of which that is not known."""
        missing = set()
        for name, reading in readings.hosts.items():
            rare = self._rare.get(name)
            if rare is not None:
                reading.targets |= rare.targets
            for uuid, gpu in reading.gpus.items():
                if rare is not None and (known := rare.gpus.get(uuid)) is not None:
                    complete(gpu, known)
                # Prometheus may have scraped the host for the first time between two questions.
                if gpu.labels_at == 0:
                    missing.add((name, uuid))
        return missing

    def read_host(self, name: str) -> None:
        """Ask for every metric of a host.

        Raises:
            QueryError: There is no answer.
        """
        host = self.hosts[name]
        window = _MOST_WINDOW
        if host.period is not None:
            window = min(max(_LEAST_WINDOW, _WINDOW_PERIODS * host.period), _MOST_WINDOW)
        selector = self._queries.host(host.label, host.texts)
        found = self._client.query(f"{selector}[{window:.0f}s]")
        ends = [series.values[-1][0] for series in found if series.values]
        missed = max(_STALE_PERIODS * (host.period or _DEFAULT_PERIOD), _STALE_SECONDS)
        stale = max(ends, default=0.0) - missed
        readings = Readings()
        readings.add(series for series in found if series.values and series.values[-1][0] > stale)
        reading = readings.hosts.get(name)
        if reading is not None and reading.has_gpus:
            self._leave_out_own(reading)
            at = reading.newest or max(ends)
            host.take(reading, at, self.clock.shift, self._up, whole=True)

    def judge(self, trouble: str) -> bool:
        """Judge whether the values of hosts are current; whether the state of any has changed.

        ``trouble`` says why Prometheus does not answer; it is empty if it does.
        """
        changed = False
        for host in self.hosts.values():
            before = host.state
            host.judge(self._up, self.clock.shift, trouble)
            changed = changed or host.state is not before
        return changed

    def _learn_time(self, found: Sequence[TimeSeries], asked_at: float) -> None:
        """Learn the clock of Prometheus: a plain value has the time of the query."""
        if found and found[0].value[0] > 0:
            self.clock.learn(found[0].value[0], asked_at)

    def _sample_times(self) -> dict[str, float]:
        """When each host was scraped."""
        times: dict[str, float] = {}
        for series in self._client.query(self._queries.sample_times()):
            try:
                at = float(series.value[1])
            except ValueError:
                continue
            # Not the time of a sample that an exporter dates into the future.
            if 0 < at <= series.value[0]:
                times[host_name(series.metric)] = at
        return times

    def _jobs(self, readings: Readings) -> set[str]:
        """The jobs whose targets have GPUs, or had some if no host is known."""
        jobs = {job for host in readings.hosts.values() for job, _ in host.targets}
        jobs |= {job for host in self.hosts.values() for job, _ in host.targets}
        if not jobs:
            jobs = {series.metric.job for series in self._client.query(self._queries.past_jobs())}
        return jobs

    def _read_up(self, jobs: set[str]) -> None:
        """Read which targets of these jobs answer."""
        found = self._client.query(self._queries.up(jobs)) if jobs else ()
        self._up = {
            (series.metric.job, series.metric.instance): series.value[1] != "0"
            for series in found[: 2 * MOST_HOSTS]
        }
        # Prometheus writes the labels of a target to each of its series, and to this one.
        self._own_pods = {
            (series.metric.job, series.metric.instance): pod
            for series in found[: 2 * MOST_HOSTS]
            if (pod := holder(series.metric))
        }

    def _leave_out_own(self, reading: HostReading) -> None:
        """The pods of the exporters have no GPU, whatever their names are."""
        own = {self._own_pods.get(target) for target in reading.targets}
        for gpu in reading.gpus.values():
            for part in (gpu, *gpu.mig.values()):
                part.holders -= own

    def _find_down(self, hosts: dict[str, KnownHost]) -> None:
        """Add the hosts of targets that do not answer: their last values have the names."""
        known = {target for host in hosts.values() for target in host.targets}
        known_or_searched = known | self._searched
        down = [
            target
            for target, is_up in self._up.items()
            if not is_up and target not in known_or_searched
        ][:_MOST_GONE]
        if not down:
            return
        self._searched.update(down)
        readings = Readings()
        found = self._client.query(self._queries.last_values(down))
        readings.add(found)
        for name, reading in readings.hosts.items():
            if name not in hosts and reading.gpus:
                self._leave_out_own(reading)
                host = _of(hosts, name, reading)
                host.take(reading, reading.newest, self.clock.shift, self._up, whole=False)
                known |= reading.targets
        with_gpus = Counter(
            job for host in hosts.values() if host.sampled_at for job, _ in host.targets
        )
        of_job = Counter(job for job, _ in self._up)
        for job, instance in down:
            if (job, instance) in known or with_gpus[job] < _MOSTLY * of_job[job]:
                continue
            name = host_name(Labels(instance=instance))
            if name and name not in hosts and len(hosts) < MOST_HOSTS:
                host = KnownHost(name, "instance", instance, {(job, instance)})
                host.judge(self._up, self.clock.shift, "")
                hosts[name] = host


def _of(hosts: dict[str, KnownHost], name: str, reading: HostReading) -> KnownHost:
    """The host of a reading, which is added if it is new."""
    known = hosts.get(name)
    if known is None or known.label != reading.label or known.text != reading.text:
        known = hosts[name] = KnownHost(name, reading.label, reading.text)
    return known


def _drop_renamed(hosts: dict[str, KnownHost], opened: Collection[str]) -> None:
    """Drop hosts that were named by their targets, and whose metrics have other names now."""
    named = {target for host in hosts.values() if host.sampled_at for target in host.targets}
    for name, host in list(hosts.items()):
        if host.sampled_at is None and host.targets <= named and name not in opened:
            del hosts[name]


def _natural(name: str) -> list[tuple[int, str]]:
    """The order in which 2 comes before 10."""
    parts = re.split(r"([0-9]{1,9})", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
