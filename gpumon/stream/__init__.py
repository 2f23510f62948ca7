"""``gpumon stream``: the state of a machine for gpumon on another machine, and its reader.

``docs/stream.md`` describes the format. One program writes, another reads:

* ``StreamWriter`` makes the bytes of each sample. ``gpumon.stream.session`` samples this machine
  and writes them to standard output.
* ``StreamReader.feed`` takes bytes as they arrive, cut anywhere, and returns a ``StreamedSample``
  for each whole sample. What it reads may be hostile: it raises nothing but ``StreamError``, and
  its time and memory are bounded. After an error it raises the same error again: connect anew.

A ``StreamedSample`` has the ``Snapshot`` of the other machine, equal to the one that was written.
Texts in it are as hostile as those of this machine: see ``gpumon.text.formatting.printable``.
"""

from gpumon.stream.reader import PART, StreamReader
from gpumon.stream.sample import (
    SCHEMA,
    GpuState,
    Heartbeat,
    OtherVersionError,
    StreamedSample,
    StreamError,
)
from gpumon.stream.writer import StreamWriter

__all__ = [
    "PART",
    "SCHEMA",
    "GpuState",
    "Heartbeat",
    "OtherVersionError",
    "StreamError",
    "StreamReader",
    "StreamWriter",
    "StreamedSample",
]
