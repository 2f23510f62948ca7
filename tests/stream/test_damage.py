"""The other end may be hostile: whatever it sends, there is a sentence and bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.export.as_json import to_json
from gpumon.findings import conditions, gpu_state
from gpumon.recording.history import History
from gpumon.stream import MOST_LINE, StreamedSample, StreamError, StreamReader, StreamWriter
from tests.build import NOON, gpu, process, snapshot
from tests.stream.test_round_trip import demo_samples, lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MEGABYTE = 2**20
GOOD = b"".join(lines_of(demo_samples(4)))
FULL = lines_of([snapshot(NOON, gpu(), gpu(index=1), processes=(process(1), process(2)))])[0]


def feed(data: bytes) -> list[StreamedSample]:
    """What a reader makes of bytes; it raises nothing but a sentence."""
    reader = StreamReader()
    samples = reader.feed(data)
    reader.feed(b"")
    return samples


def feed_all(reader: StreamReader, parts: Iterable[bytes]) -> None:
    for part in parts:
        reader.feed(part)


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


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of a JSON document are."""
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    for key, part in parts:
        yield (*path, key)
        yield from paths(part, (*path, key))


def edited(line: bytes, change: Callable[[Any], None]) -> bytes:
    told = json.loads(line)
    change(told)
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


HOSTILE: list[Any] = [
    *(None, True, -1, 0, 3, 2**31, 2**63, 2**64, 10**30, -(10**300), 0.5, -1e300, 1.7e308),
    *("", "lost", "\x1b[2J", "\ud800", "x" * 1000),
    *([], [None], [0], [[]], [1, 2, 3], [-1], ["x"], {}, {"0": 1}, {"7": 1}, {"-1": 1}, {"x": 1}),
    {"0": None},
    {"rows": 1000},
    {"rows": [5]},
    {"rows": 2**40},
]


@given(st.data())
def test_a_value_in_the_place_of_another_is_read_or_refused(data: st.DataObject) -> None:
    lines = GOOD.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    path = data.draw(st.sampled_from(list(paths(json.loads(lines[at])))))
    value = data.draw(st.sampled_from(HOSTILE))

    def change(told: Any) -> None:
        for key in path[:-1]:
            told = told[key]
        told[path[-1]] = value

    lines[at] = edited(lines[at], change)
    survives(b"".join(lines))


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(GOOD)),
            st.integers(0, 40),
            st.one_of(
                st.binary(max_size=6),
                st.sampled_from([b"\n", b'"', b"{", b"]", b",", b"\xff", b"9" * 400, b"NaN"]),
            ),
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
    survives(FULL + data + b"\n")


@pytest.mark.parametrize(
    "value",
    ["NaN", "Infinity", "1e999", "9" * 100_000, "[" * 100_000, '{"a":' * 100_000, '"\\ud800"'],
    ids=lambda value: value[:8],
)
def test_what_is_no_value_is_refused(value: str) -> None:
    first = FULL.replace(b'"sequence":1', b'"sequence":' + value.encode())
    column = FULL.replace(b'"gpus":{', b'"gpus":{"power_draw_watts":%s,' % value.encode())
    cell = FULL.replace(b'"gpus":{', b'"gpus":{"power_draw_watts":[%s,1],' % value.encode())
    for damaged in (first, column, cell):
        assert damaged != FULL
        assert "line 1 of the stream is damaged" in refused(damaged)
    survives(FULL.replace(b'"gpus":{', b'"gpus":{"no_such_key":%s,' % value.encode()))


def _change_gpus(**columns: Any) -> Callable[[Any], None]:
    return lambda told: told["snapshot"]["gpus"].update(columns)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_change_gpus(power_draw_watts=[1.0]), "gpus.power_draw_watts does not fit its 2 rows"),
        (_change_gpus(power_draw_watts={"2": 1.0}), "does not fit its 2 rows"),
        (_change_gpus(power_draw_watts=["hot", "cold"]), "Expected `float | null`, got `str`"),
        (_change_gpus(power_draw_watts=[1e19, 0]), "Expected `float` <= 1e+18"),
        (_change_gpus(xid_at_unix_seconds=[1e300, 0]), "Expected `float` <= 200000000000"),
        (_change_gpus(rows=[0, 1]), "gpus has no such row"),
        (_change_gpus(rows=10**6), "Expected"),
        (_change_gpus(index=[0, -3]), "Expected `int` >= 0"),
        (_change_gpus(mig=[3, 0]), "gpus has 3 mig, not 0"),
        (lambda told: told["snapshot"]["gpus"].pop("uuid"), "a Gpu has no uuid"),
        (lambda told: told["snapshot"]["uses"].pop("gpu_uuid"), "a GpuUse has no gpu_uuid"),
        (lambda told: told["snapshot"]["processes"].pop("pid"), "a row without its pid"),
        (lambda told: told["snapshot"].pop("host"), "it has no host"),
        (lambda told: told["snapshot"].pop("time_unix_seconds"), "a Snapshot has no time"),
        (lambda told: told.pop("snapshot"), "it has no snapshot"),
        (lambda told: told.pop("sequence"), "missing required field `sequence`"),
    ],
)
def test_a_line_that_does_not_fit_is_refused_in_a_sentence(
    change: Callable[[Any], None], said: str
) -> None:
    assert said in refused(edited(FULL, change))


