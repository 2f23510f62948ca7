"""What Prometheus answers, as far as gpumon uses it. Other labels and keys are skipped."""

from __future__ import annotations

from msgspec import Struct, field


class Labels(Struct, frozen=True, gc=False):
    """The labels of a series; an absent one is empty. Values are as hostile as any text.

    Attributes:
        metric: Its name.
        uuid: nvidia_gpu_exporter's, without ``GPU-``.
        hostname: As dcgm-exporter spells ``Hostname`` since 2026.
        name: nvidia_gpu_exporter's product name.
        exported_pod: The pod that has the GPU, where ``pod`` is that of the exporter.
        pod_name: An older spelling.
        hpc_job: Number of the job that has the GPU, on clusters.
    """

    metric: str = field(default="", name="__name__")
    job: str = ""
    instance: str = ""
    Hostname: str = ""
    hostname: str = ""
    gpu: str = ""
    UUID: str = ""
    uuid: str = ""
    pci_bus_id: str = ""
    modelName: str = ""  # noqa: N815 - dcgm-exporter's name
    name: str = ""
    GPU_I_ID: str = ""
    GPU_I_PROFILE: str = ""
    DCGM_FI_DRIVER_VERSION: str = ""
    driver_version: str = ""
    pod: str = ""
    exported_pod: str = ""
    pod_name: str = ""
    namespace: str = ""
    exported_namespace: str = ""
    pod_namespace: str = ""
    container: str = ""
    hpc_job: str = ""
    user: str = ""
    status: str = ""
    state: str = ""
    xid: str = ""


class TimeSeries(Struct, frozen=True, gc=False):
    """A series with its samples, each a time in seconds and a number as text.

    Attributes:
        metric: Its labels.
        value: The value at the moment of the query.
        values: Values over time, oldest first.
    """

    metric: Labels
    value: tuple[float, str] = (0.0, "NaN")
    values: tuple[tuple[float, str], ...] = ()


class Data(Struct, frozen=True, gc=False):
    """The result of a query."""

    result: tuple[TimeSeries, ...] = ()


class QueryResponse(Struct, frozen=True, gc=False):
    """The whole answer.

    Attributes:
        status: ``success`` or ``error``.
        error: What is wrong, if anything is.
    """

    status: str
    data: Data | None = None
    error: str = ""
