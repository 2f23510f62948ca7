"""The other end may be hostile: whatever it sends, there is a sentence and bounded memory."""

from __future__ import annotations

import copy
import json
import math
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack
from msgspec.structs import replace

from gpumon.export.as_json import to_json
from gpumon.findings import conditions, gpu_state
from gpumon.model.allocations import Allocation
from gpumon.model.processes import (
    GpuProcess,
    GpuUse,
    HolderScan,
    HoldReason,
    ProcessId,
    UnlistedHolder,
)
from gpumon.model.snapshot import MigInstance, Reserved
from gpumon.recording.history import History
from gpumon.stream import (
    PART,
    OtherVersionError,
    StreamedSample,
    StreamError,
    StreamReader,
    StreamWriter,
)
from gpumon.stream.reader import MOST_BEFORE
from gpumon.stream.sample import MOST_FRAME
from tests.build import NOON, gpu, process, snapshot
from tests.stream.wire import (
    HEAD,
    PROCESSES,
    SEQUENCE,
    WRITTEN_AT,
    demo_samples,
    framed,
    opened,
    packed,
    parts_of,
    sealed,
)

MEGABYTE = 2**20
GOOD = b"".join(parts_of(demo_samples(4)))
FIRST = parts_of([snapshot(NOON, gpu(), gpu(index=1), processes=(process(1), process(2)))])[0]
HEADER, (SAMPLE,) = opened(FIRST)


def feed(data: bytes, reader: StreamReader | None = None) -> list[StreamedSample]:
    """What a reader makes of bytes; it raises nothing but a sentence."""
    reader = reader or StreamReader()
    parts = [data[at : at + PART] for at in range(0, len(data), PART)]
    samples = [sample for part in parts for sample in reader.feed(part)]
    reader.feed(b"")
    return samples


def refused(data: bytes) -> str:
    """The sentence with which bytes are refused."""
    with pytest.raises(StreamError) as error:
        feed(data)
    assert error.value.sentence.isprintable()
    assert len(error.value.sentence) < 300
    return error.value.sentence


