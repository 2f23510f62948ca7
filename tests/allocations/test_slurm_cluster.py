"""The Slurm that other tests use: it runs jobs, and leaves no process behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import slurm
from tests.slurm import SlurmCluster, wait_until

pytestmark = [
    pytest.mark.skipif(bool(slurm.MISSING), reason=f"{', '.join(slurm.MISSING)} not installed"),
    pytest.mark.xdist_group("slurm"),
]


def sockets(cluster: SlurmCluster, job: str) -> list[Path]:
    """Those of the steps of a job."""
    return list(cluster.spool.glob(f"{slurm.NODE}_{job}.*"))


def test_the_socket_of_a_job_is_there_while_it_runs() -> None:
    with slurm.slurm(2) as cluster:
        job = cluster.submit("--gres=gpu:1")
        wait_until(lambda: bool(sockets(cluster, job)), "the socket of the job")
        assert "GRES=gpu:h100:1(IDX:0)" in cluster.call("scontrol", "show", "job", "-d", job)
        cluster.cancel(job)
        wait_until(lambda: not sockets(cluster, job), "the socket to go")
    assert cluster.pids() == []
    assert not cluster.folder.exists()


@pytest.mark.parametrize("daemon", ["slurmd", "slurmctld"])
def test_no_job_outlives_a_cluster_whose_daemon_died(daemon: str) -> None:
    with slurm.slurm(1) as cluster:
        job = cluster.submit("--gres=gpu:1")
        wait_until(lambda: bool(sockets(cluster, job)), "the socket of the job")
        cluster.stop(daemon)
    assert cluster.pids() == []
