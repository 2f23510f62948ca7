"""``gpumon watch`` as people run it, and what it reaches: a command, and a real HTTP server."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

from tests.command import GPUMON, write_config
from tests.exporter.exporting import wait_until
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.driver import Driver

WATCH = [*GPUMON, "watch", "-n", "0.1"]
_ASKED = "nvmlDeviceGetUtilizationRates"
HOOK = """\
import json, os, sys
notice = json.load(sys.stdin)
with open(sys.argv[1], "a") as file:
    file.write(json.dumps(notice) + "\\n")
"""


class Watch:
    """A ``gpumon watch`` that runs."""

    def __init__(self, process: subprocess.Popen[bytes], stdout: Path, stderr: Path) -> None:
        self.process = process
        self._stdout = stdout
        self._stderr = stderr
        self.wait_stderr("watching ")

    @property
    def lines(self) -> list[str]:
        return self._stdout.read_text(encoding="utf-8").splitlines()

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(encoding="utf-8")

    def wait_stderr(self, text: str) -> None:

        def is_printed() -> bool:
            found = text in self.stderr
            assert found or self.process.poll() is None, f"it ended without {text}: {self.stderr}"
            return found

        wait_until(is_printed, f"{text!r} on standard error")

    def wait_lines(self, *titles: str) -> None:
        """Wait until exactly these titles are printed, in any order."""

        def printed() -> bool:
            assert self.process.poll() is None, self.stderr
            return len(self.lines) >= len(titles)

        wait_until(printed, f"{titles} in {self.lines}")
        seen = sorted(line[20:].partition(" | ")[0].partition(" ")[2] for line in self.lines)
        assert seen == sorted(titles)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def watching(driver: Driver, folder: Path, name: str = "watch") -> Iterator[Watch]:
    """Run ``gpumon watch`` in the block, which begins after some samples unless NVML fails."""
    stdout, stderr = folder / f"{name}.out", folder / f"{name}.err"
    with stdout.open("wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(
            WATCH,
            env={**driver.env(), "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    try:
        yield Watch(process, stdout, stderr)
    finally:
        process.kill()
        process.wait()


def wait_samples(driver: Driver, count: int = 4) -> None:
    """Wait for so many further samples."""
    wanted = driver.cards[0].times(_ASKED) + count
    wait_until(lambda: driver.cards[0].times(_ASKED) >= wanted, f"{count} samples")


def write_alerts(folder: Path, *tables: Mapping[str, object]) -> None:
    """Write the configuration with these alerts."""
    from gpumon.config.toml_text import toml

    lines = (
        ["[[alerts]]", *(f"{key} = {toml(value)}" for key, value in table.items())]
        for table in tables
    )
    write_config(folder, "\n".join(itertools.chain(*lines)))


class Hook:
    """A command that writes what it gets into a file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "hook.jsonl"
        script = folder / "hook.py"
        script.write_text(HOOK, encoding="utf-8")
        self.channel = {"command": [sys.executable, str(script), str(self._file)]}

    @property
    def notices(self) -> list[dict[str, object]]:
        if not self._file.exists():
            return []
        return [json.loads(line) for line in self._file.read_text().splitlines()]


class Post(NamedTuple):
    """A request that a server got."""

    path: str
    headers: Mapping[str, str]
    body: str


@contextmanager
def http_server() -> Iterator[tuple[str, list[Post]]]:
    """A server that keeps what is posted to it: its URL, and that."""
    posts: list[Post] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            posts.append(Post(self.path, dict(self.headers), body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as there
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", posts
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
