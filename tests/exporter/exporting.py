"""``gpumon exporter`` as people run it: a process of its own, and clients that scrape it."""

from __future__ import annotations

import base64
import http.client
import re
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.command import GPUMON, run_program
from tests.known import known
from tests.screen import PATIENCE

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping

EXPORTER = [*GPUMON, "exporter"]


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exporter:
    """A ``gpumon exporter`` that runs, on a port of 127.0.0.1."""

    def __init__(self, process: subprocess.Popen[bytes], stderr: Path) -> None:
        self.process = process
        self._stderr = stderr
        self.port = int(self.wait_said(r"serving https?://\S+:(\d+)/metrics")[1])

    @property
    def said(self) -> str:
        return self._stderr.read_text(encoding="utf-8")

    def wait_said(self, pattern: str) -> re.Match[str]:

        def says() -> bool:
            found = re.search(pattern, self.said) is not None
            assert found or self.process.poll() is None, f"it ended without {pattern}: {self.said}"
            return found

        wait_until(says, f"{pattern!r} in what it says")
        return known(re.search(pattern, self.said))

    def get(
        self,
        path: str = "/metrics",
        *,
        method: str = "GET",
        tls: ssl.SSLContext | None = None,
        user: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: str | None = None,
    ) -> Answer:
        """One request; ``user`` is a name and a password with a colon between."""
        if tls is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        else:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=PATIENCE, context=tls
            )
        sent = dict(headers or {})
        if user is not None:
            sent["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        try:
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.headers), answer.read())
        finally:
            connection.close()

    def scrape(self) -> Scrape:
        answer = self.get()
        assert answer.status == 200
        return Scrape(answer.body.decode())

    def wait_for(self, holds: Callable[[Scrape], object], what: str) -> Scrape:
        """Wait until a scrape fulfils a condition, and return it."""
        found: list[Scrape] = []

        def look() -> object:
            found.append(self.scrape())
            return holds(found[-1])

        wait_until(look, what, pause=0.1)
        return found[-1]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


class Scrape:
    """A page, parsed by Prometheus' own client library."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def values(self, name: str, label: str = "gpu", **chosen: str) -> dict[str, float]:
        """The values of a metric by a label, of samples with the chosen labels."""
        return {
            sample.labels[label]: sample.value
            for sample in self.samples
            if sample.name == name and chosen.items() <= sample.labels.items()
        }

    def labels(self, name: str, label: str, by: str = "gpu") -> dict[str, str]:
        """The values of a label of a metric by another label."""
        return {
            sample.labels[by]: sample.labels[label]
            for sample in self.samples
            if sample.name == name
        }

    @property
    def up(self) -> float | None:
        return next(iter(self.values("gpumon_driver_up", "Hostname").values()), None)


@contextmanager
def exporting(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Iterator[Exporter]:
    """A ``gpumon exporter`` on a free port; killed at the end of the block if it still runs."""
    with tempfile.TemporaryDirectory() as directory:
        stderr = Path(directory, "stderr")
        listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
        with (
            stderr.open("wb") as words,
            subprocess.Popen(
                [*EXPORTER, *listen, *map(str, arguments)],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=words,
            ) as process,
        ):
            try:
                yield Exporter(process, stderr)
            finally:
                process.kill()


def run_exporter(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_program([*EXPORTER, *map(str, arguments)])


def wait_until(holds: Callable[[], object], what: str, pause: float = 0.02) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waiting for {what}"
        time.sleep(pause)
