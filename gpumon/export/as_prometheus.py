"""A snapshot in Prometheus' text format, with the names that Grafana dashboards for GPUs use.

Names, units, types and labels are those of NVIDIA's dcgm-exporter. It exports every metric that has
a DCGM name in the metric table; an unknown value gives no sample. ``STATUS``, a metric of gpumon,
says whether each GPU responds, so that a GPU without known values is visible too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpumon.model.metrics import GPU_METRICS, Unit, gpu_value
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric as Family

    from gpumon.model.metrics import Metric
    from gpumon.model.snapshot import Gpu, Snapshot

_COUNTERS = frozenset(
    {
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
        "DCGM_FI_DEV_RETIRED_SBE",
        "DCGM_FI_DEV_RETIRED_DBE",
        "DCGM_FI_DEV_RETIRED_PENDING",
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    }
)
"""What dcgm-exporter's ``etc/default-counters.csv`` calls a counter; everything else is a gauge."""


STATUS = "gpumon_gpu_status"
"""1 for every card, with its status in one more label: an alert reads ``{status!="ok"}``."""

_CONVERSIONS: dict[Unit, tuple[str, Callable[[float], float]]] = {
    Unit.BYTES: ("MiB", lambda size: size // 2**20),
    Unit.JOULES: ("mJ", lambda joules: round(joules * 1000)),
    # NVML counts these in KB/s, which the model takes as 1000 bytes; DCGM passes them on unchanged.
    Unit.BYTES_PER_SECOND: ("KB/s", lambda pace: round(pace / 1000)),
}
"""DCGM's unit, and how to get there from the model's, where the two differ."""

_UNIT_NAMES = {
    Unit.PERCENT: "%",
    Unit.CELSIUS: "C",
    Unit.WATTS: "W",
    Unit.MEGAHERTZ: "MHz",
}


def to_prometheus(snapshot: Snapshot) -> str:
    """A snapshot in Prometheus' text format, with a line break at its end."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Exporter(snapshot))
    text = generate_latest(registry).decode()
    # The library would add _total to every counter, which dcgm-exporter does not.
    for name in _COUNTERS:
        text = text.replace(f"# TYPE {name} gauge\n", f"# TYPE {name} counter\n")
    return text


def exported_metrics() -> Iterator[tuple[Metric, str, str, str]]:
    """Every exported metric with its Prometheus name, type and unit.

    A text, such as the VBIOS version, is not a sample.
    """
    for metric in GPU_METRICS:
        if metric.dcgm is not None and metric.unit is not Unit.TEXT:
            kind = "counter" if metric.dcgm in _COUNTERS else "gauge"
            converted = _CONVERSIONS.get(metric.unit)
            unit = converted[0] if converted else _UNIT_NAMES.get(metric.unit, "")
            yield metric, metric.dcgm, kind, unit


class _Exporter:
    """The collector that the registry calls."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._gpus = [(gpu, _labels(gpu, snapshot.host.name)) for gpu in snapshot.gpus]

    def collect(self) -> Iterator[Family]:
        from prometheus_client.core import GaugeMetricFamily

        for metric, name, _, unit in exported_metrics():
            about = f"{metric.label} (in {unit})" if unit else metric.label
            family = GaugeMetricFamily(name, f"{about}. {metric.about}", labels=_LABELS)
            for gpu, labels in self._gpus:
                value = _value(gpu, metric)
                if value is not None:
                    family.add_metric(labels, value)
            if family.samples:
                yield family
        about = "Whether the card answers: ok, asleep, no answer, lost, reset required, ..."
        status = GaugeMetricFamily(STATUS, about, labels=(*_LABELS, "status"))
        for gpu, labels in self._gpus:
            status.add_metric([*labels, gpu.status.value], 1)
        if status.samples:
            yield status


_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname")


def _labels(gpu: Gpu, host: str) -> list[str]:
    # dcgm-exporter's device is the index too, not the minor number.
    texts = (gpu.uuid, gpu.pci_bus_id or "", f"nvidia{gpu.index}", gpu.name or "", host)
    return [str(gpu.index), *map(printable, texts)]


def _value(gpu: Gpu, metric: Metric) -> float | None:
    """The value in DCGM's unit; ``None`` if unknown."""
    value = gpu_value(gpu, metric)
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    converted = _CONVERSIONS.get(metric.unit)
    return converted[1](value) if converted else value
