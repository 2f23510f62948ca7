"""A snapshot in Prometheus' text format, with the names that Grafana dashboards for GPUs use.

Names, units, types and labels are those of NVIDIA's dcgm-exporter. It exports every metric that has
a DCGM name; an unknown value gives no sample. ``STATUS``, a metric of gpumon,
says whether each GPU responds, so that a GPU without known values is visible too. The metrics of
``USER_METRICS`` say what each user has: three series per user, whatever the number of processes.
Those of ``SERVER_METRICS`` say what inference servers do: a series for each model of a user.
Those of ``NIC_METRICS`` say what network adapters do.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from gpumon.model.allocations import allocations_of
from gpumon.model.arithmetic import known_sum
from gpumon.model.makers import maker_of
from gpumon.model.metrics import Unit, gpu_value
from gpumon.model.serving import combined_load
from gpumon.model.snapshot import GPU_METRICS
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client import Metric as Family

    from gpumon.model.allocations import Allocation
    from gpumon.model.metrics import Metric
    from gpumon.model.network import Nic
    from gpumon.model.processes import GpuProcess
    from gpumon.model.serving import InferenceServer
    from gpumon.model.snapshot import Gpu, Snapshot

STATUS = "gpumon_gpu_status"
"""1 for every GPU, with its status in one more label: an alert reads ``{status!="ok"}``."""

ALLOCATED = "gpumon_gpu_allocated"
"""1 for each job to which a scheduler has given a GPU; a text that is not known is empty."""

STATE = "gpumon_gpu_state"
XID_LAST_SEEN = "gpumon_gpu_xid_last_seen_timestamp_seconds"
ACCIDENT_LAST_SEEN = "gpumon_gpu_accident_last_seen_timestamp_seconds"
OOM_KILL_LAST_SEEN = "gpumon_oom_kill_last_seen_timestamp_seconds"
DRIVER_UP = "gpumon_driver_up"
"""Metrics of ``gpumon exporter``, which has a history: ``docs/exporter.md``."""

USER_METRICS: dict[str, tuple[str, Callable[[Sequence[GpuProcess]], int | None]]] = {
    "gpumon_user_gpus": (
        "Number of GPUs with a process of the user.",
        lambda processes: len({use.gpu_uuid for one in processes for use in one.uses}),
    ),
    "gpumon_user_gpu_memory_bytes": (
        "GPU memory held by the user's processes.",
        lambda processes: known_sum(one.memory_used for one in processes),
    ),
    "gpumon_user_idle_gpu_memory_bytes": (
        "GPU memory held by the user's processes that do not use the GPU in this sample.",
        lambda processes: known_sum(map(_idle_memory, processes)),
    ),
}
"""Help text and value by name. An unknown value, or a user who is not known, gives no sample."""

_LONGEST_MODEL = 128
"""Characters of a model's name at most; nothing else limits those in a command line."""


def _load_sum(field: str) -> Callable[[Sequence[GpuProcess]], float | None]:
    return lambda processes: getattr(combined_load(processes), field, None)


def _fullest_cache(processes: Sequence[GpuProcess]) -> float | None:
    load = combined_load(processes)
    return None if load is None or load.kv_cache is None else load.kv_cache / 100


SERVER_METRICS: dict[str, tuple[str, Callable[[Sequence[GpuProcess]], float | None]]] = {
    "gpumon_server_requests_running": (
        "Requests that the inference servers of the model work on.",
        _load_sum("running"),
    ),
    "gpumon_server_requests_waiting": (
        "Requests that wait for the inference servers of the model.",
        _load_sum("waiting"),
    ),
    "gpumon_server_requests_per_second": (
        "Requests that they finished, over about half a minute.",
        _load_sum("requests"),
    ),
    "gpumon_server_tokens_per_second": (
        "Tokens that they generated, over about half a minute.",
        _load_sum("tokens"),
    ),
    "gpumon_server_prompt_tokens_per_second": (
        "Tokens of prompts that they read, over about half a minute.",
        _load_sum("prompt_tokens"),
    ),
    "gpumon_server_kv_cache_ratio": (
        "Use of the KV cache, 0 to 1, that of the server with the fullest one.",
        _fullest_cache,
    ),
    "gpumon_server_gpu_memory_bytes": (
        "GPU memory held by the processes of the inference servers of the model.",
        lambda processes: known_sum(one.memory_used for one in processes),
    ),
}
"""Help text and value by name, of the processes of all servers with the same labels: engine, model,
user and host. An unknown part gives no sample. Bounded by ``model_label`` and the users."""

