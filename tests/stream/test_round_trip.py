"""What is written is read: every snapshot, whatever is in it and wherever the bytes are cut."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import msgpack
from msgspec.structs import replace

import gpumon
from gpumon.findings.finding import FindingKind, Severity
from gpumon.model.processes import HolderScan, HoldReason, ProcessId, UnlistedHolder, Workload
from gpumon.model.snapshot import Gpu, GpuStatus, Host, Snapshot, Trouble, Unknown
from gpumon.recording.recording import Event, EventKind
from gpumon.stream import SCHEMA, GpuState, Heartbeat, StreamWriter
from gpumon.stream.sample import StreamFrame
from tests.build import NOON, gpu, process, snapshot
from tests.export.hostile import snapshot_of, texts
from tests.known import known
from tests.stream.snapshots import histories
from tests.stream.wire import (
    EVENTS,
    HEAD,
    HOLDERS,
    PROCESSES,
    SEQUENCE,
    STATES,
    demo_samples,
    opened,
    parts_of,
    read,
    sealed,
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(histories(), st.data())
def test_what_is_read_is_what_was_written(snapshots: list[Snapshot], data: st.DataObject) -> None:
    stream = b"".join(parts_of(snapshots))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    assert [sample.snapshot for sample in read(stream, cuts)] == snapshots


def test_cuts_between_any_two_bytes_change_nothing() -> None:
    snapshots = demo_samples(3)
    stream = b"".join(parts_of(snapshots))
    samples = read(stream, range(len(stream)))
    assert [sample.snapshot for sample in samples] == snapshots
    assert [sample.sequence for sample in samples] == [1, 2, 3]


def test_a_list_that_was_not_read_again_is_sent_once_and_is_the_same_object() -> None:
    listed = (process(1), process(2))
    before = snapshot(NOON, gpu(), processes=listed)
    after = replace(before, time=NOON + 1, gpus=(gpu(utilization_gpu=5),))
    stream = b"".join(parts_of([before, after]))
    first, second = read(stream)
    assert second.snapshot == after
    assert second.snapshot.processes is first.snapshot.processes
    _, samples = opened(stream)
    assert samples[0][PROCESSES] is not None
    assert samples[1][PROCESSES] is None


def test_what_did_not_change_costs_next_to_nothing() -> None:
    state = demo_samples(1)[0]
    first, *others = parts_of(replace(state, time=NOON + number) for number in range(20))
    assert len(first) > 4000
    assert max(map(len, others)) < 250


def test_samples_that_grow_stay_short_where_nothing_changes() -> None:
    many = [replace(process(n), command=(str(Random(n).random()),)) for n in range(2000)]
    states = [
        snapshot(NOON, gpu()),
        # Another list each time, with the same processes.
        *(snapshot(NOON + number, gpu(), processes=(*many,)) for number in range(1, 4)),
    ]
    parts = parts_of(states)
    assert [sample.snapshot for sample in read(b"".join(parts))] == states
    assert len(parts[1]) > 20_000
    assert len(parts[3]) < 1000
    assert [sample.snapshot for sample in read(b"".join(parts), [len(parts[0]), 9000])] == states


def test_a_sample_says_whence_it_is() -> None:
    writer = StreamWriter(0.5)
    state = snapshot(NOON)
    beat = Heartbeat("the driver has not answered for 12s", 12.5)
    parts = [
        writer.write(state, NOON + 1),
        writer.write(state, NOON + 6, heartbeat=beat),
        writer.write(replace(state, time=NOON + 9), NOON + 9, dropped=3),
    ]
    first, second, third = samples = read(b"".join(parts))
    assert {one.version for one in samples} == {gpumon.__version__}
    assert {one.interval for one in samples} == {0.5}
    assert [one.written_at for one in samples] == [NOON + 1, NOON + 6, NOON + 9]
    assert [one.heartbeat for one in samples] == [None, beat, None]
    assert [one.dropped for one in samples] == [0, 0, 3]
    assert second.snapshot is first.snapshot
    assert third.snapshot.time == NOON + 9


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
    parts = [
        writer.write(state, NOON, events=events, states=(hot, free)),
        writer.write(state, NOON + 1, states=(replace(hot, kind=FindingKind.LOST), free)),
    ]
    first, second = read(b"".join(parts))
    assert first.events == events
    assert first.states == (hot, free)
    assert second.events == ()
    assert second.states == (replace(hot, kind=FindingKind.LOST), free)


def test_of_too_many_events_the_newest_are_sent() -> None:
    many = [Event(NOON, EventKind.FULL, "GPU-0", str(number)) for number in range(1000)]
    (sample,) = read(StreamWriter(1.0).write(snapshot(NOON), NOON, events=many))
    assert [event.sentence for event in sample.events] == [str(n) for n in range(744, 1000)]


@given(texts)
def test_any_text_comes_through(text: str) -> None:
    (sample,) = read(StreamWriter(1.0).write(snapshot_of(text), NOON))
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert sample.snapshot == snapshot_of(whole)


def test_any_text_comes_through_beside_the_snapshot() -> None:
    beat, event = Heartbeat("\ud800", 1.0), Event(NOON, EventKind.FULL, "\udfff", "\ud801")
    state = GpuState("\udc00", FindingKind.FREE, Severity.GOOD)
    sent = StreamWriter(1.0).write(
        snapshot(NOON), NOON, heartbeat=beat, events=[event], states=[state]
    )
    (sample,) = read(sent)
    assert sample.snapshot == snapshot(NOON)
    assert sample.heartbeat == replace(beat, reason="\ufffd")
    assert sample.events == (replace(event, subject="\ufffd", sentence="\ufffd"),)
    assert sample.states == (replace(state, gpu_uuid="\ufffd"),)


def test_command_lines_are_left_out_where_a_sample_would_be_too_long() -> None:
    command = ("java", "x" * 4000)
    many = tuple(replace(process(pid), command=command, name="java") for pid in range(1200))
    suspect = UnlistedHolder(ProcessId(8, 9), ("GPU-0",), HoldReason.ORPHAN, "why", command=command)
    holders = HolderScan(NOON, (suspect,))
    first = replace(snapshot(NOON, processes=many), holders=holders)
    second = replace(first, processes=many[1:], time=NOON + 1)
    bare = tuple(replace(one, command=(), place=None) for one in many)
    unnamed = replace(holders, suspects=(replace(suspect, command=(), place=None),))
    third = replace(second, time=NOON + 2)
    parts = parts_of([first, second, second, third])
    samples = read(b"".join(parts))
    # A list that was not read again is not sent again.
    assert len(parts[3]) < 250
    assert [sample.snapshot for sample in samples] == [
        replace(first, processes=bare, holders=unnamed),
        *[replace(second, processes=bare[1:], holders=unnamed)] * 2,
        replace(third, processes=bare[1:], holders=unnamed),
    ]


def _reordered(value: Any, places: list[int], added: Any = None) -> list[Any]:
    return [added, *(value[place] for place in places)]


def test_another_version_may_have_other_fields_in_another_order() -> None:
    written = demo_samples(2)
    header, samples = opened(b"".join(parts_of(written)))
    gpu_fields, process_fields = header["fields"]["Gpu"], header["fields"]["GpuProcess"]
    of_gpu = [*reversed(range(len(gpu_fields)))]
    of_process = [at for at, name in enumerate(process_fields) if name != "rss"]
    header["fields"]["Gpu"] = ["flux", *(gpu_fields[at] for at in of_gpu)]
    header["fields"]["GpuProcess"] = ["mood", *(process_fields[at] for at in of_process)]
    header["fields"]["StreamFrame"].append("weather")
    gpus = header["fields"]["Snapshot"].index("gpus")
    for sample in samples:
        cards = sample[HEAD][gpus]
        cards[:] = [_reordered(card, of_gpu, {"deep": [[1]]}) for card in cards]
        if (listed := sample[PROCESSES]) is not None:
            listed[:] = [_reordered(one, of_process, "good") for one in listed]
        sample.append("rain")
    found = read(sealed(header, samples))
    for got, expected in zip(found, written, strict=True):
        without_rss = tuple(replace(one, rss=None) for one in expected.processes)
        assert got.snapshot == replace(expected, processes=without_rss)


def test_new_words_are_taken_for_the_nearest_and_impossible_events_are_skipped() -> None:
    suspect = UnlistedHolder(ProcessId(8, 9), ("GPU-0",), HoldReason.ORPHAN, "why")
    asleep = gpu(unknown={"fan_speed": Unknown.ASLEEP})
    written = replace(snapshot(NOON, asleep), holders=HolderScan(NOON, (suspect,)))
    kept = Event(NOON, EventKind.FULL, "GPU-0", "GPU 0 memory full")
    state = GpuState("GPU-0", FindingKind.FREE, Severity.GOOD)
    stream = StreamWriter(1.0).write(written, NOON, events=(kept,), states=(state,))
    header, (sample,) = opened(stream)
    fields = header["fields"]
    (card,) = sample[HEAD][fields["Snapshot"].index("gpus")]
    card[fields["Gpu"].index("status")] = "enchanted"
    card[fields["Gpu"].index("unknown")] = {"fan_speed": "on holiday"}
    (held,) = sample[HOLDERS][fields["HolderScan"].index("suspects")]
    held[fields["UnlistedHolder"].index("reason")] = "likes it"
    danced = {"time": NOON, "kind": "danced", "subject": "GPU-0", "sentence": "GPU 0 danced"}
    never = {"time": 1e300, "kind": "full", "subject": "GPU-0", "sentence": "GPU 0 memory full"}
    sample[EVENTS] += [danced, never]
    sample[STATES][0][1:3] = ["odd", 9]
    (found,) = read(sealed(header, [sample]))
    (read_card,) = found.snapshot.gpus
    assert read_card.status is GpuStatus.FAILING
    assert read_card.unknown == {"fan_speed": Unknown.NOT_READ}
    assert known(found.snapshot.holders).suspects[0].reason is HoldReason.HOLDS
    assert found.events == (kept,)
    assert found.states == (GpuState("GPU-0", FindingKind.UNKNOWN, Severity.NOTE),)


def test_the_header_names_the_fields_of_all_that_follows() -> None:
    header, (sample,) = opened(b"".join(parts_of([snapshot(NOON, gpu())])))
    assert header["schema"] == "gpumon.stream/2"
    assert header["fields"]["Gpu"] == list(Gpu.__struct_fields__)
    assert len(header["fields"]["StreamFrame"]) == len(sample)
    assert msgpack.decode(msgpack.encode(sample)) == sample


def test_what_is_not_there_is_not_invented() -> None:
    bare = Snapshot(NOON, Host("ada-07"))
    with_place = replace(process(1), place=Workload())
    for written in (bare, replace(bare, processes=(process(1), with_place), holders=None)):
        (sample,) = read(b"".join(parts_of([written])))
        assert sample.snapshot == written
    gone = replace(bare, trouble=Trouble("No driver.", "Install it."), holders=HolderScan(NOON))
    samples = read(b"".join(parts_of([bare, gone, bare])))
    assert [sample.snapshot for sample in samples] == [bare, gone, bare]


@pytest.mark.parametrize("count", [1, 40])
def test_processes_may_come_and_go(count: int) -> None:
    many = tuple(process(pid, gpus=(0, 1)) for pid in range(count))
    cards = gpu(), gpu(index=1)
    lists = [many, many[1:], (process(99), *many), (), many[::-1]]
    written = [snapshot(NOON + at, *cards, processes=one) for at, one in enumerate(lists)]
    assert [sample.snapshot for sample in read(b"".join(parts_of(written)))] == written


PAGE = (Path(__file__).parents[2] / "docs" / "stream.md").read_text(encoding="utf-8")


def test_every_field_of_a_sample_is_on_the_page() -> None:
    table = PAGE.partition("<!-- fields: StreamFrame -->\n")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(StreamFrame.__struct_fields__)
    assert f"`{SCHEMA}`" in PAGE


def test_the_example_reads_a_stream() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    samples = demo_samples(2)
    header, contents = opened(b"".join(parts_of([*samples, samples[0]])))
    contents[2][SEQUENCE] = 9
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=sealed(header, contents),
        capture_output=True,
        check=True,
    )
    first, second, refused = done.stdout.decode().splitlines()
    assert [first, second] == [
        f"{number} {len(sample.processes)}" for number, sample in enumerate(samples, 1)
    ]
    assert refused.startswith("sample 3 of the stream is damaged")
