"""``gpumon --prometheus`` from a real Prometheus that scrapes a real ``gpumon exporter``."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpumon.findings import FindingKind
from gpumon.fleet.fleet import HostStatus
from tests.command import GPUMON, run_here, run_program, write_config
from tests.exporter.exporting import exporting
from tests.prometheus.exporters import DEFAULT_COUNTERS, Exporters, page
from tests.prometheus.server import (
    PrometheusServer,
    needs_prometheus,
    open_fleet,
    wait_for,
    wait_for_host,
)
from tests.screen import PATIENCE, Screen

pytestmark = [needs_prometheus, pytest.mark.slow]


_EMPTY = {**DEFAULT_COUNTERS, "DCGM_FI_DEV_GPU_UTIL": 0, "DCGM_FI_DEV_FB_USED": 4}
_PAGES = {"gpu-01": page("gpu-01", gpus=2), "gpu-02": page("gpu-02", _EMPTY, gpus=4)}


HOSTS = [HostStatus.DOWN, *[HostStatus.LIVE] * 3]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """The demo by ``gpumon exporter`` as job ``gpumon``; two hosts of ``dcgm``, a third one down.

    Of ``gpu-02`` all four GPUs are empty.
    """
    exporters = Exporters(lambda host: _PAGES[host])
    with exporting("--demo", "--jobs", "-n", "0.5") as exporter:
        targets = [exporters.target(host) for host in (*_PAGES, "gpu-03")]
        targets.append((f"127.0.0.1:{exporter.port}", {"job": "gpumon"}))
        made = PrometheusServer(tmp_path_factory.mktemp("prometheus"), targets)
        fleet = open_fleet(made.url)
        wait_for(fleet, lambda now: sorted(one.status for one in now.hosts) == HOSTS, "all hosts")
        fleet.close()
        yield made
        made.close()
    exporters.close()


def run(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return run_program([*GPUMON, *arguments], {**os.environ, **(env or {})})


def test_users_and_states_of_gpumon_exporter(server: PrometheusServer) -> None:
    fleet = open_fleet(server.url, 'job="gpumon"')
    try:
        host = wait_for_host(
            fleet, "ada-07", lambda now: now.status is HostStatus.LIVE and now.states, "its states"
        )
        assert host.snapshot is not None
        assert [state.gpu_uuid for state in host.states] == [gpu.uuid for gpu in host.snapshot.gpus]
        kinds = {state.kind for state in host.states}
        assert {FindingKind.LOST, FindingKind.FREE} <= kinds
        lost = next(one for one in host.states if one.kind is FindingKind.LOST)
        gpu = next(one for one in host.snapshot.gpus if one.uuid == lost.gpu_uuid)
        assert gpu.status.value == "lost"
        owners = {owner.user: owner for owner in host.owners}
        assert owners["ann"].gpus
        assert owners["ann"].memory
        assert owners["ann"].idle_memory is not None
        assert host.snapshot.processes == ()
    finally:
        fleet.close()


def test_the_screen(server: PrometheusServer) -> None:
    """All hosts, one of them open with its past, and why there are no processes."""
    with Screen([*GPUMON, "--prometheus", server.url], columns=150, lines=30) as screen:
        screen.wait_for(r"hosts 3/4")
        screen.wait_for(r"ada-07 .* LOST")
        screen.wait_for(r"gpu-02 ○○○○ +4 ")
        screen.wait_for(r"gpu-03 .* down .*Prometheus does not reach")
        screen.type("u")
        screen.wait_for(r"ann +\d+ .* ada-07")
        screen.type("u")
        screen.wait_for(r"hosts 3/4")
        screen.type("\x1b[B\r")
        screen.wait_for(r"gpumon +ada-07")
        screen.wait_for(r"Prometheus has no processes")
        screen.wait_for(r"processes: not in Prometheus")
        # Power is no metric of the fleet's screen.
        screen.wait_for(r"\d+/700W")
        screen.type("[")
        screen.wait_for(r"REWIND +ada-07")
        screen.type("\x1b[F")
        screen.wait_gone(r"REWIND")
        screen.type("\x1b")
        screen.wait_for(r"hosts 3/4")
        screen.type("q")
        assert screen.wait_end() == 0


def test_select_and_snapshot(server: PrometheusServer) -> None:
    chosen = run("select", "--prometheus", server.url, "-n", "3", "--match", 'job="dcgm"')
    assert chosen.returncode == 0
    assert chosen.stdout.startswith("gpu-02 GPU-")
    told = run("snapshot", "--prometheus", server.url, "--format", "json")
    assert told.returncode == 1
    assert "gpu-03: Prometheus does not reach its exporter" in told.stderr
    assert '"gpu-01"' in told.stdout
    assert json.loads(told.stdout)


def test_the_configuration_has_the_server(server: PrometheusServer, tmp_path: Path) -> None:
    text = f'[prometheus]\nurl = "{server.url}"\nmatch = \'job="dcgm"\'\n'
    told = run("snapshot", "--prometheus", env=write_config(tmp_path, text))
    assert "gpu-01" in told.stdout
    assert "ada-07" not in told.stdout


def test_no_secret_is_in_the_list_of_processes(server: PrometheusServer, tmp_path: Path) -> None:
    """Nor in its environment, which children inherit, nor on the screen."""
    token = tmp_path / "token"
    token.write_text("open-sesame-4711\n")
    text = f'[prometheus]\nurl = "{server.url}"\ntoken_file = "{token}"\n'
    env = {**os.environ, **write_config(tmp_path, text)}
    with Screen([*GPUMON, "--prometheus"], env, columns=120, fresh=True) as screen:
        screen.wait_for(r"hosts 3/4")
        # What everybody, and what the same user, can read of the program.
        own = Path(f"/proc/{screen.process.pid}")
        assert b"--prometheus" in (own / "cmdline").read_bytes()
        for name in ("cmdline", "environ"):
            assert b"open-sesame" not in (own / name).read_bytes()
        assert "open-sesame" not in screen.text()
        screen.type("q")
        assert screen.wait_end() == 0
    assert b"open-sesame" not in screen.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--prometheus", "http://127.0.0.1:1"], "127.0.0.1:1: it refuses connections"),
        (["--prometheus", "http://ann:pass@h"], "every user of this machine could read"),
        (["--prometheus"], "no url under [prometheus]"),
        (["--match", 'job="a"'], "--match needs --prometheus"),
        (["--prometheus", "http://h", "--match", 'a="} or vector(1)'], "--match is not a list"),
        (["--prometheus", "http://h", "--hosts", "a"], "give one of them"),
        (["--prometheus", "http://h", "--ssh", "ssh"], "--ssh needs --hosts"),
        (["--prometheus", "http://h", "--demo"], "leave out --demo or --prometheus"),
    ],
)
def test_options_that_cannot_be(arguments: list[str], expected: str) -> None:
    told = run_here("snapshot", *arguments)
    assert told.returncode in {1, 2}
    assert expected in told.stderr
    assert told.stderr.count("\n") == 1
    assert "pass@" not in told.stderr


def test_the_first_answer_is_waited_for(tmp_path: Path) -> None:
    """A command that prints once does so after Prometheus has answered, not before."""
    began = time.monotonic()
    empty = PrometheusServer(tmp_path)
    try:
        while (
            "no metrics of GPUs" not in (told := run("snapshot", "--prometheus", empty.url)).stderr
        ):
            assert time.monotonic() - began < PATIENCE, told
        assert told.returncode == 1
    finally:
        empty.close()
