"""The Prometheus text: dcgm-exporter's names, units, types and labels."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from gpumon.export.as_prometheus import (
    NIC_METRICS,
    SERVER_METRICS,
    STATUS,
    USER_METRICS,
    exported_metrics,
    exported_value,
    to_prometheus,
)
from gpumon.makers.demo import DemoSource
from gpumon.model.metrics import Unit
from gpumon.model.network import Nic, NicKind
from gpumon.model.processes import GpuProcess, GpuUse, ProcessId, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS, Gpu, GpuStatus, Host, Snapshot
from gpumon.text.formatting import printable
from tests.export.hostile import snapshot_of, texts

# From dcgm-exporter's etc/default-counters.csv: name, type.
UPSTREAM = {
    "DCGM_FI_DEV_SM_CLOCK": "gauge",
    "DCGM_FI_DEV_MEM_CLOCK": "gauge",
    "DCGM_FI_DEV_MEMORY_TEMP": "gauge",
    "DCGM_FI_DEV_GPU_TEMP": "gauge",
    "DCGM_FI_DEV_POWER_USAGE": "gauge",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "counter",
    "DCGM_FI_DEV_GPU_UTIL": "gauge",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "gauge",
    "DCGM_FI_DEV_ENC_UTIL": "gauge",
    "DCGM_FI_DEV_DEC_UTIL": "gauge",
    "DCGM_FI_DEV_XID_ERRORS": "gauge",
    "DCGM_FI_DEV_FB_FREE": "gauge",
    "DCGM_FI_DEV_FB_USED": "gauge",
    "DCGM_FI_DEV_FB_RESERVED": "gauge",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "counter",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "counter",
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": "counter",
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": "counter",
    "DCGM_FI_DEV_RETIRED_SBE": "counter",
    "DCGM_FI_DEV_RETIRED_DBE": "counter",
    "DCGM_FI_DEV_RETIRED_PENDING": "counter",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "counter",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "counter",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "gauge",
}

SEVEN: dict[str, Any] = {
    metric.field: 7 * 2**20
    for metric in GPU_METRICS
    if metric.dcgm is not None and metric.unit is not Unit.TEXT
}
FULL = Gpu(
    index=2,
    uuid="GPU-2",
    name="NVIDIA H100 80GB HBM3",
    pci_bus_id="00000000:52:00.0",
    minor_number=5,
    vbios_version="96.00",
    **SEVEN,
)


def of(*gpus: Gpu) -> Snapshot:
    return Snapshot(1.0, Host("ada-07"), gpus)


def families(snapshot: Snapshot) -> dict[str, Any]:
    return {
        family.name: family for family in text_string_to_metric_families(to_prometheus(snapshot))
    }


def lines(snapshot: Snapshot, name: str) -> list[str]:
    return [line for line in to_prometheus(snapshot).splitlines() if line.startswith(name)]


def value(name: str, **fields: Any) -> float:
    (line,) = lines(of(Gpu(0, "GPU-0", **fields)), name)
    return float(line.rpartition(" ")[2])


@pytest.mark.parametrize(("name", "kind"), UPSTREAM.items())
def test_names_and_types_are_dcgm_exporters(name: str, kind: str) -> None:
    text = to_prometheus(of(FULL)).splitlines()
    assert f"# TYPE {name} {kind}" in text
    assert any(line.startswith(f"# HELP {name} ") for line in text)
    assert any(line.startswith(name + "{") for line in text)


@pytest.mark.parametrize("percent", [0.0, 8.4, 41.3, 100.0])
def test_what_dcgm_profiles_is_a_ratio(percent: float) -> None:
    assert value("DCGM_FI_PROF_SM_ACTIVE{", sm_active=percent) == pytest.approx(percent / 100)
    assert value("DCGM_FI_PROF_DRAM_ACTIVE{", dram_active=percent) <= 1
    read = exported_value(
        GPU_METRIC["sm_active"], value("DCGM_FI_PROF_SM_ACTIVE{", sm_active=percent)
    )
    assert read == percent
    assert not lines(of(Gpu(0, "GPU-0")), "DCGM_FI_PROF")


def test_everything_but_the_known_counters_is_a_gauge() -> None:
    for _, name, kind, _ in exported_metrics():
        assert kind == UPSTREAM.get(name, "gauge")


def test_labels_are_those_that_boards_join_on() -> None:
    (line,) = lines(of(FULL), "DCGM_FI_DEV_GPU_UTIL{")
    (family,) = text_string_to_metric_families(line + "\n")
    assert family.samples[0].labels == {
        "gpu": "2",
        "UUID": "GPU-2",
        "pci_bus_id": "00000000:52:00.0",
        "device": "nvidia2",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": "ada-07",
    }


def test_values_are_in_dcgms_units() -> None:
    assert value("DCGM_FI_DEV_FB_USED", memory_used=59291 * 2**20 - 1) == 59290
    assert value("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", energy=1137178929.505) == 1137178929505
    assert value("DCGM_FI_DEV_PCIE_RX_THROUGHPUT", pcie_rx=2_500_000.0) == 2500
    assert value("DCGM_FI_DEV_POWER_USAGE", power_draw=340.15) == 340.15
    assert value("DCGM_FI_DEV_GPU_TEMP", temperature_gpu=53) == 53
    assert value("DCGM_FI_DEV_SM_CLOCK", clock_sm=1980) == 1980
    assert value("DCGM_FI_DEV_XID_ERRORS", xid=79) == 79
    assert value("DCGM_FI_DEV_PERSISTENCE_MODE", persistence_mode=True) == 1


@pytest.mark.parametrize("status", GpuStatus)
def test_every_card_tells_its_status_though_nothing_else_is_known(status: GpuStatus) -> None:
    found = families(of(Gpu(3, "GPU-3", status=status)))
    (sample,) = found.pop(STATUS).samples
    assert found == {}
    assert sample.value == 1
    assert (sample.labels["gpu"], sample.labels["status"]) == ("3", status.value)


def test_a_lost_card_has_nothing_but_its_last_error() -> None:
    snapshot = DemoSource().sample()
    (lost,) = [gpu for gpu in snapshot.gpus if gpu.status is GpuStatus.LOST]
    names = {
        sample.name
        for family in families(snapshot).values()
        for sample in family.samples
        if sample.labels.get("UUID") == lost.uuid
    }
    assert names == {STATUS, "DCGM_FI_DEV_XID_ERRORS"}


def test_every_sample_of_the_demo_is_parsed_again() -> None:
    snapshot = DemoSource().sample()
    found = families(snapshot)
    used = {s.labels["UUID"]: s.value for s in found["DCGM_FI_DEV_FB_USED"].samples}
    assert used == {
        gpu.uuid: gpu.memory_used // 2**20 for gpu in snapshot.gpus if gpu.memory_used is not None
    }


def test_no_cards_are_no_samples() -> None:
    assert to_prometheus(of()) == ""


# What each user has


def process(
    pid: int, user: str | None, *uses: tuple[int, int | None, int | None], kind: str = "C"
) -> GpuProcess:
    """A process with (GPU, MiB, SM use) on each of its GPUs."""
    return GpuProcess(
        ProcessId(pid, 1),
        kind,
        tuple(
            GpuUse(f"GPU-{gpu}", gpu, memory_used=None if mib is None else mib * 2**20, sm=sm)
            for gpu, mib, sm in uses
        ),
        user=user,
        command=("python", "--token", "secret"),
    )


def by_user(name: str, *processes: GpuProcess) -> dict[str, float]:
    """Values of a metric by user, in GPUs or MiB."""
    snapshot = Snapshot(1.0, Host("ada-07"), (Gpu(0, "GPU-0"), Gpu(1, "GPU-1")), processes)
    family = families(snapshot).get(f"gpumon_user_{name}")
    scale = 2**20 if name.endswith("_bytes") else 1
    return {} if family is None else {s.labels["user"]: s.value / scale for s in family.samples}


def test_memory_and_gpus_of_a_user_are_those_of_all_processes() -> None:
    some = (
        process(1, "ann", (0, 100, 5), (1, 200, 7)),
        process(2, "ann", (1, 30, 0)),
        process(3, "bo", (1, 4, 0), kind="G"),
    )
    assert by_user("gpu_memory_bytes", *some) == {"ann": 330, "bo": 4}
    assert by_user("gpus", *some) == {"ann": 2, "bo": 1}


def test_idle_memory_is_that_of_processes_that_use_no_gpu() -> None:
    some = (
        process(1, "ann", (0, 100, 0), (1, 200, 7)),
        process(2, "ann", (1, 30, 0)),
        process(3, "bo", (1, 4, 0), kind="G"),
        process(4, "chen", (0, 8, 0), (1, 8, 0)),
    )
    assert by_user("idle_gpu_memory_bytes", *some) == {"ann": 30, "bo": 0, "chen": 16}


def test_what_is_unknown_of_a_user_is_no_sample() -> None:
    some = (
        process(1, "ann", (0, 100, 5), (1, None, 5)),
        process(2, "bo", (0, 100, None)),
        process(3, "bo", (0, 100, 0)),
        process(4, None, (0, 100, 0)),
    )
    assert by_user("gpu_memory_bytes", *some) == {"bo": 200}
    assert by_user("idle_gpu_memory_bytes", *some) == {"ann": 0}
    assert by_user("gpus", *some) == {"ann": 2, "bo": 1}


def test_there_are_three_series_per_user_however_many_processes() -> None:
    some = [process(pid, f"user{pid % 3}", (pid % 2, 1, 0)) for pid in range(1000)]
    told = to_prometheus(Snapshot(1.0, Host("ada-07"), (), tuple(some)))
    assert sum(line.startswith("gpumon_user_") for line in told.splitlines()) == 9
    assert "secret" not in told


def test_users_whose_names_print_alike_are_one_series() -> None:
    some = (process(1, "a\x01", (0, 1, 0)), process(2, printable("a\x01"), (0, 2, 0)))
    assert by_user("gpu_memory_bytes", *some) == {printable("a\x01"): 3}


# What inference servers do


def of_server(
    pid: int, outermost: int, load: ServerLoad | None, model: str | None = "Qwen/Qwen2.5-14B"
) -> GpuProcess:
    server = InferenceServer("vllm", model, outermost, 7)
    return replace(process(pid, "ann", (0, 100, 0)), place=Workload(server=server), load=load)


def of_models(name: str, *processes: GpuProcess) -> dict[str, float]:
    """Values of a metric by model."""
    snapshot = Snapshot(1.0, Host("ada-07"), (Gpu(0, "GPU-0"),), processes)
    family = families(snapshot).get(f"gpumon_server_{name}")
    return {} if family is None else {s.labels["model"]: s.value for s in family.samples}


def test_a_server_counts_once_and_servers_of_one_model_are_summed() -> None:
    load = ServerLoad(2, 3, 0.5, 40.0, 100.0, 98.0, ("qwen",))
    other = ServerLoad(1, 0, 0.25, 2.0, 10.0, 12.5)
    some = [of_server(pid, 10, load) for pid in range(11, 15)]
    some += [of_server(21, 20, other), of_server(31, 30, other, None), process(9, "ann", (0, 5, 0))]
    told = {name: of_models(name.removeprefix("gpumon_server_"), *some) for name in SERVER_METRICS}
    assert told == {
        "gpumon_server_requests_running": {"Qwen2.5-14B": 3, "": 1},
        "gpumon_server_requests_waiting": {"Qwen2.5-14B": 3, "": 0},
        "gpumon_server_requests_per_second": {"Qwen2.5-14B": 0.75, "": 0.25},
        "gpumon_server_tokens_per_second": {"Qwen2.5-14B": 42, "": 2},
        "gpumon_server_prompt_tokens_per_second": {"Qwen2.5-14B": 110, "": 10},
        "gpumon_server_kv_cache_ratio": {"Qwen2.5-14B": 0.98, "": 0.125},
        "gpumon_server_gpu_memory_bytes": {"Qwen2.5-14B": 500 * 2**20, "": 100 * 2**20},
    }


def test_what_a_server_does_not_report_is_no_sample_and_zero_is_one() -> None:
    silent = of_server(1, 1, ServerLoad(problem="it needs a key"))
    assert of_models("requests_running", silent) == {}
    assert of_models("gpu_memory_bytes", silent) == {"Qwen2.5-14B": 100 * 2**20}
    idle = of_server(2, 2, ServerLoad(0, 0, 0.0, 0.0))
    assert of_models("tokens_per_second", idle) == {"Qwen2.5-14B": 0}
    assert of_models("kv_cache_ratio", idle) == {}
    assert of_models("tokens_per_second", idle, silent) == {}
    assert of_models("tokens_per_second", idle, of_server(3, 3, None)) == {}


def test_a_server_has_the_labels_of_its_owner_and_machine_and_no_pid() -> None:
    load = ServerLoad(2)
    snapshot = Snapshot(1.0, Host("ada-07"), (), (of_server(4711, 4710, load),))
    (sample,) = families(snapshot)["gpumon_server_requests_running"].samples
    assert sample.labels == {
        "Hostname": "ada-07",
        "engine": "vllm",
        "model": "Qwen2.5-14B",
        "user": "ann",
    }
    assert "471" not in to_prometheus(snapshot)


def test_a_model_without_an_end_is_cut() -> None:
    (name,) = of_models("requests_running", of_server(1, 1, ServerLoad(1), "x" * 10**6))
    assert len(name) <= 128


def test_a_network_adapter_has_a_series_and_what_is_unknown_none() -> None:
    nic = Nic(
        "mlx5_0",
        NicKind.ROCE,
        up=False,
        received=7,
        transmitted=8,
        errors=0,
        link_losses=2,
        numa_node=1,
    )
    text = to_prometheus(replace(of(), host=Host("ada", nics=(nic, Nic("e", NicKind.OTHER)))))
    told = {family.name: family for family in text_string_to_metric_families(text)}
    assert {name: (found.type, found.samples[0].value) for name, found in told.items()} == {
        "gpumon_nic_up": ("gauge", 0),
        "gpumon_nic_receive_bytes": ("counter", 7),
        "gpumon_nic_transmit_bytes": ("counter", 8),
        "gpumon_nic_errors": ("counter", 0),
        "gpumon_nic_link_losses": ("counter", 2),
    }
    for family in told.values():
        (sample,) = family.samples
        assert sample.name in NIC_METRICS
        assert sample.labels == {"nic": "mlx5_0", "kind": "roce", "numa": "1", "Hostname": "ada"}


def test_the_name_of_an_adapter_is_cut_and_safe_to_print() -> None:
    nics = tuple(Nic("\x1b[2J" + "x" * 10**6 + end, NicKind.ETHERNET, up=True) for end in "ab")
    text = to_prometheus(replace(of(), host=Host("ada", nics=nics)))
    assert text.count("gpumon_nic_up{") == 1
    assert len(text) < 1000
    assert "\x1b" not in text


@given(texts)
def test_any_text_stays_in_its_label(text: str) -> None:
    snapshot = snapshot_of(text)
    told = to_prometheus(snapshot)
    assert told.replace("\n", "").isprintable()
    for family in text_string_to_metric_families(told):
        (sample,) = family.samples
        if family.name in USER_METRICS:
            assert sample.labels == {"user": printable(text), "Hostname": printable(text)}
            continue
        if family.name in SERVER_METRICS:
            assert sample.labels["engine"] == printable(text)
            assert sample.labels["Hostname"] == printable(text)
            continue
        assert sample.value == 1
        assert sample.labels["modelName"] == printable(text)
        assert sample.labels["Hostname"] == printable(text)
