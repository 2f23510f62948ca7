"""A snapshot as JSON: one object, one schema, for programs.

``docs/snapshot.md`` describes each key of the schema ``gpumon.snapshot/1``. Its rules:

* Numbers are numbers, in base units that the key names: ``memory_used_bytes``,
  ``power_draw_watts``, ``time_unix_seconds``. A key without a unit is a text, a flag or a count.
* ``null`` is unknown, never 0. A GPU's ``unknown`` says why, by the same keys; a ``null`` that is
  not named there has not been read yet or, as with ``xid``, has not happened.
* Every key is in every snapshot. ``trouble`` is ``null`` unless the driver cannot be reached; then
  it says why and ``gpus`` is empty. ``holders`` is ``null`` if nobody looked for them. A process
  always has a ``place`` and a ``load``, and the place a ``container`` and a ``server``: if they
  were not looked up, they contain no known value.
* Within version 1, keys are only added, and so are words of ``status``, ``unknown``, ``reason`` and
  ``clock_event_reasons``. A reader must skip what it does not know. If a key is removed, or its
  name, unit or meaning changes, the version changes.

The text is strict JSON: no NaN, no lone surrogates. It contains names and command lines of other
people unchanged, but characters that could act on a terminal are written as escapes.

Fields come from the metrics and the model. Only units that neither of them has are here.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from gpumon.model.codec import readable
from gpumon.model.metrics import PROCESS_METRICS, Unit, clock_event_names, gpu_value
from gpumon.model.processes import Container, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.model.processes import GpuProcess, GpuUse, HolderScan, ProcessId, UnlistedHolder
    from gpumon.model.snapshot import Gpu, Host, Snapshot

SCHEMA = "gpumon.snapshot/1"
"""The value of the key ``schema``."""

_UNITS = {
    "time": Unit.TIME,
    "driver_since": Unit.TIME,
    "processes_at": Unit.TIME,
    "reserved_at": Unit.TIME,
    "status_since": Unit.TIME,
    "sampled_at": Unit.TIME,
    "started_at": Unit.TIME,
    "at": Unit.TIME,
    "speed": Unit.BYTES_PER_SECOND,
    "received": Unit.BYTES,
    "transmitted": Unit.BYTES,
    "receive_rate": Unit.BYTES_PER_SECOND,
    "transmit_rate": Unit.BYTES_PER_SECOND,
    "errors_at": Unit.TIME,
    "link_lost_at": Unit.TIME,
    "since": Unit.TIME,
    "until": Unit.TIME,
    "fan_speeds": Unit.PERCENT,
    "rss": Unit.BYTES,
    "used": Unit.BYTES,
    "limit": Unit.BYTES,
    "memory": Unit.BYTES,
    "sm": Unit.PERCENT,
    "memory_activity": Unit.PERCENT,
    "encoder": Unit.PERCENT,
    "decoder": Unit.PERCENT,
    "requests": Unit.PER_SECOND,
    "tokens": Unit.PER_SECOND,
    "prompt_tokens": Unit.PER_SECOND,
    "kv_cache": Unit.PERCENT,
}
"""Units of the model's fields that are no metrics and whose names do not tell."""

_NO_PLACE = Workload()
_NO_LOAD = ServerLoad()
_NO_CONTAINER = dict.fromkeys(Container.__struct_fields__)


def to_json(snapshot: Snapshot, indent: int | None = None) -> str:
    """A snapshot in the schema of this module.

    Args:
        snapshot: The snapshot.
        indent: Spaces for each level; ``None`` puts everything on one line.

    Returns:
        The text, without a line break at its end.
    """
    return encoded(snapshot_json(snapshot), indent)


def encoded(told: dict[str, Any], indent: int | None = None) -> str:
    """Strict JSON in which no character acts on a terminal and none is half of a pair."""
    text = _encode(told)
    if indent is not None:
        text = msgspec.json.format(text, indent=indent)
    return _harmless(text.decode())


def json_key(field: str) -> str:
    """The JSON key of a field of the model: its name and its unit."""
    if field in GPU_METRIC:
        return GPU_METRIC[field].json_key
    unit = _UNITS.get(field)
    return f"{field}_{unit.suffix}" if unit else field


@cache
def json_keys(struct: type[msgspec.Struct]) -> Mapping[str, str]:
    """The JSON key of each field of a class of the model.

    A field that is a process or a MIG instance has other keys, one for each of its parts.
    """
    fields, names = struct.__struct_fields__, struct.__struct_encode_fields__
    return {field: json_key(name) for field, name in zip(fields, names, strict=True)}


