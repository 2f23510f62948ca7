"""Another program that has reserved a card."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.known import known
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HOLD = """
import os, resource, sys, time
from gpumon.scheduling.locks import Locks
folder, size, uuid = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if size >= 0:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
held = Locks(folder, os.environ).take([uuid], "python train.py")
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def holder(folder: Path, uuid: str, size: int = -1) -> Iterator[subprocess.Popen[bytes]]:
    """Reserve a card in the block, by a program that may write so many bytes to a file."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder), str(size), uuid],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)
        known(process.stdin).close()
        process.stdout.close()
