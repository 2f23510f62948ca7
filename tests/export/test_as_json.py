"""The JSON: one schema with a version, strict, and as whole as the model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from gpumon.export.as_json import SCHEMA, to_json
from gpumon.makers.demo import DemoSource
from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.allocations import Allocation
from gpumon.model.metrics import PROCESS_METRICS
from gpumon.model.network import Nic, NicKind
from gpumon.model.processes import (
    Container,
    GpuProcess,
    GpuUse,
    HolderScan,
    HoldReason,
    ProcessId,
    UnlistedHolder,
    Workload,
)
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.model.snapshot import (
    Gpu,
    GpuStatus,
    Host,
    MigInstance,
    OwnCost,
    Reserved,
    Snapshot,
    Trouble,
    Unknown,
)
from tests.export.hostile import snapshot_of, texts, whole_snapshot

BARE = Snapshot(
    time=5.25,
    host=Host(name="ada-07"),
    gpus=(Gpu(index=0, uuid="GPU-0"),),
    processes=(
        GpuProcess(id=ProcessId(7, None), type="C", uses=(GpuUse("GPU-0", 0),), visible=False),
    ),
)
HOLDERS = HolderScan(
    3.0,
    (UnlistedHolder(ProcessId(8, 9), ("GPU-0",), HoldReason.ORPHAN, "its parent ended"),),
    unseen=2,
)
RESERVED = (Reserved("GPU-0", user="ann", pid=5, since=2.0, command="python x.py"),)


def strictly(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def told(snapshot: Snapshot) -> Any:
    return strictly(to_json(snapshot))


def keys(value: Any, path: str = "") -> set[str]:
    """Every key at every depth, lists flattened, less those of ``unknown``."""
    if isinstance(value, dict):
        found = set()
        for key, part in value.items():
            found.add(path + key)
            if key != "unknown":
                found |= keys(part, f"{path}{key}.")
        return found
    if isinstance(value, list):
        return set().union(*(keys(part, path) for part in value))
    return set()


def test_the_version_of_the_schema_comes_first() -> None:
    assert to_json(BARE).startswith('{"schema":"gpumon.snapshot/1"')
    assert SCHEMA == "gpumon.snapshot/1"


def test_every_key_is_there_however_little_is_known() -> None:
    bare = replace(
        BARE,
        accidents=(Accident(1.0, AccidentKind.RESET),),
        host=replace(BARE.host, nics=(Nic("eth0", NicKind.ETHERNET),)),
        holders=HOLDERS,
        reserved=RESERVED,
        allocations=(Allocation("slurm"),),
    )
    full = replace(DemoSource().sample(), holders=HOLDERS, reserved=RESERVED)
    assert keys(told(bare)) == keys(told(full))


def test_whoever_has_a_place_has_the_same_keys_as_who_has_none() -> None:
    identity = ProcessId(41, 5)
    place = Workload(
        container=Container("docker", id="f" * 64, name="llama-ft"),
        slurm_job="88123",
        launcher=identity,
        launcher_name="torchrun",
        parent=ProcessId(40, 4),
    )
    (process,) = BARE.processes
    with_place = replace(BARE, processes=(replace(process, place=place),))
    assert keys(told(with_place)) == keys(told(BARE))
    (row,) = told(with_place)["processes"]
    assert row["place"]["container"]["name"] == "llama-ft"
    assert (row["place"]["launcher_pid"], row["place"]["launcher_start_time_ticks"]) == (41, 5)
    assert (row["where"], row["container"], row["job"]) == (
        "slurm 88123",
        "docker llama-ft",
        "88123",
    )
    (bare,) = told(BARE)["processes"]
    assert set(bare["load"].values()) == {None}
    assert set(bare["place"].pop("server").values()) == {None}
    assert set(bare["place"].pop("container").values()) == {None}
    assert set(bare["place"].values()) == {None}
    assert bare["where"] is bare["container"] is bare["job"] is None


def test_a_server_and_its_load_are_there_with_units_and_only_once_known() -> None:
    server = InferenceServer("vllm", "Qwen/Qwen2.5", 40, 6, "--gpu-memory-utilization", "0.92")
    load = ServerLoad(0, 14, 0.5, 512.5, None, 98.0, ("a", "b"))
    (process,) = BARE.processes
    serving = replace(process, place=Workload(server=server), load=load)
    (row,) = told(replace(BARE, processes=(serving,)))["processes"]
    assert row["place"]["server"] == {
        "engine": "vllm",
        "model": "Qwen/Qwen2.5",
        "pid": 40,
        "start_time_ticks": 6,
        "memory_setting": "--gpu-memory-utilization",
        "memory_value": "0.92",
        "has_config_file": False,
    }
    assert row["load"] == {
        "running": 0,
        "waiting": 14,
        "requests_per_second": 0.5,
        "tokens_per_second": 512.5,
        "prompt_tokens_per_second": None,
        "kv_cache_percent": 98.0,
        "models": ["a", "b"],
        "problem": None,
    }
    silent = replace(
        process, place=Workload(server=server), load=ServerLoad(problem="it needs a key")
    )
    (row,) = told(replace(BARE, processes=(silent,)))["processes"]
    assert row["load"].pop("problem") == "it needs a key"
    assert set(row["load"].values()) == {None}


def test_who_else_holds_the_cards_is_told_with_the_reason_or_is_null() -> None:
    assert told(BARE)["holders"] is None
    holders = told(replace(BARE, holders=HOLDERS))["holders"]
    assert (holders["at_unix_seconds"], holders["unseen"]) == (3.0, 2)
    (suspect,) = holders["suspects"]
    assert (suspect["pid"], suspect["start_time_ticks"]) == (8, 9)
    assert (suspect["reason"], suspect["gpu_uuids"]) == ("orphan", ["GPU-0"])
    assert suspect["parent_pid"] is None


@pytest.mark.parametrize(
    ("struct", "place"),
    [
        (Gpu, "gpus."),
        (MigInstance, "gpus.mig."),
        (Host, "host."),
        (GpuProcess, "processes."),
        (GpuUse, "processes.uses."),
        (Trouble, "trouble."),
        (OwnCost, "cost."),
        (Workload, "processes.place."),
        (Container, "processes.place.container."),
        (InferenceServer, "processes.place.server."),
        (ServerLoad, "processes.load."),
        (HolderScan, "holders."),
        (UnlistedHolder, "holders.suspects."),
        (Reserved, "reserved."),
        (Snapshot, ""),
    ],
)
def test_no_field_of_the_model_is_left_out(struct: Any, place: str) -> None:
    found = keys(told(whole_snapshot("x")))
    # An identity and an instance are told by their parts; a container's id is a text.
    parts = {"instance": ("gpu_instance", "compute_instance")}
    if struct is not Container:
        parts["id"] = ("pid", "start_time_ticks")
    for field in struct.__struct_encode_fields__:
        for name in parts.get(field, (field,)):
            assert any(key == place + name or key.startswith(f"{place}{name}_") for key in found)


def test_unknown_is_null_and_says_why_under_the_same_key() -> None:
    gpu = Gpu(
        0,
        "GPU-0",
        status=GpuStatus.LOST,
        unknown={"memory_used": Unknown.GPU_LOST, "fan_speed": Unknown.NOT_SUPPORTED},
    )
    (row,) = told(Snapshot(1.0, Host("a"), (gpu,)))["gpus"]
    assert row["status"] == "lost"
    assert row["memory_used_bytes"] is None
    assert row["unknown"] == {
        "memory_used_bytes": "card lost",
        "fan_speed_percent": "not supported",
    }


def test_every_reason_names_a_key_that_is_null() -> None:
    for row in told(DemoSource().sample())["gpus"]:
        assert row["unknown"]
        for key in row["unknown"]:
            assert row[key] is None


def test_clock_event_reasons_are_there_as_bits_and_by_name() -> None:
    gpus = (Gpu(0, "GPU-0", clock_event_reasons=0x24), Gpu(1, "GPU-1"))
    known, unknown = told(Snapshot(1.0, Host("a"), gpus))["gpus"]
    assert known["clock_event_reasons_bits"] == 0x24
    assert known["clock_event_reasons"] == ["SW power cap", "SW thermal"]
    assert unknown["clock_event_reasons_bits"] is None
    assert unknown["clock_event_reasons"] is None


def test_a_process_has_its_identity_and_what_it_holds_of_each_card() -> None:
    process = GpuProcess(
        id=ProcessId(4711, 123456),
        type="C",
        uses=(
            GpuUse("GPU-0", 0, memory_used=5, sm=40),
            GpuUse("GPU-1", 1, (2, 0), memory_used=7, sm=None),
        ),
        user="ann",
        command=("python", "train me.py"),
        started_at=40.0,
    )
    (row,) = told(Snapshot(100.0, Host("a"), processes=(process,)))["processes"]
    assert (row["pid"], row["start_time_ticks"]) == (4711, 123456)
    assert row["gpu"] == [0, 1]
    assert row["command"] == ["python", "train me.py"]
    assert row["memory_used_bytes"] == 12
    assert row["age_seconds"] == 60
    assert [use["memory_used_bytes"] for use in row["uses"]] == [5, 7]
    assert [use["sm_percent"] for use in row["uses"]] == [40, None]
    assert [use["gpu_instance"] for use in row["uses"]] == [None, 2]
    assert {metric.json_key for metric in PROCESS_METRICS if not metric.in_load} <= row.keys()


def test_mig_instances_are_children_of_their_card() -> None:
    instance = MigInstance("MIG-a", 0, 7, 0, "1g.10gb", 16, 10, 4, 6)
    (row,) = told(Snapshot(1.0, Host("a"), (Gpu(0, "GPU-0", mig=(instance,)),)))["gpus"]
    (child,) = row["mig"]
    assert child["uuid"] == "MIG-a"
    assert child["profile"] == "1g.10gb"
    assert child["memory_used_bytes"] == 4


def test_trouble_is_told_in_words_and_null_otherwise() -> None:
    trouble = Trouble("No driver.", "Install it.")
    assert told(Snapshot(1.0, Host("a"), trouble=trouble))["trouble"] == {
        "sentence": "No driver.",
        "advice": "Install it.",
    }
    assert told(BARE)["trouble"] is None


def test_it_is_one_line_unless_indented() -> None:
    snapshot = DemoSource().sample()
    assert "\n" not in to_json(snapshot)
    assert to_json(snapshot, indent=2).startswith('{\n  "schema"')
    assert strictly(to_json(snapshot, indent=2)) == told(snapshot)


@given(texts)
def test_any_text_comes_through_and_none_acts_on_a_terminal(text: str) -> None:
    snapshot = snapshot_of(text)
    for indent in (None, 2):
        encoded = to_json(snapshot, indent)
        assert encoded.replace("\n", "").isprintable()
        row = strictly(encoded.encode().decode())
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert row["host"]["name"] == whole
        assert row["gpus"][0]["name"] == whole
        assert row["gpus"][0]["mig"][0]["profile"] == whole
        assert row["processes"][0]["command"] == [whole, whole]
        assert row["processes"][0]["place"]["container"]["name"] == whole
        assert row["holders"]["suspects"][0]["command"] == [whole]
