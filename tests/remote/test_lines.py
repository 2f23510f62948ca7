"""Lines are those that were written, however they arrive, and no long one is kept."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from gpumon.remote.protocol import Lines

MOST = 8
TEXTS = st.lists(st.binary(max_size=2 * MOST).map(lambda text: text.replace(b"\n", b"")))


@given(TEXTS, st.data())
def test_lines_do_not_depend_on_how_they_arrive(texts: list[bytes], data: st.DataObject) -> None:
    written = b"".join(text + b"\n" for text in texts)
    borders = sorted(data.draw(st.lists(st.integers(0, len(written)))))
    lines, found = Lines(MOST), []
    for begin, end in zip([0, *borders], [*borders, len(written)], strict=True):
        found += lines.feed(written[begin:end])
    assert found == [None if len(text) > MOST else text for text in texts]
    assert not lines.too_long


def test_a_line_without_end_takes_no_memory() -> None:
    lines = Lines(2**20)
    tracemalloc.start()
    try:
        for _ in range(4000):
            assert lines.feed(bytes(2**16)) == []
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lines.too_long
    assert held < 2.5 * 2**20
    assert lines.feed(b"\nok\n") == [None, b"ok"]