def _workload(place: Workload) -> dict[str, Any]:
    """A place, with every key however little is known."""
    return {
        **_fields(place, "container", "launcher", "parent", "server"),
        "container": _fields(place.container) if place.container else _NO_CONTAINER,
        "server": _server(place.server) if place.server else _NO_SERVER,
        **_identity("launcher", place.launcher),
        **_identity("parent", place.parent),
    }


def _server(server: InferenceServer) -> dict[str, Any]:
    return {**_fields(server, "start_time"), "start_time_ticks": server.start_time}


def _load(load: ServerLoad) -> dict[str, Any]:
    return {**_fields(load), "models": load.models or None}


def snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot in the schema of this module, as an object to encode."""
    return {
        "schema": SCHEMA,
        **_fields(
            snapshot,
            *("host", "gpus", "processes", "trouble", "cost", "holders", "reserved"),
            *("allocations", "accidents"),
        ),
        "host": _host(snapshot.host),
        "trouble": _fields(snapshot.trouble) if snapshot.trouble else None,
        "cost": _fields(snapshot.cost) if snapshot.cost else None,
        "gpus": [_gpu(gpu) for gpu in snapshot.gpus],
        "processes": [_process(process, snapshot.time) for process in snapshot.processes],
        "holders": _holders(snapshot.holders) if snapshot.holders else None,
        "reserved": [_fields(one) for one in snapshot.reserved],
        "allocations": (
            None
            if snapshot.allocations is None
            else [_fields(allocation) for allocation in snapshot.allocations]
        ),
        "accidents": [_fields(accident) for accident in snapshot.accidents],
    }


def _host(host: Host) -> dict[str, Any]:
    nics = None if host.nics is None else [_fields(nic) for nic in host.nics]
    return {**_fields(host), "nics": nics}


def _gpu(gpu: Gpu) -> dict[str, Any]:
    reasons = gpu.clock_event_reasons
    told: dict[str, Any] = {metric.json_key: gpu_value(gpu, metric) for metric in GPU_METRICS}
    told |= _fields(gpu, "unknown", "mig", *GPU_METRIC)
    told["clock_event_reasons"] = None if reasons is None else clock_event_names(reasons)
    told["unknown"] = {json_key(field): why for field, why in gpu.unknown.items()}
    told["mig"] = [_fields(instance) for instance in gpu.mig]
    return told


def _process(process: GpuProcess, now: float) -> dict[str, Any]:
    told = {
        metric.json_key: metric.read(process, now)
        for metric in PROCESS_METRICS
        if not metric.in_load
    }
    # The process metrics have GPUs and command line as one text; here they are arrays.
    told |= _fields(process, "id", "uses", "place", "load", "cgroup_memory")
    told |= _identity("", process.id)
    told["gpu"] = process.gpu_indices
    told["uses"] = [_use(use) for use in process.uses]
    told["place"] = _workload(process.place or _NO_PLACE)
    told["load"] = _load(process.load or _NO_LOAD)
    memory = process.cgroup_memory
    told["cgroup_memory"] = None if memory is None else _fields(memory)
    return told


def _use(use: GpuUse) -> dict[str, Any]:
    gpu, compute = use.instance or (None, None)
    return {**_fields(use, "instance"), "gpu_instance": gpu, "compute_instance": compute}


def _holders(scan: HolderScan) -> dict[str, Any]:
    return {**_fields(scan, "suspects"), "suspects": [_suspect(one) for one in scan.suspects]}


def _suspect(suspect: UnlistedHolder) -> dict[str, Any]:
    return {
        **_identity("", suspect.id),
        **_fields(suspect, "id", "parent", "place"),
        **_identity("parent", suspect.parent),
        "place": _workload(suspect.place or _NO_PLACE),
    }


def _identity(whose: str, process: ProcessId | None) -> dict[str, int | None]:
    before = f"{whose}_" if whose else ""
    pid, start_time = (process.pid, process.start_time) if process else (None, None)
    return {f"{before}pid": pid, f"{before}start_time_ticks": start_time}


def _fields(struct: msgspec.Struct, *without: str) -> dict[str, Any]:
    """The fields of a model object by JSON key."""
    return {
        key: getattr(struct, field)
        for field, key in json_keys(type(struct)).items()
        if field not in without
    }


_NO_SERVER = dict.fromkeys(_server(InferenceServer("")))


def _encode(told: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(told)
    except UnicodeEncodeError:
        # Half a surrogate pair stands for a byte that was not UTF-8; JSON cannot express it.
        return msgspec.json.encode(readable(told))


def _harmless(text: str) -> str:
    """The same JSON with every invisible character escaped, except its own line breaks."""
    if text.replace("\n", "").isprintable():
        return text
    import json

    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
        for character in text
    )
