"""Series sorted by host and GPU, whichever exporter they are of."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from gpumon.export.as_prometheus import DRIVER_UP, STATE, STATUS, XID_LAST_SEEN
from gpumon.fleet.fleet import Owner
from gpumon.model.error_codes import error_code
from gpumon.model.snapshot import GPU_METRIC
from gpumon.prometheus.client import Labels
from gpumon.prometheus.queries import (
    FIELDS,
    SMI_INFO,
    USER_GPUS,
    USER_IDLE_MEMORY,
    USER_MEMORY,
    XID_COUNT,
    number,
)
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.prometheus.client import TimeSeries

MOST_HOSTS = 10_000
MOST_GPUS = 256
"""GPUs of a host, and MIG instances of a GPU."""
MOST_OWNERS = 256
_MOST_CHARACTERS = 256
_USER_METRICS = (USER_GPUS, USER_MEMORY, USER_IDLE_MEMORY)
_EXPORTER = re.compile(r"exporter|dcgm", re.IGNORECASE)
_NO_LABELS = Labels()


class GpuReading:
    """What was read of a GPU, or of a MIG instance of it."""

    __slots__ = ("holders", "labels", "labels_at", "mig", "state", "status", "values", "xids")

    def __init__(self) -> None:
        self.labels = _NO_LABELS  # of its newest series with the product name
        self.labels_at = 0.0  # the time of that series
        self.holders: set[str] = set()  # pods and jobs that have it, by the series of that time
        # By field of the model, in its units, with the time of each.
        self.values: dict[str, tuple[float | bool | None, float]] = {}
        self.mig: dict[str, GpuReading] = {}  # by the number of the GPU instance
        # The exporter's words, each with its time; empty if it has none.
        self.status = ("", 0.0)
        self.state = ("", 0.0)
        self.xids: dict[int, float] = {}  # when each XID was last seen

    def put(self, field: str, value: float | bool | None, time: float) -> None:
        """Keep the newest value; of several at one time, the largest or gravest."""
        known = self.values.get(field)
        if (
            known is None
            or time > known[1]
            or (time == known[1] and _prevails(field, value, known[0]))
        ):
            self.values[field] = value, time

    def value(self, field: str) -> float | bool | None:
        """A value; ``None`` if it is unknown."""
        known = self.values.get(field)
        return None if known is None else known[0]


class HostReading:
    """What was read of a host."""

    __slots__ = ("gpus", "is_driver_up", "label", "newest", "targets", "text", "users")

    def __init__(self, label: str, text: str) -> None:
        self.label = label  # that names it
        self.text = text  # of that label
        self.targets: set[tuple[str, str]] = set()  # of its series, each a job and an instance
        self.gpus: dict[str, GpuReading] = {}  # by UUID
        self.users: dict[str, dict[str, float]] = {}  # values by user and metric
        self.is_driver_up: bool | None = None  # as gpumon's exporter says
        self.newest = 0.0  # time of the newest sample of a GPU

    @property
    def has_gpus(self) -> bool:
        """Whether it has GPUs, or says that their driver cannot be used."""
        return bool(self.gpus) or self.is_driver_up is not None

    def owners(self) -> tuple[Owner, ...]:
        """The users as gpumon's exporter has them; else pods and jobs; most memory first."""
        found = [
            Owner(
                printable(user),
                _whole(values.get(USER_GPUS)),
                _whole(values.get(USER_MEMORY)),
                _whole(values.get(USER_IDLE_MEMORY)),
            )
            for user, values in self.users.items()
        ]
        if not found:
            found = self._holders()
        return tuple(
            sorted(found, key=lambda owner: (-(owner.memory or 0), owner.user))[:MOST_OWNERS]
        )

    def _holders(self) -> list[Owner]:
        """The pods and jobs that have GPUs. How much each holds of a shared GPU is unknown."""
        held: dict[str, list[float | None]] = {}
        for gpu in self.gpus.values():
            for part in (gpu, *gpu.mig.values()):
                size = _used(part) if len(part.holders) == 1 else None
                for name in part.holders:
                    held.setdefault(name, []).append(size)
        return [
            Owner(name, len(sizes), None if None in sizes else _whole(sum(map(float, sizes))))  # type: ignore[arg-type]  # none is None here
            for name, sizes in held.items()
        ]


def _prevails(field: str, value: float | bool | None, other: float | bool | None) -> bool:
    """Whether the first of two values of one time counts, as several series of a GPU have them.

    ``Queries`` takes the largest, too.
    """
    if value is None or other is None:
        return value is not None
    if field == "xid":
        return not error_code(int(value)).passing
    return value > other


def _used(part: GpuReading) -> float | bool | None:
    """The used memory; ``None`` if it cannot be."""
    used, total = part.value("memory_used"), part.value("memory_total")
    if used is None or not 0 <= used <= (total or GPU_METRIC["memory_used"].possible[1]):
        return None
    return used


def holder(labels: Labels) -> str:
    """The pod or the job that has a GPU, safe to print; empty if no label has it."""
    if labels.hpc_job:
        return f"slurm {printable(labels.hpc_job)}"
    pod = labels.exported_pod
    namespace = labels.exported_namespace
    if not pod and not _EXPORTER.search(labels.container) and not _EXPORTER.search(labels.pod):
        # Without honorLabels these are of the exporter's own pod.
        pod, namespace = labels.pod or labels.pod_name, labels.namespace or labels.pod_namespace
    if not pod:
        return ""
    return printable(f"{namespace}/{pod}" if namespace else pod)


