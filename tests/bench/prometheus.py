"""What it costs to read 1,000 hosts with 8 GPUs each from a real Prometheus.

    python -m tests.bench.prometheus [SECONDS]

Prometheus scrapes the pages of simulated dcgm-exporters every 30 s, for so many seconds before
anything is measured.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpumon.config.settings import Prometheus
from gpumon.prometheus import read_endpoint
from gpumon.prometheus.client import PrometheusClient
from gpumon.prometheus.poller import PrometheusPoller
from gpumon.prometheus.queries import Queries
from tests.bench.meters import pss_of
from tests.prometheus.exporters import Exporters, page
from tests.prometheus.server import PrometheusServer, open_fleet, wait_for

HOSTS = 1000
ROUNDS = 10
_SCRAPED_SECONDS = 90.0


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else _SCRAPED_SECONDS
    pages = {name: page(name) for name in (f"gpu-{number:04}" for number in range(HOSTS))}
    exporters = Exporters(lambda host: pages[host])
    targets = [
        (
            f"127.0.0.1:{exporters.port}",
            {"__metrics_path__": f"/{name}/metrics", "instance": f"{name}:9400", "job": "dcgm"},
        )
        for name in pages
    ]
    with tempfile.TemporaryDirectory() as folder:
        server = PrometheusServer(Path(folder), targets, interval="30s")
        try:
            time.sleep(seconds)
            # Processes of their own: the simulated exporters are in this one.
            for part in ("_measure", "_cost"):
                code = f"from tests.bench import prometheus; prometheus.{part}({server.url!r})"
                subprocess.run([sys.executable, "-c", code], check=True, stdin=subprocess.DEVNULL)
        finally:
            server.close()
            exporters.close()
    return 0


def _measure(url: str) -> None:
    """Print how long rounds over all hosts take, and to open one."""
    client = PrometheusClient(read_endpoint(url, Prometheus()))
    poller = PrometheusPoller(client, Queries(""))
    rounds, own = [], []
    for _ in range(ROUNDS):
        began, worked = time.perf_counter(), time.thread_time()
        poller.read_all((), lambda: None)
        rounds.append(time.perf_counter() - began)
        own.append(time.thread_time() - worked)
        time.sleep(1)
    client.close()
    print(f"{len(poller.hosts)} hosts; a round: {_spread(rounds)}, of it gpumon's: {_spread(own)}")
    fleet = open_fleet(url)
    wait_for(fleet, lambda now: len(now.hosts) == HOSTS, "all hosts")
    opened, pasts = [], []
    for number in range(ROUNDS):
        source = fleet.machine(f"gpu-{100 * number:04}").source
        began = time.perf_counter()
        source.open()
        while source.sample().gpus[0].power_draw is None:
            pass
        opened.append(time.perf_counter() - began)
        began = time.perf_counter()
        list(source.past())
        pasts.append(time.perf_counter() - began)
        source.close()
    fleet.close()
    print(f"a host opened: {_spread(opened)}; its past: {_spread(pasts)}")


def _spread(seconds: list[float]) -> str:
    return f"{1000 * statistics.median(seconds):.0f} ms (at most {1000 * max(seconds):.0f})"


def _cost(url: str) -> None:
    """Read for half a minute, and print what it cost."""
    fleet = open_fleet(url)
    wait_for(fleet, lambda now: len(now.hosts) == HOSTS, "all hosts")
    used, began = time.process_time(), time.monotonic()
    time.sleep(30)
    share = (time.process_time() - used) / (time.monotonic() - began)
    pss = pss_of(os.getpid()) / 2**20
    print(f"CPU {100 * share:.1f} % of a core, PSS {pss:.0f} MiB")
    fleet.close()


if __name__ == "__main__":
    raise SystemExit(main())
