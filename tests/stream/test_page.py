"""``docs/stream.md`` says what is in a line, and its example runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from gpumon.findings.finding import FindingKind, Severity
from gpumon.model.processes import ProcessId
from gpumon.recording.recording import Event, EventKind
from gpumon.stream import SCHEMA, GpuState, Heartbeat, StreamWriter
from tests.build import NOON, snapshot
from tests.stream.test_round_trip import demo_samples, lines_of

PAGE = (Path(__file__).parents[2] / "docs" / "stream.md").read_text(encoding="utf-8")


def keys(name: str) -> list[str]:
    """The keys in a table of the page."""
    table = PAGE.partition(f"<!-- keys: {name} -->\n")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def test_every_key_of_a_line_is_on_the_page() -> None:
    events = (
        Event(NOON, EventKind.CAME, ProcessId(7, 9), "7 came to GPU 0", ("GPU-0",)),
        Event(NOON, EventKind.FULL, "GPU-0", "GPU 0 memory full", ("GPU-0",)),
    )
    line = StreamWriter(1.0).line(
        snapshot(NOON),
        NOON,
        events=events,
        states=(GpuState("GPU-0", FindingKind.HOT, Severity.WARNING, NOON),),
        heartbeat=Heartbeat("why", 3.0),
        dropped=2,
    )
    told = json.loads(line)
    assert set(keys("line")) == told.keys()
    assert set(keys("states")) == told["states"].keys() - {"rows"}
    assert set(keys("events")) == {key for event in told["events"] for key in event}
    assert f"`{SCHEMA}`" in PAGE


def test_the_example_reads_a_stream() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    samples = demo_samples(2)
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=b"".join(lines_of(samples)) + b"{}\n",
        capture_output=True,
        check=True,
    )
    first, second, refused = done.stdout.decode().splitlines()
    assert [first, second] == [
        f"{number} {len(sample.processes)}" for number, sample in enumerate(samples, 1)
    ]
    assert refused.startswith("line 3 of the stream is damaged")