def host_name(labels: Labels) -> str:
    """The name of the host of a series, safe to print; empty if no label has it."""
    text = labels.Hostname or labels.hostname
    return _shown(text) if text else _shown(_without_port(labels.instance))


@lru_cache(maxsize=2 * MOST_HOSTS)
def _shown(text: str) -> str:
    return "" if len(text) > _MOST_CHARACTERS else printable(text)


def complete(gpu: GpuReading, rare: GpuReading) -> None:
    """Add what is read rarely to a newer reading: labels, the index and the size of the memory."""
    gpu.labels, gpu.labels_at, gpu.holders = rare.labels, rare.labels_at, rare.holders
    used, free = rare.value("memory_used"), rare.value("memory_free")
    total, reserved = rare.value("memory_total"), rare.value("memory_reserved")
    if total is None and used is not None and free is not None:
        total = used + free + (reserved or 0)
    for field, value in (
        ("memory_total", total),
        ("memory_reserved", reserved),
        ("index", rare.value("index")),
    ):
        if value is not None:
            gpu.put(field, value, 0.0)
    for key, instance in gpu.mig.items():
        if (known := rare.mig.get(key)) is not None:
            complete(instance, known)


class Readings:
    """Series sorted by host."""

    def __init__(self) -> None:
        self.hosts: dict[str, HostReading] = {}  # by name

    def add(self, found: Iterable[TimeSeries]) -> None:
        """Take series with a single value, or with values over time: of these the newest."""
        for series in found:
            if series.values:
                self.put(series.metric, *series.values[-1])
            else:
                self.put(series.metric, *series.value)

    def host(self, labels: Labels) -> HostReading | None:
        """The host of a series; ``None`` if no label has it, or if there are too many."""
        name = host_name(labels)
        known = self.hosts.get(name)
        if known is None:
            if not name or len(self.hosts) >= MOST_HOSTS:
                return None
            if labels.Hostname:
                known = HostReading("Hostname", labels.Hostname)
            elif labels.hostname:
                known = HostReading("hostname", labels.hostname)
            else:
                known = HostReading("instance", labels.instance)
            self.hosts[name] = known
        # Aggregated series have no job.
        if labels.job:
            known.targets.add((labels.job, labels.instance))
        return known

    def put(self, labels: Labels, time: float, text: str) -> None:
        """Take one value of a series."""
        host = self.host(labels)
        if host is None:
            return
        if labels.metric == DRIVER_UP:
            host.is_driver_up = number(text) != 0
        elif labels.metric in _USER_METRICS:
            if (value := number(text)) is not None and len(host.users) < MOST_OWNERS:
                host.users.setdefault(labels.user[:_MOST_CHARACTERS], {})[labels.metric] = value
        elif (gpu := _gpu(host, labels)) is not None:
            _put_gpu(gpu, labels, time, text)
            host.newest = max(host.newest, time)


def _put_gpu(gpu: GpuReading, labels: Labels, time: float, text: str) -> None:
    if (labels.modelName or labels.name) and time >= gpu.labels_at:
        if time > gpu.labels_at:
            gpu.holders = set()
        gpu.labels, gpu.labels_at = labels, time
        if (name := holder(labels)) and len(gpu.holders) < MOST_OWNERS:
            gpu.holders.add(name)
    if labels.metric == STATUS:
        if time >= gpu.status[1]:
            gpu.status = labels.status, time
    elif labels.metric == STATE:
        if time >= gpu.state[1]:
            gpu.state = labels.state, time
    elif labels.metric == XID_LAST_SEEN:
        seen_at = number(text)
        if seen_at is not None and labels.xid.isdecimal() and len(gpu.xids) < MOST_GPUS:
            gpu.xids[int(labels.xid[:9])] = seen_at
    elif labels.metric == XID_COUNT:
        if number(text) and labels.xid.isdecimal():
            gpu.put("xid", int(labels.xid[:9]), time)
    elif (exported := FIELDS.get(labels.metric)) is not None:
        gpu.put(exported.metric.field, exported.read(text), time)


def _gpu(host: HostReading, labels: Labels) -> GpuReading | None:
    """The GPU or the MIG instance of a series; ``None`` if it is of no GPU."""
    if labels.metric != SMI_INFO and labels.metric not in _OF_GPUS:
        return None
    key = labels.UUID or (f"GPU-{labels.uuid}" if labels.uuid else labels.gpu)
    if not key or len(key) > _MOST_CHARACTERS:
        return None
    gpus: dict[str, GpuReading] = host.gpus
    if labels.GPU_I_ID:
        parent = gpus.get(key)
        if parent is None:
            if len(gpus) >= MOST_GPUS:
                return None
            parent = gpus[key] = GpuReading()
            parent.labels = labels
        gpus, key = parent.mig, labels.GPU_I_ID[:_MOST_CHARACTERS]
    known = gpus.get(key)
    if known is None:
        if len(gpus) >= MOST_GPUS:
            return None
        known = gpus[key] = GpuReading()
        known.labels = labels
    return known


_OF_GPUS = frozenset({*FIELDS, STATUS, STATE, XID_COUNT, XID_LAST_SEEN})


@lru_cache(maxsize=2 * MOST_HOSTS)
def _without_port(instance: str) -> str:
    return re.sub(r":[0-9]{1,5}$", "", instance) or instance


def _whole(value: float | None) -> int | None:
    return None if value is None or not 0 <= value < 2**60 else round(value)
