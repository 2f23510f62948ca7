"""What is written is read: every snapshot, whatever is in it and wherever the bytes are cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import gpumon
from gpumon.export.as_json import to_json
from gpumon.findings.finding import FindingKind, Severity
from gpumon.makers.demo import DemoSource
from gpumon.model.processes import (
    GpuUse,
    HolderScan,
    HoldReason,
    ProcessId,
    UnlistedHolder,
    Workload,
)
from gpumon.model.snapshot import GpuStatus, Host, Reserved, Snapshot, Trouble, Unknown
from gpumon.recording.recording import Event, EventKind
from gpumon.stream import MOST_LINE, GpuState, Heartbeat, StreamedSample, StreamReader, StreamWriter
from tests.build import NOON, gpu, process, snapshot
from tests.clock import HandClock
from tests.export.hostile import place_of, snapshot_of, texts
from tests.stream.snapshots import histories

if TYPE_CHECKING:
    from collections.abc import Iterable


def lines_of(snapshots: Iterable[Snapshot], writer: StreamWriter | None = None) -> list[bytes]:
    writer = writer or StreamWriter(1.0)
    return [writer.line(one, NOON + at) for at, one in enumerate(snapshots)]


def read(data: bytes, cuts: Iterable[int] = ()) -> list[StreamedSample]:
    reader, start, samples = StreamReader(), 0, []
    for end in (*sorted(cuts), len(data)):
        samples += reader.feed(data[start:end])
        start = end
    return samples


def told(line: bytes) -> Any:
    return json.loads(line)


def demo_samples(count: int) -> list[Snapshot]:
    """Samples of the demo, a second apart."""
    clock = HandClock()
    source = DemoSource(clock=clock)
    taken = []
    for _ in range(count):
        taken.append(source.sample())
        clock.now += 1
    return taken


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(histories(), st.data())
def test_what_is_read_is_what_was_written(snapshots: list[Snapshot], data: st.DataObject) -> None:
    stream = b"".join(lines_of(snapshots))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    assert [sample.snapshot for sample in read(stream, cuts)] == snapshots


def test_cuts_between_any_two_bytes_change_nothing() -> None:
    snapshots = demo_samples(3)
    stream = b"".join(lines_of(snapshots))
    reader = StreamReader()
    found = [sample for at in range(len(stream)) for sample in reader.feed(stream[at : at + 1])]
    assert [sample.snapshot for sample in found] == snapshots
    assert [sample.sequence for sample in found] == [1, 2, 3]


def test_rows_that_did_not_change_are_the_same_objects() -> None:
    idle, busy = process(1), process(2)
    before = snapshot(NOON, gpu(), gpu(index=1), processes=(idle, busy))
    after = replace(
        before,
        gpus=(before.gpus[0], gpu(index=1, utilization_gpu=5)),
        processes=(replace(busy, cpu_percent=3.0), idle),
    )
    first, second = read(b"".join(lines_of([before, after])))
    assert second.snapshot == after
    assert second.snapshot.gpus[0] is first.snapshot.gpus[0]
    assert second.snapshot.processes[1] is first.snapshot.processes[0]


def test_a_line_has_only_what_changed() -> None:
    first, second = demo_samples(2)
    full, changes = (told(line) for line in lines_of([first, second]))
    assert full["full"] is True
    assert "full" not in changes
    assert "uuid" in full["snapshot"]["gpus"]
    assert "uuid" not in changes["snapshot"]["gpus"]
    assert "command" not in changes["snapshot"].get("processes", {})
    assert "rows" not in changes["snapshot"].get("processes", {})
    same = gpu(index=1)
    few = [snapshot(NOON, gpu(), same, gpu(index=2)), snapshot(NOON, gpu(fan_speed=9), same)]
    changed = told(lines_of(few)[1])["snapshot"]["gpus"]
    assert changed == {"rows": [0, 1], "fan_speed_percent": {"0": 9}}


def test_the_whole_state_comes_every_minute_and_after_samples_were_left_out() -> None:
    writer = StreamWriter(1.0)
    state = snapshot(NOON)

    def is_full(at: float, dropped: int = 0) -> bool:
        line = writer.line(replace(state, time=at), at, dropped=dropped)
        return bool(told(line).get("full", False))

    assert is_full(NOON)
    assert not is_full(NOON + 59)
    assert is_full(NOON + 60)
    assert is_full(NOON + 61, dropped=2)
    assert not is_full(NOON + 62)
    assert is_full(NOON - 3600), "the clock was set back"


def test_a_sample_says_whence_it_is() -> None:
    writer = StreamWriter(0.5)
    state = snapshot(NOON)
    beat = Heartbeat("the driver has not answered for 12s", 12.5)
    lines = [
        writer.line(state, NOON + 1),
        writer.line(state, NOON + 6, heartbeat=beat),
        writer.line(replace(state, time=NOON + 9), NOON + 9, dropped=3),
    ]
    first, second, third = read(b"".join(lines))
    assert {one.version for one in (first, second, third)} == {gpumon.__version__}
    assert {one.interval for one in (first, second, third)} == {0.5}
    assert [one.written_at for one in (first, second, third)] == [NOON + 1, NOON + 6, NOON + 9]
    assert (first.full, first.heartbeat, first.dropped) == (True, None, 0)
    assert (second.full, second.heartbeat) == (False, beat)
    assert second.snapshot is first.snapshot
    assert (third.full, third.dropped, third.snapshot.time) == (True, 3, NOON + 9)


def test_events_and_states_of_the_other_end_are_read() -> None:
    events = (
        Event(NOON, EventKind.ERROR, "GPU-0", "GPU 0 reported XID 79", ("GPU-0",)),
        Event(NOON, EventKind.WENT, ProcessId(7, 9), "7 python left GPU 0", ("GPU-0",)),
        Event(NOON, EventKind.CAME, ProcessId(8, None), "8 came to GPU 0"),
    )
    hot = GpuState("GPU-0", FindingKind.HOT, Severity.WARNING, NOON - 5)
    free = GpuState("GPU-1", FindingKind.FREE, Severity.GOOD)
    writer = StreamWriter(1.0)
    state = snapshot(NOON)
    lines = [
        writer.line(state, NOON, events=events, states=(hot, free)),
        writer.line(state, NOON + 1, states=(hot, free)),
        writer.line(state, NOON + 2, states=(replace(hot, kind=FindingKind.LOST), free)),
    ]
    first, second, third = read(b"".join(lines))
    assert first.events == events
    assert first.states == second.states == (hot, free)
    assert second.events == ()
    assert third.states == (replace(hot, kind=FindingKind.LOST), free)
    assert "states" not in told(lines[1])


@given(texts)
def test_any_text_comes_through_and_none_acts_on_a_terminal(text: str) -> None:
    written = snapshot_of(text)
    line = StreamWriter(1.0).line(written, NOON)
    assert line.decode().removesuffix("\n").isprintable()
    (sample,) = read(line)
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert sample.snapshot == snapshot_of(whole)


def test_a_number_that_no_hardware_reports_is_unknown_at_the_other_end() -> None:
    broken = gpu(power_draw=float("nan"), memory_used=2**70, fan_speed=-1, temperature_gpu=40)
    (sample,) = read(b"".join(lines_of([snapshot(NOON, broken)])))
    expected = replace(broken, power_draw=None, memory_used=None, fan_speed=None)
    assert sample.snapshot.gpus == (expected,)


def test_command_lines_are_left_out_where_a_line_would_be_too_long() -> None:
    command = ("java", "x" * 4000)
    many = tuple(replace(process(pid), command=command, name="java") for pid in range(1200))
    first = snapshot(NOON, processes=many)
    second = replace(first, processes=many[1:], time=NOON + 1)
    lines = lines_of([first, second])
    assert all(len(line) <= MOST_LINE for line in lines)
    for sample, written in zip(read(b"".join(lines)), (first, second), strict=True):
        bare = tuple(replace(one, command=()) for one in written.processes)
        assert sample.snapshot == replace(written, processes=bare)


def _keys(value: Any, path: str, found: set[str]) -> set[str]:
    for key, part in value.items():
        found.add(path + key)
        if isinstance(part, dict) and not all(cell.isdigit() for cell in part):
            _keys(part, f"{path}{key}.", found)
    return found


def test_the_keys_are_those_of_the_snapshot_as_json() -> None:
    place = place_of("x")
    one = replace(process(1), place=place, uses=(GpuUse("GPU-0", 0, (1, 0), 5, 6, 7, 8, 9),))
    suspect = UnlistedHolder(ProcessId(8, 9), ("GPU-0",), HoldReason.ORPHAN, "why", place=place)
    full = replace(
        snapshot_of("x"),
        processes=(one,),
        trouble=Trouble("It broke.", "Mend it."),
        holders=HolderScan(NOON, (suspect,), 3),
        reserved=(Reserved("GPU-0", "MIG-0", "ann", 5, NOON, "python"),),
    )
    exported = json.loads(to_json(full))
    line = told(StreamWriter(1.0).line(full, NOON))["snapshot"]
    below = {"mig": exported["gpus"][0]["mig"], "uses": exported["processes"][0]["uses"]}
    below["suspects"] = exported["holders"]["suspects"]
    for key, part in line.items():
        if not isinstance(part, dict):
            assert exported[key] == part
            continue
        known = below.get(key, exported.get(key))
        known = known[0] if isinstance(known, list) else known
        assert part.keys() - {"rows"} <= known.keys(), key
    for cell in line["processes"]["place"]:
        assert _keys(cell, "", set()) <= _keys(exported["processes"][0]["place"], "", set())


def test_what_newer_versions_add_is_skipped_and_new_words_are_taken_for_the_nearest() -> None:
    line = told(lines_of([snapshot(NOON, gpu(unknown={"fan_speed": Unknown.ASLEEP}))])[0])
    line["colour"] = {"deep": [[[1]]]}
    line["snapshot"]["weather"] = "rain"
    cards = line["snapshot"]["gpus"]
    cards["flux"] = [1]
    cards["status"] = ["enchanted"]
    cards["unknown"] = [{"fan_speed_percent": "on holiday", "flux": "asleep"}]
    line["events"] = [{"time_unix_seconds": NOON, "kind": "danced", "sentence": "GPU 0 danced"}]
    line["states"] = {"rows": 1, "gpu_uuid": ["GPU-0"], "kind": ["odd"], "severity": ["dire"]}
    (sample,) = read(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    (card,) = sample.snapshot.gpus
    assert card.status is GpuStatus.FAILING
    assert card.unknown == {"fan_speed": Unknown.NOT_READ}
    assert sample.events == ()
    assert sample.states == (GpuState("GPU-0", FindingKind.UNKNOWN, Severity.NOTE),)


def test_what_is_not_there_is_not_invented() -> None:
    bare = Snapshot(NOON, Host("ada-07"))
    with_place = replace(process(1), place=Workload())
    for written in (bare, replace(bare, processes=(process(1), with_place), holders=None)):
        (sample,) = read(b"".join(lines_of([written])))
        assert sample.snapshot == written
    gone = replace(bare, trouble=Trouble("No driver.", "Install it."), holders=HolderScan(NOON))
    samples = read(b"".join(lines_of([bare, gone, bare])))
    assert [sample.snapshot for sample in samples] == [bare, gone, bare]


@pytest.mark.parametrize("count", [1, 40])
def test_processes_may_come_and_go(count: int) -> None:
    many = tuple(process(pid, gpus=(0, 1)) for pid in range(count))
    cards = gpu(), gpu(index=1)
    lists = [many, many[1:], (process(99), *many), (), many[::-1]]
    written = [snapshot(NOON + at, *cards, processes=one) for at, one in enumerate(lists)]
    assert [sample.snapshot for sample in read(b"".join(lines_of(written)))] == written
