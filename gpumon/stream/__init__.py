"""``gpumon stream``: the state of a machine as lines of JSON, and the reader of these lines.

``docs/stream.md`` describes the format. One program writes, another reads:

* ``StreamWriter`` makes one line of each sample: all of it in the first line and every minute, in
  between only what changed. ``gpumon.stream.session`` samples this machine and writes the lines to
  standard output.
* ``StreamReader.feed`` takes bytes as they arrive, cut anywhere, and returns a ``StreamedSample``
  for each whole line. What it reads may be hostile: it raises nothing but ``StreamError``, and its
  time and memory are bounded. After an error it raises the same error again: connect anew.

A ``StreamedSample`` has the ``Snapshot`` of the other machine, equal to the one that was written.
Texts in it are as hostile as those of this machine: see ``gpumon.text.formatting.printable``.
"""

from gpumon.stream.reader import StreamReader
from gpumon.stream.sample import (
    MOST_LINE,
    SCHEMA,
    GpuState,
    Heartbeat,
    StreamedSample,
    StreamError,
)
from gpumon.stream.writer import StreamWriter

__all__ = [
    "MOST_LINE",
    "SCHEMA",
    "GpuState",
    "Heartbeat",
    "StreamError",
    "StreamReader",
    "StreamWriter",
    "StreamedSample",
]