def test_lines_before_a_damaged_one_are_read() -> None:
    reader = StreamReader()
    first, second, third, fourth = GOOD.splitlines(keepends=True)
    (one, two) = reader.feed(first + second + third[:-50] + b"\n" + fourth)
    assert (one.sequence, two.sequence) == (1, 2)
    for _ in range(3):
        with pytest.raises(StreamError, match="line 3 of the stream is damaged"):
            reader.feed(fourth)


def test_a_line_that_is_missing_is_noticed() -> None:
    first, second, third, _ = GOOD.splitlines(keepends=True)
    assert "line 2 of the stream is damaged: it is line 3" in refused(first + third)
    assert "begins in the middle" in refused(second)
    assert [one.sequence for one in feed(first + first)] == [1, 1], "whole lines need no other"


def test_a_newer_format_is_refused_with_what_to_do() -> None:
    newer = FULL.replace(b"gpumon.stream/1", b"gpumon.stream/2")
    sentence = refused(newer)
    assert "version 2 of the stream" in sentence
    assert "reads version 1" in sentence
    assert "install the same gpumon" in sentence


def test_a_greeting_of_the_login_shell_is_skipped() -> None:
    greeting = b"Welcome to gpu-04!\r\n\r\n\x1b[31mMaintenance on Friday\n"
    assert len(feed(greeting + GOOD)) == 4
    assert len(feed(GOOD)) == 4


def test_what_is_no_stream_at_all_is_named_by_its_beginning() -> None:
    sentence = refused(b"<html>\x1b[2J hello\n" * 10_000)
    assert "does not write a stream of gpumon, it begins with '<html>" in sentence
    assert "begins with" in refused(b"x" * 100_000)


@pytest.mark.parametrize("before", [b"", FULL, FULL[:1000]], ids=["alone", "after", "within"])
def test_a_gigabyte_without_a_line_break_is_refused_in_bounded_memory(before: bytes) -> None:
    reader = StreamReader()
    reader.feed(before)
    parts = iter([b"x" * 65536] * 16384)
    tracemalloc.start()
    try:
        with pytest.raises(StreamError):
            feed_all(reader, parts)
        assert len(list(parts)) * 65536 >= 1024 * MEGABYTE - 2 * MOST_LINE
        _, most = tracemalloc.get_traced_memory()
        assert most < 4 * MOST_LINE
        assert tracemalloc.get_traced_memory()[0] < MEGABYTE, "what was read is released"
    finally:
        tracemalloc.stop()


def test_a_state_that_grows_without_end_is_refused() -> None:
    writer = StreamWriter(1.0)
    reader = StreamReader()
    reader.feed(writer.line(snapshot(NOON), NOON))
    change = edited(writer.line(snapshot(NOON + 1, gpu(name="x")), NOON), lambda _: None)

    def grow(told: Any, number: int) -> None:
        told["sequence"] = number
        told["snapshot"]["reserved"] = {
            "rows": [*range(number - 2), None],
            "gpu_uuid": {str(number - 2): "GPU-0"},
            "command": {str(number - 2): "x" * 65536},
        }

    lines = (edited(change, partial(grow, number=number)) for number in range(2, 1000))
    with pytest.raises(StreamError, match="no full line for too long"):
        feed_all(reader, lines)


@pytest.mark.parametrize("table", ["gpus", "processes", "uses", "mig", "suspects", "reserved"])
def test_more_rows_than_any_machine_has_are_refused(table: str) -> None:
    def grow(told: Any) -> None:
        told["snapshot"][table] = {"rows": 200_000}

    assert "damaged" in refused(edited(FULL, grow))


def test_changes_after_the_longest_time_begin_anew_before_a_reader_refuses() -> None:
    writer = StreamWriter(1.0)
    reader = StreamReader()
    full = 0
    for number in range(12):
        command = (f"{number}", "x" * MEGABYTE)
        state = snapshot(NOON + number, processes=(replace(process(1), command=command),))
        (sample,) = reader.feed(writer.line(state, NOON))
        assert sample.snapshot == state
        full += sample.full
    assert full == 2


def test_a_sentence_quotes_nothing_that_acts_on_a_terminal() -> None:
    for damage in (b"\x1b]0;owned\x07\n", "\u202eevil\n".encode()):
        refused(FULL + damage)
        refused(damage * 20_000)
    with suppress(StreamError):
        feed(b"\x00\n" * 100)
