"""Other machines in a page: over a real ssh, and from a real Prometheus."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from gpumon.fleet.fleet import HostStatus
from tests.driver import Driver, Owner, h100
from tests.driver.owners import owners
from tests.exporter.exporting import exporting
from tests.fleet.conftest import environment, lab
from tests.prometheus.server import PrometheusServer, needs_prometheus, open_fleet, wait_for
from tests.web.serving import serving, visiting
from tests.web.test_looking import DOWN, ENTER, ESCAPE, REFUSED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fleet.sshd import Lab

__all__ = ["lab"]  # a fixture


@pytest.mark.slow
async def test_hosts_over_ssh_are_seen_and_nothing_is_ended_there(lab: Lab) -> None:
    with (
        Driver([h100()] * 2) as one,
        Driver([h100()] * 4) as other,
        owners(1, ["python", "train.py"]) as (owner,),
    ):
        other.cards[1].processes = [Owner(owner.pid, memory=2**34, sm=90)]
        lab.host("gpu-01", environment(one))
        lab.host("gpu-02", environment(other))
        ssh = shlex.join(lab.client.client)
        with serving("--hosts", "gpu-[01-02]", "--ssh", ssh) as served:
            async with visiting(served) as visit:
                await visit.wait_for(r"hosts 2 .* of 6 GPUs[\s\S]*gpu-01 ")
                await visit.type(DOWN * 2 + ENTER)
                await visit.wait_for(rf"gpumon +gpu-02 [\s\S]*\n +1 +{owner.pid} ")
                await visit.type(DOWN + "k")
                await visit.wait_for(REFUSED)
                await visit.type(ESCAPE * 2)
                await visit.wait_for(r"hosts 2 ")
        assert owner.poll() is None


@pytest.mark.slow
@needs_prometheus
async def test_hosts_of_a_prometheus_are_seen(tmp_path: Path) -> None:
    with exporting("--demo", "-n", "0.5") as exporter:
        prometheus = PrometheusServer(tmp_path, [(f"127.0.0.1:{exporter.port}", {"job": "gpumon"})])
        try:
            fleet = open_fleet(prometheus.url)
            wait_for(
                fleet,
                lambda now: any(one.status is HostStatus.LIVE for one in now.hosts),
                "the host",
            )
            fleet.close()
            with serving("--prometheus", prometheus.url) as served:
                async with visiting(served) as visit:
                    await visit.wait_for(r"hosts 1[\s\S]*ada-07 .* LOST")
                    await visit.type(DOWN + ENTER)
                    await visit.wait_for(r"Prometheus has no processes")
        finally:
            prometheus.close()
