"""``gpumon log`` as people run it: a process of its own, and the files that it writes."""

from __future__ import annotations

import csv
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.recording.csv.columns import GPU_COLUMNS, PROCESS_COLUMNS
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LOG = [sys.executable, "-m", "gpumon", "log"]


class Log:
    """A ``gpumon log`` that runs; what it says on standard error goes to a file."""

    def __init__(self, process: subprocess.Popen[bytes], stderr: Path, stdout: Path) -> None:
        self.process = process
        self._stderr = stderr
        self._stdout = stdout

    @property
    def said(self) -> str:
        """All it has said so far."""
        return self._stderr.read_text(encoding="utf-8")

    def wait_said(self, pattern: str) -> re.Match[str]:
        """Wait until it has said something; returns the newest that it has."""
        found: list[re.Match[str]] = []

        def says() -> bool:
            found.extend(re.finditer(pattern, self.said))
            assert found or self.process.poll() is None, f"it ended without {pattern}: {self.said}"
            return bool(found)

        wait_until(says, f"{pattern!r} in what it says")
        return found[-1]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to end; returns its status."""
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        assert self._stdout.read_bytes() == b"", "standard output belongs to nobody"
        return status


@contextmanager
def logging(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Iterator[Log]:
    """A ``gpumon log``; killed at the end of the block if it still runs."""
    with tempfile.TemporaryDirectory() as directory:
        stderr, stdout = Path(directory, "stderr"), Path(directory, "stdout")
        with (
            stderr.open("wb") as words,
            stdout.open("wb") as nothing,
            subprocess.Popen(
                [*LOG, *map(str, arguments)],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=nothing,
                stderr=words,
            ) as process,
        ):
            try:
                yield Log(process, stderr, stdout)
            finally:
                process.kill()


def run_log(
    *arguments: str | Path, env: Mapping[str, str] | None = None, **options: object
) -> subprocess.CompletedProcess[str]:
    """Run ``gpumon log`` to its end."""
    return subprocess.run(  # type: ignore[call-overload,no-any-return]  # keywords pass through
        [*LOG, *map(str, arguments)],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **options,
    )


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Wait for a condition, which must come."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waiting for {what}"
        time.sleep(0.01)


def rows(path: Path) -> list[dict[str, str]]:
    """The whole rows of a file of a log; a line that is still being written is no row."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    lines = text[: text.rfind("\n") + 1].splitlines()
    found = list(csv.DictReader(lines, strict=True))
    columns = PROCESS_COLUMNS if path.name.endswith(".processes.csv") else GPU_COLUMNS
    for row in found:
        assert list(row) == [column.name for column in columns], "a row is as long as the header"
        assert None not in row.values(), "a row is whole"
    return found


def wait_for_samples(path: Path, count: int) -> list[dict[str, str]]:
    """Wait for so many different moments in a file; returns its rows."""
    wait_until(
        lambda: len({row["timestamp"] for row in rows(path)}) >= count, f"{count} samples in {path}"
    )
    return rows(path)