def survives(data: bytes) -> None:
    """The bytes are read or refused, and what was read can be shown."""
    samples: list[StreamedSample] = []
    reader = StreamReader()
    sentence = ""
    try:
        samples += reader.feed(data[: len(data) // 2])
        samples += reader.feed(data[len(data) // 2 :])
        reader.feed(b"")
    except StreamError as error:
        sentence = error.sentence
    assert sentence.isprintable()
    history = History(conditions())
    for sample in samples:
        to_json(sample.snapshot)
        history.add(sample.snapshot)
        for card in sample.snapshot.gpus:
            gpu_state(history, card)


def place(struct: str, field: str) -> int:
    """The place of a field in the array of its structure."""
    at: int = HEADER["fields"][struct].index(field)
    return at


def edited(change: Callable[[list[Any]], object]) -> bytes:
    """A stream of one sample that was changed."""
    sample = copy.deepcopy(SAMPLE)
    change(sample)
    return sealed(HEADER, [sample])


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of nested lists and mappings are."""
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    for key, part in parts:
        yield (*path, key)
        yield from paths(part, (*path, key))


HOSTILE: list[Any] = [
    *(None, True, -1, 0, 3, 2**31, 2**63, 2**64 - 1, 0.5, -1e300, 1.7e308, math.nan, math.inf),
    *("", "lost", "\x1b[2J", "x" * 1000, b"", b"\xff" * 9, b"\x91" * 20_000),
    *([], [None], [0], [[]], [1, 2, 3], [-1], ["x"], {}, {"0": 1}, {"x": 1}),
]


@pytest.mark.slow
@given(st.data())
def test_a_value_in_the_place_of_another_is_read_or_refused(data: st.DataObject) -> None:
    header, samples = opened(GOOD)
    target = data.draw(st.sampled_from([header, samples]))
    *path, last = data.draw(st.sampled_from(list(paths(target))))
    value: Any = target
    for key in path:
        value = value[key]
    value[last] = data.draw(st.sampled_from(HOSTILE))
    with suppress(TypeError, OverflowError):  # such a value cannot be sent there
        survives(sealed(header, samples))


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(GOOD)),
            st.integers(0, 40),
            st.one_of(st.binary(max_size=6), st.sampled_from([b"\n", b'"', b"{", b"9" * 400])),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_bytes_in_the_place_of_others_are_read_or_refused(
    edits: list[tuple[int, int, bytes]],
) -> None:
    damaged = bytearray(GOOD)
    for at, count, new in edits:
        damaged[at : at + count] = new
    survives(bytes(damaged))


@given(st.binary())
def test_bytes_that_are_no_stream_are_read_or_refused(data: bytes) -> None:
    survives(data)
    survives(FIRST + data)
    survives(packed(HEADER, data))
    survives(packed(HEADER, framed(data)))


def _set(*path: Any, to: Any) -> Callable[[list[Any]], object]:
    def change(sample: list[Any]) -> None:
        value: Any = sample
        for key in path[:-1]:
            value = value[key]
        value[path[-1]] = to

    return change


_GPU = HEAD, place("Snapshot", "gpus"), 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set(*_GPU, place("Gpu", "power_draw"), to="hot"), "Expected `float | null`, got `str`"),
        (_set(*_GPU, place("Gpu", "power_draw"), to=1e19), "Expected `float` <= 1e+18"),
        (_set(*_GPU, place("Gpu", "power_draw"), to=math.nan), "Expected `float` >= -1e+18"),
        (_set(*_GPU, place("Gpu", "memory_used"), to=2**63), "Expected `int` <= 10000000"),
        (_set(*_GPU, place("Gpu", "xid_at"), to=1e300), "Expected `float` <= 200000000000"),
        (_set(*_GPU, place("Gpu", "index"), to=-3), "Expected `int` >= 0"),
        (_set(*_GPU, place("Gpu", "mig"), to=[["M", 0]] * 300), "of length <= 256"),
        (_set(HEAD, place("Snapshot", "host"), to=None), "Expected `array`, got `None`"),
        (_set(HEAD, to=None), "it has no snapshot"),
        (_set(PROCESSES, to=None), "it lacks a list"),
        (_set(HEAD, to=b"\x92\xcb"), "Input data was truncated"),
        (_set(PROCESSES, 0, 0, to={"start_time": 9}), "missing required field `pid`"),
        (_set(SEQUENCE, to="first"), "Expected `int`, got `str`"),
        (_set(SEQUENCE, to=7), "it is sample 7"),
        (_set(WRITTEN_AT, to=math.inf), "Expected `float` <= 200000000000"),
        (list.clear, "Expected `array` of at least length"),
    ],
)
def test_a_sample_that_does_not_fit_is_refused_in_a_sentence(
    change: Callable[[list[Any]], object], said: str
) -> None:
    sentence = refused(edited(change))
    assert sentence.startswith("sample 1 of the stream is damaged: ")
    assert said in sentence


@pytest.mark.parametrize(
    "content",
    # Bytes are only in this program's own memory, see ``gpumon.model.codec.encode``.
    [
        *(b"\xc1", b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b""),
        msgpack.encode(b"\xc0"),
    ],
    ids=["never", "deep", "list", "text", "nothing", "bytes"],
)
def test_what_is_no_value_is_refused(content: bytes) -> None:
    assert "sample 1 of the stream is damaged" in refused(packed(HEADER, framed(content)))
    assert "sample 1 of the stream is damaged" in refused(edited(_set(HEAD, to=content)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"Gpu": ["uuid", "uuid"]}, "first line of the stream is damaged: Gpu has a field twice"),
        ({"Gpu": ["x"] * 5000}, "damaged"),
        ({"Gpu": []}, "damaged"),
        ({"StreamFrame": ["sequence"]}, "missing required field `written_at`"),
        ([1], "the first line of the stream is damaged"),
        ({"Gpu": [1]}, "the first line of the stream is damaged"),
    ],
)
def test_a_header_with_impossible_fields_is_refused(fields: Any, said: str) -> None:
    header = copy.deepcopy(HEADER)
    header["fields"] = {**header["fields"], **fields} if isinstance(fields, dict) else fields
    assert said in refused(sealed(header, [SAMPLE]))


def test_samples_before_a_damaged_one_are_read() -> None:
    header, samples = opened(GOOD)
    samples[2][WRITTEN_AT] = "later"
    reader = StreamReader()
    one, two = reader.feed(sealed(header, samples))
    assert (one.sequence, two.sequence) == (1, 2)
    for _ in range(3):
        with pytest.raises(StreamError, match="sample 3 of the stream is damaged"):
            reader.feed(GOOD)


def test_a_sample_that_is_missing_is_noticed() -> None:
    header, (first, _, third, _) = opened(GOOD)
    assert "sample 2 of the stream is damaged: it is sample 3" in refused(
        sealed(header, [first, third])
    )


@pytest.mark.parametrize("rest", [b"", b"x" * 100_000])
@pytest.mark.parametrize(("version", "ours"), [(1, 2), (3, 2)])
def test_another_version_is_refused_with_what_to_do(version: int, ours: int, rest: bytes) -> None:
    """As soon as it can be known, though the line of a version 1 has megabytes."""
    line = b'Welcome!\n{"schema":"gpumon.stream/%d","sequence":1,"full":true' % version
    with pytest.raises(OtherVersionError) as error:
        feed(line + rest)
    assert f"version {version} of the stream" in error.value.sentence
    assert f"reads version {ours}" in error.value.sentence
    assert "install the same at both ends" in error.value.sentence


def test_a_greeting_of_the_login_shell_is_skipped() -> None:
    greeting = b"Welcome to gpu-04!\r\n\r\n\x1b[31mMaintenance on Friday\n"
    assert len(feed(greeting + GOOD)) == 4


def test_what_is_no_stream_at_all_is_named_by_its_beginning() -> None:
    sentence = refused(b"<html>\x1b[2J hello\n" * 10_000)
    assert "does not write a stream of gpumon, it begins with '<html>" in sentence
    assert "begins with" in refused(b"x" * 100_000)


def _bomb(content: bytes, times: int) -> Callable[[], Iterator[bytes]]:
    """A stream of the same content many times, in pieces as they arrive."""
    data = packed(HEADER, content * times)
    return lambda: (data[at : at + PART] for at in range(0, len(data), PART))


EMPTY_GPUS = edited(_set(HEAD, place("Snapshot", "gpus"), to=[[0, ""]] * 256))
HUGE = (MOST_FRAME).to_bytes(4, "big") + b"\x90" * MOST_FRAME


@pytest.mark.parametrize(
    ("pieces", "most"),
    [
        # A line without end before the stream, and one that begins as a header does.
        (lambda: iter([b"x" * PART] * 1000), 4 * MOST_BEFORE),
        (lambda: iter([b'{"schema":"gpumon.stream/2"' + b"x" * PART] * 1000), 4 * MOST_BEFORE),
        # Little that expands to much.
        (_bomb(b"\0", 200 * MEGABYTE), 8 * MEGABYTE),
        (_bomb(b"\xff" * 4, 50 * MEGABYTE), 8 * MEGABYTE),
        (_bomb(HUGE, 20), 8 * MEGABYTE),
        (lambda: iter([EMPTY_GPUS]), 8 * MEGABYTE),
    ],
    ids=["line", "header", "zeros", "long", "frames", "gpus"],
)
def test_what_has_no_end_is_refused_in_bounded_memory(
    pieces: Callable[[], Iterator[bytes]], most: int
) -> None:
    reader, waiting = StreamReader(), pieces()
    tracemalloc.start()
    try:
        with suppress(StreamError):
            for piece in waiting:
                reader.feed(piece)
        assert tracemalloc.get_traced_memory()[1] < most
        with suppress(StreamError):
            reader.feed(b"")
    finally:
        tracemalloc.stop()


def _followed(times: int, padding: bytes) -> bytes:
    """A sample, and so many that say nothing new."""
    others: list[list[Any]] = [
        [number, NOON, 0, None, [], [], None, None, None, padding] for number in range(2, times)
    ]
    return sealed(HEADER, [SAMPLE, *others])


def test_what_expands_to_more_than_any_host_sends_is_refused() -> None:
    padding = b"\0" * MEGABYTE
    assert len(feed(_followed(4, padding))) == 3
    assert "it expands to more than 4 MiB" in held_back(_followed(10, padding))
    assert "the other end sends samples without end" in held_back(_followed(5000, b""))


def _snapshot_of(**parts: Any) -> bytes:
    return StreamWriter(1.0).write(replace(snapshot(NOON), **parts), NOON)


USE, INSTANCE = GpuUse("", 0), MigInstance("", 0)
SUSPECT = UnlistedHolder(ProcessId(1, 1), (), HoldReason.HOLDS, "")


@pytest.mark.parametrize(
    "stream",
    [
        _snapshot_of(gpus=tuple(gpu(index=at, mig=(INSTANCE,) * 250) for at in range(100))),
        _snapshot_of(processes=(replace(process(1), uses=(USE,) * 70_000),)),
        _snapshot_of(processes=(GpuProcess(ProcessId(1, 1), "", ()),) * 20_000),
        _snapshot_of(holders=HolderScan(NOON, (SUSPECT,) * 20_000)),
        _snapshot_of(reserved=(Reserved(""),) * 20_000),
        _snapshot_of(allocations=(Allocation(""),) * 20_000),
        _snapshot_of(allocations=(Allocation("", devices=("",) * 20_000),)),
    ],
    ids=["mig", "uses", "processes", "suspects", "reserved", "allocations", "allocated"],
)
def test_a_few_bytes_do_not_become_more_rows_than_any_machine_has(stream: bytes) -> None:
    assert len(stream) < 20_000
    reader = StreamReader()
    tracemalloc.start()
    try:
        with pytest.raises(StreamError, match="more rows than any machine"):
            feed(stream, reader)
        assert tracemalloc.get_traced_memory()[0] < MEGABYTE, "what was read is released"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("interval", [0, -5, 1e300])
def test_an_interval_that_cannot_be_is_refused(interval: float) -> None:
    header = {**HEADER, "interval_seconds": interval}
    assert "the first line of the stream is damaged" in refused(sealed(header, [SAMPLE]))


def held_back(data: bytes) -> str:
    """The sentence after the samples before it."""
    reader = StreamReader()
    assert reader.feed(data)
    with pytest.raises(StreamError) as error:
        reader.feed(b"")
    return error.value.sentence


def test_a_sentence_quotes_nothing_that_acts_on_a_terminal() -> None:
    for damage in (b"\x1b]0;owned\x07\n", "\u202eevil\n".encode()):
        refused(FIRST + damage)
        refused(damage * 20_000)
    header = json.dumps({**HEADER, "gpumon": "\x1b[2J"}).replace(" ", "").encode()
    (sample,) = feed(header + b"\n" + FIRST.partition(b"\n")[2])
    assert sample.version == "\x1b[2J", "whoever shows it makes it printable"
    with suppress(StreamError):
        feed(b"\x00\n" * 100)
