"""``docs/stream.md`` says what is in a sample, and its example runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from gpumon.stream import SCHEMA
from gpumon.stream.sample import StreamFrame
from tests.stream.wire import SEQUENCE, demo_samples, opened, parts_of, sealed

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
