"""A real Prometheus on a loopback port, which scrapes what a test names."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from gpumon.config.settings import Prometheus
from gpumon.prometheus import PrometheusFleet, read_endpoint, read_match
from tests.known import known
from tests.ports import free_place
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from gpumon.fleet.fleet import FleetSnapshot, HostState

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed"
)


class PrometheusServer:
    """Runs until ``close``; may be stopped and started again with its data.

    What it scrapes are addresses with labels, in the way that ``scraping`` says.
    """

    def __init__(
        self,
        folder: Path,
        targets: Iterable[tuple[str, Mapping[str, str]]] = (),
        interval: str = "1s",
        rules: Path | None = None,
        **scraping: object,
    ) -> None:
        self._folder = folder
        self._targets = folder / "targets.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._place = free_place()
        self.scrape(targets)
        searched = {"files": [str(self._targets)], "refresh_interval": "1s"}
        intervals = ("scrape_interval", "scrape_timeout", "evaluation_interval")
        config = {
            "global": dict.fromkeys(intervals, interval),
            "rule_files": [] if rules is None else [str(rules)],
            # Every target says of which job it is.
            "scrape_configs": [{"job_name": "none", "file_sd_configs": [searched], **scraping}],
        }
        # JSON is YAML.
        folder.joinpath("prometheus.yml").write_text(json.dumps(config))
        self.start()

    @property
    def url(self) -> str:
        return f"http://{self._place}"

    def scrape(self, targets: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        groups = [{"targets": [address], "labels": dict(labels)} for address, labels in targets]
        new = self._folder / "targets.new"
        new.write_text(json.dumps(groups))
        new.replace(self._targets)

    def start(self) -> None:
        """Start it; it may take a second to answer."""
        with self._folder.joinpath("said").open("ab") as said:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._folder}/prometheus.yml",
                    f"--storage.tsdb.path={self._folder}/data",
                    f"--web.listen-address={self._place}",
                    "--web.enable-lifecycle",
                ],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE)
            finally:
                self._process.kill()
            self._process = None


def open_fleet(url: str, match: str = "", **terms: float) -> PrometheusFleet:
    """A fleet of a server without a password, started."""
    endpoint = read_endpoint(url, Prometheus())
    fleet = PrometheusFleet(endpoint, read_match(match), 0.5, **terms)
    fleet.start()
    return fleet


def wait_for(
    fleet: PrometheusFleet, holds: Callable[[FleetSnapshot], object], what: str
) -> FleetSnapshot:
    deadline = time.monotonic() + PATIENCE
    while not holds(latest := fleet.latest()):
        assert time.monotonic() < deadline, f"waiting for {what}: {latest}"
        time.sleep(0.05)
    return latest


def host_of(fleet: FleetSnapshot, name: str) -> HostState | None:
    return next((host for host in fleet.hosts if host.name == name), None)


def wait_for_host(
    fleet: PrometheusFleet, name: str, holds: Callable[[HostState], object], what: str
) -> HostState:

    def of_host(latest: FleetSnapshot) -> bool:
        host = host_of(latest, name)
        return host is not None and bool(holds(host))

    return known(host_of(wait_for(fleet, of_host, f"{name}: {what}"), name))