NIC_METRICS: dict[str, tuple[str, Callable[[Nic], float | None]]] = {
    "gpumon_nic_up": (
        "Whether the network adapter has a link and can carry traffic.",
        lambda nic: nic.up,
    ),
    "gpumon_nic_speed_bytes": (
        "Bytes per second that its link carries in each direction.",
        lambda nic: nic.speed,
    ),
    "gpumon_nic_receive_bytes_total": ("Bytes that it received.", lambda nic: nic.received),
    "gpumon_nic_transmit_bytes_total": ("Bytes that it sent.", lambda nic: nic.transmitted),
    "gpumon_nic_errors_total": ("Errors of all kinds.", lambda nic: nic.errors),
    "gpumon_nic_link_losses_total": (
        "How often its link went down.",
        lambda nic: nic.link_losses,
    ),
}
"""Help text and value by name, for each adapter; an unknown value gives no sample. A name that ends
in ``_total`` is that of a counter."""
_NIC_LABELS = ("nic", "kind", "numa", "Hostname")
_LONGEST_NIC = 64
"""Characters of its name at most; those of Linux have 15."""

_CONVERSIONS: dict[Unit, tuple[str, Callable[[float], float], Callable[[float], float]]] = {
    Unit.BYTES: ("MiB", lambda size: size // 2**20, lambda size: size * 2**20),
    Unit.JOULES: ("mJ", lambda joules: round(joules * 1000), lambda energy: energy / 1000),
    # DCGM tells what its profiling measures as 0 to 1. A ratio times 100 is not exactly a percent.
    Unit.SHARE: ("ratio", lambda share: round(share / 100, 6), lambda ratio: round(ratio * 100, 4)),
    # NVML counts these in KB/s, which the model takes as 1000 bytes; DCGM passes them on unchanged.
    Unit.BYTES_PER_SECOND: ("KB/s", lambda pace: round(pace / 1000), lambda pace: pace * 1000),
}
"""DCGM's unit, and how to get there from the model's and back, where the two differ."""

_UNIT_NAMES = {
    Unit.PERCENT: "%",
    Unit.CELSIUS: "C",
    Unit.WATTS: "W",
    Unit.MEGAHERTZ: "MHz",
}


def to_prometheus(*snapshots: Snapshot) -> str:
    """Snapshots of different hosts in Prometheus' text format, with a line break at its end."""
    return as_text(families(*snapshots))


def as_text(found: Iterator[Family]) -> str:
    """Metric families in Prometheus' text format, with a line break at its end."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Families(found))
    text = generate_latest(registry).decode()
    # The library would add _total to every counter, which dcgm-exporter does not.
    counters = [metric.dcgm for metric in GPU_METRICS if metric.is_counter]
    counters += [name for name in NIC_METRICS if name.endswith("_total")]
    for name in counters:
        text = text.replace(f"# TYPE {name} gauge\n", f"# TYPE {name} counter\n")
    return text


def exported_metrics() -> Iterator[tuple[Metric, str, str, str]]:
    """Every exported metric with its Prometheus name, type and unit.

    A text, such as the VBIOS version, is not a sample.
    """
    for metric in GPU_METRICS:
        if metric.dcgm is not None and metric.unit is not Unit.TEXT:
            kind = "counter" if metric.is_counter else "gauge"
            converted = _CONVERSIONS.get(metric.unit)
            unit = converted[0] if converted else _UNIT_NAMES.get(metric.unit, "")
            yield metric, metric.dcgm, kind, unit


class _Families:
    """The collector that the registry calls, once."""

    def __init__(self, found: Iterator[Family]) -> None:
        self._found = found

    def collect(self) -> Iterator[Family]:
        return self._found


def gauge(
    name: str,
    about: str,
    labels: Sequence[str],
    samples: Iterable[tuple[Sequence[str], float | None]],
) -> Iterator[Family]:
    """A family of the samples, each its labels and its value, that are known; none without any."""
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, about, labels=labels)
    for values, value in samples:
        if value is not None:
            family.add_metric(values, value)
    if family.samples:
        yield family


def families(*snapshots: Snapshot) -> Iterator[Family]:
    """The metric families of snapshots of different hosts that have a sample."""
    gpus = [
        (gpu, gpu_labels(gpu, snapshot.host.name))
        for snapshot in snapshots
        for gpu in snapshot.gpus
    ]
    for metric, name, _, unit in exported_metrics():
        about = f"{metric.label} (in {unit})" if unit else metric.label
        values = [(labels, _value(gpu, metric)) for gpu, labels in gpus]
        yield from gauge(name, f"{about}. {metric.about}", GPU_LABELS, values)
    about = "Whether the GPU answers: ok, asleep, no answer, lost, reset required, ..."
    statuses = [([*labels, gpu.status.value], 1) for gpu, labels in gpus]
    yield from gauge(STATUS, about, (*GPU_LABELS, "status"), statuses)
    yield from _allocations(snapshots)
    yield from _user_families(snapshots)
    yield from _server_families(snapshots)
    yield from _nic_families(snapshots)


def _allocations(snapshots: Sequence[Snapshot]) -> Iterator[Family]:
    about = "1 for each job to which a scheduler has given the GPU, or a part of it."
    # Jobs that share a name, as beyond a limit of names, are one series.
    samples = {
        (*gpu_labels(gpu, snapshot.host.name), *_job_labels(allocation)): None
        for snapshot in snapshots
        for gpu in snapshot.gpus
        for allocation in allocations_of(snapshot.allocations, gpu)
    }
    labels = (*GPU_LABELS, "scheduler", "job", "user")
    yield from gauge(ALLOCATED, about, labels, [(values, 1) for values in samples])


def _job_labels(allocation: Allocation) -> Iterator[str]:
    return map(printable, (allocation.scheduler, allocation.job or "", allocation.user or ""))


def _user_families(snapshots: Sequence[Snapshot]) -> Iterator[Family]:
    owned: defaultdict[tuple[str, str], list[GpuProcess]] = defaultdict(list)
    for snapshot in snapshots:
        host = printable(snapshot.host.name)
        for process in snapshot.processes:
            if process.user is not None:
                owned[printable(process.user), host].append(process)
    users = sorted(owned.items(), key=lambda one: one[0][::-1])
    for name, (about, value_of) in USER_METRICS.items():
        values = [(labels, value_of(processes)) for labels, processes in users]
        yield from gauge(name, about, ("user", "Hostname"), values)


def model_label(server: InferenceServer) -> str:
    """The model of a server as it stands in labels, safe to print; empty if unknown."""
    return printable((server.short_model or "")[:_LONGEST_MODEL])


def _server_families(snapshots: Sequence[Snapshot]) -> Iterator[Family]:
    served: defaultdict[tuple[str, ...], list[GpuProcess]] = defaultdict(list)
    for snapshot in snapshots:
        host = printable(snapshot.host.name)
        for process in snapshot.processes:
            if process.place is not None and process.place.server is not None:
                server, user = process.place.server, printable(process.user or "")
                served[host, printable(server.engine), model_label(server), user].append(process)
    labels = ("Hostname", "engine", "model", "user")
    for name, (about, value_of) in SERVER_METRICS.items():
        values = [(each, value_of(processes)) for each, processes in sorted(served.items())]
        yield from gauge(name, about, labels, values)


def _nic_families(snapshots: Sequence[Snapshot]) -> Iterator[Family]:
    # Names that are the same once they are safe to print are one series.
    nics = {
        (
            printable(nic.name[:_LONGEST_NIC]),
            nic.kind.value,
            "" if nic.numa_node is None else str(nic.numa_node),
            printable(snapshot.host.name),
        ): nic
        for snapshot in snapshots
        for nic in snapshot.host.nics or ()
    }
    for name, (about, value_of) in NIC_METRICS.items():
        values = [(labels, value_of(nic)) for labels, nic in nics.items()]
        yield from gauge(name, about, _NIC_LABELS, values)


def _idle_memory(process: GpuProcess) -> int | None:
    if process.resting is None:
        return None
    return process.memory_used if process.resting else 0


GPU_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname")
"""The labels of every metric of a GPU: dcgm-exporter's."""


def gpu_labels(gpu: Gpu, host: str) -> list[str]:
    """The values of ``GPU_LABELS`` for a GPU of a machine, safe to print."""
    # dcgm-exporter's device is the index too, not the minor number.
    device = f"{maker_of(gpu.name).device}{gpu.index}"
    texts = (gpu.uuid, gpu.pci_bus_id or "", device, gpu.name or "", host)
    return [str(gpu.index), *map(printable, texts)]


def _value(gpu: Gpu, metric: Metric) -> float | None:
    """The value in DCGM's unit; ``None`` if unknown."""
    value = gpu_value(gpu, metric)
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    converted = _CONVERSIONS.get(metric.unit)
    return converted[1](value) if converted else value


def exported_value(metric: Metric, value: float) -> float:
    """The value in the model's unit of one in DCGM's."""
    converted = _CONVERSIONS.get(metric.unit)
    return converted[2](value) if converted else value
